"""Histograms: every element's bin by bisection or division, and a scatter that counts.

Nothing is sorted, so that the elements can be split: the counts are then partial sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xdsl.ir import Attribute, SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops.context import Handler, Number, OpContext
from rhino.ir import types


def _counts(
    c: OpContext, x: SSAValue, bins: int, edges: Callable[[Attribute], tuple[SSAValue, SSAValue]]
) -> SSAValue:
    """Which of `bins` equal bins between two numbers each element is in; `bins` where it is in none."""
    b, element = c.b, types.element_of(x)
    low, high = (c.broadcast(v, types.shape_of(x)) for v in edges(element))
    width = b.sub(high, low)
    at = b.floor(b.div(b.mul(b.sub(x, low), c.full(bins, x)), width))
    at = b.minimum(at, c.full(bins - 1, at))  # the upper border belongs to the last bin
    inside = b.and_(b.compare(x, low, "ge"), b.compare(x, high, "le"))
    return b.convert(b.select(inside, at, c.full(bins, at)), types.I64)


def _bounds(c: OpContext, x: SSAValue, low: Number, high: Number) -> tuple[SSAValue, SSAValue]:
    """The range of `histc`: as given, or of the data; wider by one at both ends where that is one number."""
    b, element = c.b, types.element_of(x)
    if low != high or math.prod(types.shape_of(x)) == 0:
        return b.full([], element, float(low)), b.full([], element, float(high if high != low else low + 1))
    return _apart(b, b.reduce(x, [0], "min"), b.reduce(x, [0], "max"), 1.0)


def _apart(b: Builder, low: SSAValue, high: SSAValue, by: float) -> tuple[SSAValue, SSAValue]:
    """Two bounds, moved apart where they are equal."""
    step = b.select(b.compare(low, high, "eq"), b.full_like(low, by), b.full_like(low, 0))
    return b.sub(low, step), b.add(high, step)


def _tally(b: Builder, at: SSAValue, weights: SSAValue, bins: int) -> SSAValue:
    zeros = b.full([bins], types.element_of(weights), 0)
    return b.scatter_along(zeros, at, weights, 0, "add")


def histc(c: OpContext, x: SSAValue, bins: int = 100, min: Number = 0, max: Number = 0) -> SSAValue:
    b = c.b
    x = b.stop_gradient(b.reshape(x, [math.prod(types.shape_of(x))]))
    bounds = _bounds(c, x, min, max)
    return _tally(b, _counts(c, x, bins, lambda _: bounds), c.full(1, x), bins)


def _borders(c: OpContext, x: SSAValue, bins: int, limits: Sequence[float] | None) -> SSAValue:
    """The ``bins + 1`` borders of equal bins: between two numbers, or the extrema of `x`, which has one dimension."""
    b, element = c.b, types.element_of(x)
    if limits is not None or math.prod(types.shape_of(x)) == 0:
        low, high = (b.full([], element, float(v)) for v in limits or (0.0, 1.0))
    else:
        low, high = b.reduce(x, [0], "min"), b.reduce(x, [0], "max")
    low, high = (b.broadcast_in_dim(v, [bins + 1], []) for v in _apart(b, low, high, 0.5))
    step = b.div(b.sub(high, low), c.full(bins, low))
    count = c.convert(b.iota(types.tensor([bins + 1], types.I64), 0), element)
    rest = b.sub(c.full(bins, count), count)
    first = b.compare(count, c.full((bins + 1) // 2, count), "lt")  # from both ends, as torch.linspace does
    return b.select(first, b.add(low, b.mul(count, step)), b.sub(high, b.mul(rest, step)))


def _between(b: Builder, x: SSAValue, edges: SSAValue) -> SSAValue:
    """Between which borders each element is, counted from 0; as many as there are bins where it is between none.

    By bisection, step by step as torch does it: borders that do not ascend have a well-defined answer then, too.
    """
    count, shape = types.shape_of(edges)[0], types.shape_of(x)
    first, left = b.full(shape, types.I64, 0), b.full(shape, types.I64, count)
    one, two, none = (b.full_like(first, n) for n in (1, 2, count - 1))
    for _ in range(count.bit_length()):  # the first border above the element is among `left` from `first` on
        half = b.div(left, two)
        middle = b.add(first, half)
        beyond = b.compare(x, b.take(edges, middle, 0), "ge")
        beyond = b.and_(beyond, b.compare(left, one, "ge"))
        first = b.select(beyond, b.add(middle, one), first)
        left = b.select(beyond, b.sub(b.sub(left, half), one), half)
    low, high = (
        b.broadcast_in_dim(b.reshape(b.slice(edges, [k], [k + 1]), []), shape, []) for k in (0, count - 1)
    )
    at = b.sub(first, one)
    at = b.select(b.compare(at, none, "eq"), b.sub(at, one), at)  # the last border belongs to the last bin
    inside = b.and_(b.compare(x, low, "ge"), b.compare(x, high, "le"))
    return b.select(inside, at, none)


def histogram(
    c: OpContext,
    x: SSAValue,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: SSAValue | None = None,
    density: bool = False,
) -> list[SSAValue]:
    """Counts (or sums of weights) in equal bins, and their borders."""
    x = _elements(c, x)
    edges = _borders(c, x, bins, range)
    low, high = (c.b.reshape(c.b.slice(edges, [k], [k + 1]), []) for k in (0, bins))
    at = _counts(c, x, bins, lambda _: (low, high))
    return [_weighed(c, [at], [edges], weight, density), edges]


def histogram_between(
    c: OpContext, x: SSAValue, edges: SSAValue, *, weight: SSAValue | None = None, density: bool = False
) -> list[SSAValue]:
    """Counts (or sums of weights) between given borders; the last belongs to the last bin."""
    return [_weighed(c, [_between(c.b, _elements(c, x), edges)], [edges], weight, density), edges]


def _elements(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.stop_gradient(c.b.reshape(x, [math.prod(types.shape_of(x))]))


def _columns(c: OpContext, x: SSAValue) -> list[SSAValue]:
    """The coordinates of points, one tensor for each."""
    b = c.b
    *batch, count = types.shape_of(x)
    points = b.stop_gradient(b.reshape(x, [math.prod(batch), count]))
    return [
        b.reshape(b.slice(points, [0, k], [math.prod(batch), k + 1]), [math.prod(batch)])
        for k in range(count)
    ]


def many_borders(
    c: OpContext,
    x: SSAValue,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: SSAValue | None = None,
    density: bool = False,
) -> list[SSAValue]:
    """The borders along each coordinate; `range` holds two numbers for each."""
    limits: list[Sequence[float] | None] = [None] * len(bins)
    if range is not None:
        limits = [range[2 * k : 2 * k + 2] for k, _ in enumerate(bins)]
    return [_borders(c, y, n, own) for y, n, own in zip(_columns(c, x), bins, limits, strict=True)]


def many(
    c: OpContext,
    x: SSAValue,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: SSAValue | None = None,
    density: bool = False,
) -> SSAValue:
    """Counts of points in boxes that divide a cuboid evenly."""
    return many_between(c, x, many_borders(c, x, bins, range=range), weight=weight, density=density)


def many_between(
    c: OpContext,
    x: SSAValue,
    bins: Sequence[SSAValue],
    *,
    weight: SSAValue | None = None,
    density: bool = False,
) -> SSAValue:
    """Counts of points in boxes between given borders."""
    at = [_between(c.b, y, edges) for y, edges in zip(_columns(c, x), bins, strict=True)]
    return _weighed(c, at, bins, weight, density)


def _weighed(
    c: OpContext, at: Sequence[SSAValue], edges: Sequence[SSAValue], weight: SSAValue | None, density: bool
) -> SSAValue:
    """Counts by the bin along each coordinate; for `density` over their sum and the bins' volumes."""
    b, element = c.b, types.element_of(edges[0])
    sizes = [types.shape_of(e)[0] - 1 for e in edges]
    boxes = math.prod(sizes)
    place = b.full_like(at[0], 0)
    outside = b.compare(place, c.full(1, place), "ge")
    for one, size in zip(at, sizes, strict=True):
        place = b.add(b.mul(place, c.full(size, place)), one)
        outside = b.or_(outside, b.compare(one, c.full(size, one), "ge"))
    place = b.select(outside, c.full(boxes, place), place)
    points = types.shape_of(place)
    ones = b.full(points, element, 1) if weight is None else b.reshape(weight, points)
    total = b.reshape(_tally(b, place, b.stop_gradient(c.convert(ones, element)), boxes), sizes)
    if not density:
        return total
    share = b.broadcast_in_dim(b.reduce(total, list(range(len(sizes))), "sum"), sizes, [])
    for k, (e, size) in enumerate(zip(edges, sizes, strict=True)):
        width = b.sub(b.slice(e, [1], [size + 1]), b.slice(e, [0], [size]))
        share = b.mul(share, b.broadcast_in_dim(width, sizes, [k]))
    return b.div(total, share)


ATEN: dict[str, Handler] = {
    "aten.histc.default": histc,
    "aten.histogram.bin_ct": histogram,
    "aten.histogram.bins_tensor": histogram_between,
    "aten._histogramdd_bin_edges.default": many_borders,
    "aten._histogramdd_from_bin_cts.default": many,
    "aten._histogramdd_from_bin_tensors.default": many_between,
}
