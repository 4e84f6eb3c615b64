"""Integers of 2 and 4 bits: kept in 8 bits, and wrapped around after every op that may leave their range."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import IntegerType
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.ir import types


@dataclass(frozen=True)
class Narrow:
    """An integer type of `bits` bits; `storage` is the type of 8 bits that holds it."""

    bits: int
    signed: bool
    storage: IntegerType


NARROW = {
    "i2": Narrow(2, True, types.I8),
    "i4": Narrow(4, True, types.I8),
    "ui2": Narrow(2, False, types.UI8),
    "ui4": Narrow(4, False, types.UI8),
}

#: Ops whose results stay in range by themselves: they move, pick or compare elements.
KEEPING = frozenset(
    f"stablehlo.{name}"
    for name in (
        "and",
        "bitcast_convert",
        "broadcast_in_dim",
        "case",
        "clamp",
        "compare",
        "concatenate",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "get_tuple_element",
        "if",
        "maximum",
        "minimum",
        "optimization_barrier",
        "or",
        "pad",
        "remainder",
        "reshape",
        "reverse",
        "select",
        "sign",
        "slice",
        "sort",
        "transpose",
        "while",
        "xor",
    )
)

#: Ops that read the bits of their first operand, of which the type has fewer than its storage.
OF_BITS = frozenset(
    f"stablehlo.{name}"
    for name in ("count_leading_zeros", "popcnt", "shift_right_arithmetic", "shift_right_logical")
)


def masked(b: Builder, x: SSAValue, narrow: Narrow) -> SSAValue:
    """The bits of the number, zeros above them."""
    return b.and_(x, b.full_like(x, (1 << narrow.bits) - 1))


def wrapped(b: Builder, x: SSAValue, narrow: Narrow) -> SSAValue:
    """The number that the lowest bits stand for."""
    if not narrow.signed:
        return masked(b, x, narrow)
    above = b.full_like(x, 8 - narrow.bits)
    return b.shift_right_arithmetic(b.shift_left(x, above), above)


def prepared(b: Builder, name: str, x: SSAValue, narrow: Narrow) -> SSAValue:
    """The first operand of an op of `OF_BITS`: its sign where the storage has it, else nothing above its bits."""
    if name != "stablehlo.shift_right_arithmetic":
        return masked(b, x, narrow)
    return x if narrow.signed else b.shift_left(x, b.full_like(x, 8 - narrow.bits))


def finished(b: Builder, name: str, result: SSAValue, narrow: Narrow) -> SSAValue:
    """The op's result in its own type from that on the storage."""
    above = b.full_like(result, 8 - narrow.bits)
    if name == "stablehlo.count_leading_zeros":
        result = b.sub(result, above)
    elif name == "stablehlo.shift_right_arithmetic" and not narrow.signed:
        result = b.shift_right_logical(result, above)
    return wrapped(b, result, narrow)
