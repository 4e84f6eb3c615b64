"""`rhino calibrate`: measure the machine it is on, and write a hardware file that `--cluster 4xFILE.toml` reads.

One code path for gloo on CPUs and NCCL on GPUs: ranks are started as by `rhino run`, time their device and the
collectives between them, and rank 0 fits the lines ``latency + per_hop * (members - 1) + bytes / bandwidth`` that the
planner uses. What one machine cannot know of (the network between nodes) is taken from a shipped file, and said so.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import nnls

from rhino.ir.errors import UsageError
from rhino.planner.cluster import COLLECTIVES, Hardware, Line, hardware, kinds, read_hardware
from rhino.runtime.launch import is_rank, launch, watch_parent

if TYPE_CHECKING:
    from rhino.runtime.measure import Measured

#: Where the parent wants to find what rank 0 measured.
_RESULT = "RHINO_CALIBRATION"

#: What a line may cost at least, so that no collective is free: seconds, and seconds per byte.
_LEAST = (1e-7, 1e-13)


@dataclass(frozen=True)
class CalibrateOptions:
    """What `rhino calibrate` was asked for; see its help."""

    output: str
    nproc: int | None = None
    name: str = "LOCAL"
    like: str | None = None

    def check(self) -> None:
        """Raise UsageError for values that cannot mean anything."""
        if not self.output.endswith(".toml"):
            raise UsageError(
                f"--output is '{self.output}'", remedy="hardware files end in .toml: -o machine.toml"
            )
        if not Path(self.output).absolute().parent.is_dir():
            raise UsageError(f"cannot write '{self.output}': no such folder")
        if self.nproc is not None and (self.nproc < 2 or self.nproc % 2):
            raise UsageError(f"--nproc is {self.nproc}", remedy="give an even number of 2 or more")
        if not self.name.replace("-", "").replace("_", "").isalnum():
            raise UsageError(f"--name is '{self.name}'", remedy="use letters, digits, - and _")
        if self.like is not None:
            hardware(self.like)


def calibrate(options: CalibrateOptions, arguments: Sequence[str]) -> None:
    """Measure and write the file. `arguments` is the command line, which every rank is started with again."""
    if is_rank() and _RESULT in os.environ:
        watch_parent()
        _rank(Path(os.environ[_RESULT]))
        return
    options.check()
    nproc = options.nproc or max(2, os.cpu_count() or 1) // 2 * 2
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "measured.json")
        environment = {**os.environ, _RESULT: str(result)}
        launch([sys.executable, "-m", "rhino.cli.main", *arguments], nproc, environment)
        facts = json.loads(result.read_text())
    text = hardware_text(facts, options.name, nproc, options.like)
    part = read_hardware(text)
    try:
        Path(options.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write '{options.output}': {error.strerror}") from error
    show(part, facts["device"], nproc)
    print(f"written to {options.output}; plan for it with --cluster {nproc}x{options.output}")


def _rank(result: Path) -> None:
    import torch

    from rhino.runtime.measure import measure
    from rhino.runtime.world import join_world

    with join_world() as world:
        host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found: Measured = measure(world, host / world.size)
        if world.rank == 0:
            facts = {**found.to_json(), "torch": torch.__version__, "threads": torch.get_num_threads()}
            result.write_text(json.dumps(facts), encoding="utf-8")


def fit_lines(samples: Iterable[Mapping[str, Any]]) -> dict[str, Line]:
    """A line per kind of collective, by non-negative least squares on relative errors.

    Samples have kind, members, bytes (of the local operand) and seconds, as `rhino.runtime.measure.Sample`. With one
    size of group the whole latency counts per member: it grows with them on every library that walks a ring.
    """
    out = {}
    samples = list(samples)
    for kind in COLLECTIVES:
        own = [s for s in samples if s["kind"] == kind]
        seconds = np.array([s["seconds"] for s in own])
        hops = np.array([s["members"] - 1.0 for s in own])
        moved = np.array([_moved(kind, s["members"], s["bytes"]) for s in own])
        fixed = np.ones(len(own)) if kind == "permute" or len(set(hops)) > 1 else np.zeros(len(own))
        growing = np.zeros(len(own)) if kind == "permute" else hops
        # Scaled so that all columns weigh alike, and every sample by its own time.
        table = np.stack([fixed, growing, moved * 1e-9], axis=1) / seconds[:, None]
        latency, per_hop, per_gb = nnls(table, np.ones(len(own)))[0]
        if latency + per_hop == 0:
            latency = _LEAST[0]
        out[kind] = Line(float(latency), float(per_hop), float(1 / max(per_gb * 1e-9, _LEAST[1])))
    return out


def _moved(kind: str, n: int, size: float) -> float:
    """Bytes that the planner counts for a collective with a local operand of `size` bytes."""
    match kind:
        case "all_reduce":
            return 2 * (n - 1) / n * size
        case "all_gather":
            return (n - 1) * size
        case "permute":
            return size
    return (n - 1) / n * size


def shipped_like(device: str, like: str | None) -> Hardware:
    """The shipped file for what cannot be measured. Raises UsageError when none is known for a device."""
    if like is not None:
        return hardware(like)
    found = [kind for kind in kinds() if kind in device.upper()]
    if not found:
        raise UsageError(
            f"no data about the network of '{device}'",
            remedy=f"name a kind with --like: {', '.join(kinds())}",
        )
    return hardware(max(found, key=len))


def hardware_text(facts: Mapping[str, Any], name: str, nproc: int, like: str | None) -> str:
    """The hardware file of what `rhino.runtime.measure.measure` found (as plain values)."""
    base = shipped_like(facts["device"], like)
    lines = fit_lines(facts["samples"])
    when = time.strftime("%Y-%m-%d")
    flops = "\n".join(f'{k} = {{ value = {v:.4g}, source = "measured" }}' for k, v in facts["flops"].items())
    inner = "\n".join(f"{kind} = {_show([lines[kind]])}" for kind in COLLECTIVES)
    outer = "\n".join(f"{kind} = {_show(base.outer.lines[kind])}" for kind in COLLECTIVES)
    return f"""\
# {facts["device"]}, measured by `rhino calibrate --nproc {nproc}`. Units: seconds, bytes, FLOP/s, bytes/s.
name = "{name}"

[sources]
measured = "rhino calibrate, {when}: {nproc} ranks at once, {facts["threads"]} threads each, torch {facts["torch"]}: \
square matmuls, float32 additions of large arrays, small additions through the executor; least of 7 batches"
collectives = "the same ranks: collectives of the runtime, 256 B to 8 MB in groups of 2 and {nproc}; non-negative \
least squares on relative errors"
{base.name} = "the file of {base.name} that ships with Rhino: one machine knows nothing of the network"

[device]
memory_bytes = {{ value = {facts["memory_bytes"]:.4g}, source = "measured" }}
memory_bandwidth = {{ value = {facts["bandwidth"]:.4g}, source = "measured" }}
memory_efficiency = {{ value = 1.0, source = "measured" }}
launch = {{ value = {facts["launch"]:.3g}, source = "measured" }}

[flops]
{flops}

[efficiency]
matmul = {{ value = 1.0, source = "measured" }}

[[links]]
name = "host"
devices = {nproc if facts["device"] != "CPU" else 1024}
source = "collectives"
# Lines [latency, latency per further member, bytes/s per device].
{inner}

[[links]]
name = "network"
source = "{base.name}"
# Latency per doubling of the nodes in place of latency per member.
{outer}
"""


def _show(lines: Sequence[Line]) -> str:
    return str([[float(f"{x:.4g}") for x in (line.latency, line.per_hop, line.bandwidth)] for line in lines])


def show(part: Hardware, device: str, nproc: int) -> None:
    """Print what was measured, for people."""
    from rich.console import Console
    from rich.table import Table

    from rhino.cli.plan import seconds

    console = Console()
    console.print(f"[bold]{device}, {nproc} ranks[/]")
    rates = ", ".join(f"{k} {v / 1e9:.4g}" for k, v in part.flops.items())
    console.print(
        f"matmul {rates} GFLOP/s; memory {part.memory_bandwidth / 1e9:.3g} GB/s; "
        f"smallest op {seconds(part.launch)}"
    )
    table = Table(title="Collectives", title_justify="left")
    for column in ("kind", "latency", "per further member", "GB/s per device"):
        table.add_column(column)
    for kind in COLLECTIVES:
        (line,) = part.inner.lines[kind]
        table.add_row(kind, seconds(line.latency), seconds(line.per_hop), f"{line.bandwidth / 1e9:.3g}")
    console.print(table)
