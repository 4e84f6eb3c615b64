"""Clusters: how many devices, of which kind, and how they are linked. Hardware figures live in ``hardware/*.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from rhino.ir.errors import UsageError

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")


@dataclass(frozen=True)
class Line:
    """One protocol of a collective: ``latency + per_hop * hops + bytes / bandwidth``.

    Units: seconds and bytes per second per device. Hops are the further members of a group inside one link
    domain, and the binary logarithm of the number of domains above it.
    """

    latency: float
    per_hop: float
    bandwidth: float


@dataclass(frozen=True)
class Link:
    """One level of the network: `devices` neighbours share it; its collectives cost the fastest of their lines."""

    name: str
    devices: int | None
    lines: Mapping[str, tuple[Line, ...]]


@dataclass(frozen=True, eq=False)
class Hardware:
    """One kind of device. There is one object per kind (see `hardware`), so that identity serves as a key.

    Attributes:
        memory_bytes: capacity of one device.
        memory_bandwidth: bytes/s that memory-bound ops reach (peak times measured share).
        launch: seconds that the smallest op takes.
        flops: FLOP/s that large matmuls reach, per element type (peak times measured share).
        inner, outer: links inside a node and between nodes.
        peak: FLOP/s of the datasheet, per element type.
        memory: bytes/s of the datasheet.
        kernels: the section of constants of `rhino.planner.model`, empty where the file has none.
    """

    name: str
    memory_bytes: float
    memory_bandwidth: float
    launch: float
    flops: Mapping[str, float]
    inner: Link
    outer: Link
    peak: Mapping[str, float]
    memory: float
    kernels: Mapping[str, Any]


@dataclass(frozen=True)
class Cluster:
    """`nodes` x `devices_per_node` devices of one kind; device ids count through the nodes one after another."""

    nodes: int
    devices_per_node: int
    hardware: Hardware

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.nodes * self.devices_per_node

    def __str__(self) -> str:
        return f"{self.nodes}x{self.devices_per_node}x{self.hardware.name}"

    @staticmethod
    def parse(text: str) -> Cluster:
        """Read ``2x8xH100`` (nodes x devices x kind), ``8xH100`` or ``4`` (processes on this machine).

        A kind may be a hardware file, as `rhino calibrate` writes them: ``4xmachine.toml``. Without a number of nodes,
        devices fill nodes of the kind's usual size. Raises UsageError.
        """
        match = re.fullmatch(r"\s*(?:(\d+)x)?(\d+)(?:x([A-Za-z][\w-]*|.+\.toml))?\s*", text)
        if match is None:
            raise UsageError(f"cannot read cluster '{text}'", remedy="write it like 2x8xH100, 8xH100 or 4")
        nodes, devices, kind = match[1], int(match[2]), match[3]
        if kind is None and nodes is not None:
            raise UsageError(f"cluster '{text}' names no kind of device", remedy=f"write {text}xH100, say")
        part = hardware(kind or "CPU")
        if devices < 1 or (nodes is not None and int(nodes) < 1):
            raise UsageError(f"cluster '{text}' has no devices", remedy="every number is 1 or more")
        if nodes is not None:
            return Cluster(int(nodes), devices, part)
        usual = part.inner.devices or devices
        if devices <= usual:
            return Cluster(1, devices, part)
        if devices % usual:
            raise UsageError(
                f"{devices} {part.name} do not fill nodes of {usual}",
                remedy=f"say how many nodes there are: NODESxDEVICESx{part.name}",
            )
        return Cluster(devices // usual, usual, part)


def kinds() -> tuple[str, ...]:
    """Names of all kinds of devices that ship with a data file."""
    folder = resources.files("rhino.planner") / "hardware"
    return tuple(
        sorted(entry.name[:-5].upper() for entry in folder.iterdir() if entry.name.endswith(".toml"))
    )


@cache
def hardware(name: str) -> Hardware:
    """The data of one kind of device, or of the file of that name, which is then the kind's name.

    Raises UsageError listing the known kinds when there is none.
    """
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise UsageError(
                f"no hardware file '{name}'", remedy="write one with `rhino calibrate -o FILE.toml`"
            )
        return replace(read_hardware(Path(name).read_text(encoding="utf-8")), name=name)
    path = resources.files("rhino.planner") / "hardware" / f"{name.lower()}.toml"
    if not path.is_file():
        raise UsageError(
            f"no data about devices of kind '{name}'", remedy=f"known kinds: {', '.join(kinds())}"
        )
    return read_hardware(path.read_text(encoding="utf-8"))


def read_hardware(text: str) -> Hardware:
    """Parse a hardware file. Raises UsageError when a figure has no source or a part is missing."""
    try:
        data = tomllib.loads(text)
        sources = data["sources"]
        device = {key: _figure(entry, sources) for key, entry in data["device"].items()}
        share = _figure(data["efficiency"]["matmul"], sources)
        peak = {key: _figure(entry, sources) for key, entry in data["flops"].items()}
        inner, outer = (_link(entry, sources) for entry in data["links"])
        return Hardware(
            name=data["name"],
            memory_bytes=device["memory_bytes"],
            memory_bandwidth=device["memory_bandwidth"] * device["memory_efficiency"],
            launch=device["launch"],
            flops={key: value * share for key, value in peak.items()},
            inner=inner,
            outer=outer,
            peak=peak,
            memory=device["memory_bandwidth"],
            kernels=data.get("kernels", {}),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(
            f"malformed hardware file: {error!r}", remedy="see rhino/planner/hardware/h100.toml"
        ) from error


def _figure(entry: Mapping[str, Any], sources: Mapping[str, str]) -> float:
    sources[entry["source"]]  # a figure without a source is an error
    return float(entry["value"])


def _link(entry: Mapping[str, Any], sources: Mapping[str, str]) -> Link:
    for source in entry["source"].split(","):
        sources[source.strip()]
    lines = {kind: tuple(Line(*map(float, line)) for line in entry[kind]) for kind in COLLECTIVES}
    return Link(entry["name"], entry.get("devices"), lines)
