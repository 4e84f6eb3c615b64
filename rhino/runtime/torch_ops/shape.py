"""Ops that move elements without computing, in torch. Most results are views."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional
from xdsl.ir import Operation

from rhino.dialects.hlo.base import get_integer, get_ints
from rhino.dialects.hlo.shape import number_of
from rhino.ir import types
from rhino.ir.reshape import pad_extent
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction


def _broadcast_in_dim(op: Operation, ctx: Context) -> TensorFunction:
    dims, shape = get_ints(op.properties, "dims"), get_ints(op.properties, "shape")
    source = types.shape_of(op.operands[0])
    order = sorted(range(len(dims)), key=dims.__getitem__)
    extents = dict(zip(dims, source, strict=True))
    spread = [extents.get(i, 1) for i in range(len(shape))]
    if order == list(range(len(dims))):
        return lambda x: x.reshape(spread).expand(shape)
    return lambda x: x.permute(order).reshape(spread).expand(shape)


def _reshape(op: Operation, ctx: Context) -> TensorFunction:
    shape = get_ints(op.properties, "shape")
    return lambda x: x.reshape(shape)


def _transpose(op: Operation, ctx: Context) -> TensorFunction:
    perm = get_ints(op.properties, "perm")
    return lambda x: x.permute(perm)


def _slice(op: Operation, ctx: Context) -> TensorFunction:
    bounds = zip(*(get_ints(op.properties, name) for name in ("start", "limit", "strides")), strict=True)
    index = tuple(slice(*bound) for bound in bounds)
    return lambda x: x[index]


def pad(
    x: torch.Tensor,
    value: bool | int | float,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int],
) -> torch.Tensor:
    """Elements between, then before and after (negative crops), per dimension."""
    if not x.is_floating_point() and x.dtype != torch.bool and value > torch.iinfo(x.dtype).max:
        value -= 1 << (8 * x.element_size())  # bits of an unsigned integer
    # torch's own takes the value as a double, which not every integer is.
    exact = x.is_floating_point() or value == 0
    if exact and not any(interior) and min((*low, *high), default=0) >= 0:
        # The last dimension is listed first.
        amounts = [a for pair in reversed(list(zip(low, high, strict=True))) for a in pair]
        return functional.pad(x, amounts, value=value)
    source, target, shape = [], [], []
    for extent, before, after, gap in zip(x.shape, low, high, interior, strict=True):
        step = gap + 1
        total = pad_extent(extent, before, after, gap)
        first = max(0, -(before // step))  # the first element that is not cropped
        last = min(extent, max(first, -(-(total - before) // step)))
        at = max(0, before + first * step)
        source.append(slice(first, last))
        target.append(slice(at, at + (last - first - 1) * step + 1 if last > first else at, step))
        shape.append(total)
    out = x.new_full(shape, value)
    out[tuple(target)] = x[tuple(source)]
    return out


def _pad(op: Operation, ctx: Context) -> TensorFunction:
    low, high, interior = (get_ints(op.properties, name) for name in ("low", "high", "interior"))
    value = number_of(op.properties["value"])
    return lambda x: pad(x, value, low, high, interior)


def _concatenate(op: Operation, ctx: Context) -> TensorFunction:
    dim = get_integer(op.properties, "dim")
    return lambda *xs: torch.cat(xs, dim)


def _reverse(op: Operation, ctx: Context) -> TensorFunction:
    dims = get_ints(op.properties, "dims")
    return lambda x: torch.flip(x, dims)


def _window(
    starts: Sequence[torch.Tensor], shape: Sequence[int], sizes: Sequence[int]
) -> list[torch.Tensor | slice]:
    """Index of a block that begins at scalar tensors, clamped so that it fits; never leaves the device."""
    index: list[torch.Tensor | slice] = []
    for start, extent, size in zip(starts, shape, sizes, strict=True):
        if size == extent:
            index.append(slice(None))
        else:
            first = start.to(torch.int64).clamp(0, extent - size)
            index.append(first + torch.arange(size, device=start.device))
    return index


def dynamic_slice(x: torch.Tensor, starts: Sequence[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor:
    """The block of `sizes` that begins at `starts`, clamped so that it fits."""
    for dim, index in enumerate(_window(starts, x.shape, sizes)):
        if isinstance(index, torch.Tensor):
            x = x.index_select(dim, index)
    return x


def _dynamic_slice(op: Operation, ctx: Context) -> TensorFunction:
    sizes = get_ints(op.properties, "sizes")
    return lambda x, *starts: dynamic_slice(x, starts, sizes)


def dynamic_update_slice(x: torch.Tensor, update: torch.Tensor, *starts: torch.Tensor) -> torch.Tensor:
    """`x` with the block that begins at `starts` (clamped) replaced."""
    if update.shape == x.shape:
        return update
    out = x.clone()
    parts = [
        torch.arange(extent, device=x.device) if isinstance(index, slice) else index
        for index, extent in zip(_window(starts, x.shape, update.shape), x.shape, strict=True)
    ]
    grid = [p.reshape([-1 if d == dim else 1 for d in range(x.dim())]) for dim, p in enumerate(parts)]
    return out.index_put_(tuple(grid), update)


TABLE: dict[str, Lowering] = {
    "hlo.broadcast_in_dim": _broadcast_in_dim,
    "hlo.reshape": _reshape,
    "hlo.transpose": _transpose,
    "hlo.slice": _slice,
    "hlo.pad": _pad,
    "hlo.concatenate": _concatenate,
    "hlo.reverse": _reverse,
    "hlo.dynamic_slice": _dynamic_slice,
    "hlo.dynamic_update_slice": lambda op, ctx: dynamic_update_slice,
}
