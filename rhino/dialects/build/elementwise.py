"""Builder methods of the elementwise ops."""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from rhino.dialects.build.core import BuilderCore
from rhino.dialects.hlo import elementwise, unary
from rhino.dialects.hlo.base import text


class ElementwiseBuilder(BuilderCore):
    """Methods take and return SSA values; see the ops of `rhino.dialects.hlo.elementwise`."""

    def negate(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.NegateOp, [x])

    def stop_gradient(self, x: SSAValue) -> SSAValue:
        """`x`, which derivatives take for a constant."""
        return self.emit1(unary.StopGradientOp, [x])

    def abs(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.AbsOp, [x])

    def sign(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.SignOp, [x])

    def exp(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.ExpOp, [x])

    def expm1(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.Expm1Op, [x])

    def log(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.LogOp, [x])

    def log1p(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.Log1pOp, [x])

    def sqrt(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.SqrtOp, [x])

    def rsqrt(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.RsqrtOp, [x])

    def tanh(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.TanhOp, [x])

    def logistic(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.LogisticOp, [x])

    def sin(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.SinOp, [x])

    def cos(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.CosOp, [x])

    def tan(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.TanOp, [x])

    def erf(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.ErfOp, [x])

    def floor(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.FloorOp, [x])

    def ceil(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.CeilOp, [x])

    def round_even(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.RoundEvenOp, [x])

    def not_(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.NotOp, [x])

    def is_finite(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.IsFiniteOp, [x])

    def add(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.AddOp, [x, y])

    def sub(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.SubOp, [x, y])

    def mul(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.MulOp, [x, y])

    def div(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.DivOp, [x, y])

    def rem(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.RemOp, [x, y])

    def pow(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.PowOp, [x, y])

    def maximum(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.MaximumOp, [x, y])

    def minimum(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.MinimumOp, [x, y])

    def atan2(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.Atan2Op, [x, y])

    def and_(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.AndOp, [x, y])

    def or_(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.OrOp, [x, y])

    def xor(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.XorOp, [x, y])

    def shift_left(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.ShiftLeftOp, [x, y])

    def shift_right_logical(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.ShiftRightLogicalOp, [x, y])

    def shift_right_arithmetic(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.ShiftRightArithmeticOp, [x, y])

    def compare(self, x: SSAValue, y: SSAValue, direction: str) -> SSAValue:
        """Direction is eq, ne, lt, le, gt or ge; the result is i1."""
        return self.emit1(elementwise.CompareOp, [x, y], {"direction": text(direction)})

    def select(self, predicate: SSAValue, on_true: SSAValue, on_false: SSAValue) -> SSAValue:
        return self.emit1(elementwise.SelectOp, [predicate, on_true, on_false])

    def convert(self, x: SSAValue, element_type: Attribute) -> SSAValue:
        return self.emit1(elementwise.ConvertOp, [x], {"element_type": element_type})
