"""Between real and complex tensors. A complex cotangent is d(loss)/dx - i d(loss)/dy, see `autodiff`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties, same_types
from rhino.dialects.hlo.common import Cotangents
from rhino.dialects.hlo.pointwise import PointwiseOp, need
from rhino.ir import types

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


@irdl_op_definition
class ComplexOp(PointwiseOp):
    """``%z = hlo.complex %x, %y : tensor<4xf32> -> tensor<4xcomplex<f32>>``: x + iy."""

    name = "hlo.complex"
    lhs = operand_def(PointwiseOp.T)
    rhs = operand_def(PointwiseOp.T)
    result = result_def(TENSOR)
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)"
    LINEAR: ClassVar = ((0, 1),)

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        type = same_types(cls.name, operands)
        return [types.tensor(type.get_shape(), types.complex_of(type.element_type))]

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        x, y = operands
        out = np.empty(np.broadcast_shapes(x.shape, y.shape), np.result_type(x.dtype, np.complex64))
        out.real, out.imag = x, y
        return (out,)

    def gradient(self, b: Builder, dy: SSAValue) -> Cotangents:
        return [b.real(dy), b.negate(b.imag(dy))]


class _PartOp(PointwiseOp):
    """A real number of each complex one."""

    x = operand_def(TENSOR)
    result = result_def(TENSOR)
    assembly_format = "$x attr-dict `:` type($x) `->` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        need(cls.name, operands, floats=False, integers=False, booleans=False, complexes=True)
        return [types.tensor(x.get_shape(), types.real_part(x.element_type))]

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.asarray(type(self).NUMPY(operands[0])),)


@irdl_op_definition
class RealOp(_PartOp):
    """``%x = hlo.real %z : tensor<4xcomplex<f32>> -> tensor<4xf32>``: the real part."""

    name = "hlo.real"
    LINEAR: ClassVar = ((0,),)
    NUMPY: ClassVar = staticmethod(np.real)

    def gradient(self, b: Builder, dy: SSAValue) -> Cotangents:
        return [b.complex(dy, b.full_like(dy, 0))]


@irdl_op_definition
class ImagOp(_PartOp):
    """``%y = hlo.imag %z : tensor<4xcomplex<f32>> -> tensor<4xf32>``: the imaginary part."""

    name = "hlo.imag"
    LINEAR: ClassVar = ((0,),)
    NUMPY: ClassVar = staticmethod(np.imag)

    def gradient(self, b: Builder, dy: SSAValue) -> Cotangents:
        return [b.complex(b.full_like(dy, 0), b.negate(dy))]


@irdl_op_definition
class ComplexAbsOp(_PartOp):
    """``%r = hlo.complex_abs %z : tensor<4xcomplex<f32>> -> tensor<4xf32>``: the modulus, without overflow.

    StableHLO's abs of a complex operand. The derivative at 0 is 0.
    """

    name = "hlo.complex_abs"
    NUMPY: ClassVar = staticmethod(np.abs)

    def gradient(self, b: Builder, dy: SSAValue) -> Cotangents:
        r, zero = self.result, b.full_like(self.result, 0)
        at_zero = b.compare(r, zero, "eq")
        scale = b.div(b.select(at_zero, zero, dy), b.select(at_zero, b.full_like(r, 1), r))
        return [b.complex(b.mul(scale, b.real(self.x)), b.negate(b.mul(scale, b.imag(self.x))))]


OPS: list[type[HloOp]] = [ComplexOp, RealOp, ImagOp, ComplexAbsOp]
