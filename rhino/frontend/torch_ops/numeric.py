"""Elementwise ops beyond plain arithmetic: signs, extrema that ignore NaN, shifts between neighbours of a float."""

from __future__ import annotations

import math
from collections.abc import Callable

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops.context import Handler, Number, OpContext
from rhino.frontend.torch_ops.special import with_slope
from rhino.ir import types

Operand = SSAValue | Number


def signbit(c: OpContext, x: SSAValue) -> SSAValue:
    """Whether a number is negative; of zeros, whether 1 / x is."""
    b, zero = c.b, c.full(0, x)
    negative = b.compare(x, zero, "lt")
    if not types.is_float(types.element_of(x)):
        return negative if types.element_of(x) != types.I1 else c.b.full(list(c.shape), types.I1, False)
    under = b.compare(b.div(c.full(1, x), x), zero, "lt")
    return b.or_(negative, b.and_(b.compare(x, zero, "eq"), under))


def copysign(c: OpContext, x: Operand, y: Operand) -> SSAValue:
    size, sign = c.promoted(x, y, element=c.element)
    size = c.b.abs(size)
    return c.b.select(signbit(c, sign), c.b.negate(size), size)


def angle(c: OpContext, x: SSAValue) -> SSAValue:
    """Zero, or pi of a negative number; NaN stays NaN."""
    y = c.convert(x, c.element)
    side = c.b.select(c.b.compare(y, c.full(0, y), "lt"), c.full(math.pi, y), c.full(0, y))
    return c.b.select(c.b.compare(y, y, "ne"), y, side)


def _ignoring_nan(build: Callable[[Builder, SSAValue, SSAValue], SSAValue], pick: str) -> Handler:
    """An extremum of two numbers, of which one may be NaN.

    Selects spell out torch's gradient: it goes to the first operand where both are equal.
    """

    def handler(c: OpContext, x: Operand, y: Operand) -> SSAValue:
        left, right = c.promoted(x, y, element=c.element)
        if not types.is_float(c.element):
            return build(c.b, left, right)
        b = c.b
        first = b.or_(b.compare(left, right, pick), b.compare(right, right, "ne"))
        return b.select(first, left, right)

    return handler


def heaviside(c: OpContext, x: SSAValue, at_zero: SSAValue) -> SSAValue:
    b = c.b
    x, at_zero = c.promoted(x, at_zero, element=c.element)
    side = b.select(b.compare(x, c.full(0, x), "gt"), c.full(1, x), c.full(0, x))
    side = b.select(b.compare(x, c.full(0, x), "eq"), at_zero, side)
    return b.select(b.compare(x, x, "ne"), c.full(0, x), side)


def isposinf(c: OpContext, x: SSAValue) -> SSAValue:
    return _is_infinity(c, x, math.inf)


def isneginf(c: OpContext, x: SSAValue) -> SSAValue:
    return _is_infinity(c, x, -math.inf)


def _is_infinity(c: OpContext, x: SSAValue, which: float) -> SSAValue:
    if not types.is_float(types.element_of(x)):
        return c.b.full(list(c.shape), types.I1, False)
    return c.b.compare(x, c.full(which, x), "eq")


def hypot(c: OpContext, x: SSAValue, y: SSAValue) -> SSAValue:
    """sqrt(x^2 + y^2), scaled by the larger so that squares stay finite; zero and flat at zero."""
    b = c.b
    x, y = (b.abs(c.widened(v)) for v in c.promoted(x, y, element=c.element))
    top = b.stop_gradient(b.maximum(x, y))
    plain = b.and_(b.is_finite(top), b.compare(top, c.full(0, top), "gt"))
    scale = b.select(plain, top, c.full(1, top))
    a, d = b.div(x, scale), b.div(y, scale)
    square = b.add(b.mul(a, a), b.mul(d, d))
    safe = b.select(plain, square, c.full(1, square))
    return c.convert(b.select(plain, b.mul(scale, b.sqrt(safe)), top), c.element)


def frexp(c: OpContext, x: SSAValue) -> list[SSAValue]:
    """Mantissa in [0.5, 1) and exponent, found bit by bit: exact, as every factor is a power of two."""
    b, y = c.b, c.widened(x)
    usual = b.and_(b.is_finite(y), b.compare(y, c.full(0, y), "ne"))
    mantissa = b.select(usual, y, c.full(0.5, y))
    exponent = c.full(0, y)
    bits = range(9 if types.element_of(y) == types.F64 else 6, -1, -1)
    for power in (float(1 << bit) for bit in (bits[0], *bits)):  # the first twice: subnormals reach further
        size = b.abs(mantissa)
        for limit, direction, factor in ((2.0 ** (power - 1), "ge", -power), (2.0**-power, "lt", power)):
            off = b.compare(size, c.full(limit, y), direction)
            mantissa = b.select(off, b.mul(mantissa, c.full(2.0**factor, y)), mantissa)
            exponent = b.select(off, b.sub(exponent, c.full(factor, y)), exponent)
    exponent = b.select(usual, exponent, c.full(0, y))
    return [c.convert(b.select(usual, mantissa, y), c.element), b.convert(exponent, types.I32)]


def nextafter(c: OpContext, x: SSAValue, y: SSAValue) -> SSAValue:
    """The next number towards y, by the bits: away from zero they count up."""
    b = c.b
    start, y = c.promoted(x, y, element=c.element)
    x, y = b.stop_gradient(start), b.stop_gradient(y)
    whole = types.I64 if c.element == types.F64 else types.I32 if c.element == types.F32 else types.I16
    bits, zero = b.bitcast_convert(x, whole), c.full(0, x)
    grows = b.compare(b.compare(y, x, "gt"), b.compare(x, zero, "gt"), "eq")
    one = b.full_like(bits, 1)
    moved = b.bitcast_convert(b.select(grows, b.add(bits, one), b.sub(bits, one)), c.element)
    least = b.bitcast_convert(one, c.element)
    least = b.select(b.compare(y, zero, "lt"), b.negate(least), least)
    moved = b.select(b.compare(x, zero, "eq"), least, moved)
    value = b.select(b.compare(x, y, "eq"), y, moved)
    unordered = b.or_(b.compare(x, x, "ne"), b.compare(y, y, "ne"))
    value = b.select(unordered, c.full(math.nan, x), value)
    slope = b.select(b.compare(x, y, "eq"), zero, c.full(1, x))  # torch's
    return with_slope(b, start, value, slope)


def view_dtype(c: OpContext, x: SSAValue, dtype: object) -> SSAValue:
    """The same bits as elements of another type; the last dimension grows or shrinks with their size."""
    old, new = (types.numpy_dtype(e).itemsize for e in (types.element_of(x), c.element))
    if new > old:
        shape = types.shape_of(x)
        x = c.b.reshape(x, [*shape[:-1], shape[-1] * old // new, new // old])
    return c.b.reshape(c.b.bitcast_convert(x, c.element), list(c.shape))


ATEN: dict[str, Handler] = {
    "aten.signbit.default": signbit,
    "aten.copysign.Tensor": copysign,
    "aten.copysign.Scalar": copysign,
    "aten.fmax.default": _ignoring_nan(Builder.maximum, "ge"),
    "aten.fmin.default": _ignoring_nan(Builder.minimum, "le"),
    "aten.heaviside.default": heaviside,
    "aten.isposinf.default": isposinf,
    "aten.isneginf.default": isneginf,
    "aten.hypot.default": hypot,
    "aten.nextafter.default": nextafter,
    "aten.view.dtype": view_dtype,
    "aten.frexp.Tensor": frexp,
}
