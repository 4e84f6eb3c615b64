"""Special functions: gamma and its relatives, error functions, Bessel functions.

They are made of elementwise ops. Smooth pieces are Chebyshev interpolants whose values come from `scipy.special`
while the program is imported; the pieces' borders and variables are those of Cephes (Moshier 1989). Derivatives are
given in closed form, so that differentiation does not walk through the approximations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from scipy import special
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops.context import Handler, Number, OpContext

Function = Callable[[Builder, SSAValue], SSAValue]

#: Lanczos' approximation of gamma with g = 7 and 9 terms (Godfrey 2001), as in XLA.
_LANCZOS = (
    0.99999999999980993227684700473478,
    676.520368121885098567009190444019,
    -1259.13921672240287047156078755283,
    771.3234287776530788486528258894,
    -176.61502916214059906584551354,
    12.507343278686904814458936853,
    -0.13857109526572011689554707,
    9.984369578019570859563e-6,
    1.50563273514931155834e-7,
)


def _number(b: Builder, value: float, like: SSAValue) -> SSAValue:
    return b.full_like(like, value)


def polynomial(b: Builder, x: SSAValue, coefficients: Sequence[float]) -> SSAValue:
    """Horner's scheme, lowest power first."""
    out = _number(b, coefficients[-1], x)
    for value in coefficients[-2::-1]:
        out = b.add(b.mul(out, x), _number(b, value, x))
    return out


@cache
def _interpolant(f: Callable[[np.ndarray], np.ndarray], degree: int) -> tuple[float, ...]:
    return tuple(float(v) for v in Chebyshev.interpolate(f, degree).coef)


def chebyshev(b: Builder, f: Callable[[np.ndarray], np.ndarray], t: SSAValue, degree: int = 30) -> SSAValue:
    """`f` on [-1, 1], by Clenshaw's recurrence on its interpolant at Chebyshev points."""
    first, *rest = _interpolant(f, degree)
    twice = b.add(t, t)
    one, two = b.full_like(t, 0), b.full_like(t, 0)
    for value in reversed(rest):
        one, two = b.add(b.sub(b.mul(twice, one), two), _number(b, value, t)), one
    return b.add(b.sub(b.mul(t, one), two), _number(b, first, t))


def with_slope(b: Builder, x: SSAValue, value: SSAValue, slope: SSAValue) -> SSAValue:
    """`value` with the derivative `slope` in `x`, whatever it was computed from; flat where that is not finite."""
    step = b.sub(x, b.stop_gradient(x))  # zero, with the derivative one
    usable = b.and_(b.is_finite(slope), b.is_finite(x))
    zero = b.full_like(x, 0)
    step = b.mul(b.select(usable, b.stop_gradient(slope), zero), b.select(usable, step, zero))
    return b.add(b.stop_gradient(value), step)


def _smooth(value: Function, slope: Function) -> Handler:
    """A handler of a function of one number and its derivative."""

    def handler(c: OpContext, x: SSAValue) -> SSAValue:
        y = c.widened(c.convert(x, c.element))
        fixed = c.b.stop_gradient(y)
        return c.convert(with_slope(c.b, y, value(c.b, fixed), slope(c.b, fixed)), c.element)

    return handler


def _choose(b: Builder, x: SSAValue, direction: str, limit: float, yes: SSAValue, no: SSAValue) -> SSAValue:
    return b.select(b.compare(x, _number(b, limit, x), direction), yes, no)


def lgamma(b: Builder, x: SSAValue) -> SSAValue:
    """log |gamma(x)|: Lanczos for x >= 1/2, else reflected."""
    one = b.full_like(x, 1)
    reflected = b.compare(x, _number(b, 0.5, x), "lt")
    z = b.select(reflected, b.negate(x), b.sub(x, one))
    total = _number(b, _LANCZOS[0], x)
    for i, term in enumerate(_LANCZOS[1:], 1):
        total = b.add(total, b.div(_number(b, term, x), b.add(z, _number(b, float(i), x))))
    t = b.add(z, _number(b, 7.5, x))
    log_t = b.add(_number(b, math.log(7.5), x), b.log1p(b.div(z, _number(b, 7.5, x))))
    power = b.mul(b.sub(b.add(z, _number(b, 0.5, x)), b.div(t, log_t)), log_t)
    log_y = b.add(b.add(_number(b, 0.5 * math.log(2 * math.pi), x), power), b.log(total))
    size = b.abs(x)
    part = b.sub(size, b.floor(size))
    part = _choose(b, part, "gt", 0.5, b.sub(one, part), part)
    log_sine = b.log(b.sin(b.mul(_number(b, math.pi, x), part)))
    other = b.sub(b.sub(_number(b, math.log(math.pi), x), log_sine), log_y)
    value = b.select(reflected, other, log_y)
    return b.select(b.compare(size, _number(b, math.inf, x), "eq"), size, value)


def digamma(b: Builder, x: SSAValue) -> SSAValue:
    """Recurrence up to 10, then the asymptotic series; reflected for negative numbers, -inf at zero."""
    one = b.full_like(x, 1)
    below = b.compare(x, b.full_like(x, 0), "lt")
    whole = b.and_(below, b.compare(x, b.floor(x), "eq"))
    y = b.select(below, b.sub(one, x), x)
    total = b.full_like(x, 0)
    for _ in range(10):
        small = b.compare(y, _number(b, 10.0, x), "lt")
        total = b.select(small, b.sub(total, b.div(one, y)), total)
        y = b.select(small, b.add(y, one), y)
    inverse = b.div(one, b.mul(y, y))
    tail = [float(special.bernoulli(2 * k)[-1]) / (2 * k) for k in range(1, 9)]
    series = b.mul(inverse, polynomial(b, inverse, tail))
    value = b.sub(b.sub(b.log(y), b.div(_number(b, 0.5, x), y)), series)
    value = b.add(value, total)
    value = b.select(b.compare(y, _number(b, math.inf, x), "eq"), y, value)
    cotangent = b.div(_number(b, math.pi, x), b.tan(b.mul(_number(b, math.pi, x), b.sub(x, b.floor(x)))))
    value = b.select(below, b.sub(value, cotangent), value)
    return b.select(whole, _number(b, math.nan, x), value)


def hurwitz_zeta(b: Builder, s: SSAValue, q: SSAValue, terms: int = 12) -> SSAValue:
    """Sum of (q + k)^-s over k >= 0 for s > 1 and q + `terms` > 9, by Euler and Maclaurin's formula."""
    minus = b.negate(s)
    total = b.full_like(q, 0)
    for k in range(terms):
        total = b.add(total, b.pow(b.add(q, _number(b, float(k), q)), minus))
    a = b.add(q, _number(b, float(terms), q))
    power = b.pow(a, minus)
    total = b.add(total, b.div(b.mul(power, a), b.sub(s, b.full_like(s, 1))))
    total = b.add(total, b.mul(_number(b, 0.5, q), power))
    factor, power = s, b.div(power, a)
    for j in range(1, 10):
        weight = float(special.bernoulli(2 * j)[-1]) / math.factorial(2 * j)
        total = b.add(total, b.mul(_number(b, weight, q), b.mul(factor, power)))
        step = b.add(s, _number(b, 2.0 * j - 1, s)), b.add(s, _number(b, 2.0 * j, s))
        factor = b.mul(factor, b.mul(*step))
        power = b.div(power, b.mul(a, a))
    return total


def _polygamma(b: Builder, n: int, x: SSAValue) -> SSAValue:
    """The n-th derivative of digamma, n >= 1; reflected for x <= 0 by derivatives of pi cot(pi x)."""
    sign = -1.0 if n % 2 == 0 else 1.0
    below = b.compare(x, _number(b, 0.5, x), "lt")
    y = b.select(below, b.sub(b.full_like(x, 1), x), x)
    order = _number(b, n + 1.0, x)
    value = b.mul(_number(b, sign * math.factorial(n), x), hurwitz_zeta(b, order, y))
    # (d/dx)^n pi cot(pi x) is pi^(n+1) times a polynomial of the cotangent, whose own slope is -(1 + cot^2).
    poly = Polynomial([0.0, 1.0])
    for _ in range(n):
        poly = Polynomial([-1.0, 0.0, -1.0]) * poly.deriv()
    angle = b.mul(_number(b, math.pi, x), b.sub(x, b.floor(x)))
    cotangent = b.div(b.full_like(x, 1), b.tan(angle))
    shift = b.mul(_number(b, math.pi ** (n + 1), x), polynomial(b, cotangent, [float(v) for v in poly.coef]))
    mirrored = b.sub(b.mul(_number(b, (-1.0) ** n, x), value), shift)
    pole = b.and_(b.compare(x, b.floor(x), "eq"), b.compare(x, b.full_like(x, 0), "le"))
    mirrored = b.select(pole, _number(b, math.inf, x), mirrored)
    value = b.select(below, mirrored, value)
    return b.select(b.compare(x, _number(b, math.inf, x), "eq"), b.full_like(x, 0), value)


def polygamma(c: OpContext, n: int, x: SSAValue) -> SSAValue:
    y = c.widened(c.convert(x, c.element))
    fixed = c.b.stop_gradient(y)
    value = digamma(c.b, fixed) if n == 0 else _polygamma(c.b, n, fixed)
    return c.convert(with_slope(c.b, y, value, _polygamma(c.b, n + 1, fixed)), c.element)


def zeta(c: OpContext, s: SSAValue | Number, q: SSAValue | Number) -> SSAValue:
    """Hurwitz' zeta. Negative q needs an integer s, as in torch, and is summed term by term down to -20."""
    b = c.b
    s, q = c.promoted(s, q, element=c.element)
    nan, infinity = c.full(math.nan, s), c.full(math.inf, s)
    value = hurwitz_zeta(b, s, q, 30)
    below = b.compare(q, c.full(0, q), "le")
    far = b.or_(b.compare(s, b.floor(s), "ne"), b.compare(q, c.full(-20, q), "lt"))
    value = b.select(b.and_(below, far), nan, value)
    value = b.select(b.and_(below, b.compare(q, b.floor(q), "eq")), infinity, value)
    value = b.select(b.compare(s, c.full(1, s), "lt"), nan, value)
    value = b.select(b.compare(s, c.full(1, s), "eq"), infinity, value)
    return c.b.stop_gradient(value)


def _erfinv_ratio(w: np.ndarray) -> np.ndarray:
    """erfinv(x) / x as a function of w = -log(1 - x^2), accurate where x is next to one."""
    root = np.sqrt(-np.expm1(-w))
    return np.where(root < 0.5, special.erfinv(root), special.erfcinv(np.exp(-w) / (1 + root))) / root


def _erfinv_low(t: np.ndarray) -> np.ndarray:
    return _erfinv_ratio(np.maximum(3.125 * (t + 1), 1e-30))


def _erfinv_high(t: np.ndarray) -> np.ndarray:
    return _erfinv_ratio((2.5 + 1.75 * (t + 1)) ** 2)


def erfinv(b: Builder, x: SSAValue) -> SSAValue:
    """Pieces and variables of Giles (2012)."""
    one = b.full_like(x, 1)
    w = b.negate(b.log(b.mul(b.sub(one, x), b.add(one, x))))
    low = chebyshev(b, _erfinv_low, b.sub(b.div(w, _number(b, 3.125, x)), one), 40)
    root = b.div(b.sub(b.sqrt(w), _number(b, 2.5, x)), _number(b, 1.75, x))
    high = chebyshev(b, _erfinv_high, b.sub(root, one), 30)
    value = b.mul(x, _choose(b, w, "lt", 6.25, low, high))
    edge = b.compare(b.abs(x), one, "eq")
    return b.select(edge, b.mul(x, _number(b, math.inf, x)), value)


def _erfinv_slope(b: Builder, x: SSAValue) -> SSAValue:
    y = erfinv(b, x)
    return b.mul(_number(b, math.sqrt(math.pi) / 2, x), b.exp(b.mul(y, y)))


def _erfcx_scaled(t: np.ndarray) -> np.ndarray:
    x = 3.75 * (1 + t) / (1 - t)
    return (1 + 2 * x) * special.erfcx(x)


def erfcx(b: Builder, x: SSAValue) -> SSAValue:
    """exp(x^2) erfc(x), after Shepherd and Laframboise (1981)."""
    y, k = b.abs(x), _number(b, 3.75, x)
    t = b.div(b.sub(y, k), b.add(y, k))
    huge = b.compare(y, _number(b, 1e30, x), "gt")
    t = b.select(huge, b.full_like(x, 1), t)
    value = b.div(chebyshev(b, _erfcx_scaled, t, 40), b.add(b.full_like(x, 1), b.add(y, y)))
    mirrored = b.sub(b.mul(_number(b, 2.0, x), b.exp(b.mul(x, x))), value)
    return _choose(b, x, "lt", 0.0, mirrored, value)


def _erfcx_slope(b: Builder, x: SSAValue) -> SSAValue:
    value = b.mul(b.add(x, x), erfcx(b, x))
    return b.sub(value, _number(b, 2 / math.sqrt(math.pi), x))


def ndtri(b: Builder, p: SSAValue) -> SSAValue:
    """The inverse of the normal distribution function."""
    two = _number(b, 2.0, p)
    return b.mul(_number(b, math.sqrt(2), p), erfinv(b, b.sub(b.mul(two, p), b.full_like(p, 1))))


def _ndtri_slope(b: Builder, p: SSAValue) -> SSAValue:
    y = ndtri(b, p)
    return b.mul(_number(b, math.sqrt(2 * math.pi), p), b.exp(b.mul(_number(b, 0.5, p), b.mul(y, y))))


def log_ndtr(b: Builder, x: SSAValue) -> SSAValue:
    """Log of the normal distribution function; by erfcx below -1, where the function itself vanishes."""
    y = b.mul(x, _number(b, -math.sqrt(0.5), x))
    half = b.mul(erfcx(b, y), _number(b, 0.5, x))
    tail = b.sub(b.log(half), b.mul(y, y))
    upper = b.mul(b.sub(b.full_like(x, 1), b.erf(b.negate(y))), _number(b, 0.5, x))
    return _choose(b, x, "lt", -1.0, tail, b.log1p(b.negate(upper)))


def _log_ndtr_slope(b: Builder, x: SSAValue) -> SSAValue:
    y = b.mul(x, _number(b, -math.sqrt(0.5), x))
    density = b.exp(b.sub(b.negate(b.mul(y, y)), log_ndtr(b, x)))
    upper = b.mul(density, _number(b, 1 / math.sqrt(2 * math.pi), x))
    return _choose(b, x, "lt", -1.0, b.div(_number(b, math.sqrt(2 / math.pi), x), erfcx(b, y)), upper)


ATEN: dict[str, Handler] = {
    "aten.special_log_ndtr.default": _smooth(log_ndtr, _log_ndtr_slope),
    "aten.lgamma.default": _smooth(lgamma, digamma),
    "aten.digamma.default": _smooth(digamma, lambda b, x: _polygamma(b, 1, x)),
    "aten.polygamma.default": polygamma,
    "aten.special_zeta.default": zeta,
    "aten.special_zeta.other_scalar": zeta,
    "aten.special_zeta.self_scalar": zeta,
    "aten.erfinv.default": _smooth(erfinv, _erfinv_slope),
    "aten.special_erfcx.default": _smooth(erfcx, _erfcx_slope),
    "aten.special_ndtri.default": _smooth(ndtri, _ndtri_slope),
}
