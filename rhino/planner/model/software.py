"""Software stacks: the handful of constants that describe how well a training stack uses the hardware.

They live in ``software/*.toml``, one file per stack, each with where its figures come from. `calibrate` refits them.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import NamedTuple

from rhino.ir.errors import UsageError


class Software(NamedTuple):
    """Constants of a training stack.

    Attributes:
        matmul: share of the modelled rate that matmuls reach inside a step (clocks, caches, interference).
        attention: the same for the attention kernel.
        elementwise: share of memory bandwidth that element-wise ops reach, seen as fused ones.
        score_bytes: bytes per score that unfused attention moves in the forward pass; twice that in the backward.
        host_forward, host_backward: seconds that the host needs to launch a layer's forward, backward pass.
        host_collective: seconds that a collective adds to the host's time for a layer.
        collective: seconds that the framework adds to every collective.
        link: share of the modelled rate that collectives inside a link domain reach.
        nic: share of the network cards' rate that collectives between domains reach.
        tp_overlap, dp_overlap, pp_overlap, ep_overlap: share of a communication that computation hides.
        step: seconds per step that nothing else explains.
        optimizer: bytes of memory traffic per parameter that a device updates.
        grad_bytes: bytes per gradient element in reductions.
        state_bytes: bytes per parameter and device that no sharding divides (working copy and gradients).
        optimizer_bytes: bytes per parameter of optimizer states and master copy.
        logit_bytes: bytes per logit that the loss holds: 8 in 16 and 32 bits with a gradient, 4 where it is fused.
        copies: 1 where rotary embedding and gating keep copies for the backward pass, 0 where they are fused.
        activation_factor: allocator and temporaries, as a factor on activations.
        memory_fixed: bytes of context, libraries and buffers.
        spread: relative standard error of a step time after calibration.
        memory_spread: of the peak memory.
    """

    matmul: float
    attention: float
    elementwise: float
    score_bytes: float
    host_forward: float
    host_backward: float
    host_collective: float
    collective: float
    link: float
    nic: float
    tp_overlap: float
    dp_overlap: float
    pp_overlap: float
    ep_overlap: float
    step: float
    optimizer: float
    grad_bytes: float
    state_bytes: float
    optimizer_bytes: float
    logit_bytes: float
    copies: float
    activation_factor: float
    memory_fixed: float
    spread: float
    memory_spread: float


def stacks() -> tuple[str, ...]:
    """Names of the stacks that ship."""
    folder = resources.files("rhino.planner.model") / "software"
    return tuple(sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml")))


@cache
def software(name: str) -> Software:
    """The constants of a stack. Raises UsageError listing the known ones."""
    path = resources.files("rhino.planner.model") / "software" / f"{name}.toml"
    if not path.is_file():
        raise UsageError(f"no software stack '{name}'", remedy=f"known stacks: {', '.join(stacks())}")
    return read_software(path.read_text(encoding="utf-8"))


def read_software(text: str) -> Software:
    """Parse a file of constants. Raises UsageError when one is missing, unknown or without a source."""
    try:
        data = tomllib.loads(text)
        sources = data["sources"]
        for entry in data["constants"].values():
            sources[entry["source"]]
        return Software(**{name: float(entry["value"]) for name, entry in data["constants"].items()})
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"malformed software file: {error!r}", remedy="see rhino/planner/model/software"
        ) from error
