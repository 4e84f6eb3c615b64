"""Is a plan, partitioned, the program that was planned? Decided in seconds, whatever the size.

1. The placed module computes what the program does, op by op (`rhino.check.same`); nothing is run for that.
2. Of layers that are alike in everything, layouts included, three stay (`rhino.check.excerpt`).
3. What is left is made small, layouts and mesh included (`rhino.check.shrink`).
4. The passes that `rhino run` uses partition it, all ranks run in lockstep, and every value that the passes keep is
   compared with that of one device, in f64.

Where a step is split into micro-batches, 1. is about the program that the pass `microbatch` makes. That the pass keeps
the meaning is checked beside it, on a small form of the program that was planned (`rhino.check.micro`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from rhino.check.by_pass import Outcome, Pass, check_passes
from rhino.check.excerpt import excerpt
from rhino.check.micro import check_micro_batches, same_split, small_program
from rhino.check.same import first_other
from rhino.check.shrink import elements, shrink
from rhino.check.values import TOLERANCE, record
from rhino.dialects import signature
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.hlo.constant import IotaOp
from rhino.dialects.hlo.index import GatherOp, ScatterOp
from rhino.dialects.verify import verify
from rhino.ir import types
from rhino.ir.collector import collector_paused
from rhino.ir.errors import ProgramError, RhinoError
from rhino.passes import PASSES
from rhino.passes.widen_floats import widen_floats

if TYPE_CHECKING:
    from rhino.check.by_pass import WrongPass

#: Elements (and multiplications), times ranks, that are run without asking: a few seconds of numpy.
MOST = 400_000_000

#: The passes from a placed program to what every rank runs, as `rhino run` uses them.
LOCAL = ("spmd", "fuse-collectives", "fuse")

#: The least scale of a value. Arguments are about one, so what is less than 1e-13 is rounding of something else.
FLOOR = 1.0

#: What PyTorch's losses take for a label that does not count.
IGNORED = -100

#: How often numbers are drawn before a difference counts.
DRAWS = 2

#: What an op that has no small form may raise when it is given one.
CRASHES = (RhinoError, ValueError, TypeError, LookupError, ArithmeticError, AssertionError)

#: The size of a group of devices that was larger; where ranks send to neighbours, so that these are two different ones.
GROUP, RING = 2, 3


@dataclass(frozen=True)
class PlanCheck:
    """What a check found.

    Attributes:
        verdict: ``equal``, ``different`` or ``unchecked``.
        shrunk: whether shapes and mesh were made small.
        mesh, ranks: on which it was run.
        kept, ops: ops that were run, and that the plan has.
        layers, of: of the longest run of equal layers so many were run, and so many there are.
        values: how many values were compared, on all ranks.
        micro_batches: into which the step is split, and `micro_results`, how many results of theirs were compared with
            those of the batch as one; 0 where they were not.
        seconds: how long it took; no part of the plan.
        reason: why nothing was checked, or what differs.
        notes: why the plan was not shrunk, or less than wanted.
        wrong: the first pass after which a value differs, if it is one.
    """

    verdict: str
    shrunk: bool = False
    mesh: str = ""
    ranks: int = 0
    kept: int = 0
    ops: int = 0
    layers: int = 1
    of: int = 1
    values: int = 0
    micro_batches: int = 1
    micro_results: int = 0
    seconds: float = 0.0
    reason: str = ""
    notes: tuple[str, ...] = ()
    wrong: WrongPass | None = field(default=None, compare=False)

    def text(self) -> str:
        """One line that says what was checked, without how long it took."""
        if self.verdict == "unchecked":
            return f"not checked: {self.reason}"
        if self.verdict == "different":
            return f"different: {self.reason}"
        where = (
            f"shrunk to {self.ranks} ranks ({self.mesh})"
            if self.shrunk
            else f"at full size on {self.ranks} ranks"
        )
        part = (
            f"{self.layers} of {self.of} equal layers ({self.kept} of {self.ops} ops), "
            if self.kept < self.ops
            else ""
        )
        micro = (
            f"; {self.micro_batches} micro-batches against the batch as one: {self.micro_results} results equal"
            if self.micro_results
            else ""
        )
        return f"{where}, {part}{self.values} values equal{micro}"

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "shrunk": self.shrunk,
            "mesh": self.mesh,
            "ranks": self.ranks,
            "ops_checked": self.kept,
            "ops": self.ops,
            "layers_checked": self.layers,
            "layers": self.of,
            "values": self.values,
            "micro_batches": self.micro_batches,
            "micro_batch_results": self.micro_results,
            "seconds": self.seconds,
            "reason": self.reason,
            "notes": list(self.notes),
        }


@collector_paused()
def check_planned(
    program: ModuleOp,
    placed: ModuleOp,
    padding: str = "",
    micro_batches: int = 1,
    *,
    tell: Callable[[str], None] = lambda what: None,
) -> PlanCheck:
    """Check a placed module against the program that it was made from; both are left as they were.

    Args:
        padding: how the program's extents were grown, as the option `extents` of the pass `pad`.
        micro_batches: into how many the step was split, by the pass `microbatch`.
        tell: told what is being done.
    """
    began = time.perf_counter()

    def done(found: PlanCheck) -> PlanCheck:
        if micro_batches > 1 and found.verdict == "equal":
            tell("comparing the micro-batches with the batch")
            found = _split(program, micro_batches, found)
        return replace(found, micro_batches=micro_batches, seconds=time.perf_counter() - began)

    tell("comparing with the program")
    other = first_other(program, placed, padding, micro_batches)
    if other is not None:
        return done(PlanCheck("different", reason=f"{other} is not computed by the ops of the program"))
    tell("choosing layers")
    part = excerpt(placed)
    base = PlanCheck("equal", kept=part.kept, ops=part.ops, layers=part.layers, of=part.of)
    try:
        tell("shrinking")
        found, notes = _run_small(part.module, base, tell)
    except CRASHES as error:
        found, notes = None, (f"not shrunk: {_say(error)}",)
    if found is not None and (found.verdict == "equal" or not _affordable(part.module)):
        return done(found)
    if not _affordable(part.module):
        return done(replace(base, verdict="unchecked", reason="; ".join(notes)))
    if found is not None:
        notes = (f"the shrunk program is {found.text()}",)
    tell("running at full size")
    whole = _run(part.module, base)
    return done(replace(whole, notes=(*notes, *whole.notes)))


def _split(program: ModuleOp, count: int, found: PlanCheck) -> PlanCheck:
    """What was found so far, with what running the micro-batches one after another shows."""
    notes = found.notes
    try:
        small = small_program(program, count)
        if not same_split(program, small, count):
            raise ProgramError("the small form of the program is split differently")
    except CRASHES as error:
        notes = (*notes, f"micro-batches are compared at full size: {_say(error)}")
        small = program
    small = _named(small)
    if elements(small) > MOST // 2:
        return replace(
            found, verdict="unchecked", reason=f"{count} micro-batches are too large to run", notes=notes
        )
    outcome = check_micro_batches(small, count, draw(small))
    if outcome.wrong is None:
        return replace(found, micro_results=outcome.passed[0].results, notes=notes)
    reason = f"{count} micro-batches: {outcome.wrong.finding.text()}"
    return replace(found, verdict="different", reason=reason, wrong=outcome.wrong, notes=notes)


def _say(error: Exception) -> str:
    if isinstance(error, RhinoError):
        return f"{error.where}: {error.message}" if error.where else error.message
    return f"{type(error).__name__}: {error}"


def _run_small(
    module: ModuleOp, base: PlanCheck, tell: Callable[[str], None]
) -> tuple[PlanCheck | None, tuple[str, ...]]:
    """The check of the small form; None, and why, where it is not small enough. Raises RhinoError where there is
    none.
    """
    small = shrink(module, GROUP)
    verify(small.module)
    if not _affordable(small.module):
        return None, small.kept or ("its extents are tied to each other",)
    tell("running all ranks")
    first = replace(_run(small.module, base), shrunk=True)
    if first.verdict != "equal" or not _permutes(small.module):
        return first, ()
    ring = shrink(module, RING)
    if ring.mesh == small.mesh or not _affordable(ring.module):
        return first, ()
    verify(ring.module)
    return replace(_run(ring.module, base), shrunk=True), ()


def _affordable(module: ModuleOp) -> bool:
    return elements(module) * (1 + mesh_of(module).size) <= MOST


def _permutes(placed: ModuleOp) -> bool:
    local = placed.clone()
    _partition(local, LOCAL[:1])
    return any(op.name == "dist.permute" for op in signature.main_of(local).body.block.ops)


def _partition(module: ModuleOp, passes: tuple[str, ...]) -> ModuleOp:
    for name in passes:
        PASSES[name]()().apply(Context(), module)
    return module


def _run(module: ModuleOp, base: PlanCheck) -> PlanCheck:
    """Partition and run a placed module. A difference is traced to the pass that makes it.

    A difference counts if other numbers show one, too: a value that is nothing but rounding may come out otherwise.
    """
    module = _named(module)
    mesh = mesh_of(module)
    both = Pass("partition", lambda m: _partition(m, LOCAL), local=True)
    base = replace(base, mesh=str(mesh), ranks=mesh.size)
    notes: tuple[str, ...] = ()
    for seed in range(DRAWS):
        arrays = draw(module, seed)
        outcome = _compare(module, [both], arrays)
        wrong = outcome.wrong
        if wrong is None:
            return replace(base, values=outcome.passed[0].values, notes=notes)
        notes = (*notes, f"with numbers of draw {seed}, {wrong.finding.text()}")
    assert wrong is not None
    wrong = _compare(module, [_pass(name) for name in LOCAL], arrays).wrong or wrong
    reason = f"after {wrong.made_by.name}: {wrong.finding.text()}"
    return replace(base, verdict="different", reason=reason, wrong=wrong)


def _pass(name: str) -> Pass:
    return Pass(name, lambda m: _partition(m, (name,)), local=True)


def _compare(module: ModuleOp, passes: Sequence[Pass], arrays: Mapping[str, np.ndarray]) -> Outcome:
    return check_passes(module, passes, arrays, limit=TOLERANCE["float64"], floor=FLOOR)


def _named(module: ModuleOp) -> ModuleOp:
    """A copy in which every argument has a name of its own."""
    module = module.clone()
    func = signature.main_of(module)
    seen: set[str] = set()
    slots = []
    for i, slot in enumerate(signature.arguments(func)):
        name = slot.name if slot.name and slot.name not in seen else f"argument.{i}"
        seen.add(name)
        slots.append(replace(slot, name=name))
    signature.set_arguments(func, slots)
    return module


def draw(module: ModuleOp, seed: int = 0) -> dict[str, np.ndarray]:
    """Arguments for a placed module, by name, each as it is computed with in f64.

    Floats are normal (second moments squares of such); all of them positive if the program makes a NaN of others.
    Integers are indices of what the program looks up; some of the inputs' are those of labels that do not count.
    """
    wide = module.clone()
    widen_floats(wide)
    func = signature.main_of(wide)
    most = _indices(module)
    for positive in (False, True):
        rng = np.random.default_rng(seed)
        arrays = {
            slot.name: _value(rng, slot, arg, most, positive)
            for slot, arg in zip(signature.arguments(func), func.args, strict=True)
        }
        given = [
            a.astype(types.numpy_dtype(types.element_of(v)))
            for a, v in zip(arrays.values(), func.args, strict=True)
        ]
        if not any(np.isnan(v).any() for v in record(func, given).values() if v.dtype.kind in "fc"):
            break
    return arrays


def _value(
    rng: np.random.Generator, slot: signature.Slot, arg: SSAValue, most: int, positive: bool
) -> np.ndarray:
    shape, element = types.shape_of(arg), types.element_of(arg)
    if slot.slot in ("step", "seed"):
        return np.full(shape, 3)
    if types.is_complex(element):
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)
    if types.is_float(element):
        # Small weights, so that no softmax is saturated and its gradient nothing but rounding.
        value = rng.normal(scale=0.3 if slot.role == "parameter" else 1.0, size=shape)
        return np.abs(value) + 0.1 if positive else value**2 if slot.slot == "v" else value
    if element == types.I1:
        return rng.integers(0, 2, shape)
    indices = rng.integers(0, most, shape)
    if (
        slot.role == "input"
        and types.is_integer(element)
        and np.iinfo(types.numpy_dtype(element)).min < IGNORED
    ):
        # Some labels are ignored, so that ranks have different numbers of others.
        return np.where(rng.random(shape) < 0.15, IGNORED, indices)
    return indices


def _indices(module: ModuleOp) -> int:
    """The largest extent that is looked up or counted, at least 2."""
    most = 2
    for op in signature.main_of(module).body.block.ops:
        if isinstance(op, GatherOp | ScatterOp):
            most = max([most, *(op.indexing.operand[d] for d in op.indexing.single())])
        elif isinstance(op, IotaOp):
            most = max([most, *types.shape_of(op.result)])
    return most
