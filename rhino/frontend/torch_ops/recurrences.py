"""Functions computed by a loop: orthogonal polynomials of an order per element, incomplete gamma functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops.context import Handler, Number, OpContext
from rhino.frontend.torch_ops.special import lgamma, with_slope
from rhino.ir import types

Step = Callable[[Builder, SSAValue, SSAValue, SSAValue, SSAValue], SSAValue]


@dataclass(frozen=True)
class Family:
    """Polynomials p_0 = 1, p_1, p_2, ... of x.

    Attributes:
        first: factor and constant of p_1.
        step: p_(k+1) of (builder, k, x, p_k, p_(k-1)), k a floating-point number per element.
        shifted: the polynomials are of 2 x - 1.
        limit: the largest order that torch computes, for float32 and float64; NaN beyond.
    """

    first: tuple[float, float]
    step: Step
    shifted: bool = False
    limit: tuple[int, int] | None = None


def _chebyshev(b: Builder, k: SSAValue, x: SSAValue, q: SSAValue, p: SSAValue) -> SSAValue:
    return b.sub(b.mul(b.add(x, x), q), p)


def _hermite(scale: float) -> Step:
    def step(b: Builder, k: SSAValue, x: SSAValue, q: SSAValue, p: SSAValue) -> SSAValue:
        return b.mul(b.full_like(x, scale), b.sub(b.mul(x, q), b.mul(k, p)))

    return step


def _legendre(b: Builder, k: SSAValue, x: SSAValue, q: SSAValue, p: SSAValue) -> SSAValue:
    one = b.full_like(k, 1)
    twice = b.mul(b.add(b.add(k, k), one), b.mul(x, q))
    return b.div(b.sub(twice, b.mul(k, p)), b.add(k, one))


def _laguerre(b: Builder, k: SSAValue, x: SSAValue, q: SSAValue, p: SSAValue) -> SSAValue:
    one = b.full_like(k, 1)
    twice = b.mul(b.sub(b.add(b.add(k, k), one), x), q)
    return b.div(b.sub(twice, b.mul(k, p)), b.add(k, one))


_FIRST = {"t": (1.0, 0.0), "u": (2.0, 0.0), "v": (2.0, -1.0), "w": (2.0, 1.0)}
FAMILIES = {
    **{f"chebyshev_polynomial_{n}": Family(f, _chebyshev) for n, f in _FIRST.items()},
    **{f"shifted_chebyshev_polynomial_{n}": Family(f, _chebyshev, True) for n, f in _FIRST.items()},
    "hermite_polynomial_h": Family((2.0, 0.0), _hermite(2.0), limit=(128, 512)),
    "hermite_polynomial_he": Family((1.0, 0.0), _hermite(1.0), limit=(128, 512)),
    "laguerre_polynomial_l": Family((-1.0, 1.0), _laguerre),
    "legendre_polynomial_p": Family((1.0, 0.0), _legendre),
}


def _polynomial(family: Family) -> Handler:
    """A handler of (x, order). Orders are cut to integers; those below zero give zero."""

    def handler(c: OpContext, x: SSAValue | Number, n: SSAValue | Number) -> SSAValue:
        b = c.b
        x, n = c.promoted(x, n, element=c.element)
        x, order = c.widened(x), b.convert(n, types.I64)
        if family.shifted:
            x = b.sub(b.add(x, x), b.full_like(x, 1))
        if family.limit is not None:
            most = family.limit[1 if c.element == types.F64 else 0]
            beyond = b.compare(order, b.full_like(order, most), "gt")
            order = b.select(beyond, b.full_like(order, -1), order)
        value = _recurrence(b, family, x, order)
        if family.limit is not None:
            value = b.select(beyond, b.full_like(value, math.nan), value)
        return c.convert(value, c.element)

    return handler


def _recurrence(b: Builder, family: Family, x: SSAValue, order: SSAValue) -> SSAValue:
    """The polynomial of each element's order: a loop up to the largest one."""
    shape = types.shape_of(x)
    factor, constant = family.first
    zero, one = b.full_like(x, 0), b.full_like(x, 1)
    first = b.add(b.mul(b.full_like(x, factor), x), b.full_like(x, constant))
    none = b.full_like(order, 0)
    low = b.select(b.compare(order, none, "lt"), zero, one)
    out = b.select(b.compare(order, none, "gt"), first, low)
    largest = b.reduce(order, list(range(len(shape))), "max")

    def more(b: Builder, k: SSAValue, *values: SSAValue) -> list[SSAValue]:
        return [b.compare(k, values[-1], "lt")]

    def turn(
        b: Builder,
        k: SSAValue,
        p: SSAValue,
        q: SSAValue,
        out: SSAValue,
        x: SSAValue,
        order: SSAValue,
        largest: SSAValue,
    ) -> list[SSAValue]:
        number = b.broadcast_in_dim(b.convert(k, types.element_of(x)), list(shape), [])
        following = family.step(b, number, x, q, p)
        k = b.add(k, b.full_like(k, 1))
        here = b.compare(order, b.broadcast_in_dim(k, list(shape), []), "eq")
        return [k, q, following, b.select(here, following, out)]

    start = b.full([], types.I64, 1)
    return b.while_([start, one, first, out], [x, order, largest], more, turn)[3]


#: Turns after which the loops of the incomplete gamma functions stop, converged or not.
_TURNS = 2000


def _gamma_series(b: Builder, a: SSAValue, x: SSAValue) -> SSAValue:
    """Sum of x^k / ((a + 1) ... (a + k)): the lower function by exp(-x) x^a / gamma(a + 1). For x < a + 1."""

    def more(
        b: Builder, k: SSAValue, r: SSAValue, term: SSAValue, total: SSAValue, x: SSAValue
    ) -> list[SSAValue]:
        grows = b.compare(term, b.mul(total, b.full_like(total, 1e-17)), "gt")
        return [_going(b, k, grows)]

    def turn(
        b: Builder, k: SSAValue, r: SSAValue, term: SSAValue, total: SSAValue, x: SSAValue
    ) -> list[SSAValue]:
        r = b.add(r, b.full_like(r, 1))
        term = b.mul(term, b.div(x, r))
        return [b.add(k, b.full_like(k, 1)), r, term, b.add(total, term)]

    one = b.full_like(x, 1)
    return b.while_([b.full([], types.I64, 0), a, one, one], [x], more, turn)[3]


def _gamma_fraction(b: Builder, a: SSAValue, x: SSAValue) -> SSAValue:
    """Legendre's continued fraction of the upper function by exp(-x) x^a / gamma(a), after Lentz. For x > a, x > 1."""
    tiny = 1e-300 if types.element_of(x) == types.F64 else 1e-30

    def safe(b: Builder, y: SSAValue) -> SSAValue:
        return b.select(b.compare(y, b.full_like(y, 0), "eq"), b.full_like(y, tiny), y)

    def more(
        b: Builder,
        k: SSAValue,
        up: SSAValue,
        down: SSAValue,
        value: SSAValue,
        change: SSAValue,
        *rest: SSAValue,
    ) -> list[SSAValue]:
        return [_going(b, k, b.compare(b.abs(change), b.full_like(change, 1e-16), "gt"))]

    def turn(
        b: Builder,
        k: SSAValue,
        up: SSAValue,
        down: SSAValue,
        value: SSAValue,
        change: SSAValue,
        a: SSAValue,
        x: SSAValue,
    ) -> list[SSAValue]:
        k = b.add(k, b.full_like(k, 1))
        i = b.broadcast_in_dim(b.convert(k, types.element_of(x)), list(types.shape_of(x)), [])
        one = b.full_like(x, 1)
        factor = b.mul(i, b.sub(a, i))
        part = b.add(b.sub(x, a), b.add(b.add(i, i), one))
        down = b.div(one, safe(b, b.add(part, b.mul(factor, down))))
        up = safe(b, b.add(part, b.div(factor, up)))
        ratio = b.mul(up, down)
        return [k, up, down, b.mul(value, ratio), b.sub(ratio, one)]

    one = b.full_like(x, 1)
    start = b.add(b.sub(x, a), one)
    first = b.div(one, safe(b, start))
    initial = [b.full([], types.I64, 0), b.full_like(x, 1 / tiny), first, first, one]
    return b.while_(initial, [a, x], more, turn)[3]


def _going(b: Builder, k: SSAValue, moving: SSAValue) -> SSAValue:
    """Whether any element still moves, within the allowed number of turns."""
    any_moves = b.reduce(moving, list(range(len(types.shape_of(moving)))), "or")
    return b.and_(any_moves, b.compare(k, b.full_like(k, _TURNS), "lt"))


def _incomplete_gamma(upper: bool) -> Handler:
    """The regularized incomplete gamma functions of (a, x). Their derivative in `a` is not known in closed form."""

    def handler(c: OpContext, a: SSAValue, x: SSAValue) -> SSAValue:
        b = c.b
        a, x = (c.widened(v) for v in c.promoted(a, x, element=c.element))
        argument, a, x = x, b.stop_gradient(a), b.stop_gradient(x)
        zero, one = b.full_like(x, 0), b.full_like(x, 1)
        finite = b.and_(b.is_finite(a), b.is_finite(x))
        inside = b.and_(finite, b.and_(b.compare(a, zero, "gt"), b.compare(x, zero, "gt")))
        sum_up = b.or_(b.compare(x, one, "le"), b.compare(x, a, "le"))
        # Elements of the other kind run through a loop with harmless numbers.
        weight = _density(b, a, x, inside)
        by_series = b.and_(inside, sum_up)
        low = _gamma_series(b, b.select(by_series, a, one), b.select(by_series, x, zero))
        low = b.div(b.mul(weight, low), b.select(inside, a, one))
        by_fraction = b.and_(inside, b.not_(sum_up))
        high = b.mul(
            weight,
            _gamma_fraction(b, b.select(by_fraction, a, one), b.select(by_fraction, x, b.add(one, one))),
        )
        value = b.select(sum_up, b.sub(one, low), high) if upper else b.select(sum_up, low, b.sub(one, high))
        value = b.select(inside, value, _at_the_border(b, a, x, upper))
        slope = b.div(weight, b.select(inside, x, one))
        return c.convert(with_slope(b, argument, value, b.negate(slope) if upper else slope), c.element)

    return handler


def _density(b: Builder, a: SSAValue, x: SSAValue, inside: SSAValue) -> SSAValue:
    """exp(-x) x^a / gamma(a); zero outside."""
    one = b.full_like(x, 1)
    a, x = b.select(inside, a, one), b.select(inside, x, one)
    log = b.sub(b.sub(b.mul(a, b.log(x)), x), lgamma(b, a))
    return b.select(inside, b.exp(log), b.full_like(x, 0))


def _at_the_border(b: Builder, a: SSAValue, x: SSAValue, upper: bool) -> SSAValue:
    """Where a or x is zero, infinite or negative: the lower function is 0, 1 or undefined."""
    zero, infinity = b.full_like(x, 0), b.full_like(x, math.inf)
    none, all_ = (b.full_like(x, float(v)) for v in ((1, 0) if upper else (0, 1)))
    bad = b.not_(b.and_(b.compare(a, zero, "ge"), b.compare(x, zero, "ge")))
    a_zero, x_zero = b.compare(a, zero, "eq"), b.compare(x, zero, "eq")
    a_inf, x_inf = b.compare(a, infinity, "eq"), b.compare(x, infinity, "eq")
    bad = b.or_(bad, b.or_(b.and_(a_zero, x_zero), b.and_(a_inf, x_inf)))
    value = b.select(b.or_(x_zero, a_inf), none, all_)
    return b.select(bad, b.full_like(x, math.nan), value)


ATEN: dict[str, Handler] = {
    **{
        f"aten.special_{name}.{overload}": _polynomial(family)
        for name, family in FAMILIES.items()
        for overload in ("default", "x_scalar", "n_scalar")
    },
    "aten.igamma.default": _incomplete_gamma(upper=False),
    "aten.igammac.default": _incomplete_gamma(upper=True),
    "aten.special_gammainc.default": _incomplete_gamma(upper=False),
    "aten.special_gammaincc.default": _incomplete_gamma(upper=True),
}
