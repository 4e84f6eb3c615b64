"""Views that torch describes by strides, windows that slide along a dimension, and writing at masks and positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import fx
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops.context import Handler, OpContext, axis
from rhino.ir import types


def _offsets(
    b: Builder, size: Sequence[int], steps: Sequence[int], start: int, dims: Sequence[int] | None = None
) -> SSAValue:
    """``start + sum_d position_d * steps_d`` over a shape, by counters: no large constant stands in the program."""
    type = types.tensor(size, types.I64)
    total = b.full(list(size), types.I64, start)
    for d in range(len(size)) if dims is None else dims:
        if steps[d] and size[d] > 1:
            count = b.iota(type, d)
            total = b.add(total, b.mul(count, b.full_like(count, int(steps[d]))))
    return total


def _storage(c: OpContext, argument: object, x: SSAValue, offset: int | None) -> tuple[SSAValue, int]:
    """A tensor's elements in the order of its memory, and where a view that starts at `offset` starts in them.

    Raises UnsupportedError for memory with gaps, or of which the tensor is but a part.
    """
    assert isinstance(argument, fx.Node)
    value = argument.meta["val"]
    assert isinstance(value, torch.Tensor)
    rank, steps = value.dim(), value.stride()
    order = sorted(range(rank), key=lambda d: (-steps[d], -value.shape[d], d))
    shape = types.shape_of(x)
    dense = value.numel() == 0 or all(
        shape[d] == 1 or steps[d] == math.prod(shape[e] for e in order[i + 1 :]) for i, d in enumerate(order)
    )
    if not dense or value.storage_offset() != 0:
        raise c.unsupported(
            "strides over a tensor that is itself a view", remedy="use slices, or call contiguous() first"
        )
    y = x if order == list(range(rank)) else c.b.transpose(x, order)
    return c.b.reshape(y, [math.prod(shape)]), int(offset or 0)


def as_strided(
    c: OpContext, x: SSAValue, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> SSAValue:
    flat, start = _storage(c, c.node.args[0], x, offset)
    _check_inside(c, flat, size, stride, start)
    if math.prod(size) == 0:
        return c.b.full(list(size), c.element, 0)
    return c.b.take(flat, _offsets(c.b, size, stride, start), 0)


def _check_inside(
    c: OpContext, flat: SSAValue, size: Sequence[int], stride: Sequence[int], start: int
) -> None:
    last = start + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if math.prod(size) and last >= types.shape_of(flat)[0]:
        raise c.unsupported("a view that reaches beyond the tensor", remedy="use slices")


def as_strided_scatter(
    c: OpContext,
    x: SSAValue,
    source: SSAValue,
    size: Sequence[int],
    stride: Sequence[int],
    offset: int | None = None,
) -> SSAValue:
    b = c.b
    value = c.node.args[0].meta["val"]  # type: ignore[union-attr]
    flat, start = _storage(c, c.node.args[0], x, offset)
    _check_inside(c, flat, size, stride, start)
    count = math.prod(size)
    if count == 0:
        return x
    if not value.is_contiguous():
        raise c.unsupported("writing by strides into a transposed tensor", remedy="call contiguous() first")
    at = b.reshape(_offsets(b, size, stride, start), [count])
    updates = b.reshape(c.convert(source, c.element), [count])
    return b.reshape(b.scatter_along(flat, at, updates, 0, "set"), list(c.shape))


def unfold(c: OpContext, x: SSAValue, dim: int, size: int, step: int) -> SSAValue:
    """Windows of a dimension; the place in a window becomes the last dimension."""
    b, shape = c.b, types.shape_of(x)
    if not shape:
        return b.reshape(x, [size]) if size == 1 else b.full([0], c.element, 0)
    d = axis(dim, len(shape))
    windows = (shape[d] - size) // step + 1
    if math.prod(c.shape) == 0:
        return b.full(list(c.shape), c.element, 0)
    y = b.take(x, _offsets(b, [windows, size], [step, 1], 0), d)
    rank = len(shape) + 1
    return b.transpose(y, [*range(d + 1), *range(d + 2, rank), d + 1])


def resize(c: OpContext, x: SSAValue, size: Sequence[int], **_: object) -> SSAValue:
    """The first elements in another shape; memory beyond them has no defined contents and is zero here."""
    b, count = c.b, math.prod(size)
    flat = b.reshape(x, [math.prod(types.shape_of(x))])
    have = types.shape_of(flat)[0]
    if have > count:
        flat = b.slice(flat, [0], [count])
    elif have < count:
        flat = b.pad(flat, 0, [0], [count - have])
    return b.reshape(flat, list(size))


def masked_scatter(c: OpContext, x: SSAValue, mask: SSAValue, source: SSAValue) -> SSAValue:
    """The n-th place of the mask takes the n-th element of the source."""
    b, count = c.b, math.prod(c.shape)
    if count == 0:
        return c.broadcast(x, c.shape)
    mask = b.reshape(c.broadcast(mask, c.shape), [count])
    position = b.cumulative(b.convert(mask, types.I64), 0, "sum")
    position = b.sub(position, b.full_like(position, 1))
    flat = b.reshape(c.convert(source, c.element), [math.prod(types.shape_of(source))])
    if types.shape_of(flat) == (0,):
        return c.broadcast(x, c.shape)
    zero = b.full_like(position, 0)
    picked = b.take(flat, b.select(mask, position, zero), 0)
    whole = b.reshape(c.broadcast(x, c.shape), [count])
    return b.reshape(b.select(mask, picked, whole), list(c.shape))


def put(c: OpContext, x: SSAValue, index: SSAValue, source: SSAValue, accumulate: bool = False) -> SSAValue:
    """Writing at positions of the flattened tensor."""
    b, count = c.b, math.prod(types.shape_of(index))
    size = math.prod(c.shape)
    if count == 0:
        return x
    at = b.reshape(c.convert(index, types.I64), [count])
    at = b.select(b.compare(at, b.full_like(at, 0), "lt"), b.add(at, b.full_like(at, size)), at)
    updates = b.reshape(c.convert(source, c.element), [count])
    flat = b.scatter_along(b.reshape(x, [size]), at, updates, 0, "add" if accumulate else "set")
    return b.reshape(flat, list(c.shape))


def diagonal_scatter(
    c: OpContext, x: SSAValue, source: SSAValue, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> SSAValue:
    """The source spread along both dimensions, chosen where their positions are `offset` apart."""
    b, shape = c.b, types.shape_of(x)
    i, j = axis(dim1, len(shape)), axis(dim2, len(shape))
    length = types.shape_of(source)[-1]
    if length == 0:
        return x
    rest = [d for d in range(len(shape)) if d not in (i, j)]
    type = types.tensor(shape, types.I64)
    row, column = b.iota(type, i), b.iota(type, j)
    here = b.compare(b.sub(column, row), b.full_like(row, offset), "eq")
    # Along the row (or, for negative offsets, the column) the diagonal counts 0, 1, 2, ...
    along = i if offset >= 0 else j
    low, high = [0] * (len(rest) + 1), [0] * (len(rest) + 1)
    high[-1] = max(shape[along] - length, 0)
    padded = b.pad(c.convert(source, c.element), 0, low, high)
    return b.select(here, b.broadcast_in_dim(padded, list(shape), [*rest, along]), x)


def nonzero_static(c: OpContext, x: SSAValue, *, size: int, fill_value: int = -1) -> SSAValue:
    """Places that are not zero, in order; cut to `size`, or filled up."""
    b, shape = c.b, types.shape_of(x)
    count = math.prod(shape)
    if size == 0 or not shape or count == 0:
        return b.full(list(c.shape), types.I64, fill_value)
    mask = x if types.element_of(x) == types.I1 else b.compare(x, c.full(0, x), "ne")
    mask = b.reshape(mask, [count])
    key = b.select(mask, b.full([count], types.I64, 0), b.full([count], types.I64, 1))
    order = b.sort([key, b.iota(types.tensor([count], types.I64), 0)], 0)[1]
    order = b.slice(order, [0], [size]) if size <= count else b.pad(order, 0, [0], [size - count])
    found = b.reduce(b.convert(mask, types.I64), [0], "sum")
    place = b.iota(types.tensor([size], types.I64), 0)
    real = b.compare(place, b.broadcast_in_dim(found, [size], []), "lt")
    columns = []
    for d in range(len(shape)):
        step = math.prod(shape[d + 1 :])
        at = b.rem(b.div(order, b.full_like(order, step)), b.full_like(order, shape[d]))
        columns.append(b.reshape(b.select(real, at, b.full_like(at, fill_value)), [size, 1]))
    return b.concatenate(columns, 1) if len(columns) > 1 else columns[0]


ATEN: dict[str, Handler] = {
    "aten.as_strided.default": as_strided,
    "aten.as_strided_copy.default": as_strided,
    "aten.as_strided_scatter.default": as_strided_scatter,
    "aten.unfold.default": unfold,
    "aten.unfold_copy.default": unfold,
    "aten.resize.default": resize,
    "aten.masked_scatter.default": masked_scatter,
    "aten.put.default": put,
    "aten.diagonal_scatter.default": diagonal_scatter,
    "aten.nonzero_static.default": nonzero_static,
}
