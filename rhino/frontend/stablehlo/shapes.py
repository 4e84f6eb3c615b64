"""Ops of StableHLO that move elements: shapes, slices, gather, and the products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from rhino.dialects.hlo.constant import splat_of
from rhino.frontend.stablehlo.importer import Handler, Importer, Values
from rhino.frontend.stablehlo.syntax import OpSyntax, Struct
from rhino.ir import types


def iota(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return [ctx.b.iota(ctx.result(op), ctx.integer(op, "iota_dimension"))]


def broadcast_in_dim(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    shape = ctx.result(op).get_shape()
    return [ctx.b.broadcast_in_dim(operands[0], shape, ctx.ints(op, "broadcast_dimensions"))]


def broadcast(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    sizes = ctx.ints(op, "broadcast_sizes")
    return [ctx.b.broadcast_to(operands[0], (*sizes, *types.shape_of(operands[0])))]


def reshape(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return [ctx.b.reshape(operands[0], ctx.result(op).get_shape())]


def transpose(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return [ctx.b.transpose(operands[0], ctx.ints(op, "permutation"))]


def reverse(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return [ctx.b.reverse(operands[0], ctx.ints(op, "dimensions"))]


def concatenate(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return [ctx.b.concatenate(operands, ctx.integer(op, "dimension"))]


def slice_(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    start, limit = ctx.ints(op, "start_indices"), ctx.ints(op, "limit_indices")
    return [ctx.b.slice(operands[0], start, limit, ctx.ints(op, "strides", [1] * len(start)))]


def pad(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, value = operands
    if types.element_of(x) != types.element_of(value):
        ctx.fail(op, f"{types.show(x.type)} is padded with {types.show(value.type)}")
    low, high = ctx.ints(op, "edge_padding_low"), ctx.ints(op, "edge_padding_high")
    return [padded(ctx, x, value, low, high, ctx.ints(op, "interior_padding", [0] * len(low)))]


def padded(
    ctx: Importer,
    x: SSAValue,
    value: SSAValue,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int],
) -> SSAValue:
    """`x` padded with a scalar: `hlo.pad` takes a number, any other value is selected where the padding is."""
    b = ctx.b
    if not (any(low) or any(high) or any(interior)):
        return x
    number = splat_of(value)
    complex_ = types.is_complex(types.element_of(x))
    if number is not None and not complex_:
        exact = types.numpy_dtype(types.element_of(x)).type(number)
        if exact != 0 or not np.signbit(float(exact)):  # a number's text does not keep a NaN's bits, or -0
            return b.pad(x, number, low, high, interior)
    if complex_:
        parts = [padded(ctx, f(x), f(value), low, high, interior) for f in (b.real, b.imag)]
        return b.complex(*parts)
    inside = b.pad(b.full(types.shape_of(x), types.I1, True), False, low, high, interior)
    zero = types.numpy_dtype(types.element_of(x)).type(0).item()
    out = b.pad(x, zero, low, high, interior)
    return b.select(inside, out, b.broadcast_in_dim(value, types.shape_of(out), ()))


def indices(ctx: Importer, index: SSAValue) -> SSAValue:
    """Indices as signed integers; what 64 bits cannot hold is beyond every extent in any case."""
    element = types.element_of(index)
    if not types.is_unsigned(element):
        return index
    if element == types.UI64:
        index = ctx.b.minimum(index, ctx.b.full_like(index, (1 << 63) - 1))
    return ctx.b.convert(index, types.I64)


def dynamic_slice(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    starts = [indices(ctx, i) for i in operands[1:]]
    return [ctx.b.dynamic_slice(operands[0], starts, ctx.ints(op, "slice_sizes"))]


def dynamic_update_slice(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, update, *starts = operands
    return [ctx.b.dynamic_update_slice(x, update, [indices(ctx, i) for i in starts])]


def dims_of(ctx: Importer, op: OpSyntax, fields: Mapping[str, Any], name: str) -> list[int]:
    value = fields.get(name, [])
    if not isinstance(value, list) or any(not isinstance(v, int) for v in value):
        ctx.fail(op, f"{name} must be a list of integers")
    return value


def gather(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, start = operands
    fields = ctx.fields(op, "dimension_numbers")
    names = (
        "offset_dims",
        "collapsed_slice_dims",
        "operand_batching_dims",
        "start_indices_batching_dims",
        "start_index_map",
    )
    numbers = {name: dims_of(ctx, op, fields, name) for name in names}
    return [
        ctx.b.gather(
            x,
            indices(ctx, start),
            **numbers,
            index_vector_dim=int(fields.get("index_vector_dim", 0)),
            slice_sizes=ctx.ints(op, "slice_sizes"),
        )
    ]


def dot_general(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    fields = ctx.fields(op, "dot_dimension_numbers")
    sides = [
        [dims_of(ctx, op, fields, f"{side}_{what}_dimensions") for what in ("batching", "contracting")]
        for side in ("lhs", "rhs")
    ]
    (lhs_batch, lhs_contract), (rhs_batch, rhs_contract) = sides
    x, y = _accumulating(ctx, op, operands)
    return [
        _as_declared(ctx, op, ctx.b.dot_general(x, y, (lhs_batch, rhs_batch), (lhs_contract, rhs_contract)))
    ]


def dot(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, y = _accumulating(ctx, op, operands)
    rank = len(types.shape_of(x))
    return [_as_declared(ctx, op, ctx.b.dot_general(x, y, contract=([rank - 1], [0])))]


def _accumulating(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> tuple[SSAValue, SSAValue]:
    """Operands in the result's element type, which is that of the sum."""
    element = ctx.result(op).element_type
    if element == types.I1:  # true where any product is
        element = types.I32
    x, y = (v if types.element_of(v) == element else ctx.b.convert(v, element) for v in operands)
    return x, y


def _as_declared(ctx: Importer, op: OpSyntax, value: SSAValue) -> SSAValue:
    element = ctx.result(op).element_type
    return value if types.element_of(value) == element else ctx.b.convert(value, element)


def _labels(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _conv_dims(ctx: Importer, op: OpSyntax) -> tuple[list[int], list[int], list[int]]:
    """For each of input, kernel, output: batch (or output features), features, then spatial dimensions."""
    value = op.attributes.get("dimension_numbers")
    if not isinstance(value, Struct):
        ctx.fail(op, "needs the attribute dimension_numbers")
    if value.fields:
        return _raw_dims(ctx, op, value.fields)
    left, _, output = value.text.partition("->")
    lhs, _, kernel = left.partition("x")
    found = []
    for part, letters in ((lhs, "bf"), (kernel, "oi"), (output, "bf")):
        labels = _labels(part.strip().strip(",").strip().strip("[]"))
        count = len(labels) - 2
        wanted = [*letters, *map(str, range(count))]
        if sorted(labels) != sorted(wanted):
            ctx.fail(op, f"dimension numbers [{', '.join(labels)}] lack one of {', '.join(wanted)}")
        found.append([labels.index(w) for w in wanted])
    return found[0], found[1], found[2]


def _raw_dims(
    ctx: Importer, op: OpSyntax, fields: Mapping[str, Any]
) -> tuple[list[int], list[int], list[int]]:
    """The same where every dimension is named: ``#stablehlo.conv<raw input_batch_dimension = 0, ...>``."""
    found = []
    for side, names in (
        ("input", ("batch", "feature")),
        ("kernel", ("output_feature", "input_feature")),
        ("output", ("batch", "feature")),
    ):
        first = [fields.get(f"{side}_{name}_dimension", 0) for name in names]
        dims = [*first, *dims_of(ctx, op, fields, f"{side}_spatial_dimensions")]
        if sorted(dims) != list(range(len(dims))):
            ctx.fail(op, f"the dimensions {dims} of {side} are not 0 to {len(dims) - 1}")
        found.append(dims)
    return found[0], found[1], found[2]


def convolution(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    b = ctx.b
    lhs, kernel, output = _conv_dims(ctx, op)
    x, w = _accumulating(ctx, op, operands)
    count = len(lhs) - 2
    ones = [1] * count
    x, w = b.transpose(x, lhs), b.transpose(w, kernel)
    reversal = op.attributes.get("window_reversal", [])
    if not isinstance(reversal, list):
        reversal = ctx.literal(op, reversal).reshape(-1).tolist()
    w = b.reverse(w, [i + 2 for i, on in enumerate(reversal) if on])
    y = b.convolution(
        x,
        w,
        ctx.ints(op, "window_strides", ones),
        ctx.pairs(op, "padding", count),
        ctx.ints(op, "lhs_dilation", ones),
        ctx.ints(op, "rhs_dilation", ones),
        ctx.integer(op, "feature_group_count", 1),
        ctx.integer(op, "batch_group_count", 1),
    )
    back = [0] * len(output)
    for i, dim in enumerate(output):
        back[dim] = i
    return [_as_declared(ctx, op, b.transpose(y, back))]


def get_dimension_size(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    dim = ctx.integer(op, "dimension")
    shape = types.shape_of(operands[0])
    if not 0 <= dim < len(shape):
        ctx.fail(op, f"there is no dimension {dim}")
    return [ctx.b.constant(shape[dim], ctx.result(op))]


def torch_index_select(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    if ctx.integer(op, "batch_dims", 0):
        ctx.unsupported(op, "batch dimensions")
    return [ctx.b.take(operands[0], indices(ctx, operands[1]), ctx.integer(op, "dim"))]


HANDLERS: dict[str, Handler] = {
    "stablehlo.iota": iota,
    "stablehlo.broadcast_in_dim": broadcast_in_dim,
    "stablehlo.broadcast": broadcast,
    "stablehlo.reshape": reshape,
    "stablehlo.transpose": transpose,
    "stablehlo.reverse": reverse,
    "stablehlo.concatenate": concatenate,
    "stablehlo.slice": slice_,
    "stablehlo.pad": pad,
    "stablehlo.dynamic_slice": dynamic_slice,
    "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.gather": gather,
    "stablehlo.dot_general": dot_general,
    "stablehlo.dot": dot,
    "stablehlo.convolution": convolution,
    "stablehlo.get_dimension_size": get_dimension_size,
    "stablehlo.torch_index_select": torch_index_select,
}
