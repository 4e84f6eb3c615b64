"""Reads tables of timed training steps (CSV) as configurations and machines.

Columns, one row per run: ``set, model, layers, hidden, heads, kv_heads, head_dim, ffn, gated_mlp, vocab, seq,
experts, topk, gpu, gpus, gpus_per_node, nic_GBps_per_gpu, precision, tp, pp, vp, dp, cp, ep, zero_stage, micro_batch,
grad_accum, recompute, attention, step_s, mem_gib, split, status, notes``. ``tflops_per_gpu`` is never read: sources
count FLOPs in different ways, seconds are seconds.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rhino.planner.model.calibrate import Measured
from rhino.planner.model.configuration import CONFIGURATION, Recompute, configurations
from rhino.planner.model.machine import Machine, machine

#: Names of devices in published tables, by how they start.
DEVICES = ("GB300", "GB200", "B300", "B200", "H200", "H100", "A100", "V100", "L4")
#: Which software a set of rows ran on.
STACKS: Mapping[str, str] = {
    "vtrain_single": "megatron",
    "vtrain_multi": "megatron",
    "bloom_topology_sweep": "megatron",
    "sc21_table1": "megatron",
    "mosaic_mpt": "fsdp-eager",
    "megatron_bridge": "megatron-core",
    "mlperf": "megatron-core",
    "torchtitan": "torchtitan",
}
#: The profile of sets that are not listed.
FOREIGN = "eager"


@dataclass(frozen=True)
class Run:
    """One measured run.

    Attributes:
        source: the set it belongs to.
        model: name of the model.
        split: ``fit`` or ``holdout``.
        status: ``ok`` or ``OOM``.
        device: kind of device, with its memory where there are several.
        linear: element type of linear layers.
        attention: generation of the attention kernel.
        stack: the software profile that fits best.
        configuration: a record of `configuration.CONFIGURATION`.
        seconds: per step; nan if unknown.
        memory: bytes of the fullest device; nan if unknown.
        per_node: devices of a node.
        recompute_known: whether the table says what is recomputed.
    """

    source: str
    model: str
    split: str
    status: str
    device: str
    linear: str
    attention: str
    stack: str
    configuration: np.ndarray
    seconds: float
    memory: float
    per_node: int
    recompute_known: bool

    @property
    def gpus(self) -> int:
        """Devices of the run."""
        c = self.configuration
        return int(c["tp"] * c["pp"] * c["dp"] * c["cp"])

    @property
    def one_node(self) -> bool:
        """Whether all devices sit in one node."""
        return self.gpus <= self.per_node

    @property
    def group(self) -> tuple[str, str, int, int, float]:
        """Runs of one group differ in the plan only: same work on the same devices."""
        c = self.configuration
        batch = int(c["micro_batch"] * c["micro_batches"] * c["dp"])
        return self.source, self.model, self.gpus, batch, float(c["seq"])

    def machine(self) -> Machine:
        """The machine of the run."""
        return variant(self.device, self.linear, self.attention)


def variant(device: str, linear: str, attention: str) -> Machine:
    """The machine of a device named as in tables, such as ``A100-40GB`` or ``H100-96GB``."""
    kind = next((name for name in DEVICES if device.startswith(name)), device)
    base = machine(kind, linear=linear if kind not in ("A100", "V100", "L4") else "bf16", attention=attention)
    if device == "A100-40GB":
        # 39.4 GiB as PyTorch reports them, 1555 GB/s of the datasheet.
        ratio = 1.555e12 / base.memory
        base = base._replace(
            memory=1.555e12,
            memory_bytes=4.23e10,
            linear=base.linear._replace(memory=base.linear.memory * ratio),
            matmul=base.matmul._replace(memory=base.matmul.memory * ratio),
        )
    if device == "H100-96GB":
        base = base._replace(memory_bytes=1.02e11)
    return base


def read_runs(path: Path) -> list[Run]:
    """All runs of a table whose shapes are known; rows that lack sizes are left out."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(_runs(csv.DictReader(file)))


def measured(runs: Iterable[Run]) -> list[Measured]:
    """Runs with known seconds by machine, as `calibrate.fit_software` takes them."""
    by: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        if run.status == "ok" and not math.isnan(run.seconds):
            by.setdefault((run.device, run.linear, run.attention), []).append(run)
    return [
        Measured(variant(*key), stack_rows(group), np.array([run.seconds for run in group]))
        for key, group in by.items()
    ]


def stack_rows(runs: Iterable[Run]) -> np.ndarray:
    """The configurations of runs as one array."""
    return np.array([run.configuration for run in runs], dtype=CONFIGURATION)


def _runs(rows: Iterable[Mapping[str, str]]) -> Iterable[Run]:
    for row in rows:
        need = (
            "layers",
            "hidden",
            "heads",
            "ffn",
            "vocab",
            "seq",
            "tp",
            "pp",
            "dp",
            "micro_batch",
            "grad_accum",
        )
        if any(not row.get(name) for name in need):
            continue
        yield _run(row)


def _run(row: Mapping[str, str]) -> Run:
    def number(name: str, default: float = 0.0) -> float:
        return float(row.get(name) or default)

    attention = row.get("attention") or ""
    notes = (row.get("notes") or "").lower()
    tp = number("tp", 1.0)
    moe = number("experts") > 0
    recompute = row.get("recompute") or "none"
    foreign = row["set"] not in STACKS
    core = row["set"] in ("megatron_bridge", "mlperf")
    values = {
        "layers": number("layers"),
        "hidden": number("hidden"),
        "heads": number("heads"),
        "kv_heads": number("kv_heads") or number("heads"),
        "head": number("head_dim") or number("hidden") / number("heads"),
        "ffn": number("ffn"),
        "gated": number("gated_mlp"),
        # Megatron pads the vocabulary to a multiple of 128 per tensor parallel rank.
        "vocab": math.ceil(number("vocab") / 128 / tp) * 128 * tp,
        "seq": number("seq"),
        "experts": number("experts"),
        "topk": number("topk"),
        "tp": tp,
        "pp": number("pp", 1.0),
        "vp": number("vp", 1.0),
        "dp": number("dp", 1.0),
        "cp": number("cp", 1.0),
        "ep": number("ep", 1.0) if moe else 1.0,
        "micro_batch": number("micro_batch", 1.0),
        "micro_batches": number("grad_accum", 1.0),
        "zero": number("zero_stage"),
        "nic": number("nic_GBps_per_gpu") * 1e9,
        "recompute": float(
            Recompute.FULL
            if recompute.startswith("full")
            else Recompute.SELECTIVE
            if recompute.startswith("sel")
            else Recompute.NONE
        ),
        "dropout": float("vtrain" in row["set"] or "bloom" in row["set"]),
        "fused_norm": 0.0 if foreign and "rms" not in (attention + notes).lower() else 1.0,
        "fused_attention": 0.0 if "unfused" in attention or "torch" in attention else 1.0,
        "sequence_parallel": float(core or "sequence parallel" in notes or "sequence_parallel" in notes),
        "trained": 0.001 if "lora" in row["model"].lower() else 1.0,
    }
    gpu = row["gpu"]
    device = next((name for name in DEVICES if gpu.startswith(name)), gpu)
    if gpu.startswith("A100-40"):
        device = "A100-40GB"
    if device in ("A100", "H100", "H200", "B200", "B300"):
        values["domain"] = number("gpus_per_node", 8.0)
    precision = (row.get("precision") or "").lower()
    generation = "flash1" if "1" in attention else "flash2"
    if device != "A100" and device != "A100-40GB" and "flash-1" not in attention:
        generation = "cudnn"
    step = row.get("step_s") or ""
    memory = row.get("mem_gib") or ""
    unit = 1e9 if "GB" in (row.get("mem_kind") or "") else 2.0**30
    return Run(
        source=row["set"],
        model=row["model"],
        split=row.get("split") or "holdout",
        status=row.get("status") or "ok",
        device=device,
        linear=next((kind for kind in ("fp8", "fp4") if kind in precision), "bf16"),
        attention=generation,
        stack="megatron-moe" if moe and core else STACKS.get(row["set"], FOREIGN),
        configuration=configurations([values])[0],
        seconds=float(step) if step else math.nan,
        memory=float(memory) * unit if memory else math.nan,
        per_node=int(number("gpus_per_node", 8.0)),
        recompute_known=not recompute.startswith("see"),
    )
