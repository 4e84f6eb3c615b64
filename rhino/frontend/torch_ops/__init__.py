"""Handlers of ATen ops, one file per family; an op in the table is not decomposed by torch."""

from __future__ import annotations

from collections.abc import Mapping

from rhino.frontend.torch_ops import (
    activation,
    attention,
    conv,
    indexing,
    linear,
    loss,
    normalization,
    pointwise,
    random,
    reduction,
    shape,
)
from rhino.frontend.torch_ops.context import Handler

ATEN: Mapping[str, Handler] = {
    **pointwise.ATEN,
    **shape.ATEN,
    **reduction.ATEN,
    **linear.ATEN,
    **activation.ATEN,
    **normalization.ATEN,
    **attention.ATEN,
    **loss.ATEN,
    **conv.ATEN,
    **indexing.ATEN,
    **random.ATEN,
}

__all__ = ["ATEN", "Handler"]
