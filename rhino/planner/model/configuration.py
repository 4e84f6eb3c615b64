"""What is predicted: a transformer, how its training step is distributed, and the answer, as records for numba."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np

from rhino.ir.errors import UsageError


class Recompute(IntEnum):
    """What the backward pass computes again."""

    NONE = 0
    SELECTIVE = 1
    """The attention core only."""
    FULL = 2
    """The whole layer from its input."""


class Schedule(IntEnum):
    """Order of a pipeline's micro-batches."""

    GPIPE = 0
    ONE_F_ONE_B = 1
    """1F1B; with several chunks per device, interleaved 1F1B."""
    ZB_1P = 2
    """Weight gradients fill the bubble; memory of 1F1B."""
    ZB_2P = 3
    """No bubble; twice the activations of 1F1B."""


#: Fields of a configuration with their defaults. All are counts but for 0/1 flags and what says its unit.
FIELDS: Mapping[str, float] = {
    # The model.
    "layers": 0.0,
    "hidden": 0.0,
    "heads": 0.0,
    "kv_heads": 0.0,
    "head": 0.0,
    "ffn": 0.0,  # width of the MLP, of each expert where there are experts
    "gated": 0.0,
    "vocab": 0.0,
    "seq": 0.0,
    "experts": 0.0,
    "topk": 0.0,
    "causal": 1.0,
    "tied": 0.0,  # the embedding is the output projection
    "trained": 1.0,  # share of the parameters that have gradients
    # The plan.
    "tp": 1.0,
    "pp": 1.0,
    "vp": 1.0,  # chunks of layers per pipeline device
    "dp": 1.0,
    "cp": 1.0,
    "ep": 1.0,
    "micro_batch": 1.0,
    "micro_batches": 1.0,
    "zero": 0.0,
    "sequence_parallel": 0.0,
    "recompute": 0.0,
    "schedule": 1.0,
    "fused_attention": 1.0,
    "dropout": 0.0,
    "fused_norm": 1.0,  # 0: norms as chains of eager ops with 32-bit temporaries
    "nic": 0.0,  # bytes/s per device of the network cards; 0: the machine's
    "domain": 0.0,  # devices per link domain; 0: the machine's
}

CONFIGURATION = np.dtype([(name, np.float64) for name in FIELDS])

#: Fields of a prediction: seconds unless they say bytes. `step` is the whole; the parts add up to it where the
#: stages of a pipeline are equal (they describe the slowest stage).
PARTS = (
    "matmul",
    "attention",
    "elementwise",
    "host",
    "tp_comm",
    "cp_comm",
    "ep_comm",
    "pp_comm",
    "dp_comm",
    "bubble",
    "optimizer",
    "constant",
)
PREDICTION = np.dtype(
    [
        ("step", np.float64),
        *((name, np.float64) for name in PARTS),
        ("spread", np.float64),  # relative standard error of `step`
        ("states", np.float64),  # bytes, of the fullest device
        ("activations", np.float64),
        ("temporaries", np.float64),
        ("memory", np.float64),
        ("memory_spread", np.float64),  # relative standard error of `memory`
    ]
)


def configurations(rows: Sequence[Mapping[str, float]]) -> np.ndarray:
    """Records of configurations; what a row leaves out takes its default.

    Head size defaults to ``hidden / heads`` and key-value heads to the heads. Raises UsageError on unknown fields
    and on counts that are not positive.
    """
    out = np.zeros(len(rows), CONFIGURATION)
    for i, row in enumerate(rows):
        unknown = sorted(set(row) - set(FIELDS))
        if unknown:
            raise UsageError(
                f"unknown fields {', '.join(unknown)}", remedy=f"known ones: {', '.join(FIELDS)}"
            )
        full = {**FIELDS, **row}
        full["kv_heads"] = full["kv_heads"] or full["heads"]
        full["head"] = full["head"] or full["hidden"] / max(full["heads"], 1.0)
        for name in ("layers", "hidden", "heads", "ffn", "vocab", "seq", "tp", "pp", "vp", "dp", "cp", "ep"):
            if full[name] < 1:
                raise UsageError(f"{name} must be positive, not {full[name]}", remedy="give every size")
        for name, value in full.items():
            out[i][name] = value
    return out
