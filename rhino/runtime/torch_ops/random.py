"""Philox4x32-10 in torch, bit for bit what `rhino.ir.philox` computes.

torch has no unsigned 64-bit arithmetic. In signed arithmetic a product of two 32-bit words has the same 64
bits, and its upper word is an arithmetic shift with the copies of the sign masked away.
"""

from __future__ import annotations

import torch
from xdsl.ir import Operation

from rhino.ir import types
from rhino.ir.philox import SIGNIFICANT_BITS
from rhino.runtime.tensors import torch_dtype
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF


def philox(
    counter: tuple[torch.Tensor, torch.Tensor], key: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first two 32-bit words (in int64 tensors) for the counter ``(low, high, 0, 0)``."""
    c0, c1 = counter
    c2 = c3 = torch.zeros_like(c0)
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = ((p1 >> 32) & _LOW) ^ c1 ^ k0, p1 & _LOW, ((p0 >> 32) & _LOW) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1


def uniform(seed: torch.Tensor, index: torch.Tensor, bits: int, dtype: torch.dtype) -> torch.Tensor:
    """Numbers in [0, 1) with `bits` random leading bits, one for every index."""
    first, second = philox((index & _LOW, (index >> 32) & _LOW), (seed & _LOW, (seed >> 32) & _LOW))
    top = first >> (32 - bits) if bits <= 32 else (first << (bits - 32)) | (second >> (64 - bits))
    return (top.to(torch.float64) * 2.0**-bits).to(dtype)


def _random_uniform(op: Operation, ctx: Context) -> TensorFunction:
    element = op.properties["element_type"]
    bits, dtype = SIGNIFICANT_BITS[types.numpy_dtype(element)], torch_dtype(element)
    return lambda seed, index: uniform(seed, index, bits, dtype)


TABLE: dict[str, Lowering] = {"hlo.random_uniform": _random_uniform}
