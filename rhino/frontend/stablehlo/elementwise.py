"""Elementwise ops of StableHLO, and its constants."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import integer, text
from rhino.frontend.stablehlo.importer import Handler, Importer, Values
from rhino.frontend.stablehlo.syntax import OpSyntax
from rhino.ir import types

_SAME = {
    "abs": "abs",
    "add": "add",
    "atan2": "atan2",
    "cbrt": "cbrt",
    "ceil": "ceil",
    "complex": "complex",
    "cosine": "cos",
    "count_leading_zeros": "count_leading_zeros",
    "divide": "div",
    "exponential": "exp",
    "exponential_minus_one": "expm1",
    "floor": "floor",
    "imag": "imag",
    "is_finite": "is_finite",
    "log": "log",
    "log_plus_one": "log1p",
    "logistic": "logistic",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "mul",
    "negate": "negate",
    "not": "not",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "optimization_barrier": "optimization_barrier",
    "popcnt": "popcnt",
    "power": "pow",
    "real": "real",
    "remainder": "rem",
    "round_nearest_afz": "round_nearest_afz",
    "round_nearest_even": "round_even",
    "rsqrt": "rsqrt",
    "select": "select",
    "shift_left": "shift_left",
    "shift_right_arithmetic": "shift_right_arithmetic",
    "shift_right_logical": "shift_right_logical",
    "sine": "sin",
    "sqrt": "sqrt",
    "subtract": "sub",
    "tan": "tan",
    "tanh": "tanh",
}

#: Arithmetic of i1 is logic.
_LOGIC = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and", "subtract": "xor"}

DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


def _greater(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
    """Complex numbers in the order of their real, then of their imaginary parts."""
    (xr, yr), (xi, yi) = ((f(x), f(y)) for f in (b.real, b.imag))
    tie = b.and_(b.compare(xr, yr, "eq"), b.compare(xi, yi, "gt"))
    return b.or_(b.compare(xr, yr, "gt"), tie)


def _larger(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
    return b.select(_greater(b, x, y), x, y)


def _smaller(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
    return b.select(_greater(b, y, x), x, y)


def _angle(b: Builder, y: SSAValue, x: SSAValue) -> SSAValue:
    """atan2 of complex numbers: -i log((x + iy) / sqrt(x^2 + y^2)), whose sums may cancel: in complex<f64>."""
    element = types.element_of(y)
    if element == types.C64:
        return b.convert(_angle(b, *(b.convert(v, types.C128) for v in (y, x))), element)
    turned = b.complex(b.negate(b.imag(y)), b.real(y))
    root = b.sqrt(b.add(b.mul(x, x), b.mul(y, y)))
    found = b.log(b.div(b.add(x, turned), root))
    return b.complex(b.imag(found), b.negate(b.real(found)))


_OF_COMPLEX: dict[str, Callable[[Builder, SSAValue, SSAValue], SSAValue]] = {
    "maximum": _larger,
    "minimum": _smaller,
    "atan2": _angle,
}


def _plain(short: str) -> Handler:
    name, logic = _SAME[short], _LOGIC.get(short)

    def handler(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
        if logic is not None and operands and types.element_of(operands[0]) == types.I1:
            return ctx.emit(op, logic, operands)
        if short in ("real", "imag") and operands and not types.is_complex(types.element_of(operands[0])):
            x = operands[0]
            return [x] if short == "real" else [ctx.b.full_like(x, 0)]
        if short in _OF_COMPLEX and operands and types.is_complex(types.element_of(operands[0])):
            return [_OF_COMPLEX[short](ctx.b, *operands)]
        if short == "abs" and operands and types.is_complex(types.element_of(operands[0])):
            return ctx.emit(op, "complex_abs", operands)
        return ctx.emit(op, name, operands)

    return handler


def constant(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    value = ctx.literal(op, op.attributes.get("value"))
    return [ctx.b.constant(value, ctx.result(op))]


def sign(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """Of a complex number z / |z|, and 0 of 0."""
    (z,) = operands
    b = ctx.b
    if not types.is_complex(types.element_of(z)):
        return ctx.emit(op, "sign", operands)
    (size,) = ctx.emit(op, "complex_abs", operands)
    zero = b.full_like(size, 0)
    nothing = b.compare(size, zero, "eq")
    divided = b.div(z, b.complex(b.select(nothing, b.full_like(size, 1), size), zero))
    return [b.select(nothing, b.full_like(z, 0), divided)]


def compare(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    direction = ctx.word(op, "comparison_direction")
    if direction not in DIRECTIONS:
        ctx.fail(op, f"no comparison '{direction}'")
    x, y = operands
    if ctx.word(op, "compare_type") == "TOTALORDER" and types.is_float(types.element_of(x)):
        return ctx.emit(op, "compare_total", operands, {"direction": text(direction.lower())})
    return [ctx.b.compare(x, y, direction.lower())]


def clamp(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    if operands and types.is_complex(types.element_of(operands[0])):
        low, x, high = operands
        shape, b = types.shape_of(x), ctx.b
        low, high = (b.broadcast_to(v, shape) for v in (low, high))
        return [_smaller(b, _larger(b, low, x), high)]
    return ctx.emit(op, "clamp", operands)


def convert(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    (x,) = operands
    target = ctx.result(op).element_type
    return [x if types.element_of(x) == target else ctx.b.convert(x, target)]


def reduce_precision(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    properties = {name: integer(ctx.integer(op, name)) for name in ("exponent_bits", "mantissa_bits")}
    return ctx.emit(op, "reduce_precision", operands, properties)


def bitcast_convert(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    target = ctx.result(op).element_type
    if types.element_of(operands[0]) == target:
        return operands
    return ctx.emit(op, "bitcast_convert", operands, {"element_type": target})


def barrier(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return ctx.emit(op, "optimization_barrier", operands) if operands else []


HANDLERS: dict[str, Handler] = {
    **{f"stablehlo.{short}": _plain(short) for short in _SAME},
    "stablehlo.constant": constant,
    "stablehlo.sign": sign,
    "stablehlo.compare": compare,
    "stablehlo.clamp": clamp,
    "stablehlo.convert": convert,
    "stablehlo.reduce_precision": reduce_precision,
    "stablehlo.bitcast_convert": bitcast_convert,
    "stablehlo.optimization_barrier": barrier,
}
