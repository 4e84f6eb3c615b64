"""Between which bounds every element of a local program's values lies on every rank, whatever its arguments hold.

Interval arithmetic over the program: what only indices decide is known exactly, arguments may be anything finite
inside of their extents and are zero behind them, and every op passes its operands' bounds on. An op that is not known
here may make anything, NaN included. It is arithmetic of numbers: finite results do not overflow, and what is above
zero does not become zero.

One premise says which arguments are meant: a value of no dimensions, which cannot be padding, is finite. (A mean over
no label at all is not, and all of the program's results are NaN then.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    AxisIndexOp,
    PermuteOp,
    ReduceScatterOp,
    ShardOp,
)
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import GLOBAL_TYPE, LAYOUT
from rhino.dialects.hlo.index import GatherOp
from rhino.dialects.hlo.reduce import ReduceOp
from rhino.ir import types
from rhino.ir.mesh import Mesh
from rhino.ir.shards import shard

#: Greater than every finite number.
BIG = np.finfo(np.float64).max
#: Less than every number above zero.
TINY = np.nextafter(0.0, 1.0)

MOVES = (
    "hlo.broadcast_in_dim", "hlo.reshape", "hlo.transpose", "hlo.slice", "hlo.concatenate", "hlo.pad", "hlo.reverse",
)  # fmt: skip
RISING: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "hlo.exp": np.exp,
    "hlo.log": np.log,
    "hlo.sqrt": np.sqrt,
    "hlo.tanh": np.tanh,
    "hlo.floor": np.floor,
    "hlo.ceil": np.ceil,
}


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest that every element can be, as f64. From -inf to inf: anything, NaN included."""

    low: np.ndarray
    high: np.ndarray

    @property
    def exact(self) -> np.ndarray:
        """Elements that can be one number only."""
        return self.low == self.high

    @property
    def anything(self) -> np.ndarray:
        return np.isneginf(self.low) & np.isposinf(self.high)

    @property
    def finite(self) -> np.ndarray:
        return (np.abs(self.low) <= BIG) & (np.abs(self.high) <= BIG)

    def among(self, mask: np.ndarray, other: Bounds) -> Bounds:
        """These bounds where the mask is true, the others elsewhere."""
        return Bounds(np.where(mask, self.low, other.low), np.where(mask, self.high, other.high))


PerRank = list[Bounds]


def made(low: np.ndarray, high: np.ndarray, *sources: Bounds) -> Bounds:
    """What an op on `sources`, element by element, makes: anything of anything, finite numbers of finite ones."""
    low, high = np.asarray(low), np.asarray(high)
    finite = np.asarray(True)
    wild = np.isnan(low) | np.isnan(high)
    for source in sources:
        wild, finite = wild | source.anything, finite & source.finite
    low, high = (
        np.where(finite, np.clip(low, -BIG, BIG), low),
        np.where(finite, np.clip(high, -BIG, BIG), high),
    )
    return Bounds(np.where(wild, -np.inf, low), np.where(wild, np.inf, high))


def anything(shape: Sequence[int]) -> Bounds:
    return Bounds(np.full(shape, -np.inf), np.full(shape, np.inf))


def product(x: Bounds, y: Bounds) -> Bounds:
    corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]  # 0 * inf is NaN: anything
    return made(np.minimum.reduce(corners), np.maximum.reduce(corners), x, y)


def reciprocal(x: Bounds) -> Bounds:
    one_sign = (x.low > 0) | (x.high < 0)
    out = made(1 / x.high, 1 / x.low, x)
    return out.among(one_sign, anything(x.low.shape))


def rising(name: str, x: Bounds) -> Bounds:
    """An increasing function; what is left of where it is defined may be anything."""
    out = made(RISING[name](x.low), RISING[name](x.high), x)
    if name == "hlo.exp":  # above zero for everything but minus infinity
        return Bounds(np.where(x.low > -np.inf, np.maximum(out.low, TINY), out.low), out.high)
    if name == "hlo.log":  # a number above zero has a logarithm, however small it is
        return Bounds(np.where((x.low > 0) & (x.low < 1e-300), -BIG, out.low), out.high)
    return out


def elementwise(op: Operation, x: Sequence[Bounds]) -> Bounds | None:
    """Bounds of an op whose elements depend on elements at the same place; None if it is not known here."""
    name = op.name
    if name == "hlo.add":
        return made(x[0].low + x[1].low, x[0].high + x[1].high, *x)
    if name == "hlo.sub":
        return made(x[0].low - x[1].high, x[0].high - x[1].low, *x)
    if name == "hlo.mul":
        out = product(*x)
        if op.operands[0] is op.operands[1]:  # a square
            return Bounds(np.where(out.anything, out.low, np.maximum(out.low, 0)), out.high)
        return out
    if name == "hlo.div" and types.is_float(types.element_of(op.results[0])):
        return product(x[0], reciprocal(x[1]))
    if name == "hlo.rsqrt":
        return rising("hlo.sqrt", reciprocal(x[0]))
    if name in ("hlo.maximum", "hlo.minimum"):
        pick = np.maximum if name == "hlo.maximum" else np.minimum
        return made(pick(x[0].low, x[1].low), pick(x[0].high, x[1].high), *x)
    if name == "hlo.negate":
        return Bounds(-x[0].high, -x[0].low)
    if name in RISING:
        return rising(name, x[0])
    if name == "hlo.convert" and types.is_float(types.element_of(op.results[0])):
        return x[0]
    if name == "hlo.compare":
        return Bounds(np.zeros_like(x[0].low), np.ones_like(x[0].low))
    if name == "hlo.select":
        condition, a, b = x
        either = Bounds(np.minimum(a.low, b.low), np.maximum(a.high, b.high))
        return a.among(condition.low > 0, b.among(condition.high <= 0, either))
    return None


def run(op: Operation, *arrays: np.ndarray) -> np.ndarray:
    """The op on arrays of bounds: it moves or adds them as it does with the program's numbers."""
    return np.asarray(op.evaluate(*arrays)[0], np.float64)  # type: ignore[attr-defined]


def one_rank(op: Operation, x: Sequence[Bounds]) -> Bounds:
    """Bounds of an op that acts on one rank's arrays."""
    shape = types.shape_of(op.results[0])
    if op.name in MOVES:
        return Bounds(run(op, *(b.low for b in x)), run(op, *(b.high for b in x)))
    if isinstance(op, ReduceOp) and op.kind.data in ("sum", "max", "min"):
        dims = tuple(d for d in range(x[0].low.ndim) if d in op.properties["dims"].get_values())
        wild, finite = x[0].anything.any(dims), x[0].finite.all(dims)
        out = made(run(op, x[0].low), run(op, x[0].high))
        out = Bounds(np.clip(out.low, -BIG, BIG), np.clip(out.high, -BIG, BIG)).among(finite, out)
        return anything(shape).among(wild, out)
    if op.name == "hlo.dot_general":
        a, b = x
        ones = [np.ones_like(v.low) for v in x]
        wild = run(op, 1.0 - a.finite, ones[1]) + run(op, ones[0], 1.0 - b.finite)
        terms = run(op, 1.0 * ((a.low != 0) | (a.high != 0)), 1.0 * ((b.low != 0) | (b.high != 0)))
        most = np.where(wild > 0, np.inf, np.where(terms > 0, BIG, 0.0))
        return Bounds(-most, most)
    if isinstance(
        op, GatherOp
    ):  # a row is one of the rows, whichever the index says; indices beyond are clamped
        dims, nothing = tuple(op.indexing.index_map), np.zeros(types.shape_of(op.operands[1]), np.int64)
        low, high = x[0].low, x[0].high
        low = np.broadcast_to(low.min(dims, keepdims=True), low.shape)
        high = np.broadcast_to(high.max(dims, keepdims=True), high.shape)
        return Bounds(run(op, low, nothing), run(op, high, nothing))
    out = elementwise(op, x)
    return anything(shape) if out is None else out


def step(op: Operation, mesh: Mesh, operands: Sequence[PerRank]) -> PerRank:
    """Bounds of the first result of an op on all ranks."""
    if isinstance(op, AxisIndexOp):
        arrays = op.evaluate_ranks(mesh, [])[0]
        return [Bounds(np.asarray(a, np.float64), np.asarray(a, np.float64)) for a in arrays]
    if isinstance(op, AllGatherOp | PermuteOp | AllToAllOp | ShardOp | AllReduceOp | ReduceScatterOp):
        return _together(op, mesh, operands[0])
    dtypes = [types.numpy_dtype(types.element_of(v)) for v in op.operands]
    out = []
    for x in zip(*operands, strict=True) if operands else [()] * mesh.size:
        if (
            len(op.results) == 1
            and not op.regions
            and all(b.exact.all() for b in x)
            and hasattr(op, "evaluate")
        ):
            array = run(op, *(b.low.astype(t) for b, t in zip(x, dtypes, strict=True)))
            out.append(made(array, array))
        else:
            out.append(one_rank(op, x))
    return out


def _together(
    op: AllGatherOp | PermuteOp | AllToAllOp | ShardOp | AllReduceOp | ReduceScatterOp, mesh: Mesh, x: PerRank
) -> PerRank:
    low = op.evaluate_ranks(mesh, [[b.low for b in x]])[0]
    high = op.evaluate_ranks(mesh, [[b.high for b in x]])[0]
    if not isinstance(op, AllReduceOp | ReduceScatterOp):
        return [Bounds(a, b) for a, b in zip(low, high, strict=True)]
    if op.kind not in ("sum", "max", "min"):
        return [anything(a.shape) for a in low]
    count = op.clone()
    count.operands = op.operands
    wild = _counted(op, mesh, [1.0 * b.anything for b in x])
    infinite = _counted(op, mesh, [1.0 - b.finite for b in x])
    out = []
    for a, b, w, i in zip(low, high, wild, infinite, strict=True):
        bounds = made(a, b)
        bounds = Bounds(np.clip(a, -BIG, BIG), np.clip(b, -BIG, BIG)).among(i == 0, bounds)
        out.append(anything(a.shape).among(w > 0, bounds))
    return out


def _counted(op: AllReduceOp | ReduceScatterOp, mesh: Mesh, flags: list[np.ndarray]) -> Sequence[np.ndarray]:
    """How an op combines flags, not below 1 where one is set: their greatest or their sum."""
    if op.kind != "min":
        return op.evaluate_ranks(mesh, [flags])[0]
    return [-a for a in op.evaluate_ranks(mesh, [[-flag for flag in flags]])[0]]


def arguments(module: ModuleOp, mesh: Mesh) -> dict[SSAValue, PerRank]:
    """Bounds of the arguments: finite, and zeros behind their extents."""
    func = signature.main_of(module)
    out: dict[SSAValue, PerRank] = {}
    for arg, slot in zip(func.args, signature.arguments(func), strict=True):
        other = dict(slot.other)
        layout = other[LAYOUT]
        assert isinstance(layout, LayoutAttr)
        shape = tuple(other[GLOBAL_TYPE].get_shape())
        placed = layout.resolve(shape, mesh)
        if types.element_of(arg) == types.I1:
            most, least = np.ones(shape), 0.0
        else:
            most, least = np.full(shape, BIG), -1.0
        if slot.extent is not None and not placed.partial:
            inside = np.zeros(shape)
            inside[tuple(map(slice, slot.extent))] = 1
            most = most * inside
        pieces = [
            shard(most, placed.without([a for a, _ in placed.partial]), mesh, r) for r in range(mesh.size)
        ]
        out[arg] = [Bounds(least * piece, piece) for piece in pieces]
    return out


def bounds_before(module: ModuleOp, mesh: Mesh, last: Operation) -> dict[SSAValue, PerRank]:
    """Bounds of all values of `@main` up to the operands of an op."""
    known = arguments(module, mesh)
    with np.errstate(all="ignore"):
        for op in signature.main_of(module).body.block.ops:
            if op is last:
                break
            if len(op.results) != 1 or op.regions:
                known.update({r: [anything(types.shape_of(r))] * mesh.size for r in op.results})
                continue
            result = op.results[0]
            known[result] = step(op, mesh, [known[v] for v in op.operands])
            if not types.shape_of(result) and types.is_float(types.element_of(result)):
                number = Bounds(np.asarray(-BIG), np.asarray(BIG))
                known[result] = [number.among(b.anything, b) for b in known[result]]
    return known


def let_in(condition: Bounds, x: Bounds, other: Bounds) -> np.ndarray:
    """Where a select may choose another number than its first one."""
    return ~((condition.low > 0) | (x.exact & other.exact & (x.low == other.low) & np.isfinite(x.low)))


def chooses_nothing(module: ModuleOp, mesh: Mesh, select: Operation) -> bool:
    """Whether what a select takes where its condition is false is what its first value is there, on all ranks."""
    known = bounds_before(module, mesh, select)
    return not any(let_in(*x).any() for x in zip(*(known[v] for v in select.operands), strict=True))


def meets_zeros(module: ModuleOp, mesh: Mesh, select: Operation) -> bool:
    """Whether what a select keeps out would only be multiplied by zeros, on all ranks: its result goes into matrix
    products alone, whose other operands are zero there, and the numbers are finite.
    """
    result = select.results[0]
    for use in result.uses:
        op = use.operation
        if op.name != "hlo.dot_general" or op.operands[1 - use.index] is result:
            return False
        known = bounds_before(module, mesh, op)
        beside = known[op.operands[1 - use.index]]
        for c, x, y, b in zip(*(known[v] for v in select.operands), beside, strict=True):
            changed = let_in(c, x, y)
            if (changed & ~(x.finite & y.finite)).any():
                return False
            pair = [1.0 * changed, 1.0 * ((b.low != 0) | (b.high != 0))]
            if run(op, *(pair if use.index == 0 else pair[::-1])).any():
                return False
    return True
