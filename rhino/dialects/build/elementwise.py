"""Builder methods of the elementwise ops."""

from __future__ import annotations

from xdsl.ir import SSAValue

from rhino.dialects.build.core import BuilderCore
from rhino.dialects.hlo import elementwise


class ElementwiseBuilder(BuilderCore):
    """Methods take and return SSA values; see the ops of `rhino.dialects.hlo.elementwise`."""

    def negate(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.NegateOp, [x])

    def exp(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.ExpOp, [x])

    def erf(self, x: SSAValue) -> SSAValue:
        return self.emit1(elementwise.ErfOp, [x])

    def add(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.AddOp, [x, y])

    def mul(self, x: SSAValue, y: SSAValue) -> SSAValue:
        return self.emit1(elementwise.MulOp, [x, y])
