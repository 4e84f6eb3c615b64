"""Element types: MLIR attribute, short name and numpy dtype of each, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    BFloat16Type,
    ComplexType,
    Float8E3M4Type,
    Float8E4M3B11FNUZType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E4M3Type,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    Signedness,
    TensorType,
)
from xdsl.ir import Attribute, SSAValue

from rhino.ir.errors import ProgramError

F64, F32, F16, BF16 = Float64Type(), Float32Type(), Float16Type(), BFloat16Type()
I1, I8, I16, I32, I64 = (IntegerType(w) for w in (1, 8, 16, 32, 64))
UI8, UI16, UI32, UI64 = (IntegerType(w, Signedness.UNSIGNED) for w in (8, 16, 32, 64))
C64, C128 = ComplexType(F32), ComplexType(F64)
F8E3M4, F8E4M3, F8E4M3FN, F8E5M2 = Float8E3M4Type(), Float8E4M3Type(), Float8E4M3FNType(), Float8E5M2Type()
F8E4M3B11FNUZ, F8E4M3FNUZ = Float8E4M3B11FNUZType(), Float8E4M3FNUZType()
F8E5M2FNUZ, F8E8M0FNU = Float8E5M2FNUZType(), Float8E8M0FNUType()

# name, MLIR type, numpy dtype. i1 holds 0 or 1; signless integers count as signed, as in StableHLO.
_TABLE: tuple[tuple[str, Attribute, np.dtype], ...] = (
    ("f64", F64, np.dtype(np.float64)),
    ("f32", F32, np.dtype(np.float32)),
    ("f16", F16, np.dtype(np.float16)),
    ("bf16", BF16, np.dtype(ml_dtypes.bfloat16)),
    ("i1", I1, np.dtype(np.bool_)),
    ("i8", I8, np.dtype(np.int8)),
    ("i16", I16, np.dtype(np.int16)),
    ("i32", I32, np.dtype(np.int32)),
    ("i64", I64, np.dtype(np.int64)),
    ("ui8", UI8, np.dtype(np.uint8)),
    ("ui16", UI16, np.dtype(np.uint16)),
    ("ui32", UI32, np.dtype(np.uint32)),
    ("ui64", UI64, np.dtype(np.uint64)),
    ("complex<f32>", C64, np.dtype(np.complex64)),
    ("complex<f64>", C128, np.dtype(np.complex128)),
    ("f8E3M4", F8E3M4, np.dtype(ml_dtypes.float8_e3m4)),
    ("f8E4M3", F8E4M3, np.dtype(ml_dtypes.float8_e4m3)),
    ("f8E4M3FN", F8E4M3FN, np.dtype(ml_dtypes.float8_e4m3fn)),
    ("f8E5M2", F8E5M2, np.dtype(ml_dtypes.float8_e5m2)),
    ("f8E4M3B11FNUZ", F8E4M3B11FNUZ, np.dtype(ml_dtypes.float8_e4m3b11fnuz)),
    ("f8E4M3FNUZ", F8E4M3FNUZ, np.dtype(ml_dtypes.float8_e4m3fnuz)),
    ("f8E5M2FNUZ", F8E5M2FNUZ, np.dtype(ml_dtypes.float8_e5m2fnuz)),
    ("f8E8M0FNU", F8E8M0FNU, np.dtype(ml_dtypes.float8_e8m0fnu)),
)
_NUMPY = {mlir: dtype for _, mlir, dtype in _TABLE}
_MLIR = {dtype: mlir for _, mlir, dtype in _TABLE}
_BY_NAME = {name: mlir for name, mlir, _ in _TABLE}
_NAME = {mlir: name for name, mlir, _ in _TABLE}

#: Floats of one byte: stored, moved and converted; arithmetic widens them to f32 and rounds once.
FLOAT8 = (F8E3M4, F8E4M3, F8E4M3FN, F8E5M2, F8E4M3B11FNUZ, F8E4M3FNUZ, F8E5M2FNUZ, F8E8M0FNU)

#: numpy dtypes of the floats that are computed with in float32 and rounded once, as every accelerator does.
NARROW_FLOATS = frozenset(_NUMPY[t] for t in (F16, BF16, *FLOAT8))

#: Names, and MLIR types, of all element types that Rhino computes with.
NAMES = frozenset(_BY_NAME)
MLIR = frozenset(_NAME)

Type = TensorType[Attribute]


def element(name: str) -> Attribute:
    """The element type called `name` (``f32``, ``i64``, ...). Raises ProgramError if there is none."""
    if name not in _BY_NAME:
        raise ProgramError(f"no element type '{name}'", remedy=f"use one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def element_name(type: Attribute) -> str:
    return _NAME.get(type, str(type))


def numpy_dtype(type: Attribute) -> np.dtype:
    """The numpy dtype of an element type. Raises ProgramError for types Rhino does not compute with."""
    if type not in _NUMPY:
        known = ", ".join(_BY_NAME)
        raise ProgramError(f"element type {type} is not supported", remedy=f"use one of {known}")
    return _NUMPY[type]


def from_numpy(dtype: np.dtype) -> Attribute:
    if np.dtype(dtype) not in _MLIR:
        raise ProgramError(f"numpy dtype {dtype} is not supported")
    return _MLIR[np.dtype(dtype)]


def tensor(shape: Sequence[int], element_type: Attribute) -> Type:
    return _tensor(tuple(shape), element_type)


@lru_cache(maxsize=1 << 14)  # attributes are immutable, and making one checks all its parts
def _tensor(shape: tuple[int, ...], element_type: Attribute) -> Type:
    return TensorType(element_type, list(shape))


def is_float(type: Attribute) -> bool:
    """Real floating point."""
    return type in (F64, F32, F16, BF16) or type in FLOAT8


def is_complex(type: Attribute) -> bool:
    return type in (C64, C128)


def is_differentiable(type: Attribute) -> bool:
    """Whether gradients flow through values of this type: floats and complex numbers."""
    return is_float(type) or is_complex(type)


def real_part(type: Attribute) -> Attribute:
    """The element type of the parts of a complex number; other types are their own."""
    return F32 if type == C64 else F64 if type == C128 else type


def complex_of(type: Attribute) -> Attribute:
    """The complex type with parts of type f32 or f64. Raises ProgramError for others."""
    if type not in (F32, F64):
        raise ProgramError(
            f"no complex numbers with parts of type {element_name(type)}", remedy="use f32 or f64"
        )
    return C64 if type == F32 else C128


def is_integer(type: Attribute) -> bool:
    """Signed (that is, signless) and unsigned integers, i1 excluded."""
    return type in (I8, I16, I32, I64) or is_unsigned(type)


def is_unsigned(type: Attribute) -> bool:
    return type in (UI8, UI16, UI32, UI64)


def widens(source: Attribute, target: Attribute) -> bool:
    """Whether every value of `source` is a value of `target` of the same kind (float or integer)."""
    if is_float(source) and is_float(target):
        return source == target or target == F64 or (target == F32 and source != F64)
    if not (is_integer(source) and is_integer(target)):
        return False
    if is_unsigned(source) == is_unsigned(target):
        return itemsize(source) <= itemsize(target)
    return is_unsigned(source) and itemsize(source) < itemsize(target)


def itemsize(type: Attribute) -> int:
    """Bytes of one element in memory (i1 takes one)."""
    return numpy_dtype(type).itemsize


def type_of(value: SSAValue) -> Type:
    """The tensor type of a value. Raises ProgramError if it is not a ranked, static tensor."""
    type = value.type
    if not isinstance(type, TensorType):
        raise ProgramError(f"expected a tensor, found {type}")
    return type


def shape_of(value: SSAValue) -> tuple[int, ...]:
    return tuple(type_of(value).get_shape())


def element_of(value: SSAValue) -> Attribute:
    return type_of(value).element_type


def bytes_of(type: Type) -> int:
    """Size of a tensor in bytes."""
    return int(np.prod(type.get_shape(), dtype=np.int64)) * itemsize(type.element_type)


def show(type: Attribute) -> str:
    """Short text of a type for messages: ``f32[4, 8]``."""
    if isinstance(type, TensorType):
        return f"{element_name(type.element_type)}{list(type.get_shape())}"
    return str(type)
