"""Activation functions, softmax and dropout."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import integer
from rhino.frontend.torch_ops.context import Handler, Number, OpContext, axis, cast, spread, wide
from rhino.ir import types


def relu(c: OpContext, x: SSAValue) -> SSAValue:
    """A select rather than a maximum: torch's gradient at zero is zero. NaN stays NaN."""
    zero = c.full(0, x)
    return c.b.select(c.b.compare(x, zero, "le"), zero, x)


def gelu(c: OpContext, x: SSAValue, *, approximate: str = "none") -> SSAValue:
    """Composite ``gelu``: x * Phi(x), or the tanh form of Hendrycks and Gimpel (arXiv 1606.08415)."""

    def body(b: Builder, *operands: SSAValue) -> Sequence[SSAValue]:
        (whole,) = operands
        y = cast(b, whole, wide(types.element_of(whole)))
        half, one = b.full_like(y, 0.5), b.full_like(y, 1)
        if approximate == "tanh":
            cube = b.mul(b.mul(y, y), y)
            inner = b.mul(
                b.full_like(y, math.sqrt(2 / math.pi)), b.add(y, b.mul(b.full_like(y, 0.044715), cube))
            )
            out = b.mul(b.mul(half, y), b.add(one, b.tanh(inner)))
        else:
            out = b.mul(b.mul(half, y), b.add(one, b.erf(b.mul(y, b.full_like(y, math.sqrt(0.5))))))
        return [cast(b, out, types.element_of(whole))]

    return c.b.composite("gelu", [x], {"approximate": StringAttr(approximate)}, body)[0]


def silu(c: OpContext, x: SSAValue) -> SSAValue:
    y = c.widened(x)
    return c.convert(c.b.mul(y, c.b.logistic(y)), c.element)


def leaky_relu(c: OpContext, x: SSAValue, slope: Number = 0.01) -> SSAValue:
    return c.b.select(c.b.compare(x, c.full(0, x), "gt"), x, c.b.mul(x, c.full(slope, x)))


def elu(c: OpContext, x: SSAValue, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> SSAValue:
    """``scale * (x if x > 0 else alpha * (exp(input_scale * x) - 1))``"""
    b, y = c.b, c.widened(x)
    positive = b.compare(y, c.full(0, y), "gt")
    # The exponential of large positive numbers is never taken: its derivative would survive the select.
    low = b.select(positive, c.full(0, y), y)
    tail = b.mul(b.expm1(b.mul(low, c.full(input_scale, y))), c.full(alpha, y))
    return c.convert(b.mul(b.select(positive, y, tail), c.full(scale, y)), c.element)


def softplus(c: OpContext, x: SSAValue, beta: Number = 1, threshold: Number = 20) -> SSAValue:
    b, y = c.b, c.widened(x)
    scaled = b.mul(y, c.full(beta, y))
    linear = b.compare(scaled, c.full(threshold, y), "gt")
    safe = b.select(linear, c.full(0, y), scaled)
    soft = b.div(b.log1p(b.exp(safe)), c.full(beta, y))
    return c.convert(b.select(linear, y, soft), c.element)


def hardtanh(c: OpContext, x: SSAValue, low: Number = -1, high: Number = 1) -> SSAValue:
    """torch's gradient is zero at both bounds."""
    b = c.b
    x = b.select(b.compare(x, c.full(low, x), "le"), c.full(low, x), x)
    return b.select(b.compare(x, c.full(high, x), "ge"), c.full(high, x), x)


def softmax_of(b: Builder, x: SSAValue, dim: int) -> SSAValue:
    """exp(x - max) / sum, in the operand's precision; the maximum is a constant to the gradient."""
    shape = types.shape_of(x)
    e = b.exp(b.sub(x, spread(b, row_max(b, x, dim), shape, [dim])))
    return b.div(e, spread(b, b.reduce(e, [dim], "sum"), shape, [dim]))


def log_softmax_of(b: Builder, x: SSAValue, dim: int) -> SSAValue:
    """x - max - log(sum(exp(x - max)))"""
    shape = types.shape_of(x)
    shifted = b.sub(x, spread(b, row_max(b, x, dim), shape, [dim]))
    total = b.reduce(b.exp(shifted), [dim], "sum")
    return b.sub(shifted, spread(b, b.log(total), shape, [dim]))


def row_max(b: Builder, x: SSAValue, dim: int) -> SSAValue:
    """Maximum along `dim`, through which no gradient flows."""
    return b.stop_gradient(b.reduce(x, [dim], "max"))


def _softmax(log: bool) -> Handler:
    name = "log_softmax" if log else "softmax"

    def handler(c: OpContext, x: SSAValue, dim: int, dtype: object = None) -> SSAValue:
        element = c.element
        if not c.shape:
            return c.full(0 if log else 1, c.convert(x, element))
        d = axis(dim, len(c.shape))

        def body(b: Builder, *operands: SSAValue) -> Sequence[SSAValue]:
            y = cast(b, operands[0], wide(element))
            return [cast(b, (log_softmax_of if log else softmax_of)(b, y, d), element)]

        return c.b.composite(name, [x], {"dim": integer(d)}, body)[0]

    return handler


def _softmax_half_to_float(log: bool) -> Handler:
    handler = _softmax(log)

    def wrapped(c: OpContext, x: SSAValue, dim: int, half_to_float: bool) -> SSAValue:
        return handler(c, x, dim)

    return wrapped


ATEN: dict[str, Handler] = {
    "aten.relu.default": relu,
    "aten.gelu.default": gelu,
    "aten.silu.default": silu,
    "aten.leaky_relu.default": leaky_relu,
    "aten.elu.default": elu,
    "aten.softplus.default": softplus,
    "aten.hardtanh.default": hardtanh,
    "aten.softmax.int": _softmax(log=False),
    "aten.log_softmax.int": _softmax(log=True),
    "aten._softmax.default": _softmax_half_to_float(log=False),
    "aten._log_softmax.default": _softmax_half_to_float(log=True),
}
