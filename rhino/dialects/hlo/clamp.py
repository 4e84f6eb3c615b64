"""Elementwise ops beside those of `unary` and `binary`: clamp, cube root, rounding, a barrier to optimisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    VarConstraint,
    irdl_op_definition,
    operand_def,
    result_def,
    var_operand_def,
    var_result_def,
)

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties, get_integer, shapes
from rhino.dialects.hlo.common import Cotangents, check_element, integer_def
from rhino.dialects.hlo.pointwise import FloatUnaryOp, Groups, UnaryOp, elementwise_rule, need
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Dims, Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


#: Unsigned integers of the width of a float type, its significand bits and exponent bits.
_FORMATS: dict[str, tuple[str, int, int]] = {
    "float64": ("u8", 52, 11),
    "float32": ("u4", 23, 8),
    "float16": ("u2", 10, 5),
    "bfloat16": ("u2", 7, 8),
}


@irdl_op_definition
class ClampOp(HloOp):
    """``%y = hlo.clamp %min, %x, %max : tensor<f32>, tensor<4xf32>, tensor<f32>``: the nearest to x in [min, max].

    The bounds have the shape of x or are scalars. NaN in any operand gives NaN; where min > max it is max. The
    gradient reaches x where it is inside or on a bound, else the bound.
    """

    name = "hlo.clamp"
    T: ClassVar = VarConstraint("T", TENSOR)
    minimum = operand_def(TENSOR)
    x = operand_def(T)
    maximum = operand_def(TENSOR)
    result = result_def(T)
    assembly_format = (
        "$minimum `,` $x `,` $maximum attr-dict `:` type($minimum) `,` type($result) `,` type($maximum)"
    )
    #: Monotone in every operand; max(min, x) then lets partial maxima of both in, and partial minima of one.
    CARRIES: ClassVar[dict[str, Groups]] = {
        "max": ((0,), (1,), (2,), (0, 1)),
        "min": ((0,), (1,), (2,), (0, 2), (1, 2)),
    }

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        low, x, high = operands
        need(cls.name, operands, floats=True, integers=True, booleans=True)
        for i, bound in ((0, low), (2, high)):
            check_element(i, bound, x)
            if bound.get_shape() not in ((), x.get_shape()):
                raise ProgramError(
                    f"operand {i} is {types.show(bound)}, but operand 1 is {types.show(x)}",
                    remedy="a bound is a scalar or has the shape of what is clamped",
                )
        return [x]

    def rule(self) -> Rule:
        return elementwise_rule(shapes(self.operands), types.shape_of(self.result), carries=self.CARRIES)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        low, x, high = operands
        return (np.asarray(np.minimum(np.maximum(low, x), high)),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        b, shape = builder, types.shape_of(self.x)
        if dy is None or not types.is_float(types.element_of(self.x)):
            return [None, None, None]

        def whole(bound: SSAValue) -> SSAValue:
            return bound if types.shape_of(bound) == shape else b.broadcast_in_dim(bound, shape, ())

        def like(bound: SSAValue, value: SSAValue) -> SSAValue:
            return value if types.shape_of(bound) == shape else b.reduce(value, range(len(shape)), "sum")

        zero, low, high = b.full_like(dy, 0), whole(self.minimum), whole(self.maximum)
        raised = b.maximum(low, self.x)
        above = b.compare(raised, high, "gt")
        below = b.compare(self.x, low, "lt")
        inside = b.select(above, zero, dy)
        return [
            like(self.minimum, b.select(below, inside, zero)),
            b.select(below, zero, inside),
            like(self.maximum, b.select(above, dy, zero)),
        ]

    def flops(self) -> int:
        return 2 * super().flops()


def _cube_root(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.power(x, 1 / 3), x.dtype) if x.dtype.kind == "c" else np.cbrt(x)


@irdl_op_definition
class CbrtOp(FloatUnaryOp):
    """``%y = hlo.cbrt %x : tensor<4xf32>``: the cube root, of a complex number the principal one."""

    name = "hlo.cbrt"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(_cube_root)

    def gradient(self, b: Builder, dy: SSAValue) -> Cotangents:
        y = self.result
        return [b.div(dy, b.mul(b.full_like(y, 3), b.mul(y, y)))]


def _round_away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return whole + np.copysign((np.abs(x - whole) >= 0.5).astype(x.dtype), x)


@irdl_op_definition
class RoundNearestAfzOp(FloatUnaryOp):
    """``%y = hlo.round_nearest_afz %x : tensor<4xf32>``: to the nearest integer, halves away from zero."""

    name = "hlo.round_nearest_afz"
    NUMPY: ClassVar = staticmethod(_round_away)


def reduce_precision(x: np.ndarray, exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """`x` rounded as if stored with so many bits: to nearest even, what is too small becomes 0, too large inf.

    As XLA does it: subnormal numbers of the small format are flushed to zero.
    """
    if x.dtype.name not in _FORMATS:  # f8: through float32, which holds every f8 and its roundings
        return np.asarray(reduce_precision(x.astype(np.float32), exponent_bits, mantissa_bits)).astype(
            x.dtype
        )
    name, significand, exponent = _FORMATS[x.dtype.name]
    dtype = np.dtype(name)
    bits = np.ascontiguousarray(x).view(dtype).reshape(x.shape)
    one = dtype.type(1)
    if mantissa_bits < significand:
        drop = dtype.type(significand - mantissa_bits)
        last = one << drop
        bias = (last >> one) - one
        bits = (bits + ((bits & last) >> drop) + bias) & ~(last - one)
    if exponent_bits < exponent:
        sign = bits & (one << dtype.type(8 * dtype.itemsize - 1))
        mask = dtype.type(((1 << exponent) - 1) << significand)
        bias_from, bias_to = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        at = bits & mask
        over = at > dtype.type((bias_from + bias_to) << significand)
        under = at <= dtype.type((bias_from - bias_to) << significand)
        bits = np.where(over, sign | mask, np.where(under, sign, bits))
    out = np.asarray(bits).astype(dtype, copy=False).view(x.dtype).reshape(x.shape)
    return np.asarray(np.where(np.isnan(x), x, out))


@irdl_op_definition
class ReducePrecisionOp(UnaryOp):
    """``%y = hlo.reduce_precision %x e 5 m 10 : tensor<4xf32>``: rounded to so many exponent, mantissa bits."""

    name = "hlo.reduce_precision"
    INTEGERS: ClassVar = False
    exponent_bits: IntegerAttr = integer_def()
    mantissa_bits: IntegerAttr = integer_def()
    assembly_format = "$x `e` $exponent_bits `m` $mantissa_bits attr-dict `:` type($result)"
    #: Rounding is monotone.
    CARRIES: ClassVar = {"max": ((0,),), "min": ((0,),)}

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        exponent, mantissa = (get_integer(properties, n) for n in ("exponent_bits", "mantissa_bits"))
        if exponent < 1 or mantissa < 0:
            raise ProgramError(f"{exponent} exponent bits and {mantissa} mantissa bits make no number")
        return super().infer(operands, properties)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        bits = (get_integer(self.properties, n) for n in ("exponent_bits", "mantissa_bits"))
        return (reduce_precision(operands[0], *bits),)

    def gradient(self, b: Builder, dy: SSAValue) -> Cotangents:
        return [b.emit1(ReducePrecisionOp, [dy], self.properties)]


@irdl_op_definition
class OptimizationBarrierOp(HloOp):
    """Its operands, all computed before any of its users runs.

    ``%a, %b = hlo.optimization_barrier %x, %y : (tensor<4xf32>, tensor<2xi64>) -> (tensor<4xf32>, tensor<2xi64>)``
    """

    name = "hlo.optimization_barrier"
    xs = var_operand_def(TENSOR)
    ys = var_result_def(TENSOR)
    assembly_format = "$xs attr-dict `:` functional-type(operands, results)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        return list(operands)

    def rule(self) -> Rule:
        """Every operand keeps its own layout; partials stay partial when all are."""
        sizes: dict[str, int] = {}
        dims: list[Dims] = []
        for i, shape in enumerate(shapes(self.operands)):
            sizes.update({f"x{i}_{d}": n for d, n in enumerate(shape)})
            dims.append(tuple((f"x{i}_{d}",) for d in range(len(shape))))
        return Rule(tuple(dims), tuple(dims), sizes, structural=True)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return operands

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        known = [i for i, dy in enumerate(cotangents) if dy is not None]
        barrier = builder.emit(OptimizationBarrierOp, [dy for dy in cotangents if dy is not None])
        out: list[SSAValue | None] = [None] * len(self.operands)
        for i, dx in zip(known, barrier.results, strict=True):
            out[i] = dx
        return out

    def flops(self) -> int:
        return 0


OPS: list[type[HloOp]] = [ClampOp, CbrtOp, RoundNearestAfzOp, ReducePrecisionOp, OptimizationBarrierOp]
