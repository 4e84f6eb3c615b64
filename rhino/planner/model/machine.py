"""A device kind as the numbers that the compiled models take: read from the same hardware files as the planner's."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from rhino.ir.errors import UsageError
from rhino.planner.cluster import COLLECTIVES, Hardware, Link, kinds, read_hardware
from rhino.planner.model.attention import Attention
from rhino.planner.model.collectives import Network
from rhino.planner.model.gemm import Gemm

#: Bytes of an element of each type that matmuls take.
ITEMSIZE = {"f16": 2.0, "bf16": 2.0, "fp8": 1.0, "fp4": 0.5}
#: Relative standard error of a figure that a hardware file gives without one.
UNKNOWN_SPREAD = 0.25


class Machine(NamedTuple):
    """One device and its links.

    Attributes:
        linear: constants of the matmuls of linear layers (their element type may be FP8).
        matmul: constants of all other matmuls (16-bit).
        attention: constants of the fused attention kernel.
        memory: bytes/s of the datasheet.
        memory_bytes: capacity, as the driver reports it where that is known.
        launch: seconds of the smallest kernel.
        domain: devices that one link domain holds.
        network: links.
    """

    linear: Gemm
    matmul: Gemm
    attention: Attention
    memory: float
    memory_bytes: float
    launch: float
    domain: float
    network: Network


def machine(name: str, *, linear: str = "bf16", attention: str = "flash2") -> Machine:
    """The machine of a kind of device.

    Args:
        name: as in `rhino.planner.cluster.kinds`.
        linear: element type of linear layers; one that the file does not know is an error.
        attention: generation of the attention kernel: ``flash1``, ``flash2``, ``flash3``, ``cudnn``, or ``serving``
            (writes a cache as well). Devices that lack it take the newest for training that they know.

    Raises:
        UsageError: unknown device, or a device whose file has no kernel models.
    """
    text, hardware = _file(name)
    return _machine(text, hardware, name, linear, attention)


def _newest(generation: str) -> int:
    """Rank of a generation of kernels for training; those of serving engines come last."""
    return ("serving", "flash1", "flash2", "cudnn", "flash3").index(generation)


@cache
def _file(name: str) -> tuple[Mapping[str, Any], Hardware]:
    path = resources.files("rhino.planner") / "hardware" / f"{name.lower()}.toml"
    if not path.is_file():
        raise UsageError(
            f"no data about devices of kind '{name}'", remedy=f"known kinds: {', '.join(kinds())}"
        )
    text = path.read_text(encoding="utf-8")
    return tomllib.loads(text), read_hardware(text)


def _machine(data: Mapping[str, Any], hardware: Hardware, name: str, linear: str, attention: str) -> Machine:
    kernels = data.get("kernels")
    if kernels is None:
        raise UsageError(
            f"the file of {name} has no kernel models", remedy="add a [kernels] section as in h100.toml"
        )
    sources = data["sources"]
    for entry in (kernels, *kernels["gemm"].values(), *kernels["attention"].values()):
        for source in entry["source"].split(","):
            sources[source.strip()]
    known = tuple(kernels["gemm"])
    if linear not in known:
        raise UsageError(
            f"no matmul constants of {linear} for {name}", remedy=f"known types: {', '.join(known)}"
        )

    base = "bf16" if "bf16" in known else known[0]
    generations = kernels["attention"]
    chosen = generations.get(attention) or generations[max(generations, key=_newest)]
    return Machine(
        linear=gemm(hardware, linear),
        matmul=gemm(hardware, base),
        attention=Attention(
            float(chosen["launch"]),
            float(chosen["rate"]),
            float(chosen["half"]),
            float(chosen["memory"]),
            float(chosen["backward"]),
            float(chosen["head_power"]),
            float(chosen["spread"]),
        ),
        memory=hardware.memory,
        memory_bytes=float(kernels.get("memory_bytes", hardware.memory_bytes)),
        launch=hardware.launch,
        domain=float(hardware.inner.devices or 1),
        network=network(hardware, kernels.get("network", {})),
    )


def gemm(hardware: Hardware, element: str) -> Gemm:
    """Constants of the matmuls of an element type, which the file's kernels section must know."""
    kernels = hardware.kernels
    c = kernels["gemm"][element]
    peak = {**hardware.peak, **kernels.get("peak", {})}
    return Gemm(
        float(kernels["sms"]),
        float(peak[element]),
        hardware.memory * float(c["memory_efficiency"]),
        float(c["launch"]),
        float(c["efficiency"]),
        float(c["feed"]),
        float(c["prologue"]),
        ITEMSIZE[element],
        float(c["spread"]),
    )


@cache
def matmuls(hardware: Hardware) -> Mapping[str, Gemm]:
    """Constants of the matmuls of every element type of programs that a device was measured at; the 16-bit types run
    alike. Empty for devices without kernel models.
    """
    known = hardware.kernels.get("gemm", {})
    found = {element: gemm(hardware, element) for element in known if element in hardware.peak}
    if "bf16" in found:
        found.setdefault("f16", found["bf16"])
    return found


def network(hardware: Hardware, extra: Mapping[str, Any]) -> Network:
    """The links of a device kind as arrays. `extra`: ``ramp``, ``power`` and ``spread`` of a kernels section."""
    spread = extra.get("spread", {})
    return Network(
        inner=_lines(hardware.inner),
        outer=_lines(hardware.outer),
        launch=hardware.launch,
        ramp=float(extra.get("ramp", 0.0)),
        power=float(extra.get("power", 1.0)),
        spread=np.array(
            [float(spread.get(kind, UNKNOWN_SPREAD)) for kind in (*COLLECTIVES, "network")], dtype=np.float64
        ),
    )


def _lines(link: Link) -> np.ndarray:
    out = np.empty((len(COLLECTIVES), 2, 3))
    for i, kind in enumerate(COLLECTIVES):
        lines = link.lines[kind]
        if len(lines) > 2:
            raise UsageError(f"{link.name}: {kind} has {len(lines)} lines", remedy="two lines at most")
        for j in range(2):
            line = lines[min(j, len(lines) - 1)]
            out[i, j] = line.latency, line.per_hop, line.bandwidth
    return out
