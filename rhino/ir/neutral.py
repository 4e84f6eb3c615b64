"""Neutral elements of reductions."""

from __future__ import annotations

import numpy as np


def identity(kind: str, dtype: np.dtype) -> np.generic | bool | int | float:
    """The neutral element of a reduction `kind` (sum, prod, max, min, and, or) in `dtype`."""
    if kind in ("sum", "or"):
        return dtype.type(0)
    if kind == "prod":
        return dtype.type(1)
    if kind == "and":
        return dtype.type(True) if dtype == np.bool_ else np.invert(dtype.type(0))
    low = kind == "max"
    if dtype == np.bool_:
        return np.bool_(not low)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return dtype.type(info.min if low else info.max)
    return dtype.type(-np.inf if low else np.inf)


def has_identity(kind: str, dtype: np.dtype) -> bool:
    """Whether `dtype` holds the neutral element: a float without infinities has none for max and min."""
    return kind not in ("max", "min") or not np.isnan(np.float64(identity(kind, dtype)))
