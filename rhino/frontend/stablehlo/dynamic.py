"""Ops that take shapes, paddings and strides as operands, where the result's type is static all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from xdsl.ir import SSAValue

from rhino.dialects.hlo.constant import constant_of
from rhino.frontend.stablehlo import shapes
from rhino.frontend.stablehlo.importer import Handler, Importer, Values
from rhino.frontend.stablehlo.syntax import OpSyntax
from rhino.ir import types


def _numbers(ctx: Importer, op: OpSyntax, value: SSAValue, what: str) -> np.ndarray:
    """A constant operand. Raises UnsupportedError for one that is computed."""
    found = constant_of(value)
    if found is None:
        ctx.unsupported(op, f"{what} that are computed", "make them constants")
    return found


def _list(ctx: Importer, op: OpSyntax, value: SSAValue, what: str) -> list[int]:
    return [int(n) for n in _numbers(ctx, op, value, what).reshape(-1)]


def reshape(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return shapes.reshape(ctx, op, operands[:1])


def broadcast_in_dim(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return shapes.broadcast_in_dim(ctx, op, operands[:1])


def iota(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return shapes.iota(ctx, op, [])


def pad(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, value, *amounts = operands
    low, high, interior = (_list(ctx, op, v, "paddings") for v in amounts)
    return [shapes.padded(ctx, x, value, low, high, interior)]


def slice_(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, *bounds = operands
    start, limit, strides = (_list(ctx, op, v, "bounds") for v in bounds)
    return [ctx.b.slice(x, start, limit, strides)]


def _with(op: OpSyntax, name: str, values: Sequence[object]) -> OpSyntax:
    return replace(op, attributes={**op.attributes, name: list(values)})


def gather(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, start, sizes = operands
    return shapes.gather(ctx, _with(op, "slice_sizes", _list(ctx, op, sizes, "slice sizes")), [x, start])


def convolution(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, w, padding = operands
    pairs = _numbers(ctx, op, padding, "paddings").reshape(-1, 2).tolist()
    return shapes.convolution(ctx, _with(op, "padding", pairs), [x, w])


def set_dimension_size(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """Of a static result: the size that the dimension has anyway."""
    x, size = operands
    dim, shape = ctx.integer(op, "dimension"), types.shape_of(x)
    wanted = _list(ctx, op, size, "sizes")
    if not 0 <= dim < len(shape) or wanted != [shape[dim]]:
        ctx.unsupported(op, "a dimension that is only filled in part")
    return [x]


HANDLERS: dict[str, Handler] = {
    "stablehlo.dynamic_reshape": reshape,
    "stablehlo.dynamic_broadcast_in_dim": broadcast_in_dim,
    "stablehlo.dynamic_iota": iota,
    "stablehlo.dynamic_pad": pad,
    "stablehlo.real_dynamic_slice": slice_,
    "stablehlo.dynamic_gather": gather,
    "stablehlo.dynamic_conv": convolution,
    "stablehlo.set_dimension_size": set_dimension_size,
}
