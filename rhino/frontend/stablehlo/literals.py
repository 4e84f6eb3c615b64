"""Tensor literals of StableHLO text as numpy arrays, bit for bit."""

from __future__ import annotations

import math

import numpy as np

from rhino.frontend.stablehlo.syntax import Literal
from rhino.ir import types
from rhino.ir.dense import from_bytes, to_numpy
from rhino.ir.errors import ProgramError


def array(literal: Literal, type: types.Type) -> np.ndarray:
    """The elements; 0-dimensional where one element fills the tensor.

    Raises ProgramError when an element or the literal's shape does not fit the type.
    """
    dtype = types.numpy_dtype(type.element_type)
    shape = tuple(type.get_shape())
    if literal.data is not None:
        return to_numpy(from_bytes(literal.data, type))
    if math.prod(shape) == 0:
        return np.zeros(shape, dtype)
    if literal.shape not in ((), shape):
        raise ProgramError(f"a literal of shape {list(literal.shape)} for the type {types.show(type)}")
    return _elements(literal.elements, dtype).reshape(literal.shape)


def _elements(texts: tuple[object, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "c":
        part = np.dtype(np.float32 if dtype == np.complex64 else np.float64)
        if any(not isinstance(t, tuple) for t in texts):
            raise ProgramError("an element of a complex tensor must be a pair")
        out = np.empty(len(texts), dtype)
        for i, side in enumerate(("real", "imag")):
            setattr(out, side, _elements(tuple(t[i] for t in texts), part))  # type: ignore[index]
        return out
    strings = [t for t in texts if isinstance(t, str)]
    if len(strings) != len(texts):
        raise ProgramError("a pair is no element of this tensor")
    if dtype == np.bool_:
        return np.array([_boolean(t) for t in strings], np.bool_)
    if dtype.kind in "iu":
        return np.array([_integer(t, dtype) for t in strings], dtype)
    return _floats(strings, dtype)


def _boolean(text: str) -> bool:
    if text in ("true", "1", "-1"):
        return True
    if text in ("false", "0"):
        return False
    raise ProgramError(f"{text} is no element of an i1 tensor")


def _integer(text: str, dtype: np.dtype) -> int:
    """As in MLIR, a signless literal may be written as signed or unsigned."""
    try:
        value = int(text, 16 if "x" in text else 10)
    except ValueError:
        raise ProgramError(f"{text} is no integer") from None
    bits = 8 * dtype.itemsize
    low = 0 if dtype.kind == "u" else -(1 << (bits - 1))
    if not low <= value < 1 << bits:
        raise ProgramError(f"{text} does not fit {dtype}")
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) > 0 else value


def _floats(texts: list[str], dtype: np.dtype) -> np.ndarray:
    if any(t in ("true", "false") for t in texts):
        raise ProgramError("true and false are no numbers")
    hexadecimal = {i: t for i, t in enumerate(texts) if "x" in t}
    numbers = np.array([0.0 if i in hexadecimal else float(t) for i, t in enumerate(texts)], np.float64)
    with np.errstate(over="ignore"):
        out = numbers.astype(dtype)
    for i, text in hexadecimal.items():
        bits = int(text, 16)
        if bits < 0 or bits >> (8 * dtype.itemsize):
            raise ProgramError(f"{text} is no bit pattern of this type")
        out[i] = np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype)[0]
    return out
