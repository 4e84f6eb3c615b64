"""`plan`: from a training step and a cluster to a placed module, with its cost, its bound and the reasons."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute

from rhino.dialects import signature
from rhino.dialects.dist import CollectiveOp, LayoutAttr
from rhino.dialects.dist.layouts import argument_layouts
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.text import parse_module, print_module, read_file
from rhino.dialects.verify import check_placed, verify
from rhino.ir import types
from rhino.ir.collector import collector_paused
from rhino.ir.digest import digest
from rhino.ir.errors import MeshError, PlanError, RhinoError, RhinoWarning, UsageError
from rhino.ir.mesh import Mesh
from rhino.ir.verify import check_dominance
from rhino.planner.cluster import Cluster
from rhino.planner.effort import Effort
from rhino.planner.evaluate import evaluate_plan
from rhino.planner.micro import AUTO, TooLarge, Tried, choose
from rhino.planner.pins import OBJECTIVES, Constraints
from rhino.planner.tally import PlanCost, describe

#: Share of a device's memory that a plan may fill; the rest is for the runtime's own buffers and fragmentation.
USABLE_MEMORY = 0.9

#: Module attributes of a plan's text.
PROGRAM, CLUSTER, COST, TEMPLATES = "rhino.program", "rhino.cluster", "rhino.cost", "rhino.templates"
CONSTRAINTS, LIMIT, PADDING = "rhino.constraints", "rhino.memory_limit", "rhino.padding"
MICRO_BATCHES = "rhino.micro_batches"


@dataclass(frozen=True)
class Plan:
    """A placed program with what is known of it.

    Attributes:
        module: the placed module; its text is the plan's text.
        mesh: the device mesh.
        cluster: what it was planned for, as text.
        cost: predicted step time (s) and peak memory (bytes) per device.
        lower_bound_s: seconds that no plan in the searched space can beat; 0 when nothing was proven.
        search_s: wall-clock seconds of the search; no part of the plan's text.
        templates: step time of every expert template, None where it does not apply or does not fit.
        notes: why templates do not apply, by name.
        program: hash of the program the plan is for.
        origin: ``search`` or the template that it came from.
        tried: the numbers of micro-batches that were planned to choose from; empty where there was no choice.
    """

    module: ModuleOp
    mesh: Mesh
    cluster: str
    cost: PlanCost
    lower_bound_s: float
    search_s: float
    templates: Mapping[str, float | None]
    program: str
    origin: str
    notes: Mapping[str, str] = field(default_factory=dict)
    tried: tuple[Tried, ...] = ()

    @property
    def gap(self) -> float:
        """``(cost - lower bound) / cost``: 0 when proven optimal, 1 when nothing was proven."""
        total = self.cost.step_time_s
        return max(0.0, (total - self.lower_bound_s) / total) if total else 0.0

    @property
    def padding(self) -> str:
        """Which extents were grown, as the option of the pass `pad`: ``6:8``; empty when none was."""
        found = self.module.attributes.get(PADDING)
        return found.data if isinstance(found, StringAttr) else ""

    @property
    def micro_batches(self) -> int:
        """How many batches a step runs one after another; see the pass `microbatch`."""
        return micro_batches(self.module)

    def text(self, debug: bool = False) -> str:
        """The plan as MLIR; byte for byte the same for the same program and cluster."""
        return print_module(self.module, debug=debug)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values, under the names that ``rhino plan --json`` writes."""
        return {
            "devices": self.mesh.size,
            "mesh": str(self.mesh),
            "cluster": self.cluster,
            "origin": self.origin,
            "cost": dict(describe(self.cost)),
            "lower_bound_s": self.lower_bound_s,
            "gap": self.gap,
            "search_s": self.search_s,
            "parameters": parameters(self.module),
            "collectives": collectives(self.module),
            "templates": dict(self.templates),
            "notes": dict(self.notes),
            "constraints": constraints(self.module),
            "padding": self.padding,
            "micro_batches": self.micro_batches,
            "micro_batches_tried": [asdict(each) for each in self.tried],
            "program": self.program,
        }


def program_hash(module: ModuleOp) -> str:
    """A hash of a global program; locations and the names of values play no part."""
    return digest(module)


def parameters(module: ModuleOp) -> list[dict[str, Any]]:
    """Name, global shape (without padding) and layout of every parameter of a placed module."""
    func, mesh = signature.main_of(module), mesh_of(module)
    out = []
    for argument, slot, layout in zip(
        func.args, signature.arguments(func), argument_layouts(func, mesh), strict=True
    ):
        if slot.role == "parameter" and layout is not None:
            shape = types.shape_of(argument)
            text = str(LayoutAttr.of(layout, shape, mesh).data)
            out.append({"name": slot.name, "shape": list(slot.extent or shape), "layout": text})
    return out


def constraints(module: ModuleOp) -> list[str]:
    """What the user insisted on, as written into a plan."""
    found = module.attributes.get(CONSTRAINTS)
    if not isinstance(found, ArrayAttr):
        return []
    return [one.data for one in found.data if isinstance(one, StringAttr)]


def micro_batches(module: ModuleOp) -> int:
    """How many micro-batches a placed module was split into; 1 when it was not."""
    found = module.attributes.get(MICRO_BATCHES)
    return int(found.value.data) if isinstance(found, IntegerAttr) else 1


@collector_paused()
def collectives(module: ModuleOp) -> list[dict[str, Any]]:
    """The collectives of the partitioned program by kind and axes: bytes that every device sends, and how many.

    They are counted in what `spmd` and `fuse-collectives` make of the placed module, which is left as it was.
    """
    from rhino.passes.fuse_collectives import fuse_collectives
    from rhino.passes.spmd import spmd

    local = module.clone()
    spmd(local)
    fuse_collectives(local)
    count: Counter[tuple[str, str]] = Counter()
    sent: Counter[tuple[str, str]] = Counter()
    for op in signature.main_of(local).body.block.ops:
        if isinstance(op, CollectiveOp) and op.name != "dist.shard":
            key = op.name.removeprefix("dist."), ",".join(a.name for a in op.axes_attr.data)
            count[key] += 1
            sent[key] += op.bytes
    return [
        {"kind": kind, "axis": axis, "bytes": sent[kind, axis], "count": count[kind, axis]}
        for kind, axis in sorted(count)
    ]


@collector_paused()
def plan(
    module: ModuleOp,
    cluster: Cluster,
    *,
    mesh: Mesh | None = None,
    template: str | None = None,
    memory_limit: float | None = None,
    pins: Sequence[str] = (),
    forbid: Sequence[str] = (),
    objective: str = "time",
    pad: bool = True,
    effort: Effort | None = None,
    micro_batches: int | str = 1,
    accumulate_in: str = "f32",
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """Plan a training step (or any global module) on a cluster; the module is left as it was.

    Args:
        module: a global-stage module whose `@main` holds the whole step.
        cluster: the devices.
        mesh: a fixed device mesh; all factorisations into one to three axes when None.
        template: ``dp``, ``zero3``, ``megatron`` or ``fsdp_tp`` for that plan alone; a search when None.
        memory_limit: bytes per device; 90 % of the device's memory when None.
        pins, forbid: what the user insists on, as in `rhino.planner.pins`.
        objective: ``time``, or ``memory`` for the plan that needs least of it.
        pad: whether extents that the mesh does not divide may be grown; see `rhino.planner.uneven`.
        effort: how thoroughly to search; the most when None.
        micro_batches: so many batches one after another, or ``auto``: one, unless nothing fits the memory then; see
            `rhino.planner.micro`.
        accumulate_in: the type in which micro-batches add up what is narrower than f32: ``f32``, or ``same``.
        progress: told what is being worked on.

    Raises MeshError when the mesh does not fit the cluster, PlanError when nothing fits the memory, the template
    does not apply (a batch that cannot be divided, say) or constraints clash, UsageError for constraints that cannot be
    read or micro-batches that do not divide the batch, ProgramError when the module is not of the global stage or
    an op must see the whole batch.
    Warns (RhinoWarning) of every op that is worth dividing and that the mesh cannot divide.
    """
    from rhino.passes.inline_composites import inline_composites
    from rhino.passes.microbatch import check_accumulate_in, microbatch
    from rhino.planner.uneven import even, plan_padded

    began = time.perf_counter()
    insisted = Constraints.parse(pins, forbid)
    check_accumulate_in(accumulate_in)
    if objective not in OBJECTIVES:
        raise UsageError(f"no objective '{objective}'", remedy=f"objectives are {', '.join(OBJECTIVES)}")
    if mesh is not None and mesh.size != cluster.size:
        raise MeshError(
            f"mesh {mesh} has {mesh.size} devices, but cluster {cluster} has {cluster.size}",
            remedy=f"make the sizes multiply to {cluster.size}",
        )
    name = program_hash(module)
    whole = module.clone()
    inline_composites(whole)
    limit = USABLE_MEMORY * cluster.hardware.memory_bytes if memory_limit is None else memory_limit
    task = _Task(cluster, template, limit, insisted, objective, effort, progress or (lambda message: None))

    def attempt(count: int) -> tuple[Plan, list[str]]:
        program = whole if micro_batches == 1 else whole.clone()
        microbatch(program, count, accumulate_in=accumulate_in)

        def padded(program: ModuleOp, mesh: Mesh | None, padding: str) -> tuple[Plan, list[str]]:
            return _plan_as_it_is(program, mesh, padding, count, name, task)

        if not pad or even(program, mesh, cluster.size):
            return padded(program, mesh, "")
        return _best(plan_padded(program, padded, cluster, mesh=mesh, template=template), objective)

    def measured(found: tuple[Plan, list[str]]) -> tuple[float, float]:
        return found[0].cost.step_time_s, found[0].cost.peak_memory_bytes

    if micro_batches == AUTO:
        chosen = choose(whole, cluster.size, attempt, measured, task.progress)
        (best, messages), tried = chosen.plan, chosen.tried
    else:
        (best, messages), tried = attempt(int(micro_batches)), ()
    for message in messages:
        warnings.warn(message, RhinoWarning, stacklevel=2)
    return replace(best, search_s=time.perf_counter() - began, tried=tried)


@dataclass(frozen=True)
class _Task:
    """What all plans of one program have in common; see `plan`."""

    cluster: Cluster
    template: str | None
    limit: float
    constraints: Constraints
    objective: str
    effort: Effort | None
    progress: Callable[[str], None]


def _plan_as_it_is(
    placed: ModuleOp, mesh: Mesh | None, padding: str, count: int, name: str, task: _Task
) -> tuple[Plan, list[str]]:
    """The plan of a program without composites, which becomes the plan's, and the ops that its mesh cannot divide.

    Args:
        padding: how the program was grown.
        count: micro-batches that it was split into.
        name: hash of the program that users know.
    """
    from rhino.planner.found import Found, does_not_fit
    from rhino.planner.graph import read
    from rhino.planner.materialize import materialize
    from rhino.planner.outer import run
    from rhino.planner.search import Search
    from rhino.planner.whole import undivided

    cluster, template, limit = task.cluster, task.template, task.limit
    graph = read(placed)

    class Measured(Search):
        """A search whose errors about memory say how much is needed."""

        def too_large(self, found: Found) -> PlanError:
            return TooLarge(super().too_large(found), found.cost.peak_memory_bytes, limit)

    search = Measured(
        graph, cluster, limit, task.progress, task.constraints, task.objective, effort=task.effort
    )
    times: dict[str, float | None] = {}
    notes: dict[str, str] = {}
    if template is not None:
        best, bound = search.template(template, mesh), search.floor_s
        if best.cost.peak_memory_bytes > limit:
            raise search.too_large(best)
        times[template] = best.cost.step_time_s
    else:
        outcome = run(search, mesh)
        best, bound = outcome.best, outcome.lower_bound
        for each, found in outcome.templates.items():
            if isinstance(found, Found) and found.cost.peak_memory_bytes <= limit:
                times[each] = found.cost.step_time_s
            else:
                times[each] = None
                notes[each] = found if isinstance(found, str) else does_not_fit(found, limit).message
    messages = undivided(graph, search.options, best.mesh, cluster.hardware)
    materialize(placed, best.schedule, best.mesh)
    cost = best.cost
    bound = min(bound, cost.step_time_s)
    kept = [StringAttr(str(one)) for one in search.constraints.all()]
    attributes: dict[str, Attribute] = {
        PROGRAM: StringAttr(name),
        CLUSTER: StringAttr(str(cluster)),
        COST: _numbers({**describe(cost), "lower_bound_s": bound}),
        TEMPLATES: _numbers({k: v for k, v in times.items() if v is not None}),
        "rhino.origin": StringAttr(best.origin),
        LIMIT: FloatAttr(float(limit), f64),
        **({CONSTRAINTS: ArrayAttr(kept)} if kept else {}),
        **({PADDING: StringAttr(padding)} if padding else {}),
        **({MICRO_BATCHES: IntegerAttr(count, i64)} if count > 1 else {}),
    }
    placed.attributes.update(attributes)
    check_dominance(placed)
    check_placed(placed)
    return Plan(placed, best.mesh, str(cluster), cost, bound, 0.0, times, name, best.origin, notes), messages


def _best(found: Sequence[tuple[Plan, list[str]]], objective: str) -> tuple[Plan, list[str]]:
    """The best of several plans of one program, padded differently; templates and the bound are those of all."""
    if len(found) == 1:
        return found[0]
    best, messages = min(
        found,
        key=lambda each: (
            each[0].cost.peak_memory_bytes if objective == "memory" else each[0].cost.step_time_s
        ),
    )
    times: dict[str, float | None] = {}
    for plan, _ in found:
        for name, time_s in plan.templates.items():
            before = times.get(name)
            times[name] = time_s if before is None or (time_s is not None and time_s < before) else before
    bound = min(plan.lower_bound_s for plan, _ in found)
    best.module.attributes[COST] = _numbers({**describe(best.cost), "lower_bound_s": bound})
    best.module.attributes[TEMPLATES] = _numbers({k: v for k, v in times.items() if v is not None})
    notes = {name: note for name, note in best.notes.items() if times[name] is None}
    return replace(best, lower_bound_s=bound, templates=times, notes=notes), messages


@collector_paused()
def load_plan(text: str, program: ModuleOp, *, name: str = "<plan>") -> Plan:
    """Read a plan's text for a program. Raises PlanError when it was made for another one, ProgramError when it is
    malformed.
    """
    try:
        return _load(text, program, name)
    except RhinoError as error:
        error.where = error.where or name
        raise


def _load(text: str, program: ModuleOp, name: str) -> Plan:
    """`load_plan`; not all errors name the file."""
    began = time.perf_counter()
    module = parse_module(text, name, verify=False)
    verify(module)
    made_for, cluster = module.attributes.get(PROGRAM), module.attributes.get(CLUSTER)
    if not isinstance(made_for, StringAttr) or not isinstance(cluster, StringAttr):
        raise PlanError("this is no plan: it does not say for which program it was made", where=name,
                        remedy="write plans with `rhino plan PROGRAM -o FILE.mlir`")  # fmt: skip
    if made_for.data != program_hash(program):
        raise PlanError(
            "the plan was made for another program (or another version of this one)",
            where=name,
            remedy="plan again: `rhino plan PROGRAM -o FILE.mlir`",
        )
    facts = _read_numbers(module.attributes.get(COST))
    templates: dict[str, float | None] = dict(_read_numbers(module.attributes.get(TEMPLATES)))
    origin = module.attributes.get("rhino.origin")
    return Plan(
        module,
        mesh_of(module),
        cluster.data,
        evaluate_plan(module, Cluster.parse(cluster.data)),
        facts.get("lower_bound_s", 0.0),
        time.perf_counter() - began,
        templates,
        made_for.data,
        origin.data if isinstance(origin, StringAttr) else "search",
    )


def read_plan(path: str, program: ModuleOp, cluster: Cluster) -> Plan:
    """`load_plan` from a file, for a cluster of the size that the plan wants. Raises MeshError when it is another."""
    found = load_plan(read_file(path), program, name=path)
    if found.mesh.size != cluster.size:
        raise MeshError(
            f"the plan {path} is for {found.mesh.size} devices, but there are {cluster.size}",
            remedy="plan again for this cluster",
        )
    return found


def _numbers(values: Mapping[str, float | int]) -> DictionaryAttr:
    return DictionaryAttr({key: FloatAttr(float(value), f64) for key, value in values.items()})


def _read_numbers(attr: Attribute | None) -> dict[str, float]:
    if not isinstance(attr, DictionaryAttr):
        return {}
    return {k: float(v.value.data) for k, v in attr.data.items() if isinstance(v, FloatAttr)}
