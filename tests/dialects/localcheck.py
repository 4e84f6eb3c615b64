"""Every placement that an op's rule allows, run on all devices through `localize`, equals the global op."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from hloprog import build, type_like
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp, Localizer
from rhino.ir import types
from rhino.ir.evaluate import compile_ranks
from rhino.ir.layout import Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.rule import Rule, Split
from rhino.ir.shards import combine, shard, unshard

MESHES = (Mesh.parse("2x2"), Mesh.parse("3"), Mesh.parse("4"))


@dataclass(frozen=True)
class Partial:
    """An atom on which the operands of a group are partial."""

    axis: AxisRef
    kind: str
    group: tuple[int, ...]


class CoordinateBuilder(Builder):
    """A builder to which a device's coordinates are further arguments of the function."""

    def __init__(self, func: FuncOp) -> None:
        super().__init__(InsertPoint.at_end(func.body.block))
        self.axes: list[tuple[AxisRef, ...]] = []

    def axis_index(self, axes: Sequence[AxisRef], mesh: Mesh | None = None) -> SSAValue:
        self.axes.append(tuple(axes))
        block = self.point.block
        return block.insert_arg(types.tensor((), types.I64), len(block.args))


def options(rule: Rule, atom: AxisRef, dtypes: Sequence[np.dtype]) -> list[Split | Partial | None]:
    """What one atom may do: nothing, split a factor in any period, or be partial in allowed operands."""
    out: list[Split | Partial | None] = [None]
    for factor in rule.factors:
        size = rule.sizes[factor]
        out += [
            Split(atom, factor, p) for p in range(atom.size, size + 1) if size % p == 0 and p % atom.size == 0
        ]
    groups = {("sum", g) for g in rule.linear} | {(k, g) for k, many in rule.carries.items() for g in many}
    if rule.structural:
        groups |= {(k, tuple(range(len(dtypes)))) for k in ("sum", "max", "min", "prod", "and", "or")}
    for kind, group in sorted(groups):
        kinds = {dtypes[i].kind for i in group}
        if (kind in ("sum", "prod") and "b" in kinds) or (kind in ("and", "or") and "f" in kinds):
            continue
        out.append(Partial(atom, kind, group))
    return out


def placements(
    rule: Rule, mesh: Mesh, dtypes: Sequence[np.dtype], limit: int
) -> Iterator[tuple[tuple[Layout, ...], tuple[Layout, ...]]]:
    """Layouts of operands and results; at most `limit`, evenly picked."""
    found = []
    for choice in itertools.product(*(options(rule, atom, dtypes) for atom in mesh.atoms)):
        splits = [c for c in choice if isinstance(c, Split)]
        if rule.halo_error(splits) is not None:
            continue
        placed = rule.place(splits)
        operands, results = list(placed.operands), list(placed.results)
        for c in choice:
            if isinstance(c, Partial):
                for i in c.group:
                    operands[i] = operands[i].with_partial(c.axis, c.kind)
                results = [r.with_partial(c.axis, c.kind) for r in results]
        everything = [
            *zip(operands, map(rule.shape, rule.operands), strict=True),
            *zip(results, map(rule.shape, rule.results), strict=True),
        ]
        if all(layout.error(shape) is None for layout, shape in everything):
            found.append((tuple(operands), tuple(results)))
    step = max(1, len(found) // limit)
    yield from found[::step]


def pieces_of(
    array: np.ndarray, layout: Layout, mesh: Mesh, seed: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(global array, piece of every device); partial layouts get different values on every device."""
    atoms = [atom for atom, _ in layout.partial]
    if not atoms:
        return array, [shard(array, layout, mesh, d) for d in mesh.devices()]
    kind = layout.partial[0][1]
    rng = np.random.default_rng(seed)
    count = int(np.prod([a.size for a in atoms]))
    if array.dtype == np.bool_:
        parts = [rng.integers(0, 2, array.shape).astype(np.bool_) for _ in range(count)]
    else:
        parts = [rng.integers(-2, 3, array.shape).astype(array.dtype) for _ in range(count)]
    split = layout.without(atoms)
    return combine(kind, parts), [
        shard(parts[mesh.coordinate(d, atoms)], split, mesh, d) for d in mesh.devices()
    ]


def check_local(
    program: Callable[..., SSAValue | Sequence[SSAValue]],
    arrays: Sequence[np.ndarray],
    *,
    meshes: Sequence[Mesh] = MESHES,
    limit: int = 40,
) -> int:
    """Check the last op of `program`, whose operands are the arguments. Returns the number of placements."""
    module = build(program, [type_like(a) for a in arrays])
    func = module.body.block.first_op
    assert isinstance(func, FuncOp)
    op = [o for o in func.body.block.ops if isinstance(o, HloOp)][-1]
    order = [o.index for o in op.operands]
    arrays = [arrays[i] for i in order]
    rule, count = op.rule(), 0
    for dims, value in [
        *zip(rule.operands, op.operands, strict=True),
        *zip(rule.results, op.results, strict=True),
    ]:
        assert rule.shape(dims) == types.shape_of(value)
    for mesh in meshes:
        for operands, results in placements(rule, mesh, [a.dtype for a in arrays], limit):
            count += 1
            where = f"{op} under {operands} -> {results}"
            assert (why := rule.admits(operands, results)) is None, f"{where}: {why}"
            cut = [
                pieces_of(a, lay, mesh, i) for i, (a, lay) in enumerate(zip(arrays, operands, strict=True))
            ]
            wholes = [w for w, _ in cut]
            got = run_local(op, mesh, operands, results, [p for _, p in cut])
            for want, pieces, layout in zip(op.evaluate(*wholes), got, results, strict=True):
                out = unshard(pieces, layout, want.shape, mesh)
                np.testing.assert_array_equal(out, want, err_msg=where)
    return count


def run_local(
    op: HloOp,
    mesh: Mesh,
    operands: Sequence[Layout],
    results: Sequence[Layout],
    pieces: Sequence[Sequence[np.ndarray]],
) -> list[list[np.ndarray]]:
    """The op's local program on all devices in lockstep."""
    func = FuncOp("main", ([type_like(p[0]) for p in pieces], []))
    builder = CoordinateBuilder(func)
    local = tuple(
        types.tensor(layout.local_shape(types.shape_of(r)), types.element_of(r))
        for r, layout in zip(op.results, results, strict=True)
    )
    ctx = Localizer(builder, mesh, tuple(operands), tuple(results), local)
    out = list(op.localize(ctx, func.args[: len(pieces)]))
    assert tuple(o.type for o in out) == local
    func.body.block.add_op(ReturnOp(*out))
    for inner in func.body.block.ops:
        if isinstance(inner, HloOp):
            inner.verify()
    here = [[np.array(mesh.coordinate(d, axes)) for d in mesh.devices()] for axes in builder.axes]
    return compile_ranks(func, mesh)([*pieces, *here])
