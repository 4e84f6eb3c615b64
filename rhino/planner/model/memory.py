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

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from scipy.special import ndtr

from rhino.planner.model.schedule import in_flight, stage_layers

if TYPE_CHECKING:
    from rhino.planner.model.machine import Machine
    from rhino.planner.model.software import Software


#: What a run needs at the least when the allocator returns what it caches: activations with fragmentation, and
#: context, libraries and buffers (Aleph Alpha's sweep).
FRAGMENTATION = 1.1
RESERVE = 2.0 * 2.0**30


def fits(memory_bytes: float, predictions: np.ndarray) -> np.ndarray:
    """Probability that each prediction runs on a device of a capacity; above 0.5 means that it is expected to.

    `memory` is what a monitor shows, cached blocks included; a device that is nearly full returns those. So this
    compares states, fragmented activations and a reserve with the capacity, with the prediction's standard error.
    """
    need = predictions["states"] + RESERVE
    need = need + FRAGMENTATION * (predictions["activations"] + predictions["temporaries"])
    return np.asarray(ndtr((memory_bytes - need) / (need * predictions["memory_spread"])))


@njit(cache=True)
def layer_activations(c: Any, recompute: float, copies: float, saved: float) -> float:
    """Bytes that one layer keeps of one micro-batch until its backward pass, on one device.

    Args:
        c: a configuration.
        recompute: a `configuration.Recompute`.
        copies: `software.Software.copies`.
        saved: bytes per element of the inputs that linear layers save: 2, or 1 where they work in FP8.
    """
    tokens = c.micro_batch * c.seq / c.cp
    shared = c.tp if c.sequence_parallel > 0.0 else 1.0
    stream = tokens * c.hidden / shared
    if recompute == 2.0:
        return 2.0 * stream
    width = c.heads * c.head / c.tp
    keys = 2.0 * max(1.0, c.kv_heads / c.tp) * c.head
    # Inputs of two norms, of the projections, of the MLP; masks of two dropouts.
    total = (10.0 if c.dropout > 0.0 else 8.0) * stream
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
    ffn = c.ffn / c.tp * (c.topk if c.experts > 0.0 else 1.0)
    total -= (2.0 - saved) * (2.0 * stream + tokens * (width + ffn))
    if recompute == 0.0 and c.fused_attention == 0.0:
        # Scores after softmax (2 bytes); dropout mask (1) and scores after dropout (2).
        total += (5.0 if c.dropout > 0.0 else 2.0) * c.micro_batch * (c.heads / c.tp) * c.seq / c.cp * c.seq
    return total


@njit(cache=True)
def fill_memory(  # type: ignore[misc]
    m: Machine, s: Software, c: Any, shared: float, experts: float, embedding: float, out: Any
) -> None:
    """Fill the memory fields of a prediction: those of the fullest stage."""
    tokens = c.micro_batch * c.seq / c.cp
    shards = c.dp * c.cp
    saved = min(2.0, max(1.0, m.linear.itemsize))
    kept = layer_activations(c, c.recompute, s.copies, saved)
    best = -1.0
    for which in range(3):
        # The first stage has the most micro-batches, the second may have more layers, the last has the logits.
        stage = (0.0, 1.0, c.pp - 1.0)[which]
        if stage >= c.pp:
            continue
        first = stage == 0.0
        last = stage == c.pp - 1.0
        layers = stage_layers(c, stage)
        held = layers * shared / c.tp
        tables = (1.0 if first else 0.0) + (1.0 if last and not (first and c.tied > 0.0) else 0.0)
        held += tables * embedding / c.tp
        routed = layers * experts / (c.tp * c.ep)
        gradients = (s.state_bytes - 2.0) * c.trained
        states = (held + routed) * (2.0 + gradients)
        optimizer = s.optimizer_bytes * c.trained
        optimizer *= held / shards + routed * c.ep / shards if c.zero >= 1.0 else held + routed
        if c.zero >= 3.0:
            # The two largest gathered layers live beside the shards.
            layer = shared / c.tp + experts / (c.tp * c.ep)
            states = (held + routed * c.ep) * (2.0 + gradients) / shards
            states += 2.0 * 2.0 * max(layer, embedding / c.tp)
        elif c.zero >= 2.0:
            states = (held + routed) * (2.0 + gradients / shards)
        flying = in_flight(c.schedule, c.pp, c.vp, c.micro_batches, stage)
        activations = flying * layers * kept
        if first:
            # Embedding output (and its dropout mask).
            activations += flying * 2.0 * tokens * c.hidden / (c.tp if c.sequence_parallel > 0.0 else 1.0)
        temporary = layer_activations(c, 0.0, s.copies, saved) if c.recompute == 2.0 else 0.0
        if last:
            # Logits and their gradient; the last norm.
            temporary = max(temporary, s.logit_bytes * tokens * c.vocab / c.tp) + 4.0 * tokens * c.hidden
        total = states + optimizer + (activations + temporary) * s.activation_factor + s.memory_fixed
        if total > best:
            best = total
            out.states = states + optimizer
            out.activations = activations
            out.temporaries = temporary
            out.memory = total
            out.memory_spread = s.memory_spread
