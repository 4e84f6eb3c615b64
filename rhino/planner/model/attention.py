"""Time of a fused attention kernel, and of unfused attention.

    flops  = 4 b s_q s_k a d, half of that when causal            (backward: 2.5 times the forward)
    fused  = launch + max(flops / rate * (1 + half / s), bytes / bandwidth)

`half` is the sequence at which the kernel runs at half its rate. Short heads feed the tensor cores worse: below 128
the rate is ``(d / 128) ** head_power`` of that at 128. Unfused attention is two batched matmuls and a softmax that
moves `bytes_per_score` for every score.

Constants per device and generation of the kernel, fitted on published tables by `rhino.planner.model.calibrate`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from rhino.planner.model.gemm import Gemm, gemm_time

#: FLOPs of the backward pass of a fused kernel per FLOP of the forward pass (scores are recomputed).
BACKWARD = 2.5


class Attention(NamedTuple):
    """Constants of one device and one kernel.

    Attributes:
        launch: seconds of the smallest call.
        rate: FLOP/s at head size 128 and infinite sequence.
        half: tokens; the sequence at half rate.
        memory: bytes/s.
        backward: rate of the backward pass, as a share of the forward rate.
        head_power: exponent of ``head / 128`` in the rate of heads below 128.
        spread: relative standard error of a prediction.
    """

    launch: float
    rate: float
    half: float
    memory: float
    backward: float
    head_power: float
    spread: float


@njit(cache=True)
def attention_time(  # type: ignore[misc]
    c: Attention,
    batch: float,
    queries: float,
    keys: float,
    heads: float,
    kv_heads: float,
    head: float,
    causal: float,
    backward: bool,
) -> float:
    """Seconds of one pass of a fused kernel; `causal` is 1.0 or 0.0 (1.0 halves the work)."""
    flops = 4.0 * batch * queries * keys * heads * head * (1.0 - 0.5 * causal)
    traffic = 2.0 * batch * head * (2.0 * queries * heads + 2.0 * keys * kv_heads)
    rate = c.rate * min(1.0, head / 128.0) ** c.head_power
    if backward:
        flops *= BACKWARD
        traffic *= 2.0
        rate *= c.backward
    return c.launch + max(flops / rate * (1.0 + c.half / keys), traffic / c.memory)


@njit(cache=True)
def unfused_attention_time(  # type: ignore[misc]
    c: Gemm,
    batch: float,
    queries: float,
    keys: float,
    heads: float,
    head: float,
    score_bytes: float,
    memory: float,
    backward: bool,
) -> float:
    """Seconds of the two matmuls and of the traffic between them (mask, softmax, dropout); backward: twice the matmuls.

    Args:
        score_bytes: bytes that the element-wise part of the pass moves for every score.
        memory: bytes/s that element-wise ops reach.
    """
    groups = batch * heads
    time = gemm_time(c, queries, keys, head, groups) + gemm_time(c, queries, head, keys, groups)
    if backward:
        time += gemm_time(c, queries, head, keys, groups) + gemm_time(c, keys, head, queries, groups)
    return time + score_bytes * groups * queries * keys / memory


@njit(cache=True)
def attention_times(c: Attention, calls: np.ndarray) -> np.ndarray:  # type: ignore[misc]
    """`attention_time` of rows ``(batch, seq, heads, kv_heads, head, causal, passes)``; passes 0: forward, 1: both."""
    out = np.empty(calls.shape[0])
    for i in range(calls.shape[0]):
        b, s, a, g, d, causal, both = calls[i]
        out[i] = attention_time(c, b, s, s, a, g, d, causal, False)
        if both > 0.0:
            out[i] += attention_time(c, b, s, s, a, g, d, causal, True)
    return out
