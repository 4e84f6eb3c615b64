"""Clamp, roundings, bits and complex numbers in torch."""

from __future__ import annotations

import torch
from xdsl.ir import Operation

from rhino.dialects.hlo.base import get_integer, get_text
from rhino.ir import types
from rhino.runtime.tensors import torch_dtype
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction, plain

#: Signed integers of a width in bytes, whose bits stand for those of any other type.
SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

#: Bits of the significand and of the exponent.
_FORMATS = {torch.float64: (52, 11), torch.float32: (23, 8), torch.float16: (10, 5), torch.bfloat16: (7, 8)}

#: Number of set bits of every byte.
_BITS = torch.tensor([bin(i).count("1") for i in range(256)], dtype=torch.int64)


def _clamp(op: Operation, ctx: Context) -> TensorFunction:
    if types.element_of(op.operands[1]) == types.I1:
        return lambda low, x, high: (low | x) & high
    return lambda low, x, high: torch.minimum(torch.maximum(low, x), high)


def cbrt(x: torch.Tensor) -> torch.Tensor:
    """torch has no cube root: a power, and a Newton step for the last digits."""
    if x.is_complex():
        return torch.pow(x, 1 / 3)
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    y = torch.sign(wide) * torch.pow(wide.abs(), 1 / 3)
    better = y - (y * y * y - wide) / (3 * y * y)
    return torch.where((y == 0) | ~torch.isfinite(better), torch.where(y == 0, wide, y), better).to(x.dtype)


def round_away(x: torch.Tensor) -> torch.Tensor:
    """To the nearest integer, halves away from zero."""
    whole = torch.trunc(x)
    return torch.where(
        torch.isfinite(x), whole + torch.copysign(((x - whole).abs() >= 0.5).to(x.dtype), x), x
    )


def _reduce_precision(op: Operation, ctx: Context) -> TensorFunction:
    exponent, mantissa = (get_integer(op.properties, n) for n in ("exponent_bits", "mantissa_bits"))
    return lambda x: reduce_precision(x, exponent, mantissa)


def reduce_precision(x: torch.Tensor, exponent_bits: int, mantissa_bits: int) -> torch.Tensor:
    """See `rhino.dialects.hlo.clamp.reduce_precision`."""
    significand, exponent = _FORMATS[x.dtype]
    bits = x.contiguous().view(SIGNED[x.element_size()])
    if mantissa_bits < significand:
        drop = significand - mantissa_bits
        last = 1 << drop
        bits = (bits + ((bits >> drop) & 1) + (last // 2 - 1)) & ~(last - 1)
    if exponent_bits < exponent:
        lowest = torch.iinfo(bits.dtype).min
        mask = ((1 << exponent) - 1) << significand
        bias_from, bias_to = (1 << (exponent - 1)) - 1, (1 << (exponent_bits - 1)) - 1
        sign, at = bits & lowest, bits & mask
        over, under = (
            at > ((bias_from + bias_to) << significand),
            at <= ((bias_from - bias_to) << significand),
        )
        bits = torch.where(over, sign | mask, torch.where(under, sign, bits))
    return torch.where(torch.isnan(x), x, bits.view(x.dtype))


def popcnt(x: torch.Tensor) -> torch.Tensor:
    """Number of bits that are set."""
    octets = x.contiguous().unsqueeze(-1).view(torch.uint8)
    return _BITS.to(x.device)[octets.long()].sum(-1).to(x.dtype)


def count_leading_zeros(x: torch.Tensor) -> torch.Tensor:
    """With every bit below the highest set, the zeros left are the leading ones."""
    bits, shift = x, 1
    while shift < 8 * x.element_size():
        kept = (1 << (8 * x.element_size() - shift)) - 1  # what an arithmetic shift leaves of the number
        bits = bits | ((bits >> shift) & kept)
        shift *= 2
    return popcnt(~bits)


def _bitcast_convert(op: Operation, ctx: Context) -> TensorFunction:
    old, new = types.itemsize(types.element_of(op.operands[0])), types.itemsize(op.properties["element_type"])
    dtype = torch_dtype(op.properties["element_type"])
    if old > new:
        return lambda x: x.contiguous().unsqueeze(-1).view(dtype)
    if new > old:
        return lambda x: x.contiguous().view(dtype).squeeze(-1)
    return lambda x: x.contiguous().view(dtype)


def total_order(x: torch.Tensor) -> torch.Tensor:
    """Integers in IEEE 754's total order of floats."""
    bits = x.contiguous().view(SIGNED[x.element_size()])
    return torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)


def _compare_total(op: Operation, ctx: Context) -> TensorFunction:
    compare = getattr(torch, get_text(op.properties, "direction"))
    return lambda x, y: compare(total_order(x), total_order(y))


def _barrier(*xs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
    return xs[0] if len(xs) == 1 else xs


TABLE: dict[str, Lowering] = {
    "hlo.clamp": _clamp,
    "hlo.cbrt": plain(cbrt),
    "hlo.round_nearest_afz": plain(round_away),
    "hlo.reduce_precision": _reduce_precision,
    "hlo.optimization_barrier": plain(_barrier),
    "hlo.popcnt": plain(popcnt),
    "hlo.count_leading_zeros": plain(count_leading_zeros),
    "hlo.bitcast_convert": _bitcast_convert,
    "hlo.compare_total": _compare_total,
    "hlo.complex": plain(torch.complex),
    "hlo.real": plain(lambda z: z.real),
    "hlo.imag": plain(lambda z: z.imag),
    "hlo.complex_abs": plain(torch.abs),
}
