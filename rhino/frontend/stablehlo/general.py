"""Ops whose region is none of the standard kinds: they keep it, as `hlo`'s generic ops do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, Region, SSAValue

from rhino.dialects.hlo.base import integer, ints
from rhino.frontend.stablehlo.importer import Importer, Values
from rhino.frontend.stablehlo.syntax import Body, OpSyntax, TensorSyntax
from rhino.ir import types


def regions(ctx: Importer, op: OpSyntax, bodies: Sequence[Body]) -> list[Region]:
    """Regions on scalars, which read nothing from outside but constants."""
    fixed, found = ctx.regions(op, bodies)
    if fixed:
        ctx.unsupported(op, "its region reads values from outside")
    return found


def promoted(ctx: Importer, values: Sequence[SSAValue], body: Body, first: int) -> list[SSAValue]:
    """Values in the element types of the body's arguments, which may be wider."""
    out = []
    for i, value in enumerate(values, first):
        declared = body.arguments[i].type if i < len(body.arguments) else None
        element = types.element_of(value)
        if isinstance(declared, TensorSyntax) and declared.element in types.NAMES:
            wanted = types.element(declared.element)
            out.append(value if wanted == element else ctx.b.convert(value, wanted))
        else:
            out.append(value)
    return out


def reduce(
    ctx: Importer,
    op: OpSyntax,
    xs: list[SSAValue],
    inits: list[SSAValue],
    dims: Sequence[int],
    body: Body,
) -> Values:
    xs, inits = promoted(ctx, xs, body, 0), promoted(ctx, inits, body, len(xs))
    properties: dict[str, Attribute] = {"dims": ints(sorted(dims))}
    return ctx.emit_regions(op, "generic_reduce", [*xs, *inits], properties, regions(ctx, op, [body]))


def window_properties(
    window: Sequence[int],
    strides: Sequence[int],
    base: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> dict[str, Attribute]:
    return {
        "window": ints(window),
        "strides": ints(strides),
        "low": ints([low for low, _ in padding]),
        "high": ints([high for _, high in padding]),
        "base_dilation": ints(base),
        "window_dilation": ints(dilation),
    }


def reduce_window(
    ctx: Importer,
    op: OpSyntax,
    xs: list[SSAValue],
    inits: list[SSAValue],
    properties: Mapping[str, Attribute],
    body: Body,
) -> Values:
    xs, inits = promoted(ctx, xs, body, 0), promoted(ctx, inits, body, len(xs))
    return ctx.emit_regions(op, "generic_reduce_window", [*xs, *inits], properties, regions(ctx, op, [body]))


def select_and_scatter(
    ctx: Importer, op: OpSyntax, operands: list[SSAValue], properties: Mapping[str, Attribute]
) -> Values:
    found = regions(ctx, op, op.regions)
    return ctx.emit_regions(op, "generic_select_and_scatter", operands, properties, found)


def scatter(
    ctx: Importer,
    op: OpSyntax,
    xs: list[SSAValue],
    start: SSAValue,
    updates: list[SSAValue],
    numbers: Mapping[str, Any],
    body: Body,
) -> Values:
    properties = {k: integer(v) if isinstance(v, int) else ints(v) for k, v in numbers.items()}
    xs, updates = promoted(ctx, xs, body, 0), promoted(ctx, updates, body, len(xs))
    found = regions(ctx, op, [body])
    return ctx.emit_regions(op, "generic_scatter", [*xs, start, *updates], properties, found)


def sort(
    ctx: Importer, op: OpSyntax, operands: list[SSAValue], dim: int, body: Body, unstable: bool = False
) -> Values:
    properties: dict[str, Attribute] = {"dim": integer(dim)}
    if unstable:
        properties["unstable"] = UnitAttr()
    return ctx.emit_regions(op, "generic_sort", operands, properties, regions(ctx, op, [body]))


def map_(ctx: Importer, op: OpSyntax, operands: list[SSAValue], body: Body) -> Values:
    return ctx.emit_regions(op, "map", operands, {}, regions(ctx, op, [body]))
