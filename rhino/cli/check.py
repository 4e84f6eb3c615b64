"""`rhino check`: the distributed program against one device, and one device against PyTorch.

Two comparisons that make one chain:

1. The local program on the interpreter (all ranks in lockstep) against the single-device step: every result.
2. For Python programs, the single-device step against PyTorch's own forward pass, gradients and optimizer.

In float64 both sides of each are computed in f64 throughout, casts inside the program included, so that only
the order of additions may differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from rhino.check.by_pass import Passed
from rhino.check.values import TOLERANCE, greatest, relative_error
from rhino.cli.batches import random_arrays
from rhino.cli.by_pass import FOLDER, run_by_pass, write_wrong
from rhino.cli.planning import Request, local_program, make_plan
from rhino.cli.progress import phase
from rhino.cli.run import write_json
from rhino.cli.source import SEED, Source, convert, forward_of, load, step_of
from rhino.dialects import signature
from rhino.dialects.dist import CollectiveOp
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.signature import Slot
from rhino.dialects.verify import stage_of
from rhino.ir import types
from rhino.ir.errors import UnsupportedError, UsageError
from rhino.ir.evaluate import run_module
from rhino.ir.optimizers import SGD

if TYPE_CHECKING:
    from rhino.frontend.program import Program
    from rhino.planner import Plan

#: Ops whose results on integers are integers, exactly: what `--mode integer` may meet.
EXACT = frozenset(
    {
        "negate", "abs", "sign", "add", "sub", "mul", "maximum", "minimum", "compare", "select", "convert",
        "and", "or", "xor", "not", "shift_left", "shift_right_logical", "shift_right_arithmetic",
        "constant", "iota", "broadcast_in_dim", "reshape", "transpose", "slice", "pad", "concatenate",
        "reverse", "dynamic_slice", "dynamic_update_slice", "reduce", "argmax", "argmin", "cumulative",
        "dot_general", "convolution", "reduce_window", "select_and_scatter", "gather", "scatter", "sort",
        "top_k", "floor", "ceil", "round_even", "is_finite", "stop_gradient",
    }
)  # fmt: skip


@dataclass(frozen=True)
class CheckOptions:
    """What `rhino check` was asked for; see its help."""

    program: str
    request: Request
    mode: str = "float64"
    json: str | None = None
    by_pass: bool = False
    out_dir: str = FOLDER
    shrunk: bool = False

    def check(self) -> None:
        """Raise UsageError for a mode that there is not, or that does not go with --by-pass."""
        if self.mode not in TOLERANCE:
            raise UsageError(f"no mode '{self.mode}'", remedy=f"use one of {', '.join(TOLERANCE)}")
        if self.by_pass and self.mode == "float32":
            # What rounding does to a value in the middle of a program says nothing.
            raise UsageError("--by-pass does not go with mode float32", remedy="use float64 or integer")
        if self.shrunk and (self.by_pass or self.mode != "float64"):
            raise UsageError(
                "--shrunk compares in float64 and names the pass by itself",
                remedy="leave out --mode and --by-pass",
            )


@dataclass(frozen=True)
class Difference:
    """A value that two sides computed differently.

    Attributes:
        what: which comparison: ``distributed`` (against one device) or ``pytorch`` (one device against it).
        name: the value.
        error: the greatest difference, relative to the value's greatest magnitude (see `relative_error`).
    """

    what: str
    name: str
    error: float

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "name": self.name, "error": self.error}


@dataclass
class Report:
    """The outcome of a check; `to_json` is what --json writes.

    `collectives` counts those of the distributed program: without any, all devices do the same work. `notes` say
    what was not compared, and why. Pass by pass, `passes` are those that were right, and `wrong_pass` says what
    `rhino.cli.by_pass.write_wrong` found of the first that was not.
    """

    mode: str
    ranks: int
    mesh: str
    collectives: int = 0
    compared: dict[str, int] = field(default_factory=dict)
    max_rel_error: float = 0.0
    failures: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    passes: list[Passed] = field(default_factory=list)
    wrong_pass: dict[str, Any] | None = None

    @property
    def equal(self) -> bool:
        return not self.failures

    def add(self, what: str, errors: Iterator[tuple[str, float]]) -> None:
        """Note the errors of one comparison, by name."""
        for name, error in errors:
            self.compared[what] = self.compared.get(what, 0) + 1
            self.max_rel_error = max(self.max_rel_error, error)
            if not error <= TOLERANCE[self.mode]:  # not >, so that NaN is a failure
                self.failures.append(Difference(what, name, error))

    def to_json(self) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if self.passes or self.wrong_pass is not None:
            more = {"passes": [asdict(each) for each in self.passes], "wrong_pass": self.wrong_pass}
        return {
            "equal": self.equal,
            "mode": self.mode,
            "max_rel_error": self.max_rel_error,
            "ranks": self.ranks,
            "mesh": self.mesh,
            "collectives": self.collectives,
            "compared": self.compared,
            "failures": [f.to_json() for f in self.failures],
            "notes": self.notes,
            **more,
        }


def check_program(options: CheckOptions) -> bool:
    """Check as asked, print and write the outcome. Returns whether everything was equal."""
    options.check()
    options.request.resolve()
    with phase("loading the program"):
        source = load(options.program)
    if options.shrunk:
        return _check_shrunk(source, options)
    if options.by_pass:
        report = check_source_by_pass(source, options.request, options.mode, options.out_dir)
    else:
        report = check_source(source, options.request, options.mode)
    if options.json is not None:
        write_json(options.json, report.to_json())
    _print(report)
    return report.equal


def _check_shrunk(source: Source, options: CheckOptions) -> bool:
    """The check that `rhino plan` makes of a plan; see `rhino.check.planned`."""
    from rhino.check.planned import check_planned

    with phase("capturing and differentiating"):
        step = step_of(forward_of(source), source.optimizer)
    with phase("planning") as bar:
        plan = make_plan(step, options.request, bar.tell)
    with phase("checking the plan") as bar:
        found = check_planned(step, plan.module, plan.padding, plan.micro_batches, tell=bar.tell)
    if options.json is not None:
        write_json(options.json, {"equal": found.verdict == "equal", **found.to_json()})
    print(f"{'equal: ' if found.verdict == 'equal' else ''}{found.text()}; mesh {plan.mesh}")
    for note in found.notes:
        print(f"note: {note}")
    if found.wrong is not None:
        with phase("minimising"):
            files = write_wrong(found.wrong, TOLERANCE["float64"], options.out_dir)["files"]
        print(f"  written: {', '.join(files)}")
    return found.verdict == "equal"


def check_source(source: Source, request: Request, mode: str = "float64") -> Report:
    """Both comparisons for a loaded program. Raises what capturing and planning raise."""
    # Subtracting the gradient itself keeps integers integers.
    exact = mode == "integer" and request.file is None
    with phase("capturing and differentiating"):
        step = step_of(forward_of(source), SGD(lr=1.0) if exact else source.optimizer)
    with phase("planning") as bar:
        plan = make_plan(step, request, bar.tell)
    report = Report(mode, plan.mesh.size, str(plan.mesh))
    compare_distributed(source, step, plan, report)
    if source.program is not None and mode != "integer":
        with phase("comparing with PyTorch"):
            compare_pytorch(source, report)
    return report


def check_source_by_pass(
    source: Source, request: Request, mode: str = "float64", folder: str = FOLDER
) -> Report:
    """The same pass by pass: which pass is the first that changes what the program computes, and where.

    What is wrong is written to `folder`, minimised.
    """
    from rhino.passes.widen_floats import widen_floats

    exact = mode == "integer" and request.file is None
    optimizer = SGD(lr=1.0) if exact else source.optimizer
    with phase("capturing and differentiating"):
        forward = forward_of(source)
        step = step_of(forward, optimizer)
    if mode == "integer":
        _require_exact(step)
    wide = step.clone()
    widen_floats(wide)
    arrays = _arguments(source, wide, integers=mode == "integer")
    with phase("checking pass by pass") as bar:
        outcome = run_by_pass(forward, step, arrays, optimizer, request, mode, bar.tell)
    report = Report(mode, 1, "none")
    if stage_of(outcome.module) != "global":
        mesh = mesh_of(outcome.module)
        report.ranks, report.mesh = mesh.size, str(mesh)
        report.collectives = _collectives(outcome.module)
    report.passes = outcome.passed
    report.compared["by pass"] = sum(each.results + each.values for each in outcome.passed)
    wrong = outcome.wrong
    if wrong is not None:
        finding = wrong.finding
        report.failures.append(Difference("by pass", finding.value, finding.error))
        with phase("minimising"):
            report.wrong_pass = write_wrong(wrong, TOLERANCE[mode], folder)
    if source.program is not None and mode != "integer":
        with phase("comparing with PyTorch"):
            compare_pytorch(source, report)
    return report


def _collectives(local: ModuleOp) -> int:
    body = signature.main_of(local).body.block.ops
    return sum(isinstance(op, CollectiveOp) and op.name != "dist.shard" for op in body)


def compare_distributed(source: Source, step: ModuleOp, plan: Plan, report: Report) -> None:
    """The partitioned program of a plan for `step`, a training step of `source`, against the step itself."""
    local = local_program(plan.module)
    report.collectives = _collectives(local)
    if report.mode == "integer":
        _require_exact(step)
    if report.mode != "float32":
        from rhino.passes.widen_floats import widen_floats

        step, local = step.clone(), local.clone()
        widen_floats(step)
        widen_floats(local)
    arrays = _arguments(source, step, integers=report.mode == "integer")
    with phase("running on one device"):
        want = run_module(step, arrays)
    with phase(f"running on {report.ranks} devices"):
        got = run_module(local, arrays)
    slots = signature.results(signature.main_of(step))
    report.add("distributed", _errors(slots, got, want))


def _errors(
    slots: Sequence[Slot], got: Sequence[np.ndarray], want: Sequence[np.ndarray]
) -> Iterator[tuple[str, float]]:
    scales = greatest([(s.role, w) for s, w in zip(slots, want, strict=True)])
    for i, (slot, g, w) in enumerate(zip(slots, got, want, strict=True)):
        yield slot.name or f"result {i}", relative_error(g, w, scales[slot.role])


def _require_exact(module: ModuleOp) -> None:
    """Raise UsageError if an op of `@main` is not exact on integers."""
    from rhino.ir.text import show_location

    for op in signature.main_of(module).body.block.ops:
        name = op.name.removeprefix("hlo.")
        if op.name.startswith("hlo.") and name not in EXACT:
            raise UsageError(
                f"mode integer needs a program of exact ops, but it has {op.name}",
                where=show_location(op.location),
                remedy="use --mode float64",
            )


def _arguments(source: Source, step: ModuleOp, *, integers: bool) -> list[np.ndarray]:
    """A global array for every argument of the step: the program's own values, or drawn ones."""
    known = random_arrays(step, ("parameter", "buffer", "input", "state"), SEED)
    if source.program is not None:
        known.update(_program_arrays(source.program, step))
    func = signature.main_of(step)
    out = []
    for slot, arg in zip(signature.arguments(func), func.args, strict=True):
        array = known[slot.name].astype(types.numpy_dtype(types.element_of(arg)))
        if integers and types.is_float(types.element_of(arg)):
            array = np.round(array * 30)
        out.append(array)
    return out


def _program_arrays(program: Program, step: ModuleOp) -> dict[str, np.ndarray]:
    from rhino.frontend.program import named_inputs
    from rhino.runtime.state import values_of
    from rhino.runtime.tensors import to_numpy

    provide = values_of(program.model, seed=SEED)
    out = {name: to_numpy(tensor) for name, tensor in named_inputs(program.batch_at(0))}
    for slot in signature.arguments(signature.main_of(step)):
        if slot.role in ("parameter", "buffer"):
            out[slot.name] = to_numpy(provide(slot.name))
    return out


def compare_pytorch(source: Source, report: Report) -> None:
    """The single-device step against PyTorch: loss, gradients, updated parameters and buffers.

    PyTorch is given the random numbers that the program draws. Where the two draw different tensors, a note in the
    report says so, and nothing is compared.
    """
    from rhino.check.torch_random import draws_of, feed
    from rhino.check.wide import capture_wide, wide
    from rhino.frontend.capture import capture
    from rhino.passes.step import training_step
    from rhino.passes.widen_floats import widen_floats
    from rhino.runtime.reference import first_step
    from rhino.runtime.state import materialise

    program = source.python("the comparison with PyTorch")
    materialise(program.model, seed=SEED)
    widen = report.mode == "float64"
    if widen:
        program = convert(program, "float64")
    forward = capture_wide(program) if widen else capture(program)
    step = training_step(forward, source.optimizer, keep_gradients=True)
    if widen:
        widen_floats(step)
    func = signature.main_of(step)
    # States that are not zero: from zero, Adam divides the noise of a vanishing gradient by its own size.
    states = random_arrays(step, ("state",), SEED)
    known = dict(states)
    known.update(_program_arrays(program, step))
    arrays = [
        known[slot.name].astype(types.numpy_dtype(types.element_of(arg)))
        for slot, arg in zip(signature.arguments(func), func.args, strict=True)
    ]
    got = run_module(step, arrays)
    draws, batch = draws_of(forward, known, widen=widen), program.batch_at(0)
    try:
        with feed(draws):
            want = first_step(
                program.model, program.loss, batch, source.optimizer, states, mode=wide() if widen else None
            )
    except UnsupportedError as error:
        report.notes.append(f"not compared with PyTorch: {error.message}")
        return
    report.add("pytorch", _against(signature.results(func), got, want))


def _against(
    slots: Sequence[Slot], got: Sequence[np.ndarray], want: Mapping[tuple[str, str], np.ndarray]
) -> Iterator[tuple[str, float]]:
    scales = greatest([(role, value) for (role, _), value in want.items()])
    for slot, array in zip(slots, got, strict=True):
        key = (slot.role, slot.of if slot.role == "gradient" and slot.of else slot.name)
        if key in want:
            yield slot.name, relative_error(array, want[key], scales[slot.role])
        elif slot.role == "gradient":
            yield f"{slot.name} (PyTorch has none)", math.inf
    ours = {slot.of for slot in slots if slot.role == "gradient"}
    for role, name in want:
        if role == "gradient" and name not in ours:
            yield f"{name}.grad (missing)", math.inf


def _print(report: Report) -> None:
    counts = ", ".join(f"{count} values {what}" for what, count in report.compared.items())
    verdict = "equal" if report.equal else "DIFFERENT"
    print(f"{verdict}: {counts}; mesh {report.mesh}, collectives {report.collectives}, mode {report.mode}")
    what = "greatest relative error" + (" against PyTorch" if report.passes else "")
    print(f"{what} {report.max_rel_error:.3g} (limit {TOLERANCE[report.mode]:g})")
    for note in report.notes:
        print(f"note: {note}")
    if report.ranks > 1 and not report.collectives:
        print(
            "note: by this plan all devices do the same work; for others use --plan, --cluster, --memory-limit"
        )
    for each in report.passes:
        values = f", {each.values} values" if each.values else ""
        print(f"  {each.name}: {each.results} results{values} equal ({each.seconds:.2f} s)")
    if (wrong := report.wrong_pass) is not None:
        small = "the whole program" if wrong["whole"] else f"{wrong['ops']} op{'s' * (wrong['ops'] != 1)}"
        print(f"  {wrong['pass']}: the first pass after which something differs")
        print(f"  {wrong['text']}")
        print(f"  written, minimised to {small}: {', '.join(wrong['files'])}")
    for failure in sorted(report.failures, key=lambda f: -f.error)[:20]:
        if failure.what != "by pass":
            print(f"  {failure.what}: {failure.name} is off by {failure.error:.3g}")
