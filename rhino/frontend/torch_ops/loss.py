"""Losses. The target's class is picked by comparing with the class index, which shards along the classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import FloatAttr, StringAttr, f64
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import integer
from rhino.frontend.torch_ops.activation import log_softmax_of
from rhino.frontend.torch_ops.context import Handler, Number, OpContext, cast, wide
from rhino.ir import types

_REDUCTIONS = ("none", "mean", "sum")


@dataclass(frozen=True)
class _Options:
    dim: int
    reduction: str
    ignore_index: int
    smoothing: float


def cross_entropy(
    c: OpContext,
    x: SSAValue,
    target: SSAValue,
    weight: SSAValue | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: Number = 0.0,
) -> SSAValue:
    """Composite ``cross_entropy`` (logits, target[, class weights]); targets are indices or probabilities.

    Attributes: ``dim`` (of the classes), ``reduction`` (none, mean, sum), ``ignore_index``,
    ``label_smoothing``.
    """
    options = _Options(_class_dim(x), _REDUCTIONS[reduction], ignore_index, float(label_smoothing))
    element = types.element_of(x)

    def body(b: Builder, *operands: SSAValue) -> Sequence[SSAValue]:
        logits, goal, *rest = operands
        log_p = log_softmax_of(b, cast(b, logits, wide(element)), options.dim)
        weights = cast(b, rest[0], types.element_of(log_p)) if rest else None
        if types.is_float(types.element_of(goal)):
            return [cast(b, _probability_loss(b, log_p, goal, weights, options), element)]
        return [cast(b, _index_loss(b, log_p, goal, weights, options), element)]

    operands = [v for v in (x, target, weight) if v is not None]
    attributes = {
        "dim": integer(options.dim),
        "reduction": StringAttr(options.reduction),
        "ignore_index": integer(ignore_index),
        "label_smoothing": FloatAttr(options.smoothing, f64),
    }
    return c.b.composite("cross_entropy", operands, attributes, body)[0]


def nll_loss(
    c: OpContext,
    x: SSAValue,
    target: SSAValue,
    weight: SSAValue | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> SSAValue:
    options = _Options(_class_dim(x), _REDUCTIONS[reduction], ignore_index, 0.0)
    log_p = c.widened(x)
    weights = c.convert(weight, types.element_of(log_p)) if weight is not None else None
    return c.convert(_index_loss(c.b, log_p, target, weights, options), c.element)


def _linear_loss(
    c: OpContext,
    x: SSAValue,
    matrix: SSAValue,
    target: SSAValue,
    bias: SSAValue | None,
    weight: SSAValue | None,
    options: _Options,
) -> SSAValue:
    """Cross entropy of ``x matrix^T + bias``, rows of classes; torch's chunks of it are a matter of memory only."""
    b = c.b
    logits = c.widened(b.dot_general(x, matrix, contract=((1,), (1,))))
    if bias is not None:
        spread = b.broadcast_in_dim(bias, types.shape_of(logits), [1])
        logits = b.add(logits, c.convert(spread, types.element_of(logits)))
    weights = None if weight is None else c.convert(weight, types.element_of(logits))
    return c.convert(_index_loss(b, log_softmax_of(b, logits, 1), target, weights, options), c.element)


def chunked_cross_entropy(
    c: OpContext,
    x: SSAValue,
    matrix: SSAValue,
    target: SSAValue,
    bias: SSAValue | None,
    weight: SSAValue | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    *_: object,
) -> list[SSAValue]:
    """The loss, and zeros for further results that nothing reads: gradients for torch's own backward pass."""
    if any(c.reads(k) for k in (1, 2, 3)):
        raise c.unsupported("gradients as results", remedy="let Rhino differentiate the loss")
    options = _Options(1, reduction, ignore_index, label_smoothing)
    loss = _linear_loss(c, x, matrix, target, bias, weight, options)
    unread = [c.b.full(list(value.shape), c.element, 0) for value in c.node.meta["val"][1:]]
    return [loss, *unread]


def chunked_cross_entropies(
    c: OpContext,
    x: SSAValue,
    matrix: SSAValue,
    target: SSAValue,
    bias: SSAValue | None,
    weight: SSAValue | None,
    ignore_index: int,
    *_: object,
) -> SSAValue:
    """The loss of each row."""
    return _linear_loss(c, x, matrix, target, bias, weight, _Options(1, "none", ignore_index, 0.0))


def _class_dim(x: SSAValue) -> int:
    return 0 if len(types.shape_of(x)) == 1 else 1


def _index_loss(
    b: Builder, log_p: SSAValue, target: SSAValue, weights: SSAValue | None, o: _Options
) -> SSAValue:
    shape, element = types.shape_of(log_p), types.element_of(log_p)
    target = cast(b, target, types.I64)
    others = [d for d in range(len(shape)) if d != o.dim]
    spread = b.broadcast_in_dim(target, list(shape), others)
    chosen = b.compare(spread, b.iota(types.tensor(shape, types.I64), o.dim), "eq")
    real = b.compare(target, b.full_like(target, o.ignore_index), "ne")
    zero = b.full_like(log_p, 0)
    per_class = None if weights is None else b.broadcast_in_dim(weights, list(shape), [o.dim])
    weighted = log_p if per_class is None else b.mul(log_p, per_class)
    picked = b.reduce(b.select(chosen, weighted, zero), [o.dim], "sum")
    nothing = b.full_like(picked, 0)
    losses = b.select(real, b.negate(picked), nothing)
    if per_class is None:
        norms = b.convert(real, element)
    else:
        norms = b.select(real, b.reduce(b.select(chosen, per_class, zero), [o.dim], "sum"), nothing)
    out = _reduced(b, losses, norms, o.reduction)
    if o.smoothing == 0:
        return out
    smooth = b.select(real, b.negate(b.reduce(weighted, [o.dim], "sum")), nothing)
    even = _reduced(b, smooth, norms, o.reduction)
    return b.add(
        b.mul(out, b.full_like(out, 1 - o.smoothing)),
        b.mul(even, b.full_like(even, o.smoothing / shape[o.dim])),
    )


def _probability_loss(
    b: Builder, log_p: SSAValue, target: SSAValue, weights: SSAValue | None, o: _Options
) -> SSAValue:
    shape = types.shape_of(log_p)
    goal = cast(b, target, types.element_of(log_p))
    if o.smoothing:
        goal = b.add(
            b.mul(goal, b.full_like(goal, 1 - o.smoothing)), b.full_like(goal, o.smoothing / shape[o.dim])
        )
    if weights is not None:
        goal = b.mul(goal, b.broadcast_in_dim(weights, list(shape), [o.dim]))
    losses = b.negate(b.reduce(b.mul(log_p, goal), [o.dim], "sum"))
    if o.reduction == "none":
        return losses
    total = b.reduce(losses, list(range(len(types.shape_of(losses)))), "sum")
    samples = math.prod(types.shape_of(losses))
    return total if o.reduction == "sum" else b.div(total, b.full_like(total, samples))


def _reduced(b: Builder, losses: SSAValue, norms: SSAValue, reduction: str) -> SSAValue:
    if reduction == "none":
        return losses
    dims = list(range(len(types.shape_of(losses))))
    total = b.reduce(losses, dims, "sum") if dims else losses
    if reduction == "sum":
        return total
    return b.div(total, b.reduce(norms, dims, "sum") if dims else norms)


ATEN: dict[str, Handler] = {
    "torch_nn._linear_cross_entropy_batch_chunked.default": chunked_cross_entropy,
    "torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default": chunked_cross_entropies,
    "aten.cross_entropy_loss.default": cross_entropy,
    "aten.nll_loss_nd.default": nll_loss,
    "aten.nll_loss.default": nll_loss,
    "aten.nll_loss2d.default": nll_loss,
}
