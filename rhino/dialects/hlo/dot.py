"""General matrix product: batch dimensions, contracted dimensions, free dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties, get_ints
from rhino.dialects.hlo.common import Cotangents, check_dims, check_element, ints_def, matmul, wide
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.reshape import dot_rule
from rhino.ir.rule import Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder

_NAMES = ("lhs_batch", "rhs_batch", "lhs_contract", "rhs_contract")


def _free(rank: int, *taken: Sequence[int]) -> list[int]:
    gone = {d for dims in taken for d in dims}
    return [d for d in range(rank) if d not in gone]


@irdl_op_definition
class DotGeneralOp(HloOp):
    """Result dimensions: the batch dimensions, the free ones of the left, the free ones of the right operand.

    ``%z = hlo.dot_general %x, %y batch [0] x [0] contract [2] x [1]
      : (tensor<4x2x8xf32>, tensor<4x8x3xf32>) -> tensor<4x2x3xf32>``

    f16 and bf16 are accumulated in f32.
    """

    name = "hlo.dot_general"
    lhs = operand_def(TENSOR)
    rhs = operand_def(TENSOR)
    lhs_batch = ints_def()
    rhs_batch = ints_def()
    lhs_contract = ints_def()
    rhs_contract = ints_def()
    result = result_def(TENSOR)
    assembly_format = (
        "$lhs `,` $rhs `batch` $lhs_batch `x` $rhs_batch `contract` $lhs_contract `x` $rhs_contract "
        "attr-dict `:` functional-type(operands, results)"
    )

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        x, y = operands
        batch_x, batch_y, contract_x, contract_y = (get_ints(properties, n) for n in _NAMES)
        check_element(1, y, x)
        if x.element_type == types.I1:
            raise ProgramError(
                f"operands are {types.show(x)} and {types.show(y)}, but a product needs numbers",
                remedy="convert them first",
            )
        check_dims("the left batch and contract dims", (*batch_x, *contract_x), x, 0)
        check_dims("the right batch and contract dims", (*batch_y, *contract_y), y, 1)
        shape_x, shape_y = x.get_shape(), y.get_shape()
        for what, left, right in (("batch", batch_x, batch_y), ("contract", contract_x, contract_y)):
            if len(left) != len(right):
                raise ProgramError(f"{what} dims {list(left)} and {list(right)} differ in number")
            for dx, dy in zip(left, right, strict=True):
                if shape_x[dx] != shape_y[dy]:
                    raise ProgramError(
                        f"operand 0 is {types.show(x)} and operand 1 is {types.show(y)}: {what} dimensions "
                        f"{dx} and {dy} have extents {shape_x[dx]} and {shape_y[dy]}"
                    )
        shape = [shape_x[d] for d in (*batch_x, *_free(len(shape_x), batch_x, contract_x))]
        shape += [shape_y[d] for d in _free(len(shape_y), batch_y, contract_y)]
        return [types.tensor(shape, x.element_type)]

    @property
    def dims(self) -> tuple[tuple[int, ...], ...]:
        """Left batch, right batch, left contracted, right contracted dimensions."""
        return tuple(get_ints(self.properties, name) for name in _NAMES)

    def rule(self) -> Rule:
        return dot_rule(types.shape_of(self.lhs), types.shape_of(self.rhs), *self.dims)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        x, y = operands
        batch_x, batch_y, contract_x, contract_y = self.dims
        free_x, free_y = _free(x.ndim, batch_x, contract_x), _free(y.ndim, batch_y, contract_y)
        batch = [x.shape[d] for d in batch_x]
        k = math.prod(x.shape[d] for d in contract_x)
        left = wide(x).transpose(*batch_x, *free_x, *contract_x)
        right = wide(y).transpose(*batch_y, *contract_y, *free_y)
        rows, columns = [x.shape[d] for d in free_x], [y.shape[d] for d in free_y]
        out = matmul(left.reshape(*batch, math.prod(rows), k), right.reshape(*batch, k, math.prod(columns)))
        return (out.reshape((*batch, *rows, *columns)).astype(x.dtype, copy=False),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        batch_x, batch_y, contract_x, contract_y = self.dims
        free_x = _free(len(types.shape_of(self.lhs)), batch_x, contract_x)
        free_y = _free(len(types.shape_of(self.rhs)), batch_y, contract_y)
        n = len(batch_x)
        rows = list(range(n, n + len(free_x)))
        columns = list(range(n + len(free_x), n + len(free_x) + len(free_y)))
        return [
            _operand_gradient(builder, dy, rows, columns, self.rhs, batch_y, free_y, contract_y,
                              (batch_x, free_x, contract_x)),
            _operand_gradient(builder, dy, columns, rows, self.lhs, batch_x, free_x, contract_x,
                              (batch_y, free_y, contract_y)),
        ]  # fmt: skip

    def flops(self) -> int:
        contracted = math.prod(types.shape_of(self.lhs)[d] for d in get_ints(self.properties, "lhs_contract"))
        return 2 * contracted * math.prod(types.shape_of(self.result))


def _operand_gradient(
    b: Builder,
    dy: SSAValue,
    mine: Sequence[int],
    others: Sequence[int],
    other: SSAValue,
    batch: Sequence[int],
    free: Sequence[int],
    contract: Sequence[int],
    target: tuple[Sequence[int], Sequence[int], Sequence[int]],
) -> SSAValue:
    """Gradient of one operand: `dy` times the `other` operand over the latter's `free` dimensions.

    `mine`, `others` are the dimensions of `dy` that come from the two operands; `target` the (batch, free,
    contracted) dimensions of the operand, in the order of those of `dy` and of `contract`.
    """
    batch_t, free_t, contract_t = target
    # The contracted dimensions appear in the order in which they stand in the other operand.
    late = [contract_t[i] for i in sorted(range(len(contract)), key=lambda i: contract[i])]
    over_dy, over_other = tuple(others), tuple(free)
    pairs = tuple(range(len(batch)))
    straight, swapped = [*batch_t, *free_t, *late], [*batch_t, *late, *free_t]
    if swapped == sorted(swapped):  # no transpose needed this way round
        return b.dot_general(other, dy, (tuple(batch), pairs), (over_other, over_dy))
    product = b.dot_general(dy, other, (pairs, tuple(batch)), (over_dy, over_other))
    return b.transpose(product, [straight.index(d) for d in range(len(straight))])


OPS: list[type[HloOp]] = [DotGeneralOp]
