"""Order statistics, running extrema and searching."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops.context import Handler, Number, OpContext, axis, keep_dims, promote
from rhino.ir import types


def _positions(b: Builder, x: SSAValue, dim: int) -> SSAValue:
    return b.iota(types.tensor(types.shape_of(x), types.I64), dim)


def _is_nan(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.compare(x, x, "ne")


def _picked(c: OpContext, x: SSAValue, index: SSAValue, dim: int, keep: bool) -> list[SSAValue]:
    """Values at an index with extent 1 along `dim`, and the index; picked, so that gradients go to one element."""
    value = c.b.take_along(x, index, dim)
    if keep:
        return [value, index]
    rest = [n for d, n in enumerate(types.shape_of(x)) if d != dim]
    return [c.b.reshape(value, rest), c.b.reshape(index, rest)]


def _rank_of(c: OpContext, x: SSAValue, dim: int, place: SSAValue) -> SSAValue:
    """Index of the element that is at `place` (extent 1 along `dim`) when sorted; NaN counts as largest."""
    order = c.b.sort([c.b.stop_gradient(x), _positions(c.b, x, dim)], dim)[1]
    return c.b.take_along(order, place, dim)


def kthvalue(c: OpContext, x: SSAValue, k: int, dim: int = -1, keepdim: bool = False) -> list[SSAValue]:
    shape = types.shape_of(x)
    if not shape:
        return [x, c.b.full([], types.I64, 0)]
    d = axis(dim, len(shape))
    place = c.b.full(keep_dims(shape, [d]), types.I64, k - 1)
    return _picked(c, x, _rank_of(c, x, d, place), d, keepdim)


def _median(ignoring_nan: bool) -> Handler:
    """The lower median; NaN if there is one, or among the other numbers."""

    def handler(c: OpContext, x: SSAValue, dim: int | None = None, keepdim: bool = False) -> object:
        b = c.b
        flat = dim is None
        if flat:
            x = b.reshape(x, [math.prod(types.shape_of(x))])
        shape = types.shape_of(x)
        if not shape:
            return [x, b.full([], types.I64, 0)]
        d = axis(dim or 0, len(shape))
        kept = keep_dims(shape, [d])
        if types.is_float(types.element_of(x)):
            nans = b.reshape(b.reduce(b.convert(_is_nan(c, x), types.I64), [d], "sum"), kept)
        else:
            nans = b.full(kept, types.I64, 0)
        size = b.full_like(nans, shape[d])
        numbers = b.maximum(b.sub(size, nans), b.full_like(nans, 1))
        place = b.div(b.sub(numbers, b.full_like(nans, 1)), b.full_like(nans, 2))
        if not ignoring_nan:  # the first NaN stands behind all numbers
            none = b.compare(nans, b.full_like(nans, 0), "eq")
            place = b.select(none, place, b.sub(size, nans))
        values = _picked(c, x, _rank_of(c, x, d, place), d, keepdim)
        return values[0] if flat else values

    return handler


def mode(c: OpContext, x: SSAValue, dim: int = -1, keepdim: bool = False) -> list[SSAValue]:
    """The most frequent value, the smallest of several, and the last place where it stands."""
    b, shape = c.b, types.shape_of(x)
    if not shape:
        return [x, b.full([], types.I64, 0)]
    d = axis(dim, len(shape))
    values, order = b.sort([b.stop_gradient(x), _positions(b, x, d)], d)
    n = shape[d]
    wide_shape = [*shape[:d], n, n, *shape[d + 1 :]]
    before, after = list(range(d)), list(range(d + 2, len(shape) + 1))
    left = b.broadcast_in_dim(values, wide_shape, [*before, d, *after])
    right = b.broadcast_in_dim(values, wide_shape, [*before, d + 1, *after])
    same = b.convert(b.compare(left, right, "eq"), types.I64)
    counts = b.reduce(same, [d + 1], "sum")
    first = b.reshape(b.argmax(counts, d), keep_dims(shape, [d]))
    more = b.sub(b.take_along(counts, first, d), b.full_like(first, 1))
    return _picked(c, x, b.take_along(order, b.add(first, more), d), d, keepdim)


def _running(kind: str) -> Handler:
    """Running extremum, and where it was reached last; a NaN stays the extremum."""

    def handler(c: OpContext, x: SSAValue, dim: int) -> list[SSAValue]:
        b = c.b
        if not c.shape:
            return [x, b.full([], types.I64, 0)]
        d = axis(dim, len(c.shape))
        fixed = b.stop_gradient(x)
        top = b.cumulative(fixed, d, kind)
        reached = b.or_(b.compare(fixed, top, "eq"), _is_nan(c, fixed))
        here = _positions(b, x, d)
        index = b.cumulative(b.select(reached, here, b.full_like(here, 0)), d, "max")
        return [b.take_along(x, index, d), index]

    return handler


def logcumsumexp(c: OpContext, x: SSAValue, dim: int) -> SSAValue:
    """A scan of log(e^a + e^b) in log2(n) steps (Hillis and Steele 1986), in which nothing overflows."""
    b = c.b
    if not c.shape:
        return x
    d = axis(dim, len(c.shape))
    y, n, step = c.widened(x), c.shape[d], 1
    while step < n:
        low, high = [0] * len(c.shape), list(c.shape)
        high[d] = n - step
        pad = [step if i == d else 0 for i in range(len(c.shape))]
        shifted = b.pad(b.slice(y, low, high), -math.inf, pad, low)
        y = log_add(b, y, shifted)
        step *= 2
    return c.convert(y, c.element)


def log_add(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
    """log(e^x + e^y): infinities are set aside, so that neither value nor gradient becomes NaN."""
    top = b.stop_gradient(b.maximum(x, y))
    finite = b.is_finite(top)
    zero = b.full_like(x, 0)
    shift = b.select(finite, top, zero)
    total = b.add(b.exp(b.sub(x, shift)), b.exp(b.sub(y, shift)))
    safe = b.select(finite, total, b.full_like(x, 1))
    return b.select(finite, b.add(b.log(safe), shift), top)


def searchsorted(
    c: OpContext,
    boundaries: SSAValue,
    x: SSAValue | Number,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: SSAValue | None = None,
) -> SSAValue:
    """The number of boundaries below x (or, to the right, not above it), counted: nothing is searched."""
    b = c.b
    element = promote(boundaries, x)
    x = c.operand(x, element, types.shape_of(x) if isinstance(x, SSAValue) else ())
    boundaries = c.convert(boundaries, element)
    if types.shape_of(boundaries)[-1] == 0:
        return b.full(list(c.shape), c.element, 0)
    if sorter is not None:
        boundaries = b.take_along(boundaries, sorter, -1)
    shape, lines = types.shape_of(x), types.shape_of(boundaries)
    whole = [*shape, lines[-1]]
    lead = list(range(len(lines) - 1)) if len(lines) > 1 else []
    edges = b.broadcast_in_dim(boundaries, whole, [*lead, len(shape)])
    values = b.broadcast_in_dim(x, whole, list(range(len(shape))))
    passed = b.compare(edges, values, "le" if right or side == "right" else "lt")
    if types.is_float(element):  # NaN sorts behind everything
        passed = b.or_(passed, _is_nan(c, values))
    return b.convert(b.reduce(b.convert(passed, types.I64), [len(shape)], "sum"), c.element)


def bucketize(
    c: OpContext,
    x: SSAValue | Number,
    boundaries: SSAValue,
    *,
    out_int32: bool = False,
    right: bool = False,
) -> SSAValue:
    return searchsorted(c, boundaries, x, right=right)


ATEN: dict[str, Handler] = {
    "aten.kthvalue.default": kthvalue,
    "aten.median.default": _median(ignoring_nan=False),
    "aten.median.dim": _median(ignoring_nan=False),
    "aten.nanmedian.default": _median(ignoring_nan=True),
    "aten.nanmedian.dim": _median(ignoring_nan=True),
    "aten.mode.default": mode,
    "aten.cummax.default": _running("max"),
    "aten.cummin.default": _running("min"),
    "aten.logcumsumexp.default": logcumsumexp,
    "aten.searchsorted.Tensor": searchsorted,
    "aten.searchsorted.Scalar": searchsorted,
    "aten.bucketize.Tensor": bucketize,
    "aten.bucketize.Scalar": bucketize,
}
