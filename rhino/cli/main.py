"""The command `rhino`. Everything heavy is imported by the command that needs it: `--help` is quick."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from rhino.cli.guard import guarded, usage
from rhino.ir.errors import UsageError

_STARTED = time.time()

app = typer.Typer(
    help="Turns a program written for one device into an equivalent distributed program.",
    epilog="Example: rhino plan examples/gpt2.py --nproc 4, then rhino run examples/gpt2.py --nproc 4 --steps 20.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _present(path: str | None) -> str | None:
    """Refuses a PROGRAM that is not there before anything heavy is imported."""
    if path is not None and not Path(path).is_file():
        raise UsageError(
            f"no program file '{path}'", remedy="give a Python file that defines program(), or an .mlir file"
        )
    return path


Program = Annotated[
    str,
    typer.Argument(
        help="A Python file that defines program(), or an .mlir file.", callback=_present, show_default=False
    ),
]
Nproc = Annotated[int | None, typer.Option(help="Number of local processes.", show_default=False)]
MeshOption = Annotated[
    str | None, typer.Option("--mesh", help="Fix the mesh: dp=2,tp=2.", show_default=False)
]
PlanOption = Annotated[
    str,
    typer.Option(
        "--plan", help="auto (search), a template (dp, zero3, megatron, fsdp_tp), or a plan file (.mlir)."
    ),
]
Json = Annotated[
    str | None, typer.Option("--json", help="Write the result to this file.", show_default=False)
]
Cluster = Annotated[
    str | None, typer.Option(help="Nodes x devices x kind: 2x8xH100, 8xH100.", show_default=False)
]
Pins = Annotated[
    list[str],
    typer.Option(
        "--pin",
        help="PATTERN=LAYOUT: what matches by name has this layout; 'replicated' is one. Again for more.",
        show_default=False,
    ),
]
Forbid = Annotated[
    list[str],
    typer.Option(
        help="PATTERN:AXIS, or a paradigm: data, sequence, tensor, sharded-states, strided. Again for more.",
        show_default=False,
    ),
]
Memory = Annotated[str | None, typer.Option(help="Memory per device: 80GB.", show_default=False)]
Level = Annotated[
    str, typer.Option(help="O1 decides one mesh axis after another; O2 also all at once, and proves a bound.")
]
Fold = Annotated[
    bool, typer.Option("--no-fold", help="Let equal layers decide apart. Takes time with every layer.")
]
NoPad = Annotated[
    bool,
    typer.Option("--no-pad", help="Leave extents as they are, also where the mesh does not divide them."),
]
MicroBatches = Annotated[
    str,
    typer.Option(
        help="So many batches one after another, adding up their gradients; auto: 1 unless nothing fits the memory."
    ),
]
AccumulateIn = Annotated[
    str,
    typer.Option(
        help="Type of sums over micro-batches: f32, or same for that of what is added, where it is narrower."
    ),
]
MeshAxes = Annotated[int, typer.Option(help="The most axes of the meshes that are searched, 1 to 3.")]


@app.command(
    "plan",
    epilog="Example: rhino plan examples/gpt2.py --cluster 2x8xH100 -o plan.mlir. "
    "Where memory is short: --memory-limit 2GB, and by hand --micro-batches 4.",
)
def plan_command(
    program: Program,
    cluster: Cluster = None,
    nproc: Nproc = None,
    mesh: MeshOption = None,
    plan: PlanOption = "auto",
    memory_limit: Memory = None,
    pin: Pins = [],  # noqa: B006
    forbid: Forbid = [],  # noqa: B006
    objective: Annotated[str, typer.Option(help="time, or memory for the plan that needs least.")] = "time",
    level: Level = "O2",
    no_fold: Fold = False,
    mesh_axes: MeshAxes = 3,
    no_pad: NoPad = False,
    micro_batches: MicroBatches = "auto",
    accumulate_in: AccumulateIn = "f32",
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not check that the plan computes what the program does.")
    ] = False,
    output: Annotated[
        str | None, typer.Option("-o", "--output", help="Write the plan as MLIR text.", show_default=False)
    ] = None,
    json: Json = None,
) -> None:
    """Search the layouts of all tensors, show what they cost, check the plan. Needs no GPU."""
    from rhino.cli.plan import PlanOptions, plan_program
    from rhino.cli.planning import Request

    request = Request(
        cluster,
        nproc,
        mesh,
        plan,
        memory_limit,
        tuple(pin),
        tuple(forbid),
        objective,
        level,
        not no_fold,
        mesh_axes,
        not no_pad,
        micro_batches,
        accumulate_in,
    )
    plan_program(PlanOptions(program, request, output, json, not no_check))


@app.command("run", epilog="Example: rhino run examples/gpt2.py --nproc 4 --steps 20")
def run_command(
    context: typer.Context,
    program: Program,
    nproc: Nproc = None,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 20,
    plan: PlanOption = "auto",
    mesh: MeshOption = None,
    memory_limit: Memory = None,
    no_pad: NoPad = False,
    micro_batches: MicroBatches = "auto",
    accumulate_in: AccumulateIn = "f32",
    reference: Annotated[
        bool, typer.Option("--reference", help="Run plain single-process PyTorch instead.")
    ] = False,
    kernels: Annotated[str, typer.Option(help="torch, or triton for generated kernels.")] = "torch",
    dtype: Annotated[
        str | None,
        typer.Option(help="Convert weights and inputs: float32, bfloat16, ...", show_default=False),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that a collective may take.")] = 300.0,
    json: Json = None,
) -> None:
    """Plan for this machine and train on local processes (gloo on CPU, NCCL on GPUs).

    Under torchrun each process is one rank: torchrun --nproc-per-node 4 -m rhino.cli.main run PROGRAM
    """
    from rhino.cli.planning import Request
    from rhino.cli.run import RunOptions, run

    request = Request(
        None,
        nproc,
        mesh,
        plan,
        memory_limit,
        pad=not no_pad,
        micro_batches=micro_batches,
        accumulate_in=accumulate_in,
    )
    run(RunOptions(program, request, steps, reference, kernels, dtype, json, timeout, _STARTED), context.obj)


@app.command("check", epilog="Example: rhino check examples/gpt2.py --mesh dp=2,tp=4")
def check_command(
    program: Annotated[
        str | None,
        typer.Argument(
            help="A Python file that defines program(), or an .mlir file.",
            callback=_present,
            show_default=False,
        ),
    ] = None,
    plan: PlanOption = "auto",
    mesh: MeshOption = None,
    nproc: Nproc = None,
    cluster: Cluster = None,
    memory_limit: Memory = None,
    no_pad: NoPad = False,
    micro_batches: MicroBatches = "auto",
    accumulate_in: AccumulateIn = "f32",
    mode: Annotated[
        str, typer.Option(help="float64 (1e-10), float32 (1e-5), or integer (bit-exact, exact ops only).")
    ] = "float64",
    by_pass: Annotated[
        bool,
        typer.Option("--by-pass", help="Name the first pass, and op, that differ; write a minimised module."),
    ] = False,
    shrunk: Annotated[
        bool,
        typer.Option(
            "--shrunk", help="Check the plan on small shapes, equal layers once: any size, seconds."
        ),
    ] = False,
    fuzz: Annotated[
        int | None,
        typer.Option(help="Check so many random programs, layouts and meshes instead.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="What --fuzz draws from.")] = 0,
    out_dir: Annotated[str, typer.Option(help="Where what differs is written.")] = "rhino-check",
    json: Json = None,
) -> None:
    """Run the distributed program on the interpreter and compare it with one device and with PyTorch."""
    from rhino.cli.check import CheckOptions, check_program
    from rhino.cli.planning import Request

    if fuzz is not None:
        _fuzz(program, fuzz, seed, out_dir, json)
        return
    if program is None:
        raise UsageError("there is no program", remedy="give PROGRAM, or --fuzz N for random ones")
    request = Request(
        cluster,
        nproc,
        mesh,
        plan,
        memory_limit,
        pad=not no_pad,
        micro_batches=micro_batches,
        accumulate_in=accumulate_in,
    )
    if not check_program(CheckOptions(program, request, mode, json, by_pass, out_dir, shrunk)):
        raise typer.Exit(1)


def _fuzz(program: str | None, count: int, seed: int, out_dir: str, json: str | None) -> None:
    from rhino.cli.fuzz import FuzzOptions, fuzz_programs

    if program is not None:
        raise UsageError("--fuzz draws its programs", remedy="leave out PROGRAM, or --fuzz")
    if not fuzz_programs(FuzzOptions(count, seed, out_dir, json)):
        raise typer.Exit(1)


@app.command("explain", epilog="Example: rhino explain plan.mlir --op 'h.0.attn/dot_general'")
def explain_command(
    plan: Annotated[str, typer.Argument(help="A plan file, of rhino plan -o.", show_default=False)],
    op: Annotated[
        str | None,
        typer.Option(
            help="Alternatives of ops called so: h.0.attn/dot_general, 'gpt2.py:54/*'.", show_default=False
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="Rows of a table.")] = 12,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Plan again with 1 GB more, and on twice the nodes.")
    ] = False,
    json: Json = None,
) -> None:
    """Say where a plan's time and memory go, and why its layouts are what they are."""
    from rhino.cli.explain import ExplainOptions, explain_plan

    explain_plan(ExplainOptions(plan, op, top, what_if, json))


@app.command("calibrate", epilog="Example: rhino calibrate --nproc 4 -o machine.toml")
def calibrate_command(
    context: typer.Context,
    output: Annotated[str, typer.Option("-o", "--output", help="The file to write.")] = "machine.toml",
    nproc: Nproc = None,
    name: Annotated[str, typer.Option(help="Name of the kind of device.")] = "LOCAL",
    like: Annotated[
        str | None,
        typer.Option(help="Shipped kind whose network between nodes to take: H100.", show_default=False),
    ] = None,
) -> None:
    """Measure this machine (gloo on CPU, NCCL on GPUs) and write a hardware file for --cluster 4xFILE.toml."""
    from rhino.cli.calibrate import CalibrateOptions, calibrate

    calibrate(CalibrateOptions(output, nproc, name, like), context.obj)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script: exit code 0, 1 (it failed) or 2 (the command line means nothing)."""
    sys.exit(guarded(lambda: _invoke(arguments)))


def _invoke(arguments: list[str] | None) -> int | None:
    given = (sys.argv[1:] if arguments is None else list(arguments)) or ["--help"]
    command: Any = typer.main.get_command(app)
    return usage(lambda: command.main(args=list(given), prog_name="rhino", standalone_mode=False, obj=given))


if __name__ == "__main__":
    main()
