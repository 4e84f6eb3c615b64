"""All values of a program, and how far two arrays are apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from rhino.ir.errors import ProgramError
from rhino.ir.evaluate import check_arguments

#: Greatest relative difference by mode of checking.
TOLERANCE: Mapping[str, float] = {"float64": 1e-10, "float32": 1e-5, "integer": 0.0}


def record(func: FuncOp, arrays: Sequence[np.ndarray]) -> dict[SSAValue, np.ndarray]:
    """Every value of a function of the global or placed stage, for these arguments.

    Raises UsageError when the arrays are not of the arguments' types, ProgramError for an op without values.
    """
    block = func.body.block
    check_arguments(arrays, [arg.type for arg in block.args])
    values: dict[SSAValue, np.ndarray] = dict(zip(block.args, arrays, strict=True))
    with np.errstate(all="ignore"):
        for op in block.ops:
            if op is block.last_op:
                break
            evaluate = getattr(op, "evaluate", None)
            if evaluate is None:
                raise ProgramError(f"the interpreter cannot run {op.name} in a global program")
            for result, value in zip(op.results, evaluate(*(values[v] for v in op.operands)), strict=True):
                values[result] = np.asarray(value)
    return values


def magnitude(value: np.ndarray) -> float:
    """The greatest finite magnitude, 0 for an empty array."""
    if value.size == 0:
        return 0.0
    wide = np.abs(value.astype(_wide(value)))
    return float(np.max(wide, initial=0.0, where=np.isfinite(wide)))


def greatest(values: Iterable[tuple[str, np.ndarray]]) -> dict[str, float]:
    """The greatest magnitude among the values of every key."""
    out: dict[str, float] = {}
    for key, value in values:
        out[key] = max(out.get(key, 0.0), magnitude(value))
    return out


def relative_error(got: np.ndarray, want: np.ndarray, scale: float) -> float:
    """The greatest difference over the greatest magnitude; NaNs and infinities must stand in equal places.

    `scale` is the greatest magnitude among values of the same role: a tensor that is zero but for rounding
    (the gradient of a key's bias, say) is measured against a thousandth of it instead of its own noise.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if want.size == 0 or np.array_equal(got, want):
        return 0.0
    g: np.ndarray = got.astype(_wide(got))
    w: np.ndarray = want.astype(_wide(want))
    finite = np.isfinite(w)
    if not np.array_equal(np.where(finite, 0.0, g), np.where(finite, 0.0, w), equal_nan=True):
        return float("inf")
    difference = float(np.max(np.abs(g - w), initial=0.0, where=finite))
    return difference / max(magnitude(want), 1e-3 * scale, float(np.finfo(np.float64).tiny))


def _wide(array: np.ndarray) -> np.dtype:
    return np.dtype(np.complex128 if array.dtype.kind == "c" else np.float64)
