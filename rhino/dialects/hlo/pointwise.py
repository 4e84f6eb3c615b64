"""What all elementwise ops share: the rule, and base classes for one and two operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from xdsl.ir import SSAValue
from xdsl.irdl import VarConstraint, operand_def, result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties, same_types, shapes
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import REDUCTIONS, Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder

Ufunc = Callable[..., np.ndarray]
Groups = tuple[tuple[int, ...], ...]


def elementwise_rule(
    operands: Sequence[Sequence[int]],
    result: Sequence[int],
    linear: Groups = (),
    carries: Mapping[str, Groups] | None = None,
) -> Rule:
    """All dimensions are free and shared by all operands; operands of rank 0 are broadcast."""
    scalars = tuple(not len(shape) for shape in operands)
    return _elementwise_rule(scalars, tuple(result), linear, tuple((carries or {}).items()))


@lru_cache(maxsize=1 << 12)
def _elementwise_rule(
    scalars: tuple[bool, ...],
    result: tuple[int, ...],
    linear: Groups,
    carries: tuple[tuple[str, Groups], ...],
) -> Rule:
    dims = tuple((f"d{i}",) for i in range(len(result)))
    sizes = {f"d{i}": int(e) for i, e in enumerate(result)}
    ins = tuple(() if scalar else dims for scalar in scalars)
    return Rule(ins, (dims,), sizes, {}, linear, carries=dict(carries))


def any_kind(*groups: tuple[int, ...]) -> dict[str, Groups]:
    """`carries` of ops that only pick elements: partials of every kind pass these operand groups."""
    return dict.fromkeys(REDUCTIONS, groups)


def compute(ufunc: Ufunc, *operands: np.ndarray) -> np.ndarray:
    """Apply a numpy function in the operands' own type (16-bit floats: in float32, rounded once)."""
    dtype = operands[0].dtype
    if dtype in types.NARROW_FLOATS:
        operands = tuple(o.astype(np.float32) for o in operands)
    return np.asarray(ufunc(*operands)).astype(dtype, copy=False)


def need(
    name: str,
    operands: Sequence[types.Type],
    *,
    floats: bool,
    integers: bool,
    booleans: bool,
    complexes: bool = False,
) -> None:
    """Raise ProgramError when an element type is not among those the op takes."""
    for i, type in enumerate(operands):
        kind = type.element_type
        if (
            (floats and types.is_float(kind))
            or (integers and types.is_integer(kind))
            or (booleans and kind == types.I1)
            or (complexes and types.is_complex(kind))
        ):
            continue
        known = (("float", floats), ("integer", integers), ("i1", booleans), ("complex", complexes))
        takes = [n for n, on in known if on]
        raise ProgramError(
            f"operand {i} is {types.show(type)}, but {name} takes {' or '.join(takes)} elements",
            remedy="convert it first",
        )


class PointwiseOp(HloOp):
    """Base of ops that work element by element with one result."""

    T: ClassVar = VarConstraint("T", TENSOR)

    #: Which element types the operands may have.
    FLOATS: ClassVar[bool] = True
    INTEGERS: ClassVar[bool] = True
    BOOLEANS: ClassVar[bool] = False
    COMPLEXES: ClassVar[bool] = False
    #: See `rhino.ir.rule`: operand groups through which a partial of a kind may pass.
    CARRIES: ClassVar[Mapping[str, Groups]] = {}
    NUMPY: ClassVar[Ufunc]

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        need(
            cls.name,
            operands,
            floats=cls.FLOATS,
            integers=cls.INTEGERS,
            booleans=cls.BOOLEANS,
            complexes=cls.COMPLEXES,
        )
        return [same_types(cls.name, operands)]

    def rule(self) -> Rule:
        return elementwise_rule(
            shapes(self.operands), types.shape_of(self.results[0]), self.LINEAR, self.CARRIES
        )

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (compute(type(self).NUMPY, *operands),)

    def derivative(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        (dy,) = cotangents
        if dy is None or not types.is_differentiable(types.element_of(self.results[0])):
            return [None] * len(self.operands)
        return self.gradient(builder, dy)

    def gradient(self, b: Builder, dy: SSAValue) -> Sequence[SSAValue | None]:
        """`derivative` where the result has a cotangent; the default is for ops flat almost everywhere."""
        return [None] * len(self.operands)


class UnaryOp(PointwiseOp):
    """``%y = hlo.<name> %x : type``; the result has the operand's type."""

    x = operand_def(PointwiseOp.T)
    result = result_def(PointwiseOp.T)
    assembly_format = "$x attr-dict `:` type($result)"


def in_double(ufunc: Ufunc, *operands: np.ndarray) -> np.ndarray:
    """Apply a function in f64 or complex<f64> and round once.

    So does StableHLO's interpreter. Where values cancel, the last digits of numpy's functions of shorter types count.
    """
    dtype = operands[0].dtype
    if dtype.kind in "iub" or dtype in (np.float64, np.complex128):
        return compute(ufunc, *operands)
    wide = np.complex128 if dtype.kind == "c" else np.float64
    with np.errstate(over="ignore"):
        return np.asarray(ufunc(*(o.astype(wide) for o in operands))).astype(dtype)


class FloatUnaryOp(UnaryOp):
    """A unary op on floating-point tensors only."""

    INTEGERS: ClassVar = False
    #: Whether numpy's function of real numbers of any precision is exact but for the rounding of its result.
    EXACT: ClassVar[bool] = False

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        exact = type(self).EXACT and operands[0].dtype.kind != "c"
        return ((compute if exact else in_double)(type(self).NUMPY, *operands),)


class BinaryOp(PointwiseOp):
    """``%z = hlo.<name> %x, %y : type``; operands and result have one type (no implicit broadcast)."""

    lhs = operand_def(PointwiseOp.T)
    rhs = operand_def(PointwiseOp.T)
    result = result_def(PointwiseOp.T)
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($result)"


class BitwiseOp(BinaryOp):
    """A binary op on integers, bit by bit; on i1 it is the logical op."""

    FLOATS: ClassVar = False
    BOOLEANS: ClassVar = True


class ShiftOp(BinaryOp):
    """Shifts integers by the amounts in the right operand, which count as unsigned."""

    FLOATS: ClassVar = False
