"""Elementwise ops: all of `unary` and `binary`, and those whose operand and result types differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import VarConstraint, irdl_op_definition, operand_def, prop_def, result_def

from rhino.dialects.hlo import binary, unary
from rhino.dialects.hlo.base import TENSOR, HloOp, Properties, get_text, same_types, shapes
from rhino.dialects.hlo.binary import (
    AddOp,
    AndOp,
    Atan2Op,
    DivOp,
    MaximumOp,
    MinimumOp,
    MulOp,
    OrOp,
    PowOp,
    RemOp,
    ShiftLeftOp,
    ShiftRightArithmeticOp,
    ShiftRightLogicalOp,
    SubOp,
    XorOp,
)
from rhino.dialects.hlo.pointwise import BinaryOp, PointwiseOp, UnaryOp, any_kind, elementwise_rule
from rhino.dialects.hlo.unary import (
    AbsOp,
    CeilOp,
    CosOp,
    ErfOp,
    Expm1Op,
    ExpOp,
    FloorOp,
    IsFiniteOp,
    Log1pOp,
    LogisticOp,
    LogOp,
    NegateOp,
    NotOp,
    RoundEvenOp,
    RsqrtOp,
    SignOp,
    SinOp,
    SqrtOp,
    TanhOp,
    TanOp,
)
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder

Gradient = Sequence[SSAValue | None]

DIRECTIONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@irdl_op_definition
class CompareOp(PointwiseOp):
    """``%p = hlo.compare "lt", %x, %y : tensor<4xf32> -> tensor<4xi1>``: eq, ne, lt, le, gt or ge.

    With NaN everything but ne is false; i1 counts as 0 and 1.
    """

    name = "hlo.compare"
    lhs = operand_def(PointwiseOp.T)
    rhs = operand_def(PointwiseOp.T)
    direction = prop_def(StringAttr)
    result = result_def(TENSOR)
    assembly_format = "$direction `,` $lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        direction = get_text(properties, "direction")
        if direction not in DIRECTIONS:
            raise ProgramError(f"no comparison '{direction}'", remedy=f"use one of {', '.join(DIRECTIONS)}")
        type = same_types(cls.name, operands)
        if types.is_complex(type.element_type) and direction not in ("eq", "ne"):
            raise ProgramError(f"operand 0 is {types.show(type)}: complex numbers have no order")
        return [types.tensor(type.get_shape(), types.I1)]

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.asarray(DIRECTIONS[self.direction.data](*operands), dtype=np.bool_),)


@irdl_op_definition
class SelectOp(HloOp):
    """``%z = hlo.select %p, %x, %y : tensor<4xi1>, tensor<4xf32>``: x where p holds, y elsewhere.

    `p` has the operands' shape, or is a scalar that decides for all elements.
    """

    name = "hlo.select"
    T: ClassVar = VarConstraint("T", TENSOR)
    predicate = operand_def(TENSOR)
    on_true = operand_def(T)
    on_false = operand_def(T)
    result = result_def(T)
    assembly_format = "$predicate `,` $on_true `,` $on_false attr-dict `:` type($predicate) `,` type($result)"
    LINEAR: ClassVar = ((1, 2),)

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        predicate, x, y = operands
        if x != y:
            raise ProgramError(
                f"operand 2 is {types.show(y)} but operand 1 is {types.show(x)}",
                remedy="both choices must have one type; use broadcast or convert first",
            )
        if predicate.element_type != types.I1 or predicate.get_shape() not in ((), x.get_shape()):
            raise ProgramError(
                f"operand 0 is {types.show(predicate)}, but the choices are {types.show(x)}",
                remedy=f"the predicate must be i1[] or i1{list(x.get_shape())}",
            )
        return [x]

    def rule(self) -> Rule:
        return elementwise_rule(
            shapes(self.operands), types.shape_of(self.result), self.LINEAR, any_kind((1, 2))
        )

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.asarray(np.where(*operands)),)

    def derivative(self, builder: Builder, cotangents: Sequence[SSAValue | None]) -> Gradient:
        (dy,) = cotangents
        if dy is None or not types.is_differentiable(types.element_of(self.result)):
            return [None, None, None]
        zero = builder.full_like(dy, 0)
        return [
            None,
            builder.select(self.predicate, dy, zero),
            builder.select(self.predicate, zero, dy),
        ]


@irdl_op_definition
class ConvertOp(HloOp):
    """``%y = hlo.convert %x to bf16 : tensor<4xf32> -> tensor<4xbf16>``

    Between floats: round to nearest even. Float to integer: truncate, what does not fit becomes the nearest
    that does, NaN 0. To i1: whether it differs from 0. Complex to real: the real part.
    """

    name = "hlo.convert"
    x = operand_def(TENSOR)
    element_type = prop_def(Attribute)
    result = result_def(TENSOR)
    assembly_format = "$x `to` $element_type attr-dict `:` type($x) `->` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        types.numpy_dtype(operands[0].element_type)
        types.numpy_dtype(properties["element_type"])
        return [types.tensor(operands[0].get_shape(), properties["element_type"])]

    def rule(self) -> Rule:
        shape = types.shape_of(self.result)
        source, target = types.element_of(self.x), self.element_type
        # A partial passes only if no element is rounded: the sum of rounded parts is not the rounded sum.
        exact = types.widens(source, target)
        carries = {kind: ((0,),) for kind in ("max", "min")} if exact else {}
        # Integers wrap: in a wider type, parts whose sum wrapped would add up to something else.
        sums = exact and (types.is_float(source) or source == target)
        if types.is_complex(source) or types.is_complex(target):  # the real part of a sum is the sum of them
            parts = types.real_part(source), types.real_part(target)
            sums = types.is_differentiable(source) and types.widens(*parts)
        return elementwise_rule([shape], shape, ((0,),) if sums else (), carries)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        dtype = types.numpy_dtype(self.element_type)
        (x,) = operands
        if x.dtype.kind == "c" and dtype.kind != "c":
            x = np.asarray(x != 0 if dtype == np.bool_ else x.real)
        if "V" in (x.dtype.kind, dtype.kind) and x.dtype.kind in "iub":
            x = x.astype(np.float64)
        if dtype.kind in "iu" and x.dtype.kind in "fV":
            return (_truncated(x, dtype),)
        return (np.asarray(x.astype(dtype)),)

    def derivative(self, builder: Builder, cotangents: Sequence[SSAValue | None]) -> Gradient:
        (dy,) = cotangents
        source = types.element_of(self.x)
        if dy is None or not all(map(types.is_differentiable, (source, self.element_type))):
            return [None]
        return [builder.convert(dy, source)]


def _truncated(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Floats as integers: toward zero, saturating, NaN as 0 (numpy leaves all but the first undefined)."""
    wide = x.astype(np.float32) if x.dtype in types.NARROW_FLOATS else x
    info = np.iinfo(dtype)
    # The highest integer may be no float; the first float beyond it is 2^bits.
    high = wide >= wide.dtype.type(info.max // 2 + 1) * 2
    low, odd = wide < info.min, np.isnan(wide)
    out = np.where(high | low | odd, wide.dtype.type(0), wide).astype(dtype)
    return np.where(high, info.max, np.where(low, info.min, out)).astype(dtype)


OPS: list[type[HloOp]] = [*unary.OPS, *binary.OPS, CompareOp, SelectOp, ConvertOp]

__all__ = [
    "DIRECTIONS",
    "OPS",
    "AbsOp",
    "AddOp",
    "AndOp",
    "Atan2Op",
    "BinaryOp",
    "CeilOp",
    "CompareOp",
    "ConvertOp",
    "CosOp",
    "DivOp",
    "ErfOp",
    "ExpOp",
    "Expm1Op",
    "FloorOp",
    "IsFiniteOp",
    "Log1pOp",
    "LogOp",
    "LogisticOp",
    "MaximumOp",
    "MinimumOp",
    "MulOp",
    "NegateOp",
    "NotOp",
    "OrOp",
    "PointwiseOp",
    "PowOp",
    "RemOp",
    "RoundEvenOp",
    "RsqrtOp",
    "SelectOp",
    "ShiftLeftOp",
    "ShiftRightArithmeticOp",
    "ShiftRightLogicalOp",
    "SignOp",
    "SinOp",
    "SqrtOp",
    "SubOp",
    "TanOp",
    "TanhOp",
    "UnaryOp",
    "XorOp",
    "elementwise_rule",
]
