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


ATEN: dict[str, Handler] = {
    "aten.dropout.default": dropout,
    "aten.native_dropout.default": native_dropout,
    "aten.rand.default": rand,
    "aten.rand_like.default": rand,
    "aten.randn.default": randn,
    "aten.randn_like.default": randn,
    "aten.bernoulli.default": bernoulli_of,
    "aten.bernoulli.p": bernoulli,
}
