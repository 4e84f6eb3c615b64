"""Random numbers: a counter-based generator over the global element index, so that plans do not change them.

The whole program has one scalar seed, a state that starts at zero and grows by one every step; each call site
mixes its own number into it. The numbers therefore differ from torch's, but not between plans, ranks or runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops.context import Handler, Number, OpContext
from rhino.ir import types

#: Steps that a call site may run before its seeds meet those of the next one.
_SITE_STRIDE = 1 << 40


def uniform(b: Builder, seed: SSAValue, site: int, shape: Sequence[int], element: Attribute) -> SSAValue:
    """Uniform numbers in [0, 1) for a call site."""
    own = b.add(seed, b.full_like(seed, site * _SITE_STRIDE))
    return b.random_uniform(own, b.linear_index(list(shape)), element)


def dropout_of(b: Builder, x: SSAValue, p: Number, seed: SSAValue, site: int) -> tuple[SSAValue, SSAValue]:
    """``x / (1 - p)`` where an element is kept, else 0; and where they are kept."""
    draw = uniform(b, seed, site, types.shape_of(x), types.F32)
    kept = b.compare(draw, b.full_like(draw, p), "ge")
    scale = 0.0 if p >= 1 else 1 / (1 - p)
    return b.select(kept, b.mul(x, b.full_like(x, scale)), b.full_like(x, 0)), kept


def native_dropout(c: OpContext, x: SSAValue, p: Number, train: bool | None = True) -> list[SSAValue]:
    if not train or p == 0:
        return [x, c.b.full(list(c.shape), types.I1, True)]
    seed, site = c.random.next()
    return list(dropout_of(c.b, x, p, seed, site))


def dropout(c: OpContext, x: SSAValue, p: Number, train: bool) -> SSAValue:
    return native_dropout(c, x, p, train)[0]


def rand(c: OpContext, *_: object, **__: object) -> SSAValue:
    return uniform(c.b, *c.random.next(), c.shape, c.element)


def randn(c: OpContext, *_: object, **__: object) -> SSAValue:
    """Normal numbers from two uniform ones (Box and Muller 1958)."""
    b = c.b
    element = types.F64 if c.element == types.F64 else types.F32
    u, v = (uniform(b, *c.random.next(), c.shape, element) for _ in range(2))
    radius = b.sqrt(b.mul(b.full_like(u, -2), b.log(b.sub(b.full_like(u, 1), u))))
    return c.convert(b.mul(radius, b.cos(b.mul(v, b.full_like(v, 2 * math.pi)))), c.element)


def bernoulli(c: OpContext, x: SSAValue, p: SSAValue | Number = 0.5, **_: object) -> SSAValue:
    draw = uniform(c.b, *c.random.next(), c.shape, types.F32)
    limit = c.operand(p, types.F32, c.shape)
    return c.convert(c.b.compare(draw, limit, "lt"), c.element)


def bernoulli_of(c: OpContext, x: SSAValue, **_: object) -> SSAValue:
    return bernoulli(c, x, x)


def _uniform64(c: OpContext) -> SSAValue:
    """Fresh numbers in [0, 1) in the precision in which the result is computed."""
    element = types.F64 if c.element == types.F64 else types.F32
    return uniform(c.b, *c.random.next(), c.shape, element)


def _logs(c: OpContext) -> SSAValue:
    """log(1 - u): minus an exponential number."""
    u = _uniform64(c)
    return c.b.log(c.b.sub(c.full(1, u), u))


def exponential(c: OpContext, x: SSAValue, rate: Number = 1, **_: object) -> SSAValue:
    logs = _logs(c)
    return c.convert(c.b.div(logs, c.full(-rate, logs)), c.element)


def geometric(c: OpContext, x: SSAValue, p: Number, **_: object) -> SSAValue:
    """The number of trials up to a success: 1, 2, ..."""
    logs = _logs(c)
    trials = c.b.ceil(c.b.div(logs, c.full(math.log1p(-p) if p < 1 else -math.inf, logs)))
    return c.convert(c.b.maximum(trials, c.full(1, trials)), c.element)


def normal(
    c: OpContext, mean: SSAValue | Number, std: SSAValue | Number, *_: object, **__: object
) -> SSAValue:
    noise = randn(c)
    scaled = c.b.mul(noise, c.operand(std, c.element, c.shape))
    return c.b.add(scaled, c.operand(mean, c.element, c.shape))


def normal_like(c: OpContext, x: SSAValue, mean: Number = 0, std: Number = 1, **_: object) -> SSAValue:
    return normal(c, mean, std)


def log_normal(c: OpContext, x: SSAValue, mean: Number = 1, std: Number = 2, **_: object) -> SSAValue:
    return c.b.exp(normal(c, mean, std))


def uniform_like(c: OpContext, x: SSAValue, low: Number = 0, high: Number = 1, **_: object) -> SSAValue:
    return _between(c, low, high)


def _between(c: OpContext, low: Number, high: Number) -> SSAValue:
    u = _uniform64(c)
    return c.convert(c.b.add(c.b.mul(u, c.full(high - low, u)), c.full(low, u)), c.element)


def cauchy(c: OpContext, x: SSAValue, median: Number = 0, sigma: Number = 1, **_: object) -> SSAValue:
    u = _uniform64(c)
    wave = c.b.tan(c.b.mul(c.b.sub(u, c.full(0.5, u)), c.full(math.pi, u)))
    return c.convert(c.b.add(c.b.mul(wave, c.full(sigma, u)), c.full(median, u)), c.element)


def _integers(c: OpContext, low: Number, high: Number) -> SSAValue:
    u = uniform(c.b, *c.random.next(), c.shape, types.F64)
    count = c.b.convert(c.b.floor(c.b.mul(u, c.full(high - low, u))), types.I64)
    return c.convert(c.b.add(count, c.full(int(low), count)), c.element)


def randint(c: OpContext, high: Number, size: Sequence[int], **_: object) -> SSAValue:
    return _integers(c, 0, high)


def randint_low(c: OpContext, low: Number, high: Number, size: Sequence[int], **_: object) -> SSAValue:
    return _integers(c, low, high)


def randint_like(c: OpContext, x: SSAValue, high: Number, **_: object) -> SSAValue:
    return _integers(c, 0, high)


def randint_like_low(c: OpContext, x: SSAValue, low: Number, high: Number, **_: object) -> SSAValue:
    return _integers(c, low, high)


def randperm(c: OpContext, n: int, **_: object) -> SSAValue:
    """The order of random numbers."""
    draw = uniform(c.b, *c.random.next(), [n], types.F64)
    order = c.b.sort([draw, c.b.iota(types.tensor([n], types.I64), 0)], 0)[1]
    return c.convert(order, c.element)


def multinomial(
    c: OpContext, weights: SSAValue, samples: int, replacement: bool = False, **_: object
) -> SSAValue:
    """Draws along the last dimension: by the running sum, or without replacement by the largest log(w) + Gumbel."""
    b, shape = c.b, types.shape_of(weights)
    w = c.b.stop_gradient(c.widened(weights))
    element, last = types.element_of(w), len(shape) - 1
    if not replacement:
        u = uniform(b, *c.random.next(), shape, element)
        race = b.log(b.negate(b.log(b.sub(b.full_like(u, 1), u))))
        return b.top_k(b.sub(b.log(w), race), samples)[1]
    sums = b.cumulative(w, last, "sum")
    total = b.reduce(w, [last], "sum")
    draws = uniform(b, *c.random.next(), [*shape[:-1], samples], element)
    draws = b.mul(draws, b.broadcast_in_dim(total, types.shape_of(draws), list(range(last))))
    whole = [*shape[:-1], samples, shape[-1]]
    passed = b.compare(
        b.broadcast_in_dim(sums, whole, [*range(last), last + 1]),
        b.broadcast_in_dim(draws, whole, list(range(last + 1))),
        "le",
    )
    index = b.reduce(b.convert(passed, types.I64), [last + 1], "sum")
    return b.minimum(index, b.full_like(index, shape[-1] - 1))


def rrelu(
    c: OpContext,
    x: SSAValue,
    noise: SSAValue,
    lower: Number = 0.125,
    upper: Number = 1 / 3,
    training: bool = False,
    generator: object = None,
) -> list[SSAValue]:
    """Negative numbers times a slope: random in training, else the mean; and the slopes."""
    b = c.b
    positive = b.compare(x, c.full(0, x), "gt" if training else "ge")
    if training:
        u = uniform(b, *c.random.next(), c.shape, types.F64 if c.element == types.F64 else types.F32)
        slope = c.convert(b.add(b.mul(u, c.full(upper - lower, u)), c.full(lower, u)), c.element)
        slope = b.select(positive, c.full(1, x), slope)
        return [b.mul(x, slope), slope]
    return [b.select(positive, x, b.mul(x, c.full((lower + upper) / 2, x))), noise]


ATEN: dict[str, Handler] = {
    "aten.dropout.default": dropout,
    "aten.native_dropout.default": native_dropout,
    "aten.rand.default": rand,
    "aten.rand_like.default": rand,
    "aten.randn.default": randn,
    "aten.randn_like.default": randn,
    "aten.bernoulli.default": bernoulli_of,
    "aten.bernoulli.p": bernoulli,
    "aten.exponential.default": exponential,
    "aten.geometric.default": geometric,
    "aten.normal.Tensor_float": normal,
    "aten.normal.float_Tensor": normal,
    "aten.normal.Tensor_Tensor": normal,
    "aten.normal.float_float": normal,
    "aten.normal_functional.default": normal_like,
    "aten.log_normal.default": log_normal,
    "aten.uniform.default": uniform_like,
    "aten.cauchy.default": cauchy,
    "aten.randint.default": randint,
    "aten.randint.low": randint_low,
    "aten.randint_like.default": randint_like,
    "aten.randint_like.low_dtype": randint_like_low,
    "aten.randperm.default": randperm,
    "aten.multinomial.default": multinomial,
    "aten.rrelu_with_noise_functional.default": rrelu,
}
