"""Time of a matrix multiplication: tiles, waves over the multiprocessors, split-K, and the memory roofline.

    tiles = ceil(m / tm) * ceil(n / tn) * batch            waves = ceil(tiles * q / sms)
    math  = waves * 2 * tm * tn * (64 * ceil(k / (64 q)) + prologue) / (peak / sms * efficiency * ai / (ai + feed))
    bytes = itemsize * (m k + k n) + out * m n, each times batch
    t     = launch + max(math, bytes / bandwidth) + (q > 1: 8 m n q batch / bandwidth)

with ai = tm tn / (tm + tn), the fastest over eight tiles and q in {1, 2, 4, 8} (q > 1 where tiles fill no two
waves): what a library's heuristics look for.
Whole waves give both quantisations, of tiles and of waves. The five constants of `Gemm` are fitted per device and
element type (`rhino.planner.model.calibrate.fit_gemm`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

TILES = np.array(
    [(256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 256), (192, 128)],
    dtype=np.float64,
)
#: Bytes of an alignment that tensor cores want of every row.
ALIGNMENT = 16.0
#: How much slower a matmul with misaligned rows is (fitted on BLOOM's heads of 108).
MISALIGNED = 4.0


class Gemm(NamedTuple):
    """Constants of one device and element type.

    Attributes:
        sms: multiprocessors.
        peak: FLOP/s of the datasheet.
        memory: bytes/s that matmuls reach.
        launch: seconds of the smallest matmul (t0).
        efficiency: share of the peak at infinite k and tile.
        feed: elements; half-speed arithmetic intensity of a tile (k_ai).
        prologue: further k that starting and ending a tile costs (l0).
        itemsize: bytes of an input element.
        spread: relative standard error of a prediction.
    """

    sms: float
    peak: float
    memory: float
    launch: float
    efficiency: float
    feed: float
    prologue: float
    itemsize: float
    spread: float


@njit(cache=True)
def gemm_time(c: Gemm, m: float, n: float, k: float, batch: float) -> float:  # type: ignore[misc]
    """Seconds of `batch` products of an m x k with a k x n matrix, all in one kernel."""
    traffic = (c.itemsize * (m * k + k * n) + 2.0 * m * n) * batch / c.memory
    # Rows that are no multiple of 16 bytes leave the fast path (BLOOM's sweep of head sizes).
    slow = 1.0
    if (k * c.itemsize) % ALIGNMENT != 0.0 or (n * c.itemsize) % ALIGNMENT != 0.0:
        slow = MISALIGNED
    rate = c.peak / c.sms * c.efficiency / slow
    best = math.inf
    for t in range(TILES.shape[0]):
        tm = TILES[t, 0]
        tn = TILES[t, 1]
        tiles = math.ceil(m / tm) * math.ceil(n / tn) * batch
        ai = tm * tn / (tm + tn)
        speed = rate * ai / (ai + c.feed)
        # Splitting k pays only while the tiles do not fill the multiprocessors.
        most = 8.0 if tiles < 2.0 * c.sms else 1.0
        q = 1.0
        while q <= most:
            waves = math.ceil(tiles * q / c.sms)
            work = waves * 2.0 * tm * tn * (64.0 * math.ceil(k / (64.0 * q)) + c.prologue) / speed
            time = max(work, traffic)
            if q > 1.0:
                time += 8.0 * m * n * q * batch / c.memory
            best = min(best, time)
            q *= 2.0
    return c.launch + best


@njit(cache=True)
def gemm_times(c: Gemm, shapes: np.ndarray) -> np.ndarray:  # type: ignore[misc]
    """`gemm_time` of every row ``(m, n, k, batch)``."""
    out = np.empty(shapes.shape[0])
    for i in range(shapes.shape[0]):
        out[i] = gemm_time(c, shapes[i, 0], shapes[i, 1], shapes[i, 2], shapes[i, 3])
    return out
