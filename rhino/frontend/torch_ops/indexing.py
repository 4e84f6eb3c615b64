"""Reading and writing at indices that are tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from xdsl.ir import Operation, SSAValue

from rhino.dialects.hlo.base import get_integer, get_ints
from rhino.dialects.hlo.common import identity, python_number
from rhino.dialects.hlo.constant import IotaOp
from rhino.dialects.hlo.elementwise import ConvertOp
from rhino.dialects.hlo.index import KINDS
from rhino.dialects.hlo.shape import BroadcastInDimOp, ReshapeOp
from rhino.frontend.torch_ops.context import Handler, Number, OpContext, axis
from rhino.ir import types


def embedding(
    c: OpContext,
    weight: SSAValue,
    indices: SSAValue,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> SSAValue:
    """Rows of a table. The padding row is read, but gets no gradient."""
    if scale_grad_by_freq:
        raise c.unsupported("scale_grad_by_freq", remedy="scale the gradient in the loss")
    rows = c.b.take(weight, indices, 0)
    if padding_idx < 0:
        return rows
    shape = types.shape_of(rows)
    padding = c.b.compare(indices, c.full(padding_idx, indices), "eq")
    spread = c.b.broadcast_in_dim(padding, list(shape), list(range(len(shape) - 1)))
    return c.b.select(spread, c.b.stop_gradient(rows), rows)


def index_select(c: OpContext, x: SSAValue, dim: int, index: SSAValue) -> SSAValue:
    if not types.shape_of(x):
        return x
    picked = c.b.take(x, index, axis(dim, len(types.shape_of(x))))
    return picked if types.shape_of(picked) == c.shape else c.b.reshape(picked, list(c.shape))


def gather(c: OpContext, x: SSAValue, dim: int, index: SSAValue, *, sparse_grad: bool = False) -> SSAValue:
    if not types.shape_of(x):
        return c.broadcast(x, c.shape)
    if math.prod(c.shape) == 0:  # torch lets the shapes of such an index differ from the rest
        return c.b.full(list(c.shape), c.element, 0)
    return c.b.take_along(x, index, axis(dim, len(c.shape)))


def repeat_interleave(c: OpContext, repeats: SSAValue, *, output_size: int | None = None) -> SSAValue:
    """Every index as often as it is repeated: the number of running sums of `repeats` not above a place."""
    b = c.b
    (count,) = types.shape_of(repeats)
    if not count:
        return b.full(list(c.shape), c.element, 0)
    ends = b.cumulative(c.convert(repeats, types.I64), 0, "sum")
    shape = [*c.shape, count]
    places = b.iota(types.tensor(shape, types.I64), 0)
    passed = b.compare(b.broadcast_in_dim(ends, shape, [1]), places, "le")
    return c.convert(b.reduce(b.convert(passed, types.I64), [1], "sum"), c.element)


def _scatter(c: OpContext, x: SSAValue, dim: int, index: SSAValue, source: SSAValue, kind: str) -> SSAValue:
    """A source that is longer than the index is cut to it; scalars count as vectors of one element."""
    limit, shape = list(types.shape_of(index)), list(types.shape_of(x))
    if not shape:
        line = [c.b.reshape(v, [math.prod(types.shape_of(v))]) for v in (x, index, source)]
        return c.b.reshape(_scatter(c, line[0], 0, line[1], line[2], kind), shape)
    if list(types.shape_of(source)) != limit:
        source = c.b.slice(source, [0] * len(limit), limit)
    return c.b.scatter_along(x, index, c.convert(source, c.element), axis(dim, len(types.shape_of(x))), kind)


def scatter_set(c: OpContext, x: SSAValue, dim: int, index: SSAValue, source: SSAValue) -> SSAValue:
    return _scatter(c, x, dim, index, source, "set")


def scatter_value(c: OpContext, x: SSAValue, dim: int, index: SSAValue, value: Number) -> SSAValue:
    source = c.b.full(list(types.shape_of(index)), c.element, value)
    return _scatter(c, x, dim, index, source, "set")


def scatter_add(c: OpContext, x: SSAValue, dim: int, index: SSAValue, source: SSAValue) -> SSAValue:
    return _scatter(c, x, dim, index, source, "add")


def scatter_reduce(
    c: OpContext,
    x: SSAValue,
    dim: int,
    index: SSAValue,
    source: SSAValue,
    reduce: str,
    *,
    include_self: bool = True,
) -> SSAValue:
    return _reduced_at(c, x, axis(dim, len(c.shape)), index, source, reduce, include_self)


def index_reduce(
    c: OpContext,
    x: SSAValue,
    dim: int,
    index: SSAValue,
    source: SSAValue,
    reduce: str,
    *,
    include_self: bool = True,
) -> SSAValue:
    """Slices of the source reduced into those of `x` that a one-dimensional index names."""
    d = axis(dim, len(c.shape))
    shape = list(types.shape_of(source))
    index = c.b.reshape(index, shape[d : d + 1])
    index = c.b.broadcast_in_dim(index, shape, [d] if shape else [])
    return _reduced_at(c, x, d, index, source, reduce, include_self)


def _reduced_at(
    c: OpContext, x: SSAValue, dim: int, index: SSAValue, source: SSAValue, reduce: str, include_self: bool
) -> SSAValue:
    """Without `include_self` an element that something is written to starts from the neutral one."""
    b = c.b
    if not types.shape_of(x):
        x, index, source = (b.reshape(v, [1]) for v in (x, index, source))
        return b.reshape(_reduced_at(c, x, 0, index, source, reduce, include_self), [])
    kind = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    if reduce == "mean" and not types.is_float(c.element):
        raise c.unsupported("the mean of integers", remedy="convert to floating point")
    shape = types.shape_of(index)
    ones = b.full(list(shape), types.I64, 1)
    if include_self and reduce != "mean":
        return _scatter(c, x, dim, index, source, kind)
    zeros = b.full(list(types.shape_of(x)), types.I64, 0)
    count = b.scatter_along(zeros, index, ones, dim, "add")
    if not include_self:
        hit = b.compare(count, zeros, "gt")
        neutral = python_number(identity(KINDS[kind] or "sum", types.numpy_dtype(c.element)))
        x = b.select(hit, c.full(neutral, x), x)
    total = _scatter(c, x, dim, index, source, kind)
    if reduce != "mean":
        return total
    count = b.add(count, b.full_like(count, 1)) if include_self else b.maximum(count, b.full_like(count, 1))
    return b.div(total, b.convert(count, c.element))


def nonzero(c: OpContext, x: SSAValue) -> SSAValue:
    """Of a tensor without elements: others have as many places as there are values, which no static shape can say."""
    return c.b.full(list(c.shape), types.I64, 0)


@dataclass(frozen=True)
class _Indexed:
    """Advanced indexing of some dimensions of a tensor.

    Attributes:
        dims: the indexed dimensions.
        indices: an index per dimension, all of the shape `space`.
        space: the common shape of the indices.
        at: where in the result `space` stands; the other dimensions keep their order around it.
    """

    dims: tuple[int, ...]
    indices: tuple[SSAValue, ...]
    space: tuple[int, ...]
    at: int

    def offsets(self, rank: int) -> list[int]:
        """Dimensions of the result that come from dimensions of the operand that are not indexed."""
        kept = rank - len(self.dims)
        return [*range(self.at), *range(self.at + len(self.space), kept + len(self.space))]


def _indexed(c: OpContext, x: SSAValue, indices: Sequence[SSAValue | None]) -> _Indexed:
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    for _, i in given:
        if types.element_of(i) == types.I1:
            raise c.unsupported("boolean indexing", remedy="use torch.where, or multiply by the mask")
    dims = tuple(d for d, _ in given)
    space = tuple(torch.broadcast_shapes(*[types.shape_of(i) for _, i in given]))
    adjacent = dims == tuple(range(dims[0], dims[0] + len(dims)))
    tensors = tuple(c.broadcast(c.convert(i, types.I64), space) for _, i in given)
    return _Indexed(dims, tensors, space, dims[0] if adjacent else 0)


def _counted(value: SSAValue) -> tuple[int, int] | None:
    """The dimension along which a tensor counts 0, 1, 2, ... (constant along all others) and its extent."""
    op = value.owner
    if not isinstance(op, Operation):
        return None
    if isinstance(op, IotaOp):
        dim = get_integer(op.properties, "dim")
        return dim, types.shape_of(value)[dim]
    if isinstance(op, ConvertOp):
        return _counted(op.operands[0]) if types.is_integer(types.element_of(value)) else None
    if not isinstance(op, BroadcastInDimOp | ReshapeOp):
        return None
    found = _counted(op.operands[0])
    if found is None or found[1] == 1:
        return None
    before, after = types.shape_of(op.operands[0]), types.shape_of(value)
    if isinstance(op, BroadcastInDimOp):
        dim = get_ints(op.properties, "dims")[found[0]]
        return (dim, found[1]) if after[dim] == found[1] else None
    long_before = [d for d, e in enumerate(before) if e != 1]
    long_after = [d for d, e in enumerate(after) if e != 1]
    if [before[d] for d in long_before] != [after[d] for d in long_after]:
        return None
    return long_after[long_before.index(found[0])], found[1]


def _split_counted(x: SSAValue, where: _Indexed) -> tuple[dict[int, int], list[int]]:
    """Indexed dimensions whose index merely counts them (with its axis in `space`), and other positions.

    Such a dimension is aligned with an axis, not searched: ``mask[batch, key]`` of two ranges is a broadcast.
    """
    aligned: dict[int, int] = {}
    rest: list[int] = []
    for position, (dim, index) in enumerate(zip(where.dims, where.indices, strict=True)):
        found = _counted(index)
        if found and found[1] == types.shape_of(x)[dim] and found[0] not in aligned.values():
            aligned[dim] = found[0]
        else:
            rest.append(position)
    return aligned, rest


def _wrapped(c: OpContext, index: SSAValue, extent: int) -> SSAValue:
    """Negative indices count from the end."""
    negative = c.b.compare(index, c.full(0, index), "lt")
    return c.b.select(negative, c.b.add(index, c.full(extent, index)), index)


def _vectors(c: OpContext, x: SSAValue, where: _Indexed, positions: Sequence[int]) -> SSAValue:
    """The chosen indices side by side along a new last dimension."""
    shape = types.shape_of(x)
    columns = [
        c.b.reshape(_wrapped(c, where.indices[p], shape[where.dims[p]]), [*where.space, 1]) for p in positions
    ]
    return columns[0] if len(columns) == 1 else c.b.concatenate(columns, len(where.space))


def index_fill(c: OpContext, x: SSAValue, dim: int, index: SSAValue, value: SSAValue | Number) -> SSAValue:
    """One value at some positions of a dimension; its gradient counts a position once, however often it is named."""
    b, shape = c.b, types.shape_of(x)
    count = math.prod(types.shape_of(index))
    if count == 0 or math.prod(shape) == 0:
        return x
    dim = axis(dim, len(shape))
    extent = shape[dim] if shape else 1
    named = b.broadcast_in_dim(b.reshape(_wrapped(c, index, extent), [count]), [count, extent], [0])
    places = b.iota(types.tensor([count, extent], types.element_of(index)), 1)
    hit = b.reduce(b.compare(named, places, "eq"), [0], "or")
    filled = b.broadcast_in_dim(hit, list(shape), [dim]) if shape else b.reshape(hit, [])
    return b.select(filled, c.operand(value, c.element, shape), x)


def take(c: OpContext, x: SSAValue, index: SSAValue) -> SSAValue:
    """Elements by their positions in all of `x`, row by row; negative ones count from the end."""
    count = math.prod(types.shape_of(x))
    if count == 0:  # then there are no positions either
        return c.b.full(list(c.shape), c.element, 0)
    return c.b.take(c.b.reshape(x, [count]), _wrapped(c, index, count), 0)


def index(c: OpContext, x: SSAValue, indices: Sequence[SSAValue | None]) -> SSAValue:
    where = _indexed(c, x, indices)
    shape = types.shape_of(x)
    aligned, rest = _split_counted(x, where)
    if not rest:
        offsets = iter(where.offsets(len(shape)))
        targets = [where.at + aligned[d] if d in aligned else next(offsets) for d in range(len(shape))]
        order = sorted(range(len(shape)), key=targets.__getitem__)
        y = x if order == list(range(len(shape))) else c.b.transpose(x, order)
        return c.b.broadcast_in_dim(y, list(c.shape), sorted(targets))
    if len(where.dims) == 1:
        return c.b.take(x, _wrapped(c, where.indices[0], shape[where.dims[0]]), where.dims[0])
    searched = [where.dims[p] for p in rest]
    return c.b.gather(
        x,
        _vectors(c, x, where, rest),
        offset_dims=where.offsets(len(shape)),
        collapsed_slice_dims=searched,
        operand_batching_dims=list(aligned),
        start_indices_batching_dims=list(aligned.values()),
        start_index_map=searched,
        index_vector_dim=len(where.space),
        slice_sizes=[1 if d in where.dims else e for d, e in enumerate(shape)],
    )


def index_put(
    c: OpContext,
    x: SSAValue,
    indices: Sequence[SSAValue | None],
    values: SSAValue,
    accumulate: bool = False,
) -> SSAValue:
    values = c.convert(values, c.element)
    shape = types.shape_of(x)
    masks = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(masks) == 1 and types.element_of(masks[0][1]) == types.I1:
        return _masked_put(c, x, masks[0][0], masks[0][1], values, accumulate)
    where = _indexed(c, x, indices)
    kept = iter([e for d, e in enumerate(shape) if d not in where.dims])
    offsets = where.offsets(len(shape))
    space = iter(where.space)
    target = [next(kept) if d in offsets else next(space) for d in range(len(offsets) + len(where.space))]
    return c.b.scatter(
        x,
        _vectors(c, x, where, list(range(len(where.dims)))),
        c.broadcast(values, target),
        "add" if accumulate else "set",
        update_window_dims=offsets,
        inserted_window_dims=list(where.dims),
        scatter_dims_to_operand_dims=list(where.dims),
        index_vector_dim=len(where.space),
    )


def _masked_put(
    c: OpContext, x: SSAValue, dim: int, mask: SSAValue, values: SSAValue, accumulate: bool
) -> SSAValue:
    """``x[mask] = value`` for one value (or one row) that goes to every place."""
    shape, mask_rank = types.shape_of(x), len(types.shape_of(mask))
    given = types.shape_of(values)
    rows = len(shape) - dim - mask_rank  # dimensions after the mask's
    if (dim and given) or len(given) > rows + 1 or (len(given) == rows + 1 and given[0] != 1):
        raise c.unsupported("values at boolean indices", remedy="use torch.where")
    if len(given) == rows + 1:
        values = c.b.reshape(values, list(given[1:]))
    spread = c.b.broadcast_in_dim(mask, list(shape), list(range(dim, dim + mask_rank)))
    values = c.broadcast(values, shape)
    return c.b.select(spread, c.b.add(x, values) if accumulate else values, x)


ATEN: dict[str, Handler] = {
    "aten.embedding.default": embedding,
    "aten.index_select.default": index_select,
    "aten.gather.default": gather,
    "aten.repeat_interleave.Tensor": repeat_interleave,
    "aten.scatter.src": scatter_set,
    "aten.scatter.value": scatter_value,
    "aten.scatter_add.default": scatter_add,
    "aten.scatter_reduce.two": scatter_reduce,
    "aten.nonzero.default": nonzero,
    "aten.index_reduce.default": index_reduce,
    "aten.index_fill.int_Scalar": index_fill,
    "aten.index_fill.int_Tensor": index_fill,
    "aten.take.default": take,
    "aten.index.Tensor": index,
    "aten._unsafe_index.Tensor": index,
    "aten.index_put.default": index_put,
    "aten._unsafe_index_put.default": index_put,
}
