"""`rhino run`: train on several local processes, or as plain PyTorch with --reference."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp

from rhino.cli.batches import random_arrays, tokens_of
from rhino.cli.planning import Request, local_program, make_plan
from rhino.cli.progress import phase, terminal
from rhino.cli.source import SEED, Source, forward_of, load, step_of
from rhino.dialects.text import parse_module, print_module
from rhino.ir.errors import RhinoWarning, UsageError
from rhino.runtime.launch import STARTED, is_rank, launch, watch_parent

if TYPE_CHECKING:
    import torch

    from rhino.frontend.program import Program
    from rhino.runtime.controller import Controller
    from rhino.runtime.world import World


@dataclass(frozen=True)
class RunOptions:
    """What `rhino run` was asked for; see its help."""

    program: str
    request: Request
    steps: int = 20
    reference: bool = False
    kernels: str = "torch"
    dtype: str | None = None
    json: str | None = None
    timeout_s: float = 300.0
    started: float = field(default_factory=time.time)

    def check(self) -> None:
        """Raise UsageError for values that cannot mean anything."""
        if self.steps < 1:
            raise UsageError(f"--steps is {self.steps}", remedy="give 1 or more")
        if self.kernels not in ("torch", "triton"):
            raise UsageError(f"no kernels '{self.kernels}'", remedy="use torch or triton")
        if self.timeout_s <= 0:
            raise UsageError(f"--timeout is {self.timeout_s}", remedy="give a number of seconds above 0")
        if self.kernels == "triton" and importlib.util.find_spec("triton") is None:
            raise UsageError(
                "--kernels triton needs triton", remedy="install it: pip install 'rhino[triton]'"
            )
        if not Path(self.program).is_file():
            raise UsageError(f"no program file '{self.program}'")

    def unused_by_reference(self) -> list[str]:
        """The options given that mean nothing to plain PyTorch in one process."""
        given = {
            "--cluster": self.request.cluster is not None,
            "--nproc": self.request.nproc is not None,
            "--mesh": self.request.mesh is not None,
            "--plan": self.request.plan != "auto",
            "--memory-limit": self.request.memory_limit is not None,
            "--no-pad": not self.request.pad,
            "--micro-batches": self.request.micro_batches != "auto",
            "--accumulate-in": self.request.accumulate_in != "f32",
            "--kernels": self.kernels != "torch",
        }
        return [name for name, is_given in given.items() if is_given]


@dataclass
class Record:
    """What a run measured; `to_json` is what --json writes."""

    ranks: int
    plan: str
    mesh: str
    losses: list[float] = field(default_factory=list)
    seconds_to_first_step: float = 0.0
    _tokens: int = 0
    _started: float = 0.0
    _first_done: float = 0.0
    _last_done: float = 0.0

    def add(self, loss: float | None, tokens: int, now: float) -> None:
        """Note the end of a step."""
        if loss is not None:
            self.losses.append(loss)
        if not self._first_done:
            self._first_done = now
            self.seconds_to_first_step = now - self._started
        else:
            # The first step pays for allocations and connections; it is not part of the rate.
            self._tokens += tokens
        self._last_done = now

    @property
    def tokens_per_s(self) -> float:
        seconds = self._last_done - self._first_done
        return self._tokens / seconds if seconds > 0 else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "ranks": self.ranks,
            "plan": self.plan,
            "mesh": self.mesh,
            "losses": self.losses,
            "tokens_per_s": self.tokens_per_s,
            "seconds_to_first_step": self.seconds_to_first_step,
        }


def run(options: RunOptions, arguments: list[str]) -> int:
    """Run as asked. `arguments` is the command line, which every rank is started with again."""
    options.check()
    if options.reference:
        _reference(options)
    elif is_rank():
        watch_parent()
        _rank(options)
    else:
        cluster, _ = options.request.resolve()
        if cluster.size == 1:
            _rank(options)
        else:
            command = [sys.executable, "-m", "rhino.cli.main", *arguments]
            launch(command, cluster.size, started=options.started)
    return 0


def _rank(options: RunOptions) -> None:
    """One rank: plan (rank 0) or wait for the plan, take the shards of the state, run the steps."""
    from rhino.runtime.world import join_world

    with join_world(timedelta(seconds=options.timeout_s)) as world:
        first = world.rank == 0
        _require_kernels(options, world)
        request = _for_world(options.request, world)
        with phase("loading the program", quiet=not first):
            source = load(options.program, options.dtype)
        shared = world.share(_prepare(source, request, world.size) if first else None)
        prepared = json.loads(shared)
        with phase("compiling", quiet=not first):
            controller = _controller(prepared["module"], options, world)
            controller.load(_initial_values(source, prepared["module"]))
        record = Record(world.size, prepared["plan"], prepared["mesh"], _started=_started(options))
        _loop(options, record, _batches(source, controller), controller, first)
        world.barrier()
        if first:
            _write(options, record)


def _require_kernels(options: RunOptions, world: World) -> None:
    """Raise UsageError when generated kernels were asked for and cannot run here."""
    if options.kernels == "triton" and world.device.type != "cuda":
        from rhino.kernels.launch import interpreted

        if not interpreted():
            raise UsageError(
                "--kernels triton needs a CUDA GPU for every rank",
                remedy="set TRITON_INTERPRET=1 to run the kernels in Triton's interpreter (slow), or use torch",
            )


def _for_world(request: Request, world: World) -> Request:
    """The request for as many devices as there are ranks. Raises UsageError when --nproc says otherwise."""
    if request.nproc not in (None, world.size):
        raise UsageError(
            f"--nproc is {request.nproc}, but {world.size} ranks were started",
            remedy="leave out --nproc under torchrun",
        )
    return replace(request, cluster=None, nproc=world.size)


def _prepare(source: Source, request: Request, ranks: int) -> str:
    """Capture, differentiate, plan, lower: the local program as text, with what is said about it."""
    with phase("capturing"):
        forward = forward_of(source)
    with phase("differentiating"):
        step = step_of(forward, source.optimizer)
    if ranks == 1:
        request.resolve()
        return json.dumps({"module": print_module(step, debug=True), "plan": "single", "mesh": ""})
    with phase("planning") as bar:
        plan = make_plan(step, request, bar.tell)
    with phase("lowering"):
        module = local_program(plan.module)
    return json.dumps(
        {"module": print_module(module, debug=True), "plan": request.plan, "mesh": str(plan.mesh)}
    )


def _controller(text: str, options: RunOptions, world: World) -> Controller:
    from rhino.runtime.controller import Controller

    module = parse_module(text, "<plan of rank 0>", verify=False)
    if options.kernels == "triton":
        from rhino.passes.fuse import fuse

        fuse(module)
    return Controller(module, world)


def _initial_values(source: Source, text: str) -> Callable[[str], torch.Tensor]:
    """Values of parameters and buffers by name: the model's, or for an MLIR file values drawn by name."""
    from rhino.runtime.state import values_of
    from rhino.runtime.tensors import to_torch

    if source.program is not None:
        return values_of(source.program.model, seed=SEED, consume=True)
    module = source.module
    assert module is not None
    arrays = random_arrays(module, ("parameter", "buffer"), SEED)
    return lambda name: to_torch(arrays[name])


def _batches(
    source: Source, controller: Controller
) -> Callable[[int], tuple[Mapping[str, torch.Tensor], int]]:
    """For every step the batch's tensors by name, and how many tokens they hold."""
    from rhino.runtime.tensors import to_torch

    if source.program is not None:
        from rhino.frontend.program import named_inputs

        program, path = source.program, source.path

        def batch(step: int) -> tuple[Mapping[str, torch.Tensor], int]:
            given = batch_at(program, step, path)
            return dict(named_inputs(given)), tokens_of(given)

        return batch
    module: ModuleOp | None = source.module
    assert module is not None
    fixed = {name: to_torch(a) for name, a in random_arrays(module, ("input",), SEED).items()}
    return lambda step: (fixed, tokens_of(fixed))


def batch_at(program: Program, step: int, path: str) -> Any:
    """The batch of a step. Raises ProgramError naming the rank and the user's line when `batches` fails."""
    from rhino.frontend.program import USER_CODE_ERRORS, user_error

    try:
        return program.batch_at(step)
    except USER_CODE_ERRORS as error:
        rank = f"rank {os.environ['RANK']}: " if is_rank() else ""
        raise user_error(error, f"{rank}batches({step}) failed", path) from error


def _loop(
    options: RunOptions,
    record: Record,
    batches: Callable[[int], tuple[Mapping[str, torch.Tensor], int]],
    controller: Controller,
    first: bool,
) -> None:
    def step(index: int) -> tuple[float | None, int]:
        batch, tokens = batches(index)
        loss = controller.step(batch).loss
        return (None if loss is None else float(loss)), tokens

    _steps(options.steps, record, step, quiet=not first)


def _steps(
    steps: int, record: Record, step: Callable[[int], tuple[float | None, int]], *, quiet: bool = False
) -> None:
    """Run the steps, one line each."""
    with phase("training", steps, quiet=quiet or terminal() is None) as bar:
        for index in range(steps):
            loss, tokens = step(index)
            record.add(loss, tokens, time.time())
            bar.advance()
            if not quiet:
                shown = "done" if loss is None else f"loss {loss:.6f}"
                rate = f"  {record.tokens_per_s:,.0f} tokens/s" if index else ""
                print(f"step {index + 1}/{steps}  {shown}{rate}", flush=True)
    if not quiet:
        print(f"first step after {record.seconds_to_first_step:.1f} s", flush=True)


def _reference(options: RunOptions) -> None:
    """Plain PyTorch on one device."""
    if unused := options.unused_by_reference():
        verb = "says" if len(unused) == 1 else "say"
        warnings.warn(
            f"--reference is plain PyTorch in one process: {', '.join(unused)} {verb} nothing to it",
            RhinoWarning,
            stacklevel=1,
        )
    started = _started(options)
    with phase("loading the program"):
        source = load(options.program, options.dtype)
        program = source.python("--reference")
    from rhino.runtime.reference import Reference

    reference = Reference(program.model, program.loss, source.optimizer, seed=SEED)
    record = Record(1, "reference", "", _started=started)

    def step(index: int) -> tuple[float | None, int]:
        batch = batch_at(program, index, source.path)
        return float(reference.step(batch)), tokens_of(batch)

    _steps(options.steps, record, step)
    _write(options, record)


def _started(options: RunOptions) -> float:
    """When the user's command began, in seconds since the epoch."""
    given = os.environ.get(STARTED)
    return float(given) if given else options.started


def _write(options: RunOptions, record: Record) -> None:
    if options.json is not None:
        write_json(options.json, record.to_json())


def write_json(path: str, value: Mapping[str, Any]) -> None:
    """Write a JSON file. Raises UsageError when it cannot be written."""
    try:
        Path(path).write_text(json.dumps(value, indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror}") from error
