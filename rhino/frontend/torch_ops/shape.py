"""Ops that move elements without computing: views, slices, concatenation, padding; makers of constants."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import SSAValue

from rhino.frontend.torch_ops.context import Handler, Number, OpContext, axes, axis
from rhino.frontend.torch_ops.pointwise import as_bool
from rhino.ir import types


def reshape(c: OpContext, x: SSAValue, *_: object) -> SSAValue:
    """Every op whose result has the operand's elements in the same order."""
    return _reshape(c, x, c.shape)


def _reshape(c: OpContext, x: SSAValue, shape: Sequence[int]) -> SSAValue:
    return x if types.shape_of(x) == tuple(shape) else c.b.reshape(x, list(shape))


def permute(c: OpContext, x: SSAValue, dims: Sequence[int]) -> SSAValue:
    return _transpose(c, x, [axis(d, len(dims)) for d in dims])


def _transpose(c: OpContext, x: SSAValue, perm: Sequence[int]) -> SSAValue:
    return x if list(perm) == list(range(len(perm))) else c.b.transpose(x, list(perm))


def transpose(c: OpContext, x: SSAValue, dim0: int, dim1: int) -> SSAValue:
    perm = list(range(len(types.shape_of(x))))
    if not perm:
        return x
    i, j = axis(dim0, len(perm)), axis(dim1, len(perm))
    perm[i], perm[j] = perm[j], perm[i]
    return _transpose(c, x, perm)


def t(c: OpContext, x: SSAValue) -> SSAValue:
    return transpose(c, x, 0, 1) if len(types.shape_of(x)) == 2 else x


def expand(c: OpContext, x: SSAValue, *_: object, **__: object) -> SSAValue:
    return c.broadcast(x, c.shape)


def repeat(c: OpContext, x: SSAValue, repeats: Sequence[int]) -> SSAValue:
    """A dimension is repeated by broadcasting a new one in front of it and merging the two."""
    shape = [1] * (len(repeats) - len(types.shape_of(x))) + list(types.shape_of(x))
    if all(r == 1 for r in repeats):
        return _reshape(c, x, shape)
    split = [e for r, extent in zip(repeats, shape, strict=True) for e in (r, extent)]
    kept = [2 * d + 1 for d in range(len(shape))]
    return _reshape(c, c.b.broadcast_in_dim(_reshape(c, x, shape), split, kept), c.shape)


def slice_(
    c: OpContext, x: SSAValue, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> SSAValue:
    shape = types.shape_of(x)
    d = axis(dim, len(shape))
    low, high = _bounds(shape[d], start, end)
    return slice_dim(c, x, d, low, high, step)


def _bounds(extent: int, start: int | None, end: int | None) -> tuple[int, int]:
    low, high, _ = slice(start, end).indices(extent)
    return low, max(low, high)


def slice_dim(c: OpContext, x: SSAValue, dim: int, low: int, high: int, step: int = 1) -> SSAValue:
    shape = list(types.shape_of(x))
    if (low, high, step) == (0, shape[dim], 1):
        return x
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[dim], limits[dim], strides[dim] = low, high, step
    return c.b.slice(x, starts, limits, strides)


def select(c: OpContext, x: SSAValue, dim: int, index: int) -> SSAValue:
    shape = types.shape_of(x)
    d = axis(dim, len(shape))
    low = index % shape[d]
    return _reshape(c, slice_dim(c, x, d, low, low + 1), c.shape)


def split(c: OpContext, x: SSAValue, sizes: int | Sequence[int], dim: int = 0) -> list[SSAValue]:
    extent = types.shape_of(x)[axis(dim, len(types.shape_of(x)))]
    if isinstance(sizes, int):
        sizes = [min(sizes, extent - at) for at in range(0, extent, sizes)] if extent else [0]
    pieces, at = [], 0
    for size in sizes:
        pieces.append(slice_dim(c, x, axis(dim, len(types.shape_of(x))), at, at + size))
        at += size
    return pieces


def unbind(c: OpContext, x: SSAValue, dim: int = 0) -> list[SSAValue]:
    shape = list(types.shape_of(x))
    d = axis(dim, len(shape))
    rest = shape[:d] + shape[d + 1 :]
    return [_reshape(c, slice_dim(c, x, d, i, i + 1), rest) for i in range(shape[d])]


def cat(c: OpContext, xs: Sequence[SSAValue], dim: int = 0) -> SSAValue:
    """Empty one-dimensional tensors are skipped whatever the rank, as in torch."""
    kept = [c.convert(x, c.element) for x in xs if types.shape_of(x) != (0,)] or [c.convert(xs[0], c.element)]
    return kept[0] if len(kept) == 1 else c.b.concatenate(kept, axis(dim, len(c.shape)))


def stack(c: OpContext, xs: Sequence[SSAValue], dim: int = 0) -> SSAValue:
    d = axis(dim, len(c.shape))
    shape = [*c.shape[:d], 1, *c.shape[d + 1 :]]
    return cat(c, [_reshape(c, x, shape) for x in xs], d)


def flip(c: OpContext, x: SSAValue, dims: Sequence[int]) -> SSAValue:
    return c.b.reverse(x, axes(dims, len(types.shape_of(x)))) if dims else x


def constant_pad(c: OpContext, x: SSAValue, pad: Sequence[int], value: Number = 0) -> SSAValue:
    """Negative amounts crop."""
    rank = len(types.shape_of(x))
    low, high = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    shape = types.shape_of(x)
    for d in range(rank):
        x = slice_dim(c, x, d, max(0, -low[d]), shape[d] - max(0, -high[d]))
    low, high = [max(0, e) for e in low], [max(0, e) for e in high]
    return c.b.pad(x, value, low, high) if any(low) or any(high) else x


def slice_scatter(
    c: OpContext,
    x: SSAValue,
    source: SSAValue,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> SSAValue:
    """`x` with a strided slice replaced: the source padded into place, a select where it lies."""
    shape = types.shape_of(x)
    d = axis(dim, len(shape))
    low, high = _bounds(shape[d], start, end)
    source = c.convert(
        c.broadcast(source, [*shape[:d], math.ceil((high - low) / step), *shape[d + 1 :]]), c.element
    )
    return _replace(c, x, source, d, low, step)


def select_scatter(c: OpContext, x: SSAValue, source: SSAValue, dim: int, index: int) -> SSAValue:
    shape = types.shape_of(x)
    d = axis(dim, len(shape))
    source = _reshape(c, c.convert(source, c.element), [*shape[:d], 1, *shape[d + 1 :]])
    return _replace(c, x, source, d, index % shape[d], 1)


def _replace(c: OpContext, x: SSAValue, source: SSAValue, dim: int, low: int, step: int) -> SSAValue:
    shape, count = types.shape_of(x), types.shape_of(source)[dim]
    if count == 0:
        return x
    if count == shape[dim]:
        return source
    covered = (count - 1) * step + 1
    lows, highs, interiors = [0] * len(shape), [0] * len(shape), [0] * len(shape)
    lows[dim], highs[dim], interiors[dim] = low, shape[dim] - low - covered, step - 1

    def padded(piece: SSAValue) -> SSAValue:
        return c.b.pad(piece, 0, lows, highs, interiors)

    ones = c.b.full([1] * dim + [count] + [1] * (len(shape) - dim - 1), types.I8, 1)
    flat_lows, flat_highs, flat_in = [
        [v if i == dim else 0 for i, v in enumerate(p)] for p in (lows, highs, interiors)
    ]
    mask = as_bool(c, c.b.pad(ones, 0, flat_lows, flat_highs, flat_in))
    return c.b.select(c.broadcast(mask, shape), padded(source), x)


def copy(c: OpContext, x: SSAValue, source: SSAValue, *_: object) -> SSAValue:
    return c.broadcast(c.convert(source, c.element), c.shape)


def diagonal(c: OpContext, x: SSAValue, offset: int = 0, dim1: int = 0, dim2: int = 1) -> SSAValue:
    """The diagonal as a strided slice of the flattened last two dimensions."""
    rank = len(types.shape_of(x))
    i, j = axis(dim1, rank), axis(dim2, rank)
    rest = [d for d in range(rank) if d not in (i, j)]
    x = _transpose(c, x, [*rest, i, j])
    *lead, rows, columns = types.shape_of(x)
    length = c.shape[-1]
    start = offset if offset >= 0 else -offset * columns
    flat = _reshape(c, x, [*lead, rows * columns])
    stop = start + (length - 1) * (columns + 1) + 1 if length else start
    return slice_dim(c, flat, len(lead), start, stop, columns + 1)


def arange(c: OpContext, start: Number, end: Number, step: Number = 1, **_: object) -> SSAValue:
    count = c.b.iota(types.tensor(c.shape, types.I64), 0)
    if not types.is_float(c.element):
        steps = count if step == 1 else c.b.mul(count, c.full(int(step), count))
        return c.convert(steps if start == 0 else c.b.add(steps, c.full(int(start), steps)), c.element)
    values = c.b.convert(count, types.F64)  # as torch does, whatever the result's precision
    values = values if step == 1 else c.b.mul(values, c.full(step, values))
    values = values if start == 0 else c.b.add(values, c.full(start, values))
    return c.convert(values, c.element)


def eye(c: OpContext, *_: object, **__: object) -> SSAValue:
    type = types.tensor(c.shape, types.I64)
    return c.convert(c.b.compare(c.b.iota(type, 0), c.b.iota(type, 1), "eq"), c.element)


def full(c: OpContext, size: Sequence[int], value: Number, **_: object) -> SSAValue:
    return c.b.full(list(c.shape), c.element, value)


def full_like(c: OpContext, x: SSAValue, value: Number, **_: object) -> SSAValue:
    return c.b.full(list(c.shape), c.element, value)


def scalar_tensor(c: OpContext, value: Number, **_: object) -> SSAValue:
    return c.b.full([], c.element, value)


def fill(c: OpContext, x: SSAValue, value: SSAValue | Number) -> SSAValue:
    return c.operand(value, c.element, c.shape)


def empty(c: OpContext, *_: object, **__: object) -> SSAValue:
    """Memory with no defined contents; zeros make the program deterministic."""
    return c.b.full(list(c.shape), c.element, 0)


ATEN: dict[str, Handler] = {
    "aten.view.default": reshape,
    "aten.reshape.default": reshape,
    "aten._unsafe_view.default": reshape,
    "aten.unsqueeze.default": reshape,
    "aten.squeeze.default": reshape,
    "aten.squeeze.dim": reshape,
    "aten.squeeze.dims": reshape,
    "aten.flatten.using_ints": reshape,
    "aten.unflatten.int": reshape,
    "aten.permute.default": permute,
    "aten.transpose.int": transpose,
    "aten.t.default": t,
    "aten.expand.default": expand,
    "aten.repeat.default": repeat,
    "aten.slice.Tensor": slice_,
    "aten.select.int": select,
    "aten.split.Tensor": split,
    "aten.split_with_sizes.default": split,
    "aten.unbind.int": unbind,
    "aten.cat.default": cat,
    "aten.stack.default": stack,
    "aten.flip.default": flip,
    "aten.constant_pad_nd.default": constant_pad,
    "aten.slice_scatter.default": slice_scatter,
    "aten.select_scatter.default": select_scatter,
    "aten.copy.default": copy,
    "aten.diagonal.default": diagonal,
    "aten.arange.start_step": arange,
    "aten.eye.default": eye,
    "aten.eye.m": eye,
    "aten.full.default": full,
    "aten.full_like.default": full_like,
    "aten.scalar_tensor.default": scalar_tensor,
    "aten.fill.Scalar": fill,
    "aten.fill.Tensor": fill,
    "aten.empty.memory_format": empty,
    "aten.empty_strided.default": empty,
    "aten.empty_permuted.default": empty,
}
