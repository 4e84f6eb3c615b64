"""Why a plan is what it is: where its time and memory go, what else an op could do, what more of either would buy.

Everything is read off the placed module and measured by the same functions that the search uses: an alternative is
the whole plan with one op's placement replaced and its reshards worked out anew.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from xdsl.dialects.builtin import FloatAttr, ModuleOp, StringAttr
from xdsl.ir import Operation, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist import ReshardOp
from rhino.dialects.dist.layouts import LAYOUT, read_layouts
from rhino.dialects.dist.mesh import mesh_of, mesh_op_of
from rhino.dialects.hlo.base import HloOp
from rhino.ir.errors import PlanError
from rhino.ir.layout import Layout
from rhino.ir.layout_text import format_layout
from rhino.ir.rule import Placement
from rhino.ir.text import show_location
from rhino.planner.candidates import Candidate, choices_for, discover
from rhino.planner.cluster import Cluster
from rhino.planner.communication import Communication
from rhino.planner.cost import shards_of
from rhino.planner.evaluate import work_of
from rhino.planner.explain_micro import MicroReport, micro_report, values_of_micro_batches
from rhino.planner.graph import Graph, read
from rhino.planner.network import Decision
from rhino.planner.pins import label
from rhino.planner.plan import CLUSTER, LIMIT, constraints, micro_batches, plan
from rhino.planner.schedule import cost_of, result_layouts, schedule, source_layout, wants
from rhino.planner.space import Workshop
from rhino.planner.tally import PlanCost, lifetimes, tally

#: Placements of one op that are measured at most, those with the least time of its own first.
ALTERNATIVES = 48


@dataclass(frozen=True)
class Entry:
    """Something that takes time or memory.

    Attributes:
        what: an op's or collective's name, or a role and name of an argument.
        amount: seconds, or bytes.
        share: of the step, or of the peak.
        count: how many ops or buffers are counted together.
        where: their place in the user's program, None if unknown.
    """

    what: str
    amount: float
    share: float
    count: int
    where: str | None


@dataclass(frozen=True)
class Report:
    """Where time and memory of a plan go; every list is sorted, the largest first."""

    cost: PlanCost
    ops: list[Entry]
    collectives: list[Entry]
    memory: list[Entry]
    kinds: dict[str, float]
    """Seconds per kind of op or collective."""
    micro: MicroReport | None = None
    """What micro-batches buy; None where the batch is run as one."""

    @property
    def dominant(self) -> str:
        """One sentence on what the step is made of."""
        kind, seconds = max(self.kinds.items(), key=lambda item: item[1], default=("nothing", 0.0))
        side = "communication" if self.cost.comm_s > self.cost.compute_s else "computation"
        total = self.cost.step_time_s or 1.0
        part = max(self.cost.comm_s, self.cost.compute_s) / total
        return f"{side} is {part:.0%} of the step; most of all {kind}: {seconds / total:.0%}"


@dataclass(frozen=True)
class Alternative:
    """One placement of an op in an otherwise unchanged plan, against the plan as it is.

    Attributes:
        layouts: of its operands and results, as text.
        more_s, more_bytes: what the step takes longer and needs more; negative if less.
        chosen: whether it is the plan's own.
    """

    layouts: str
    more_s: float
    more_bytes: int
    chosen: bool


@dataclass(frozen=True)
class OpReport:
    """An op with its alternatives, the cheapest first; `left_out` were not measured."""

    name: str
    where: str | None
    alternatives: list[Alternative]
    left_out: int


@dataclass(frozen=True)
class WhatIf:
    """A change of the cluster and the best plan for it; None with the reason where there is none."""

    change: str
    cost: PlanCost | None
    reason: str | None = None


def cluster_of(module: ModuleOp) -> Cluster:
    """The cluster that a plan was made for. Raises PlanError when the module is no plan."""
    found = module.attributes.get(CLUSTER)
    if not isinstance(found, StringAttr) or mesh_op_of(module) is None:
        raise PlanError(
            "this is no plan: it does not say for which cluster it was made",
            remedy="write plans with `rhino plan PROGRAM -o FILE.mlir`",
        )
    return Cluster.parse(found.data)


def explain(module: ModuleOp) -> Report:
    """Where the time and the memory of a plan go. Raises PlanError when the module is no plan."""
    communication = Communication(cluster_of(module), mesh_of(module))
    work = work_of(module, communication).combined(communication)
    cost = tally(work.items, work.arguments, work.results)
    ops: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    moves: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    kinds: dict[str, float] = defaultdict(float)
    makers: dict[int, tuple[str, str | None]] = {}
    growing_ops, adding_ops = values_of_micro_batches(module)
    growing: set[int] = set()
    adding: set[int] = set()
    for item in work.items:
        sources = [s for s in _flat(item.source) if isinstance(s, Operation)]
        if item.communication:
            step = item.collective
            name = "copies for buckets" if step is None else _collective_name(step.kind, step.axes)
            kinds[name] += item.time
            more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
            key = f"{name} for {_name(sources[0])}{more}", show_location(sources[0].location)
            moves[key].append(item.time)
        else:
            kinds[sources[0].name] += item.time
            key = _name(sources[0]), show_location(sources[0].location)
            ops[key].append(item.time)
        for buffer, _ in item.writes:
            makers[buffer] = key
            if sources[0] in growing_ops:
                growing.add(buffer)
            elif sources[0] in adding_ops:
                adding.add(buffer)
    total = cost.step_time_s or 1.0
    slots = signature.arguments(signature.main_of(module))
    for (buffer, _, _), slot in zip(work.arguments, slots, strict=True):
        makers[buffer] = f"{slot.role} {slot.name}", None
    held: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    lives = lifetimes(work.items, work.arguments, work.results)
    for buffer, size in _at_peak(lives):
        held[makers[buffer]].append(size)
    peak = cost.peak_memory_bytes or 1
    count = micro_batches(module)
    micro = micro_report(count, lives, growing, adding) if count > 1 else None
    return Report(
        cost, _entries(ops, total), _entries(moves, total), _entries(held, peak), dict(kinds), micro
    )


def alternatives(module: ModuleOp, pattern: str) -> list[OpReport]:
    """The alternatives of all ops whose name matches (see `rhino.planner.pins`), in program order.

    Raises PlanError when none does.
    """
    shop = Workshop(cluster_of(module), mesh_of(module))
    graph, decision = unplaced(module)
    options = discover(graph)
    chosen = [
        i
        for i, node in enumerate(graph.nodes)
        if not node.free and any(fnmatchcase(n, pattern) for n in label(node.op.name, node.op.location))
    ]
    if not chosen:
        known = dict.fromkeys(
            label(node.op.name, node.op.location)[0] for node in graph.nodes if not node.free
        )
        raise PlanError(
            f"no op of the plan is called '{pattern}'",
            remedy="names are place/kind, shell patterns match: " + ", ".join(list(known)[:20]),
        )
    base, regather = _baseline(module, graph, decision, shop)
    out = []
    for index in chosen:
        node = graph.nodes[index]
        open_to = tuple(choices_for(options.nodes[index], axis) for axis in shop.axes)
        made = shop.candidate_set(node.kind, open_to)
        own = decision.nodes[index]
        assert own is not None
        order = sorted(range(len(made.candidates)), key=lambda i: float(made.times[i]))
        possible = [own]
        for i in order:
            one = made.candidates[i]
            if one.placement != own.placement and _possible(graph, decision, shop, index, one):
                possible.append(one)
        found = []
        for one in possible[:ALTERNATIVES]:
            nodes = (*decision.nodes[:index], one, *decision.nodes[index + 1 :])
            cost = cost_of(schedule(graph, replace(decision, nodes=nodes), shop, regather=regather), shop)
            found.append(
                Alternative(
                    _layouts(graph, index, one.placement, shop),
                    cost.step_time_s - base.step_time_s,
                    cost.peak_memory_bytes - base.peak_memory_bytes,
                    one is own,
                )
            )
        found.sort(key=lambda a: (a.more_s, not a.chosen))
        left = max(0, len(possible) - ALTERNATIVES)
        out.append(OpReport(_name(node.op), show_location(node.op.location), found, left))
    return out


def what_if(module: ModuleOp, progress: Callable[[str], None] | None = None) -> list[WhatIf]:
    """The best plans with 1 GB more memory per device, and on twice the nodes; both are searched anew."""
    cluster = cluster_of(module)
    stored = module.attributes.get(LIMIT)
    limit = float(stored.value.data) if isinstance(stored, FloatAttr) else 0.9 * cluster.hardware.memory_bytes
    whole = unplaced_module(module)[0]
    pins, forbid = _constraints(constraints(module))
    twice = replace(cluster, nodes=2 * cluster.nodes)
    out = []
    for change, where, most in (
        ("1 GB more memory per device", cluster, limit + 1e9),
        (f"twice the nodes ({twice})", twice, limit),
    ):
        try:
            found = plan(whole, where, memory_limit=most, pins=pins, forbid=forbid, progress=progress)
            out.append(WhatIf(change, found.cost))
        except PlanError as error:
            out.append(WhatIf(change, None, error.message))
    return out


def unplaced_module(module: ModuleOp) -> tuple[ModuleOp, list[Placement], list[Layout]]:
    """The global program of a plan, the placement of every op in its order, and the layouts of the arguments."""
    whole = module.clone()
    mesh, func = mesh_of(whole), signature.main_of(whole)
    layouts = read_layouts(func, mesh)
    placements: list[Placement] = []
    arguments = [layouts[argument] for argument in func.args]
    for op in list(func.body.block.ops):
        if isinstance(op, HloOp):
            operands = tuple(layouts[o] for o in op.operands)
            placements.append(Placement(operands, tuple(layouts[r] for r in op.results)))
            op.attributes.pop(LAYOUT, None)
    for op in list(func.body.block.ops):
        if isinstance(op, ReshardOp):
            op.result.replace_all_uses_with(op.x)
            op.detach()
            op.erase()
    for slots, write in (
        (signature.arguments(func), signature.set_arguments),
        (signature.results(func), signature.set_results),
    ):
        write(
            func,
            [replace(slot, other=tuple(kv for kv in slot.other if kv[0] != LAYOUT)) for slot in slots],
        )
    head = mesh_op_of(whole)
    assert head is not None
    head.detach()
    head.erase()
    for key in [key for key in whole.attributes if key.startswith("rhino.")]:
        del whole.attributes[key]
    return whole, placements, arguments


def unplaced(module: ModuleOp) -> tuple[Graph, Decision]:
    """A plan as the search would know it: its program, and what was decided."""
    whole, placements, arguments = unplaced_module(module)
    graph = read(whole)
    nodes = tuple(
        None if node.free else Candidate(placement, shards_of(placement), ())
        for node, placement in zip(graph.nodes, placements, strict=True)
    )
    return graph, Decision(nodes, tuple(arguments), {})


def _baseline(module: ModuleOp, graph: Graph, decision: Decision, shop: Workshop) -> tuple[PlanCost, bool]:
    """The plan's cost with its reshards worked out anew, and whether it gathers copies again rather than keep them."""
    work = work_of(module, shop.communication).combined(shop.communication)
    own = tally(work.items, work.arguments, work.results)
    costs = {again: cost_of(schedule(graph, decision, shop, regather=again), shop) for again in (False, True)}
    again = min(costs, key=lambda a: abs(costs[a].step_time_s - own.step_time_s))
    return costs[again], again


def _possible(graph: Graph, decision: Decision, shop: Workshop, index: int, one: Candidate) -> bool:
    """Whether reshards lead to what a placement wants and from what it makes: to partial tensors none does."""
    node, time = graph.nodes[index], shop.communication.reshard_time
    for value, wanted in zip(node.operands, one.placement.operands, strict=True):
        source = source_layout(graph, decision, value)
        at = graph.values[value]
        if source is not None and not math.isfinite(time(at.shape, at.itemsize, source, wanted)):
            return False
    results = result_layouts(graph, decision)
    for value, source in zip(node.results, one.placement.results, strict=True):
        at = graph.values[value]
        for _, wanted in wants(graph, decision, results, value):
            if not math.isfinite(time(at.shape, at.itemsize, source, wanted)):
                return False
    return True


def _layouts(graph: Graph, index: int, placement: Placement, shop: Workshop) -> str:
    node = graph.nodes[index]

    def show(values: Sequence[int], layouts: Sequence[Layout]) -> str:
        return ", ".join(
            format_layout(layout, graph.values[v].shape, shop.mesh).replace('"', "")
            for v, layout in zip(values, layouts, strict=True)
        )

    return f"{show(node.operands, placement.operands)} -> {show(node.results, placement.results)}"


def _name(op: Operation) -> str:
    """The name by which an op is asked for; a reshard is called by its first user."""
    if isinstance(op, ReshardOp):
        user = next((use.operation for use in op.result.uses), None)
        if user is None or not isinstance(user, HloOp):
            return _maker(op.x)
        op = user
    return label(op.name, op.location)[0]


def _maker(value: SSAValue) -> str:
    owner = value.owner
    return label(owner.name, owner.location)[0] if isinstance(owner, Operation) else "an argument"


def _collective_name(kind: str, axes: Sequence[object]) -> str:
    names = ",".join(str(getattr(axis, "name", axis)) for axis in axes)
    return f"{kind} over {names}" if names else kind


def _flat(source: object) -> list[object]:
    return [s for one in source for s in _flat(one)] if isinstance(source, tuple) else [source]


def _entries(groups: dict[tuple[str, str | None], list[float]], total: float) -> list[Entry]:
    found = [
        Entry(what, math.fsum(amounts), math.fsum(amounts) / total, len(amounts), where)
        for (what, where), amounts in groups.items()
        if any(amounts)
    ]
    return sorted(found, key=lambda e: (-e.amount, e.what, e.where or ""))


def _at_peak(lives: Iterable[tuple[int, int, int, int]]) -> list[tuple[int, int]]:
    """Buffers with their bytes that are there when most bytes are, given ``(buffer, bytes, first, last)``."""
    lives = list(lives)
    change: dict[int, int] = defaultdict(int)
    for _, size, first, last in lives:
        change[first] += size
        change[last + 1] -= size
    held, most, when = 0, -1, 0
    for at in sorted(change):
        held += change[at]
        if held > most:
            most, when = held, at
    return [(buffer, size) for buffer, size, first, last in lives if first <= when <= last and size]


def _constraints(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Pins and what is forbidden, as they were written on the command line."""
    pins = [t.removeprefix("pin '")[:-1] for t in texts if t.startswith("pin ")]
    forbid = [t.removeprefix("forbid '")[:-1] for t in texts if t.startswith("forbid ")]
    return pins, forbid
