"""Pieces of StableHLO text: types, lists, attributes."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, Operation

from rhino.dialects.hlo.base import get_ints


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
