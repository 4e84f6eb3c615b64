"""What a region computes: recognised as a reduction kind, an order or a choice, whatever its ops are called.

A region is turned into an expression over its arguments, in which commutative ops have their operands in one
order and a comparison reads from the left; patterns then compare expressions. Regions that no pattern knows
stay regions.
"""

from __future__ import annotations

from typing import Any

from rhino.frontend.stablehlo.syntax import Body, Literal, OpSyntax, Struct, TensorSyntax, Word

#: Expressions: ``("arg", i)``, ``("const", text)``, or ``(op, operand, ...)``.
Expr = tuple[Any, ...]

_COMMUTATIVE = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
_SWAPPED = {"GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}

#: Reduction kinds of `hlo` by op of StableHLO; on i1 the arithmetic ones are logic.
_KINDS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "and": "and", "or": "or"}
_LOGIC = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and", "and": "and", "or": "or"}


def expressions(body: Body) -> list[Expr] | None:
    """What the region returns, or None if it holds something that is no plain op."""
    env: dict[str, Expr] = {a.name: ("arg", i) for i, a in enumerate(body.arguments)}
    for op in body.ops:
        if op.name == "stablehlo.return":
            found = [env.get(name) for name in op.operands]
            return None if None in found else [e for e in found if e is not None]
        expression = _expression(op, env)
        if expression is None or len(op.results) != 1 or op.results[0][1] != 1:
            return None
        env[op.results[0][0]] = expression
    return None


def _expression(op: OpSyntax, env: dict[str, Expr]) -> Expr | None:
    if op.regions or not op.name.startswith("stablehlo."):
        return None
    operands = [env.get(name) for name in op.operands]
    if None in operands:
        return None
    known = [e for e in operands if e is not None]
    name = op.name.removeprefix("stablehlo.")
    if name == "constant":
        value = op.attributes.get("value")
        if not isinstance(value, Literal) or len(value.elements) != 1:
            return None
        return ("const", _number(value.elements[0], value.type.element))
    if name == "compare":
        direction, order = _word(op, "comparison_direction"), _word(op, "compare_type")
        if direction in ("GT", "GE"):
            known.reverse()
        elif direction in ("EQ", "NE"):
            known.sort(key=repr)
        order = order if order == "TOTALORDER" else ""
        return ("compare", _SWAPPED.get(direction, direction), order, *known)
    if name in ("reshape", "convert"):
        result = op.result_types[0] if op.result_types else None
        source = op.operand_types[0] if op.operand_types else None
        return known[0] if result == source and source is not None else ("to", str(result), known[0])
    if op.attributes:
        return None
    if name in _COMMUTATIVE:
        known.sort(key=repr)
    return (name, *known)


def _word(op: OpSyntax, name: str) -> str:
    value = op.attributes.get(name)
    found = value.word() if isinstance(value, Struct) else value.text if isinstance(value, Word) else value
    return found if isinstance(found, str) else ""


_NAN = ("0x7FC00000", "0x7FF8000000000000", "0x7E00", "0x7FC0")


def _number(text: object, element: str) -> str:
    """A constant in one spelling: ``0``, ``nan``, or as it stands."""
    if not isinstance(text, str):
        return str(text)
    if text in _NAN and element.lstrip("b").startswith("f"):
        return "nan"
    try:
        return "0" if float(text) == 0 and not text.startswith("-") else text
    except ValueError:
        return text


def element_of(body: Body, index: int = 0) -> str:
    type = body.arguments[index].type if index < len(body.arguments) else None
    return type.element if isinstance(type, TensorSyntax) else ""


def combiner(body: Body) -> str | None:
    """The reduction kind of a region of two arguments, or None."""
    found = expressions(body)
    if found is None or len(found) != 1 or len(body.arguments) != 2:
        return None
    return combiner_of(found[0], 0, 1, element_of(body))


def combiner_of(expression: Expr, left: int, right: int, element: str) -> str | None:
    """The reduction kind of an expression in two arguments, or None."""
    name, *rest = expression
    if rest != sorted([("arg", left), ("arg", right)], key=repr):
        return None
    return (_LOGIC if element == "i1" else _KINDS).get(name)


def combiners(body: Body) -> list[str] | None:
    """Kinds of a region that combines several operands, each with its own only; None if it is another."""
    found, count = expressions(body), len(body.arguments) // 2
    if found is None or len(found) != count:
        return None
    kinds = [combiner_of(e, i, count + i, element_of(body, i)) for i, e in enumerate(found)]
    return None if None in kinds else [k for k in kinds if k is not None]


def updates(body: Body) -> list[str] | None:
    """Kinds of a scatter's region: those of `combiners`, and ``set`` where the update stays."""
    found, count = expressions(body), len(body.arguments) // 2
    if found is None or len(found) != count:
        return None
    kinds: list[str] = []
    for i, e in enumerate(found):
        kind = "set" if e == ("arg", count + i) else combiner_of(e, i, count + i, element_of(body, i))
        if kind is None:
            return None
        kinds.append(kind)
    return kinds


def extremum_with_index(body: Body) -> str | None:
    """``max`` or ``min`` if the region keeps (value, index) of the first extremum, NaN first; else None.

    This is the region that JAX writes for argmax and argmin: arguments are value, index, value, index.
    """
    found = expressions(body)
    if found is None or len(found) != 2 or len(body.arguments) != 4:
        return None
    x, i, y, j = (("arg", k) for k in range(4))
    for kind, better in (("max", ("compare", "LT", "", y, x)), ("min", ("compare", "LT", "", x, y))):
        nan = ("compare", "NE", "", x, x)
        wins = ("or", *sorted((better, nan), key=repr))
        tie = ("and", *sorted((("compare", "EQ", "", x, y), ("compare", "LT", "", i, j)), key=repr))
        first = ("or", *sorted((wins, tie), key=repr))
        plain_wins = ("or", *sorted((better, tie), key=repr))
        if found == [("select", wins, x, y), ("select", first, i, j)]:
            return kind
        whole_numbers = element_of(body).lstrip("u").startswith("i")
        if whole_numbers and found == [("select", better, x, y), ("select", plain_wins, i, j)]:
            return kind
    return None


def order(body: Body) -> list[tuple[bool, int]] | None:
    """Keys ``(descending, operand)``, the major one first, by which the region compares; None if it does not.

    Floats compare so that all zeros are equal and NaN comes last, as `hlo.sort` has it: either by a plain
    comparison, or by a total order of operands whose zeros and NaNs were made alike.
    """
    found = expressions(body)
    if found is None or len(found) != 1:
        return None
    keys: list[tuple[bool, int]] = []
    rest = found[0]
    while True:
        if rest[0] == "compare":
            key = _key(body, rest)
            return None if key is None else [*keys, key]
        # less(a, b) or (a == b and rest)
        if rest[0] != "or":
            return None
        less = next((e for e in rest[1:] if e[0] == "compare"), None)
        both = next((e for e in rest[1:] if e[0] == "and"), None)
        if less is None or both is None:
            return None
        key = _key(body, less)
        equal = ("compare", "EQ", less[2], *sorted(less[3:], key=repr))
        others = [e for e in both[1:] if e != equal]
        if key is None or len(others) != 1:
            return None
        keys.append(key)
        rest = others[0]


def _key(body: Body, expression: Expr) -> tuple[bool, int] | None:
    """What one comparison orders by."""
    if expression[1] != "LT":
        return None
    _, _, kind, left, right = expression
    for descending in (False, True):
        first, second = (right, left) if descending else (left, right)
        index, other = _argument(first), _argument(second)
        if index is None or other != index + 1 or index % 2:
            continue
        is_float = element_of(body, index).lstrip("b").startswith("f")
        alike = first == _canonical(index) and second == _canonical(index + 1)
        plain = first == ("arg", index) and second == ("arg", index + 1)
        if (alike and is_float) or (plain and not (kind == "TOTALORDER" and is_float)):
            return descending, index // 2
    return None


def _argument(expression: Expr) -> int | None:
    """The one argument that an expression reads, or None."""
    if expression[0] == "arg":
        return int(expression[1])
    found = {_argument(e) for e in expression[1:] if isinstance(e, tuple) and e[:1] != ("const",)}
    return found.pop() if len(found) == 1 else None


def _canonical(index: int) -> Expr:
    """JAX's way to make zeros and NaNs alike: ``select(x != x, nan, select(x == 0, 0, x))``."""
    x: Expr = ("arg", index)
    zero: Expr = ("const", "0")
    is_zero = ("compare", "EQ", "", *sorted((x, zero), key=repr))
    is_nan = ("compare", "NE", "", x, x)
    return ("select", is_nan, ("const", "nan"), ("select", is_zero, zero, x))


def keeps_first_maximum(body: Body) -> bool:
    """Whether a selection prefers its first argument unless the second is greater."""
    return expressions(body) == [("compare", "LE", "", ("arg", 1), ("arg", 0))]
