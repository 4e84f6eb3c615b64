"""Scaled dot-product attention as the composite ``attention``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from xdsl.dialects.builtin import FloatAttr, f64
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import integer
from rhino.frontend.torch_ops.activation import row_max, softmax_of
from rhino.frontend.torch_ops.context import Handler, Number, OpContext, axis, cast, spread, wide
from rhino.frontend.torch_ops.random import dropout_of
from rhino.ir import types


def attention(
    c: OpContext,
    query: SSAValue,
    key: SSAValue,
    value: SSAValue,
    mask: SSAValue | None = None,
    dropout: Number = 0.0,
    causal: bool = False,
    *,
    scale: Number | None = None,
    enable_gqa: bool = False,
) -> SSAValue:
    """softmax(scale * Q K^T + mask) V.

    Shapes: ``query[..., H, L, E], key[..., Hkv, S, E], value[..., Hkv, S, Ev] -> [..., H, L, Ev]``.
    Attributes: ``scale``; ``causal`` (0 or 1, aligned at the top left as in torch); ``mask`` (0 or 1: the fourth
    operand is one, boolean or added); ``dropout`` (the last operand is then the step's seed). With fewer key
    than query heads (grouped queries) every key head serves a group. Rows that the mask leaves empty give
    zeros, as torch's safe softmax does.
    """
    shape_q, shape_k = types.shape_of(query), types.shape_of(key)
    scale = 1 / math.sqrt(shape_q[-1]) if scale is None else scale
    groups = shape_q[-3] // shape_k[-3] if enable_gqa else 1
    batch = torch.broadcast_shapes(
        *[types.shape_of(t)[: -3 if enable_gqa else -2] for t in (query, key, value)]
    )
    if not enable_gqa:
        query, key, value = (c.broadcast(t, [*batch, *types.shape_of(t)[-2:]]) for t in (query, key, value))
    operands = [query, key, value] + ([mask] if mask is not None else [])
    site = 0
    if dropout > 0:
        seed, site = c.random.next()
        operands.append(seed)

    def body(b: Builder, *args: SSAValue) -> Sequence[SSAValue]:
        q, k, v = args[:3]
        inner_mask = args[3] if mask is not None else None

        def drop(p: SSAValue) -> SSAValue:
            return dropout_of(b, p, dropout, args[-1], site)[0] if dropout > 0 else p

        return [_body(b, q, k, v, inner_mask, float(scale), causal, groups, drop)]

    attributes = {
        "scale": FloatAttr(float(scale), f64),
        "causal": integer(causal),
        "mask": integer(mask is not None),
        "dropout": FloatAttr(float(dropout), f64),
    }
    return c.b.composite("attention", operands, attributes, body)[0]


def _body(
    b: Builder,
    q: SSAValue,
    k: SSAValue,
    v: SSAValue,
    mask: SSAValue | None,
    scale: float,
    causal: bool,
    groups: int,
    drop: Callable[[SSAValue], SSAValue],
) -> SSAValue:
    element = types.element_of(q)
    shape_q, length_k = list(types.shape_of(q)), types.shape_of(k)[-2]
    if groups > 1:  # [.., H, L, E] -> [.., Hkv, G, L, E]; the keys stay as they are
        q = b.reshape(q, [*shape_q[:-3], shape_q[-3] // groups, groups, *shape_q[-2:]])
    lead = len(types.shape_of(k)) - 2
    dims = list(range(lead))
    scores = b.dot_general(q, k, batch=(dims, dims), contract=((-1,), (-1,)))
    scores = cast(b, scores, wide(element))
    scores = b.mul(scores, b.full_like(scores, scale))
    full_shape = [*shape_q[:-1], length_k]
    if groups > 1:
        scores = b.reshape(scores, full_shape)
    scores, hidden = _masked(b, scores, mask, causal)
    last = len(full_shape) - 1
    weights = softmax_of(b, scores, last) if hidden is None else _safe_softmax(b, scores, hidden)
    weights = cast(b, drop(weights), element)
    if groups > 1:
        weights = b.reshape(weights, [*full_shape[:-3], full_shape[-3] // groups, groups, *full_shape[-2:]])
    out = b.dot_general(weights, v, batch=(dims, dims), contract=((-1,), (-2,)))
    return b.reshape(out, [*shape_q[:-1], types.shape_of(v)[-1]]) if groups > 1 else out


def _masked(
    b: Builder, scores: SSAValue, mask: SSAValue | None, causal: bool
) -> tuple[SSAValue, float | None]:
    """Masked scores, and the value that marks a row as hidden (None where no row can be).

    Boolean masks write the lowest finite number, which keeps infinities out of the program; a mask that is
    added hides a row only if it is -inf all along it.
    """
    shape = types.shape_of(scores)
    low = lowest(types.element_of(scores))
    if causal:
        # Position i sees j <= i, so position 0 is always seen: no row is empty.
        square = types.tensor(shape[-2:], types.I64)
        seen = b.compare(b.iota(square, 0), b.iota(square, 1), "ge")
        scores = b.select(b.broadcast_to(seen, shape), scores, b.full_like(scores, low))
    if mask is None:
        return scores, None
    if types.element_of(mask) == types.I1:
        return b.select(b.broadcast_to(mask, shape), scores, b.full_like(scores, low)), low
    return b.add(scores, b.broadcast_to(cast(b, mask, types.element_of(scores)), shape)), -math.inf


def lowest(element: object) -> float:
    """The lowest finite number that f32 (or f64) holds."""
    return torch.finfo(torch.float64 if element == types.F64 else torch.float32).min


def _safe_softmax(b: Builder, x: SSAValue, hidden: float) -> SSAValue:
    """A softmax along the last dimension that is zero on rows whose maximum is `hidden`.

    The denominators of such rows are replaced before they are divided by, which keeps gradients finite.
    """
    shape, last = types.shape_of(x), len(types.shape_of(x)) - 1
    top = row_max(b, x, last)
    alive = b.compare(top, b.full_like(top, hidden), "ne")
    zero, one = b.full_like(top, 0), b.full_like(top, 1)
    e = b.exp(b.sub(x, spread(b, b.select(alive, top, zero), shape, [last])))
    total = b.select(alive, b.reduce(e, [last], "sum"), one)
    inverse = b.select(alive, b.div(one, total), zero)
    return b.mul(e, spread(b, inverse, shape, [last]))


def safe_softmax(c: OpContext, x: SSAValue, dim: int, dtype: object = None) -> SSAValue:
    """A softmax that is zero along rows of -inf."""
    y = c.convert(x, wide(c.element))
    rank = len(c.shape)
    if not rank:
        return c.full(1, c.convert(x, c.element))
    d = axis(dim, rank)
    perm = [*(e for e in range(rank) if e != d), d]
    turned = c.b.transpose(y, perm)
    out = c.b.transpose(_safe_softmax(c.b, turned, -math.inf), [perm.index(e) for e in range(rank)])
    return c.convert(out, c.element)


ATEN: dict[str, Handler] = {
    "aten._safe_softmax.default": safe_softmax,
    "aten.scaled_dot_product_attention.default": attention,
}
