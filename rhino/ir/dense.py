"""Tensor literals: `dense<...>` attributes to and from numpy, exactly, and without expanding splats.

An attribute is *canonical* when its data are the elements' bytes in row-major order, or the bytes of one
element if all are the same (a splat; i1 takes one byte, 0 or 1). Equal tensors then have equal attributes,
and a splat of a gigabyte costs eight bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import BytesAttr, DenseIntOrFPElementsAttr

from rhino.ir import types
from rhino.ir.errors import ProgramError

Scalar = bool | int | float | complex

#: Literals of more elements are printed as one hexadecimal string, as MLIR does.
LIST_LIMIT = 64


def dense(value: np.ndarray | Scalar, type: types.Type) -> DenseIntOrFPElementsAttr:
    """The canonical literal of `type` with these elements; a scalar or 0-d array fills the whole tensor.

    Raises ProgramError when the shape differs or an element does not fit the element type.
    """
    dtype = types.numpy_dtype(type.element_type)
    shape = tuple(type.get_shape())
    given = np.asarray(value)
    if given.shape not in ((), shape):
        raise ProgramError(f"a constant of shape {list(given.shape)} for type {types.show(type)}")
    array = _fit(given, dtype, type)
    if math.prod(shape) == 0:
        return _attribute(type, b"")
    if array.size > 1 and not any(array.strides):  # one element, however many there are
        array = array[(0,) * array.ndim].reshape(1)
    elif array.size > 1:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, dtype.itemsize)
        if (raw == raw[0]).all():
            array = array.reshape(-1)[:1]
    return _attribute(type, array.tobytes())


def _fit(array: np.ndarray, dtype: np.dtype, type: types.Type) -> np.ndarray:
    """Convert elements to `dtype`; raises ProgramError on overflow of integers and on fractions."""
    if array.dtype == dtype:
        return array
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise ProgramError(f"a complex constant for type {types.show(type)}")
    if dtype == np.bool_ or dtype.kind not in "iu":
        with np.errstate(over="ignore", invalid="ignore"):
            return array.astype(dtype)
    if array.dtype.kind not in "biu" and not np.all(array == np.trunc(array.astype(np.float64))):
        raise ProgramError(f"a constant with a fraction for type {types.show(type)}", remedy="convert it")
    info = np.iinfo(dtype)
    if array.size and not (info.min <= array.min() and array.max() <= info.max):
        raise ProgramError(
            f"a constant does not fit {types.show(type)}", remedy=f"use {info.min} to {info.max}"
        )
    return array.astype(dtype)


def _attribute(type: types.Type, data: bytes) -> DenseIntOrFPElementsAttr:
    return DenseIntOrFPElementsAttr(type, BytesAttr(data))  # type: ignore[arg-type]


def from_bytes(data: bytes, type: types.Type) -> DenseIntOrFPElementsAttr:
    """A literal from raw element bytes (little-endian, row-major), made canonical.

    i1 may come as one byte an element or, as MLIR prints it, as packed bits (lowest first). Raises
    ProgramError if the length fits neither the tensor nor one element.
    """
    dtype = types.numpy_dtype(type.element_type)
    shape = tuple(type.get_shape())
    count = math.prod(shape)
    if dtype == np.bool_ and len(data) == -(-count // 8) and count > 1:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return dense(bits[:count].astype(np.bool_).reshape(shape), type)
    if len(data) not in (dtype.itemsize, count * dtype.itemsize):
        raise ProgramError(f"a literal of {len(data)} bytes for {types.show(type)}")
    array = _elements(data, dtype)
    return dense(array.reshape(() if array.size == 1 else shape), type)


def _elements(data: bytes, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(data, np.uint8) != 0 if dtype == np.bool_ else np.frombuffer(data, dtype)


def to_numpy(attr: DenseIntOrFPElementsAttr) -> np.ndarray:
    """The tensor (read-only; a splat is a view of one element)."""
    type = attr.type
    dtype = types.numpy_dtype(type.element_type)
    shape = tuple(type.get_shape())
    data = attr.data.data
    array = _elements(data, dtype)
    return np.broadcast_to(array.reshape(()), shape) if array.size == 1 else array.reshape(shape)


def is_splat(attr: DenseIntOrFPElementsAttr) -> bool:
    """Whether all elements are one value (for canonical attributes)."""
    return len(attr.data.data) == types.itemsize(attr.type.element_type)


def splat_value(attr: DenseIntOrFPElementsAttr) -> Scalar | None:
    """The value of all elements, or None when they differ."""
    return to_numpy(attr).reshape(-1)[0].item() if is_splat(attr) else None


def retype(attr: DenseIntOrFPElementsAttr, shape: Sequence[int]) -> DenseIntOrFPElementsAttr:
    """A splat with another shape."""
    assert is_splat(attr)
    return dense(to_numpy(attr).reshape(-1)[0], types.tensor(shape, attr.type.element_type))


def show(attr: DenseIntOrFPElementsAttr) -> str:
    """The literal's text without its type; reading it back gives the same bits."""
    array = to_numpy(attr)
    if array.size == 0:
        return "dense<>"
    if is_splat(attr):
        return f"dense<{_element(array.reshape(-1)[0])}>"
    if array.size > LIST_LIMIT:
        data = np.packbits(array, bitorder="little").tobytes() if array.dtype == np.bool_ else array.tobytes()
        return f'dense<"0x{data.hex().upper()}">'
    return f"dense<{_nested(array)}>"


def _nested(array: np.ndarray) -> str:
    if array.ndim == 0:
        return _element(array[()])
    return "[" + ", ".join(_nested(a) for a in array) + "]"


def _element(value: Any) -> str:
    if value.dtype == np.bool_:
        return "true" if value else "false"
    if value.dtype.kind in "iu":
        return str(int(value))
    if value.dtype.kind == "c":
        return f"({float_text(value.real)}, {float_text(value.imag)})"
    return float_text(value)


def float_text(value: Any) -> str:
    """Shortest decimal text of a numpy float that reads back to the same bits, else its bit pattern."""
    foreign = value.dtype.kind == "V"  # of ml_dtypes, not of numpy: all are exact in float32
    exact = value.astype(np.float32) if foreign else value
    if np.isfinite(exact):
        # numpy finds the shortest text of its own types; a bf16 needs at most four digits.
        digits = (1, 2, 3, 4, None) if foreign else (None,)
        for precision in digits:
            text = _decimal(exact, precision)
            if np.float64(text).astype(value.dtype).tobytes() == value.tobytes():
                return text
    return f"0x{value.tobytes()[::-1].hex().upper()}"


def _decimal(value: Any, digits: int | None) -> str:
    """Text with that many significant digits, or as many as identify the value; always with a point."""
    if digits is not None:
        value = np.float64(f"{value:.{digits}g}")
    text = np.format_float_scientific(value, trim="0", exp_digits=1)
    mantissa, _, exponent = text.partition("e")
    if -5 < int(exponent) < 16:
        return np.format_float_positional(value, trim="0")
    return f"{mantissa}e{int(exponent):+03d}"
