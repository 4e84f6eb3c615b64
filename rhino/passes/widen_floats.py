"""widen-floats: compute everything in f64, so that two ways to compute one thing can be compared closely.

%y = hlo.exp %x : tensor<4xbf16>        becomes        %y = hlo.exp %x : tensor<4xf64>
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FloatAttr,
    FunctionType,
    ModuleOp,
    TensorType,
)
from xdsl.ir import Attribute
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from rhino.ir import types
from rhino.ir.dense import dense, is_splat, to_numpy


@dataclass(frozen=True)
class WidenFloatsPass(ModulePass):
    """Options: none. Constants keep the value they have in their narrow type."""

    name = "widen-floats"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        widen_floats(op)


def widen_floats(module: ModuleOp) -> None:
    """Turn every float type of a module of any stage into f64, in place."""
    known: dict[Attribute, Attribute] = {}

    def widen(attr: Attribute) -> Attribute:
        if isinstance(attr, DenseIntOrFPElementsAttr):  # hashing a large one costs more than converting it
            return _widen(attr, widen)
        if attr not in known:
            known[attr] = _widen(attr, widen)
        return known[attr]

    for op in module.walk():
        for key, attr in op.properties.items():
            op.properties[key] = widen(attr)
        for key, attr in op.attributes.items():
            op.attributes[key] = widen(attr)
        for region in op.regions:
            for block in region.blocks:
                for arg in tuple(block.args):
                    Rewriter.replace_value_with_new_type(arg, widen(arg.type))
        for result in tuple(op.results):
            Rewriter.replace_value_with_new_type(result, widen(result.type))


def _widen(attr: Attribute, widen: Callable[[Attribute], Attribute]) -> Attribute:
    if types.is_float(attr):
        return types.F64
    if isinstance(attr, TensorType):
        return types.tensor(attr.get_shape(), widen(attr.element_type))
    if isinstance(attr, FloatAttr):
        value = float(types.numpy_dtype(attr.type).type(attr.value.data))
        return FloatAttr(value, types.F64)
    if isinstance(attr, DenseIntOrFPElementsAttr) and types.is_float(attr.type.element_type):
        array = to_numpy(attr)
        one = array.reshape(-1)[0] if is_splat(attr) else array
        return dense(one.astype("float64"), types.tensor(attr.get_shape(), types.F64))
    if isinstance(attr, FunctionType):
        return FunctionType.from_lists([widen(t) for t in attr.inputs], [widen(t) for t in attr.outputs])
    if isinstance(attr, ArrayAttr):
        return ArrayAttr([widen(a) for a in attr])
    if isinstance(attr, DictionaryAttr):
        return DictionaryAttr({k: widen(v) for k, v in attr.data.items()})
    return attr
