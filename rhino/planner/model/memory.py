"""Peak memory of a transformer's training configuration: states, activations, temporaries, of the fullest stage.

Activations per layer and micro-batch (16-bit, Korthikanti et al. 2022), in bytes:

    kept whole, no tensor parallelism     s b h (34 + 5 a s / h)
    tensor parallel                       s b h (10 + 24 / t + 5 a s / (h t))
    and sequence parallel                 s b h / t (34 + 5 a s / h)
    selective recomputation               s b h 34 / t       (fused attention has the same effect)
    full recomputation                    2 s b h            (and one layer kept whole while it is recomputed)

Here they are sums over the tensors of a layer, so that gated MLPs, grouped queries and experts follow. A stage of
1F1B holds `schedule.in_flight` micro-batches. The allocator's rounding and fragmentation is a factor of the
software profile.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from numba import njit

from rhino.planner.model.schedule import in_flight

if TYPE_CHECKING:
    from rhino.planner.model.machine import Machine
    from rhino.planner.model.software import Software


@njit(cache=True)
def layer_activations(c: Any, recompute: float, copies: float) -> float:
    """Bytes that one layer keeps of one micro-batch until its backward pass, on one device."""
    tokens = c.micro_batch * c.seq / c.cp
    shared = c.tp if c.sequence_parallel > 0.0 else 1.0
    stream = tokens * c.hidden / shared
    if recompute == 2.0:
        return 2.0 * stream
    width = c.heads * c.head / c.tp
    keys = 2.0 * max(1.0, c.kv_heads / c.tp) * c.head
    # Inputs of two norms, of the projections, of the MLP; dropout masks where there is dropout (not gated).
    total = (8.0 if c.gated > 0.0 else 10.0) * stream
    # Queries, keys, values; the attention's output, input of the output projection.
    total += tokens * (4.0 * width + 2.0 * keys)
    # Queries and keys after the rotary embedding; the gate's activation.
    if c.gated > 0.0:
        total += copies * tokens * (2.0 * width + keys + 2.0 * c.ffn / c.tp)
    if c.fused_norm == 0.0:
        total += 16.0 * stream
    if c.experts > 0.0:
        total += tokens * c.topk * (2.0 * c.hidden + (6.0 if c.gated > 0.0 else 4.0) * c.ffn / c.tp)
    else:
        total += tokens * (6.0 if c.gated > 0.0 else 4.0) * c.ffn / c.tp
    if recompute == 0.0 and c.fused_attention == 0.0:
        # Scores after softmax (2 bytes), dropout mask (1), dropped-out scores (2).
        total += 5.0 * c.micro_batch * (c.heads / c.tp) * c.seq / c.cp * c.seq
    return total


@njit(cache=True)
def fill_memory(  # type: ignore[misc]
    m: Machine, s: Software, c: Any, shared: float, experts: float, embedding: float, out: Any
) -> None:
    """Fill the memory fields of a prediction: the fullest of the first and the last stage."""
    tokens = c.micro_batch * c.seq / c.cp
    shards = c.dp * c.cp
    per_stage = c.layers / c.pp if c.pp == 1.0 else math.ceil(c.layers / c.pp)
    kept = layer_activations(c, c.recompute, s.copies)
    best = -1.0
    for end in range(2):
        if end == 1 and c.pp == 1.0:
            break
        first = end == 0
        last = end == 1 or c.pp == 1.0
        held = per_stage * (shared / c.tp + experts / (c.tp * c.ep))
        tables = 1.0 if first != last or c.tied > 0.0 else 2.0
        held += tables * embedding / c.tp
        states = held * s.state_bytes
        optimizer = held * s.optimizer_bytes * c.trained
        if c.zero >= 1.0:
            optimizer /= shards
        if c.zero >= 3.0:
            # The two largest gathered layers live beside the shards.
            layer = shared / c.tp + experts / (c.tp * c.ep)
            states = states / shards + 2.0 * 2.0 * max(layer, embedding / c.tp)
        elif c.zero >= 2.0:
            states = held * 2.0 + held * (s.state_bytes - 2.0) / shards
        flying = in_flight(c.schedule, c.pp, c.vp, c.micro_batches, 0.0 if first else c.pp - 1.0)
        activations = flying * per_stage * kept
        if first:
            # Embedding output (and its dropout mask).
            activations += flying * 2.0 * tokens * c.hidden / (c.tp if c.sequence_parallel > 0.0 else 1.0)
        temporary = layer_activations(c, 0.0, s.copies) if c.recompute == 2.0 else 0.0
        if last:
            # Logits in 16 bits, in 32 bits, and their gradient; the last norm.
            temporary = max(temporary, 8.0 * tokens * c.vocab / c.tp) + 4.0 * tokens * c.hidden
        total = states + optimizer + (activations + temporary) * s.activation_factor + s.memory_fixed
        if total > best:
            best = total
            out.states = states + optimizer
            out.activations = activations
            out.temporaries = temporary
            out.memory = total
            out.memory_spread = s.memory_spread
