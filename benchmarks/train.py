"""Training throughput: Rhino's plans against PyTorch's DDP and FSDP2, on the same machine in the same processes.

    python benchmarks/train.py [--ranks 1 2 4] [--steps 4] [--repeats 7] [PROGRAM]
    python benchmarks/train.py --reference           # plain PyTorch in one process only

Every rank builds all variants of one program and then times them in turn, `repeats` times `steps` steps each, so
that what else the machine does hits all of them alike. Shown are medians, and what the planner predicts of its own
plans for the machine that the CPU's hardware file describes (or for a file of `rhino calibrate`, with --hardware). A
variant whose losses differ from plain
PyTorch's is an error, not a row. The sizes of examples/gpt2.py come from the environment: GPT2_WIDTH=256 ...
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from results import record, table
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from rhino.cli.batches import tokens_of
from rhino.cli.planning import Request, local_program, make_plan
from rhino.cli.source import SEED, Source, forward_of, load, step_of
from rhino.dialects.text import parse_module, print_module
from rhino.frontend.program import named_inputs
from rhino.runtime.controller import Controller
from rhino.runtime.reference import Reference, torch_optimizer
from rhino.runtime.state import values_of
from rhino.runtime.world import World, join_world

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ["ranks", "variant", "tokens/s", "predicted", "ratio"]
PLANS = ("auto", "dp", "zero3", "megatron")
#: Losses of one program in float32, whose additions are ordered differently, a few steps into training.
TOLERANCE = 1e-4

#: Takes a whole batch, gives this step's loss (of the whole batch), on every rank.
Step = Callable[[Any], torch.Tensor]


def rhino_step(text: str, source: Source, world: World) -> Step:
    """A step of the local program `text`."""
    controller = Controller(parse_module(text, "<plan>", verify=False), world)
    controller.load(values_of(source.python("training").model, seed=SEED))

    def step(batch: Any) -> torch.Tensor:
        loss = controller.step(dict(named_inputs(batch))).loss
        assert loss is not None
        return loss

    return step


def pytorch_step(kind: str, source: Source, world: World) -> Step:
    """A step of DDP or FSDP2, each rank on its rows of the batch."""
    program = source.python("training")
    if kind == "DDP":
        model: torch.nn.Module = DistributedDataParallel(program.model)
    else:
        mesh = init_device_mesh("cpu", (world.size,))
        model = program.model
        for block in model.h:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch_optimizer(source.optimizer, model.parameters())

    def step(batch: Any) -> torch.Tensor:
        mine = {k: v.chunk(world.size)[world.rank] for k, v in batch.items()}
        optimizer.zero_grad(set_to_none=True)
        loss = program.loss(model, mine)
        loss.backward()
        optimizer.step()
        total = loss.detach()
        dist.all_reduce(total)
        return total / world.size

    return step


def reference_step(source: Source) -> Step:
    program = source.python("training")
    reference = Reference(program.model, program.loss, source.optimizer, seed=SEED)
    return reference.step


def measure(
    path: str, texts: Mapping[str, str], world: World, steps: int, repeats: int
) -> dict[str, list[float]]:
    """Seconds per step of every variant, one number per repeat. Raises RuntimeError when losses differ."""
    variants: dict[str, Step] = {}
    if world.size == 1:
        variants["PyTorch"] = reference_step(load(path))
    else:
        variants |= {kind: pytorch_step(kind, load(path), world) for kind in ("DDP", "FSDP2")}
    variants |= {f"Rhino {name}": rhino_step(text, load(path), world) for name, text in texts.items()}
    program = load(path).python("training")
    batches = [program.batch_at(i) for i in range(steps)]
    first = {name: [float(step(b)) for b in batches] for name, step in variants.items()}
    (base, want), *others = first.items()
    for name, losses in others:
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses, want, strict=True))
        if worst > TOLERANCE:
            raise RuntimeError(
                f"losses of {name} differ from those of {base} by {worst:.2g}: {losses}, {want}"
            )
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, step in variants.items():
            world.barrier()
            start = time.perf_counter()
            for batch in batches:
                step(batch)
            world.barrier()
            seconds[name].append((time.perf_counter() - start) / steps)
    return seconds


def worker(options: argparse.Namespace) -> None:
    """One rank: the plans are in files, written by the parent."""
    torch.set_num_threads(1)
    texts = {p.stem: p.read_text() for p in sorted(Path(options.plans).glob("*.mlir"))}
    with join_world(timedelta(minutes=5)) as world:
        seconds = measure(options.program, texts, world, options.steps, options.repeats)
        if world.rank == 0:
            Path(options.plans, "seconds.json").write_text(json.dumps(seconds))


def write_plans(path: str, ranks: int, folder: Path, hardware: str) -> dict[str, float]:
    """The local program of every plan, as text; returned are the seconds per step that are predicted."""
    source = load(path)
    step = step_of(forward_of(source), source.optimizer)
    if ranks == 1:
        (folder / "single.mlir").write_text(print_module(step, debug=True))
        return {}
    predicted = {}
    for name in PLANS:
        plan = make_plan(step, Request(f"{ranks}x{hardware}", plan=name))
        predicted[f"Rhino {name}"] = plan.cost.step_time_s
        (folder / f"{name}.mlir").write_text(print_module(local_program(plan.module), debug=True))
    return predicted


def run(options: argparse.Namespace, ranks: int) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Plan, start the ranks, return their seconds per step, and those predicted."""
    with tempfile.TemporaryDirectory() as folder:
        predicted = write_plans(options.program, ranks, Path(folder), options.hardware)
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [
            sys.executable,
            *(launcher if ranks > 1 else []),
            __file__,
            f"--plans={folder}",
            f"--steps={options.steps}",
            f"--repeats={options.repeats}",
            options.program,
        ]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment)
        return json.loads(Path(folder, "seconds.json").read_text()), predicted


def rows_of(
    ranks: int, seconds: Mapping[str, list[float]], predicted: Mapping[str, float], tokens: int
) -> list[list[object]]:
    """Medians, predictions, and the ratio to the first variant: its time over this one's, repeat by repeat."""
    base = next(iter(seconds.values()))
    return [
        [
            ranks,
            name,
            tokens / statistics.median(times),
            tokens / predicted[name] if name in predicted else "-",
            statistics.median(b / t for b, t in zip(base, times, strict=True)),
        ]
        for name, times in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", default=str(ROOT / "examples" / "gpt2.py"))
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--reference", action="store_true", help="plain PyTorch in one process only")
    parser.add_argument("--title", default="Training throughput", help="of the section in RESULTS.md")
    parser.add_argument(
        "--hardware", default="CPU", help="what is planned for: CPU, or a file of rhino calibrate"
    )
    parser.add_argument("--plans", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plans:
        worker(options)
        return
    source = load(options.program)
    program = source.python("training")
    tokens = tokens_of(program.batch_at(0))
    if options.reference:
        torch.set_num_threads(1)
        seconds = measure(
            options.program, {}, World(0, 1, torch.device("cpu"), timedelta()), options.steps, options.repeats
        )
        print(table(COLUMNS, rows_of(1, seconds, {}, tokens)))
        return
    rows = [row for ranks in options.ranks for row in rows_of(ranks, *run(options, ranks), tokens)]
    size = sum(p.numel() for p in program.model.parameters())
    note = (
        f"\n\n{size:,} parameters, {tokens} tokens per step in all, gloo, one thread per rank. The ratio is to the "
        "first variant of the same number of ranks, above 1 is faster."
    )
    command = "python benchmarks/train.py " + " ".join(sys.argv[1:])
    sizes = " ".join(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("GPT2_"))
    record(
        options.title,
        f"{sizes} {command}".strip(),
        table(COLUMNS, rows) + note,
    )


if __name__ == "__main__":
    main()
