"""The outer search: all meshes and all templates; the cheapest plan that fits wins.

Every plan, found or template, is measured by the same `cost_of` (which equals `evaluate_plan` on the placed module),
and the answer is the minimum over all of them: it is never dearer than a template. Large programs are searched in two
lanes: what is found in one is not used in the other before both are done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rhino.ir.errors import PlanError
from rhino.ir.mesh import Mesh
from rhino.planner.found import Found, Outcome
from rhino.planner.lanes import Lanes, Progress
from rhino.planner.meshes import merged, meshes
from rhino.planner.refine import embedding, refine
from rhino.planner.search import Search
from rhino.planner.space import Workshop
from rhino.planner.templates import TEMPLATES

#: Mesh axes that one network decides jointly; more are refined one after another.
JOINT_AXES = 2

#: Plans of a folded search that are measured before one is chosen.
FINALS = 3

#: Share of the step time by which the network may be off a measurement; it has not been seen to be by as much.
UNSURE = 0.05

#: How often the limit is tightened for a plan that needs more than the network thought.
ROUNDS = 4

#: Share of what a plan needed beyond the network's figures that the next limit leaves.
TIGHTER = 0.995

#: The steps of the search that a job may be.
AXES, JOINTLY, FURTHER, TEMPLATE = "axis by axis", "jointly", "further", "template"


@dataclass(frozen=True)
class Job:
    """One mesh (or template, by name) in one step of the search, from a plan that is known."""

    step: str
    mesh: Mesh | None
    template: str = ""
    start: Found | None = None
    goal: Mesh | None = None
    """The mesh that was asked for, where this one is its axes taken together."""

    def __str__(self) -> str:
        if self.step == TEMPLATE:
            return f"template {self.template}"
        if self.goal not in (None, self.mesh):
            return f"mesh {self.goal}, first as {self.mesh}"
        return f"mesh {self.mesh}{' jointly' if self.step == JOINTLY else ''}"

    def find(self, search: Search, known: Sequence[Found], ceiling: float) -> Found:
        """The plan. Raises PlanError when there is none."""
        if self.step == TEMPLATE:
            return search.template(self.template, self.mesh)
        assert self.mesh is not None
        if self.step == AXES:
            return search.axis_by_axis(self.mesh, known, ceiling=ceiling)
        start = self.start
        if self.step == FURTHER:
            return refine(search, self.mesh, [start] if start is not None else [], ceiling=ceiling)
        assert start is not None
        return search.joint(self.mesh, start, ceiling)


@dataclass(frozen=True)
class Batch:
    """Jobs to be done in order, and the seconds above which no plan is of interest at their start."""

    jobs: tuple[Job, ...]
    ceiling: float


Finds = list[Found | PlanError]


class _Outer:
    """The steps of one outer search."""

    def __init__(self, search: Search, lanes: Lanes[Batch, Finds], mesh: Mesh | None) -> None:
        self.search = search
        self.lanes = lanes
        self.mesh = mesh

    def run(self) -> Outcome:
        search, mesh = self.search, self.mesh
        candidates = [
            m
            for k in range(1, min(JOINT_AXES, search.effort.mesh_axes) + 1)
            for m in meshes(search.cluster, k)
        ]
        search.constraints.check(candidates if mesh is None else [mesh])
        if mesh is not None:
            candidates = [*merged(mesh), mesh] if len(mesh.axes) > 1 else [mesh]
        candidates = [m for m in candidates if len(m.axes) <= JOINT_AXES and search.constraints.suits(m)]
        jobs = [
            *(Job(AXES, m, goal=mesh) for m in candidates),
            *(Job(TEMPLATE, mesh, name) for name in TEMPLATES),
        ]
        finds = self._all(jobs, math.inf)
        # What O1 finds, whatever the level is: O2 then never ends with more.
        first = [f for f in finds[: len(candidates)] if isinstance(f, Found)]
        failed = next((f for f in finds[: len(candidates)] if isinstance(f, PlanError)), None)
        templates: dict[str, Found | str] = {
            name: f if isinstance(f, Found) else f.message
            for name, f in zip(TEMPLATES, finds[len(candidates) :], strict=True)
        }
        known = [t for t in templates.values() if isinstance(t, Found)]
        if failed is not None and not first and not known:
            raise failed
        thorough = search.effort.level == "O2"
        found = self._jointly(first, known) if thorough else list(first)
        first += self._further(first, known)
        if thorough:
            found += self._further(found, known)
        if mesh is not None:
            first, found = ([f for f in plans if f.mesh == mesh] for plans in (first, found))
        if failed is not None and not found:
            raise failed
        best = self.measured([*first, *known], "O1")
        if thorough:
            best = min(best, self.measured([*found, *known], "O2"), key=self._exactly)
        bound = min(best.cost.step_time_s, self._bound(found))
        if best.cost.peak_memory_bytes > search.limit:
            raise search.too_large(best)
        return Outcome(best, bound, templates)

    def _all(self, jobs: Sequence[Job], ceiling: float, lane: Sequence[int] | None = None) -> Finds:
        """What the jobs find, in two lanes where the search is long: every other job in each, or as `lane` says."""
        if not self.search.rough:
            return self.lanes.work(Batch(tuple(jobs), ceiling), self.search.progress)
        where = [i % 2 for i in range(len(jobs))] if lane is None else lane
        self.lanes.start()
        halves = [tuple(job for job, own in zip(jobs, where, strict=True) if own == half) for half in (0, 1)]
        answers = self.lanes.both(*(Batch(half, ceiling) for half in halves))
        rest = [iter(answer) for answer in answers]
        return [next(rest[own]) for own in where]

    def _jointly(self, first: Sequence[Found], known: Sequence[Found]) -> list[Found]:
        """The plans of O2 on all meshes of those of O1, in their order; the most promising meshes are tried first. Each
        mesh is decided in the lane that has met it before.
        """
        search = self.search
        order = sorted(range(len(first)), key=lambda i: (not search.fits(first[i]), search.time(first[i])))
        order = [i for i in order if len(first[i].mesh.axes) > 1]
        jobs = [Job(JOINTLY, first[i].mesh, start=first[i]) for i in order]
        found = list(first)
        for i, plan in zip(
            order, self._all(jobs, search.ceiling([*first, *known]), [i % 2 for i in order]), strict=True
        ):
            if isinstance(plan, PlanError):
                raise plan
            found[i] = plan
        return found

    def _further(self, found: Sequence[Found], known: Sequence[Found]) -> list[Found]:
        """The plans on meshes of more axes than one network decides, each from the best of those there are."""
        search = self.search
        start = [*found, *known]
        leader = search.best(start) if start else None  # pins may ask for all axes of a mesh of three
        further = meshes(search.cluster, 3) if search.effort.mesh_axes > JOINT_AXES else []
        jobs = []
        for candidate in [self.mesh] if self.mesh is not None else further:
            if len(candidate.axes) <= JOINT_AXES or not search.constraints.suits(candidate):
                continue
            if self.mesh or leader is None or embedding(leader.mesh, candidate) is not None:
                coarser = [f for f in start if embedding(f.mesh, candidate) is not None]
                jobs.append(Job(FURTHER, candidate, start=search.best(coarser) if coarser else None))
        # Of a mesh that was asked for there is no other plan.
        finds = self._all(jobs, search.ceiling(start) if self.mesh is None else math.inf)
        for plan in finds:
            if isinstance(plan, PlanError):
                raise plan
        return [plan for plan in finds if isinstance(plan, Found)]

    def _bound(self, found: Sequence[Found]) -> float:
        """Seconds: the least bound of the meshes decided jointly; of the work alone if O1 decided some by axes."""
        if self.search.effort.level == "O1" and any(len(f.mesh.axes) > 1 for f in found):
            return self.search.floor_s
        return min([f.lower_bound for f in found if f.lower_bound > 0] or [self.search.floor_s])

    def _exactly(self, found: Found) -> tuple[bool, float, float]:
        """What is compared once plans are measured; less is better."""
        seconds, size = found.cost.step_time_s, found.cost.peak_memory_bytes
        if self.search.objective == "memory":
            return False, size, seconds
        return (False, seconds, size) if size <= self.search.limit else (True, size, seconds)

    def measured(self, found: Sequence[Found], level: str) -> Found:
        """The best by measure. Of a folded search the best few plans are measured, and every template."""
        search = self.search
        if not search.rough:
            return search.best(found)
        order = sorted(
            found, key=lambda f: (not search.fits(f), search.time(f) if search.fits(f) else search.bytes(f))
        )
        finals = self._contenders(order[:FINALS])
        best = min((f for f in found if f.origin != "search" or f in finals), key=self._exactly)
        for f in finals:
            full = f.direct[1].peak_memory_bytes > search.limit
            if full and (
                best.cost.peak_memory_bytes > search.limit or search.time(f) < best.cost.step_time_s
            ):
                best = min(best, self._tightened(f, level), key=self._exactly)
        return best

    def _contenders(self, ordered: Sequence[Found]) -> list[Found]:
        """Of some plans, the most promising first, those worth measuring: none that the network puts far behind one
        that was measured and fits.
        """
        out: list[Found] = []
        best = math.inf
        for found in ordered:
            if self.search.objective == "memory" or not self.search.time(found) > (1 + UNSURE) * best:
                out.append(found)
                if found.cost.peak_memory_bytes <= self.search.limit:
                    best = min(best, found.cost.step_time_s)
        return out

    def _tightened(self, found: Found, level: str) -> Found:
        """A plan on the mesh of one that needs more than the network thought, under a limit that makes up for it."""
        search = self.search
        limit = search.limit
        for _ in range(ROUNDS):
            limit *= TIGHTER * search.limit / found.direct[1].peak_memory_bytes
            if level == "O2" and len(found.mesh.axes) <= JOINT_AXES:
                found = search.solve("search", found.mesh, limit=limit)
            else:
                found = search.axis_by_axis(found.mesh, [], limit)
            if found.direct[1].peak_memory_bytes <= search.limit:
                break
        return found


def run(search: Search, mesh: Mesh | None) -> Outcome:
    """Search all meshes (or one), and all templates. Raises PlanError when nothing fits."""

    def work(batch: Batch, progress: Progress) -> Finds:
        finds: Finds = []
        for job in batch.jobs:
            progress(str(job))
            known = [f for f in finds if isinstance(f, Found) and f.origin == "search"]
            try:
                finds.append(job.find(search, known, min(batch.ceiling, search.ceiling(known))))
            except PlanError as error:
                finds.append(error)
        return finds

    def shared(item: object) -> object | None:
        if item is search.graph:
            return "graph"
        return item.mesh if isinstance(item, Workshop) else None

    def resolve(name: object) -> object:
        return search.shop(name) if isinstance(name, Mesh) else search.graph

    with Lanes(work, search.progress, shared=shared, resolve=resolve) as lanes:
        return _Outer(search, lanes, mesh).run()
