"""Blocks at positions known only at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def, var_operand_def

from rhino.dialects.hlo.base import HloOp, Localizer, Properties, get_ints
from rhino.dialects.hlo.common import Cotangents, check_element, check_integer, check_length, ints_def
from rhino.dialects.hlo.shape import TENSOR, MoveOp
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import REDUCTIONS, Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


def _window_rule(shape: Sequence[int], window: Sequence[int], tensors: str, linear: tuple[int, ...]) -> Rule:
    """Dimensions taken whole pass, the others may not be split. `tensors`: which of (x, w) lies where."""
    sizes: dict[str, int] = {}
    kinds: dict[str, str] = {}
    big, small = [], []
    for i, (extent, part) in enumerate(zip(shape, window, strict=True)):
        if extent == part:
            sizes[f"i{i}"] = extent
            big.append((f"i{i}",))
            small.append((f"i{i}",))
            continue
        sizes.update({f"t{i}": extent, f"u{i}": part})
        kinds.update({f"t{i}": "whole", f"u{i}": "whole"})
        big.append((f"t{i}",))
        small.append((f"u{i}",))
    where = {"x": tuple(big), "w": tuple(small)}
    operands, result = tensors.split(">")
    scalars = ((),) * len(shape)
    return Rule(
        (*(where[t] for t in operands), *scalars),
        (where[result],),
        sizes,
        kinds,
        carries={kind: (linear,) for kind in REDUCTIONS},
        linear=(linear,),
    )


def _clamped(starts: Sequence[np.ndarray], shape: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The slices that fit when start indices are clamped."""
    at = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(a, a + k) for a, k in zip(at, sizes, strict=True))


def _check_starts(first: int, starts: Sequence[types.Type], x: types.Type) -> None:
    if len(starts) != len(x.get_shape()):
        raise ProgramError(f"{len(starts)} start indices, but operand 0 is {types.show(x)}")
    for i, start in enumerate(starts, first):
        check_integer(i, start)
        if start.get_shape():
            raise ProgramError(f"operand {i} is {types.show(start)}, but a start index is a scalar")
        if start != starts[0]:
            raise ProgramError(
                f"operand {i} is {types.show(start)} but operand {first} is {types.show(starts[0])}"
            )


@irdl_op_definition
class DynamicSliceOp(MoveOp):
    """A block of `sizes` that begins at scalar operands, which are clamped so that it fits.

    ``%y = hlo.dynamic_slice %x at (%i, %j) sizes [1, 3]
      : (tensor<4x3xf32>, tensor<i64>, tensor<i64>) -> tensor<1x3xf32>``
    """

    name = "hlo.dynamic_slice"
    x = operand_def(TENSOR)
    starts = var_operand_def(TENSOR)
    sizes = ints_def()
    result = result_def(TENSOR)
    assembly_format = (
        "$x `at` `(` $starts `)` `sizes` $sizes attr-dict `:` functional-type(operands, results)"
    )

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        x, *starts = operands
        sizes = get_ints(properties, "sizes")
        check_length("sizes", sizes, x)
        _check_starts(1, starts, x)
        if any(not 0 <= k <= n for k, n in zip(sizes, x.get_shape(), strict=True)):
            raise ProgramError(f"sizes {list(sizes)} do not fit operand 0 {types.show(x)}")
        return [types.tensor(sizes, x.element_type)]

    def rule(self) -> Rule:
        return _window_rule(types.shape_of(self.x), get_ints(self.properties, "sizes"), "x>w", (0,))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        x, *starts = operands
        return (x[_clamped(starts, x.shape, get_ints(self.properties, "sizes"))],)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        zeros = builder.full_like(self.x, 0)
        return [builder.dynamic_update_slice(zeros, dy, list(self.starts)), *[None] * len(self.starts)]

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return [ctx.builder.dynamic_slice(operands[0], operands[1:], ctx.result_types[0].get_shape())]


@irdl_op_definition
class DynamicUpdateSliceOp(MoveOp):
    """`x` with a block replaced by `update`; the block begins at scalar operands, clamped so that it fits.

    ``%y = hlo.dynamic_update_slice %x, %u at (%i)
      : (tensor<4xf32>, tensor<2xf32>, tensor<i64>) -> tensor<4xf32>``
    """

    name = "hlo.dynamic_update_slice"
    x = operand_def(TENSOR)
    update = operand_def(TENSOR)
    starts = var_operand_def(TENSOR)
    result = result_def(TENSOR)
    assembly_format = "$x `,` $update `at` `(` $starts `)` attr-dict `:` functional-type(operands, results)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        x, update, *starts = operands
        check_element(1, update, x)
        _check_starts(2, starts, x)
        if len(update.get_shape()) != len(x.get_shape()) or any(
            k > n for k, n in zip(update.get_shape(), x.get_shape(), strict=True)
        ):
            raise ProgramError(
                f"operand 1 is {types.show(update)} and does not fit operand 0 {types.show(x)}"
            )
        return [x]

    def rule(self) -> Rule:
        return _window_rule(types.shape_of(self.x), types.shape_of(self.update), "xw>x", (0, 1))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        x, update, *starts = operands
        out = np.array(x)
        out[_clamped(starts, x.shape, update.shape)] = update
        return (out,)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        starts = list(self.starts)
        zeros = builder.full_like(self.update, 0)
        return [
            builder.dynamic_update_slice(dy, zeros, starts),
            builder.dynamic_slice(dy, starts, types.shape_of(self.update)),
            *[None] * len(starts),
        ]


OPS: list[type[HloOp]] = [DynamicSliceOp, DynamicUpdateSliceOp]
