"""Pieces of StableHLO text: types, lists, attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Attribute, Operation

from rhino.dialects.hlo.base import get_integer, get_ints

if TYPE_CHECKING:
    from rhino.frontend.stablehlo.writer import Writer


def tail(op: Operation) -> str:
    """``: (operand types) -> result types``."""
    return function_type([o.type for o in op.operands], [r.type for r in op.results])


def function_type(operands: Sequence[Attribute], results: Sequence[Attribute]) -> str:
    inputs = ", ".join(map(str, operands))
    outputs = ", ".join(map(str, results))
    return f": ({inputs}) -> {outputs if len(results) == 1 else f'({outputs})'}"


def listed(values: Sequence[int]) -> str:
    return "[" + ", ".join(str(int(v)) for v in values) + "]"


def array(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(str(int(v)) for v in values)}>" if len(values) else "array<i64>"


def pairs(low: Sequence[int], high: Sequence[int]) -> str:
    """A padding attribute."""
    if not low:
        return "dense<> : tensor<0x2xi64>"
    rows = ", ".join(f"[{a}, {b}]" for a, b in zip(low, high, strict=True))
    return f"dense<[{rows}]> : tensor<{len(low)}x2xi64>"


def ints(op: Operation, name: str) -> tuple[int, ...]:
    return get_ints(op.properties, name)


def scatter_numbers(op: Operation) -> str:
    """The dimension numbers of a scatter as an attribute."""
    names = (
        "update_window_dims",
        "inserted_window_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
        "scatter_dims_to_operand_dims",
    )
    fields = [f"{n} = {listed(ints(op, n))}" for n in names if ints(op, n)]
    fields.append(f"index_vector_dim = {get_integer(op.properties, 'index_vector_dim')}")
    return f"scatter_dimension_numbers = #stablehlo.scatter<{', '.join(fields)}>"


def window_numbers(op: Operation, dilated: bool) -> str:
    """The attributes of a window; `dilated` with those of its dilations."""
    text = f"window_dimensions = {array(ints(op, 'window'))}, window_strides = {array(ints(op, 'strides'))}, "
    if dilated:
        text += f"base_dilations = {array(ints(op, 'base_dilation'))}, "
        text += f"window_dilations = {array(ints(op, 'window_dilation'))}, "
    return text + f"padding = {pairs(ints(op, 'low'), ints(op, 'high'))}"


def regioned(w: Writer, op: Operation, head: str, regions: Sequence[Sequence[str]], end: str) -> None:
    """``head ({ region }, { region }) end``."""
    text = head + " ("
    for i, lines in enumerate(regions):
        text += ("}, {" if i else "{") + "".join(f"\n{w.indent}{line}" for line in lines) + f"\n{w.indent}"
    w.define(op.results, f"{text}}}) {end}")
