"""The pretty forms of StableHLO ops, as MLIR prints them: every form becomes what the generic one would say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rhino.frontend.stablehlo.syntax import (
    Argument,
    Body,
    OpSyntax,
    OtherType,
    Struct,
    Symbol,
    TensorSyntax,
    TypeSyntax,
    Word,
)

if TYPE_CHECKING:
    from rhino.frontend.stablehlo.parser import Parser


@dataclass
class Form:
    """What stands to the right of an op's name."""

    operands: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    regions: list[Body] = field(default_factory=list)
    operand_types: list[TypeSyntax] = field(default_factory=list)
    result_types: list[TypeSyntax] = field(default_factory=list)


Reader = Callable[["Parser"], Form]

#: Names of the generic form for what an op's pretty form calls otherwise.
_NAMES = {
    ("broadcast_in_dim", "dims"): "broadcast_dimensions",
    ("dynamic_broadcast_in_dim", "dims"): "broadcast_dimensions",
    ("transpose", "dims"): "permutation",
    ("reverse", "dims"): "dimensions",
    ("concatenate", "dim"): "dimension",
    ("iota", "dim"): "iota_dimension",
    ("dynamic_iota", "dim"): "iota_dimension",
    ("get_dimension_size", "dim"): "dimension",
    ("set_dimension_size", "dim"): "dimension",
    ("dynamic_slice", "sizes"): "slice_sizes",
    ("broadcast", "sizes"): "broadcast_sizes",
    ("pad", "low"): "edge_padding_low",
    ("pad", "high"): "edge_padding_high",
    ("pad", "interior"): "interior_padding",
    ("fft", "type"): "fft_type",
    ("fft", "length"): "fft_length",
    ("rng", "distribution"): "rng_distribution",
    ("rng_bit_generator", "algorithm"): "rng_algorithm",
    ("convolution", "stride"): "window_strides",
    ("convolution", "pad"): "padding",
    ("convolution", "lhs_dilate"): "lhs_dilation",
    ("convolution", "rhs_dilate"): "rhs_dilation",
    ("convolution", "reverse"): "window_reversal",
}


def plain_form(p: Parser, name: str) -> Form:
    """Operands and ``key = value`` between commas, attributes, types: the form of nearly all ops."""
    form = Form()
    short = name.partition(".")[2]
    paren = p.accept("(")
    first = True
    while p.token.text not in (":", ")", "{", "}", "loc") and p.token.kind != "end":
        if not first and not p.accept(","):
            if p.token.text == "[":
                _ranges(p, short, form)
            elif p.token.text == "<":
                form.attributes["sharding"] = Struct("sdy.sharding", p.raw())
            else:
                break
            continue
        first = False
        if short == "dynamic_slice" and p.token.text == ",":
            continue  # of a scalar: no start stands between the commas
        _item(p, short, form)
    if paren:
        p.expect(")")
    form.attributes.update(p.optional_attributes())
    _types(p, short, form)
    if short.startswith("expect_"):  # the attributes of checks may stand behind the types
        form.attributes.update(p.optional_attributes())
    return form


def _item(p: Parser, short: str, form: Form) -> None:
    token = p.token
    if token.kind == "value":
        form.operands.append(p.value())
        return
    if token.text == "dense":
        form.attributes["value"] = p.literal()
        return
    key = p.word()
    if p.accept("="):
        _keyed(p, short, key, form.attributes)
    elif short in ("compare", "broadcast_compare"):
        slot = "compare_type" if "comparison_direction" in form.attributes else "comparison_direction"
        form.attributes[slot] = Word(key)
    else:
        p.fail(f"unexpected '{key}'", token.at)


def _keyed(p: Parser, short: str, key: str, out: dict[str, Any]) -> None:
    if key in ("contracting_dims", "batching_dims"):
        lhs = p.integers()
        p.expect("x")
        stem = "contracting_dimensions" if key == "contracting_dims" else "batching_dimensions"
        known = out.get("dot_dimension_numbers")
        fields = dict(known.fields) if isinstance(known, Struct) else {}
        fields.update({f"lhs_{stem}": lhs, f"rhs_{stem}": p.integers()})
        out["dot_dimension_numbers"] = Struct("stablehlo.dot", "", fields)
    elif key == "precision":
        out["precision_config"] = p.listed(p.word, "[", "]")
    elif key == "format":
        exponent, _, mantissa = p.word()[1:].partition("m")
        if not exponent.isdigit() or not mantissa.isdigit():
            p.fail("expected a format such as e5m10")
        out["exponent_bits"], out["mantissa_bits"] = int(exponent), int(mantissa)
    elif p.token.text == "<":
        out[_NAMES.get((short, key), key)] = Struct(f"stablehlo.{key}", p.raw())
    else:  # the colon behind a number or string is the op's
        plain = {"number": p.number, "string": p.string}.get(p.token.kind, p.attribute)
        out[_NAMES.get((short, key), key)] = plain()


def _ranges(p: Parser, short: str, form: Form) -> None:
    """``[0:4:2, 1:3]`` of a slice, ``[0]`` of a tuple element."""
    if short == "get_tuple_element":
        p.expect("[")
        form.attributes["index"] = p.integer()
        p.expect("]")
        return

    def item() -> tuple[int, int, int]:
        start = p.integer()
        p.expect(":")
        limit = p.integer()
        return start, limit, p.integer() if p.accept(":") else 1

    found = p.listed(item, "[", "]")
    for i, key in enumerate(("start_indices", "limit_indices", "strides")):
        form.attributes[key] = [r[i] for r in found]


def _types(p: Parser, short: str, form: Form) -> None:
    """What follows the colon: a function type, operand types with or without a result, or one type for all."""
    if not p.accept(":"):
        return
    if p.token.text == "(":
        type = p.function_type()
        form.operand_types, form.result_types = list(type.inputs), list(type.outputs)
        return
    found = [p.type()]
    while p.accept(","):
        found.append(p.type())
    if p.accept("->"):
        form.operand_types, form.result_types = found, p.result_types()
    elif short in ("return",) or short.startswith("expect_"):
        form.operand_types = found
    elif short == "optimization_barrier":
        form.operand_types = form.result_types = found
    else:
        form.result_types = [found[-1]]


def _constant(p: Parser) -> Form:
    form = Form()
    if p.accept("("):
        p.expect(")")
    form.attributes.update(p.optional_attributes())
    if "value" not in form.attributes:
        form.attributes["value"] = p.attribute()
    if p.accept(":"):
        form.result_types = [p.type()]
    else:
        type = getattr(form.attributes["value"], "type", None)
        if not isinstance(type, TensorSyntax):
            p.fail("a constant needs a tensor literal")
        form.result_types = [type]
    return form


def _call(p: Parser) -> Form:
    """``call @f(%0) : (type) -> type``, also of custom calls."""
    form = Form()
    name = p.symbol()
    form.attributes["callee"] = Symbol(name)
    form.attributes["call_target_name"] = name
    form.operands = p.listed(p.value, "(", ")")
    form.attributes.update(p.optional_attributes())
    p.expect(":")
    type = p.function_type()
    form.operand_types, form.result_types = list(type.inputs), list(type.outputs)
    return form


def _composite(p: Parser) -> Form:
    form = Form()
    form.attributes["name"] = p.string()
    paren = p.accept("(")
    while p.token.kind == "value":
        form.operands.append(p.value())
        p.accept(",")
    if paren:
        p.expect(")")
    form.attributes.update(p.optional_attributes())
    _types(p, "composite", form)
    return form


def _reduce(p: Parser) -> Form:
    """``(%x init: %c), ... applies op across dimensions = [..]``, or with a ``reducer`` region at the end."""
    form = Form()
    operands, inits = [], []
    while True:
        p.expect("(")
        operands.append(p.value())
        p.expect("init")
        p.expect(":")
        inits.append(p.value())
        p.expect(")")
        if not p.accept(","):
            break
    form.operands = operands + inits
    applied = p.token
    name = p.word() if p.accept("applies") else None
    p.expect("across")
    p.expect("dimensions")
    p.expect("=")
    form.attributes["dimensions"] = p.integers()
    form.attributes.update(p.optional_attributes())
    _types(p, "reduce", form)
    if name is not None:
        form.regions = [_applied(p, name, form, applied.at)]
        return form
    p.expect("reducer")
    left, right = [], []
    while p.accept("("):
        left.append(p.argument())
        p.expect(",")
        right.append(p.argument())
        p.expect(")")
    form.regions = [p.region(left + right)]
    return form


def _applied(p: Parser, name: str, form: Form, at: int) -> Body:
    """The region of ``applies op``: one op on its two arguments."""
    first = form.result_types[0] if form.result_types else None
    if not isinstance(first, TensorSyntax) or len(form.result_types) != 1:
        p.fail("'applies' is for one operand", at)
    scalar = TensorSyntax((), first.element)
    op = OpSyntax(name, ["%a", "%b"], [("%c", 1)], {}, [], (scalar, scalar), (scalar,), at)
    end = OpSyntax("stablehlo.return", ["%c"], [], {}, [], (scalar,), (), at)
    return Body([Argument("%a", scalar), Argument("%b", scalar)], [op, end])


def _while(p: Parser) -> Form:
    """``(%a = %0, ...) : types cond { } do { }``."""
    form = Form()
    names = []

    def item() -> None:
        names.append(p.value())
        p.expect("=")
        form.operands.append(p.value())

    p.listed(item, "(", ")")
    types: list[TypeSyntax] = []
    if p.accept(":"):
        types.append(p.type())
        while p.accept(","):
            types.append(p.type())
    if len(types) != len(names):
        p.fail(f"{len(names)} values, but {len(types)} types")
    if p.accept("attributes"):
        form.attributes.update(p.attributes())
    form.operand_types = form.result_types = types
    for word in ("cond", "do"):
        p.expect(word)
        form.regions.append(p.region([Argument(n, t) for n, t in zip(names, types, strict=True)]))
    return form


def _scan(p: Parser) -> Form:
    """``(%x, ...) inits(%c, ...) dimension=0 attributes {...} { ^bb0(...): } : types``."""
    form = Form()
    inputs = p.listed(p.value, "(", ")")
    p.expect("inits")
    inits = p.listed(p.value, "(", ")")
    form.operands = inputs + inits
    form.attributes["operandSegmentSizes"] = [len(inputs), len(inits)]
    p.expect("dimension")
    p.expect("=")
    form.attributes["dimension"] = p.integer()
    if p.accept("attributes"):
        form.attributes.update(p.attributes())
    form.regions = [p.region()]
    p.expect(":")
    type = p.function_type()
    form.operand_types, form.result_types = list(type.inputs), list(type.outputs)
    return form


def _convolution(p: Parser) -> Form:
    """``(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {...} {...} : type``."""
    form = Form()
    form.operands = p.listed(p.value, "(", ")")
    p.expect("dim_numbers")
    p.expect("=")
    start = p.token.at
    for separator in ("x", "->", ","):
        p.raw()
        if separator != ",":
            p.expect(separator)
    form.attributes["dimension_numbers"] = Struct("stablehlo.conv", p.text[start : p.token.at])
    p.expect(",")
    p.expect("window")
    p.expect("=")
    p.expect("{")
    while not p.accept("}"):
        key = p.word()
        p.expect("=")
        form.attributes[_NAMES.get(("convolution", key), key)] = p.attribute()
        p.accept(",")
    form.attributes.update(p.optional_attributes())
    _types(p, "convolution", form)
    return form


def _manual(p: Parser) -> Form:
    p.unsupported("sdy.manual_computation (shard_map) holds local code; Rhino reads global programs")


FORMS: dict[str, Reader] = {
    "stablehlo.constant": _constant,
    "chlo.constant": _constant,
    "func.call": _call,
    "stablehlo.custom_call": _call,
    "stablehlo.composite": _composite,
    "stablehlo.reduce": _reduce,
    "stablehlo.while": _while,
    "stablehlo.convolution": _convolution,
    "stablehlo.dynamic_conv": _convolution,
    "chlo.scan": _scan,
    "sdy.manual_computation": _manual,
}

__all__ = ["FORMS", "Form", "OtherType", "plain_form"]
