"""Closed forms of pipeline schedules (F, B, W: times of a micro-batch's forward, input and weight gradient).

=============  =====================================  =================================
schedule       bubble, of a stage                     micro-batches held by the first stage
=============  =====================================  =================================
GPipe, 1F1B    (p - 1) (F + B + W)                    m, p
interleaved    (p - 1) (F + B + W) / v                p (1 + (p - 1) / (p v))
ZB-1p          (p - 1) (F + B - W)                    p
ZB-2p          0                                      2 p
=============  =====================================  =================================

Stages that differ: the steady state runs at the slowest, and the first and last micro-batch walk the whole path:
``T = m * slowest + (path - slowest) / v``. On a DAG of stages p is the longest path, and a stage holds as many
micro-batches as its longest path to the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numba import njit


@njit(cache=True)
def bubble_time(
    schedule: float,
    stages: float,
    chunks: float,
    micro_batches: float,
    slowest: float,
    path: float,
    forward_share: float,
) -> float:
    """Seconds that the slowest stage waits.

    Args:
        schedule: a `configuration.Schedule`.
        stages, chunks: pipeline stages, and chunks of layers on each.
        micro_batches: per step.
        slowest: seconds of a micro-batch's passes on the slowest stage, all its chunks.
        path: seconds of a micro-batch's passes through all stages.
        forward_share: share of the forward pass in a layer's time.
    """
    if stages <= 1.0:
        return 0.0
    wait = max(0.0, path - slowest)
    if schedule == 2.0:
        # Weight gradients take half of the backward pass; two of them fill part of each of the p - 1 waits.
        weight = (1.0 - forward_share) / 2.0
        return wait * max(0.0, 1.0 - 2.0 * weight)
    if schedule == 3.0:
        return 0.0
    return wait / max(1.0, chunks)


@njit(cache=True)
def in_flight(schedule: float, stages: float, chunks: float, micro_batches: float, stage: float) -> float:
    """Micro-batches (of a stage's layers) whose activations stage number `stage` (from 0) holds at most."""
    if schedule == 0.0:
        return micro_batches
    depth = stages - stage
    if schedule >= 2.0 and stages > 1.0:
        # Late weight gradients keep every stage as full as the first.
        depth = stages * (schedule - 1.0)
    if chunks > 1.0 and stages > 1.0:
        # Warm-up of interleaved 1F1B in chunks: (p - s - 1) * 2 + (v - 1) * p + 1.
        held = (2.0 * (stages - stage - 1.0) + (chunks - 1.0) * stages + 1.0) / chunks
        return min(held, micro_batches)
    return min(depth, micro_batches)


@njit(cache=True)
def stage_layers(c: Any, stage: float) -> float:
    """Layers of a pipeline stage of a configuration.

    Layers that do not divide: where two more would, the ends have one less (embedding and logits count as layers);
    else every stage is taken as large as the largest.
    """
    chunks = c.pp * c.vp
    if c.layers % chunks == 0.0:
        return c.layers / c.pp
    if (c.layers + 2.0) % chunks == 0.0:
        end = 1.0 if stage == 0.0 or stage == c.pp - 1.0 else 0.0
        return (c.layers + 2.0) / c.pp - end
    return math.ceil(c.layers / chunks) * c.vp


def depth_to_end(successors: Sequence[Sequence[int]]) -> list[int]:
    """Longest path in stages from every stage of a DAG to its end; stages are in topological order."""
    out = [1] * len(successors)
    for u in range(len(successors) - 1, -1, -1):
        for v in successors[u]:
            out[u] = max(out[u], out[v] + 1)
    return out
