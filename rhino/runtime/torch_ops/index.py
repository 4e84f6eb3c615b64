"""Gather, scatter and sorts in torch.

Two patterns are nearly all of what programs use, and have routines of their own: *take* (one index chooses
whole
slices: embeddings, and their gradient) and *along* (one index per element: the target's logit). Everything
else goes through explicit positions. Scatter drops what lies outside: such updates land in one slot too many,
which is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from xdsl.ir import Operation

from rhino.dialects.hlo.base import get_integer, get_text
from rhino.dialects.hlo.index import GatherOp, ScatterOp
from rhino.dialects.hlo.indexing import Indexing
from rhino.ir import types
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction

_NARROW = (torch.float16, torch.bfloat16)
_REDUCE = {"max": "amax", "min": "amin", "mul": "prod"}


def _looked_up(ix: Indexing) -> int | None:
    """The operand dimension, if it is one alone, of which every index picks one element that the result
    lacks.
    """
    if len(ix.index_map) != 1:
        return None
    (d,) = ix.index_map
    return d if d in ix.collapsed else None


def _is_take(ix: Indexing) -> bool:
    d = _looked_up(ix)
    return (
        d is not None
        and not ix.operand_batch
        and all(
            size == extent
            for i, (size, extent) in enumerate(zip(ix.sizes, ix.operand, strict=True))
            if i != d
        )
    )


def _is_along(ix: Indexing) -> bool:
    d = _looked_up(ix)
    others = set(range(len(ix.operand))) - {d}
    return d is not None and set(ix.operand_batch) == others and len(ix.batch_dims) == len(ix.operand)


def _scalars(ix: Indexing, indices: torch.Tensor) -> torch.Tensor:
    """Indices of one component, without the dimension that holds the vectors."""
    return indices.squeeze(ix.vector_dim) if ix.vector_dim < len(ix.indices) else indices


def _take_order(ix: Indexing, d: int) -> list[int]:
    """For every result dimension where it is in ``[operand before d, indices, operand after d]``."""
    shift = len(ix.batch_dims) - 1
    order = [0] * ix.rank
    for i, r in enumerate(ix.batch_result):
        order[r] = d + i
    for r, at in zip(ix.offset, ix.offset_operand, strict=True):
        order[r] = at if at < d else at + shift
    return order


def _along_order(ix: Indexing, d: int) -> list[int]:
    """For every operand dimension the dimension of the (scalar) indices, hence of the result, that runs with
    it.
    """
    partner = dict(zip(ix.operand_batch, ix.indices_batch, strict=True))
    (alone,) = set(ix.batch_dims) - set(ix.indices_batch)
    return [ix.batch_dims.index(partner.get(i, alone)) for i in range(len(ix.operand))]


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def positions(ix: Indexing, indices: torch.Tensor, clamp: bool) -> list[torch.Tensor]:
    """For each operand dimension the index that every result element refers to, broadcastable to the result.

    With `clamp`, slices are moved so that they lie inside the operand; without, indices may be out of bounds.
    """
    starts = indices.movedim(ix.vector_dim, -1) if ix.vector_dim < len(ix.indices) else indices.unsqueeze(-1)
    starts = starts.to(torch.int64)

    def on(dims: Sequence[int], values: torch.Tensor) -> torch.Tensor:
        shape = [1] * ix.rank
        for d, extent in zip(dims, values.shape, strict=True):
            shape[d] = extent
        return values.reshape(shape)

    zero = torch.zeros([1] * ix.rank, dtype=torch.int64, device=indices.device)
    out = [zero for _ in ix.operand]
    for component, d in enumerate(ix.index_map):
        start = starts[..., component]
        if clamp:
            start = start.clamp(0, ix.operand[d] - ix.sizes[d])
        out[d] = out[d] + on(ix.batch_result, start)
    for a, b in zip(ix.operand_batch, ix.indices_batch, strict=True):
        count = torch.arange(ix.indices[b], device=indices.device)
        out[a] = out[a] + on([ix.batch_result[ix.batch_dims.index(b)]], count)
    for at, d in zip(ix.offset, ix.offset_operand, strict=True):
        out[d] = out[d] + on([at], torch.arange(ix.sizes[d], device=indices.device))
    return out


def _gather(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, GatherOp)
    ix = op.indexing
    if 0 in ix.result:
        return lambda x, indices: x.new_zeros(ix.result)
    if _is_take(ix):
        (d,) = ix.index_map
        order, last = _take_order(ix, d), ix.operand[d] - 1

        def take(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
            index = _scalars(ix, indices).clamp(0, last)
            picked = x.index_select(d, index.reshape(-1))
            return picked.reshape((*x.shape[:d], *index.shape, *x.shape[d + 1 :])).permute(order)

        return take
    if _is_along(ix):
        (d,) = ix.index_map
        order, last = _along_order(ix, d), ix.operand[d] - 1
        back = _inverse(order)

        def along(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
            index = _scalars(ix, indices).to(torch.int64).clamp(0, last)
            return x.gather(d, index.permute(order)).permute(back)

        return along
    return lambda x, indices: x[tuple(positions(ix, indices, clamp=True))].expand(ix.result)


def _wide(x: torch.Tensor) -> torch.Tensor:
    """16-bit floats are combined in f32, i1 in i8."""
    if x.dtype in _NARROW:
        return x.float()
    return x.to(torch.int8) if x.dtype == torch.bool else x


def _room(x: torch.Tensor, dim: int) -> torch.Tensor:
    """A copy of `x` with one more element along `dim`, for what lies outside."""
    out = x.new_empty((*x.shape[:dim], x.shape[dim] + 1, *x.shape[dim + 1 :]))
    out.narrow(dim, 0, x.shape[dim]).copy_(x)
    out.select(dim, x.shape[dim]).zero_()
    return out


def _combine(out: torch.Tensor, dim: int, index: torch.Tensor, updates: torch.Tensor, kind: str) -> None:
    """Write into (or combine with) elements of `out` along `dim`; `index` has the shape of `updates`."""
    if kind == "set":
        out.scatter_(dim, index, updates)
    elif kind == "add":
        out.scatter_add_(dim, index, updates)
    else:
        out.scatter_reduce_(dim, index, updates, _REDUCE[kind], include_self=True)


def _inside(index: torch.Tensor, extent: int) -> torch.Tensor:
    """Indices as they are, or `extent` where they lie outside."""
    return torch.where((index >= 0) & (index < extent), index, extent)


def _scatter(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, ScatterOp)
    ix, kind = op.indexing, get_text(op.properties, "kind")
    if 0 in ix.result:
        return lambda x, indices, updates: x
    if kind == "add" and _is_take(ix):
        inner = _scatter_slices(ix)
    elif _is_along(ix):
        inner = _scatter_along(ix, kind)
    else:
        inner = _scatter_anywhere(ix, kind)

    def call(x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        wide = x if kind == "set" else _wide(x)
        return inner(wide, indices.to(torch.int64), updates.to(wide.dtype)).to(x.dtype)  # type: ignore[union-attr]

    return call


def _scatter_slices(ix: Indexing) -> TensorFunction:
    """Add whole slices: the gradient of an embedding."""
    (d,) = ix.index_map
    back, extent = _inverse(_take_order(ix, d)), ix.operand[d]

    def call(x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        index = _inside(_scalars(ix, indices), extent).reshape(-1)
        slices = updates.permute(back).reshape(*x.shape[:d], index.numel(), *x.shape[d + 1 :])
        return _room(x, d).index_add_(d, index, slices).narrow(d, 0, extent)

    return call


def _scatter_along(ix: Indexing, kind: str) -> TensorFunction:
    (d,) = ix.index_map
    order, extent = _along_order(ix, d), ix.operand[d]

    def call(x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        out = _room(x, d)
        index = _inside(_scalars(ix, indices), extent)
        _combine(out, d, index.permute(order), updates.permute(order), kind)
        return out.narrow(d, 0, extent)

    return call


def _scatter_anywhere(ix: Indexing, kind: str) -> TensorFunction:
    def call(x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        flat = torch.zeros((), dtype=torch.int64, device=x.device)
        inside = torch.ones((), dtype=torch.bool, device=x.device)
        for at, extent in zip(positions(ix, indices, clamp=False), x.shape, strict=True):
            flat, inside = flat * extent + at, inside & (at >= 0) & (at < extent)
        index = torch.where(inside, flat, x.numel()).expand(updates.shape).reshape(-1)
        out = _room(x.reshape(-1), 0)
        _combine(out, 0, index, updates.reshape(-1), kind)
        return out[: x.numel()].reshape(x.shape)

    return call


def _sort(op: Operation, ctx: Context) -> TensorFunction:
    dim, descending = get_integer(op.properties, "dim"), "descending" in op.properties

    def call(*xs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        first, order = torch.sort(xs[0], dim=dim, descending=descending, stable=True)
        if len(xs) == 1:
            return first
        return (first, *(x.gather(dim, order) for x in xs[1:]))

    return call


def _top_k(op: Operation, ctx: Context) -> TensorFunction:
    k, last = get_integer(op.properties, "k"), len(types.shape_of(op.operands[0])) - 1

    def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # torch.topk does not say which of equal elements it takes.
        values, order = torch.sort(x, dim=last, descending=True, stable=True)
        return values.narrow(last, 0, k), order.narrow(last, 0, k)

    return call


TABLE: dict[str, Lowering] = {
    "hlo.gather": _gather,
    "hlo.scatter": _scatter,
    "hlo.sort": _sort,
    "hlo.top_k": _top_k,
}
