"""How ops that combine elements are written: StableHLO gives each of them a region."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import Attribute, Operation

from rhino.dialects.hlo.base import get_integer, get_ints, get_text
from rhino.dialects.hlo.common import identity
from rhino.frontend.stablehlo import write_control
from rhino.frontend.stablehlo.write_text import (
    array,
    function_type,
    ints,
    listed,
    pairs,
    regioned,
    scatter_numbers,
    tail,
    window_numbers,
)
from rhino.frontend.stablehlo.writer import Emit, Writer
from rhino.ir import types

#: Reducers by kind.
REDUCERS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or"}

_SCATTER = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


def _neutral(w: Writer, kind: str, element: Attribute) -> str:
    return w.scalar(identity(kind, types.numpy_dtype(element)), element)


def _combining(w: Writer, name: str, element: Attribute) -> list[str]:
    """The lines of a region that applies one op to two scalars."""
    a, b, c = w.fresh(), w.fresh(), w.fresh()
    scalar = types.tensor((), element)
    return [
        f"^bb0({a}: {scalar}, {b}: {scalar}):",
        f"  {c} = stablehlo.{name} {a}, {b} : {scalar}",
        f"  stablehlo.return {c} : {scalar}",
    ]


def reduce(w: Writer, op: Operation) -> None:
    kind, element = get_text(op.properties, "kind"), types.element_of(op.operands[0])
    init = _neutral(w, kind, element)
    x = op.operands[0]
    kinds = function_type([x.type, types.tensor((), element)], [op.results[0].type])
    w.define(
        op.results,
        f"stablehlo.reduce({w.name(x)} init: {init}) applies stablehlo.{REDUCERS[kind]} "
        f"across dimensions = {listed(ints(op, 'dims'))} {kinds}",
    )


def _extremum(kind: str) -> Emit:
    """argmax and argmin: values and indices reduced together, the first index among equals, NaN first."""

    def emit(w: Writer, op: Operation) -> None:
        (x,) = op.operands
        element, dim = types.element_of(x), get_integer(op.properties, "dim")
        shape = types.shape_of(x)
        counter_type = types.tensor(shape, types.I64)
        counter = w.value(f"stablehlo.iota dim = {dim} : {counter_type}")
        inits = _neutral(w, kind, element), w.scalar(0, types.I64)
        value, index = types.tensor((), element), types.tensor((), types.I64)
        results = types.tensor(types.shape_of(op.results[0]), element), op.results[0].type
        name = w.fresh()
        bit = types.tensor((), types.I1)
        better = "GT" if kind == "max" else "LT"
        a, b, i, j = (w.fresh() for _ in range(4))
        c = [w.fresh() for _ in range(8)]
        kinds = function_type([x.type, counter_type, value, index], list(results))
        w.line(
            f"{name}:2 = stablehlo.reduce({w.name(x)} init: {inits[0]}), ({counter} init: {inits[1]}) "
            f"across dimensions = [{dim}] {kinds}"
        )
        w.line(f" reducer({a}: {value}, {b}: {value}) ({i}: {index}, {j}: {index}) {{")
        for line in (
            f"{c[0]} = stablehlo.compare {better}, {a}, {b} : ({value}, {value}) -> {bit}",
            f"{c[1]} = stablehlo.compare NE, {a}, {a} : ({value}, {value}) -> {bit}",
            f"{c[2]} = stablehlo.or {c[0]}, {c[1]} : {bit}",
            f"{c[3]} = stablehlo.compare EQ, {a}, {b} : ({value}, {value}) -> {bit}",
            f"{c[4]} = stablehlo.compare LT, {i}, {j} : ({index}, {index}) -> {bit}",
            f"{c[5]} = stablehlo.and {c[3]}, {c[4]} : {bit}",
            f"{c[6]} = stablehlo.or {c[2]}, {c[5]} : {bit}",
            f"{c[7]} = stablehlo.select {c[2]}, {a}, {b} : {bit}, {value}",
        ):
            w.line("  " + line)
        last = w.fresh()
        w.line(f"  {last} = stablehlo.select {c[6]}, {i}, {j} : {bit}, {index}")
        w.line(f"  stablehlo.return {c[7]}, {last} : {value}, {index}")
        w.line("}")
        w.alias(op.results[0], f"{name}#1")

    return emit


def _windowed(
    w: Writer,
    op: Operation,
    kind: str,
    window: Sequence[int],
    strides: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    base: Sequence[int],
    dilation: Sequence[int],
) -> None:
    (x,) = op.operands
    element = types.element_of(x)
    init = _neutral(w, kind, element)
    head = (
        f'"stablehlo.reduce_window"({w.name(x)}, {init}) <{{window_dimensions = {array(window)}, '
        f"window_strides = {array(strides)}, base_dilations = {array(base)}, "
        f"window_dilations = {array(dilation)}, padding = {pairs(low, high)}}}>"
    )
    kinds = function_type([x.type, types.tensor((), element)], [op.results[0].type])
    regioned(w, op, head, [_combining(w, REDUCERS[kind], element)], kinds)


def reduce_window(w: Writer, op: Operation) -> None:
    names = ("window", "strides", "low", "high", "base_dilation", "window_dilation")
    _windowed(w, op, get_text(op.properties, "kind"), *(get_ints(op.properties, n) for n in names))


def cumulative(w: Writer, op: Operation) -> None:
    """A window that reaches back to the first element, or on to the last."""
    shape, dim = types.shape_of(op.operands[0]), get_integer(op.properties, "dim")
    ones = [1] * len(shape)
    if 0 in shape:
        w.alias(op.results[0], w.name(op.operands[0]))
        return
    window = [n if d == dim else 1 for d, n in enumerate(shape)]
    reach = [n - 1 for n in window]
    none = [0] * len(shape)
    low, high = (none, reach) if "reverse" in op.properties else (reach, none)
    _windowed(w, op, get_text(op.properties, "kind"), window, ones, low, high, ones, ones)


def select_and_scatter(w: Writer, op: Operation) -> None:
    x, source = op.operands
    if any(d != 1 for n in ("base_dilation", "window_dilation") for d in ints(op, n)):
        w.refuse(op, "StableHLO's select_and_scatter has no dilations")
    element = types.element_of(x)
    scalar = types.tensor((), element)
    init = w.scalar(0, element)
    a, b, c = w.fresh(), w.fresh(), w.fresh()
    chooses = [
        f"^bb0({a}: {scalar}, {b}: {scalar}):",
        f"  {c} = stablehlo.compare GE, {a}, {b} : ({scalar}, {scalar}) -> tensor<i1>",
        f"  stablehlo.return {c} : tensor<i1>",
    ]
    head = (
        f'"stablehlo.select_and_scatter"({w.name(x)}, {w.name(source)}, {init}) '
        f"<{{{window_numbers(op, dilated=False)}}}>"
    )
    kinds = function_type([x.type, source.type, scalar], [op.results[0].type])
    regioned(w, op, head, [chooses, _combining(w, "add", element)], kinds)


def scatter(w: Writer, op: Operation) -> None:
    kind, element = get_text(op.properties, "kind"), types.element_of(op.operands[0])
    head = f'"stablehlo.scatter"({w.names(op.operands)}) <{{{scatter_numbers(op)}}}>'
    if kind == "set":
        a, b = w.fresh(), w.fresh()
        scalar = types.tensor((), element)
        lines = [f"^bb0({a}: {scalar}, {b}: {scalar}):", f"  stablehlo.return {b} : {scalar}"]
    else:
        lines = _combining(w, _SCATTER[kind], element)
    regioned(w, op, head, [lines], tail(op))


def _comparing(w: Writer, op: Operation, descending: bool) -> list[str]:
    """First keys compared: floats so that zeros are equal and NaN is the largest."""
    arguments = [(w.fresh(), types.tensor((), types.element_of(o))) for o in op.operands for _ in range(2)]
    element = types.element_of(op.operands[0])
    scalar = types.tensor((), element)
    lines = [f"^bb0({', '.join(f'{n}: {t}' for n, t in arguments)}):"]
    keys = []

    def add(text: str) -> str:
        name = w.fresh()
        lines.append(f"  {name} = {text}")
        return name

    for name, _ in arguments[:2]:
        if types.is_float(element):
            dtype = types.numpy_dtype(element)
            zero = add(f"stablehlo.constant {_number(w, 0.0, element)} : {scalar}")
            nan = add(f"stablehlo.constant {_number(w, np.abs(np.array(np.nan, dtype)), element)} : {scalar}")
            is_zero = add(f"stablehlo.compare EQ, {name}, {zero} : ({scalar}, {scalar}) -> tensor<i1>")
            plain = add(f"stablehlo.select {is_zero}, {zero}, {name} : tensor<i1>, {scalar}")
            is_nan = add(f"stablehlo.compare NE, {name}, {name} : ({scalar}, {scalar}) -> tensor<i1>")
            name = add(f"stablehlo.select {is_nan}, {nan}, {plain} : tensor<i1>, {scalar}")
        keys.append(name)
    how = ", TOTALORDER" if types.is_float(element) else ""
    direction = "GT" if descending else "LT"
    less = add(
        f"stablehlo.compare {direction}, {keys[0]}, {keys[1]}{how} : ({scalar}, {scalar}) -> tensor<i1>"
    )
    lines.append(f"  stablehlo.return {less} : tensor<i1>")
    return lines


def _number(w: Writer, value: object, element: Attribute) -> str:
    from rhino.frontend.stablehlo.writer import literal
    from rhino.ir.dense import dense

    return literal(dense(np.asarray(value).astype(types.numpy_dtype(element)), types.tensor((), element)))


def sort(w: Writer, op: Operation) -> None:
    dim, descending = get_integer(op.properties, "dim"), "descending" in op.properties
    head = f'"stablehlo.sort"({w.names(op.operands)}) <{{dimension = {dim} : i64, is_stable = true}}>'
    regioned(w, op, head, [_comparing(w, op, descending)], tail(op))


def top_k(w: Writer, op: Operation) -> None:
    """`chlo.top_k` counts in i32."""
    values, indices = op.results
    small = types.tensor(types.shape_of(indices), types.I32)
    name = w.fresh()
    k = get_integer(op.properties, "k")
    x = op.operands[0]
    w.line(f"{name}:2 = chlo.top_k({w.name(x)}, k = {k}) : {x.type} -> ({values.type}, {small})")
    w.alias(values, f"{name}#0")
    wide = w.value(f"stablehlo.convert {name}#1 : ({small}) -> {indices.type}")
    w.alias(indices, wide)


OPS: dict[str, Emit] = {
    "hlo.reduce": reduce,
    "hlo.argmax": _extremum("max"),
    "hlo.argmin": _extremum("min"),
    "hlo.reduce_window": reduce_window,
    "hlo.cumulative": cumulative,
    "hlo.select_and_scatter": select_and_scatter,
    "hlo.scatter": scatter,
    "hlo.sort": sort,
    "hlo.top_k": top_k,
    **write_control.OPS,
}

__all__ = ["OPS", "REDUCERS"]
