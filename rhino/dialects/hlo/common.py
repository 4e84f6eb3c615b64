"""Small things that several op families share: text formats, numpy accumulation, checks of dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, prop_def
from xdsl.irdl.declarative_assembly_format import (
    AttributeVariable,
    CustomDirective,
    ParsingState,
    PrintingState,
    TypeDirective,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer

from rhino.dialects.hlo.base import ints
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.layout import Layout
from rhino.ir.neutral import identity as identity
from rhino.ir.rule import Dims

Cotangents = Sequence[SSAValue | None]

INTS = DenseArrayBase.constr(i64)
INTEGER = IntegerAttr.constr(i64)


def ints_def() -> DenseArrayBase:
    """A property that is a list of integers, printed ``[1, 2]``."""
    return prop_def(INTS)  # type: ignore[no-any-return]


def integer_def() -> IntegerAttr:
    """A property that is an integer, printed ``3``."""
    return prop_def(INTEGER)  # type: ignore[no-any-return]


@irdl_custom_directive
class ResultShape(CustomDirective):
    """The result type; property `shape` is read from it, so that the extents stand in the text once."""

    shape: AttributeVariable
    result: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        type = parser.parse_type()
        if not isinstance(type, TensorType):
            parser.raise_error("expected a tensor type")
        self.result.inner.set_types(state, (type,))
        self.shape.set(state, ints(type.get_shape()))

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        state.print_whitespace(printer)
        printer.print_attribute(self.result.inner.get_types(op)[0])
        state.should_emit_space = True
        state.last_was_punctuation = False


def positive_dims(x: SSAValue, dims: Sequence[int]) -> list[int]:
    """Negative dimensions counted from the end; out-of-range ones are left for `infer` to refuse."""
    rank = len(types.shape_of(x))
    return [d + rank if -rank <= d < 0 else d for d in dims]


def cuts(layout: Layout, dim: int) -> int:
    """Number of pieces in which `layout` cuts dimension `dim`."""
    return math.prod(d.axis.size for d in layout.dims[dim])


def factor_cuts(dims: Dims, sizes: dict[str, int], layout: Layout, factor: str) -> int:
    """Number of pieces in which `layout` cuts `factor` of a tensor with these `dims`."""
    count = 1
    for dim, names in enumerate(dims):
        if factor in names:
            minor = math.prod(sizes[f] for f in names[names.index(factor) + 1 :])
            span = minor * sizes[factor]
            for digit in layout.dims[dim]:
                if minor < digit.period <= span:
                    count *= digit.axis.size
    return count


def wide(x: np.ndarray) -> np.ndarray:
    """`x` in the precision in which sums are accumulated: f32 for f16, bf16 and f8, its own otherwise."""
    return x.astype(np.float32) if x.dtype in types.NARROW_FLOATS else x


def python_number(value: np.generic | bool | int | float) -> bool | int | float:
    """`value` as a Python number of the same kind."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return int(value) if isinstance(value, int | np.integer) else float(value)


#: The numpy function of every reduction kind.
UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The elements' products; of complex numbers every part is rounded, where numpy may fuse and keep more digits."""
    if x.dtype.kind != "c":
        return np.asarray(np.multiply(x, y))
    out = np.empty(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    with np.errstate(all="ignore"):
        out.real = x.real * y.real - x.imag * y.imag
        out.imag = x.real * y.imag + x.imag * y.real
    return out


def combine(kind: str, x: np.ndarray, y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """One step of a reduction that rounds every step to `dtype`; operands and result are `wide`."""
    found = product(x, y) if kind == "prod" else np.asarray(UFUNCS[kind](x, y))
    if found.dtype == dtype or kind not in ("sum", "prod"):
        return found
    with np.errstate(over="ignore"):
        return found.astype(dtype).astype(found.dtype)


#: Products of matrices are added one after the other up to so many; beyond, by BLAS in its own order.
_ADDED_IN_ORDER = 1 << 16


def matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Products of matrices ``[..., m, k]`` and ``[..., k, n]``; small ones in the order of StableHLO's interpreter."""
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    terms = math.prod(batch) * x.shape[-2] * y.shape[-2] * y.shape[-1]
    if x.dtype.kind not in "fc" or not 0 < terms <= _ADDED_IN_ORDER:
        return np.asarray(np.matmul(x, y))
    with np.errstate(all="ignore"):
        added = np.add.accumulate(product(x[..., :, :, None], y[..., None, :, :]), axis=-2)
    return np.asarray(added[..., -1, :])


def reduce_array(x: np.ndarray, dims: Sequence[int], kind: str) -> np.ndarray:
    """Reduce `dims` away in the precision of `x`, accumulating narrow floats in f32."""
    if not dims:
        return x
    acc = wide(x)
    initial = identity(kind, acc.dtype)
    return np.asarray(UFUNCS[kind].reduce(acc, axis=tuple(dims), dtype=acc.dtype, initial=initial)).astype(
        x.dtype, copy=False
    )


def check_kind(kind: str, type: types.Type, kinds: Sequence[str]) -> None:
    """Raise ProgramError unless `kind` is one of `kinds` and means something for the element type."""
    if kind not in kinds:
        raise ProgramError(f"unknown kind '{kind}'", remedy=f"use one of {', '.join(kinds)}")
    element = type.element_type
    if (
        (kind in ("and", "or") and types.is_float(element))
        or (kind in ("sum", "prod") and element == types.I1)
        or (kind not in ("sum", "prod") and types.is_complex(element))
    ):
        raise ProgramError(
            f"kind '{kind}' has no meaning for operand 0 of type {types.show(type)}",
            remedy="and, or are for integers and i1; sum, prod for numbers: convert first",
        )


def check_dims(what: str, dims: Sequence[int], type: types.Type, operand: int = 0) -> None:
    """Raise ProgramError unless `dims` are distinct dimensions of the operand's type."""
    rank = len(type.get_shape())
    bad = [d for d in dims if not 0 <= d < rank]
    if bad:
        raise ProgramError(
            f"{what} {list(dims)} names dimension {bad[0]} of operand {operand}, which is {types.show(type)}"
        )
    if len(set(dims)) != len(dims):
        raise ProgramError(f"{what} {list(dims)} names a dimension of {types.show(type)} twice")


def check_length(what: str, values: Sequence[int], type: types.Type, operand: int = 0) -> None:
    """Raise ProgramError unless there is one of `values` per dimension of the operand's type."""
    if len(values) != len(type.get_shape()):
        raise ProgramError(
            f"{what} {list(values)} has {len(values)} entries, but operand {operand} is {types.show(type)}"
        )


def check_element(operand: int, type: types.Type, first: types.Type) -> None:
    """Raise ProgramError unless the operand has the element type of operand 0."""
    if type.element_type != first.element_type:
        raise ProgramError(
            f"operand {operand} is {types.show(type)} but operand 0 is {types.show(first)}",
            remedy="element types must be equal: convert one of them",
        )


def check_integer(operand: int, type: types.Type) -> None:
    """Raise ProgramError unless the operand holds integers."""
    if not types.is_integer(type.element_type):
        raise ProgramError(f"operand {operand} is {types.show(type)}, but indices must be integers")
