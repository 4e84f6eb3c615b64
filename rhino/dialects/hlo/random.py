"""Random numbers that depend on a seed and an element's index alone, hence not on how the tensor is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties, shapes
from rhino.dialects.hlo.pointwise import elementwise_rule
from rhino.ir import philox, types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Rule

#: Integer operations of ten Philox rounds: two multiplications, four xors and two additions each.
_FLOPS = 80


@irdl_op_definition
class RandomUniformOp(HloOp):
    """``%u = hlo.random_uniform %seed, %i to f32 : tensor<i64>, tensor<4xi64> -> tensor<4xf32>``

    Uniform in [0, 1), a function of the seed and of each index (see `rhino.ir.philox`). `index` holds
    *global* element indices, so the op is elementwise and its bits are the same under every layout.
    """

    name = "hlo.random_uniform"
    seed = operand_def(TENSOR)
    index = operand_def(TENSOR)
    element_type = prop_def(Attribute)
    result = result_def(TENSOR)
    assembly_format = (
        "$seed `,` $index `to` $element_type attr-dict `:` type($seed) `,` type($index) `->` type($result)"
    )
    LINEAR: ClassVar = ()

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        seed, index = operands
        if seed != types.tensor([], types.I64):
            raise ProgramError(f"operand 0 is {types.show(seed)}, but the seed must be i64[]")
        if index.element_type != types.I64:
            raise ProgramError(f"operand 1 is {types.show(index)}, but indices must be i64")
        element = properties["element_type"]
        if not types.is_float(element):
            name = types.element_name(element)
            raise ProgramError(f"no random numbers of type {name}", remedy="use a float type")
        return [types.tensor(index.get_shape(), element)]

    def rule(self) -> Rule:
        return elementwise_rule(shapes(self.operands), types.shape_of(self.result))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        seed, index = operands
        return (philox.uniform(int(seed), index, types.numpy_dtype(self.element_type)),)

    def flops(self) -> int:
        return _FLOPS * super().flops()


OPS: list[type[HloOp]] = [RandomUniformOp]
