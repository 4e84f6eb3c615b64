"""The `kernel` dialect: regions of `hlo` ops that one generated kernel computes.

```mlir
%y = kernel.region "rows" (%x, %w) ({
^bb0(%a: tensor<4x8xf32>, %b: tensor<8xf32>):
  ...
  kernel.yield %z : tensor<4x8xf32>
}) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
```

A region is isolated from above and equals its body: a backend without kernels runs the body.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Dialect, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from rhino.dialects.hlo.base import HloOp

KINDS = ("pointwise", "rows", "matmul")


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends a kernel region: the values the kernel stores."""

    name = "kernel.yield"
    values = var_operand_def(Attribute)
    assembly_format = "$values attr-dict `:` type($values)"
    traits = traits_def(IsTerminator())

    @staticmethod
    def of(values: Sequence[SSAValue]) -> YieldOp:
        return YieldOp.create(operands=list(values))


@irdl_op_definition
class RegionOp(IRDLOperation):
    """A group of `hlo` ops computed by one kernel; see the module's docstring.

    `kind`: ``pointwise`` (one flat loop), ``rows`` (reductions over trailing dims, one program per rows) or
    ``matmul`` (one `hlo.dot_general` and the elementwise ops that follow it).
    """

    name = "kernel.region"
    inputs = var_operand_def(Attribute)
    outputs = var_result_def(Attribute)
    kind = prop_def(StringAttr)
    body = region_def("single_block")
    assembly_format = "$kind `(` $inputs `)` $body attr-dict `:` functional-type($inputs, $outputs)"
    traits = traits_def(Pure(), IsolatedFromAbove())

    @staticmethod
    def of(kind: str, inputs: Sequence[SSAValue], types: Sequence[Attribute], body: Region) -> RegionOp:
        return RegionOp.create(
            operands=list(inputs),
            result_types=list(types),
            properties={"kind": StringAttr(kind)},
            regions=[body],
        )

    @property
    def yielded(self) -> YieldOp:
        last = self.body.block.last_op
        assert isinstance(last, YieldOp)
        return last

    def verify_(self) -> None:
        if self.kind.data not in KINDS:
            raise VerifyException(f"kernel.region: kind '{self.kind.data}' is not one of {', '.join(KINDS)}")
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException("kernel.region: the body does not end in kernel.yield")
        if [a.type for a in self.body.block.args] != [i.type for i in self.inputs]:
            raise VerifyException("kernel.region: the body's arguments do not have the operands' types")
        if [v.type for v in self.yielded.values] != [o.type for o in self.outputs]:
            raise VerifyException("kernel.region: the body does not yield values of the results' types")
        for op in self.body.block.ops:
            if not isinstance(op, HloOp | YieldOp):
                raise VerifyException(f"kernel.region: {op.name} may not stand in a kernel")

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        """The body's results (numpy)."""
        values: dict[SSAValue, np.ndarray] = dict(zip(self.body.block.args, operands, strict=True))
        for op in self.body.block.ops:
            if isinstance(op, HloOp):
                results = op.evaluate(*(values[o] for o in op.operands))
                values.update(zip(op.results, results, strict=True))
        return tuple(values[v] for v in self.yielded.values)


Kernel = Dialect("kernel", [RegionOp, YieldOp], [])
