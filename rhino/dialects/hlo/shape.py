"""Ops that move elements: broadcast, reshape, transpose, slice, pad, concatenate, reverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import FloatAttr, IntegerAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import AnyAttr, irdl_op_definition, operand_def, prop_def, result_def, var_operand_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Localizer, Properties, get_integer, get_ints, ints, shapes
from rhino.dialects.hlo.common import (
    Cotangents,
    ResultShape,
    check_dims,
    check_element,
    check_length,
    cuts,
    integer_def,
    ints_def,
)
from rhino.ir import reshape as algebra
from rhino.ir import types
from rhino.ir.dense import Scalar
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


class MoveOp(HloOp):
    """Base of ops that compute nothing: no floating-point operations."""

    def flops(self) -> int:
        return 0


class UnaryMoveOp(MoveOp):
    """One operand `x`, one `result`."""

    x = operand_def(TENSOR)
    result = result_def(TENSOR)

    @property
    def shape_x(self) -> tuple[int, ...]:
        return types.shape_of(self.x)


@irdl_op_definition
class BroadcastInDimOp(UnaryMoveOp):
    """Operand dimension i becomes result dimension ``dims[i]``; extent 1 is stretched, the others are new.

    ``%y = hlo.broadcast_in_dim %x dims [1] : tensor<3xf32> -> tensor<2x3xf32>``
    """

    name = "hlo.broadcast_in_dim"
    shape = ints_def()
    dims = ints_def()
    custom_directives = (ResultShape,)
    assembly_format = "$x `dims` $dims attr-dict `:` type($x) `->` custom<ResultShape>($shape, type($result))"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        shape, dims = get_ints(properties, "shape"), get_ints(properties, "dims")
        result = types.tensor(shape, x.element_type)
        check_length("dims", dims, x)
        for i, (extent, at) in enumerate(zip(x.get_shape(), dims, strict=True)):
            if not 0 <= at < len(shape) or extent not in (1, shape[at]):
                raise ProgramError(
                    f"operand 0 is {types.show(x)}: its dimension {i} does not fit dimension {at} of the "
                    f"result {types.show(result)}",
                    remedy="extents must be equal or 1",
                )
        if len(set(dims)) != len(dims):
            raise ProgramError(
                f"dims {list(dims)} names a dimension of the result {types.show(result)} twice "
                f"for operand 0 {types.show(x)}"
            )
        return [result]

    def rule(self) -> Rule:
        return algebra.broadcast_rule(
            self.shape_x, types.shape_of(self.result), get_ints(self.properties, "dims")
        )

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = operands
        shape, dims = get_ints(self.properties, "shape"), get_ints(self.properties, "dims")
        extents = dict(zip(dims, x.shape, strict=True))
        x = x.transpose(np.argsort(dims)) if dims else x
        return (np.broadcast_to(x.reshape([extents.get(i, 1) for i in range(len(shape))]), shape),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        shape, dims = get_ints(self.properties, "shape"), get_ints(self.properties, "dims")
        kept = [(at, i) for i, at in enumerate(dims) if self.shape_x[i] == shape[at]]
        gone = sorted(set(range(len(shape))) - {at for at, _ in kept})
        dx = builder.reduce(dy, gone, "sum")
        order = [i for _, i in sorted(kept)]  # operand dimensions in the order in which they now stand
        dx = builder.transpose(dx, [int(p) for p in np.argsort(order)]) if order else dx
        return [builder.reshape(dx, self.shape_x)]

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return _with_shape(self, ctx, operands)


def _with_shape(op: HloOp, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """The same op with property `shape` set to the local result's extents."""
    shape = ints(ctx.result_types[0].get_shape())
    return ctx.builder.emit(type(op), operands, {**op.properties, "shape": shape}).results


@irdl_op_definition
class ReshapeOp(UnaryMoveOp):
    """The same elements in row-major order under other extents.

    ``%y = hlo.reshape %x : tensor<2x6xf32> -> tensor<3x4xf32>``
    """

    name = "hlo.reshape"
    shape = ints_def()
    custom_directives = (ResultShape,)
    assembly_format = "$x attr-dict `:` type($x) `->` custom<ResultShape>($shape, type($result))"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        result = types.tensor(get_ints(properties, "shape"), x.element_type)
        if math.prod(x.get_shape()) != math.prod(result.get_shape()):
            raise ProgramError(
                f"operand 0 is {types.show(x)} with {math.prod(x.get_shape())} elements, but the result "
                f"{types.show(result)} has {math.prod(result.get_shape())}"
            )
        return [result]

    def rule(self) -> Rule:
        return algebra.reshape_rule(self.shape_x, types.shape_of(self.result))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (operands[0].reshape(get_ints(self.properties, "shape")),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        return [builder.reshape(dy, self.shape_x)]

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return _with_shape(self, ctx, operands)


@irdl_op_definition
class TransposeOp(UnaryMoveOp):
    """Result dimension i is operand dimension ``perm[i]``.

    ``%y = hlo.transpose %x perm [1, 0] : tensor<2x3xf32> -> tensor<3x2xf32>``
    """

    name = "hlo.transpose"
    perm = ints_def()
    assembly_format = "$x `perm` $perm attr-dict `:` type($x) `->` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        perm, shape = get_ints(properties, "perm"), x.get_shape()
        if sorted(perm) != list(range(len(shape))):
            raise ProgramError(
                f"perm {list(perm)} is no permutation of the dimensions of operand 0 {types.show(x)}"
            )
        return [types.tensor([shape[p] for p in perm], x.element_type)]

    def rule(self) -> Rule:
        return algebra.transpose_rule(self.shape_x, get_ints(self.properties, "perm"))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (operands[0].transpose(get_ints(self.properties, "perm")),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        perm = get_ints(self.properties, "perm")
        return [builder.transpose(dy, sorted(range(len(perm)), key=perm.__getitem__))]


@irdl_op_definition
class SliceOp(UnaryMoveOp):
    """``x[start:limit:strides]`` in every dimension.

    ``%y = hlo.slice %x start [0, 1] limit [2, 6] strides [1, 2] : tensor<2x6xf32> -> tensor<2x3xf32>``
    """

    name = "hlo.slice"
    start = ints_def()
    limit = ints_def()
    strides = ints_def()
    assembly_format = (
        "$x `start` $start `limit` $limit `strides` $strides attr-dict `:` type($x) `->` type($result)"
    )

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        start, limit, strides = (get_ints(properties, n) for n in ("start", "limit", "strides"))
        for what, values in (("start", start), ("limit", limit), ("strides", strides)):
            check_length(what, values, x)
        for i, (extent, a, b, s) in enumerate(zip(x.get_shape(), start, limit, strides, strict=True)):
            if not 0 <= a <= b <= extent or s < 1:
                raise ProgramError(
                    f"slice {a}:{b}:{s} of dimension {i} does not fit operand 0 {types.show(x)}",
                    remedy="0 <= start <= limit <= extent and strides >= 1",
                )
        shape = [algebra.slice_extent(a, b, s) for a, b, s in zip(start, limit, strides, strict=True)]
        return [types.tensor(shape, x.element_type)]

    @property
    def bounds(self) -> tuple[tuple[int, ...], ...]:
        """Start, limit and strides."""
        return tuple(get_ints(self.properties, name) for name in ("start", "limit", "strides"))

    def rule(self) -> Rule:
        return algebra.slice_rule(self.shape_x, *self.bounds)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (operands[0][tuple(map(slice, *self.bounds))] if operands[0].ndim else operands[0],)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        start, _, strides = self.bounds
        length = types.shape_of(self.result)
        if 0 in length:
            return [builder.full_like(self.x, 0)]
        high = [
            extent - (a + (n - 1) * s + 1)
            for extent, a, n, s in zip(self.shape_x, start, length, strides, strict=True)
        ]
        return [builder.pad(dy, 0, start, high, [s - 1 for s in strides])]

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        local = [
            algebra.local_slice(a, b, s, cuts(ctx.operands[0], i))
            for i, (a, b, s) in enumerate(zip(*self.bounds, strict=True))
        ]
        return [ctx.builder.slice(operands[0], [a for a, _ in local], [b for _, b in local], self.bounds[2])]


def pad_array(
    x: np.ndarray,
    value: np.generic | bool | int | float,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int],
) -> np.ndarray:
    """Interior padding first, then `low` and `high`, which crop where negative."""
    wide = [n + max(0, n - 1) * gap for n, gap in zip(x.shape, interior, strict=True)]
    total = [max(0, n + lo + hi) for n, lo, hi in zip(wide, low, high, strict=True)]
    out = np.full(total, value, x.dtype)
    src, dst = [], []
    for n, lo, gap, full in zip(x.shape, low, interior, total, strict=True):
        step = gap + 1
        first = max(0, -(lo // step))  # the first element with lo + i * step >= 0
        last = min(n, max(first, -(-(full - lo) // step)))
        at = max(0, lo + first * step)  # also non-negative when nothing is left
        src.append(slice(first, last))
        dst.append(slice(at, at + (last - first - 1) * step + 1 if last > first else at, step))
    out[tuple(dst)] = x[tuple(src)]
    return out


def number_attr(value: Scalar, element: Attribute) -> Attribute:
    """A Python number as a scalar of an element type."""
    assert not isinstance(value, complex)
    if types.is_float(element):
        return FloatAttr(float(value), element)  # type: ignore[call-overload,no-any-return]
    return IntegerAttr(int(value), element)  # type: ignore[call-overload,no-any-return]


def number_of(attr: Attribute) -> bool | int | float:
    """The Python number that a scalar attribute holds."""
    if isinstance(attr, FloatAttr):
        return float(attr.value.data)
    assert isinstance(attr, IntegerAttr)
    value = int(attr.value.data)
    return bool(value) if attr.type == types.I1 else value


@irdl_op_definition
class PadOp(UnaryMoveOp):
    """`low`, `high` elements before and after (negative crops), `interior` between each two, per dimension.

    ``%y = hlo.pad %x with 0.0 : f32 low [1] high [-1] interior [1] : tensor<3xf32> -> tensor<5xf32>``
    """

    name = "hlo.pad"
    value = prop_def(AnyAttr())
    low = ints_def()
    high = ints_def()
    interior = ints_def()
    assembly_format = (
        "$x `with` $value `low` $low `high` $high `interior` $interior attr-dict `:` "
        "type($x) `->` type($result)"
    )

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        amounts = [get_ints(properties, name) for name in ("low", "high", "interior")]
        for what, values in zip(("low", "high", "interior"), amounts, strict=True):
            check_length(what, values, x)
        if any(gap < 0 for gap in amounts[2]):
            raise ProgramError(f"interior {list(amounts[2])} is negative for operand 0 {types.show(x)}")
        value = properties["value"]
        if not isinstance(value, FloatAttr | IntegerAttr) or value.type != x.element_type:
            raise ProgramError(f"the padding value {value} is no {types.show(x)} element")
        shape = [max(0, algebra.pad_extent(*per)) for per in zip(x.get_shape(), *amounts, strict=True)]
        return [types.tensor(shape, x.element_type)]

    @property
    def amounts(self) -> tuple[tuple[int, ...], ...]:
        """Low, high and interior."""
        return tuple(get_ints(self.properties, name) for name in ("low", "high", "interior"))

    @property
    def number(self) -> bool | int | float:
        """The padding value."""
        return number_of(self.value)

    def rule(self) -> Rule:
        return algebra.pad_rule(self.shape_x, *self.amounts, value=self.number)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (pad_array(operands[0], self.number, *self.amounts),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        if 0 in types.shape_of(self.result) or 0 in self.shape_x:
            return [builder.full_like(self.x, 0)]
        low, high, interior = self.amounts
        # What was cropped comes back as zeros, what was added is cut off.
        if min((*low, *high), default=0) < 0:
            dy = builder.pad(dy, 0, [max(0, -lo) for lo in low], [max(0, -hi) for hi in high])
        start = [max(0, lo) for lo in low]
        limit = [a + (n - 1) * (g + 1) + 1 for a, n, g in zip(start, self.shape_x, interior, strict=True)]
        return [builder.slice(dy, start, limit, [g + 1 for g in interior])]

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        low, high, interior = self.amounts
        local = [
            algebra.local_pad(extent, lo, hi, gap, cuts(ctx.operands[0], i))
            for i, (extent, lo, hi, gap) in enumerate(zip(self.shape_x, low, high, interior, strict=True))
        ]
        return [
            ctx.builder.pad(operands[0], self.number, [a for a, _ in local], [b for _, b in local], interior)
        ]


@irdl_op_definition
class ConcatenateOp(MoveOp):
    """Operands joined along one dimension.

    ``%z = hlo.concatenate %x, %y dim 0 : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>``
    """

    name = "hlo.concatenate"
    xs = var_operand_def(TENSOR)
    dim = integer_def()
    result = result_def(TENSOR)
    assembly_format = "$xs `dim` $dim attr-dict `:` functional-type(operands, results)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        if not operands:
            raise ProgramError("there are no operands to concatenate")
        first, dim = operands[0], get_integer(properties, "dim")
        check_dims("dim", [dim], first)
        shape = list(first.get_shape())
        for i, x in enumerate(operands[1:], 1):
            check_element(i, x, first)
            other = x.get_shape()
            if len(other) != len(shape) or any(
                a != b for d, (a, b) in enumerate(zip(other, shape, strict=True)) if d != dim
            ):
                raise ProgramError(
                    f"operand {i} is {types.show(x)} but operand 0 is {types.show(first)}: "
                    f"they may differ in dimension {dim} only"
                )
            shape[dim] += other[dim]
        return [types.tensor(shape, first.element_type)]

    def rule(self) -> Rule:
        return algebra.concat_rule(shapes(self.operands), get_integer(self.properties, "dim"))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.concatenate(operands, axis=get_integer(self.properties, "dim")),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        dim, at = get_integer(self.properties, "dim"), 0
        out = []
        limit = list(types.shape_of(self.result))
        for shape in shapes(self.operands):
            start = [0] * len(shape)
            start[dim], limit[dim] = at, at + shape[dim]
            out.append(builder.slice(dy, start, limit))
            at += shape[dim]
        return out


@irdl_op_definition
class ReverseOp(UnaryMoveOp):
    """The order of elements reversed in some dimensions.

    ``%y = hlo.reverse %x dims [1] : tensor<2x3xf32> -> tensor<2x3xf32>``
    """

    name = "hlo.reverse"
    dims = ints_def()
    assembly_format = "$x `dims` $dims attr-dict `:` type($x) `->` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        check_dims("dims", get_ints(properties, "dims"), operands[0])
        return [operands[0]]

    def rule(self) -> Rule:
        return algebra.reverse_rule(self.shape_x, get_ints(self.properties, "dims"))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.flip(operands[0], get_ints(self.properties, "dims")),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        return [builder.reverse(dy, get_ints(self.properties, "dims"))]


OPS: list[type[HloOp]] = [
    BroadcastInDimOp,
    ReshapeOp,
    TransposeOp,
    SliceOp,
    PadOp,
    ConcatenateOp,
    ReverseOp,
]
