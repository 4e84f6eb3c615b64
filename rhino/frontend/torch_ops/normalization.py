"""Layer, RMS, group and batch normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from xdsl.dialects.builtin import FloatAttr, f64
from xdsl.ir import Attribute, SSAValue

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import integer
from rhino.frontend.torch_ops.context import Handler, Number, OpContext, cast, keep_dims, spread, wide
from rhino.frontend.torch_ops.reduction import moments
from rhino.ir import types


def layer_norm(
    c: OpContext,
    x: SSAValue,
    normalized_shape: Sequence[int],
    weight: SSAValue | None = None,
    bias: SSAValue | None = None,
    eps: Number = 1e-5,
    cudnn_enable: bool = True,
) -> SSAValue:
    """Composite ``layer_norm`` (x[, weight][, bias]): over the last `dims` dimensions, biased variance."""
    return _layer_norm(c, x, len(normalized_shape), weight, bias, eps)


def _layer_norm(
    c: OpContext, x: SSAValue, dims: int, weight: SSAValue | None, bias: SSAValue | None, eps: Number
) -> SSAValue:
    element = types.element_of(x)

    def body(b: Builder, *operands: SSAValue) -> Sequence[SSAValue]:
        y = cast(b, operands[0], wide(element))
        over = _trailing(y, dims)
        centred = b.sub(y, spread(b, _mean(b, y, over), types.shape_of(y), over))
        variance = _mean(b, b.mul(centred, centred), over)
        scale = b.rsqrt(b.add(variance, b.full_like(variance, eps)))
        out = b.mul(centred, spread(b, scale, types.shape_of(y), over))
        return [cast(b, _affine(b, out, operands[1:], weight is not None, bias is not None), element)]

    operands = [v for v in (x, weight, bias) if v is not None]
    attributes = {
        "dims": integer(dims),
        "eps": FloatAttr(eps, f64),
        "affine": integer(2 * (weight is not None) + (bias is not None)),
    }
    return c.b.composite("layer_norm", operands, attributes, body)[0]


def _affine(b: Builder, x: SSAValue, operands: Sequence[SSAValue], weight: bool, bias: bool) -> SSAValue:
    """`x` times a weight plus a bias, where there is one; both broadcast over the leading dimensions."""
    rest, shape, element = iter(operands), types.shape_of(x), types.element_of(x)
    if weight:
        x = b.mul(x, b.broadcast_to(cast(b, next(rest), element), shape))
    if bias:
        x = b.add(x, b.broadcast_to(cast(b, next(rest), element), shape))
    return x


def _trailing(x: SSAValue, dims: int) -> list[int]:
    rank = len(types.shape_of(x))
    return list(range(rank - dims, rank))


def _mean(b: Builder, x: SSAValue, over: Sequence[int]) -> SSAValue:
    total = b.reduce(x, list(over), "sum")
    return b.div(total, b.full_like(total, math.prod(types.shape_of(x)[d] for d in over)))


def native_layer_norm(
    c: OpContext,
    x: SSAValue,
    normalized_shape: Sequence[int],
    weight: SSAValue | None,
    bias: SSAValue | None,
    eps: Number,
) -> list[SSAValue | None]:
    """Mean and inverse deviation are given out only where something reads them."""
    out = _layer_norm(c, x, len(normalized_shape), weight, bias, eps)
    if not (c.reads(1) or c.reads(2)):
        return [out, None, None]
    y = c.widened(x)
    over = _trailing(y, len(normalized_shape))
    mean, variance = moments(c, y, over)
    scale = c.b.rsqrt(c.b.add(variance, c.full(eps, variance)))
    kept = keep_dims(types.shape_of(x), over)
    return [out, *(c.b.reshape(v, kept) for v in (mean, scale))]


def rms_norm(
    c: OpContext,
    x: SSAValue,
    normalized_shape: Sequence[int],
    weight: SSAValue | None = None,
    eps: Number | None = None,
) -> SSAValue:
    """Composite ``rms_norm`` (x[, weight]): x / sqrt(mean(x^2) + eps) over the last `dims` dimensions."""
    element, dims = types.element_of(x), len(normalized_shape)
    if eps is None:
        eps = torch.finfo(torch.float64 if element == types.F64 else torch.float32).eps

    def body(b: Builder, *operands: SSAValue) -> Sequence[SSAValue]:
        y = cast(b, operands[0], wide(element))
        over = _trailing(y, dims)
        square = _mean(b, b.mul(y, y), over)
        scale = b.rsqrt(b.add(square, b.full_like(square, eps)))
        out = b.mul(y, spread(b, scale, types.shape_of(y), over))
        return [cast(b, _affine(b, out, operands[1:], weight is not None, False), element)]

    operands = [v for v in (x, weight) if v is not None]
    attributes: dict[str, Attribute] = {"dims": integer(dims), "eps": FloatAttr(eps, f64)}
    return c.b.composite("rms_norm", operands, attributes, body)[0]


def group_norm(
    c: OpContext,
    x: SSAValue,
    groups: int,
    weight: SSAValue | None = None,
    bias: SSAValue | None = None,
    eps: Number = 1e-5,
    cudnn_enable: bool = True,
) -> SSAValue:
    shape = types.shape_of(x)
    n, channels, *space = shape
    y = c.b.reshape(c.widened(x), [n, groups, channels // groups, *space])
    over = list(range(2, len(space) + 3))
    mean, variance = moments(c, y, over)
    scale = c.b.rsqrt(c.b.add(variance, c.full(eps, variance)))
    mean, scale = (spread(c.b, v, types.shape_of(y), over) for v in (mean, scale))
    out = c.b.reshape(c.b.mul(c.b.sub(y, mean), scale), list(shape))
    return c.convert(_per_channel_affine(c, out, weight, bias), c.element)


def native_group_norm(
    c: OpContext,
    x: SSAValue,
    weight: SSAValue | None,
    bias: SSAValue | None,
    n: int,
    channels: int,
    space: int,
    groups: int,
    eps: Number,
) -> list[SSAValue | None]:
    out = group_norm(c, x, groups, weight, bias, eps)
    if not (c.reads(1) or c.reads(2)):
        return [out, None, None]
    y = c.b.reshape(c.widened(x), [n, groups, channels // groups * space])
    mean, variance = moments(c, y, [2])
    scale = c.b.rsqrt(c.b.add(variance, c.full(eps, variance)))
    return [out, *(c.convert(v, c.element) for v in (mean, scale))]


def _per_channel(c: OpContext, value: SSAValue, like: SSAValue) -> SSAValue:
    """A value per channel spread over ``like[N, C, ...]``, in its precision."""
    return c.b.broadcast_in_dim(c.convert(value, types.element_of(like)), list(types.shape_of(like)), [1])


def _per_channel_affine(
    c: OpContext, x: SSAValue, weight: SSAValue | None, bias: SSAValue | None
) -> SSAValue:
    if weight is not None:
        x = c.b.mul(x, _per_channel(c, weight, x))
    if bias is not None:
        x = c.b.add(x, _per_channel(c, bias, x))
    return x


def _batch_norm(
    c: OpContext,
    x: SSAValue,
    weight: SSAValue | None,
    bias: SSAValue | None,
    running: tuple[SSAValue, SSAValue] | None,
    training: bool,
    momentum: Number,
    eps: Number,
) -> tuple[SSAValue, SSAValue, SSAValue, list[SSAValue]]:
    """Output, mean, 1 / deviation, and the new running statistics (unchanged in evaluation).

    In training the statistics are of the whole (global) batch; the running variance is unbiased.
    """
    b, y = c.b, c.widened(x)
    shape = types.shape_of(y)
    others = [d for d in range(len(shape)) if d != 1]
    if training or running is None:
        mean, variance = moments(c, y, others)
    else:
        mean, variance = (c.convert(v, types.element_of(y)) for v in running)
    scale = b.rsqrt(b.add(variance, c.full(eps, variance)))
    out = b.mul(b.sub(y, _per_channel(c, mean, y)), _per_channel(c, scale, y))
    out = c.convert(_per_channel_affine(c, out, weight, bias), c.element)
    new: list[SSAValue] = list(running or ())
    if training and running is not None:
        n = math.prod(shape[d] for d in others)
        unbiased = b.mul(variance, c.full(n / max(n - 1, 1), variance))
        new = [_moved(c, old, value, momentum) for old, value in zip(running, (mean, unbiased), strict=True)]
    return out, mean, scale, new


def _moved(c: OpContext, old: SSAValue, value: SSAValue, momentum: Number) -> SSAValue:
    """``(1 - momentum) * old + momentum * value``; no gradient flows into running statistics."""
    b = c.b
    value = c.convert(b.stop_gradient(value), types.element_of(old))
    return b.add(b.mul(old, c.full(1 - momentum, old)), b.mul(value, c.full(momentum, value)))


def batch_norm_functional(
    c: OpContext,
    x: SSAValue,
    weight: SSAValue | None,
    bias: SSAValue | None,
    running_mean: SSAValue,
    running_var: SSAValue,
    training: bool,
    momentum: Number,
    eps: Number,
) -> list[SSAValue | None]:
    out, mean, scale, new = _batch_norm(
        c, x, weight, bias, (running_mean, running_var), training, momentum, eps
    )
    saved = [mean, scale] if training else _no_statistics(c, mean)
    return [out, *saved, *new]


def batch_norm_no_stats(
    c: OpContext,
    x: SSAValue,
    weight: SSAValue | None,
    bias: SSAValue | None,
    training: bool,
    momentum: Number,
    eps: Number,
) -> list[SSAValue]:
    out, mean, scale, _ = _batch_norm(c, x, weight, bias, None, training, momentum, eps)
    return [out, mean, scale]


def batch_norm_no_training(
    c: OpContext,
    x: SSAValue,
    weight: SSAValue | None,
    bias: SSAValue | None,
    running_mean: SSAValue,
    running_var: SSAValue,
    momentum: Number,
    eps: Number,
) -> list[SSAValue | None]:
    out, mean, *_ = _batch_norm(c, x, weight, bias, (running_mean, running_var), False, momentum, eps)
    return [out, *_no_statistics(c, mean)]


def _no_statistics(c: OpContext, like: SSAValue) -> list[SSAValue]:
    """What torch gives for the batch's statistics in evaluation: empty tensors."""
    return [c.b.full([0], types.element_of(like), 0)] * 2


ATEN: dict[str, Handler] = {
    "aten.layer_norm.default": layer_norm,
    "aten.native_layer_norm.default": native_layer_norm,
    "aten.rms_norm.default": rms_norm,
    "aten.group_norm.default": group_norm,
    "aten.native_group_norm.default": native_group_norm,
    "aten._native_batch_norm_legit_functional.default": batch_norm_functional,
    "aten._native_batch_norm_legit.no_stats": batch_norm_no_stats,
    "aten._native_batch_norm_legit_no_training.default": batch_norm_no_training,
}
