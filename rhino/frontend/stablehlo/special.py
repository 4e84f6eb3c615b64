"""Special functions of `chlo`, made of elementwise ops in f32 or f64."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.ir import types

#: Bernoulli numbers B(2k) over 2k, k = 1..8: the asymptotic series of digamma.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)

#: Lanczos' approximation of gamma with g = 7 and 9 terms (Godfrey 2001).
_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)

#: Giles, "Approximating the erfinv function" (2012): highest power first, for w < 5 and for larger w.
_GILES_LOW = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
_GILES_HIGH = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


def _polynomial(b: Builder, x: SSAValue, highest_first: Sequence[float]) -> SSAValue:
    out = b.full_like(x, highest_first[0])
    for value in highest_first[1:]:
        out = b.add(b.mul(out, x), b.full_like(x, value))
    return out


def erfc(b: Builder, x: SSAValue) -> SSAValue:
    """1 - erf(x) up to 2; beyond, Laplace's continued fraction, which keeps all digits of what is tiny.

    In f64 whatever the type of `x`: 1 - erf(x) cancels.
    """
    element = types.element_of(x)
    wide = x if element == types.F64 else b.convert(x, types.F64)
    one = b.full_like(wide, 1)
    near = b.sub(one, b.erf(wide))
    y = b.maximum(wide, b.full_like(wide, 2))
    fraction = y
    for k in range(60, 0, -1):  # y + (1/2) / (y + (2/2) / (y + (3/2) / ...))
        fraction = b.add(y, b.div(b.full_like(y, k / 2), fraction))
    far = b.div(b.exp(b.negate(b.mul(y, y))), b.mul(fraction, b.full_like(y, math.sqrt(math.pi))))
    far = b.select(b.compare(y, b.full_like(y, math.inf), "eq"), b.full_like(y, 0), far)
    out = b.select(b.compare(wide, b.full_like(wide, 2), "gt"), far, near)
    return out if element == types.F64 else b.convert(out, element)


def erf_inv(b: Builder, x: SSAValue) -> SSAValue:
    """Giles' polynomials, to single precision; in f64 then three of Halley's steps on erfc(y) = 1 - |x|."""
    one = b.full_like(x, 1)
    w = b.negate(b.log(b.mul(b.sub(one, x), b.add(one, x))))
    low = _polynomial(b, b.sub(w, b.full_like(w, 2.5)), _GILES_LOW)
    high = _polynomial(b, b.sub(b.sqrt(w), b.full_like(w, 3)), _GILES_HIGH)
    y = b.mul(b.select(b.compare(w, b.full_like(w, 5), "lt"), low, high), x)
    size = b.abs(x)
    if types.element_of(x) == types.F64:
        # The polynomials end at w = 16: from there the first terms of the asymptotic series.
        tail = b.sub(w, b.mul(b.full_like(w, 0.5), b.log(b.mul(w, b.full_like(w, math.pi)))))
        near = b.select(b.compare(w, b.full_like(w, 15), "gt"), b.sqrt(tail), b.abs(y))
        for _ in range(3):
            slope = b.mul(b.full_like(x, 2 / math.sqrt(math.pi)), b.exp(b.negate(b.mul(near, near))))
            # Where |x| is small erf keeps more digits than 1 - erfc.
            inner = b.sub(b.erf(near), size)
            outer = b.sub(b.sub(one, size), erfc(b, near))
            off = b.select(b.compare(size, b.full_like(x, 0.5), "lt"), inner, outer)
            step = b.div(off, slope)
            near = b.sub(near, b.div(step, b.add(one, b.mul(near, step))))
        y = b.select(b.compare(x, b.full_like(x, 0), "lt"), b.negate(near), near)
    edge = b.compare(size, one, "eq")
    return b.select(edge, b.mul(x, b.full_like(x, math.inf)), y)


def lgamma(b: Builder, x: SSAValue) -> SSAValue:
    """log |gamma(x)|: Lanczos from 1/2 on, below by Euler's reflection."""
    one, half = b.full_like(x, 1), b.full_like(x, 0.5)
    reflected = b.compare(x, half, "lt")
    z = b.select(reflected, b.negate(x), b.sub(x, one))
    total = b.full_like(x, _LANCZOS[0])
    for i, factor in enumerate(_LANCZOS[1:], 1):
        total = b.add(total, b.div(b.full_like(x, factor), b.add(z, b.full_like(x, i))))
    t = b.add(z, b.full_like(x, 7.5))
    log_t = b.add(b.full_like(x, math.log(7.5)), b.log1p(b.div(z, b.full_like(x, 7.5))))
    body = b.mul(b.sub(b.add(z, half), b.div(t, log_t)), log_t)
    positive = b.add(b.add(body, b.full_like(x, 0.5 * math.log(2 * math.pi))), b.log(total))
    # |sin(pi x)| from the distance to the nearest integer, so that no multiple of pi is rounded.
    size = b.abs(x)
    part = b.sub(size, b.floor(size))
    part = b.select(b.compare(part, half, "gt"), b.sub(one, part), part)
    log_sine = b.log(b.sin(b.mul(b.full_like(x, math.pi), part)))
    mirrored = b.sub(b.sub(b.full_like(x, math.log(math.pi)), log_sine), positive)
    value = b.select(reflected, mirrored, positive)
    return b.select(b.compare(size, b.full_like(x, math.inf), "eq"), size, value)


def digamma(b: Builder, x: SSAValue) -> SSAValue:
    """Upward recurrence to 10, then the asymptotic series; reflected below 1/2."""
    one, half = b.full_like(x, 1), b.full_like(x, 0.5)
    reflected = b.compare(x, half, "lt")
    y = b.select(reflected, b.sub(one, x), x)
    total = b.full_like(x, 0)
    ten = b.full_like(x, 10)
    for _ in range(10):
        small = b.compare(y, ten, "lt")
        total = b.select(small, b.sub(total, b.div(one, y)), total)
        y = b.select(small, b.add(y, one), y)
    inverse = b.div(one, b.mul(y, y))
    series = b.mul(inverse, _polynomial(b, inverse, _DIGAMMA[::-1]))
    value = b.add(b.sub(b.sub(b.log(y), b.div(half, y)), series), total)
    value = b.select(b.compare(y, b.full_like(y, math.inf), "eq"), y, value)
    part = b.mul(b.full_like(x, math.pi), b.sub(x, b.round_even(x)))
    mirrored = b.sub(value, b.div(b.full_like(x, math.pi), b.tan(part)))
    pole = b.and_(b.compare(x, b.full_like(x, 0), "le"), b.compare(x, b.floor(x), "eq"))
    value = b.select(reflected, mirrored, value)
    return b.select(pole, b.full_like(x, math.nan), value)


def next_after(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
    """The representable number next to `x` in the direction of `y`."""
    element = types.element_of(x)
    integer = types.I64 if element == types.F64 else types.I32
    bits = b.bitcast_convert(x, integer)
    one, zero = b.full_like(bits, 1), b.full_like(x, 0)
    smallest = b.bitcast_convert(one, element)
    negative = b.compare(x, zero, "lt")
    up = b.compare(y, x, "gt")
    away = b.xor(negative, up)  # from zero: the bit pattern grows
    moved = b.bitcast_convert(b.select(away, b.add(bits, one), b.sub(bits, one)), element)
    from_zero = b.select(up, smallest, b.negate(smallest))
    out = b.select(b.compare(x, zero, "eq"), from_zero, moved)
    out = b.select(b.compare(x, y, "eq"), y, out)
    odd = b.or_(b.compare(x, x, "ne"), b.compare(y, y, "ne"))
    return b.select(odd, b.full_like(x, math.nan), out)
