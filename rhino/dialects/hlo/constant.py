"""Ops that make a tensor out of nothing: constants and counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AnyAttr,
    ParamAttrConstraint,
    VarConstraint,
    eq,
    irdl_op_definition,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import ConstantLike, Pure

from rhino.dialects.hlo.base import TENSOR, HloOp, Localizer, Properties, get_integer
from rhino.dialects.hlo.digits import local_to_global
from rhino.ir import types
from rhino.ir.dense import Scalar, is_splat, retype, splat_value, to_numpy
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Rule


def maker_rule(shape: Sequence[int]) -> Rule:
    """No operand: the result takes any layout, every device makes its own part."""
    dims = tuple((f"d{i}",) for i in range(len(shape)))
    return Rule((), (dims,), {f"d{i}": int(e) for i, e in enumerate(shape)})


@irdl_op_definition
class ConstantOp(HloOp):
    """``%c = hlo.constant dense<[1.0, 2.0]> : tensor<2xf32>``"""

    name = "hlo.constant"
    T: ClassVar = VarConstraint("T", TENSOR)
    value = prop_def(ParamAttrConstraint(DenseIntOrFPElementsAttr, (T, AnyAttr())))
    result = result_def(T)
    assembly_format = "$value attr-dict"
    traits = traits_def(Pure(), ConstantLike())

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        value = properties["value"]
        assert isinstance(value, DenseIntOrFPElementsAttr)
        assert isinstance(value.type, TensorType)
        types.numpy_dtype(value.type.element_type)
        return [value.type]

    def rule(self) -> Rule:
        return maker_rule(types.shape_of(self.result))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return (to_numpy(self.value),)

    def flops(self) -> int:
        return 0

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """A splat gets the local shape; other constants are made whole, and each device takes its part."""
        (layout,), (type,) = ctx.results, ctx.result_types
        if is_splat(self.value):
            value = retype(self.value, type.get_shape())
            return ctx.builder.insert(self._with(value)).results
        whole = ctx.builder.insert(self._with(self.value)).results[0]
        return [whole if layout.is_replicated else ctx.builder.shard(whole, layout, ctx.mesh)]

    @staticmethod
    def _with(value: DenseIntOrFPElementsAttr) -> ConstantOp:
        return ConstantOp.create(result_types=[value.type], properties={"value": value})


def splat_of(value: SSAValue) -> Scalar | None:
    """The value of all elements if `value` is made by a splat constant, else None."""
    return splat_value(value.owner.value) if isinstance(value.owner, ConstantOp) else None


def constant_of(value: SSAValue) -> np.ndarray | None:
    """The array if `value` is made by a constant, else None."""
    return to_numpy(value.owner.value) if isinstance(value.owner, ConstantOp) else None


@irdl_op_definition
class IotaOp(HloOp):
    """``%i = hlo.iota 1 : tensor<2x4xi64>``: every element is its own index along dimension 1."""

    name = "hlo.iota"
    T: ClassVar = VarConstraint("T", TENSOR)
    dim = prop_def(IntegerAttr.constr(eq(types.I64)))
    type = prop_def(T)
    result = result_def(T)
    assembly_format = "$dim attr-dict `:` $type"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        type, dim = properties["type"], get_integer(properties, "dim")
        assert isinstance(type, TensorType)
        if types.numpy_dtype(type.element_type) == np.bool_:
            raise ProgramError(f"no counter of type {types.show(type)}", remedy="use an integer or float")
        if not 0 <= dim < len(type.get_shape()):
            raise ProgramError(f"no dimension {dim} in {types.show(type)}")
        return [type]

    def rule(self) -> Rule:
        return maker_rule(types.shape_of(self.result))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        dim, shape = int(self.dim.value.data), types.shape_of(self.result)
        count = np.arange(shape[dim]).astype(types.numpy_dtype(types.element_of(self.result)))
        return (np.broadcast_to(count.reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape),)

    def flops(self) -> int:
        return 0

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """Count locally, then insert the device's coordinates as digits: the global index."""
        (layout,), (type,) = ctx.results, ctx.result_types
        dim, b = int(self.dim.value.data), ctx.builder
        digits = layout.dims[dim]
        if not digits:
            return [b.iota(type, dim)]
        local = b.iota(types.tensor(type.get_shape(), types.I64), dim)
        index = local_to_global(b, local, digits, ctx, extent=types.shape_of(self.result)[dim])
        return [b.convert(index, type.element_type)]


OPS: list[type[HloOp]] = [ConstantOp, IotaOp]
