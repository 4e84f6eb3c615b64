"""Ops whose region is none of the standard kinds: they keep it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.ir import SSAValue

from rhino.frontend.stablehlo.importer import Importer, Values
from rhino.frontend.stablehlo.syntax import Body, OpSyntax

_REMEDY = "use add, multiply, maximum, minimum, and, or"


def reduce(
    ctx: Importer,
    op: OpSyntax,
    xs: list[SSAValue],
    inits: list[SSAValue],
    dims: Sequence[int],
    body: Body,
) -> Values:
    ctx.unsupported(op, "the region is none of the reductions that Rhino knows", _REMEDY)


def reduce_window(
    ctx: Importer,
    op: OpSyntax,
    xs: list[SSAValue],
    inits: list[SSAValue],
    window: Sequence[int],
    strides: Sequence[int],
    base: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[tuple[int, int]],
    body: Body,
) -> Values:
    ctx.unsupported(op, "the region is none of the reductions that Rhino knows", _REMEDY)


def select_and_scatter(
    ctx: Importer,
    op: OpSyntax,
    operands: list[SSAValue],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> Values:
    ctx.unsupported(op, "only the selection by GE with addition is known")


def scatter(
    ctx: Importer,
    op: OpSyntax,
    xs: list[SSAValue],
    start: SSAValue,
    updates: list[SSAValue],
    numbers: Mapping[str, Any],
    body: Body,
) -> Values:
    ctx.unsupported(op, "the region is none of the combinations that Rhino knows", _REMEDY)


def sort(ctx: Importer, op: OpSyntax, operands: list[SSAValue], dim: int, body: Body) -> Values:
    ctx.unsupported(op, "the region is no comparison that Rhino knows")


def map_(ctx: Importer, op: OpSyntax, operands: list[SSAValue], body: Body) -> Values:
    ctx.unsupported(op, "Rhino has no general map")
