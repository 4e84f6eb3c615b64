"""Time of kernels that memory bounds: ``launch + bytes / (bandwidth * share)``, and of what moves the whole model.

Bytes are counted from the program: an op of its own reads its operands and writes its results once; a fused group
reads its inputs and writes its outputs once. `share` is a property of the software (0.77 for fused kernels, about
0.35 for chains of eager ops) and comes from a software profile.
"""

from __future__ import annotations

from numba import njit

#: Bytes of memory traffic per parameter of Adam in mixed precision: reads gradient, master copy and two moments,
#: writes the three and the working copy.
ADAM_TRAFFIC = 30.0
#: Bytes of traffic per logit of softmax and cross entropy, forward and backward.
LOGIT_TRAFFIC = 26.0
#: Further bytes per element of the stream of two norms that are chains of eager ops (to 32 bits, square, mean,
#: multiply, back to 16 bits).
EAGER_NORM_TRAFFIC = 40.0


@njit(cache=True)
def elementwise_time(traffic: float, bandwidth: float, share: float, launch: float, kernels: float) -> float:
    """Seconds of `kernels` kernels that move `traffic` bytes together."""
    return launch * kernels + traffic / (bandwidth * share)


@njit(cache=True)
def layer_traffic(
    tokens: float,
    hidden: float,
    attention_width: float,
    ffn: float,
    gated: float,
    tp: float,
    sequence_parallel: float,
    fused_norm: float,
) -> float:
    """Bytes that the element-wise ops of a transformer layer move in the forward pass, on one device.

    Norms, dropout and residual additions (16 bytes per element of the stream) run on every device of a tensor
    parallel group unless they are sequence parallel; biases, activation and head transposes work on shards.
    """
    shared = tp if sequence_parallel > 0.0 else 1.0
    stream = (16.0 if fused_norm > 0.0 else 16.0 + EAGER_NORM_TRAFFIC) * tokens * hidden / shared
    sharded = ((6.0 if gated > 0.0 else 4.0) * ffn + 12.0 * attention_width) * tokens / tp
    return stream + sharded
