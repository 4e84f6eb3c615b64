"""Bessel functions of orders 0 and 1, and Airy's: Chebyshev pieces near zero, and in 1 / x far from it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops.context import Handler, OpContext
from rhino.frontend.torch_ops.special import Function, _choose, _number, _smooth, chebyshev

Array = np.ndarray


def _i0_low(t: Array) -> Array:
    return special.i0e(4 * (t + 1))


def _i0_high(t: Array) -> Array:
    return special.i0e(16 / (t + 1)) * np.sqrt(16 / (t + 1))


def _i1_low(t: Array) -> Array:
    return special.i1e(4 * (t + 1)) / (4 * (t + 1))


def _i1_high(t: Array) -> Array:
    return special.i1e(16 / (t + 1)) * np.sqrt(16 / (t + 1))


def _modified(
    low: Callable[[Array], Array], high: Callable[[Array], Array], odd: bool
) -> Callable[[Builder, SSAValue], SSAValue]:
    """exp(-|x|) I(x): in |x| up to 8, in 16 / |x| beyond."""

    def function(b: Builder, x: SSAValue) -> SSAValue:
        y, one = b.abs(x), b.full_like(x, 1)
        near = chebyshev(b, low, b.sub(b.div(y, _number(b, 4.0, x)), one))
        near = b.mul(near, x) if odd else near
        large = b.maximum(y, _number(b, 8.0, x))
        far = chebyshev(b, high, b.sub(b.div(_number(b, 16.0, x), large), one))
        far = b.mul(far, b.rsqrt(large))
        far = b.mul(far, b.sign(x)) if odd else far
        return _choose(b, y, "le", 8.0, near, far)

    return function


i0e = _modified(_i0_low, _i0_high, odd=False)
i1e = _modified(_i1_low, _i1_high, odd=True)


def _unscaled(function: Function) -> Function:
    return lambda b, x: b.mul(function(b, x), b.exp(b.abs(x)))


i0, i1 = _unscaled(i0e), _unscaled(i1e)


def _i0e_slope(b: Builder, x: SSAValue) -> SSAValue:
    return b.sub(i1e(b, x), b.mul(b.sign(x), i0e(b, x)))


def _over(b: Builder, y: SSAValue, x: SSAValue, at_zero: float) -> SSAValue:
    """y / x, and its limit at zero."""
    zero = b.compare(x, b.full_like(x, 0), "eq")
    return b.select(zero, _number(b, at_zero, x), b.div(y, b.select(zero, b.full_like(x, 1), x)))


def _i1_slope(b: Builder, x: SSAValue) -> SSAValue:
    return b.sub(i0(b, x), _over(b, i1(b, x), x, 0.5))


def _i1e_slope(b: Builder, x: SSAValue) -> SSAValue:
    y = i1e(b, x)
    return b.sub(b.sub(i0e(b, x), _over(b, y, x, 0.5)), b.mul(b.sign(x), y))


def _k0_low(t: Array) -> Array:
    x = np.sqrt(2 * (t + 1))
    return special.k0(x) + np.log(x / 2) * special.i0(x)


def _k1_low(t: Array) -> Array:
    x = np.sqrt(2 * (t + 1))
    return x * (special.k1(x) - np.log(x / 2) * special.i1(x))


def _k0_high(t: Array) -> Array:
    return special.k0e(4 / (t + 1)) * np.sqrt(4 / (t + 1))


def _k1_high(t: Array) -> Array:
    return special.k1e(4 / (t + 1)) * np.sqrt(4 / (t + 1))


def _second_kind(order: int, scaled: bool) -> Function:
    """K(x), times exp(x) if `scaled`: infinite at zero, NaN below."""
    low, high = ((_k0_low, _k0_high), (_k1_low, _k1_high))[order]

    def function(b: Builder, x: SSAValue) -> SSAValue:
        one = b.full_like(x, 1)
        small = b.minimum(x, _number(b, 2.0, x))
        log = b.log(b.mul(_number(b, 0.5, x), small))
        smooth = chebyshev(b, low, b.sub(b.mul(_number(b, 0.5, x), b.mul(small, small)), one))
        if order == 0:
            near = b.sub(smooth, b.mul(log, i0(b, small)))
        else:
            near = b.add(b.div(smooth, small), b.mul(log, i1(b, small)))
        large = b.maximum(x, _number(b, 2.0, x))
        far = chebyshev(b, high, b.sub(b.div(_number(b, 4.0, x), large), one))
        far = b.mul(far, b.rsqrt(large))
        if scaled:
            near = b.mul(near, b.exp(small))
        else:
            far = b.mul(far, b.exp(b.negate(large)))
        value = _choose(b, x, "le", 2.0, near, far)
        value = _choose(b, x, "eq", 0.0, _number(b, math.inf, x), value)
        return _choose(b, x, "lt", 0.0, _number(b, math.nan, x), value)

    return function


def _j0_low(t: Array) -> Array:
    return special.j0(np.sqrt(32 * (t + 1)))


def _j1_low(t: Array) -> Array:
    x = np.sqrt(32 * (t + 1))
    return special.j1(x) / x


def _y0_low(t: Array) -> Array:
    x = np.sqrt(32 * (t + 1))
    return special.y0(x) - 2 / np.pi * np.log(x) * special.j0(x)


def _y1_low(t: Array) -> Array:
    """What is left of y1 beside its pole and its logarithm, over x."""
    x = np.sqrt(32 * (t + 1))
    return (special.y1(x) - 2 / np.pi * (special.j1(x) * np.log(x) - 1 / x)) / x


def _amplitude(order: int, quadrature: bool) -> Callable[[Array], Array]:
    """Slowly varying factors of cosine and sine for x >= 8, in t = 2 (8 / x)^2 - 1; the sine's times x."""
    j, y = ((special.j0, special.y0), (special.j1, special.y1))[order]

    def function(t: Array) -> Array:
        x = 8 / np.sqrt((t + 1) / 2)
        angle = x - (order / 2 + 0.25) * np.pi
        root = np.sqrt(np.pi * x / 2)
        if quadrature:
            return root * x * (y(x) * np.cos(angle) - j(x) * np.sin(angle))
        return root * (j(x) * np.cos(angle) + y(x) * np.sin(angle))

    return function


_AMPLITUDES = tuple((_amplitude(order, False), _amplitude(order, True)) for order in (0, 1))


def _first_or_second(order: int, second: bool) -> Function:
    """J(x), or Y(x) for `second`."""

    def function(b: Builder, x: SSAValue) -> SSAValue:
        one, size = b.full_like(x, 1), b.abs(x)
        small = b.minimum(size, _number(b, 8.0, x))
        t = b.sub(b.div(b.mul(small, small), _number(b, 32.0, x)), one)
        near = chebyshev(b, (_j0_low, _j1_low)[order], t, 36)
        near = b.mul(near, small) if order else near
        if second:
            ratio = _number(b, 2 / math.pi, x)
            logs = b.mul(near, b.log(small))
            if order == 0:
                near = b.add(chebyshev(b, _y0_low, t, 36), b.mul(ratio, logs))
            else:
                logs = b.sub(logs, b.div(one, small))
                near = b.add(b.mul(chebyshev(b, _y1_low, t, 36), small), b.mul(ratio, logs))
        large = b.maximum(size, _number(b, 8.0, x))
        z = b.div(_number(b, 8.0, x), large)
        u = b.sub(b.mul(_number(b, 2.0, x), b.mul(z, z)), one)
        in_phase, quadrature = (chebyshev(b, f, u, 20) for f in _AMPLITUDES[order])
        quadrature = b.div(quadrature, large)
        angle = b.sub(large, _number(b, (order / 2 + 0.25) * math.pi, x))
        cosine, sine = b.cos(angle), b.sin(angle)
        if second:
            wave = b.add(b.mul(in_phase, sine), b.mul(quadrature, cosine))
        else:
            wave = b.sub(b.mul(in_phase, cosine), b.mul(quadrature, sine))
        far = b.mul(wave, b.sqrt(b.div(_number(b, 2 / math.pi, x), large)))
        value = _choose(b, size, "le", 8.0, near, far)
        if not second:
            return b.mul(value, b.sign(x)) if order else value
        value = _choose(b, x, "eq", 0.0, _number(b, -math.inf, x), value)
        return _choose(b, x, "lt", 0.0, _number(b, math.nan, x), value)

    return function


def _airy_middle(t: Array) -> Array:
    return special.airy(3.5 * t - 1.5)[0]


def _airy_decay(t: Array) -> Array:
    """What Ai(x) is beside exp(-z) / (2 sqrt(pi) x^(1/4)), z = 2/3 x^(3/2), in t = 2 z0 / z - 1 for x >= 2."""
    z = 2 * _AIRY_DECAYS / np.maximum(t + 1, 1e-9)
    x = (1.5 * z) ** (2 / 3)
    return special.airye(x)[0] * 2 * np.sqrt(np.pi) * np.sqrt(np.sqrt(x))


def _airy_wave(quadrature: bool) -> Callable[[Array], Array]:
    """Factors of sine and cosine of z + pi/4 for x <= -5, in t = 2 (z0 / z)^2 - 1; the cosine's times z."""

    def function(t: Array) -> Array:
        z = _AIRY_SWINGS / np.sqrt((t + 1) / 2)
        x = (1.5 * z) ** (2 / 3)
        ai, _, bi, _ = special.airy(-x)
        sine, cosine = np.sin(z + np.pi / 4), np.cos(z + np.pi / 4)
        root = np.sqrt(np.pi) * np.sqrt(np.sqrt(x))
        if quadrature:
            return root * z * (bi * sine - ai * cosine)
        return root * (ai * sine + bi * cosine)

    return function


#: z where the pieces for large positive and for large negative x begin.
_AIRY_DECAYS, _AIRY_SWINGS = 2 / 3 * 2**1.5, 2 / 3 * 5**1.5
_AIRY_WAVES = (_airy_wave(False), _airy_wave(True))


def airy(b: Builder, x: SSAValue) -> SSAValue:
    """Ai(x) by pieces that meet at -5 and 2; NaN where x is infinite, as torch has it."""
    number = _number
    middle = b.minimum(b.maximum(x, number(b, -5.0, x)), number(b, 2.0, x))
    middle = b.div(b.add(middle, number(b, 1.5, x)), number(b, 3.5, x))
    near = chebyshev(b, _airy_middle, middle, 36)

    def stretched(size: SSAValue) -> tuple[SSAValue, SSAValue]:
        """2/3 x^(3/2) and x^(1/4)."""
        root = b.sqrt(size)
        return b.mul(number(b, 2 / 3, x), b.mul(size, root)), b.sqrt(root)

    z, quarter = stretched(b.maximum(x, number(b, 2.0, x)))
    t = b.sub(b.div(number(b, 2 * _AIRY_DECAYS, x), z), number(b, 1.0, x))
    scale = b.mul(number(b, 2 * math.sqrt(math.pi), x), quarter)
    high = b.div(b.mul(chebyshev(b, _airy_decay, t, 36), b.exp(b.negate(z))), scale)

    z, quarter = stretched(b.maximum(b.negate(x), number(b, 5.0, x)))
    ratio = b.div(number(b, _AIRY_SWINGS, x), z)
    t = b.sub(b.mul(number(b, 2.0, x), b.mul(ratio, ratio)), number(b, 1.0, x))
    in_phase, quadrature = (chebyshev(b, f, t, 24) for f in _AIRY_WAVES)
    angle = b.add(z, number(b, math.pi / 4, x))
    low = b.sub(b.mul(b.sin(angle), in_phase), b.mul(b.cos(angle), b.div(quadrature, z)))
    low = b.div(low, b.mul(number(b, math.sqrt(math.pi), x), quarter))

    value = _choose(b, x, "gt", 2.0, high, _choose(b, x, "lt", -5.0, low, near))
    return b.select(b.is_finite(x), value, number(b, math.nan, x))


def spherical_j0(c: OpContext, x: SSAValue) -> SSAValue:
    """sin(x) / x"""
    b, y = c.b, c.widened(c.convert(x, c.element))
    value = _over(b, b.sin(y), y, 1.0)
    infinite = b.compare(b.abs(y), c.full(math.inf, y), "eq")
    return c.convert(b.select(infinite, c.full(0, y), value), c.element)


def _flat(function: Function) -> Handler:
    """A function that torch does not differentiate."""

    def handler(c: OpContext, x: SSAValue) -> SSAValue:
        y = c.b.stop_gradient(c.widened(c.convert(x, c.element)))
        return c.convert(function(c.b, y), c.element)

    return handler


ATEN: dict[str, Handler] = {
    "aten.i0.default": _smooth(i0, i1),
    "aten.special_i0e.default": _smooth(i0e, _i0e_slope),
    "aten.special_i1.default": _smooth(i1, _i1_slope),
    "aten.special_i1e.default": _smooth(i1e, _i1e_slope),
    "aten.special_modified_bessel_i0.default": _flat(i0),
    "aten.special_modified_bessel_i1.default": _flat(i1),
    "aten.special_modified_bessel_k0.default": _flat(_second_kind(0, scaled=False)),
    "aten.special_modified_bessel_k1.default": _flat(_second_kind(1, scaled=False)),
    "aten.special_scaled_modified_bessel_k0.default": _flat(_second_kind(0, scaled=True)),
    "aten.special_scaled_modified_bessel_k1.default": _flat(_second_kind(1, scaled=True)),
    "aten.special_bessel_j0.default": _flat(_first_or_second(0, second=False)),
    "aten.special_bessel_j1.default": _flat(_first_or_second(1, second=False)),
    "aten.special_bessel_y0.default": _flat(_first_or_second(0, second=True)),
    "aten.special_bessel_y1.default": _flat(_first_or_second(1, second=True)),
    "aten.special_airy_ai.default": _flat(airy),
    "aten.special_spherical_bessel_j0.default": spherical_j0,
}
