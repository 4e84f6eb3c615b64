"""Resizing with antialiasing: per dimension a product with a matrix of weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from xdsl.ir import SSAValue

from rhino.frontend.torch_ops.context import Handler, OpContext
from rhino.ir import types


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: np.ndarray) -> np.ndarray:
    """Keys' kernel (1981) with a = -1/2."""
    x = np.abs(x)
    inner = (1.5 * x - 2.5) * x * x + 1
    outer = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, inner, np.where(x < 2, outer, 0.0))


def weights(
    extent: int,
    out: int,
    align_corners: bool,
    factor: float | None,
    kernel: Callable[[np.ndarray], np.ndarray],
    reach: int,
) -> np.ndarray:
    """Weights ``[extent, out]``: the kernel as wide as an output pixel, normalized."""
    if align_corners:
        scale = (extent - 1) / (out - 1) if out > 1 else 0.0
    else:
        scale = 1 / factor if factor is not None and factor > 0 else extent / out
    support = max(scale, 1.0) * reach
    inverse = 1 / scale if scale >= 1 else 1.0
    matrix = np.zeros((extent, out))
    for i in range(out):
        center = scale * (i + 0.5)
        low = max(int(center - support + 0.5), 0)
        high = min(int(center + support + 0.5), extent)
        line = kernel((np.arange(low, high) - center + 0.5) * inverse)
        matrix[low:high, i] = line / line.sum()
    return matrix


def _antialiased(kernel: Callable[[np.ndarray], np.ndarray], reach: int) -> Handler:
    def handler(
        c: OpContext,
        x: SSAValue,
        size: Sequence[int],
        align_corners: bool,
        scale_h: float | None = None,
        scale_w: float | None = None,
    ) -> SSAValue:
        b, y = c.b, c.widened(x)
        element = types.element_of(y)
        for d, factor in ((2, scale_h), (3, scale_w)):
            matrix = weights(types.shape_of(y)[d], c.shape[d], align_corners, factor, kernel, reach)
            constant = b.constant(
                matrix.astype(types.numpy_dtype(element)), types.tensor(matrix.shape, element)
            )
            y = b.dot_general(y, constant, contract=((d,), (0,)))
            y = b.transpose(y, [0, 1, 3, 2]) if d == 2 else y
        return c.convert(y, c.element)

    return handler


def grid_sampler_3d(
    c: OpContext, x: SSAValue, grid: SSAValue, interpolation: int, padding: int, align_corners: bool
) -> SSAValue:
    """Samples of volumes ``x[N, C, D, H, W]`` at points ``grid[N, D', H', W', (x, y, z)]`` in [-1, 1]."""
    b = c.b
    n, channels, *extents = types.shape_of(x)
    points = list(types.shape_of(grid)[1:-1])
    lines = b.reshape(x, [n, channels, math.prod(extents)])
    sources = []
    for d, extent in enumerate(extents):  # depth, height, width: the grid holds them the other way round
        low = [0] * 4 + [2 - d]
        position = b.slice(grid, low, [n, *points, 3 - d])
        position = b.reshape(position, [n, math.prod(points)])
        sources.append(
            _padded(c, _unnormalized(c, position, extent, align_corners), extent, padding, align_corners)
        )
    if interpolation == 1:
        corners: list[list[tuple[SSAValue, SSAValue | None]]] = [[(b.round_even(s), None)] for s in sources]
    else:
        corners = []
        for s in sources:
            floor = b.floor(b.stop_gradient(s))
            part = b.sub(s, floor)
            one = c.full(1, s)
            corners.append([(floor, b.sub(one, part)), (b.add(floor, one), part)])
    total: SSAValue | None = None
    for depth, dw in corners[0]:
        for height, hw in corners[1]:
            for width, ww in corners[2]:
                value = _read(c, lines, (depth, height, width), extents)
                for weight in (dw, hw, ww):
                    if weight is not None:
                        value = b.mul(value, b.broadcast_in_dim(weight, list(types.shape_of(value)), [0, 2]))
                total = value if total is None else b.add(total, value)
    assert total is not None
    return b.reshape(total, list(c.shape))


def _unnormalized(c: OpContext, x: SSAValue, extent: int, align_corners: bool) -> SSAValue:
    b = c.b
    up = b.add(x, c.full(1, x))
    if align_corners:
        return b.mul(up, c.full((extent - 1) / 2, x))
    return b.mul(b.sub(b.mul(up, c.full(extent, x)), c.full(1, x)), c.full(0.5, x))


def _padded(c: OpContext, x: SSAValue, extent: int, padding: int, align_corners: bool) -> SSAValue:
    """Zeros: as it is; border: clipped; reflection: folded back, then clipped."""
    b = c.b
    if padding == 0:
        return x
    if padding == 2:
        low, high = (0, 2 * (extent - 1)) if align_corners else (-1, 2 * extent - 1)
        if low == high:
            return c.full(0, x)
        span = (high - low) / 2
        away = b.abs(b.sub(x, c.full(low / 2, x)))
        flips = b.floor(b.div(b.stop_gradient(away), c.full(span, x)))
        rest = b.sub(away, b.mul(flips, c.full(span, x)))
        even = b.compare(b.rem(flips, c.full(2, x)), c.full(0, x), "eq")
        there, back = b.add(rest, c.full(low / 2, x)), b.sub(c.full(span + low / 2, x), rest)
        x = b.select(even, there, back)
    inside = b.and_(b.compare(x, c.full(0, x), "gt"), b.compare(x, c.full(extent - 1, x), "lt"))
    edge = b.minimum(b.maximum(b.stop_gradient(x), c.full(0, x)), c.full(extent - 1, x))
    return b.select(inside, x, edge)


def _read(c: OpContext, lines: SSAValue, at: Sequence[SSAValue], extents: Sequence[int]) -> SSAValue:
    """``lines[n, channel, flattened position]`` at a corner per point; zero outside."""
    b = c.b
    n, channels, _ = types.shape_of(lines)
    flat: SSAValue | None = None
    inside: SSAValue | None = None
    for position, extent in zip(at, extents, strict=True):
        index = b.convert(position, types.I64)
        zero, last = b.full_like(index, 0), b.full_like(index, extent - 1)
        fits = b.and_(b.compare(index, zero, "ge"), b.compare(index, last, "le"))
        index = b.minimum(b.maximum(index, zero), last)
        inside = fits if inside is None else b.and_(inside, fits)
        flat = index if flat is None else b.add(b.mul(flat, b.full_like(flat, extent)), index)
    assert flat is not None and inside is not None
    shape = [n, channels, types.shape_of(flat)[1]]
    value = b.take_along(lines, b.broadcast_in_dim(flat, shape, [0, 2]), 2)
    return b.select(b.broadcast_in_dim(inside, shape, [0, 2]), value, c.full(0, value))


ATEN: dict[str, Handler] = {
    "aten._upsample_bilinear2d_aa.default": _antialiased(_triangle, 1),
    "aten._upsample_bicubic2d_aa.default": _antialiased(_cubic, 2),
    "aten.grid_sampler_3d.default": grid_sampler_3d,
}
