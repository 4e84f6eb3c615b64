"""Elementwise ops of one operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy import special
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties
from rhino.dialects.hlo.pointwise import FloatUnaryOp, PointwiseOp, UnaryOp, any_kind, need
from rhino.ir import types

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder

Gradient = Sequence[SSAValue | None]


def _sign(x: np.ndarray) -> np.ndarray:
    """-1, 0 or 1; a zero keeps its sign."""
    return np.asarray(np.where(x == 0, x, np.sign(x)) if x.dtype.kind == "f" else np.sign(x))


@irdl_op_definition
class NegateOp(UnaryOp):
    """``%y = hlo.negate %x : tensor<4xf32>``"""

    name = "hlo.negate"
    COMPLEXES: ClassVar = True
    LINEAR: ClassVar = ((0,),)
    NUMPY: ClassVar = staticmethod(np.negative)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [b.negate(dy)]


@irdl_op_definition
class StopGradientOp(UnaryOp):
    """``%y = hlo.stop_gradient %x : tensor<4xf32>``: the operand, a constant to derivatives.

    `autodiff` removes it once the gradients stand.
    """

    name = "hlo.stop_gradient"
    COMPLEXES: ClassVar = True
    BOOLEANS: ClassVar = True
    LINEAR: ClassVar = ((0,),)
    CARRIES: ClassVar = any_kind((0,))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return operands

    def flops(self) -> int:
        return 0


@irdl_op_definition
class AbsOp(UnaryOp):
    """``%y = hlo.abs %x : tensor<4xf32>``; its derivative at 0 is 0."""

    name = "hlo.abs"
    NUMPY: ClassVar = staticmethod(np.abs)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [b.mul(dy, b.sign(self.x))]


@irdl_op_definition
class SignOp(UnaryOp):
    """``%y = hlo.sign %x : tensor<4xf32>``: -1, 0 or 1; of -0.0 it is -0.0."""

    name = "hlo.sign"
    NUMPY: ClassVar = staticmethod(_sign)


@irdl_op_definition
class ExpOp(FloatUnaryOp):
    """``%y = hlo.exp %x : tensor<4xf32>``"""

    name = "hlo.exp"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(np.exp)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [b.mul(dy, self.result)]


def _expm1(z: np.ndarray) -> np.ndarray:
    """Of x + iy: expm1(x) cos(y) - 2 sin(y/2)^2 + i exp(x) sin(y), of which nothing cancels near 0."""
    if z.dtype.kind != "c":
        return np.asarray(np.expm1(z))
    x, y = z.real, z.imag
    out = np.empty_like(z)
    out.real = np.expm1(x) * np.cos(y) - 2 * np.sin(y / 2) ** 2
    real = y == 0
    out.real[real] = np.expm1(x[real])
    out.imag = np.where(real, y, np.exp(x) * np.sin(y))
    return np.where(x == -np.inf, -1 + 0j, out)


@irdl_op_definition
class Expm1Op(FloatUnaryOp):
    """``%y = hlo.expm1 %x : tensor<4xf32>``: exp(x) - 1, exact near 0."""

    name = "hlo.expm1"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(_expm1)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [b.mul(dy, b.add(self.result, b.full_like(self.x, 1)))]


@irdl_op_definition
class LogOp(FloatUnaryOp):
    """``%y = hlo.log %x : tensor<4xf32>``"""

    name = "hlo.log"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(np.log)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [b.div(dy, self.x)]


def _log1p(z: np.ndarray) -> np.ndarray:
    """Of x + iy, where |1 + z| is near 1: log1p(2x + x^2 + y^2) / 2 + i atan2(y, 1 + x)."""
    if z.dtype.kind != "c":
        return np.asarray(np.log1p(z))
    x, y = z.real, z.imag
    out = np.array(np.log(1 + z))
    near = (np.abs(x) < 0.5) & (np.abs(y) < 0.5)
    out.real[near] = np.log1p(x * (2 + x) + y * y)[near] / 2
    out.imag = np.arctan2(y, 1 + x)
    return np.asarray(out)


@irdl_op_definition
class Log1pOp(FloatUnaryOp):
    """``%y = hlo.log1p %x : tensor<4xf32>``: log(1 + x), exact near 0."""

    name = "hlo.log1p"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(_log1p)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [b.div(dy, b.add(self.x, b.full_like(self.x, 1)))]


@irdl_op_definition
class SqrtOp(FloatUnaryOp):
    """``%y = hlo.sqrt %x : tensor<4xf32>``; its derivative at 0 is infinite."""

    name = "hlo.sqrt"
    COMPLEXES: ClassVar = True
    EXACT: ClassVar = True
    NUMPY: ClassVar = staticmethod(np.sqrt)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [b.div(dy, b.mul(self.result, b.full_like(self.x, 2)))]


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return np.reciprocal(np.sqrt(x))


@irdl_op_definition
class RsqrtOp(FloatUnaryOp):
    """``%y = hlo.rsqrt %x : tensor<4xf32>``: 1 / sqrt(x)."""

    name = "hlo.rsqrt"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(_rsqrt)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        y = self.result
        return [b.mul(b.mul(dy, b.full_like(y, -0.5)), b.mul(y, b.mul(y, y)))]


@irdl_op_definition
class TanhOp(FloatUnaryOp):
    """``%y = hlo.tanh %x : tensor<4xf32>``"""

    name = "hlo.tanh"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(np.tanh)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        y = self.result
        return [b.mul(dy, b.sub(b.full_like(y, 1), b.mul(y, y)))]


def _logistic(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind != "c":
        return np.asarray(special.expit(x))
    # Of numbers whose exp overflows the quotient is NaN, the logistic 0.
    return np.asarray(np.where(x.real < -700, np.exp(x), 1 / (1 + np.exp(-x))), x.dtype)


@irdl_op_definition
class LogisticOp(FloatUnaryOp):
    """``%y = hlo.logistic %x : tensor<4xf32>``: 1 / (1 + exp(-x)), also called sigmoid."""

    name = "hlo.logistic"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(_logistic)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        y = self.result
        return [b.mul(dy, b.mul(b.sub(b.full_like(y, 1), y), y))]


@irdl_op_definition
class SinOp(FloatUnaryOp):
    """``%y = hlo.sin %x : tensor<4xf32>``"""

    name = "hlo.sin"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(np.sin)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [b.mul(dy, b.cos(self.x))]


@irdl_op_definition
class CosOp(FloatUnaryOp):
    """``%y = hlo.cos %x : tensor<4xf32>``"""

    name = "hlo.cos"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(np.cos)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        return [b.negate(b.mul(dy, b.sin(self.x)))]


@irdl_op_definition
class TanOp(FloatUnaryOp):
    """``%y = hlo.tan %x : tensor<4xf32>``"""

    name = "hlo.tan"
    COMPLEXES: ClassVar = True
    NUMPY: ClassVar = staticmethod(np.tan)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        y = self.result
        return [b.mul(dy, b.add(b.mul(y, y), b.full_like(y, 1)))]


@irdl_op_definition
class ErfOp(FloatUnaryOp):
    """``%y = hlo.erf %x : tensor<4xf32>``: the error function."""

    name = "hlo.erf"
    NUMPY: ClassVar = staticmethod(special.erf)

    def gradient(self, b: Builder, dy: SSAValue) -> Gradient:
        bell = b.exp(b.negate(b.mul(self.x, self.x)))
        return [b.mul(dy, b.mul(bell, b.full_like(self.x, 2 / np.sqrt(np.pi))))]


@irdl_op_definition
class FloorOp(FloatUnaryOp):
    """``%y = hlo.floor %x : tensor<4xf32>``"""

    name = "hlo.floor"
    EXACT: ClassVar = True
    NUMPY: ClassVar = staticmethod(np.floor)


@irdl_op_definition
class CeilOp(FloatUnaryOp):
    """``%y = hlo.ceil %x : tensor<4xf32>``"""

    name = "hlo.ceil"
    EXACT: ClassVar = True
    NUMPY: ClassVar = staticmethod(np.ceil)


@irdl_op_definition
class RoundEvenOp(FloatUnaryOp):
    """``%y = hlo.round_even %x : tensor<4xf32>``: to the nearest integer, halves to the even one."""

    name = "hlo.round_even"
    EXACT: ClassVar = True
    NUMPY: ClassVar = staticmethod(np.rint)


@irdl_op_definition
class NotOp(UnaryOp):
    """``%y = hlo.not %x : tensor<4xi1>``: bitwise on integers, logical on i1."""

    name = "hlo.not"
    FLOATS: ClassVar = False
    BOOLEANS: ClassVar = True
    NUMPY: ClassVar = staticmethod(np.invert)


@irdl_op_definition
class IsFiniteOp(PointwiseOp):
    """``%y = hlo.is_finite %x : tensor<4xf32> -> tensor<4xi1>``: false for infinities and NaN."""

    name = "hlo.is_finite"
    x = operand_def(TENSOR)
    result = result_def(TENSOR)
    assembly_format = "$x attr-dict `:` type($x) `->` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        need(cls.name, operands, floats=True, integers=False, booleans=False)
        return [types.tensor(operands[0].get_shape(), types.I1)]

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.asarray(np.isfinite(operands[0].astype(np.float64))),)


OPS: list[type[HloOp]] = [
    NegateOp,
    StopGradientOp,
    AbsOp,
    SignOp,
    ExpOp,
    Expm1Op,
    LogOp,
    Log1pOp,
    SqrtOp,
    RsqrtOp,
    TanhOp,
    LogisticOp,
    SinOp,
    CosOp,
    TanOp,
    ErfOp,
    FloorOp,
    CeilOp,
    RoundEvenOp,
    NotOp,
    IsFiniteOp,
]
