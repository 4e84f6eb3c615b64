"""Pooling that needs to know where its elements are: indices of maxima, windows of unequal size or at random places."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from rhino.frontend.torch_ops.context import OpContext
from rhino.ir import types


def positions(extent: int, out: int, kernel: int, stride: int, padding: int, dilation: int) -> np.ndarray:
    """Positions ``[out, kernel]`` that the windows of a dimension cover; -1 outside."""
    at = np.arange(out)[:, None] * stride - padding + np.arange(kernel)[None] * dilation
    return np.where((at >= 0) & (at < extent), at, -1)


def adaptive_positions(extent: int, out: int) -> np.ndarray:
    """Window i covers floor(i n / m) to ceil((i + 1) n / m); shorter windows are filled up with -1."""
    low = [i * extent // out for i in range(out)]
    high = [-(-(i + 1) * extent // out) for i in range(out)]
    longest = max((h - lo for lo, h in zip(low, high, strict=True)), default=0)
    at = np.array(low)[:, None] + np.arange(longest)[None]
    return np.where(at < np.array(high)[:, None], at, -1)


def max_at(c: OpContext, x: SSAValue, places: Sequence[np.ndarray]) -> list[SSAValue]:
    """Maxima over windows of the last dimensions, and their places in these dimensions flattened.

    `places` holds for each dimension the positions ``[out, window]`` of its windows.
    """
    shape = types.shape_of(x)
    extents = shape[len(shape) - len(places) :]
    flat, outside = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.bool_)
    for extent, place in zip(extents, places, strict=True):
        (m, k), (n, w) = flat.shape, place.shape
        flat = (flat[:, None, :, None] * extent + np.maximum(place, 0)[None, :, None]).reshape(m * n, k * w)
        outside = (outside[:, None, :, None] | (place < 0)[None, :, None]).reshape(m * n, k * w)
    return max_of(c, x, c.b.constant(flat), c.b.constant(outside) if outside.any() else None, len(places))


def max_of(
    c: OpContext, x: SSAValue, flat: SSAValue, outside: SSAValue | None, spatial: int
) -> list[SSAValue]:
    """Maxima over the places ``flat[..., windows, elements]``, which lead over batch dimensions or over none."""
    b, shape = c.b, types.shape_of(x)
    lead = list(shape[: len(shape) - spatial])
    lines = b.reshape(x, [*lead, math.prod(shape[len(lead) :])])
    *_, windows, elements = types.shape_of(flat)
    whole = [*lead, windows, elements]
    flat = b.broadcast_to(flat, whole)
    index = b.reshape(flat, [*lead, windows * elements])
    read = b.reshape(b.take_along(lines, index, -1), whole)
    fixed = b.stop_gradient(read)
    if outside is not None:
        lowest = -math.inf if types.is_float(c.element) else np.iinfo(types.numpy_dtype(c.element)).min
        fixed = b.select(b.broadcast_to(outside, whole), c.full(lowest, fixed), fixed)
    best = b.reshape(b.argmax(fixed, len(whole) - 1), [*lead, windows, 1])
    index = b.reshape(b.take_along(flat, best, -1), [*lead, windows])
    values = b.take_along(lines, index, -1)
    return [b.reshape(v, list(c.shape)) for v in (values, index)]


def fractional_max_pool(
    c: OpContext, x: SSAValue, kernel: Sequence[int], out: Sequence[int], samples: SSAValue
) -> list[SSAValue]:
    """Graham's fractional pooling (arXiv 1412.6071): window starts follow from one number per channel.

    The numbers of the last dimension come first, as in torch.
    """
    b, shape, rank = c.b, types.shape_of(x), len(kernel)
    lead = list(shape[: len(shape) - rank])
    samples = b.reshape(b.stop_gradient(samples), [*lead, rank])
    windows, elements = math.prod(out), math.prod(kernel)
    whole = [*lead, *out, *kernel]
    flat = b.full(whole, types.I64, 0)
    for d in range(rank):
        extent = shape[len(lead) + d]
        starts = _starts(c, samples, rank - 1 - d, extent, out[d], kernel[d], lead)
        starts = b.broadcast_in_dim(starts, whole, [*range(len(lead)), len(lead) + d])
        inner = b.iota(types.tensor(whole, types.I64), len(lead) + rank + d)
        flat = b.add(b.mul(flat, b.full_like(flat, extent)), b.add(starts, inner))
    return max_of(c, x, b.reshape(flat, [*lead, windows, elements]), None, rank)


def _starts(
    c: OpContext, samples: SSAValue, which: int, extent: int, out: int, kernel: int, lead: Sequence[int]
) -> SSAValue:
    """First positions ``[..., out]`` of the windows; the last window ends with the dimension."""
    b = c.b
    rank = len(lead)
    u = b.reshape(b.slice(samples, [*[0] * rank, which], [*lead, which + 1]), list(lead))
    shape = [*lead, out]
    u = b.broadcast_in_dim(u, shape, list(range(rank)))
    count = b.iota(types.tensor(shape, types.I64), rank)
    last = b.full_like(count, extent - kernel)
    if out == 1:
        return last
    alpha = b.full_like(u, (extent - kernel) / (out - 1))
    moved = b.floor(b.mul(b.add(c.convert(count, types.element_of(u)), u), alpha))
    first = b.convert(b.sub(moved, b.floor(b.mul(u, alpha))), types.I64)
    return b.select(b.compare(count, b.full_like(count, out - 1), "eq"), last, first)
