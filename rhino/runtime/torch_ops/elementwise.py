"""Elementwise ops in torch."""

from __future__ import annotations

import torch
from xdsl.ir import Operation

from rhino.dialects.hlo.base import get_text
from rhino.ir import types
from rhino.runtime.tensors import torch_dtype
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction, plain


def _bits(x: torch.Tensor) -> int:
    return 8 * x.element_size()


def shift_right_logical(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """Zeros come in from the left; 0 when all bits are shifted out. torch's own `>>` copies the sign."""
    bits = _bits(x)
    kept = torch.bitwise_left_shift(torch.ones_like(x), bits - n) - 1
    inside = (n >= 0) & (n < bits)
    return torch.where(inside, torch.bitwise_right_shift(x, n) & kept, torch.zeros_like(x))


def _divisor(y: torch.Tensor) -> torch.Tensor:
    """`y`, with 1 in place of 0 and -1: the processor traps on x / 0 and on the lowest integer / -1."""
    return torch.where((y == 0) | (y == -1), torch.ones_like(y), y)


def integer_div(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Truncating; x / 0 is -1."""
    quotient = torch.div(x, _divisor(y), rounding_mode="trunc")
    return torch.where(y == 0, torch.full_like(x, -1), torch.where(y == -1, -x, quotient))


def integer_rem(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """With the sign of x; x rem 0 is x."""
    return torch.where(y == 0, x, torch.fmod(x, _divisor(y)))


def integer_pow(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Negative powers truncate: 0 but for 1 and -1."""
    power = torch.pow(x, y.clamp(min=0))
    sign = torch.where(y % 2 == 0, torch.ones_like(x), torch.full_like(x, -1))
    inverse = torch.where(x == 1, torch.ones_like(x), torch.where(x == -1, sign, torch.zeros_like(x)))
    return torch.where(y < 0, inverse, power)


def _by_kind(
    floats: TensorFunction, integers: TensorFunction, booleans: TensorFunction | None = None
) -> Lowering:
    """Different functions for floating point, integers and i1."""

    def lower(op: Operation, ctx: Context) -> TensorFunction:
        element = types.element_of(op.operands[0])
        if element == types.I1 and booleans is not None:
            return booleans
        return floats if types.is_differentiable(element) else integers

    return lower


_COMPARE: dict[str, TensorFunction] = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}


def _compare(op: Operation, ctx: Context) -> TensorFunction:
    return _COMPARE[get_text(op.properties, "direction")]


def _convert(op: Operation, ctx: Context) -> TensorFunction:
    source, target = types.element_of(op.operands[0]), op.properties["element_type"]
    dtype = torch_dtype(target)
    if types.is_complex(source) and not types.is_complex(target):
        return (lambda x: x != 0) if target == types.I1 else (lambda x: x.real.to(dtype))
    if types.is_float(source) and types.is_integer(target):
        return lambda x: truncated(x, dtype)
    return lambda x: x.to(dtype)


def truncated(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Floats as integers: toward zero, saturating, NaN as 0, which torch leaves undefined."""
    info = torch.iinfo(dtype)
    wide = x if x.dtype == torch.float64 else x.float()
    high, low = wide >= float(info.max // 2 + 1) * 2, wide < info.min
    inside = torch.where(high | low | torch.isnan(wide), 0.0, wide)
    if dtype == torch.uint64:  # in two halves: torch converts through int64
        upper = (inside * 2.0**-32).long()
        out = (upper << 32) | (inside - upper.to(inside.dtype) * 2.0**32).long()
    else:
        out = inside.long()
    out = torch.where(high, info.max if info.max < 2**63 else -1, torch.where(low, info.min, out))
    return out.view(dtype) if dtype == torch.uint64 else out.to(dtype)


TABLE: dict[str, Lowering] = {
    "hlo.negate": plain(torch.neg),
    "hlo.stop_gradient": plain(lambda x: x),
    "hlo.abs": plain(torch.abs),
    "hlo.sign": plain(torch.sign),
    "hlo.exp": plain(torch.exp),
    "hlo.expm1": plain(torch.expm1),
    "hlo.log": plain(torch.log),
    "hlo.log1p": plain(torch.log1p),
    "hlo.sqrt": plain(torch.sqrt),
    "hlo.rsqrt": plain(torch.rsqrt),
    "hlo.tanh": plain(torch.tanh),
    "hlo.logistic": plain(torch.sigmoid),
    "hlo.sin": plain(torch.sin),
    "hlo.cos": plain(torch.cos),
    "hlo.tan": plain(torch.tan),
    "hlo.erf": plain(torch.erf),
    "hlo.floor": plain(torch.floor),
    "hlo.ceil": plain(torch.ceil),
    "hlo.round_even": plain(torch.round),
    "hlo.not": plain(torch.bitwise_not),
    "hlo.is_finite": plain(torch.isfinite),
    "hlo.add": plain(torch.add),
    "hlo.sub": plain(torch.sub),
    "hlo.mul": plain(torch.mul),
    "hlo.div": _by_kind(torch.div, integer_div),
    "hlo.rem": _by_kind(torch.fmod, integer_rem),
    "hlo.pow": _by_kind(torch.pow, integer_pow),
    "hlo.maximum": _by_kind(torch.maximum, torch.maximum, torch.logical_or),
    "hlo.minimum": _by_kind(torch.minimum, torch.minimum, torch.logical_and),
    "hlo.atan2": plain(torch.atan2),
    "hlo.and": plain(torch.bitwise_and),
    "hlo.or": plain(torch.bitwise_or),
    "hlo.xor": plain(torch.bitwise_xor),
    "hlo.shift_left": plain(torch.bitwise_left_shift),
    "hlo.shift_right_logical": plain(shift_right_logical),
    "hlo.shift_right_arithmetic": plain(torch.bitwise_right_shift),
    "hlo.compare": _compare,
    "hlo.select": plain(torch.where),
    "hlo.convert": _convert,
}

#: Functions of floating-point operands that can write their result into a given tensor (``out=``), an operand too.
INTO: dict[str, TensorFunction] = {
    "hlo.negate": torch.neg,
    "hlo.abs": torch.abs,
    "hlo.exp": torch.exp,
    "hlo.log": torch.log,
    "hlo.sqrt": torch.sqrt,
    "hlo.rsqrt": torch.rsqrt,
    "hlo.tanh": torch.tanh,
    "hlo.logistic": torch.sigmoid,
    "hlo.erf": torch.erf,
    "hlo.add": torch.add,
    "hlo.sub": torch.sub,
    "hlo.mul": torch.mul,
    "hlo.div": torch.div,
    "hlo.pow": torch.pow,
    "hlo.maximum": torch.maximum,
    "hlo.minimum": torch.minimum,
}
