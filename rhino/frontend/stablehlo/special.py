"""Special functions of `chlo`, made of elementwise ops in f32 or f64."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import special
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.ir import types

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
    """The derivative of Lanczos' approximation, as in StableHLO; reflected below 1/2."""
    zero, one, half = b.full_like(x, 0), b.full_like(x, 1), b.full_like(x, 0.5)
    reflected = b.compare(x, half, "lt")
    z = b.select(reflected, b.negate(x), b.sub(x, one))
    slope, total = zero, b.full_like(x, _LANCZOS[0])
    for i, number in enumerate(_LANCZOS[1:], 1):
        factor, place = b.full_like(x, number), b.add(z, b.full_like(x, i))
        slope = b.sub(slope, b.div(factor, b.mul(place, place)))
        total = b.add(total, b.div(factor, place))
    t = b.add(b.full_like(x, 7.5), z)
    log_t = b.add(b.full_like(x, math.log(7.5)), b.log1p(b.div(z, b.full_like(x, 7.5))))
    positive = b.sub(b.add(log_t, b.div(slope, total)), b.div(b.full_like(x, 7), t))
    # The cotangent has period 1: near the poles the distance to the next integer keeps its digits.
    angle = b.mul(b.full_like(x, math.pi), b.add(x, b.abs(b.floor(b.add(x, half)))))
    cotangent = b.div(b.mul(b.full_like(x, math.pi), b.cos(angle)), b.sin(angle))
    value = b.select(reflected, b.sub(positive, cotangent), positive)
    pole = b.and_(b.compare(x, zero, "le"), b.compare(x, b.floor(x), "eq"))
    return b.select(pole, b.full_like(x, math.nan), value)


def next_after(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
    """The representable number next to `x` in the direction of `y`."""
    element = types.element_of(x)
    integer = {8: types.I64, 4: types.I32, 2: types.I16}[types.itemsize(element)]
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


def zeta(b: Builder, s: SSAValue, q: SSAValue) -> SSAValue:
    """Hurwitz' zeta, the sum of (q + k)^-s over k >= 0, by Euler and Maclaurin; as XLA outside of s > 1, q > 0."""
    minus = b.negate(s)
    total = b.full_like(q, 0)
    for k in range(10):
        total = b.add(total, b.pow(b.add(q, b.full_like(q, k)), minus))
    a = b.add(q, b.full_like(q, 10))
    power = b.pow(a, minus)
    one = b.full_like(s, 1)
    total = b.add(total, b.div(b.mul(power, a), b.sub(s, one)))
    total = b.add(total, b.mul(b.full_like(q, 0.5), power))
    factor, power = s, b.div(power, a)
    for j in range(1, 13):
        weight = float(special.bernoulli(2 * j)[-1]) / math.factorial(2 * j)
        total = b.add(total, b.mul(b.full_like(q, weight), b.mul(factor, power)))
        factor = b.mul(factor, b.mul(b.add(s, b.full_like(s, 2 * j - 1)), b.add(s, b.full_like(s, 2 * j))))
        power = b.div(power, b.mul(a, a))
    nan, infinity = b.full_like(q, math.nan), b.full_like(q, math.inf)
    below = b.compare(q, b.full_like(q, 0), "le")
    odd = b.and_(below, b.or_(b.compare(s, b.floor(s), "ne"), b.compare(q, b.floor(q), "ne")))
    even = b.compare(b.rem(s, b.full_like(s, 2)), b.full_like(s, 0), "eq")
    total = b.select(below, b.select(even, infinity, nan), total)
    total = b.select(odd, nan, total)
    total = b.select(b.compare(s, one, "lt"), nan, total)
    return b.select(b.compare(s, one, "eq"), infinity, total)


def polygamma(b: Builder, n: SSAValue, x: SSAValue) -> SSAValue:
    """The n-th derivative of digamma for whole n >= 0: (-1)^(n + 1) n! zeta(n + 1, x)."""
    one, zero = b.full_like(n, 1), b.full_like(n, 0)
    order = b.add(n, one)
    odd = b.compare(b.rem(n, b.full_like(n, 2)), one, "eq")
    sign = b.select(odd, one, b.negate(one))
    value = b.mul(b.mul(sign, b.exp(lgamma(b, order))), zeta(b, order, x))
    value = b.select(b.compare(n, zero, "eq"), digamma(b, x), value)
    bad = b.or_(b.compare(n, b.floor(n), "ne"), b.compare(n, zero, "lt"))
    return b.select(bad, b.full_like(x, math.nan), value)
