"""From a PyTorch program to the program of a rank: seconds and ops of every stage, peak memory, quality of the plan.

    python benchmarks/planning.py [--cluster 8xH100] [PROGRAMS...]

Every program runs in a process of its own, so that the peak memory is its own; imports are timed apart. CPU seconds
are those of the process, for machines that have other things to do.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from plan import cpu_seconds
from results import record, table

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("examples/gpt2.py", "examples/gpt2_small.py")


def measure(path: str, cluster: str) -> dict[str, object]:
    """Run all stages of one program in this process."""
    rows: list[tuple[str, float, float, int | str]] = []
    at, cpu = time.perf_counter(), cpu_seconds()

    def done(stage: str, ops: int | str = "") -> None:
        nonlocal at, cpu
        now, cpu_now = time.perf_counter(), cpu_seconds()
        rows.append((stage, now - at, cpu_now - cpu, ops))
        at, cpu = now, cpu_now

    from rhino.cli.planning import Request, make_plan
    from rhino.cli.source import forward_of, load, step_of
    from rhino.dialects import signature
    from rhino.frontend import capture as _capture  # noqa: F401  imports torch.export
    from rhino.passes.fuse_collectives import fuse_collectives
    from rhino.passes.spmd import spmd
    from rhino.planner import plan as _plan  # noqa: F401

    done("imports")
    source = load(path)
    done("build the model")

    def count(module: object) -> int:
        return sum(1 for _ in signature.main_of(module).body.block.ops)  # type: ignore[arg-type]

    forward = forward_of(source)
    done("capture", count(forward))
    step = step_of(forward, source.optimizer)
    done("autodiff, optimizer, clean-ups", count(step))
    plan = make_plan(step, Request(cluster=cluster))
    done("plan", count(plan.module))
    local = plan.module.clone()
    spmd(local)
    done("spmd", count(local))
    fuse_collectives(local)
    done("fuse-collectives", count(local))
    cost = plan.cost
    return {
        "rows": rows,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "mesh": str(plan.mesh),
        "step_time_s": cost.step_time_s,
        "gap": plan.gap,
        "templates": {name: t for name, t in plan.templates.items() if t is not None},
    }


def section(path: str, found: dict[str, object]) -> str:
    """What was measured of one program, as Markdown."""
    rows = [list(row) for row in found["rows"]]  # type: ignore[attr-defined]
    total = ["total", sum(row[1] for row in rows), sum(row[2] for row in rows), ""]
    ratios = ", ".join(
        f"{name} {t / found['step_time_s']:.3f}"  # type: ignore[operator]
        for name, t in found["templates"].items()  # type: ignore[attr-defined]
    )
    return (
        f"### {path}\n\n"
        + table(["stage", "seconds", "CPU seconds", "ops after it"], [*rows, total])
        + f"\n\nPeak memory {found['peak_bytes'] / 1e9:.2f} GB. Mesh {found['mesh']}, predicted step "  # type: ignore[operator]
        f"{found['step_time_s'] * 1e3:.4g} ms, gap to the lower bound {found['gap']:.2%}; "  # type: ignore[operator]
        f"predicted times of the templates over this plan's: {ratios}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--cluster", default="8xH100")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.cluster)))
        return
    sections = []
    for program in options.programs:
        path = Path(program) if Path(program).is_file() else ROOT / program
        if not path.is_file():
            print(f"skipped: there is no {program}", file=sys.stderr)
            continue
        command = [sys.executable, __file__, f"--cluster={options.cluster}", f"--one={path}"]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        sections.append(section(program, json.loads(out.splitlines()[-1])))
    command_line = " ".join(["python benchmarks/planning.py", *sys.argv[1:]])
    record(f"Planning for {options.cluster}", command_line, "\n\n".join(sections))


if __name__ == "__main__":
    main()
