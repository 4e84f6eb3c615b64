"""Builder methods of the reducing ops."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, SSAValue

from rhino.dialects.build.core import BuilderCore
from rhino.dialects.hlo import reduce as ops
from rhino.dialects.hlo.base import integer, ints, text
from rhino.dialects.hlo.common import positive_dims


class ReduceBuilder(BuilderCore):
    """Methods take and return SSA values; see the ops of `rhino.dialects.hlo.reduce`.

    Negative dimensions count from the end.
    """

    def reduce(self, x: SSAValue, dims: Sequence[int], kind: str) -> SSAValue:
        """Combine `dims` by `kind` (sum, max, min, prod, and, or) and remove them; `x` if there are none."""
        if not dims:
            return x
        return self.emit1(ops.ReduceOp, [x], {"kind": text(kind), "dims": ints(positive_dims(x, dims))})

    def argmax(self, x: SSAValue, dim: int) -> SSAValue:
        """Index (i64) of the first maximum along `dim`, which is removed."""
        return self.emit1(ops.ArgMaxOp, [x], {"dim": integer(positive_dims(x, [dim])[0])})

    def argmin(self, x: SSAValue, dim: int) -> SSAValue:
        """Index (i64) of the first minimum along `dim`, which is removed."""
        return self.emit1(ops.ArgMinOp, [x], {"dim": integer(positive_dims(x, [dim])[0])})

    def cumulative(self, x: SSAValue, dim: int, kind: str, reverse: bool = False) -> SSAValue:
        """Running reduction along `dim`, from its end if `reverse`."""
        properties: dict[str, Attribute] = {
            "kind": text(kind),
            "dim": integer(positive_dims(x, [dim])[0]),
        }
        if reverse:
            properties["reverse"] = UnitAttr()
        return self.emit1(ops.CumulativeOp, [x], properties)
