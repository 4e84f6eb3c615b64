"""Philox4x32-10, the counter-based random generator of Salmon et al., "Parallel Random Numbers: As Easy as
1, 2, 3" (SC 2011). A number depends on its key and counter alone: a device can make any part of a tensor.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)

#: Random bits that fill the significand of each element type.
SIGNIFICANT_BITS = {
    np.dtype(np.float64): 53,
    np.dtype(np.float32): 24,
    np.dtype(np.float16): 11,
    np.dtype(ml_dtypes.bfloat16): 8,
}


def philox(counter: tuple[np.ndarray, ...], key: tuple[int, int], rounds: int = 10) -> tuple[np.ndarray, ...]:
    """Four 32-bit words (in uint64 arrays) for four counter words and two key words."""
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    k0, k1 = key
    for _ in range(rounds):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> _32) ^ c1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> _32) ^ c3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


def uniform(seed: int, index: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers in [0, 1) of a float type, one for every 64-bit index.

    The key is the seed, the counter the index (low words first). The leading bits of the first word fill the
    significand; for float64 the bits that are missing come from the second word.
    """
    at = index.astype(np.int64).view(np.uint64)
    seed &= 0xFFFFFFFFFFFFFFFF
    zero = np.zeros_like(at)
    with np.errstate(over="ignore"):
        first, second, _, _ = philox((at & _LOW, at >> _32, zero, zero), (seed & 0xFFFFFFFF, seed >> 32))
    bits = SIGNIFICANT_BITS[np.dtype(dtype)]
    top = ((first << _32) | second) >> np.uint64(64 - bits)
    return (top.astype(np.float64) * 2.0**-bits).astype(dtype)
