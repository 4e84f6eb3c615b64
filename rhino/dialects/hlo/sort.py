"""Ops that order elements along a dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import UnitAttr
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    var_operand_def,
    var_result_def,
)

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties, get_integer
from rhino.dialects.hlo.common import Cotangents, check_dims, integer_def, wide
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Dims, Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


def argsort(x: np.ndarray, dim: int, descending: bool) -> np.ndarray:
    """The stable permutation that sorts `x`; a NaN is the largest, first when descending."""
    keys = wide(x)
    if not descending:
        return np.argsort(keys, axis=dim, kind="stable")
    # A stable descending order is the reverse of the stable ascending order of the reversed array.
    back = np.flip(np.argsort(np.flip(keys, dim), axis=dim, kind="stable"), dim)
    return x.shape[dim] - 1 - back


def _dims_but(shape: Sequence[int], dim: int, name: str) -> tuple[Dims, dict[str, int]]:
    dims = tuple((f"i{d}" if d != dim else name,) for d in range(len(shape)))
    return dims, {f: n for (f,), n in zip(dims, shape, strict=True)}


def _comparisons(shape: Sequence[int], dim: int) -> int:
    return math.prod(shape) * max(1, math.ceil(math.log2(max(2, shape[dim]))))


@irdl_op_definition
class SortOp(HloOp):
    """All operands reordered along `dim` so that the first is sorted; equal elements keep their order.

    ``%a, %b = hlo.sort %x, %i dim 0 : (tensor<4xf32>, tensor<4xi64>) -> (tensor<4xf32>, tensor<4xi64>)``
    ``%c = hlo.sort %x dim 0 descending : (tensor<4xf32>) -> tensor<4xf32>``

    A NaN counts as the largest element.
    """

    name = "hlo.sort"
    xs = var_operand_def(TENSOR)
    dim = integer_def()
    descending = opt_prop_def(UnitAttr)
    ys = var_result_def(TENSOR)
    assembly_format = (
        "$xs `dim` $dim (`descending` $descending^)? attr-dict `:` functional-type(operands, results)"
    )

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        if not operands:
            raise ProgramError("there are no operands to sort")
        check_dims("dim", [get_integer(properties, "dim")], operands[0])
        for i, x in enumerate(operands[1:], 1):
            if x.get_shape() != operands[0].get_shape():
                raise ProgramError(
                    f"operand {i} is {types.show(x)} but operand 0 is {types.show(operands[0])}"
                )
        return list(operands)

    def rule(self) -> Rule:
        dims, sizes = _dims_but(types.shape_of(self.xs[0]), get_integer(self.properties, "dim"), "s")
        return Rule((dims,) * len(self.xs), (dims,) * len(self.xs), sizes, {"s": "whole"})

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        dim = get_integer(self.properties, "dim")
        order = argsort(operands[0], dim, self.descending is not None)
        return tuple(np.take_along_axis(x, order, dim) for x in operands)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        dim, descending = get_integer(self.properties, "dim"), self.descending is not None
        counter = builder.iota(types.tensor(types.shape_of(self.xs[0]), types.I64), dim)
        _, order = builder.sort([self.xs[0], counter], dim, descending)
        return [
            None if dy is None else builder.scatter_along(builder.full_like(x, 0), order, dy, dim, "add")
            for x, dy in zip(self.xs, cotangents, strict=True)
        ]

    def flops(self) -> int:
        return _comparisons(types.shape_of(self.xs[0]), get_integer(self.properties, "dim"))


@irdl_op_definition
class TopKOp(HloOp):
    """The `k` largest elements along the last dimension, descending, and their indices; equals in order.

    ``%v, %i = hlo.top_k %x k 2 : tensor<3x8xf32> -> tensor<3x2xf32>, tensor<3x2xi64>``

    A NaN counts as the largest element.
    """

    name = "hlo.top_k"
    x = operand_def(TENSOR)
    k = integer_def()
    values = result_def(TENSOR)
    indices = result_def(TENSOR)
    assembly_format = "$x `k` $k attr-dict `:` type($x) `->` type($values) `,` type($indices)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        k, shape = get_integer(properties, "k"), x.get_shape()
        if not shape or not 0 <= k <= shape[-1]:
            raise ProgramError(f"k is {k}, but operand 0 is {types.show(x)}")
        shape = (*shape[:-1], k)
        return [types.tensor(shape, x.element_type), types.tensor(shape, types.I64)]

    def rule(self) -> Rule:
        shape = types.shape_of(self.x)
        dims, sizes = _dims_but(shape, len(shape) - 1, "s")
        small = (*dims[:-1], ("k",))
        sizes["k"] = get_integer(self.properties, "k")
        return Rule((dims,), (small, small), sizes, {"s": "whole", "k": "whole"})

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = operands
        order = argsort(x, -1, True)[..., : get_integer(self.properties, "k")]
        return np.take_along_axis(x, order, -1), order

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        dy, last = cotangents[0], len(types.shape_of(self.x)) - 1
        if dy is None:
            return [None]
        return [builder.scatter_along(builder.full_like(self.x, 0), self.indices, dy, last, "add")]

    def flops(self) -> int:
        shape = types.shape_of(self.x)
        return _comparisons(shape, len(shape) - 1)


OPS: list[type[HloOp]] = [SortOp, TopKOp]
