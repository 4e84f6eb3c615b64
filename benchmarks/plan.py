"""Plan a published model for a cluster, and say where the time goes: capture, differentiation, search, partition, and
the check that the plan computes what the program does.

    python benchmarks/plan.py llama3-8b --cluster 8x8xH100 --mesh-axes 2 --level O1 --json 8b-O1.json
    python benchmarks/plan.py --record 8b-O1.json 8b-O2.json ...

The models live on the meta device (`models.py`); no weight is made and no GPU is needed. The second form puts what
several runs wrote into one table of RESULTS.md. Imports are timed apart; CPU seconds are those of the process and of
the one that it searches with, for machines that have other things to do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results import record, table

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

NAMES = ("llama3-8b", "llama3-70b", "llama3-405b", "gpt3-175b")


def cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


@dataclass
class Clock:
    """Wall and CPU seconds of every stage, in order."""

    stages: dict[str, tuple[float, float]] = field(default_factory=dict)
    _at: tuple[float, float] = field(default_factory=lambda: (time.perf_counter(), cpu_seconds()))

    def done(self, stage: str) -> None:
        """The time since the last call was that of `stage`."""
        now = time.perf_counter(), cpu_seconds()
        wall, cpu = self.stages.get(stage, (0.0, 0.0))
        self.stages[stage] = wall + now[0] - self._at[0], cpu + now[1] - self._at[1]
        self._at = now


def training_program(options: argparse.Namespace, clock: Clock) -> tuple[ModuleOp, int]:
    """The training step of the model, and its layers."""
    from models import configuration, program

    from rhino.frontend.capture import capture
    from rhino.passes.recompute import recompute
    from rhino.passes.step import training_step

    clock.done("imports")
    config = configuration(options.model, options.layers, options.batch)
    source = program(config)
    clock.done("model")
    forward = capture(source)
    clock.done("capture")
    assert source.optimizer is not None
    step = training_step(forward, source.optimizer)
    if options.recompute:
        recompute(step, options.recompute.split("+"))
    clock.done("differentiate")
    return step, config.layers


def measure(options: argparse.Namespace, step: ModuleOp, layers: int, clock: Clock) -> dict[str, Any]:
    """Search, partition and check in this process. Raises RhinoError when there is no plan."""
    from rhino.check.planned import check_planned
    from rhino.cli.planning import local_program
    from rhino.dialects import signature
    from rhino.passes import fuse_collectives, spmd  # noqa: F401  imported by `local_program` when it is called
    from rhino.planner import outer as _outer  # noqa: F401  imported by `plan` when it is called
    from rhino.planner import plan
    from rhino.planner.cluster import Cluster
    from rhino.planner.effort import Effort
    from rhino.planner.micro import parse_count

    clock.done("imports")
    stages = Clock()
    doing: list[str] = ["read"]

    def progress(message: str) -> None:
        stages.done(doing[-1])
        doing.append(message)
        if options.verbose:
            print(f"{clock_of(stages):8.1f} s  {message}", file=sys.stderr, flush=True)

    effort = Effort(options.level, mesh_axes=options.mesh_axes, folded=not options.no_fold)
    found = plan(
        step,
        Cluster.parse(options.cluster),
        effort=effort,
        micro_batches=parse_count(options.micro_batches),
        progress=progress,
    )
    stages.done(doing[-1])
    clock.done("search")
    local_program(found.module)
    clock.done("partition")
    checked = check_planned(step, found.module, found.padding, found.micro_batches)
    clock.done("check")
    own = clock.stages.pop("imports")
    return {
        "model": options.model,
        "layers": layers,
        "recompute": options.recompute,
        "cluster": options.cluster,
        "level": options.level,
        "mesh_axes": options.mesh_axes,
        "folded": not options.no_fold,
        "ops": sum(1 for _ in signature.main_of(step).body.block.ops),
        "seconds": {stage: wall for stage, (wall, _) in clock.stages.items()},
        "cpu_seconds": {stage: cpu for stage, (_, cpu) in clock.stages.items()},
        "import_s": own[0],
        "search_stages": {stage: wall for stage, (wall, _) in stages.stages.items()},
        "check": {**checked.to_json(), "text": checked.text()},
        # Both at once is the most that it can have been: pages that the second process shares count twice.
        "peak_rss_bytes": sum(
            resource.getrusage(who).ru_maxrss * 1024
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ),
        **{k: v for k, v in found.to_json().items() if k not in ("parameters", "program", "constraints")},
    }


def clock_of(clock: Clock) -> float:
    """Seconds that the stages took together."""
    return sum(wall for wall, _ in clock.stages.values())


def report(found: dict[str, Any]) -> str:
    """What was measured of one run, for people."""
    seconds, cpu, cost = found["seconds"], found["cpu_seconds"], found["cost"]
    own = cost["step_time_s"]
    rows: list[list[object]] = [[stage, seconds[stage], cpu[stage]] for stage in seconds]
    rows.append(["search + partition", sum_of(seconds), sum_of(cpu)])
    stages = sorted(found["search_stages"].items(), key=lambda item: -item[1])
    templates = [
        [name, "none that fits" if t is None else f"{t * 1e3:.4g} ms", "" if t is None else f"{t / own:.3f}"]
        for name, t in found["templates"].items()
    ]
    return "\n\n".join(
        [
            f"{found['model']}, {found['layers']} layers ({found['ops']} ops) on {found['cluster']}, "
            f"{found['level']}, meshes of at most {found['mesh_axes']} axes",
            table(["stage", "seconds", "CPU seconds"], rows),
            "search: " + ", ".join(f"{name} {s:.2f} s" for name, s in stages),
            f"checked: {found['check']['text']}",
            f"peak memory of all processes {found['peak_rss_bytes'] / 1e9:.2f} GB",
            "micro-batches: "
            + "; ".join([str(found["micro_batches"]), *(map(str, found["micro_batches_tried"]))]),
            f"mesh {found['mesh']} from {found['origin']}: step {own * 1e3:.5g} ms (compute "
            f"{cost['compute_s'] * 1e3:.5g}, communication {cost['comm_s'] * 1e3:.5g}), lower bound "
            f"{found['lower_bound_s'] * 1e3:.5g} ms, gap {found['gap']:.3%}, "
            f"{cost['peak_memory_bytes'] / 1e9:.2f} GB per device",
            table(["template", "step", "over this plan's"], templates),
            table(
                ["collective", "axis", "count", "GB sent"],
                [[c["kind"], c["axis"], c["count"], c["bytes"] / 1e9] for c in found["collectives"]],
            ),
        ]
    )


def sum_of(seconds: dict[str, float]) -> float:
    """What the project's limits are about: search and partition, without capture, differentiation and check."""
    return seconds["search"] + seconds["partition"]


def summary(runs: list[dict[str, Any]]) -> str:
    """One row for every run."""
    header = ["model", "layers", "cluster", "level", "axes", "capture s", "differentiate s", "search s"]
    header += [
        "partition s",
        "both s",
        "both, CPU s",
        "check s",
        "peak GB",
        "mesh",
        "step ms",
        "GB/device",
        "gap",
    ]
    rows = [
        [
            r["model"],
            r["layers"],
            r["cluster"],
            r["level"] + ("" if r["folded"] else ", unfolded"),
            r["mesh_axes"],
            *(f"{r['seconds'][s]:.1f}" for s in ("capture", "differentiate", "search", "partition")),
            f"{sum_of(r['seconds']):.1f}",
            f"{sum_of(r['cpu_seconds']):.1f}",
            f"{r['seconds']['check']:.1f}" if "check" in r["seconds"] else "-",
            f"{r['peak_rss_bytes'] / 1e9:.2f}",
            r["mesh"].replace(",", " "),
            f"{r['cost']['step_time_s'] * 1e3:.1f}",
            f"{r['cost']['peak_memory_bytes'] / 1e9:.1f}",
            f"{r['gap']:.2%}",
        ]
        for r in runs
    ]
    note = (
        "Sequences of 8,192 tokens, 16 in a step; attention goes through `recompute`. A search has two processes; CPU "
        "seconds are those of both: where half of them is far less than the wall's, the machine was busy with other "
        "things. At O1 the bound is that of the work alone, without communication."
    )
    return table(header, rows) + "\n\n" + note


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", choices=NAMES)
    parser.add_argument("--cluster", default="8x8xH100")
    parser.add_argument("--mesh-axes", type=int, default=2, help="most axes of a mesh, 1 to 3")
    parser.add_argument("--level", default="O2", choices=("O1", "O2"))
    parser.add_argument("--layers", type=int, help="another depth than the model's")
    parser.add_argument("--batch", type=int, help="sequences in a step, over all devices")
    parser.add_argument(
        "--recompute", default="attention", help="composites made again for the backward pass"
    )
    parser.add_argument("--micro-batches", default="1", help="a number, or auto")
    parser.add_argument("--no-fold", action="store_true", help="let every layer decide for itself")
    parser.add_argument("--json", help="write everything to this file")
    parser.add_argument("--verbose", action="store_true", help="tell what is searched")
    parser.add_argument("--record", nargs="+", metavar="JSON", help="write RESULTS.md from files of --json")
    options = parser.parse_args()
    if options.record:
        runs = [json.loads(Path(name).read_text(encoding="utf-8")) for name in options.record]
        command = "python benchmarks/plan.py MODEL --cluster C --mesh-axes K --level L"
        record("Planning Llama 3 at its published sizes", command, summary(runs))
        return
    if options.model is None:
        parser.error(f"name a model ({', '.join(NAMES)}), or files after --record")
    from rhino.ir.errors import RhinoError

    try:
        clock = Clock()
        found = measure(options, *training_program(options, clock), clock)
    except RhinoError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    print(report(found))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
