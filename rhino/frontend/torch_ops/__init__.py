"""Handlers of ATen ops, one file per family; an op in the table is not decomposed by torch."""

from __future__ import annotations

from collections.abc import Mapping

from rhino.frontend.torch_ops import (
    activation,
    attention,
    bessel,
    complex_numbers,
    conv,
    distance,
    effects,
    histograms,
    indexing,
    linalg,
    linear,
    loss,
    normalization,
    numeric,
    order,
    pointwise,
    random,
    recurrences,
    reduction,
    resampling,
    shape,
    special,
    spectral,
    strided,
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
    **numeric.ATEN,
    **complex_numbers.ATEN,
    **special.ATEN,
    **bessel.ATEN,
    **order.ATEN,
    **histograms.ATEN,
    **strided.ATEN,
    **distance.ATEN,
    **linalg.ATEN,
    **resampling.ATEN,
    **recurrences.ATEN,
    **spectral.ATEN,
    **effects.ATEN,
}

__all__ = ["ATEN", "Handler"]
