"""How loops, branches and ops with a region of their own are written."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Operation, SSAValue

from rhino.dialects.hlo.base import get_integer
from rhino.frontend.stablehlo.write_text import (
    array,
    function_type,
    ints,
    regioned,
    scatter_numbers,
    tail,
    window_numbers,
)
from rhino.frontend.stablehlo.writer import Emit, Writer
from rhino.ir import types


def while_(w: Writer, op: Operation) -> None:
    """What a loop does not change its regions read from outside."""
    count = len(op.results)
    carried, fixed = op.operands[:count], op.operands[count:]
    regions = [w.nested(region.block, fixed) for region in op.regions]
    kinds = [v.type for v in carried]
    head = f'"stablehlo.while"({w.names(carried)})'
    regioned(w, op, head, regions, function_type(kinds, kinds))


def branch(w: Writer, op: Operation) -> None:
    selector, *fixed = op.operands
    regions = [w.nested(region.block, fixed) for region in op.regions]
    name = op.name.removeprefix("hlo.")
    if name == "case" and types.element_of(selector) != types.I32:
        w.refuse(op, "StableHLO counts branches in i32")
    kinds = function_type([selector.type], [r.type for r in op.results])
    regioned(w, op, f'"stablehlo.{name}"({w.name(selector)})', regions, kinds)


def _generic(w: Writer, op: Operation, name: str, attributes: str, operands: Sequence[SSAValue]) -> None:
    regions = [w.nested(region.block) for region in op.regions]
    regioned(w, op, f'"stablehlo.{name}"({w.names(operands)}) <{{{attributes}}}>', regions, tail(op))


def map_(w: Writer, op: Operation) -> None:
    rank = len(types.shape_of(op.operands[0]))
    _generic(w, op, "map", f"dimensions = {array(range(rank))}", op.operands)


def generic_reduce(w: Writer, op: Operation) -> None:
    _generic(w, op, "reduce", f"dimensions = {array(ints(op, 'dims'))}", op.operands)


def generic_reduce_window(w: Writer, op: Operation) -> None:
    _generic(w, op, "reduce_window", window_numbers(op, dilated=True), op.operands)


def generic_sort(w: Writer, op: Operation) -> None:
    stable = "false" if "unstable" in op.properties else "true"
    attributes = f"dimension = {get_integer(op.properties, 'dim')} : i64, is_stable = {stable}"
    _generic(w, op, "sort", attributes, op.operands)


def generic_scatter(w: Writer, op: Operation) -> None:
    _generic(w, op, "scatter", scatter_numbers(op), op.operands)


def generic_select_and_scatter(w: Writer, op: Operation) -> None:
    if any(d != 1 for n in ("base_dilation", "window_dilation") for d in ints(op, n)):
        w.refuse(op, "StableHLO's select_and_scatter has no dilations")
    _generic(w, op, "select_and_scatter", window_numbers(op, dilated=False), op.operands)


OPS: dict[str, Emit] = {
    "hlo.while": while_,
    "hlo.if": branch,
    "hlo.case": branch,
    "hlo.map": map_,
    "hlo.generic_reduce": generic_reduce,
    "hlo.generic_reduce_window": generic_reduce_window,
    "hlo.generic_sort": generic_sort,
    "hlo.generic_scatter": generic_scatter,
    "hlo.generic_select_and_scatter": generic_select_and_scatter,
}
