"""Elementwise ops of two operands of one type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition

from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.common import product
from rhino.dialects.hlo.pointwise import (
    BinaryOp,
    BitwiseOp,
    Groups,
    ShiftOp,
    compute,
    elementwise_rule,
    in_double,
)
from rhino.ir import types
from rhino.ir.rule import Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder

Gradient = Sequence[SSAValue | None]

#: A partial passes an idempotent op of its kind on one or both sides: max(max_i x_i, y) = max_i max(x_i, y).
_EITHER: Groups = ((0,), (1,), (0, 1))


@irdl_op_definition
class AddOp(BinaryOp):
    """``%z = hlo.add %x, %y : tensor<4xf32>``; integers wrap."""

    name = "hlo.add"
    COMPLEXES: ClassVar = True
    LINEAR: ClassVar = ((0, 1),)
    NUMPY: ClassVar = staticmethod(np.add)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [dy, dy]


@irdl_op_definition
class SubOp(BinaryOp):
    """``%z = hlo.sub %x, %y : tensor<4xf32>``; integers wrap."""

    name = "hlo.sub"
    COMPLEXES: ClassVar = True
    LINEAR: ClassVar = ((0, 1),)
    NUMPY: ClassVar = staticmethod(np.subtract)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [dy, b.negate(dy)]


@irdl_op_definition
class MulOp(BinaryOp):
    """``%z = hlo.mul %x, %y : tensor<4xf32>``; integers wrap."""

    name = "hlo.mul"
    COMPLEXES: ClassVar = True
    LINEAR: ClassVar = ((0,), (1,))
    NUMPY: ClassVar = staticmethod(product)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [b.mul(dy, self.rhs), b.mul(dy, self.lhs)]


def _quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    zero = y == 0
    safe = np.where(zero, np.ones_like(y), y)
    floor = np.floor_divide(x, safe)
    # Floor and truncation differ by one where the signs differ and something is left over.
    up = ((x < 0) != (safe < 0)) & (floor * safe != x)
    return np.where(zero, ~np.zeros_like(x), floor + up.astype(x.dtype))


@irdl_op_definition
class DivOp(BinaryOp):
    """``%z = hlo.div %x, %y : tensor<4xf32>``; integers truncate toward zero, and x / 0 is -1 (as in XLA)."""

    name = "hlo.div"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(_quotient)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        found = (
            in_double if operands[0].dtype.kind == "c" else compute
        )  # real quotients are exact but for rounding
        return (found(type(self).NUMPY, *operands),)

    def rule(self) -> Rule:
        shape = types.shape_of(self.result)
        # An integer quotient is not linear: 1/2 + 1/2 is 0, not 1.
        linear = ((0,),) if types.is_differentiable(types.element_of(self.result)) else ()
        return elementwise_rule([shape, shape], shape, linear)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [b.div(dy, self.rhs), b.negate(b.mul(dy, b.div(self.result, self.rhs)))]


def _remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    zero = y == 0
    return np.where(zero, x, np.fmod(x, np.where(zero, np.ones_like(y), y)))


@irdl_op_definition
class RemOp(BinaryOp):
    """``%z = hlo.rem %x, %y : tensor<4xf32>``: remainder with the sign of x; for integers x rem 0 is x."""

    name = "hlo.rem"
    NUMPY: ClassVar = staticmethod(_remainder)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        ratio = b.div(self.lhs, self.rhs)
        truncated = b.mul(b.sign(ratio), b.floor(b.abs(ratio)))
        return [dy, b.negate(b.mul(dy, truncated))]


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "i":  # unsigned powers have no negative exponents
        return np.power(x, y)
    result = np.power(x, np.maximum(y, 0))
    # 1 / x^-y, truncated: not 0 only for 1 and -1 (XLA has 0 for 0, too).
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0))
    return np.where(y < 0, inverse.astype(x.dtype), result)


@irdl_op_definition
class PowOp(BinaryOp):
    """``%z = hlo.pow %x, %y : tensor<4xf32>``: x to the power of y."""

    name = "hlo.pow"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(_power)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (in_double(type(self).NUMPY, *operands),)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        """d/dx = y x^(y-1), 0 where y = 0; d/dy = x^y log x, 0 where x = 0 and y >= 0, as in torch."""
        from rhino.dialects.hlo.constant import splat_of

        x, y = self.lhs, self.rhs
        exponent = splat_of(y)
        if exponent is not None:
            if exponent == 0:
                return [b.full_like(x, 0), None]
            slope = x if exponent == 2 else b.pow(x, b.full_like(x, exponent - 1.0))
            return [b.mul(dy, b.mul(slope, y)), None]
        zero, one = b.full_like(x, 0), b.full_like(x, 1)
        dx = b.mul(dy, b.mul(y, b.pow(x, b.sub(y, one))))
        vanishes = b.compare(x, zero, "eq")
        if not types.is_complex(types.element_of(x)):
            vanishes = b.and_(vanishes, b.compare(y, zero, "ge"))
        log = b.log(b.select(vanishes, one, x))
        return [b.select(b.compare(y, zero, "eq"), zero, dx), b.mul(dy, b.mul(self.result, log))]


class _Extremum(BinaryOp):
    """Maximum or minimum; at a tie each operand gets half of the gradient, as in torch."""

    BOOLEANS: ClassVar = True
    LOSES: ClassVar[str]

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        zero, half = b.full_like(dy, 0), b.mul(dy, b.full_like(dy, 0.5))
        shared = b.select(b.compare(self.lhs, self.rhs, "eq"), half, dy)
        return [
            b.select(b.compare(self.lhs, self.rhs, self.LOSES), zero, shared),
            b.select(b.compare(self.rhs, self.lhs, self.LOSES), zero, shared),
        ]


@irdl_op_definition
class MaximumOp(_Extremum):
    """``%z = hlo.maximum %x, %y : tensor<4xf32>``; NaN wins."""

    name = "hlo.maximum"
    LOSES: ClassVar = "lt"
    CARRIES: ClassVar = {"max": _EITHER}
    NUMPY: ClassVar = staticmethod(np.maximum)


@irdl_op_definition
class MinimumOp(_Extremum):
    """``%z = hlo.minimum %x, %y : tensor<4xf32>``; NaN wins."""

    name = "hlo.minimum"
    LOSES: ClassVar = "gt"
    CARRIES: ClassVar = {"min": _EITHER}
    NUMPY: ClassVar = staticmethod(np.minimum)


@irdl_op_definition
class Atan2Op(BinaryOp):
    """``%z = hlo.atan2 %y, %x : tensor<4xf32>``: the angle of the point (x, y)."""

    name = "hlo.atan2"
    INTEGERS: ClassVar = False
    NUMPY: ClassVar = staticmethod(np.arctan2)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (in_double(type(self).NUMPY, *operands),)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        square = b.add(b.mul(self.lhs, self.lhs), b.mul(self.rhs, self.rhs))
        scaled = b.div(dy, square)
        return [b.mul(scaled, self.rhs), b.negate(b.mul(scaled, self.lhs))]


@irdl_op_definition
class AndOp(BitwiseOp):
    """``%z = hlo.and %x, %y : tensor<4xi1>``"""

    name = "hlo.and"
    CARRIES: ClassVar = {"and": _EITHER}
    NUMPY: ClassVar = staticmethod(np.bitwise_and)


@irdl_op_definition
class OrOp(BitwiseOp):
    """``%z = hlo.or %x, %y : tensor<4xi1>``"""

    name = "hlo.or"
    CARRIES: ClassVar = {"or": _EITHER}
    NUMPY: ClassVar = staticmethod(np.bitwise_or)


@irdl_op_definition
class XorOp(BitwiseOp):
    """``%z = hlo.xor %x, %y : tensor<4xi1>``"""

    name = "hlo.xor"
    NUMPY: ClassVar = staticmethod(np.bitwise_xor)


@irdl_op_definition
class ShiftLeftOp(ShiftOp):
    """``%z = hlo.shift_left %x, %n : tensor<4xi32>``; 0 when all bits are shifted out."""

    name = "hlo.shift_left"
    NUMPY: ClassVar = staticmethod(np.left_shift)


def _shift_logical(x: np.ndarray, n: np.ndarray) -> np.ndarray:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.asarray(np.right_shift(x.view(unsigned), n.view(unsigned))).view(x.dtype)


@irdl_op_definition
class ShiftRightLogicalOp(ShiftOp):
    """``%z = hlo.shift_right_logical %x, %n : tensor<4xi32>``: zeros come in from the left."""

    name = "hlo.shift_right_logical"
    NUMPY: ClassVar = staticmethod(_shift_logical)


def _shift_arithmetic(x: np.ndarray, n: np.ndarray) -> np.ndarray:
    signed = np.dtype(f"i{x.dtype.itemsize}")
    return np.asarray(np.right_shift(x.view(signed), n.view(signed))).view(x.dtype)


@irdl_op_definition
class ShiftRightArithmeticOp(ShiftOp):
    """``%z = hlo.shift_right_arithmetic %x, %n : tensor<4xi32>``: copies of the sign come in."""

    name = "hlo.shift_right_arithmetic"
    NUMPY: ClassVar = staticmethod(_shift_arithmetic)


OPS: list[type[HloOp]] = [
    AddOp,
    SubOp,
    MulOp,
    DivOp,
    RemOp,
    PowOp,
    MaximumOp,
    MinimumOp,
    Atan2Op,
    AndOp,
    OrOp,
    XorOp,
    ShiftLeftOp,
    ShiftRightLogicalOp,
    ShiftRightArithmeticOp,
]
