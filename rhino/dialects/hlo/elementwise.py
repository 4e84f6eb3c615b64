"""Elementwise arithmetic: one value in, one value out, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy import special
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import VarConstraint, base, irdl_op_definition, operand_def, result_def

from rhino.dialects.hlo.base import HloOp, Properties, same_types, shapes
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder

Ufunc = Callable[..., np.ndarray]


def elementwise_rule(
    operands: Sequence[Sequence[int]], result: Sequence[int], linear: Sequence[Sequence[int]] = ()
) -> Rule:
    """All dimensions are free and shared by all operands."""
    dims = tuple((f"d{i}",) for i in range(len(result)))
    sizes = {f"d{i}": int(e) for i, e in enumerate(result)}
    return Rule((dims,) * len(operands), (dims,), sizes, {}, tuple(tuple(g) for g in linear))


class UnaryOp(HloOp):
    """``%y = hlo.<name> %x : type``; the result has the operand's type."""

    T: ClassVar = VarConstraint("T", base(TensorType[Attribute]))
    x = operand_def(T)
    result = result_def(T)
    assembly_format = "$x attr-dict `:` type($result)"

    NUMPY: ClassVar[Ufunc]

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        return [operands[0]]

    def rule(self) -> Rule:
        return elementwise_rule(shapes(self.operands), types.shape_of(self.result), self.LINEAR)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = operands
        return (type(self).NUMPY(x).astype(x.dtype, copy=False),)


class FloatUnaryOp(UnaryOp):
    """A unary op on floating-point tensors only."""

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        if not types.is_float(operands[0].element_type):
            raise ProgramError(
                f"operand 0 is {types.show(operands[0])}, but {cls.name} needs floating point",
                remedy="convert it first",
            )
        return [operands[0]]


@irdl_op_definition
class NegateOp(UnaryOp):
    name = "hlo.negate"
    LINEAR: ClassVar = ((0,),)
    NUMPY: ClassVar = staticmethod(np.negative)

    def derivative(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        (dy,) = cotangents
        assert dy is not None
        return [builder.negate(dy)]


@irdl_op_definition
class ExpOp(FloatUnaryOp):
    name = "hlo.exp"
    NUMPY: ClassVar = staticmethod(np.exp)

    def derivative(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        (dy,) = cotangents
        assert dy is not None
        return [builder.mul(dy, self.result)]


@irdl_op_definition
class ErfOp(FloatUnaryOp):
    name = "hlo.erf"
    NUMPY: ClassVar = staticmethod(special.erf)

    def derivative(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        (dy,) = cotangents
        assert dy is not None
        slope = builder.mul(
            builder.exp(builder.negate(builder.mul(self.x, self.x))),
            builder.full_like(self.x, 2 / np.sqrt(np.pi)),
        )
        return [builder.mul(dy, slope)]


class BinaryOp(HloOp):
    """``%z = hlo.<name> %x, %y : type``; both operands and the result have one type (no implicit broadcast)."""

    T: ClassVar = VarConstraint("T", base(TensorType[Attribute]))
    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(T)
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($result)"

    NUMPY: ClassVar[Ufunc]

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        return [same_types(cls.name, operands)]

    def rule(self) -> Rule:
        return elementwise_rule(shapes(self.operands), types.shape_of(self.result), self.LINEAR)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        x, y = operands
        return (type(self).NUMPY(x, y).astype(x.dtype, copy=False),)


@irdl_op_definition
class AddOp(BinaryOp):
    name = "hlo.add"
    LINEAR: ClassVar = ((0, 1),)
    NUMPY: ClassVar = staticmethod(np.add)

    def derivative(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        return [cotangents[0], cotangents[0]]


@irdl_op_definition
class MulOp(BinaryOp):
    name = "hlo.mul"
    LINEAR: ClassVar = ((0,), (1,))
    NUMPY: ClassVar = staticmethod(np.multiply)

    def derivative(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        (dy,) = cotangents
        assert dy is not None
        return [builder.mul(dy, self.rhs), builder.mul(dy, self.lhs)]


OPS = [NegateOp, ExpOp, ErfOp, AddOp, MulOp]
