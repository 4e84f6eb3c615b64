"""The outer search: meshes, templates, and the network of each; the cheapest plan that fits wins.

Every plan, found or template, is measured by the same `cost_of` (which equals `evaluate_plan` on the placed module),
and the answer is the minimum over all of them: it is never dearer than a template.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

from rhino.ir.errors import PlanError
from rhino.ir.mesh import Mesh
from rhino.passes.buckets import BUCKET_BYTES
from rhino.planner.candidates import Options, discover
from rhino.planner.cluster import Cluster
from rhino.planner.cost import least_time
from rhino.planner.effort import Effort
from rhino.planner.fold import fold, together, unfolded
from rhino.planner.graph import Graph, weight
from rhino.planner.memory import Lifetimes, Memory
from rhino.planner.meshes import merged, meshes, template_meshes
from rhino.planner.network import Decision, Network
from rhino.planner.pins import Constraints, clash, culprits
from rhino.planner.refine import embedding, refine
from rhino.planner.regions import regions
from rhino.planner.schedule import Schedule, cost_of, schedule
from rhino.planner.solver import Infeasible, NothingBelow, Solution, solve
from rhino.planner.space import MICRO, Restriction, Space, Workshop, build_space
from rhino.planner.tally import PlanCost
from rhino.planner.templates import TEMPLATES, template

#: Mesh axes that one network decides jointly; more are refined one after another.
JOINT_AXES = 2

#: Rounds of the solver after its exact phase: a count, so that the plan does not depend on the clock.
ITERATIONS = 100

#: Rounds under a memory limit that may bring nothing before it stops.
PATIENCE = 20

#: Relative distance from the bound at which a plan is good enough.
GAP = 1e-4

#: The same under a memory limit, where the network's own figures are less certain than that.
GAP_WITHIN = 2e-3

#: Plans of a folded search that are measured before one is chosen.
FINALS = 3

#: Share of the step time by which the network may be off a measurement; it has not been seen to be by as much.
UNSURE = 0.05

#: How often the network's limit is tightened when the plan that it finds needs more than it thought.
ROUNDS = 4

#: Share of what a plan needed beyond the network's figures that the next limit leaves.
TIGHTER = 0.995

#: Programs whose parameters fill fewer buckets are also planned as if there were none.
FEW_BUCKETS = 16

#: How often the search for the least memory halves the distance to what is known to be too little.
LEAST_ROUNDS = 6


@dataclass(frozen=True, eq=False)
class Found:
    """A complete plan. What it really costs is measured when asked for the first time.

    Attributes:
        origin: ``search`` or the name of a template.
        limit: bytes per device; large copies are kept if the plan fits with them, else made anew where they are needed.
        lower_bound: seconds; what no plan on this mesh can beat in the network's terms, 0 when unknown.
        network_s, network_bytes: step time and peak memory as the network sees them.
    """

    origin: str
    graph: Graph
    shop: Workshop
    decision: Decision
    limit: float
    lower_bound: float
    network_s: float
    network_bytes: float

    @property
    def mesh(self) -> Mesh:
        return self.shop.mesh

    @cached_property
    def direct(self) -> tuple[Schedule, PlanCost]:
        """The plan as the network means it."""
        plan = schedule(self.graph, self.decision, self.shop)
        return plan, cost_of(plan, self.shop)

    @cached_property
    def _measured(self) -> tuple[Schedule, PlanCost]:
        plan, cost = self.direct
        if cost.peak_memory_bytes > self.limit:
            again = schedule(self.graph, self.decision, self.shop, regather=True)
            other = cost_of(again, self.shop)
            if other.peak_memory_bytes < cost.peak_memory_bytes:
                plan, cost = again, other
        return plan, cost

    @property
    def schedule(self) -> Schedule:
        return self._measured[0]

    @property
    def cost(self) -> PlanCost:
        """The measured cost."""
        return self._measured[1]


@dataclass(frozen=True)
class Outcome:
    """The winner, the proven bound over all meshes searched, and the best of every template (or why it is none)."""

    best: Found
    lower_bound: float
    templates: dict[str, Found | str]


class Search:
    """One program on one cluster: what is shared between meshes, and the steps of the search.

    When layers are folded, plans are compared by what the network says of them until the last few are measured:
    a measurement goes through every layer.
    """

    def __init__(
        self,
        graph: Graph,
        cluster: Cluster,
        limit: float,
        progress: Callable[[str], None],
        constraints: Constraints | None = None,
        objective: str = "time",
        *,
        effort: Effort | None = None,
    ) -> None:
        """`constraints` narrow every plan space, layer by layer, so nothing is folded under them; `objective` is
        ``time``, or ``memory`` for what needs the least.
        """
        self.constraints = constraints or Constraints()
        self.objective = objective
        self.graph = graph
        self.cluster = cluster
        self.limit = limit
        self.progress = progress
        self.effort = effort or Effort()
        self.options: Options = discover(graph)
        self.folding = (
            fold(graph, self.options) if self.effort.folded and not self.constraints else unfolded(graph)
        )
        self.leaders = together(self.folding, regions(graph, self.options))
        self.few_buckets = weight(graph) < FEW_BUCKETS * BUCKET_BYTES
        self.rough = bool(self.folding.runs) and not self.few_buckets
        self.lifetimes = Lifetimes(graph, self.folding)
        self.makers_s, self.floor_s = floor_times(graph, cluster)
        self._shops: dict[Mesh, Workshop] = {}

    def shop(self, mesh: Mesh) -> Workshop:
        return self._shops.setdefault(mesh, Workshop(self.cluster, mesh))

    def time(self, found: Found) -> float:
        """Step time (s) by which plans are compared during the search."""
        return found.network_s if self.rough else found.cost.step_time_s

    def bytes(self, found: Found) -> float:
        """Peak memory by which plans are compared during the search."""
        return found.network_bytes if self.rough else found.cost.peak_memory_bytes

    def fits(self, found: Found) -> bool:
        return self.bytes(found) <= self.limit

    def solve(
        self,
        origin: str,
        mesh: Mesh,
        restriction: Restriction | None = None,
        start: Found | None = None,
        limit: float | None = None,
        ceiling: float = math.inf,
    ) -> Found:
        """The best plan in a plan space: first without regard to memory, then under prices for it.

        `start` is a plan on this mesh that the network's answer is never dearer than; `limit` replaces the search's; a
        plan of more than `ceiling` seconds is of no interest, so that none is made to fit.

        Returns the plan that comes nearest to the limit when none is found that fits. Raises PlanError when the
        space is empty.
        """
        limit = self.limit if limit is None else limit
        shop = self.shop(mesh)
        space = build_space(self.graph, self.options, shop, restriction, self.folding)
        if self.constraints:
            space = self.constraints.narrow(space, self.options)
        network = Network(space, self.leaders, self.folding)
        try:
            warm = network.assign(start.decision) if start is not None else None
            solution = solve(network.problem, timeout=None, iterations=ITERATIONS, gap=GAP, start=warm)
        except Infeasible as error:
            raise self._impossible(mesh, restriction, error) from error
        found = self._found(origin, shop, network, solution, solution.lower_bound / MICRO + self.makers_s)
        if self.few_buckets:
            found = self.best([found, self._in_full(found, space)])
        if self.objective == "time" and (self.bytes(found) <= limit or found.network_s >= ceiling):
            return found
        alone = Network(space, self.leaders, self.folding, ways=True)
        return (
            self._squeeze(found, alone, limit, ceiling)
            if self.objective == "time"
            else self._least(found, alone)
        )

    def _found(
        self, origin: str, shop: Workshop, network: Network, solution: Solution, bound: float
    ) -> Found:
        pick = solution.assignment
        peak = Memory(network, self.lifetimes).peak(pick)
        seconds = solution.cost / MICRO + self.makers_s
        limit = self.limit if self.objective == "time" else 0.0
        return Found(origin, self.graph, shop, network.decide(pick), limit, bound, seconds, peak)

    def _squeeze(self, found: Found, network: Network, limit: float, ceiling: float) -> Found:
        """Search under a memory limit, asking for less while the plans found turn out to need more. Nothing that is
        hardly better than `ceiling` seconds is of interest.
        """
        memory = Memory(network, self.lifetimes)
        target = limit
        best = found
        cutoff = (1 - GAP_WITHIN) * (ceiling - self.makers_s) * MICRO
        # The bound without a limit stays valid under one; that of a tighter limit is none.
        bound = found.lower_bound
        for _ in range(ROUNDS):
            try:
                problem = memory.problem(target)
                solution = solve(
                    problem,
                    timeout=None,
                    iterations=ITERATIONS,
                    patience=PATIENCE,
                    gap=GAP_WITHIN,
                    cutoff=cutoff,
                )
            except NothingBelow:
                if target >= self.limit:
                    best = replace(best, lower_bound=max(bound, cutoff / MICRO + self.makers_s))
                break
            except Infeasible:
                break
            bound = found.lower_bound
            if target >= self.limit:
                bound = max(bound, solution.lower_bound / MICRO + self.makers_s)
            other = self._found(found.origin, found.shop, network, solution, bound)
            if self._better(other, best):
                best = other
            if self.bytes(other) <= limit:
                break
            target *= 0.95 * limit / self.bytes(other)
        return best

    def _in_full(self, found: Found, space: Space) -> Found:
        """The plan when every collective is charged in full: few buckets are not full, and their number counts."""
        network = Network(space, self.leaders, self.folding, share_buckets=False)
        solution = solve(network.problem, timeout=None, iterations=ITERATIONS, gap=GAP)
        return self._found(found.origin, found.shop, network, solution, found.lower_bound)

    def _least(self, found: Found, network: Network) -> Found:
        """The plan that needs least memory, by bisection between nothing and what the best so far needs."""
        memory = Memory(network, self.lifetimes)
        best, below = found, 0.0
        for _ in range(LEAST_ROUNDS):
            target = (below + self.bytes(best)) / 2
            try:
                solution = solve(memory.problem(target), timeout=None, iterations=ITERATIONS, gap=GAP)
            except Infeasible:
                below = target
                continue
            other = self._found(found.origin, found.shop, network, solution, found.lower_bound)
            if self._better(other, best):
                best = other
            else:
                below = target
        return best

    def _better(self, a: Found, b: Found) -> bool:
        """Plans that fit are compared by time, others by how much they need; all by that where it is the objective."""
        if self.objective == "memory":
            return (self.bytes(a), self.time(a)) < (self.bytes(b), self.time(b))
        if self.fits(a) != self.fits(b):
            return self.fits(a)
        if self.fits(a):
            return self.time(a) < self.time(b)
        return self.bytes(a) < self.bytes(b)

    def best(self, found: Sequence[Found]) -> Found:
        """The first of the best."""
        best = found[0]
        for other in found[1:]:
            if self._better(other, best):
                best = other
        return best

    def under(self, constraints: Constraints) -> Search:
        """The same search under other constraints."""
        other = copy(self)
        other.constraints = constraints
        return other

    def _impossible(self, mesh: Mesh, restriction: Restriction | None, error: Infeasible) -> PlanError:
        """The error for a mesh without any plan, naming the constraints that rule them out."""

        def works(constraints: Constraints) -> bool:
            try:
                self.under(constraints).solve("search", mesh, restriction)
            except PlanError:
                return False
            return True

        if not self.constraints or not works(Constraints()):
            return PlanError(f"no plan on mesh {mesh}: {error}")
        return clash(culprits(self.constraints, works), f"there is no plan on mesh {mesh}")

    def too_large(self, found: Found) -> PlanError:
        """The error for a plan that needs more memory than there is, naming the constraints that are in the way."""

        def works(constraints: Constraints) -> bool:
            try:
                other = self.under(constraints)
                return other.fits(other.solve("search", found.mesh))
            except PlanError:
                return False

        error = does_not_fit(found, self.limit)
        if not self.constraints or not works(Constraints()):
            return error
        return clash(culprits(self.constraints, works), error.message)

    def template(self, name: str, mesh: Mesh | None) -> Found:
        """The best plan of a template on the given mesh, or on the meshes that suit it. Raises PlanError."""
        found: list[Found] = []
        error = None
        for candidate in [mesh] if mesh is not None else template_meshes(name, self.cluster.size):
            try:
                narrow = template(name, self.graph, candidate)
                found.append(self.solve(name, candidate, narrow, ceiling=self.ceiling(found)))
            except PlanError as why:
                error = error or why
        if not found:
            raise error or PlanError(f"template '{name}' has no mesh for {self.cluster.size} devices")
        return self.best(found)

    def axis_by_axis(
        self, mesh: Mesh, known: Sequence[Found], limit: float | None = None, ceiling: float = math.inf
    ) -> Found:
        """O1: on one axis all is decided at once, on more one axis after another chooses anew."""
        if len(mesh.axes) == 1:
            return self.solve("search", mesh, limit=limit, ceiling=ceiling)
        # Where memory is short, plans for one axis lead astray: they gave up for it what two axes can have.
        return refine(self, mesh, [] if self.rough else known, limit, ceiling)

    def joint(self, mesh: Mesh, start: Found, ceiling: float = math.inf) -> Found:
        """O2: the whole step on all axes at once, never dearer than `start`, a plan on this mesh."""
        found = self.solve("search", mesh, start=start, ceiling=ceiling)
        return replace(self.best([found, start]), lower_bound=found.lower_bound)

    def ceiling(self, found: Sequence[Found]) -> float:
        """Seconds of the best of the plans that fit, above which no other is of interest, where the network's time is
        what plans are compared by.
        """
        return min((f.network_s for f in found if self.fits(f)), default=math.inf) if self.rough else math.inf

    def run(self, mesh: Mesh | None) -> Outcome:
        """Search all meshes (or one), and all templates. Raises PlanError when nothing fits."""
        joint = [
            m for k in range(1, min(JOINT_AXES, self.effort.mesh_axes) + 1) for m in meshes(self.cluster, k)
        ]
        self.constraints.check(joint if mesh is None else [mesh])
        if mesh is not None:
            joint = [*merged(mesh), mesh] if len(mesh.axes) > 1 else [mesh]
        first: list[Found] = []  # what O1 finds, whatever the level is: O2 then never ends with more
        failed: PlanError | None = None
        for candidate in joint:
            if len(candidate.axes) > JOINT_AXES or not self.constraints.suits(candidate):
                continue
            self.progress(f"mesh {candidate}")
            try:
                first.append(self.axis_by_axis(candidate, first, ceiling=self.ceiling(first)))
            except PlanError as error:
                failed = failed or error
        templates: dict[str, Found | str] = {}
        for name in TEMPLATES:
            self.progress(f"template {name}")
            try:
                templates[name] = self.template(name, mesh)
            except PlanError as error:
                templates[name] = error.message
        known = [t for t in templates.values() if isinstance(t, Found)]
        if failed is not None and not first and not known:
            raise failed
        found = self._jointly(first, known) if self.effort.level == "O2" else list(first)
        self._refine_further(mesh, first, known)
        if self.effort.level == "O2":
            self._refine_further(mesh, found, known)
        if mesh is not None:
            first, found = ([f for f in plans if f.mesh == mesh] for plans in (first, found))
        if failed is not None and not found:
            raise failed
        best = self.measured([*first, *known], "O1")
        if self.effort.level == "O2":
            best = min(best, self.measured([*found, *known], "O2"), key=self._exactly)
        bound = min(best.cost.step_time_s, self._bound(found))
        if best.cost.peak_memory_bytes > self.limit:
            raise self.too_large(best)
        return Outcome(best, bound, templates)

    def _jointly(self, first: Sequence[Found], known: Sequence[Found]) -> list[Found]:
        """The plans of O2 on all meshes of those of O1, in their order; the most promising meshes are tried first."""
        done: dict[Mesh, Found] = {}
        for plan in sorted(first, key=lambda f: (not self.fits(f), self.time(f))):
            done[plan.mesh] = plan
            if len(plan.mesh.axes) > 1:
                self.progress(f"mesh {plan.mesh} jointly")
                done[plan.mesh] = self.joint(plan.mesh, plan, self.ceiling([*first, *known, *done.values()]))
        return [done[plan.mesh] for plan in first]

    def _refine_further(self, mesh: Mesh | None, found: list[Found], known: Sequence[Found]) -> None:
        """Add the plans on meshes of more axes than one network decides, each from the best of those there are."""
        start = [*found, *known]
        leader = self.best(start) if start else None  # pins may ask for all axes of a mesh of three
        further = meshes(self.cluster, 3) if self.effort.mesh_axes > JOINT_AXES else []
        for candidate in [mesh] if mesh is not None else further:
            if len(candidate.axes) <= JOINT_AXES or not self.constraints.suits(candidate):
                continue
            if mesh or leader is None or embedding(leader.mesh, candidate) is not None:
                self.progress(f"mesh {candidate}")
                found.append(refine(self, candidate, [*found, *known]))

    def _bound(self, found: Sequence[Found]) -> float:
        """Seconds: the least bound of the meshes decided jointly; of the work alone if O1 decided some by axes."""
        if self.effort.level == "O1" and any(len(f.mesh.axes) > 1 for f in found):
            return self.floor_s
        return min([f.lower_bound for f in found if f.lower_bound > 0] or [self.floor_s])

    def _exactly(self, found: Found) -> tuple[bool, float, float]:
        """What is compared once plans are measured; less is better."""
        seconds, size = found.cost.step_time_s, found.cost.peak_memory_bytes
        if self.objective == "memory":
            return False, size, seconds
        return (False, seconds, size) if size <= self.limit else (True, size, seconds)

    def measured(self, found: Sequence[Found], level: str) -> Found:
        """The best by measure. Of a folded search the best few plans are measured, and every template."""
        if not self.rough:
            return self.best(found)
        order = sorted(
            found, key=lambda f: (not self.fits(f), self.time(f) if self.fits(f) else self.bytes(f))
        )
        finals = self._contenders(order[:FINALS])
        best = min((f for f in found if f.origin != "search" or f in finals), key=self._exactly)
        for f in finals:
            full = f.direct[1].peak_memory_bytes > self.limit
            if full and (best.cost.peak_memory_bytes > self.limit or self.time(f) < best.cost.step_time_s):
                best = min(best, self._tightened(f, level), key=self._exactly)
        return best

    def _contenders(self, ordered: Sequence[Found]) -> list[Found]:
        """Of some plans, the most promising first, those worth measuring: none that the network puts far behind one
        that was measured and fits.
        """
        out: list[Found] = []
        best = math.inf
        for found in ordered:
            if self.objective == "memory" or not self.time(found) > (1 + UNSURE) * best:
                out.append(found)
                if found.cost.peak_memory_bytes <= self.limit:
                    best = min(best, found.cost.step_time_s)
        return out

    def _tightened(self, found: Found, level: str) -> Found:
        """A plan on the mesh of one that needs more than the network thought, under a limit that makes up for it."""
        limit = self.limit
        for _ in range(ROUNDS):
            limit *= TIGHTER * self.limit / found.direct[1].peak_memory_bytes
            if level == "O2" and len(found.mesh.axes) <= JOINT_AXES:
                found = self.solve("search", found.mesh, limit=limit)
            else:
                found = self.axis_by_axis(found.mesh, [], limit)
            if found.direct[1].peak_memory_bytes <= self.limit:
                break
        return found


def floor_times(graph: Graph, cluster: Cluster) -> tuple[float, float]:
    """Seconds that the ops which follow their users take under any plan, and seconds that all ops take: every tensor
    and all work in as many pieces as there are devices, and no communication.
    """
    makers, total = [], []
    for node in graph.nodes:
        seconds = least_time(cluster.hardware, node.kind, cluster.size)
        total.append(seconds)
        if node.free and any(graph.values[v].uses or graph.values[v].returns for v in node.results):
            makers.append(seconds)
    return math.fsum(makers), math.fsum(total)


def does_not_fit(found: Found, limit: float) -> PlanError:
    """The error for a plan that needs more memory than there is."""
    needs = found.cost.peak_memory_bytes
    return PlanError(
        f"no plan was found that fits {_size(limit)} per device: the smallest needs {_size(needs)}",
        remedy="use more devices, a smaller batch or a higher memory limit, or let the pass `recompute` make again "
        "what attention keeps for the backward pass",
    )


def _size(value: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"


__all__ = ["Found", "Outcome", "Search", "does_not_fit"]
