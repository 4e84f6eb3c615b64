"""Ops of `chlo`, which JAX prints for functions that StableHLO has no op for, by formulas that keep precision."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.stablehlo import cephes, dynamic, elementwise, scan, special
from rhino.frontend.stablehlo.complex_math import ComplexMath
from rhino.frontend.stablehlo.importer import Handler, Importer, Values
from rhino.frontend.stablehlo.syntax import OpSyntax
from rhino.ir import types

Formula = Callable[[Builder, SSAValue], SSAValue]


def _asin(b: Builder, x: SSAValue) -> SSAValue:
    one = b.full_like(x, 1)
    root = b.sqrt(b.mul(b.sub(one, x), b.add(one, x)))
    return b.mul(b.atan2(x, b.add(one, root)), b.full_like(x, 2))


def _acos(b: Builder, x: SSAValue) -> SSAValue:
    one = b.full_like(x, 1)
    root = b.sqrt(b.mul(b.sub(one, x), b.add(one, x)))
    angle = b.mul(b.atan2(root, b.add(one, x)), b.full_like(x, 2))
    return b.select(b.compare(x, b.full_like(x, -1), "eq"), b.full_like(x, math.pi), angle)


def _atan(b: Builder, x: SSAValue) -> SSAValue:
    return b.atan2(x, b.full_like(x, 1))


def _sinh(b: Builder, x: SSAValue) -> SSAValue:
    """From expm1 near zero; further out from exp(x - log 2), which overflows only where the result does."""
    half, one = b.full_like(x, 0.5), b.full_like(x, 1)
    small = b.expm1(x)
    near = b.mul(half, b.add(small, b.div(small, b.add(small, one))))
    log2 = b.full_like(x, math.log(2))
    far = b.sub(b.exp(b.sub(x, log2)), b.exp(b.negate(b.add(x, log2))))
    return b.select(b.compare(b.abs(x), one, "lt"), near, far)


def _cosh(b: Builder, x: SSAValue) -> SSAValue:
    log2 = b.full_like(x, math.log(2))
    return b.add(b.exp(b.sub(x, log2)), b.exp(b.negate(b.add(x, log2))))


def _asinh(b: Builder, x: SSAValue) -> SSAValue:
    """log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))), and log 2|x| where the square would overflow."""
    size, one = b.abs(x), b.full_like(x, 1)
    square = b.mul(size, size)
    near = b.log1p(b.add(size, b.div(square, b.add(one, b.sqrt(b.add(square, one))))))
    far = b.add(b.log(size), b.full_like(x, math.log(2)))
    return b.mul(b.sign(x), b.select(b.compare(size, _huge(b, x), "ge"), far, near))


def _acosh(b: Builder, x: SSAValue) -> SSAValue:
    over = b.sub(x, b.full_like(x, 1))
    near = b.log1p(b.add(over, b.sqrt(b.mul(over, b.add(over, b.full_like(x, 2))))))
    far = b.add(b.log(x), b.full_like(x, math.log(2)))
    found = b.select(b.compare(x, _huge(b, x), "ge"), far, near)
    return b.select(b.compare(x, b.full_like(x, 1), "lt"), b.full_like(x, math.nan), found)


def _atanh(b: Builder, x: SSAValue) -> SSAValue:
    return b.mul(b.sub(b.log1p(x), b.log1p(b.negate(x))), b.full_like(x, 0.5))


def _huge(b: Builder, x: SSAValue) -> SSAValue:
    """Where x^2 + 1 is x^2 to all digits, and beyond which squares overflow."""
    dtype = types.numpy_dtype(types.element_of(x))
    return b.full_like(x, float(np.sqrt(np.finfo(dtype).max) / 2))


_FORMULAS: dict[str, Formula] = {
    "acos": _acos,
    "acosh": _acosh,
    "asin": _asin,
    "asinh": _asinh,
    "atan": _atan,
    "atanh": _atanh,
    "bessel_i1e": cephes.bessel_i1e,
    "cosh": _cosh,
    "digamma": special.digamma,
    "erf_inv": special.erf_inv,
    "erfc": cephes.erfc,
    "lgamma": special.lgamma,
    "sinh": _sinh,
}


_COMPLEX = ComplexMath(_asinh)

#: Functions of complex numbers that are computed in the type of their operand, as XLA does.
_UNWIDENED = ("cosh", "sinh")


def _formula(name: str, formula: Formula) -> Handler:
    """Narrow floats are computed in f32, complex numbers, whose formulas lose more, in complex<f64>."""
    of_complex = getattr(_COMPLEX, name, None)

    def handler(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
        (x,) = operands
        element = types.element_of(x)
        if types.is_complex(element) and of_complex is not None:
            if name in _UNWIDENED:
                return [of_complex(ctx.b, x)]
            wide = x if element == types.C128 else ctx.b.convert(x, types.C128)
            found = of_complex(ctx.b, wide)
            return [found if element == types.C128 else ctx.b.convert(found, element)]
        if element in (types.F32, types.F64):
            return [formula(ctx.b, x)]
        if not types.is_float(element):
            ctx.unsupported(op, f"of {types.show(x.type)}: Rhino computes it for floats")
        return [ctx.b.convert(formula(ctx.b, ctx.b.convert(x, types.F32)), element)]

    return handler


def _square(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """Of x + iy: (x - y) (x + y) + 2ixy, which overflows only where the result does."""
    (z,), b = operands, ctx.b
    if not types.is_complex(types.element_of(z)):
        return [b.mul(z, z)]
    x, y = b.real(z), b.imag(z)
    even = b.and_(b.is_finite(x), b.compare(b.abs(x), b.abs(y), "eq"))
    part = b.select(even, b.full_like(x, 0), b.mul(b.sub(x, y), b.add(x, y)))
    return [b.complex(part, b.mul(b.full_like(x, 2), b.mul(x, y)))]


def _erf(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return [ctx.b.erf(operands[0])]


def tan(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    (x,) = operands
    if types.is_complex(types.element_of(x)):
        return _formula("tan", _tan)(ctx, op, operands)
    return [ctx.b.tan(x)]


def _tan(b: Builder, x: SSAValue) -> SSAValue:
    return b.tan(x)


def _next_after(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    if types.element_of(operands[0]) not in (types.F32, types.F64, types.F16, types.BF16):
        ctx.unsupported(op, f"of {types.show(operands[0].type)}: Rhino computes it for floats")
    return [special.next_after(ctx.b, *operands)]


def _of_two(formula: Callable[[Builder, SSAValue, SSAValue], SSAValue]) -> Handler:
    def handler(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
        element = types.element_of(operands[0])
        if not types.is_float(element):
            ctx.unsupported(op, f"of {types.show(operands[0].type)}: Rhino computes it for floats")
        if element in (types.F32, types.F64):
            return [formula(ctx.b, *operands)]
        x, y = (ctx.b.convert(v, types.F32) for v in operands)
        return [ctx.b.convert(formula(ctx.b, x, y), element)]

    return handler


def _conj(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    (x,) = operands
    return [ctx.b.conj(x) if types.is_complex(types.element_of(x)) else x]


def _is_inf(sign: str) -> Handler:
    def handler(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
        (x,) = operands
        b = ctx.b
        bound = -math.inf if sign == "-" else math.inf
        return [b.compare(b.abs(x) if sign == "" else x, b.full_like(x, bound), "eq")]

    return handler


def _constant_like(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    value = op.attributes.get("value")
    if not isinstance(value, int | float):
        ctx.fail(op, "needs a number")
    return [ctx.b.full_like(operands[0], value)]


def _top_k(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    (x,) = operands
    values, index = _largest(ctx.b, x, ctx.integer(op, "k"))
    element = ctx.result(op, 1).element_type
    return [values, index if element == types.I64 else ctx.b.convert(index, element)]


def _mulhi(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """The upper half of the product of two integers."""
    x, y = operands
    b, element = ctx.b, types.element_of(x)
    if not types.is_integer(element):
        ctx.unsupported(op, f"of {types.show(x.type)}: it is for integers")
    bits, unsigned = 8 * types.itemsize(element), types.is_unsigned(element)
    if bits < 64:
        wide = types.UI64 if unsigned else types.I64
        product = b.mul(b.convert(x, wide), b.convert(y, wide))
        return [b.convert(b.shift_right_logical(product, b.full_like(product, bits)), element)]
    # Of halves of 32 bits; a negative factor counts as 2^64 more.
    half, low = b.full_like(x, 32), b.full_like(x, 0xFFFFFFFF)
    (x0, x1), (y0, y1) = ((b.and_(v, low), b.shift_right_logical(v, half)) for v in (x, y))
    middle = b.add(b.mul(x1, y0), b.shift_right_logical(b.mul(x0, y0), half))
    other = b.add(b.mul(x0, y1), b.and_(middle, low))
    high = b.add(b.mul(x1, y1), b.shift_right_logical(middle, half))
    high = b.add(high, b.shift_right_logical(other, half))
    if unsigned:
        return [high]
    zero = b.full_like(x, 0)
    for one, another in ((x, y), (y, x)):
        high = b.sub(high, b.select(b.compare(one, zero, "lt"), another, zero))
    return [high]


def _largest(b: Builder, x: SSAValue, k: int) -> tuple[SSAValue, SSAValue]:
    """The `k` largest and where they are. Floats are in their total order: NaN first, 0 before -0, -NaN last."""
    element = types.element_of(x)
    if not types.is_float(element):
        return b.top_k(x, k)
    bits = {1: types.I8, 2: types.I16, 4: types.I32, 8: types.I64}[types.itemsize(element)]
    key = b.bitcast_convert(x, bits)
    largest = b.full_like(key, int(np.iinfo(types.numpy_dtype(bits)).max))
    key = b.select(b.compare(key, b.full_like(key, 0), "lt"), b.xor(key, largest), key)
    _, index = b.top_k(key, k)
    return b.take_along(x, index, len(types.shape_of(x)) - 1), index


def _broadcasting(name: str) -> Handler:
    """``chlo.broadcast_add`` and its kin: dimensions matched from the last, or as they are told."""
    inner = elementwise.HANDLERS[f"stablehlo.{name}"]

    def handler(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
        shape = ctx.result(op).get_shape()
        told = op.attributes.get("broadcast_dimensions")
        ranks = [len(types.shape_of(v)) for v in operands]
        out = []
        for value, rank in zip(operands, ranks, strict=True):
            if told is not None and rank < max(ranks):
                out.append(ctx.b.broadcast_in_dim(value, shape, ctx.ints(op, "broadcast_dimensions")))
            else:
                out.append(ctx.b.broadcast_to(value, shape))
        return inner(ctx, op, out)

    return handler


_BROADCAST = (
    "add",
    "and",
    "atan2",
    "compare",
    "complex",
    "divide",
    "maximum",
    "minimum",
    "multiply",
    "or",
    "power",
    "remainder",
    "select",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "subtract",
    "xor",
)

HANDLERS: dict[str, Handler] = {
    **{f"chlo.{name}": _formula(name, formula) for name, formula in _FORMULAS.items()},
    **{f"chlo.broadcast_{name}": _broadcasting(name) for name in _BROADCAST},
    "chlo.scan": scan.scan,
    "chlo.square": _square,
    "stablehlo.square": _square,
    "chlo.erf": _erf,
    "chlo.tan": tan,
    "stablehlo.tan": tan,
    "chlo.conj": _conj,
    "chlo.next_after": _next_after,
    "chlo.zeta": _of_two(special.zeta),
    "chlo.polygamma": _of_two(special.polygamma),
    "chlo.broadcast_next_after": _next_after,
    "chlo.is_inf": _is_inf(""),
    "chlo.is_pos_inf": _is_inf("+"),
    "chlo.is_neg_inf": _is_inf("-"),
    "chlo.constant": elementwise.constant,
    "chlo.constant_like": _constant_like,
    "chlo.mulhi": _mulhi,
    "chlo.top_k": _top_k,
    "chlo.dynamic_reshape": dynamic.reshape,
}
