"""Ops of StableHLO with a region that combines elements: reductions, windows, scatter, sort.

Regions that are one of the standard kinds become the op of that kind, which has a sharding rule and a
derivative of its own; all others keep their region.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from rhino.dialects.hlo.common import identity
from rhino.dialects.hlo.constant import constant_of, splat_of
from rhino.dialects.hlo.introsort import MOST, SMALL
from rhino.frontend.stablehlo import general, patterns
from rhino.frontend.stablehlo.importer import Handler, Importer, Values
from rhino.frontend.stablehlo.shapes import dims_of, indices, padded
from rhino.frontend.stablehlo.syntax import OpSyntax
from rhino.ir import types


def is_identity(value: SSAValue, kind: str) -> bool:
    """Whether a scalar is a constant that changes nothing when combined by `kind`."""
    found = constant_of(value)
    if found is None or (types.is_complex(types.element_of(value)) and kind not in ("sum", "prod")):
        return False
    wanted = identity(kind, types.numpy_dtype(types.element_of(value)))
    return bool(np.all(found == wanted))


def combine(ctx: Importer, kind: str, x: SSAValue, y: SSAValue) -> SSAValue:
    """Two values combined by a reduction kind."""
    b = ctx.b
    function = {"sum": b.add, "prod": b.mul, "max": b.maximum, "min": b.minimum, "and": b.and_, "or": b.or_}
    return function[kind](x, y)


def started(ctx: Importer, kind: str, reduced: SSAValue, init: SSAValue) -> SSAValue:
    """A reduction without its initial value, combined with it."""
    if is_identity(init, kind):
        return reduced
    return combine(ctx, kind, ctx.b.broadcast_in_dim(init, types.shape_of(reduced), ()), reduced)


def reduce(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    count = len(operands) // 2
    xs, inits = operands[:count], operands[count:]
    dims = ctx.ints(op, "dimensions")
    body = _body(ctx, op)
    kinds = patterns.combiners(body)
    if kinds is not None and len(kinds) == count and _plain(xs, inits):
        return [
            started(ctx, kind, ctx.b.reduce(x, dims, kind), init)
            for kind, x, init in zip(kinds, xs, inits, strict=True)
        ]
    found = _extremum(ctx, op, xs, inits, dims)
    return found if found is not None else general.reduce(ctx, op, xs, inits, dims, body)


def _plain(xs: Sequence[SSAValue], inits: Sequence[SSAValue]) -> bool:
    """Whether initial values are of the operands' element types, so that nothing is promoted."""
    return all(types.element_of(x) == types.element_of(i) for x, i in zip(xs, inits, strict=True))


def _extremum(
    ctx: Importer, op: OpSyntax, xs: list[SSAValue], inits: list[SSAValue], dims: list[int]
) -> Values | None:
    """argmax and argmin as JAX writes them, with the extremum beside its index."""
    kind = patterns.extremum_with_index(op.regions[0])
    if kind is None or len(dims) != 1 or not _plain(xs, inits):
        return None
    x, positions = xs
    if not (is_identity(inits[0], kind) and splat_of(inits[1]) == 0):
        return None
    owner = positions.owner
    is_counter = getattr(owner, "name", "") == "hlo.iota" and owner.dim.value.data == dims[0]  # type: ignore[union-attr]
    if not is_counter or types.shape_of(x)[dims[0]] == 0:
        return None
    b = ctx.b
    index = (b.argmax if kind == "max" else b.argmin)(x, dims[0])
    element = types.element_of(positions)
    return [b.reduce(x, dims, kind), index if element == types.I64 else b.convert(index, element)]


def _body(ctx: Importer, op: OpSyntax, index: int = 0) -> Any:
    if index >= len(op.regions):
        ctx.fail(op, "lacks a region")
    return op.regions[index]


def reduce_window(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    count = len(operands) // 2
    xs, inits = operands[:count], operands[count:]
    rank = len(types.shape_of(xs[0]))
    ones = [1] * rank
    window = ctx.ints(op, "window_dimensions")
    strides, dilation = ctx.ints(op, "window_strides", ones), ctx.ints(op, "window_dilations", ones)
    base, padding = ctx.ints(op, "base_dilations", ones), ctx.pairs(op, "padding", rank)
    kinds = patterns.combiners(_body(ctx, op))
    known = kinds is not None and len(kinds) == count and _plain(xs, inits)
    if not known or any(_rounded_first(k, i) for k, i in zip(kinds or [], inits, strict=True)):
        properties = general.window_properties(window, strides, base, dilation, padding)
        return general.reduce_window(ctx, op, xs, inits, properties, op.regions[0])
    out = []
    for kind, x, init in zip(kinds or [], xs, inits, strict=True):
        pads, gaps = padding, base
        if not is_identity(init, kind):
            # Padding counts as the initial value, which is then no longer neutral.
            x = padded(ctx, x, init, [p for p, _ in padding], [p for _, p in padding], [d - 1 for d in base])
            gaps, pads = ones, [(0, 0)] * rank
        found = _running(ctx, kind, x, window, strides, pads, gaps, dilation)
        if found is None:
            found = ctx.b.reduce_window(x, kind, window, strides, pads, gaps, dilation)
        out.append(started(ctx, kind, found, init))
    return out


def _rounded_first(kind: str, init: SSAValue) -> bool:
    """Whether sums or products begin with a number that is not neutral, which then is the first to be rounded."""
    inexact = types.is_differentiable(types.element_of(init)) and kind in ("sum", "prod")
    return inexact and not is_identity(init, kind)


def _running(
    ctx: Importer,
    kind: str,
    x: SSAValue,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base: Sequence[int],
    dilation: Sequence[int],
) -> SSAValue | None:
    """A running reduction written as windows that reach back to the first element, or on to the last."""
    shape = types.shape_of(x)
    wide = [d for d, n in enumerate(window) if n != 1]
    if len(wide) != 1 or any(n != 1 for n in (*strides, *base, *dilation)):
        return None
    (dim,) = wide
    extent = shape[dim]
    if window[dim] != extent or any(p != (0, 0) for d, p in enumerate(padding) if d != dim):
        return None
    if padding[dim] not in ((extent - 1, 0), (0, extent - 1)):
        return None
    return ctx.b.cumulative(x, dim, kind, padding[dim] == (0, extent - 1))


def select_and_scatter(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, source, init = operands
    rank = len(types.shape_of(x))
    ones = [1] * rank
    window, strides = ctx.ints(op, "window_dimensions", ones), ctx.ints(op, "window_strides", ones)
    padding = ctx.pairs(op, "padding", rank)
    if patterns.keeps_first_maximum(_body(ctx, op)) and patterns.combiner(_body(ctx, op, 1)) == "sum":
        return [started(ctx, "sum", ctx.b.select_and_scatter(x, source, window, strides, padding), init)]
    properties = general.window_properties(window, strides, ones, ones, padding)
    return general.select_and_scatter(ctx, op, operands, properties)


#: Scatter kinds by reduction kinds; `and` and `or` of i1 are the smallest and the largest.
_SCATTER = {"set": "set", "sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "min", "or": "max"}


def scatter(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    count = (len(operands) - 1) // 2
    xs, start, new = operands[:count], operands[count], operands[count + 1 :]
    fields = ctx.fields(op, "scatter_dimension_numbers")
    names = (
        "update_window_dims",
        "inserted_window_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
        "scatter_dims_to_operand_dims",
    )
    numbers: dict[str, Any] = {name: dims_of(ctx, op, fields, name) for name in names}
    numbers["index_vector_dim"] = int(fields.get("index_vector_dim", 0))
    start = indices(ctx, start)
    kinds = patterns.updates(_body(ctx, op))
    bits = [
        k in ("and", "or") and types.element_of(x) != types.I1 for k, x in zip(kinds or [], xs, strict=False)
    ]
    if kinds is None or any(bits):
        return general.scatter(ctx, op, xs, start, new, numbers, op.regions[0])
    return [
        ctx.b.scatter(x, start, update, _SCATTER[kind], **numbers)
        for kind, x, update in zip(kinds, xs, new, strict=True)
    ]


def _shows_order(operands: Sequence[SSAValue], dim: int) -> bool:
    """Whether it can be seen how an unstable sort orders equal keys."""
    return len(operands) > 1 and SMALL < types.shape_of(operands[0])[dim] <= MOST


def sort(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    dim, rank = ctx.integer(op, "dimension", -1), len(types.shape_of(operands[0])) if operands else 0
    dim += rank if dim < 0 else 0
    keys = patterns.order(_body(ctx, op))
    unstable = op.attributes.get("is_stable") is not True and _shows_order(operands, dim)
    if keys is None or unstable:
        return general.sort(ctx, op, operands, dim, op.regions[0], unstable)
    values = list(operands)
    for descending, key in reversed(keys):  # stable: the major key last
        order = [values[key], *values[:key], *values[key + 1 :]]
        done = ctx.b.sort(order, dim, descending)
        values = [*done[1 : key + 1], done[0], *done[key + 1 :]]
    return values


def map_(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return general.map_(ctx, op, operands, _body(ctx, op))


HANDLERS: dict[str, Handler] = {
    "stablehlo.reduce": reduce,
    "stablehlo.reduce_window": reduce_window,
    "stablehlo.select_and_scatter": select_and_scatter,
    "stablehlo.scatter": scatter,
    "stablehlo.sort": sort,
    "stablehlo.map": map_,
}
