"""One op on grown operands: what must be masked first, which properties change, what the padding of its results is.

Masks stand where an op combines elements over a grown dimension: reductions (neutral element of the kind), products
(zeros on both sides: a zero alone does not silence a NaN on the other), scatters (updates from the padding get an index
outside). Gathers clamp to the true extent. Everything else works element by element, or moves elements, and what it
makes of padding is padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp, Properties, get_text, ints
from rhino.dialects.hlo.constant import ConstantOp, IotaOp
from rhino.dialects.hlo.conv import ConvolutionOp
from rhino.dialects.hlo.dot import DotGeneralOp
from rhino.dialects.hlo.dynamic import DynamicSliceOp, DynamicUpdateSliceOp
from rhino.dialects.hlo.elementwise import ConvertOp, SelectOp
from rhino.dialects.hlo.index import GatherOp, ScatterOp
from rhino.dialects.hlo.indexing import components, join
from rhino.dialects.hlo.pointwise import PointwiseOp
from rhino.dialects.hlo.reduce import ReduceOp
from rhino.dialects.hlo.shape import (
    BroadcastInDimOp,
    ConcatenateOp,
    PadOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from rhino.ir import types
from rhino.ir.dense import dense, to_numpy
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Dims, Rule
from rhino.passes.padded import Held, Padded, Shape, same

Known = tuple[np.generic | None, dict[int, np.generic]]

#: Ops of whose results we know: an element depends on elements at the same place alone.
_ELEMENTWISE = (PointwiseOp, SelectOp, ConvertOp)
_MOVES = (BroadcastInDimOp, ReshapeOp, TransposeOp, SliceOp, DynamicSliceOp)


@dataclass(frozen=True)
class Growth:
    """An op, its rule, and the new sizes of the factors that grow."""

    op: HloOp
    rule: Rule
    sizes: Mapping[str, int]

    @property
    def grown(self) -> Rule:
        """The rule with the new sizes."""
        return replace(self.rule, sizes={**self.rule.sizes, **self.sizes})

    def wanted(self, operand: int) -> Shape:
        """The extents that the op needs of an operand."""
        rule = self.grown
        return rule.shape(rule.operands[operand])

    def dims(self, tensor: Dims, factors: Sequence[str]) -> list[int]:
        """Where growing factors stand in a tensor."""
        return [d for d, dim in enumerate(tensor) if any(f in self.sizes and f in factors for f in dim)]

    def combined(self) -> list[str]:
        """Growing factors over which the op combines."""
        return [f for f in self.sizes if self.rule.kind(f) != "pass"]


def emit(growth: Growth, operands: Sequence[Held], padded: Padded) -> tuple[HloOp, list[Held]]:
    """Emit the op on operands of the extents that it needs; returns it with its results.

    Raises ProgramError when the op does not come out as its rule says, a mistake in this module.
    """
    op, b = growth.op, padded.builder
    masked = _masked(growth, operands, padded)
    values = [held.value for held in masked]
    if isinstance(op, GatherOp):
        values[1] = _clamped(b, growth, op, values)
    new = b.emit(type(op), values, _properties(growth, values))
    uniform, pads = known(growth, masked)
    out = []
    for old, result, dims in zip(op.results, new.results, growth.rule.results, strict=True):
        have, want = types.shape_of(result), growth.grown.shape(dims)
        if have != want:
            raise ProgramError(f"{op.name}: grown to {list(have)} instead of {list(want)}")
        out.append(Held(result, types.shape_of(old), uniform, pads))
    return new, out


def _masked(growth: Growth, operands: Sequence[Held], padded: Padded) -> list[Held]:
    """Operands whose padding changes no true element of the result."""
    op, factors = growth.op, growth.combined()
    out = list(operands)
    if isinstance(op, ReduceOp):
        out[0] = padded.mask(out[0], growth.dims(growth.rule.operands[0], factors), op.kind.data)
    elif isinstance(op, DotGeneralOp | ConvolutionOp):
        out = _silent(growth, out, factors, padded)
    elif isinstance(op, ScatterOp):
        out[1] = _outside(growth, op, out, factors, padded)
    return out


def _silent(growth: Growth, operands: Sequence[Held], factors: Sequence[str], padded: Padded) -> list[Held]:
    """Operands of a product whose padding adds nothing to the sums over these factors."""
    out = list(operands)
    for factor in factors:
        at = [growth.dims(tensor, [factor]) for tensor in growth.rule.operands]
        pads = [held.pad(dims[0]) for held, dims in zip(out, at, strict=True)]
        zero = [c is not None and bool(c == 0) for c in pads]
        harmless = [
            types.is_integer(types.element_of(h.value)) or (c is not None and bool(np.isfinite(c)))
            for h, c in zip(out, pads, strict=True)
        ]
        if (zero[0] and harmless[1]) or (zero[1] and harmless[0]):
            continue
        if harmless[0] or harmless[1]:  # zeros beside finite numbers are enough
            which = 0 if harmless[1] else 1
            out[which] = padded.mask(out[which], at[which], "sum")
        else:
            out = [padded.mask(held, dims, "sum") for held, dims in zip(out, at, strict=True)]
    return out


def _clamped(b: Builder, growth: Growth, op: GatherOp, values: Sequence[SSAValue]) -> SSAValue:
    """Indices that end where the looked-up dimensions end: a gather clamps to what it sees, padding included."""
    rule, ix = growth.rule, op.indexing
    ends = {d: ix.operand[d] - 1 for d in growth.dims(rule.operands[0], growth.combined())}
    if not ends:
        return values[1]
    ix = replace(ix, indices=types.shape_of(values[1]))
    parts = components(b, ix, values[1])
    for i, d in enumerate(ix.index_map):
        if d in ends:
            parts[i] = b.minimum(parts[i], b.full_like(parts[i], ends[d]))
    return join(b, ix, parts)


def _outside(
    growth: Growth, op: ScatterOp, operands: Sequence[Held], factors: Sequence[str], padded: Padded
) -> Held:
    """Indices that lead the updates in the padding out of the operand, where they are dropped."""
    held, b = operands[1], padded.builder
    dims = growth.dims(growth.rule.operands[1], factors)
    if not dims:
        return held
    x = held.value
    if types.element_of(x) != types.I64:
        x = b.convert(x, types.I64)
    far = b.full_like(x, max(operands[0].shape))
    return replace(
        held, value=b.select(padded.inside(held.shape, held.true, dims), x, far), uniform=None, pads={}
    )


def _properties(growth: Growth, values: Sequence[SSAValue]) -> Properties:
    """The op's properties with the extents that some of them hold brought up to date."""
    op, new = growth.op, dict(growth.op.properties)
    result = growth.grown.shape(growth.rule.results[0])
    if isinstance(op, BroadcastInDimOp | ReshapeOp):
        new["shape"] = ints(result)
    elif isinstance(op, DynamicSliceOp):
        new["sizes"] = ints(result)
    elif isinstance(op, SliceOp):
        start, limit, strides = op.bounds
        grown = growth.dims(growth.rule.results[0], list(growth.sizes))
        new["limit"] = ints(
            [a + (result[d] - 1) * s + 1 if d in grown else b
             for d, (a, b, s) in enumerate(zip(start, limit, strides, strict=True))]
        )  # fmt: skip
    elif isinstance(op, IotaOp):
        new["type"] = types.tensor(result, types.element_of(op.result))
    elif isinstance(op, ConstantOp):
        array = to_numpy(op.value)
        wide = np.pad(array, [(0, n - e) for n, e in zip(result, array.shape, strict=True)])
        new["value"] = dense(wide, types.tensor(result, types.element_of(op.result)))
    elif isinstance(op, GatherOp):
        ix = op.indexing
        shape = types.shape_of(values[0])
        windows = growth.dims(growth.rule.operands[0], [f for f in growth.sizes if f.startswith("o")])
        new["slice_sizes"] = ints([shape[d] if d in windows else size for d, size in enumerate(ix.sizes)])
    return new


def known(growth: Growth, operands: Sequence[Held]) -> Known:
    """What is known of the elements of the results: of all of them, and of the padding of single dimensions."""
    op = growth.op
    if isinstance(op, ConstantOp):
        zero = types.numpy_dtype(types.element_of(op.result)).type(0)
        return None, dict.fromkeys(growth.dims(growth.rule.results[0], list(growth.sizes)), zero)
    uniform = combine(growth, operands, None)
    pads = {}
    for d, dim in enumerate(growth.rule.results[0]):
        for factor in dim:
            if factor in growth.sizes and (c := combine(growth, operands, factor)) is not None:
                pads[d] = c
    return uniform, pads


def combine(growth: Growth, operands: Sequence[Held], factor: str | None) -> np.generic | None:
    """What the result holds in the padding of a factor (everywhere if None), if that is known."""
    op = growth.op
    values = [_at(held, dims, factor) for held, dims in zip(operands, growth.rule.operands, strict=True)]
    if isinstance(op, _ELEMENTWISE):
        return _elementwise(op, values)
    if isinstance(op, _MOVES):
        return values[0]
    if isinstance(op, ConcatenateOp):
        return _common(values)
    if isinstance(op, DynamicUpdateSliceOp):
        return _common(values[:2])
    if isinstance(op, PadOp):
        return (
            values[0] if values[0] is not None and same(values[0], values[0].dtype.type(op.number)) else None
        )
    if isinstance(op, GatherOp):
        return values[0]
    if isinstance(op, ReduceOp | DotGeneralOp | ScatterOp):
        return _combined(op, values, factor)
    return None


def _combined(
    op: ReduceOp | DotGeneralOp | ScatterOp, values: Sequence[np.generic | None], factor: str | None
) -> np.generic | None:
    zero = types.numpy_dtype(types.element_of(op.result)).type(0)
    zeros = [c is not None and bool(c == 0) for c in values]
    if isinstance(op, DotGeneralOp):
        whole = types.is_integer(types.element_of(op.result))
        return zero if all(zeros) or (whole and any(zeros)) else None
    if isinstance(op, ScatterOp):
        if factor is not None and factor.startswith("s"):  # an index may lie in the padding
            return None
        kind = get_text(op.properties, "kind")
        if kind == "set":
            return _common([values[0], values[2]])
        return (
            zero if kind == "add" and zeros[2] and values[0] is not None and same(values[0], zero) else None
        )
    kind, value = op.kind.data, values[0]
    if kind == "sum":
        return zero if zeros[0] else None
    return value if kind != "prod" or zeros[0] or (value is not None and value == 1) else None


def _elementwise(op: HloOp, values: Sequence[np.generic | None]) -> np.generic | None:
    if isinstance(op, SelectOp) and values[0] is not None:
        return values[1] if values[0] else values[2]
    if isinstance(op, SelectOp):
        return _common(values[1:])
    if any(v is None for v in values):
        return None
    with np.errstate(all="ignore"):
        (out,) = op.evaluate(*[np.asarray(v) for v in values])
    return np.asarray(out)[()]  # type: ignore[return-value]


def _common(values: Sequence[np.generic | None]) -> np.generic | None:
    """The value that all have, to the bit."""
    first = values[0]
    return first if first is not None and all(v is not None and same(first, v) for v in values) else None


def _at(held: Held, dims: Dims, factor: str | None) -> np.generic | None:
    for d, dim in enumerate(dims):
        if factor in dim:
            return held.pad(d)
    return held.uniform
