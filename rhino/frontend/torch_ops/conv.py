"""Convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from rhino.frontend.torch_ops import pooling
from rhino.frontend.torch_ops.context import Handler, Number, OpContext
from rhino.frontend.torch_ops.shape import slice_dim
from rhino.ir import types


def convolution(
    c: OpContext,
    x: SSAValue,
    weight: SSAValue,
    bias: SSAValue | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> SSAValue:
    rank = len(types.shape_of(x)) - 2
    strides, pads, dilations, extra = (_each(v, rank) for v in (stride, padding, dilation, output_padding))
    if transposed:
        out = _transposed(c, x, weight, strides, pads, dilations, extra, groups)
    else:
        out = c.b.convolution(
            x, weight, strides, [(p, p) for p in pads], rhs_dilation=dilations, feature_groups=groups
        )
    if bias is None:
        return out
    return c.b.add(out, c.b.broadcast_in_dim(bias, list(types.shape_of(out)), [1]))


def _each(values: Sequence[int], rank: int) -> list[int]:
    """One value per spatial dimension; a single value stands for all."""
    return [int(v) for v in values] * rank if len(values) == 1 else [int(v) for v in values]


def _transposed(
    c: OpContext,
    x: SSAValue,
    weight: SSAValue,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    extra: Sequence[int],
    groups: int,
) -> SSAValue:
    """The gradient of a convolution in its input: the flipped weight over the input with gaps of stride - 1.

    The weight comes as ``[C, O / groups, ...]`` and is brought to ``[O, C / groups, ...]``.
    """
    b = c.b
    channels, per_group, *window = types.shape_of(weight)
    w = b.reshape(weight, [groups, channels // groups, per_group, *window])
    w = b.transpose(w, [0, 2, 1, *range(3, 3 + len(window))])
    w = b.reshape(w, [groups * per_group, channels // groups, *window])
    w = b.reverse(w, list(range(2, 2 + len(window))))
    reach = [d * (k - 1) for d, k in zip(dilations, window, strict=True)]
    padding = [(r - p, r - p + e) for r, p, e in zip(reach, pads, extra, strict=True)]
    # Negative padding crops the result of a convolution with none.
    out = b.convolution(
        x,
        w,
        padding=[(max(lo, 0), max(hi, 0)) for lo, hi in padding],
        lhs_dilation=strides,
        rhs_dilation=dilations,
        feature_groups=groups,
    )
    for d, (lo, hi) in enumerate(padding, 2):
        out = slice_dim(c, out, d, max(-lo, 0), types.shape_of(out)[d] - max(-hi, 0))
    return out


def _pooling(
    c: OpContext,
    x: SSAValue,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    out: Sequence[int],
) -> tuple[list[int], list[int], list[tuple[int, int]], list[int]]:
    """Window, strides, padding and dilation over all dimensions; pads up to the result (ceil mode)."""
    rank = len(kernel)
    lead = len(types.shape_of(x)) - rank
    window, strides, dilations = ([1] * lead + list(v) for v in (kernel, stride, dilation))
    pads = [(0, 0)] * lead
    for d in range(rank):
        extent = types.shape_of(x)[lead + d]
        needed = (out[lead + d] - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1
        pads.append((padding[d], max(needed - extent - padding[d], 0)))
    return window, strides, pads, dilations


def max_pool(
    c: OpContext,
    x: SSAValue,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> list[SSAValue | None]:
    """The values, and the indices where something reads them."""
    rank = 3 if "3d" in str(c.node.target) else 2
    kernel = _each(kernel_size, rank)
    strides = _each(stride, rank) if len(stride) else kernel
    pads, steps = _each(padding, rank), _each(dilation, rank)
    if c.reads(1):
        lead = len(c.shape) - rank
        extents, outs = types.shape_of(x)[lead:], c.shape[lead:]
        places = zip(extents, outs, kernel, strides, pads, steps, strict=True)
        return list(pooling.max_at(c, x, [pooling.positions(*place) for place in places]))
    arguments = _pooling(c, x, kernel, strides, pads, steps, c.shape)
    window, strides, margins, dilations = arguments
    return [c.b.reduce_window(x, "max", window, strides, margins, window_dilation=dilations), None]


def avg_pool(
    c: OpContext,
    x: SSAValue,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> SSAValue:
    rank = 3 if "3d" in str(c.node.target) else 2
    kernel, pad = _each(kernel_size, rank), _each(padding, rank)
    strides = _each(stride, rank) if len(stride) else kernel
    window, steps, pads, _ = _pooling(c, x, kernel, strides, pad, [1] * rank, c.shape)
    total = c.b.reduce_window(c.widened(x), "sum", window, steps, pads)
    if divisor_override is not None:
        mean = c.b.div(total, c.full(divisor_override, total))
    else:
        lead = len(c.shape) - rank
        counts = np.ones((), dtype=np.float64)
        for d in range(rank):
            line = _window_counts(
                types.shape_of(x)[lead + d],
                kernel[d],
                strides[d],
                pad[d],
                c.shape[lead + d],
                count_include_pad,
            )
            counts = np.multiply.outer(counts, line)
        mean = c.b.div(total, _spread(c, counts, total))
    return c.convert(mean, c.element)


def _window_counts(
    extent: int, kernel: int, stride: int, pad: int, out: int, include_pad: bool
) -> np.ndarray:
    """How many elements each window position counts, along one dimension."""
    start = np.arange(out) * stride - pad
    end = np.minimum(start + kernel, extent + pad)
    if not include_pad:
        start, end = np.maximum(start, 0), np.minimum(end, extent)
    return (end - start).astype(np.float64)


def _spread(c: OpContext, values: np.ndarray, like: SSAValue) -> SSAValue:
    """Constants over the last dimensions of `like`, in its element type."""
    element, shape = types.element_of(like), types.shape_of(like)
    if np.all(values == values.flat[0]):
        return c.b.full(list(shape), element, float(values.flat[0]))
    constant = c.b.constant(values.astype(types.numpy_dtype(element)), types.tensor(values.shape, element))
    return c.broadcast(constant, shape)


def adaptive_avg_pool(c: OpContext, x: SSAValue, output_size: Sequence[int]) -> SSAValue:
    """Window i of m covers floor(i n / m) to ceil((i + 1) n / m) of n elements.

    Windows of equal size are pooled; others are a product with an averaging matrix per dimension.
    """
    b, y = c.b, c.widened(x)
    rank = len(output_size)
    lead = len(c.shape) - rank
    if all(types.shape_of(x)[lead + d] % c.shape[lead + d] == 0 for d in range(rank)):
        window = [1] * lead + [types.shape_of(x)[lead + d] // c.shape[lead + d] for d in range(rank)]
        total = b.reduce_window(y, "sum", window, window)
        return c.convert(b.div(total, c.full(math.prod(window), total)), c.element)
    element = types.element_of(y)
    for d in range(lead, len(c.shape)):
        n, m = types.shape_of(y)[d], c.shape[d]
        matrix = np.zeros((n, m), types.numpy_dtype(element))
        for i in range(m):
            low, high = i * n // m, -(-(i + 1) * n // m)
            matrix[low:high, i] = 1 / (high - low)
        # The contracted dimension goes last; after all `rank` products the order is restored.
        y = b.dot_general(y, b.constant(matrix, types.tensor(matrix.shape, element)), contract=((d,), (0,)))
        last = len(c.shape) - 1
        y = b.transpose(y, [*range(d), last, *range(d, last)]) if d != last else y
    return c.convert(y, c.element)


def adaptive_max_pool(c: OpContext, x: SSAValue, output_size: Sequence[Number]) -> list[SSAValue | None]:
    rank = len(output_size)
    lead = len(c.shape) - rank
    shape = types.shape_of(x)
    uneven = any(shape[lead + d] % c.shape[lead + d] for d in range(rank))
    if uneven or c.reads(1):
        places = [pooling.adaptive_positions(shape[lead + d], c.shape[lead + d]) for d in range(rank)]
        return list(pooling.max_at(c, x, places))
    window = [1] * lead + [shape[lead + d] // c.shape[lead + d] for d in range(rank)]
    return [c.b.reduce_window(x, "max", window, window), None]


ATEN: dict[str, Handler] = {
    "aten.convolution.default": convolution,
    "aten.max_pool2d_with_indices.default": max_pool,
    "aten.max_pool3d_with_indices.default": max_pool,
    "aten.avg_pool2d.default": avg_pool,
    "aten.avg_pool3d.default": avg_pool,
    "aten.adaptive_avg_pool1d.default": adaptive_avg_pool,
    "aten.adaptive_avg_pool2d.default": adaptive_avg_pool,
    "aten.adaptive_avg_pool3d.default": adaptive_avg_pool,
    "aten._adaptive_avg_pool2d.default": adaptive_avg_pool,
    "aten._adaptive_avg_pool3d.default": adaptive_avg_pool,
    "aten.adaptive_max_pool2d.default": adaptive_max_pool,
    "aten.adaptive_max_pool3d.default": adaptive_max_pool,
    "aten.fractional_max_pool2d.default": pooling.fractional_max_pool,
    "aten.fractional_max_pool3d.default": pooling.fractional_max_pool,
}
