"""What of a training step runs once for every micro-batch, and what once: decided by the ops' sharding rules.

Micro-batches are the devices of a mesh with one axis that take their turns: a value is *whole*, *split* over the
micro-batches, or *partial*, each holding a term of a sum (a product, a maximum). So the rules that say how ops run on
several devices say how they run on several micro-batches.

An op that reads something split runs in every micro-batch. What it makes is split, too, or partial if it combines over
the batch. Partial values are combined when the last micro-batch is done, and what needs the result runs then. An op of
a micro-batch that needs such a result would have to wait for all micro-batches: there is no single loop for that, and
it is refused. The exception is what depends on nothing but data (how many tokens count, say), which is computed
beforehand from the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, OpResult, SSAValue

from rhino.dialects import signature
from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.binary import AddOp
from rhino.dialects.hlo.constant import ConstantOp, IotaOp
from rhino.dialects.hlo.elementwise import ConvertOp
from rhino.ir import types
from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.rule import Placement, Rule, Split
from rhino.ir.text import show_location
from rhino.ir.verify import op_error

#: The axis of the micro-batches.
AXIS = "micro"

#: When an op runs: before the first micro-batch (or when it is first needed), in every one, or after the last.
BEFORE, INSIDE, AFTER = "before", "inside", "after"

REMEDY = (
    "the step must see its batch as one; use fewer micro-batches, or a statistic that does not span the batch"
)


@dataclass(frozen=True)
class Decided:
    """When every op runs, and how every value is held.

    Attributes:
        mesh: the virtual mesh, of one axis.
        when: BEFORE, INSIDE or AFTER for every op.
        placements: of ops INSIDE, the layouts that they read and make.
        layouts: of every value, as it is made.
        combined: partial values that are needed whole after the last micro-batch.
        data: values that depend on inputs and constants alone, which can be had whole at any time.
    """

    mesh: Mesh
    when: Mapping[Operation, str]
    placements: Mapping[Operation, Placement]
    layouts: Mapping[SSAValue, Layout]
    combined: frozenset[SSAValue]
    data: frozenset[SSAValue]


@dataclass
class _State:
    """What is known so far, in program order."""

    mesh: Mesh
    layouts: dict[SSAValue, Layout]
    late: set[SSAValue] = field(default_factory=set)
    """Values that are there after the last micro-batch only."""
    data: set[SSAValue] = field(default_factory=set)
    """Values that depend on inputs and constants alone."""
    cause: dict[SSAValue, Operation] = field(default_factory=dict)
    """The op that combines over the batch, for partial values and what is made of them."""
    combined: set[SSAValue] = field(default_factory=set)
    reasons: list[tuple[HloOp, str]] = field(default_factory=list)
    """Ops on data that see the whole batch, and why."""

    def split(self, value: SSAValue) -> bool:
        return self.layouts[value].shards() > 1

    def partial(self, value: SSAValue) -> bool:
        return bool(self.layouts[value].partial)


def batch_extent(func: FuncOp, batch: str | None = None) -> int:
    """The size of the batch. Raises UsageError when no input has one."""
    (value, dim), _ = _batch(func, batch)
    return types.shape_of(value)[dim]


def _batch(func: FuncOp, batch: str | None) -> tuple[tuple[SSAValue, int], dict[SSAValue, tuple[int, int]]]:
    """The dimension of an input that is the batch, and the inputs that see it (see `_reach`)."""
    slots = signature.arguments(func)
    inputs = [arg for arg, slot in zip(func.args, slots, strict=True) if (slot.role or "input") == "input"]
    seeds = [(arg, dim) for arg in inputs for dim in range(len(types.shape_of(arg)))]
    if batch is not None:
        seeds = [(arg, dim) for arg, dim in seeds if f"{_name(func, arg)}:{dim}" == batch]
    if not seeds:
        what = f"'{batch}' is no dimension of an input" if batch is not None else "no input has a dimension"
        raise UsageError(f"{what}, so there is no batch to split", remedy="name one like batch=tokens:0")
    rules: dict[Operation, Rule] = {
        op: op.rule() for op in func.body.block.ops if isinstance(op, HloOp) and (op.STAYS or not op.regions)
    }
    reached = {seed: _reach(rules, seed, set(inputs)) for seed in seeds}
    seed = max(seeds, key=lambda seed: (len(reached[seed]), -seed[1]))
    return seed, reached[seed]


def _name(func: FuncOp, arg: SSAValue) -> str:
    index = next(i for i, own in enumerate(func.args) if own is arg)
    return signature.arguments(func)[index].name or f"argument {index}"


def batch_digits(func: FuncOp, count: int, batch: str | None = None) -> dict[SSAValue, Layout]:
    """The layouts of the inputs that hold the batch, cut into `count` parts.

    Part i has the rows i, i + count, i + 2 count, ...: a device that holds neighbouring rows of the batch then holds
    its share of every micro-batch.

    The batch is the dimension that the ops' rules tie to dimensions of the most inputs, the leading one of equals; or
    the one that `batch` names, ``tokens:0``.

    Raises UsageError when there is no such dimension, or `count` does not divide it.
    """
    (value, dim), seen = _batch(func, batch)
    extent = types.shape_of(value)[dim]
    if extent % count:
        divisors = ", ".join(str(n) for n in range(2, min(extent, 64) + 1) if extent % n == 0)
        raise UsageError(
            f"{count} micro-batches do not divide the batch of {extent} (dimension {dim} of {_name(func, value)})",
            remedy=f"{extent} is divided by {divisors}" if divisors else "a batch of one cannot be split",
        )
    axis = AxisRef(AXIS, 1, count)
    out: dict[SSAValue, Layout] = {}
    for arg, (at, period) in seen.items():
        dims: list[list[Digit]] = [[] for _ in types.shape_of(arg)]
        dims[at].append(Digit(axis, period // extent * count))
        layout = Layout.make(dims)
        if layout.error(types.shape_of(arg)) is None:
            out[arg] = layout
    return out


def _reach(
    rules: Mapping[Operation, Rule], seed: tuple[SSAValue, int], inputs: set[SSAValue]
) -> dict[SSAValue, tuple[int, int]]:
    """The inputs that see a dimension of one of them, with the dimension and the period in which they do.

    Followed is the most significant part of the dimension, through all ops that may be split there. Parameters and
    states end the way: what they share with the batch is a coincidence of sizes.
    """
    value, dim = seed
    unit = AxisRef(AXIS, 1, 1)
    found: dict[SSAValue, tuple[int, int]] = {}
    todo = [(value, dim, types.shape_of(value)[dim])]
    while todo:
        value, dim, period = todo.pop()
        if value in found or _maker(value) or not (isinstance(value.owner, Operation) or value in inputs):
            continue
        found[value] = dim, period
        around = [(use.operation, use.index, False) for use in value.uses]
        if isinstance(value, OpResult):
            around.append((value.op, value.index, True))
        for op, index, made in around:
            rule = rules.get(op)
            if rule is None:
                continue
            own = (rule.results if made else rule.operands)[index]
            at = rule.factor_at(own, dim, Digit(unit, period))
            if at is None or rule.kind(at[0]) == "whole" or at[0] in rule.halos:
                continue
            for other, dims in zip((*op.operands, *op.results), (*rule.operands, *rule.results), strict=True):
                where = rule.locate(dims, at[0])
                if where is not None:
                    todo.append((other, where[0], at[1] * where[1]))
    return {v: at for v, at in found.items() if v in inputs}


def _maker(value: SSAValue) -> bool:
    """Whether a value is made from nothing, so that sharing it ties nobody together."""
    return isinstance(value.owner, ConstantOp | IotaOp)


def decide(func: FuncOp, count: int, batch: str | None = None) -> Decided:
    """Split the work of `@main` into that of `count` micro-batches and the rest.

    Raises UsageError when there is no batch or `count` does not divide it, ProgramError that names the op which must
    see the whole batch before the micro-batches are done.
    """
    mesh = Mesh(((AXIS, count),))
    given = batch_digits(func, count, batch)
    slots = signature.arguments(func)
    state = _State(mesh, {})
    for arg, slot in zip(func.args, slots, strict=True):
        state.layouts[arg] = given.get(arg, Layout.replicated(len(types.shape_of(arg))))
        if (slot.role or "input") == "input":
            state.data.add(arg)
    returned = signature.return_of(func)
    when: dict[Operation, str] = {}
    placements: dict[Operation, Placement] = {}
    for op in func.body.block.ops:
        if op is returned:
            break
        if not isinstance(op, HloOp) or (op.regions and not op.STAYS):
            raise op_error(op, "cannot be split", "run `inline-composites` first" if op.regions else None)
        when[op] = _when(op, state, placements)
        if all(v in state.data for v in op.operands):
            state.data.update(op.results)
        for i, result in enumerate(op.results):
            inside = when[op] == INSIDE
            rank = len(types.shape_of(result))
            state.layouts[result] = placements[op].results[i] if inside else Layout.replicated(rank)
            if when[op] == AFTER:
                state.late.add(result)
            source = next((state.cause[v] for v in op.operands if v in state.cause), None)
            if inside and state.partial(result):
                source = source or op
            if source is not None:
                state.cause[result] = source
    if not any(w == INSIDE and any(v not in state.data for v in op.operands) for op, w in when.items()):
        raise _refused(*state.reasons[0]) if state.reasons else _nothing(func)
    state.combined.update(v for v in returned.operands if state.partial(v))
    combined = frozenset(state.combined - state.data)
    return Decided(mesh, when, placements, state.layouts, combined, frozenset(state.data))


def _when(op: HloOp, state: _State, placements: dict[Operation, Placement]) -> str:
    """When an op runs; its placement is noted if that is in every micro-batch."""
    # What depends on data alone can be had whole at any time.
    settled = [v for v in op.operands if not (state.split(v) or state.partial(v) or v in state.late)]
    if len(settled) == len(op.operands):
        return BEFORE
    only_data = all(v in state.data for v in op.operands)
    cut = [v for v in op.operands if state.split(v)]
    if cut:
        waits = [v for v in op.operands if v in state.late or (state.partial(v) and v not in state.data)]
        placement = f"needs {_whole(waits[0], state)}" if waits else _placement(op, cut, state)
        if isinstance(placement, Placement):
            placements[op] = placement
            return INSIDE
        if only_data:
            state.reasons.append((op, placement))
            return BEFORE
        if waits and all(v in state.data for v in cut):
            state.combined.update(v for v in op.operands if state.partial(v))
            return AFTER
        raise _refused(op, placement)
    if (carried := _carried(op, state)) is not None:
        placements[op] = carried
        return INSIDE
    if only_data:
        return BEFORE
    state.combined.update(v for v in op.operands if state.partial(v))
    return AFTER


def _nothing(func: FuncOp) -> ProgramError:
    return op_error(func, "nothing that the step computes depends on its batch and on parameters")


def _refused(op: HloOp, why: str) -> ProgramError:
    return op_error(
        op, f"micro-batches cannot run one after another: {op.name.removeprefix('hlo.')} {why}", REMEDY
    )


def _whole(value: SSAValue, state: _State) -> str:
    """Words for what is combined over the batch, and where."""
    op = state.cause.get(value)
    if op is None:
        return "a value of the whole batch"
    place = show_location(op.location)
    return f"what {op.name} makes of the whole batch" + (f" at {place}" if place else "")


def _placement(op: HloOp, cut: Sequence[SSAValue], state: _State) -> Placement | str:
    """The layouts under which an op runs in every micro-batch, or why it cannot."""
    rule = op.rule()
    splits: dict[AxisRef, Split] = {}
    for value, dims in zip(op.operands, rule.operands, strict=True):
        if value not in cut:
            continue
        for dim, digits in enumerate(state.layouts[value].dims):
            for digit in digits:
                at = rule.factor_at(dims, dim, digit)
                if at is None:
                    return "joins the batch with something else"
                if rule.kind(at[0]) == "whole":
                    return f"must see the whole batch (dimension {dim} of {types.show(types.type_of(value))})"
                split = Split(digit.axis, *at)
                if splits.setdefault(digit.axis, split) != split:
                    return "sees the batch in two dimensions"
    placement = rule.place(list(splits.values()))
    for value, layout in zip(op.operands, placement.operands, strict=True):
        if value in cut and layout != state.layouts[value]:
            return "sees the batch in two dimensions"
        if layout.error(types.shape_of(value)) is not None:
            return "sees the batch in two dimensions"
    atoms = len(state.mesh.atoms)
    for layout in placement.results:
        held = {"partial" if isinstance(s, str) else "split" for s in map(layout.find, state.mesh.atoms) if s}
        if len(held) > 1 or len(layout.axes()) not in (0, atoms):
            return "combines over a part of the batch"
    if (why := rule.admits(placement.operands, placement.results)) is not None:
        return why
    return placement


def _carried(op: HloOp, state: _State) -> Placement | None:
    """The placement of an op that lets partial operands through, where that is better than combining them first.

    It is where two of them become one, and where bf16 becomes f32 (the sum is then one of f32), or on the way there.
    """
    partial = {v for v in op.operands if state.partial(v)}
    if any(v in state.late for v in op.operands) or any(len(list(v.uses)) > 1 for v in partial):
        return None
    operands = tuple(state.layouts[v] for v in op.operands)
    results = op.rule().forward(operands)
    if isinstance(results, str) or not all(layout.partial for layout in results):
        return None
    if len(partial) > 1 or _widens(op) or _leads(op):
        return Placement(operands, results)
    return None


def _leads(op: Operation) -> bool:
    """Whether the only user of an op's result widens it or adds it to something."""
    uses = list(op.results[0].uses) if len(op.results) == 1 else []
    return len(uses) == 1 and (isinstance(uses[0].operation, AddOp) or _widens(uses[0].operation))


def _widens(op: Operation) -> bool:
    if not isinstance(op, ConvertOp):
        return False
    old, new = types.element_of(op.operands[0]), types.element_of(op.results[0])
    return types.is_float(old) and types.is_float(new) and types.itemsize(new) > types.itemsize(old)
