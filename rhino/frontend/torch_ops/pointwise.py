"""Elementwise arithmetic of one or two tensors."""

from __future__ import annotations

import math
from collections.abc import Callable

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops.context import Handler, Number, OpContext
from rhino.ir import types

Operand = SSAValue | Number


def _unary(build: Callable[[Builder, SSAValue], SSAValue]) -> Handler:
    """An op whose operand is first converted to the result's type (integers to floating point)."""

    def handler(c: OpContext, x: SSAValue) -> SSAValue:
        return build(c.b, c.convert(x, c.element))

    return handler


def _float_only(build: Callable[[Builder, SSAValue], SSAValue]) -> Handler:
    """A rounding op; integers are their own result."""

    def handler(c: OpContext, x: SSAValue) -> SSAValue:
        return build(c.b, x) if types.is_float(types.element_of(x)) else x

    return handler


def _binary(build: Callable[[Builder, SSAValue, SSAValue], SSAValue]) -> Handler:
    """An op that is computed in the result's type."""

    def handler(c: OpContext, x: Operand, y: Operand) -> SSAValue:
        return build(c.b, *c.promoted(x, y, element=c.element))

    return handler


def _unchanged(c: OpContext, x: Operand, y: Operand, neutral: Number) -> bool:
    """Whether `y` is the number that changes nothing, and `x` has the result's type already."""
    same = isinstance(x, SSAValue) and types.type_of(x) == types.tensor(c.shape, c.element)
    return same and not isinstance(y, SSAValue) and y == neutral


def add(c: OpContext, x: Operand, y: Operand, alpha: Number = 1) -> SSAValue:
    if _unchanged(c, x, y, 0):
        assert isinstance(x, SSAValue)
        return x
    left, right = c.promoted(x, y, element=c.element)
    if c.element == types.I1:
        return c.b.or_(left, right)
    return c.b.add(left, _scaled(c, right, alpha))


def sub(c: OpContext, x: Operand, y: Operand, alpha: Number = 1) -> SSAValue:
    left, right = c.promoted(x, y, element=c.element)
    return c.b.sub(left, _scaled(c, right, alpha))


def rsub(c: OpContext, x: Operand, y: Operand, alpha: Number = 1) -> SSAValue:
    left, right = c.promoted(x, y, element=c.element)
    return c.b.sub(right, _scaled(c, left, alpha))


def _scaled(c: OpContext, x: SSAValue, alpha: Number) -> SSAValue:
    return x if alpha == 1 else c.b.mul(x, c.full(alpha, x))


def mul(c: OpContext, x: Operand, y: Operand) -> SSAValue:
    if _unchanged(c, x, y, 1):
        assert isinstance(x, SSAValue)
        return x
    left, right = c.promoted(x, y, element=c.element)
    return c.b.and_(left, right) if c.element == types.I1 else c.b.mul(left, right)


def divide(c: OpContext, x: Operand, y: Operand, rounding_mode: str | None = None) -> SSAValue:
    left, right = c.promoted(x, y, element=c.element)
    if rounding_mode is None:
        return c.b.div(left, right)
    if not types.is_float(c.element):
        quotient = c.b.div(left, right)
        return quotient if rounding_mode == "trunc" else _floor_quotient(c, left, right, quotient)
    if rounding_mode == "trunc":
        return _trunc(c.b, c.b.div(left, right))
    return _float_floor_divide(c, left, right)


def _floor_quotient(c: OpContext, x: SSAValue, y: SSAValue, quotient: SSAValue) -> SSAValue:
    """Round an integer quotient, which was cut towards zero, down."""
    apart = _signs_differ(c, c.b.rem(x, y), y)
    return c.b.select(apart, c.b.sub(quotient, c.full(1, quotient)), quotient)


def _signs_differ(c: OpContext, remainder: SSAValue, y: SSAValue) -> SSAValue:
    """Where a remainder is not zero and has the other sign than the divisor."""
    b, zero = c.b, c.full(0, remainder)
    other = b.compare(b.compare(remainder, zero, "lt"), b.compare(y, zero, "lt"), "ne")
    return b.and_(b.compare(remainder, zero, "ne"), other)


def _float_floor_divide(c: OpContext, x: SSAValue, y: SSAValue) -> SSAValue:
    """torch's (Python's) floor division of floats, exact where ``floor(x / y)`` is off by rounding."""
    b = c.b
    remainder = b.rem(x, y)
    quotient = b.div(b.sub(x, remainder), y)
    quotient = b.select(_signs_differ(c, remainder, y), b.sub(quotient, c.full(1, quotient)), quotient)
    floor = b.floor(quotient)
    closer = b.compare(b.sub(quotient, floor), c.full(0.5, quotient), "gt")
    floor = b.select(closer, b.add(floor, c.full(1, floor)), floor)
    return b.select(b.compare(y, c.full(0, y), "eq"), b.div(x, y), floor)


def remainder(c: OpContext, x: Operand, y: Operand) -> SSAValue:
    """Python's remainder: it has the divisor's sign."""
    left, right = c.promoted(x, y, element=c.element)
    rest = c.b.rem(left, right)
    return c.b.select(_signs_differ(c, rest, right), c.b.add(rest, right), rest)


def power(c: OpContext, x: Operand, y: Operand) -> SSAValue:
    if isinstance(x, SSAValue) and not isinstance(y, SSAValue):
        return _constant_power(c, c.convert(x, c.element), y)
    return c.b.pow(*c.promoted(x, y, element=c.element))


def _constant_power(c: OpContext, x: SSAValue, exponent: Number) -> SSAValue:
    """Small powers as products and roots: cheaper, and their derivatives are finite at zero."""
    b, floating = c.b, types.is_float(types.element_of(x))
    if exponent == 0:
        return c.full(1, x)
    if exponent == 1:
        return x
    if exponent in (2, 3, 4):
        square = b.mul(x, x)
        return square if exponent == 2 else b.mul(square, x if exponent == 3 else square)
    if floating and exponent in (0.5, -0.5):
        return b.sqrt(x) if exponent > 0 else b.rsqrt(x)
    if floating and exponent in (-1, -2):
        return b.div(c.full(1, x), x if exponent == -1 else b.mul(x, x))
    return b.pow(x, c.full(exponent, x))


def compare(direction: str) -> Handler:
    def handler(c: OpContext, x: Operand, y: Operand) -> SSAValue:
        left, right = c.promoted(x, y)
        return c.b.compare(left, right, direction)

    return handler


def as_bool(c: OpContext, x: SSAValue) -> SSAValue:
    """Where a tensor is not zero."""
    return x if types.element_of(x) == types.I1 else c.b.compare(x, c.full(0, x), "ne")


def _logical(build: Callable[[Builder, SSAValue, SSAValue], SSAValue]) -> Handler:
    def handler(c: OpContext, x: SSAValue, y: SSAValue) -> SSAValue:
        return build(c.b, c.broadcast(as_bool(c, x), c.shape), c.broadcast(as_bool(c, y), c.shape))

    return handler


def logical_not(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.not_(as_bool(c, x))


def where(c: OpContext, condition: SSAValue, x: Operand, y: Operand) -> SSAValue:
    picks = [c.operand(v, c.element, c.shape) for v in (x, y)]
    return c.b.select(c.broadcast(as_bool(c, condition), c.shape), *picks)


def masked_fill(c: OpContext, x: SSAValue, mask: SSAValue, value: Operand) -> SSAValue:
    return where(c, mask, value, x)


def clamp(c: OpContext, x: SSAValue, low: Operand | None = None, high: Operand | None = None) -> SSAValue:
    """Selects rather than minimum and maximum: torch's gradient is one at the bounds."""
    value = c.operand(x, c.element, c.shape)
    for bound, direction in ((low, "lt"), (high, "gt")):
        if bound is not None:
            limit = c.operand(bound, c.element, c.shape)
            value = c.b.select(c.b.compare(value, limit, direction), limit, value)
    return value


def clamp_min(c: OpContext, x: SSAValue, low: Operand) -> SSAValue:
    return clamp(c, x, low)


def clamp_max(c: OpContext, x: SSAValue, high: Operand) -> SSAValue:
    return clamp(c, x, None, high)


def sigmoid(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.logistic(c.convert(x, c.element))


def _log_base(base: float) -> Handler:
    def handler(c: OpContext, x: SSAValue) -> SSAValue:
        log = c.b.log(c.widened(c.convert(x, c.element)))
        return c.convert(c.b.mul(log, c.full(1 / math.log(base), log)), c.element)

    return handler


def exp2(c: OpContext, x: SSAValue) -> SSAValue:
    wide_x = c.widened(c.convert(x, c.element))
    return c.convert(c.b.exp(c.b.mul(wide_x, c.full(math.log(2), wide_x))), c.element)


def cosh(c: OpContext, x: SSAValue) -> SSAValue:
    b, y = c.b, c.widened(c.convert(x, c.element))
    both = b.add(b.exp(y), b.exp(b.negate(y)))
    return c.convert(b.mul(both, c.full(0.5, both)), c.element)


def sinh(c: OpContext, x: SSAValue) -> SSAValue:
    """(expm1(x) - expm1(-x)) / 2: the difference of two exponentials would lose all digits near zero."""
    b, y = c.b, c.widened(c.convert(x, c.element))
    both = b.sub(b.expm1(y), b.expm1(b.negate(y)))
    return c.convert(b.mul(both, c.full(0.5, both)), c.element)


def atan(c: OpContext, x: SSAValue) -> SSAValue:
    y = c.convert(x, c.element)
    return c.b.atan2(y, c.full(1, y))


def asin(c: OpContext, x: SSAValue) -> SSAValue:
    """atan2(x, sqrt(1 - x^2))"""
    y = c.convert(x, c.element)
    return c.b.atan2(y, _cosine_of_arcsine(c, y))


def acos(c: OpContext, x: SSAValue) -> SSAValue:
    """atan2(sqrt(1 - x^2), x)"""
    y = c.convert(x, c.element)
    return c.b.atan2(_cosine_of_arcsine(c, y), y)


def _cosine_of_arcsine(c: OpContext, x: SSAValue) -> SSAValue:
    one = c.full(1, x)
    return c.b.sqrt(c.b.mul(c.b.sub(one, x), c.b.add(one, x)))


def asinh(c: OpContext, x: SSAValue) -> SSAValue:
    """sign(x) log1p(|x| + x^2 / (1 + sqrt(1 + x^2)))"""
    b, y = c.b, c.widened(c.convert(x, c.element))
    one, square = c.full(1, y), b.mul(y, y)
    inner = b.add(b.abs(y), b.div(square, b.add(one, b.sqrt(b.add(one, square)))))
    return c.convert(b.mul(b.sign(y), b.log1p(inner)), c.element)


def acosh(c: OpContext, x: SSAValue) -> SSAValue:
    """log(x + sqrt(x^2 - 1))"""
    b, y = c.b, c.widened(c.convert(x, c.element))
    one = c.full(1, y)
    root = b.sqrt(b.mul(b.sub(y, one), b.add(y, one)))
    return c.convert(b.log(b.add(y, root)), c.element)


def atanh(c: OpContext, x: SSAValue) -> SSAValue:
    """(log1p(x) - log1p(-x)) / 2"""
    b, y = c.b, c.widened(c.convert(x, c.element))
    both = b.sub(b.log1p(y), b.log1p(b.negate(y)))
    return c.convert(b.mul(both, c.full(0.5, both)), c.element)


def erfc(c: OpContext, x: SSAValue) -> SSAValue:
    y = c.convert(x, c.element)
    return c.b.sub(c.full(1, y), c.b.erf(y))


def reciprocal(c: OpContext, x: SSAValue) -> SSAValue:
    y = c.convert(x, c.element)
    return c.b.div(c.full(1, y), y)


def _trunc(b: Builder, x: SSAValue) -> SSAValue:
    return b.select(b.compare(x, b.full_like(x, 0), "lt"), b.ceil(x), b.floor(x))


def round_(c: OpContext, x: SSAValue, decimals: int = 0) -> SSAValue:
    if not types.is_float(types.element_of(x)):
        return x
    if decimals == 0:
        return c.b.round_even(x)
    scale = c.full(10.0**decimals, x)
    return c.b.div(c.b.round_even(c.b.mul(x, scale)), scale)


def isnan(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.compare(x, x, "ne")


def isinf(c: OpContext, x: SSAValue) -> SSAValue:
    if not types.is_float(types.element_of(x)):
        return c.b.compare(x, x, "ne")
    return c.b.compare(c.b.abs(x), c.full(math.inf, x), "eq")


def bitwise_not(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.not_(x)


def addcmul(c: OpContext, x: SSAValue, y: SSAValue, z: SSAValue, value: Number = 1) -> SSAValue:
    start, left, right = c.promoted(x, y, z, element=c.element)
    return c.b.add(start, _scaled(c, c.b.mul(left, right), value))


def addcdiv(c: OpContext, x: SSAValue, y: SSAValue, z: SSAValue, value: Number = 1) -> SSAValue:
    start, left, right = c.promoted(x, y, z, element=c.element)
    return c.b.add(start, _scaled(c, c.b.div(left, right), value))


def lerp(c: OpContext, x: SSAValue, y: SSAValue, weight: Operand) -> SSAValue:
    start, end, part = c.promoted(x, y, weight, element=c.element)
    return c.b.add(start, c.b.mul(part, c.b.sub(end, start)))


def identity(c: OpContext, x: SSAValue, **_: object) -> SSAValue:
    return x


def to_copy(c: OpContext, x: SSAValue, **_: object) -> SSAValue:
    """A conversion; layouts, devices and memory formats mean nothing here."""
    if c.element == types.I1:
        return as_bool(c, x)
    return c.convert(x, c.element)


def stop_gradient(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.stop_gradient(x)


def nothing(c: OpContext, *_: object, **__: object) -> None:
    """An assertion: about metadata it holds by construction, about data it is the user's debugging aid."""


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

ATEN: dict[str, Handler] = {
    "aten.add.Tensor": add,
    "aten.add.Scalar": add,
    "aten.sub.Tensor": sub,
    "aten.sub.Scalar": sub,
    "aten.rsub.Tensor": rsub,
    "aten.rsub.Scalar": rsub,
    "aten.mul.Tensor": mul,
    "aten.mul.Scalar": mul,
    "aten.div.Tensor": divide,
    "aten.div.Scalar": divide,
    "aten.div.Tensor_mode": divide,
    "aten.div.Scalar_mode": divide,
    "aten.remainder.Tensor": remainder,
    "aten.remainder.Scalar": remainder,
    "aten.remainder.Scalar_Tensor": remainder,
    "aten.fmod.Tensor": _binary(Builder.rem),
    "aten.fmod.Scalar": _binary(Builder.rem),
    "aten.pow.Tensor_Tensor": power,
    "aten.pow.Tensor_Scalar": power,
    "aten.pow.Scalar": power,
    "aten.maximum.default": _binary(Builder.maximum),
    "aten.minimum.default": _binary(Builder.minimum),
    "aten.atan2.default": _binary(Builder.atan2),
    **{f"aten.{d}.{o}": compare(d) for d in _COMPARISONS for o in ("Tensor", "Scalar")},
    "aten.bitwise_and.Tensor": _binary(Builder.and_),
    "aten.bitwise_and.Scalar": _binary(Builder.and_),
    "aten.bitwise_or.Tensor": _binary(Builder.or_),
    "aten.bitwise_or.Scalar": _binary(Builder.or_),
    "aten.bitwise_xor.Tensor": _binary(Builder.xor),
    "aten.bitwise_xor.Scalar": _binary(Builder.xor),
    "aten.bitwise_not.default": bitwise_not,
    "aten.bitwise_left_shift.Tensor": _binary(Builder.shift_left),
    "aten.bitwise_left_shift.Tensor_Scalar": _binary(Builder.shift_left),
    "aten.__lshift__.Tensor": _binary(Builder.shift_left),
    "aten.__lshift__.Scalar": _binary(Builder.shift_left),
    "aten.__rshift__.Tensor": _binary(Builder.shift_right_arithmetic),
    "aten.__rshift__.Scalar": _binary(Builder.shift_right_arithmetic),
    "aten.bitwise_right_shift.Tensor": _binary(Builder.shift_right_arithmetic),
    "aten.bitwise_right_shift.Tensor_Scalar": _binary(Builder.shift_right_arithmetic),
    "aten.logical_and.default": _logical(Builder.and_),
    "aten.logical_or.default": _logical(Builder.or_),
    "aten.logical_xor.default": _logical(Builder.xor),
    "aten.logical_not.default": logical_not,
    "aten.where.self": where,
    "aten.masked_fill.Scalar": masked_fill,
    "aten.masked_fill.Tensor": masked_fill,
    "aten.clamp.default": clamp,
    "aten.clamp.Tensor": clamp,
    "aten.clamp_min.default": clamp_min,
    "aten.clamp_min.Tensor": clamp_min,
    "aten.clamp_max.default": clamp_max,
    "aten.clamp_max.Tensor": clamp_max,
    "aten.neg.default": _unary(Builder.negate),
    "aten.abs.default": _unary(Builder.abs),
    "aten.sign.default": _unary(Builder.sign),
    "aten.exp.default": _unary(Builder.exp),
    "aten.exp2.default": exp2,
    "aten.expm1.default": _unary(Builder.expm1),
    "aten.log.default": _unary(Builder.log),
    "aten.log1p.default": _unary(Builder.log1p),
    "aten.log2.default": _log_base(2),
    "aten.log10.default": _log_base(10),
    "aten.sqrt.default": _unary(Builder.sqrt),
    "aten.rsqrt.default": _unary(Builder.rsqrt),
    "aten.reciprocal.default": reciprocal,
    "aten.sin.default": _unary(Builder.sin),
    "aten.cos.default": _unary(Builder.cos),
    "aten.tan.default": _unary(Builder.tan),
    "aten.asin.default": asin,
    "aten.acos.default": acos,
    "aten.atan.default": atan,
    "aten.asinh.default": asinh,
    "aten.acosh.default": acosh,
    "aten.atanh.default": atanh,
    "aten.sinh.default": sinh,
    "aten.cosh.default": cosh,
    "aten.tanh.default": _unary(Builder.tanh),
    "aten.sigmoid.default": sigmoid,
    "aten.erf.default": _unary(Builder.erf),
    "aten.erfc.default": erfc,
    "aten.floor.default": _float_only(Builder.floor),
    "aten.ceil.default": _float_only(Builder.ceil),
    "aten.trunc.default": _float_only(_trunc),
    "aten.round.default": round_,
    "aten.round.decimals": round_,
    "aten.isnan.default": isnan,
    "aten.isinf.default": isinf,
    "aten.addcmul.default": addcmul,
    "aten.addcdiv.default": addcdiv,
    "aten.lerp.Scalar": lerp,
    "aten.lerp.Tensor": lerp,
    "aten._to_copy.default": to_copy,
    "aten.clone.default": identity,
    "aten.alias.default": identity,
    "aten.lift_fresh_copy.default": identity,
    "aten.contiguous.default": identity,
    "rhino.stop_gradient.default": stop_gradient,
    "aten._assert_tensor_metadata.default": nothing,
    "aten._assert_async.msg": nothing,
}
