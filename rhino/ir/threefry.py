"""ThreeFry2x32-20, the other counter-based generator of Salmon et al. (SC 2011), and random bits as XLA draws them.

XLA numbers the elements of a tensor and encrypts the numbers: Philox four 32-bit words at a time, ThreeFry two. What
`rng_bit_generator` returns is fixed by that, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rhino.ir.philox import philox

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)


def threefry(x0: np.ndarray, x1: np.ndarray, key: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Two 32-bit words (uint32 arrays) for two counter words and two key words."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    x0 = x0 + np.uint32(keys[0])
    x1 = x1 + np.uint32(keys[1])
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(distance)) | (x1 >> np.uint32(32 - distance))
            x1 = x0 ^ x1
        x0 = x0 + np.uint32(keys[(group + 1) % 3])
        x1 = x1 + np.uint32((keys[(group + 2) % 3] + group + 1) & 0xFFFFFFFF)
    return x0, x1


def _words(value: int) -> tuple[int, int]:
    return value & 0xFFFFFFFF, value >> 32


def _split(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (values & _LOW).astype(np.uint32), (values >> _32).astype(np.uint32)


def _join(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return low.astype(np.uint64) | (high.astype(np.uint64) << _32)


def threefry_bits(key: int, counter: int, shape: Sequence[int], bits: int) -> tuple[np.ndarray, int]:
    """uint64 or uint32 numbers of a shape, and the counter after them.

    32-bit numbers come in pairs, which lie beside each other along the first dimension of even extent (or else the
    longest, the first of them).
    """
    shape = tuple(shape)
    if bits == 64:
        x0, x1 = threefry(*_split(_numbers(counter, shape)), _words(key))
        return _join(x0, x1), _advanced(counter, shape)
    if not shape:
        x0, _ = threefry(*_split(_numbers(counter, (1,))), _words(key))
        return x0.reshape(()), _advanced(counter, (1,))
    even = [d for d, n in enumerate(shape) if n % 2 == 0]
    dim = even[0] if even else max(range(len(shape)), key=lambda d: (shape[d], -d))
    half = (*shape[:dim], -(-shape[dim] // 2), *shape[dim + 1 :])
    pair = np.stack(threefry(*_split(_numbers(counter, half)), _words(key)), axis=dim + 1)
    both = pair.reshape(*shape[:dim], 2 * half[dim], *shape[dim + 1 :])
    return np.take(both, np.arange(shape[dim]), axis=dim), _advanced(counter, half)


def _numbers(counter: int, shape: Sequence[int]) -> np.ndarray:
    """`counter` plus the number of each element, the last dimension running fastest."""
    count = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    return count + np.uint64(counter)


def _advanced(counter: int, shape: Sequence[int]) -> int:
    return (counter + math.prod(shape)) % 2**64


def philox_bits(key: int, counter: int, shape: Sequence[int], bits: int) -> tuple[np.ndarray, int]:
    """uint64 or uint32 numbers of a shape in row-major order, and the 128-bit counter after them."""
    count = math.prod(shape)
    blocks = -(-count * bits // 128)
    low = np.arange(blocks, dtype=np.uint64) + np.uint64(counter % 2**64)
    high = np.uint64(counter >> 64) + (low < np.uint64(counter % 2**64)).astype(np.uint64)
    with np.errstate(over="ignore"):
        words = philox((low & _LOW, low >> _32, high & _LOW, high >> _32), _words(key))
    numbers = np.stack([w.astype(np.uint32) for w in words], axis=-1)
    if bits == 64:
        numbers = _join(numbers[..., 0::2], numbers[..., 1::2])
    return numbers.reshape(-1)[:count].reshape(tuple(shape)), (counter + blocks) % 2**128
