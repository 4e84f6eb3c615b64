"""Which elementwise ops of StableHLO take which element types, and programs of one of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from op_draw import COMPLEX, FLOAT8, FLOATS, INTEGERS, PART, SIGNED, UNSIGNED, Draw, special, tensor

Case = tuple[str, tuple[str, ...], str, str]
"""An op, the element types of its operands and of its result, attributes."""

_LOGIC = (*INTEGERS, "i1")
_NUMBERS = (*INTEGERS, *FLOATS, *COMPLEX)
_ALL = (*_NUMBERS, "i1")
_ANALYTIC = (*FLOATS, *COMPLEX)

_UNARY = {
    "abs": (*SIGNED, *FLOATS),
    "cbrt": FLOATS,
    "ceil": FLOATS,
    "cosine": _ANALYTIC,
    "count_leading_zeros": INTEGERS,
    "exponential": _ANALYTIC,
    "exponential_minus_one": _ANALYTIC,
    "floor": FLOATS,
    "log": _ANALYTIC,
    "log_plus_one": _ANALYTIC,
    "logistic": _ANALYTIC,
    "negate": _NUMBERS,
    "not": _LOGIC,
    "popcnt": INTEGERS,
    "round_nearest_afz": FLOATS,
    "round_nearest_even": FLOATS,
    "rsqrt": _ANALYTIC,
    "sign": (*SIGNED, *FLOATS, *COMPLEX),
    "sine": _ANALYTIC,
    "sqrt": _ANALYTIC,
    "tan": _ANALYTIC,
    "tanh": _ANALYTIC,
}
_BINARY = {
    "add": _ALL,
    "and": _LOGIC,
    "atan2": _ANALYTIC,
    "divide": _NUMBERS,
    "maximum": _ALL,
    "minimum": _ALL,
    "multiply": _ALL,
    "or": _LOGIC,
    "power": _NUMBERS,
    "remainder": (*INTEGERS, *FLOATS),  # the interpreter has none of complex numbers
    "shift_left": INTEGERS,
    "shift_right_arithmetic": INTEGERS,
    "shift_right_logical": INTEGERS,
    "subtract": _NUMBERS,
    "xor": _LOGIC,
}
_FORMATS = ((5, 2), (4, 3), (5, 10), (8, 7), (8, 23), (11, 52), (3, 3))


def cases() -> Iterator[Case]:
    """Every elementwise op with every element type that it takes."""
    for name, elements in _UNARY.items():
        yield from ((name, (e,), e, "") for e in elements)
    for name, elements in _BINARY.items():
        yield from ((name, (e, e), e, "") for e in elements)
    for element, part in PART.items():
        yield "abs", (element,), part, ""
        yield "real", (element,), part, ""
        yield "imag", (element,), part, ""
        yield "complex", (part, part), element, ""
    for element in FLOATS:
        yield "is_finite", (element,), "i1", ""
        for exponent, mantissa in _FORMATS:
            bits = f"exponent_bits = {exponent} : i32, mantissa_bits = {mantissa} : i32"
            yield "reduce_precision", (element,), element, bits
    for element in _ALL:
        yield "select", ("i1", element, element), element, ""
        yield "clamp", (element,) * 3, element, ""
        for direction in ("EQ", "NE", "LT", "LE", "GT", "GE"):
            if element not in COMPLEX or direction in ("EQ", "NE"):
                yield "compare", (element, element), "i1", _comparison(element, direction)
    for source in (*INTEGERS, *FLOATS, *FLOAT8, "i1"):
        for target in (*INTEGERS, *FLOATS, *FLOAT8, *COMPLEX, "i1"):
            yield "convert", (source,), target, ""


def _comparison(element: str, direction: str) -> str:
    kind = "FLOAT" if element in (*FLOATS, *COMPLEX) else "SIGNED" if element in SIGNED else "UNSIGNED"
    return (
        f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
        f"compare_type = #stablehlo<comparison_type {kind}>"
    )


def program(case: Case, count: int = 48) -> str:
    """The op on drawn numbers: those at the borders of the type too, but for complex ones, where conventions differ,
    and clamp, whose bounds could be NaN."""
    name, elements, result, attributes = case
    d = Draw(sum(map(ord, "".join((name, *elements, attributes)))))
    wild = not any(e in COMPLEX for e in (*elements, result)) and name != "clamp"
    values = [special(d.random, e, count, wild) for e in elements]
    if name in ("divide", "remainder") and elements[0] in INTEGERS:
        # By 0, and of the smallest by -1: the interpreter stops there.
        safe = values[1] != 0 if elements[0] in UNSIGNED else (values[1] != 0) & (values[1] != -1)
        values[1] = np.where(safe, values[1], values[1].dtype.type(3))
    names = [d.given(v, e) for v, e in zip(values, elements, strict=True)]
    kind = tensor([count], result)
    return d.text(d.op(name, names, [tensor([count], e) for e in elements], attributes, [kind]), [kind])
