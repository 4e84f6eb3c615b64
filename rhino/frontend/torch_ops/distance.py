"""Distances between rows, and reductions over segments and bags of rows."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from rhino.frontend.torch_ops.context import Handler, Number, OpContext
from rhino.frontend.torch_ops.reduction import norm_of
from rhino.ir import types


def cdist(c: OpContext, x: SSAValue, y: SSAValue, p: float, compute_mode: int | None = None) -> SSAValue:
    """``[..., P, M], [..., R, M] -> [..., P, R]``: the p-norms of all differences of rows."""
    b = c.b
    *batch, rows, columns = c.shape
    width = types.shape_of(x)[-1]
    if math.prod(c.shape) == 0 or width == 0:
        return b.full(list(c.shape), c.element, 0)
    shape = [*batch, rows, columns, width]
    lead = list(range(len(batch)))
    x = c.broadcast(x, [*batch, rows, width])
    y = c.broadcast(y, [*batch, columns, width])
    left = b.broadcast_in_dim(x, shape, [*lead, len(batch), len(batch) + 2])
    right = b.broadcast_in_dim(y, shape, [*lead, len(batch) + 1, len(batch) + 2])
    return norm_of(c, b.sub(left, right), p, [len(shape) - 1])


def pdist(c: OpContext, x: SSAValue, p: float = 2) -> SSAValue:
    """The p-norms of the differences of all pairs of rows, i < j."""
    b = c.b
    n, width = types.shape_of(x)
    if c.shape[0] == 0 or width == 0:
        return b.full(list(c.shape), c.element, 0)
    pieces = []
    for i in range(n - 1):
        rest = b.slice(x, [i + 1, 0], [n, width])
        one = c.broadcast(b.slice(x, [i, 0], [i + 1, width]), types.shape_of(rest))
        pieces.append(b.sub(one, rest))
    differences = pieces[0] if len(pieces) == 1 else b.concatenate(pieces, 0)
    return norm_of(c, differences, p, [1])


def segment_reduce(
    c: OpContext,
    x: SSAValue,
    reduce: str,
    *,
    lengths: SSAValue | None = None,
    indices: SSAValue | None = None,
    offsets: SSAValue | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Number | None = None,
) -> SSAValue:
    """Each segment of a dimension reduced; empty ones give the initial value, or that of the reduction."""
    b, shape = c.b, types.shape_of(x)
    if lengths is not None:
        lengths = c.convert(lengths, types.I64)
        ends = b.cumulative(lengths, axis, "sum")
        starts = b.sub(ends, lengths)
    else:
        assert offsets is not None
        offsets = c.convert(offsets, types.I64)
        low, high = [0] * (axis + 1), list(types.shape_of(offsets))
        starts = b.slice(offsets, low, [*high[:-1], high[-1] - 1])
        ends = b.slice(offsets, [*low[:-1], 1], high)
    segments = types.shape_of(starts)[axis]
    whole = [*shape[:axis], segments, *shape[axis:]]
    lead = list(range(axis + 1))
    here = b.iota(types.tensor(whole, types.I64), axis + 1)
    inside = b.and_(
        b.compare(here, b.broadcast_in_dim(starts, whole, lead), "ge"),
        b.compare(here, b.broadcast_in_dim(ends, whole, lead), "lt"),
    )
    rows = b.broadcast_in_dim(x, whole, [*range(axis), *range(axis + 1, len(whole))])
    kinds = {"sum": "sum", "mean": "sum", "max": "max", "min": "min", "prod": "prod"}
    neutral = {"sum": 0.0, "mean": 0.0, "max": -math.inf, "min": math.inf, "prod": 1.0}[reduce]
    value = b.reduce(b.select(inside, rows, c.full(neutral, rows)), [axis + 1], kinds[reduce])
    count = b.reduce(b.convert(inside, types.element_of(x)), [axis + 1], "sum")
    empty = b.compare(count, c.full(0, count), "eq")
    if initial is not None and reduce != "mean":
        start = c.full(initial, value)
        joined = {"sum": b.add, "prod": b.mul, "max": b.maximum, "min": b.minimum}[reduce](value, start)
        return joined
    if reduce == "mean":  # an initial value is one more summand, not one more element
        first = 0.0 if initial is None else float(initial)
        value = b.div(b.add(value, c.full(first, value)), b.select(empty, c.full(1, count), count))
        return b.select(empty, c.full(math.nan if initial is None else first, value), value)
    return value


def embedding_bag(
    c: OpContext,
    weight: SSAValue,
    indices: SSAValue,
    offsets: SSAValue,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: SSAValue | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[SSAValue | None]:
    """Rows of a table, summed (mode 0), averaged (1) or their maxima taken (2) bag by bag.

    Which row belongs to which bag is a matrix of zeros and ones, so that a sum is a product. Only the first result
    is given out.
    """
    b = c.b
    if scale_grad_by_freq:
        raise c.unsupported("scale_grad_by_freq", remedy="scale the gradient in the loss")
    bags, width = c.shape
    (n,) = types.shape_of(indices)
    if n == 0:
        return [b.full(list(c.shape), c.element, 0), None, None, None]
    rows = b.take(weight, indices, 0)
    if per_sample_weights is not None:
        rows = b.mul(rows, b.broadcast_in_dim(c.convert(per_sample_weights, c.element), [n, width], [0]))
    offsets = c.convert(offsets, types.I64)
    starts = b.slice(offsets, [0], [bags])
    position = b.iota(types.tensor([bags, n], types.I64), 1)
    started = b.compare(b.broadcast_in_dim(starts, [bags, n], [0]), position, "le")
    last = b.full([1], types.I64, n)
    ends = b.concatenate([b.slice(offsets, [1], [bags]), last], 0) if bags > 1 else last
    if include_last_offset:
        ends = b.slice(offsets, [1], [bags + 1])
    member = b.and_(started, b.compare(b.broadcast_in_dim(ends, [bags, n], [0]), position, "gt"))
    if padding_idx >= 0:
        real = b.compare(indices, c.full(padding_idx, indices), "ne")
        member = b.and_(member, b.broadcast_in_dim(real, [bags, n], [1]))
    ones = b.convert(member, c.element)
    count = b.reduce(ones, [1], "sum")
    empty = b.compare(count, c.full(0, count), "eq")
    if mode == 2:
        whole = [bags, n, width]
        spread = b.broadcast_in_dim(rows, whole, [1, 2])
        hidden = b.select(b.broadcast_in_dim(member, whole, [0, 1]), spread, c.full(-math.inf, spread))
        index = b.reshape(b.argmax(b.stop_gradient(hidden), 1), [bags, 1, width])
        value = b.reshape(b.take_along(spread, index, 1), [bags, width])
        return [b.select(_per_bag(c, empty), c.full(0, value), value), None, None, None]
    value = b.dot_general(ones, rows, contract=((1,), (0,)))
    if mode == 1:
        value = b.div(value, _per_bag(c, b.select(empty, c.full(1, count), count)))
    return [value, None, None, None]


def _per_bag(c: OpContext, value: SSAValue) -> SSAValue:
    return c.b.broadcast_in_dim(value, list(c.shape), [0])


ATEN: dict[str, Handler] = {
    "aten._cdist_forward.default": cdist,
    "aten._pdist_forward.default": pdist,
    "aten.segment_reduce.default": segment_reduce,
    "aten._embedding_bag.default": embedding_bag,
    "aten._embedding_bag_forward_only.default": embedding_bag,
}
