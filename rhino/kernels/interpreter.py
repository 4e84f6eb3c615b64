"""Repairs for Triton's interpreter, without which bf16 kernels are silently wrong on a CPU.

Triton (3.6 to 3.9) keeps bf16 as raw 16-bit integers there: a bf16 `tl.dot` multiplies bit patterns, and a
conversion from f32 truncates instead of rounding to nearest even. Generated kernels compute everything else in
f32, so these two are all that is needed. Upstream says that bf16 is not supported in the interpreter; a test
fails if that ever changes, so that this file can go.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_MARK = "_rhino_repaired"


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    """Values of raw bf16 bit patterns (uint16)."""
    wide = np.ascontiguousarray(bits).view(np.uint16).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32).reshape(np.shape(bits))


def f32_to_bf16(values: np.ndarray) -> np.ndarray:
    """Raw bf16 bit patterns (uint16) of f32 values, rounded to nearest even; NaN stays NaN."""
    flat = np.ascontiguousarray(values, dtype=np.float32)
    bits = flat.view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    out = (rounded >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(flat), np.uint16(0x7FC0), out).reshape(np.shape(values))


def repair() -> None:
    """Patch Triton's interpreter, once per process."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder
    if getattr(builder, _MARK, False):
        return
    convert, dot = interpreter._convert_float, builder.create_dot

    def convert_float(data: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
        if source == tl.bfloat16 and target == tl.float32:
            return bf16_to_f32(data).view(np.uint32)
        if source == tl.float32 and target == tl.bfloat16:
            return f32_to_bf16(data)
        return convert(data, source, target, rounding)

    def create_dot(self: Any, a: Any, b: Any, acc: Any, precision: Any, imprecise: Any) -> Any:
        if a.dtype.scalar != tl.bfloat16:
            return dot(self, a, b, acc, precision, imprecise)
        product = np.matmul(bf16_to_f32(a.data), bf16_to_f32(b.data)) + acc.data
        return interpreter.TensorHandle(product.astype(np.float32), tl.float32)

    interpreter._convert_float = convert_float
    builder.create_dot = create_dot
    setattr(builder, _MARK, True)
