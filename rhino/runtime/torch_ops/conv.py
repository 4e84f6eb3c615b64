"""Convolutions in torch.

One `hlo.convolution` says forward, input gradient (a dilated input) and weight gradient (the cotangent as a
large window) alike; torch has a routine for each, and the shapes tell which one is meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional
from xdsl.ir import Operation

from rhino.dialects.hlo.conv import ConvolutionOp
from rhino.dialects.hlo.window import WindowDim
from rhino.ir import types
from rhino.ir.errors import UnsupportedError
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction
from rhino.runtime.torch_ops.shape import pad

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_FORWARD = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


def _convolution(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, ConvolutionOp)
    dims, (groups, batch_groups) = op.dims, op.groups
    shape = types.shape_of(op.result)
    if math.prod(shape) == 0 or 0 in types.shape_of(op.w):
        return lambda x, w: x.new_zeros(shape)
    if len(dims) > 3:
        raise UnsupportedError(f"a convolution over {len(dims)} dimensions: torch has at most three")
    if not dims:  # A plain product; torch wants a spatial dimension.
        dims = [WindowDim(1, 1)]
        inner = _spatial(dims, groups, batch_groups)
        return lambda x, w: inner(x.unsqueeze(-1), w.unsqueeze(-1)).squeeze(-1)
    inner = _spatial(dims, groups, batch_groups)
    if types.is_integer(types.element_of(op.x)):
        # torch convolves no integers; doubles are exact to 2^53.
        return lambda x, w: inner(x.double(), w.double()).to(x.dtype)
    return inner


def _spatial(dims: Sequence[WindowDim], groups: int, batch_groups: int) -> Product:
    if groups == 1 and _is_weight_gradient(dims):
        return _weight_gradient(dims, batch_groups)
    inner = _input_gradient(dims, groups * batch_groups) if _is_input_gradient(dims) else None
    inner = inner or _forward(dims, groups * batch_groups)
    if batch_groups == 1:
        return inner
    return lambda x, w: inner(_groups_to_features(x, batch_groups), w)


def _groups_to_features(x: torch.Tensor, groups: int) -> torch.Tensor:
    """``[g N, C, ...] -> [N, g C, ...]``: batch groups become feature groups."""
    n, c, *space = x.shape
    return x.reshape(groups, n // groups, c, *space).transpose(0, 1).reshape(n // groups, groups * c, *space)


def _forward(dims: Sequence[WindowDim], groups: int) -> Product:
    convolve = _FORWARD[len(dims)]
    strides, dilations = [d.stride for d in dims], [d.dilation for d in dims]
    if all(d.low == d.high >= 0 and d.base_dilation == 1 for d in dims):
        padding = [d.low for d in dims]
        return lambda x, w: convolve(x, w, None, strides, padding, dilations, groups)
    low, high = [0, 0, *(d.low for d in dims)], [0, 0, *(d.high for d in dims)]
    interior = [0, 0, *(d.base_dilation - 1 for d in dims)]
    return lambda x, w: convolve(pad(x, 0, low, high, interior), w, None, strides, 0, dilations, groups)


def _is_input_gradient(dims: Sequence[WindowDim]) -> bool:
    """Whether it is a transposed convolution: the input dilated, every window position taken."""
    return any(d.base_dilation > 1 for d in dims) and all(
        d.stride == 1 and d.low < d.reach and 0 <= d.high - d.low < max(d.base_dilation, d.dilation)
        for d in dims
    )


def _input_gradient(dims: Sequence[WindowDim], groups: int) -> Product:
    convolve = _TRANSPOSED[len(dims)]
    strides, dilations = [d.base_dilation for d in dims], [d.dilation for d in dims]
    padding = [d.reach - 1 - d.low for d in dims]
    rest = [d.high - d.low for d in dims]
    space = range(2, 2 + len(dims))

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        # torch flips the window and has its features the other way round, within each group.
        o, i = w.shape[:2]
        w = w.reshape(groups, o // groups, i, *w.shape[2:]).transpose(1, 2)
        w = w.reshape(groups * i, o // groups, *w.shape[3:]).flip(*space)
        return convolve(x, w, None, strides, padding, rest, groups, dilations)

    return call


def _is_weight_gradient(dims: Sequence[WindowDim]) -> bool:
    """Whether the window is larger than the result: the cotangent of a convolution slid over its input."""
    return (
        all(d.base_dilation == 1 and d.low >= 0 and d.size >= d.out for d in dims)
        and any(d.size > d.out for d in dims)
        # What torch would find as the extent of the cotangent.
        and all((d.extent + 2 * d.low - (d.out - 1) * d.stride - 1) // d.dilation + 1 == d.size for d in dims)
    )


def _weight_gradient(dims: Sequence[WindowDim], groups: int) -> Product:
    """``x[g C, N, ...] * w[O, N, ...] -> [C, O, ...]`` as the gradient of an ``[O, C, ...]`` weight."""
    strides, dilations, padding = [d.dilation for d in dims], [d.stride for d in dims], [d.low for d in dims]
    space = [d.out for d in dims]

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        o, c = w.shape[0], x.shape[0] // groups
        _, gradient, _ = torch.ops.aten.convolution_backward(
            w.transpose(0, 1),
            x.transpose(0, 1),
            x.new_empty((o, c, *space)),
            None,
            strides,
            padding,
            dilations,
            False,
            [0] * len(dims),
            groups,
            [False, True, False],
        )
        return gradient.transpose(0, 1)

    return call


TABLE: dict[str, Lowering] = {"hlo.convolution": _convolution}
