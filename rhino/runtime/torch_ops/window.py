"""Pooling windows in torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional
from xdsl.ir import Operation

from rhino.dialects.hlo.base import get_text
from rhino.dialects.hlo.common import identity, python_number
from rhino.dialects.hlo.window import ReduceWindowOp, SelectAndScatterOp, WindowDim
from rhino.ir import types
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction
from rhino.runtime.torch_ops.reduce import reducer
from rhino.runtime.torch_ops.shape import pad

Number = bool | int | float


def windows_of(x: torch.Tensor, dims: Sequence[WindowDim], value: Number) -> torch.Tensor:
    """All windows of `x`, padded and dilated with `value`: ``[out..., window...]``, a view of the padded
    array.
    """
    x = pad(x, value, [d.low for d in dims], [d.high for d in dims], [d.base_dilation - 1 for d in dims])
    for i, d in enumerate(dims):
        x = x.unfold(i, d.reach, d.stride)
        x = x[..., :: d.dilation]
    return x


def _is_image_pool(element: types.Type, dims: Sequence[WindowDim]) -> bool:
    """Whether torch's own 2-D pooling computes it: floats, images, padding alike on both sides."""
    return (
        types.is_float(element.element_type)
        and len(dims) == 4
        and 0 not in element.get_shape()
        and all(d.is_trivial for d in dims[:2])
        and all(d.base_dilation == 1 and d.low == d.high and 0 <= d.low <= d.size // 2 for d in dims[2:])
    )


def _reduce_window(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, ReduceWindowOp)
    dims, kind = op.dims, get_text(op.properties, "kind")
    operand = types.type_of(op.x)
    shape = types.shape_of(op.result)
    neutral = python_number(identity(kind, types.numpy_dtype(operand.element_type)))
    if 0 in shape:
        return lambda x: x.new_empty(shape)
    if _is_image_pool(operand, dims):
        sizes, strides = [d.size for d in dims[2:]], [d.stride for d in dims[2:]]
        padding, dilations = [d.low for d in dims[2:]], [d.dilation for d in dims[2:]]
        if kind == "max":
            return lambda x: functional.max_pool2d(x, sizes, strides, padding, dilations)
        if kind == "sum" and dilations == [1, 1]:
            return lambda x: functional.avg_pool2d(x, sizes, strides, padding, divisor_override=1)
    reduce = reducer(kind, operand.element_type, range(len(dims), 2 * len(dims)))
    return lambda x: reduce(windows_of(x, dims, neutral))


def _select_and_scatter(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, SelectAndScatterOp)
    dims, operand = op.dims, types.type_of(op.x)
    if 0 in types.shape_of(op.source):
        return lambda x, source: torch.zeros_like(x)
    if _is_image_pool(operand, dims):
        sizes, strides = [d.size for d in dims[2:]], [d.stride for d in dims[2:]]
        padding, dilations = [d.low for d in dims[2:]], [d.dilation for d in dims[2:]]

        def pooled(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
            _, at = functional.max_pool2d_with_indices(x, sizes, strides, padding, dilations)
            out = torch.zeros_like(x, memory_format=torch.contiguous_format).flatten(2)
            return out.scatter_add_(2, at.flatten(2), source.reshape(at.shape).flatten(2)).reshape(x.shape)

        return pooled
    lowest = python_number(identity("max", types.numpy_dtype(operand.element_type)))
    return lambda x, source: _scatter_to_maxima(x, source, dims, lowest)


def _scatter_to_maxima(
    x: torch.Tensor, source: torch.Tensor, dims: Sequence[WindowDim], lowest: Number
) -> torch.Tensor:
    rank = x.dim()
    places = torch.arange(x.numel(), device=x.device).reshape(x.shape)
    places = windows_of(places, dims, -1).flatten(rank)
    values = windows_of(x, dims, lowest).flatten(rank)
    real = places >= 0
    best = values.amax(-1, keepdim=True)
    hits = real & ((values == best) | (values.isnan() & best.isnan()))
    first = hits.to(torch.int8).argmax(-1, keepdim=True)
    chosen = places.gather(-1, first).squeeze(-1).reshape(-1)
    some = hits.any(-1).reshape(-1)
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    out = torch.zeros(x.numel(), dtype=wide, device=x.device)
    # Windows of padding alone add a zero to element 0.
    given = torch.where(some, source.reshape(-1).to(wide), torch.zeros((), dtype=wide, device=x.device))
    return out.index_add_(0, chosen.clamp(min=0), given).reshape(x.shape).to(x.dtype)


TABLE: dict[str, Lowering] = {
    "hlo.reduce_window": _reduce_window,
    "hlo.select_and_scatter": _select_and_scatter,
}
