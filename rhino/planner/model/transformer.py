"""Step time of a transformer's training configuration, part by part, in closed form.

A stage's forward and backward times come from the kernels of one layer: matmuls (`gemm`), attention, element-wise
traffic (`memory_bound`), with the host's launch time as a floor, plus the collectives that computation does not
hide. The pipeline closes with `schedule.pipeline_time`; then gradients are reduced, and the optimizer runs. Volumes
per axis follow Korthikanti et al. 2022 and Rajbhandari et al. 2020; ``docs/cost-model.md`` has the table.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from rhino.planner.model.attention import attention_time, unfused_attention_time
from rhino.planner.model.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    PERMUTE,
    REDUCE_SCATTER,
    collective_spread,
    collective_time,
)
from rhino.planner.model.configuration import PREDICTION
from rhino.planner.model.gemm import gemm_time
from rhino.planner.model.machine import Machine
from rhino.planner.model.memory import fill_memory
from rhino.planner.model.memory_bound import LOGIT_TRAFFIC, layer_traffic
from rhino.planner.model.schedule import bubble_time, stage_layers
from rhino.planner.model.software import Software

#: Relative standard error of element-wise time and of what the host needs.
ELEMENTWISE_SPREAD = 0.15
#: Sharpness of the maximum of a device's and its host's time.
HOST_POWER = 5.0


@njit(cache=True)
def parameters(c: Any) -> tuple[float, float, float]:
    """``(per layer outside experts, per layer in experts, of each embedding matrix)`` of a whole model."""
    width = c.heads * c.head
    shared = c.hidden * (width + 2.0 * c.kv_heads * c.head) + width * c.hidden + 4.0 * c.hidden
    mlp = (3.0 if c.gated > 0.0 else 2.0) * c.hidden * c.ffn
    if c.experts > 0.0:
        return shared + c.hidden * c.experts, c.experts * mlp, c.vocab * c.hidden
    return shared + mlp, 0.0, c.vocab * c.hidden


@njit(cache=True)
def _spread_over(inside: float, members: float, domain: float) -> tuple[float, float]:
    """``(members per domain, domains)`` of a group whose neighbours are `inside` ranks apart."""
    g = max(1.0, min(members, math.floor(domain / inside)))
    k = max(1.0, math.ceil(members / g))
    return members / k, k


@njit(cache=True)
def _linear(  # type: ignore[misc]
    m: Machine, s: Software, rows: float, n: float, k: float, groups: float, backward: bool, trained: float
) -> float:
    """Seconds of a linear layer: the product, or the gradients of its input and of its weights (if trained)."""
    if backward:
        weights = gemm_time(m.linear, n, k, rows, groups) * trained
        return (gemm_time(m.linear, rows, k, n, groups) + weights) / s.matmul
    return gemm_time(m.linear, rows, n, k, groups) / s.matmul


@njit(cache=True)
def _layer(m: Machine, s: Software, c: Any, backward: bool, out: np.ndarray) -> None:  # type: ignore[misc]
    """Add the kernels of one layer's pass to ``out``: matmul, attention, element-wise seconds."""
    tokens = c.micro_batch * c.seq / c.cp
    width = c.heads * c.head
    projections = width + 2.0 * c.kv_heads * c.head
    time = _linear(m, s, tokens, projections / c.tp, c.hidden, 1.0, backward, c.trained)
    time += _linear(m, s, tokens, c.hidden, width / c.tp, 1.0, backward, c.trained)
    traffic = layer_traffic(
        tokens,
        c.hidden,
        width,
        0.0 if c.experts > 0.0 else c.ffn,
        c.gated,
        c.tp,
        c.sequence_parallel,
        c.fused_norm,
    )
    up = 2.0 if c.gated > 0.0 else 1.0
    if c.experts > 0.0:
        local = max(1.0, c.experts / c.ep)
        rows = tokens * c.topk * c.ep / c.experts
        ffn = c.ffn / c.tp
        time += _linear(m, s, rows, up * ffn, c.hidden, local, backward, c.trained)
        time += _linear(m, s, rows, c.hidden, ffn, local, backward, c.trained)
        # Activation of the experts, and the permutations before and after them.
        traffic += tokens * c.topk * (6.0 * ffn + 8.0 * c.hidden)
    else:
        time += _linear(m, s, tokens, up * c.ffn / c.tp, c.hidden, 1.0, backward, c.trained)
        time += _linear(m, s, tokens, c.hidden, c.ffn / c.tp, 1.0, backward, c.trained)
    out[0] += time
    heads = max(1.0, c.heads / c.tp)
    if c.fused_attention > 0.0:
        core = attention_time(
            m.attention,
            c.micro_batch,
            c.seq / c.cp,
            c.seq,
            heads,
            max(1.0, c.kv_heads / c.tp),
            c.head,
            c.causal,
            backward,
        )
    else:
        core = unfused_attention_time(
            m.matmul,
            c.micro_batch,
            c.seq / c.cp,
            c.seq,
            heads,
            c.head,
            s.score_bytes * (2.0 if backward else 1.0),
            m.memory * s.elementwise,
            backward,
        )
    out[1] += core / s.attention
    out[2] += traffic * (1.6 if backward else 1.0) / (m.memory * s.elementwise)


@njit(cache=True)
def _collective(m: Machine, s: Software, kind: int, g: float, k: float, size: float, nic: float) -> float:  # type: ignore[misc]
    if g * k <= 1.0:
        return 0.0
    time = collective_time(m.network, kind, g, k, size, nic * s.nic)
    # The rate inside a domain is a property of the stack as well: scale the part beyond latency.
    base = collective_time(m.network, kind, g, k, 1.0, nic * s.nic)
    return s.collective + base + (time - base) / (s.link if k == 1.0 else 1.0)


@njit(cache=True)
def _tensor_parallel(m: Machine, s: Software, c: Any, domain: float, nic: float) -> float:  # type: ignore[misc]
    """Seconds of the collectives of one pass of a layer over its tensor parallel group."""
    if c.tp <= 1.0:
        return 0.0
    size = 2.0 * c.micro_batch * c.seq / c.cp * c.hidden
    g, k = _spread_over(1.0, c.tp, domain)
    if c.sequence_parallel > 0.0:
        one = _collective(m, s, ALL_GATHER, g, k, size / c.tp, nic)
        one += _collective(m, s, REDUCE_SCATTER, g, k, size, nic)
    else:
        one = _collective(m, s, ALL_REDUCE, g, k, size, nic)
    return 2.0 * one


@njit(cache=True)
def _wait(busy: float, floor: float) -> float:
    """Seconds that a device waits for its host: some kernels wait for their launch, others run longer.

    A smooth maximum of the two totals; equal totals lose 15 %.
    """
    return (busy**HOST_POWER + floor**HOST_POWER) ** (1.0 / HOST_POWER) - busy


@njit(cache=True)
def predict_one(m: Machine, s: Software, c: Any, out: Any) -> None:  # type: ignore[misc]
    """Fill a prediction record of one configuration."""
    domain = c.domain if c.domain > 0.0 else m.domain
    nic = c.nic if c.nic > 0.0 else m.network.outer[PERMUTE, 0, 2]
    tokens = c.micro_batch * c.seq / c.cp
    full = c.recompute == 2.0

    # Kernels of a layer.
    forward = np.zeros(3)
    backward = np.zeros(3)
    _layer(m, s, c, False, forward)
    _layer(m, s, c, True, backward)
    again = np.zeros(3)
    if full:
        again += forward
    elif c.recompute == 1.0 and c.fused_attention == 0.0:
        again[1] = forward[1]

    # Collectives inside a layer.
    tp_forward = _tensor_parallel(m, s, c, domain, nic)
    tp_backward = tp_forward * (2.0 if full else 1.0)
    visible = 1.0 - s.tp_overlap
    tp_forward *= visible
    tp_backward *= visible
    cp_forward = 0.0
    cp_backward = 0.0
    if c.cp > 1.0:
        g, k = _spread_over(c.tp, c.cp, domain)
        block = 4.0 * tokens * max(1.0, c.kv_heads / c.tp) * c.head
        # Ring attention: one domain boundary slows every step; the chunk's own attention hides the rest.
        hop = _collective(m, s, PERMUTE, min(2.0, g), min(2.0, k), block, nic)
        steps = c.cp - 1.0
        cp_forward = steps * max(0.0, hop - forward[1] / c.cp) + hop * 0.1
        cp_backward = steps * max(0.0, 2.0 * hop - backward[1] / c.cp) + hop * 0.2
    ep_forward = 0.0
    if c.experts > 0.0 and c.ep > 1.0:
        g, k = _spread_over(c.tp, c.ep, domain)
        moved = 2.0 * tokens * c.topk * c.hidden / (c.tp if c.sequence_parallel > 0.0 else 1.0)
        ep_forward = 2.0 * _collective(m, s, ALL_TO_ALL, g, k, moved, nic) * (1.0 - s.ep_overlap)
    ep_backward = ep_forward * (2.0 if full else 1.0)

    # Parameters gathered layer by layer (ZeRO-3), hidden behind the layer's computation.
    shared, experts, embedding = parameters(c)
    held = shared / c.tp + experts / (c.tp * c.ep)
    shards = c.dp * c.cp
    g, k = _spread_over(c.tp, shards, domain)
    gather_forward = 0.0
    gather_backward = 0.0
    if c.zero >= 2.0 and shards > 1.0 and c.pp == 1.0:
        gather = _collective(m, s, ALL_GATHER, g, k, 2.0 * held / shards, nic)
        scatter = _collective(m, s, REDUCE_SCATTER, g, k, s.grad_bytes * held, nic)
        busy = forward.sum() + tp_forward
        gather_forward = max(gather - busy * s.dp_overlap, gather * 0.02)
        back = scatter * c.trained + (gather if c.zero >= 3.0 else 0.0)
        gather_backward = max(back - (backward.sum() + again.sum() + tp_backward) * s.dp_overlap, back * 0.02)

    # The host launches kernels ahead of the device; it is the floor of a layer's pass.
    calls = 2.0 * (c.tp - 1.0) ** 2 / 7.0 + (2.0 if c.experts > 0.0 else 0.0)
    calls += c.zero if c.zero >= 2.0 else 0.0
    host = calls * s.host_collective
    busy_forward = forward.sum() + tp_forward + cp_forward + ep_forward
    busy_backward = backward.sum() + again.sum() + tp_backward + cp_backward + ep_backward
    floor_forward = s.host_forward + host
    floor_backward = s.host_backward + host + (floor_forward if full else 0.0)
    idle = _wait(busy_forward, floor_forward) + _wait(busy_backward, floor_backward)

    # First and last stage: embedding and logits.
    logits = _linear(m, s, tokens, c.vocab / c.tp, c.hidden, 1.0, False, 1.0)
    logits += _linear(m, s, tokens, c.vocab / c.tp, c.hidden, 1.0, True, c.trained)
    head_traffic = (LOGIT_TRAFFIC * c.vocab / c.tp + 12.0 * c.hidden) * tokens
    ends = head_traffic / (m.memory * s.elementwise)

    # Time of a micro-batch on the slowest stage and on the whole path.
    layer = busy_forward + busy_backward + idle + gather_forward + gather_backward
    most = stage_layers(c, 1.0) if c.pp > 2.0 else stage_layers(c, 0.0)
    middle = most * layer
    last = stage_layers(c, c.pp - 1.0) * layer + logits + ends
    path = c.layers * layer + logits + ends
    slowest = max(middle, last)

    # Point to point between stages: every chunk boundary, both ways.
    hop = 0.0
    if c.pp > 1.0:
        inside = c.tp * c.cp * c.dp
        crosses = inside * c.pp > domain
        boundary = 2.0 * tokens * c.hidden / (c.tp if c.sequence_parallel > 0.0 or c.tp > 1.0 else 1.0)
        hop = _collective(m, s, PERMUTE, 1.0 if crosses else 2.0, 2.0 if crosses else 1.0, boundary, nic)
    sends = 2.0 * hop * c.vp * (1.0 - s.pp_overlap)
    bubble = bubble_time(
        c.schedule, c.pp, c.vp, c.micro_batches, slowest + sends, path + sends * c.pp, busy_forward / layer
    )
    steady = c.micro_batches * (slowest + sends)

    # Gradients and parameters over the data parallel group, once a step.
    layers_here = most
    local = layers_here * shared / c.tp + embedding / c.tp * (1.0 if c.pp > 1.0 or c.tied > 0.0 else 2.0)
    reduction = 0.0
    if shards > 1.0 and not (c.zero >= 2.0 and c.pp == 1.0):
        size = s.grad_bytes * local * c.trained
        if c.zero >= 1.0:
            reduction = _collective(m, s, REDUCE_SCATTER, g, k, size, nic)
            reduction += _collective(m, s, ALL_GATHER, g, k, 2.0 * local * c.trained / shards, nic)
        else:
            reduction = _collective(m, s, ALL_REDUCE, g, k, size, nic)
    if experts > 0.0 and c.dp * c.cp > c.ep:
        g2, k2 = _spread_over(c.tp * c.ep, c.dp * c.cp / c.ep, domain)
        size = s.grad_bytes * layers_here * experts / (c.tp * c.ep)
        reduction += _collective(m, s, ALL_REDUCE, g2, k2, size, nic)
    if c.tied > 0.0 and c.pp > 1.0:
        reduction += _collective(m, s, ALL_REDUCE, 1.0, 2.0, s.grad_bytes * embedding / c.tp, nic)
    reduction *= 1.0 - s.dp_overlap if not (c.zero >= 2.0 and c.pp == 1.0) else 1.0
    updated = local + layers_here * experts / (c.tp * c.ep)
    if c.zero >= 1.0:
        updated /= shards
    optimizer = s.optimizer * updated * c.trained / (m.memory * 0.75)

    layers_run = c.micro_batches * (most if slowest == middle else stage_layers(c, c.pp - 1.0))
    out.matmul = layers_run * (forward[0] + backward[0] + again[0])
    out.matmul += c.micro_batches * logits if slowest == last else 0.0
    out.attention = layers_run * (forward[1] + backward[1] + again[1])
    out.elementwise = layers_run * (forward[2] + backward[2] + again[2])
    out.elementwise += c.micro_batches * ends if slowest == last else 0.0
    out.host = layers_run * idle
    out.tp_comm = layers_run * (tp_forward + tp_backward)
    out.cp_comm = layers_run * (cp_forward + cp_backward)
    out.ep_comm = layers_run * (ep_forward + ep_backward)
    out.pp_comm = c.micro_batches * sends
    out.dp_comm = reduction + layers_run * (gather_forward + gather_backward)
    out.bubble = bubble
    out.optimizer = optimizer
    out.constant = s.step
    out.step = steady + bubble + reduction + optimizer + s.step

    # Errors of the parts are taken as independent; the stack's own error comes on top of them.
    kind = REDUCE_SCATTER if c.zero >= 1.0 else ALL_REDUCE
    errors = (out.matmul * m.linear.spread * 0.5) ** 2
    errors += (out.attention * m.attention.spread) ** 2
    errors += ((out.elementwise + out.host) * ELEMENTWISE_SPREAD) ** 2
    errors += (out.tp_comm * collective_spread(m.network, ALL_REDUCE, 1.0)) ** 2
    errors += ((out.cp_comm + out.pp_comm) * collective_spread(m.network, PERMUTE, 1.0)) ** 2
    errors += (out.ep_comm * collective_spread(m.network, ALL_TO_ALL, 2.0)) ** 2
    errors += (out.dp_comm * collective_spread(m.network, kind, k)) ** 2
    errors += (out.bubble * 0.1) ** 2
    out.spread = math.sqrt(errors / out.step**2 + s.spread**2)
    fill_memory(m, s, c, shared, experts, embedding, out)


@njit(cache=True)
def _predict(m: Machine, s: Software, rows: np.ndarray, out: np.ndarray) -> None:  # type: ignore[misc]
    for i in range(rows.shape[0]):
        predict_one(m, s, rows[i], out[i])


def predict(machine: Machine, software: Software, rows: np.ndarray) -> np.ndarray:
    """Predictions (`configuration.PREDICTION`) of an array of configurations, one record each."""
    out = np.zeros(len(rows), PREDICTION)
    _predict(machine, software, rows, out)
    return out
