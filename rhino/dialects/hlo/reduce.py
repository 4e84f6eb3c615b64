"""Ops that combine the elements along dimensions: reductions, index of an extremum, running reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties, get_integer, get_ints, get_text
from rhino.dialects.hlo.common import (
    UFUNCS,
    Cotangents,
    check_dims,
    check_kind,
    combine,
    integer_def,
    ints_def,
    reduce_array,
    wide,
)
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.reshape import reduce_rule
from rhino.ir.rule import REDUCTIONS, Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


class ReducingOp(HloOp):
    """One operand `x`, one `result`; a floating-point operation per element of the operand."""

    x = operand_def(TENSOR)
    result = result_def(TENSOR)

    @property
    def shape_x(self) -> tuple[int, ...]:
        return types.shape_of(self.x)

    def flops(self) -> int:
        return math.prod(self.shape_x)


@irdl_op_definition
class ReduceOp(ReducingOp):
    """Dimensions `dims` combined by `kind` (sum, max, min, prod, and, or) and removed.

    ``%y = hlo.reduce "sum" %x dims [1] : tensor<2x3xf32> -> tensor<2xf32>``

    f16 and bf16 are accumulated in f32. The gradient of max and min is shared evenly among ties.
    """

    name = "hlo.reduce"
    kind = prop_def(StringAttr)
    dims = ints_def()
    assembly_format = "$kind $x `dims` $dims attr-dict `:` type($x) `->` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        dims = get_ints(properties, "dims")
        check_kind(get_text(properties, "kind"), x, REDUCTIONS)
        check_dims("dims", dims, x)
        return [types.tensor([n for d, n in enumerate(x.get_shape()) if d not in dims], x.element_type)]

    def rule(self) -> Rule:
        return reduce_rule(self.shape_x, get_ints(self.properties, "dims"), self.kind.data)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (reduce_array(operands[0], get_ints(self.properties, "dims"), self.kind.data),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        b, x, kind = builder, self.x, self.kind.data
        dims = get_ints(self.properties, "dims")

        def spread(value: SSAValue) -> SSAValue:
            kept = [d for d in range(len(self.shape_x)) if d not in dims]
            return b.broadcast_in_dim(value, self.shape_x, kept)

        if kind == "sum":
            return [spread(dy)]
        if kind in ("max", "min"):
            hits = b.convert(b.compare(x, spread(self.result), "eq"), types.element_of(x))
            return [b.mul(hits, spread(b.div(dy, b.reduce(hits, dims, "sum"))))]
        if kind == "prod":
            is_zero = b.compare(x, b.full_like(x, 0), "eq")
            zeros = b.reduce(b.convert(is_zero, types.element_of(x)), dims, "sum")
            product = b.reduce(b.select(is_zero, b.full_like(x, 1), x), dims, "prod")
            return [b.mul(spread(dy), leave_one_out(b, x, spread(zeros), spread(product)))]
        return [None]


def leave_one_out(b: Builder, x: SSAValue, zeros: SSAValue, product: SSAValue) -> SSAValue:
    """For each element of `x` the product of the others of its group, exact where there are zeros.

    `zeros` and `product` hold for each element the number of zeros and the product of nonzeros of its group.
    """
    zero, one = b.full_like(x, 0), b.full_like(x, 1)
    is_zero = b.compare(x, zero, "eq")
    alone = b.select(b.compare(zeros, one, "eq"), product, zero)
    rest = b.select(b.compare(zeros, zero, "eq"), b.div(product, b.select(is_zero, one, x)), zero)
    return b.select(is_zero, alone, rest)


class ArgOp(ReducingOp):
    """The index (i64) of the first extremum along `dim`, which is removed; a NaN counts as the extremum.

    ``%i = hlo.argmax %x dim 1 : tensor<2x3xf32> -> tensor<2xi64>``
    """

    dim = integer_def()
    assembly_format = "$x `dim` $dim attr-dict `:` type($x) `->` type($result)"

    NUMPY: ClassVar[Callable[..., Any]]

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        dim = get_integer(properties, "dim")
        check_dims("dim", [dim], x)
        if x.get_shape()[dim] == 0:
            raise ProgramError(f"operand 0 is {types.show(x)} and has no elements along dimension {dim}")
        return [types.tensor([n for d, n in enumerate(x.get_shape()) if d != dim], types.I64)]

    def rule(self) -> Rule:
        return _whole_rule(self.shape_x, get_integer(self.properties, "dim"), keep=False)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        index = type(self).NUMPY(wide(operands[0]), axis=get_integer(self.properties, "dim"))
        return (np.asarray(index, np.int64),)


def _whole_rule(shape: Sequence[int], dim: int, keep: bool, kind: str | None = None) -> Rule:
    """All dimensions are free but `dim`, which is whole; the result has it if `keep`."""
    dims = tuple((f"i{d}",) for d in range(len(shape)))
    sizes = {f"i{d}": n for d, n in enumerate(shape)}
    result = dims if keep else tuple(f for d, f in enumerate(dims) if d != dim)
    return Rule((dims,), (result,), sizes, {f"i{dim}": "whole"}, carries={kind: ((0,),)} if kind else {})


@irdl_op_definition
class ArgMaxOp(ArgOp):
    """The index (i64) of the first maximum along `dim`, which is removed; a NaN counts as the maximum.

    ``%i = hlo.argmax %x dim 1 : tensor<2x3xf32> -> tensor<2xi64>``
    """

    name = "hlo.argmax"
    NUMPY: ClassVar[Any] = staticmethod(np.argmax)


@irdl_op_definition
class ArgMinOp(ArgOp):
    """The index (i64) of the first minimum along `dim`, which is removed; a NaN counts as the minimum.

    ``%i = hlo.argmin %x dim 1 : tensor<2x3xf32> -> tensor<2xi64>``
    """

    name = "hlo.argmin"
    NUMPY: ClassVar[Any] = staticmethod(np.argmin)


#: Up to so many elements a reversed running reduction combines in the order in which its windows hold them.
_IN_ORDER = 1024


def _from_end(x: np.ndarray, kind: str, dim: int) -> np.ndarray:
    """Result i combines elements i, i + 1, ... of the first dimension, which then becomes dimension `dim`."""
    inexact = kind in ("sum", "prod") and x.dtype.kind not in "iu"
    if inexact and len(x) <= _IN_ORDER:
        acc = wide(x)
        out = acc.copy()
        for step in range(1, len(x)):
            out[:-step] = combine(kind, out[:-step], acc[step:], x.dtype)
    else:
        acc = x if inexact else wide(x)
        out = UFUNCS[kind].accumulate(acc[::-1], axis=0, dtype=acc.dtype)[::-1]
    return np.moveaxis(out.astype(x.dtype, copy=False), 0, dim)


@irdl_op_definition
class CumulativeOp(ReducingOp):
    """Running reduction along `dim`, each step rounded: result i combines elements 0..i, with `reverse` i..last.

    ``%y = hlo.cumulative "sum" %x dim 0 : tensor<4xf32> -> tensor<4xf32>``
    ``%y = hlo.cumulative "max" %x dim 0 reverse : tensor<4xf32> -> tensor<4xf32>``

    The gradient of a running max or min goes to the element that was reached last among equals.
    """

    name = "hlo.cumulative"
    kind = prop_def(StringAttr)
    dim = integer_def()
    reverse = opt_prop_def(UnitAttr)
    assembly_format = "$kind $x `dim` $dim (`reverse` $reverse^)? attr-dict `:` type($x) `->` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        check_kind(get_text(properties, "kind"), operands[0], REDUCTIONS)
        check_dims("dim", [get_integer(properties, "dim")], operands[0])
        return [operands[0]]

    def rule(self) -> Rule:
        return _whole_rule(self.shape_x, get_integer(self.properties, "dim"), True, self.kind.data)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = operands
        dim, kind = get_integer(self.properties, "dim"), self.kind.data
        if self.reverse is not None:
            return (_from_end(np.moveaxis(x, dim, 0), kind, dim),)
        acc = x if kind in ("sum", "prod") else wide(x)
        acc = UFUNCS[kind].accumulate(acc, axis=dim, dtype=acc.dtype)
        return (acc.astype(x.dtype, copy=False),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        b, x, dim = builder, self.x, get_integer(self.properties, "dim")
        reverse = self.reverse is not None
        if self.kind.data == "sum":
            return [b.cumulative(dy, dim, "sum", not reverse)]
        if self.kind.data == "prod":
            return [self._product_derivative(b, dy)]
        if self.kind.data in ("max", "min"):
            # Where the running extremum comes from: the last position that was equal to it when reached.
            here = b.iota(types.tensor(self.shape_x, types.I64), dim)
            reached = b.compare(x, self.result, "eq")
            never = b.full_like(here, self.shape_x[dim] - 1 if reverse else 0)
            source = b.cumulative(b.select(reached, here, never), dim, "min" if reverse else "max", reverse)
            return [b.scatter_along(b.full_like(x, 0), source, dy, dim, "add")]
        return [None]

    def _product_derivative(self, b: Builder, dy: SSAValue) -> SSAValue:
        """``dx_i = sum_j dy_j y_j / x_i`` up to the first zero; at it, with it left out; nothing beyond."""
        x, dim, reverse = self.x, get_integer(self.properties, "dim"), self.reverse is not None
        zero, one = b.full_like(x, 0), b.full_like(x, 1)
        is_zero = b.compare(x, zero, "eq")
        count = b.cumulative(b.convert(is_zero, types.I64), dim, "sum", reverse)
        none = b.compare(count, b.full_like(count, 0), "eq")
        first = b.and_(is_zero, b.compare(count, b.full_like(count, 1), "eq"))
        without = b.cumulative(b.select(first, one, x), dim, "prod", reverse)
        at_first = b.cumulative(b.mul(dy, without), dim, "sum", not reverse)
        before = b.cumulative(b.mul(dy, self.result), dim, "sum", not reverse)
        before = b.div(before, b.select(is_zero, one, x))
        return b.select(none, before, b.select(first, at_first, zero))


OPS: list[type[HloOp]] = [ReduceOp, ArgMaxOp, ArgMinOp, CumulativeOp]
