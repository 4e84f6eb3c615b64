"""Ops on the bits of numbers: counting them, reading them as another type, the total order of floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties
from rhino.dialects.hlo.elementwise import DIRECTIONS, CompareOp
from rhino.dialects.hlo.pointwise import PointwiseOp, UnaryOp
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Rule


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


#: Number of set bits of every byte.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1).astype(np.uint8)


def _ones(x: np.ndarray) -> np.ndarray:
    octets = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, x.dtype.itemsize)
    return _BITS[octets].sum(axis=-1).astype(x.dtype)


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    """With every bit below the highest set, the zeros left are the leading ones."""
    bits = np.array(_unsigned(x))
    shift = 1
    while shift < 8 * bits.dtype.itemsize:
        bits |= bits >> bits.dtype.type(shift)
        shift *= 2
    return _ones(~bits).astype(x.dtype)


@irdl_op_definition
class PopcntOp(UnaryOp):
    """``%y = hlo.popcnt %x : tensor<4xi32>``: the number of bits that are set."""

    name = "hlo.popcnt"
    FLOATS: ClassVar = False
    NUMPY: ClassVar = staticmethod(_ones)


@irdl_op_definition
class CountLeadingZerosOp(UnaryOp):
    """``%y = hlo.count_leading_zeros %x : tensor<4xi32>``: the number of zero bits before the highest that is set."""

    name = "hlo.count_leading_zeros"
    FLOATS: ClassVar = False
    NUMPY: ClassVar = staticmethod(_leading_zeros)


@irdl_op_definition
class BitcastConvertOp(HloOp):
    """The bits of the operand read as elements of another type.

    ``%y = hlo.bitcast_convert %x to i32 : tensor<4xf32> -> tensor<4xi32>``

    A smaller type adds a last dimension, low bits first; a larger one takes the last dimension away.
    """

    name = "hlo.bitcast_convert"
    x = operand_def(TENSOR)
    element_type = prop_def(Attribute)
    result = result_def(TENSOR)
    assembly_format = "$x `to` $element_type attr-dict `:` type($x) `->` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        target = properties["element_type"]
        old, new = types.itemsize(x.element_type), types.itemsize(target)
        if (x.element_type == types.I1) != (target == types.I1):
            raise ProgramError(
                f"operand 0 is {types.show(x)}: i1 and {types.element_name(target)} differ in size",
                remedy="use convert",
            )
        shape = list(x.get_shape())
        if old > new:
            shape.append(old // new)
        elif new > old:
            if not shape or shape[-1] != new // old:
                raise ProgramError(
                    f"operand 0 is {types.show(x)}, but {types.element_name(target)} needs a last dimension of "
                    f"{new // old} elements"
                )
            shape.pop()
        return [types.tensor(shape, target)]

    def rule(self) -> Rule:
        """All dimensions pass but the one that holds the parts of an element."""
        x, y = types.shape_of(self.x), types.shape_of(self.result)
        shared = tuple((f"d{i}",) for i in range(min(len(x), len(y))))
        sizes = {f"d{i}": n for i, n in enumerate(x[: len(shared)])}
        kinds: dict[str, str] = {}
        ends = []
        for shape in (x, y):
            rest = shape[len(shared) :]
            if rest:
                sizes["parts"], kinds["parts"] = rest[0], "whole"
            ends.append((*shared, *((("parts",),) if rest else ())))
        elements = (types.element_of(self.x), self.element_type)
        bitwise = all(types.is_integer(e) or e == types.I1 for e in elements)
        carries = {"and": ((0,),), "or": ((0,),)} if bitwise else {}
        return Rule((ends[0],), (ends[1],), sizes, kinds, carries=carries)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = operands
        dtype = types.numpy_dtype(self.element_type)
        old, new = x.dtype.itemsize, dtype.itemsize
        shape = (*x.shape, old // new) if old > new else x.shape[:-1] if new > old else x.shape
        return (np.ascontiguousarray(x).reshape(-1).view(dtype).reshape(shape),)

    def flops(self) -> int:
        return 0


def total_order(x: np.ndarray) -> np.ndarray:
    """Signed integers in the order of the floats: -NaN, -inf, ..., -0, +0, ..., inf, NaN (IEEE 754, totalOrder)."""
    bits = np.ascontiguousarray(x).view(np.dtype(f"i{x.dtype.itemsize}")).reshape(x.shape)
    return np.asarray(np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits))


@irdl_op_definition
class CompareTotalOp(PointwiseOp):
    """``%p = hlo.compare_total "lt", %x, %y : tensor<4xf32> -> tensor<4xi1>``: compare by IEEE 754's total order.

    -NaN < -inf < ... < -0 < +0 < ... < inf < NaN: StableHLO's compare with `compare_type` TOTALORDER.
    """

    name = "hlo.compare_total"
    lhs = operand_def(PointwiseOp.T)
    rhs = operand_def(PointwiseOp.T)
    direction = prop_def(StringAttr)
    result = result_def(TENSOR)
    assembly_format = "$direction `,` $lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        for i, type in enumerate(operands):
            if not types.is_float(type.element_type):
                raise ProgramError(f"operand {i} is {types.show(type)}, but the total order is one of floats")
        return CompareOp.infer(operands, properties)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        keys = [total_order(x) for x in operands]
        return (np.asarray(DIRECTIONS[self.direction.data](*keys), dtype=np.bool_),)


OPS: list[type[HloOp]] = [PopcntOp, CountLeadingZerosOp, BitcastConvertOp, CompareTotalOp]
