"""Fits the constants of one device's kernels and collectives to measured tables, and their standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import least_squares

from rhino.ir.errors import UsageError
from rhino.planner.cluster import Line
from rhino.planner.model.attention import Attention, attention_times
from rhino.planner.model.gemm import Gemm, gemm_times

#: Errors beyond this count linearly: a table's outliers (a bad heuristic of the library) stay outliers.
OUTLIER = 0.1


def _fit(
    predict: Callable[[np.ndarray], np.ndarray],
    seconds: np.ndarray,
    starts: Sequence[Sequence[float]],
    low: Sequence[float],
    high: Sequence[float],
) -> tuple[np.ndarray, float]:
    """Least squares of log ratios from several starts: the best constants and the standard error that remains."""
    if len(seconds) <= len(low):
        raise UsageError(
            f"{len(seconds)} measurements for {len(low)} constants", remedy="measure more shapes"
        )
    found = []
    for start in starts:
        x = np.clip(start, np.array(low) + 1e-12, np.array(high) * (1 - 1e-9))
        found.append(
            least_squares(
                lambda x: np.log(predict(x) / seconds),
                x,
                x_scale=np.maximum(np.abs(x), 1e-3 * np.abs(high)),
                bounds=(low, high),
                loss="soft_l1",
                f_scale=OUTLIER,
                diff_step=0.02,
            )
        )
    best = min(found, key=lambda f: float(f.cost))
    errors = np.log(predict(best.x) / seconds)
    return best.x, float(np.sqrt(np.mean(errors**2)))


def fit_gemm(start: Gemm, shapes: np.ndarray, seconds: np.ndarray) -> Gemm:
    """Constants of matmuls from rows ``(m, n, k, batch)``. `start` gives multiprocessors, peak and item size.

    Raises UsageError when there are no more rows than constants.
    """
    bandwidth = start.memory

    def made(x: np.ndarray) -> Gemm:
        return start._replace(
            launch=x[0] * 1e-6, efficiency=x[1], memory=bandwidth * x[2], feed=x[3], prologue=x[4]
        )

    x0 = [start.launch * 1e6, start.efficiency, 1.0, start.feed, start.prologue]
    starts = [x0, [x0[0], 0.9, 1.0, 15.0, 100.0], [x0[0], 0.7, 0.9, 2.0, 20.0]]
    x, spread = _fit(
        lambda x: gemm_times(made(x), shapes),
        seconds,
        starts,
        [0.1, 0.1, 0.3, 0.0, 0.0],
        [50.0, 1.0, 1.5, 200.0, 400.0],
    )
    return made(x)._replace(spread=spread)


def fit_attention(start: Attention, calls: np.ndarray, seconds: np.ndarray) -> Attention:
    """Constants of a fused kernel from rows ``(batch, seq, heads, kv_heads, head, causal, passes)``.

    The share of the backward pass stays, and the exponent of short heads where only one head size was measured.
    """
    heads = len(set(calls[:, 4])) > 1

    def made(x: np.ndarray) -> Attention:
        power = x[4] if heads else start.head_power
        return start._replace(
            launch=x[0] * 1e-6, rate=x[1] * 1e12, half=x[2], memory=x[3] * 1e12, head_power=power
        )

    x0 = [start.launch * 1e6, start.rate * 1e-12, start.half, start.memory * 1e-12, start.head_power]
    x, spread = _fit(
        lambda x: attention_times(made(x), calls),
        seconds,
        [x0, [15.0, x0[1], 500.0, 1.2, 0.3]],
        [0.5, 5.0, 0.0, 0.1, 0.0],
        [40.0, 5000.0, 5000.0, 10.0, 1.0],
    )
    return made(x)._replace(spread=spread)


def fit_lines(peers: np.ndarray, moved: np.ndarray, seconds: np.ndarray) -> tuple[tuple[Line, Line], float]:
    """Two lines through the times of a collective inside a domain, and the standard error of their minimum.

    Args:
        peers: further members of the group.
        moved: bytes that each device moves (``(g - 1) / g`` of the tensor, twice that for all-reduce).
        seconds: measured.
    """
    top = float(np.max(moved / seconds))
    small = float(np.min(seconds))

    def made(x: np.ndarray) -> tuple[Line, Line]:
        a, b, c, d, e, f = np.exp(x)
        return Line(a, b, c), Line(d, e, f)

    def times(x: np.ndarray) -> np.ndarray:
        return np.minimum(*(line.latency + line.per_hop * peers + moved / line.bandwidth for line in made(x)))

    x0 = np.log([small, small / 8, top / 4, small * 3, small / 20, top])
    low = np.log([small / 20, 1e-9, top / 100, small / 10, 1e-9, top / 3])
    high = np.log([small * 5, small * 2, top * 2, small * 30, small * 3, top * 2])
    found = []
    for scale in (1.0, 0.4, 2.5):
        x = np.clip(x0 + np.array([0, 0, math.log(scale), 0, 0, 0]), low + 1e-6, high - 1e-6)
        found.append(
            least_squares(
                lambda x: np.log(times(x) / seconds), x, bounds=(low, high), loss="soft_l1", f_scale=OUTLIER
            )
        )
    best = min(found, key=lambda f: float(f.cost))
    errors = np.log(times(best.x) / seconds)
    return made(best.x), float(np.sqrt(np.mean(errors**2)))
