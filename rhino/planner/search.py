"""The search of one plan space: a mesh, all of it or axis by axis, or a template; with and without a memory limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace

from rhino.ir.errors import PlanError
from rhino.ir.mesh import Mesh
from rhino.passes.buckets import BUCKET_BYTES
from rhino.planner.candidates import Options, discover
from rhino.planner.cluster import Cluster
from rhino.planner.effort import Effort
from rhino.planner.fold import fold, together, unfolded
from rhino.planner.found import Found, does_not_fit, floor_times
from rhino.planner.graph import Graph, weight
from rhino.planner.memory import Lifetimes, Memory
from rhino.planner.meshes import template_meshes
from rhino.planner.network import Network
from rhino.planner.pins import Constraints, clash, culprits
from rhino.planner.refine import refine
from rhino.planner.regions import regions
from rhino.planner.solver import Infeasible, NothingBelow, Solution, solve
from rhino.planner.space import MICRO, Restriction, Space, Workshop, build_space
from rhino.planner.templates import template

#: Rounds of the solver after its exact phase: a count, so that the plan does not depend on the clock.
ITERATIONS = 100

#: Rounds under a memory limit that may bring nothing before it stops.
PATIENCE = 20

#: Relative distance from the bound at which a plan is good enough.
GAP = 1e-4

#: The same under a memory limit, where the network's own figures are less certain than that.
GAP_WITHIN = 2e-3

#: How often the network's limit is tightened when the plan that it finds needs more than it thought.
ROUNDS = 4

#: Programs whose parameters fill fewer buckets are also planned as if there were none.
FEW_BUCKETS = 16

#: How often the search for the least memory halves the distance to what is known to be too little.
LEAST_ROUNDS = 6


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
        """`constraints` narrow every plan space; layers are folded if these ask the same of all of them; `objective`
        is ``time``, or ``memory`` for what needs the least. Raises PlanError for a pattern that matches nothing.
        """
        self.constraints = constraints or Constraints()
        self.objective = objective
        self.graph = graph
        self.cluster = cluster
        self.limit = limit
        self.progress = progress
        self.effort = effort or Effort()
        self.options: Options = discover(graph)
        self.folding = fold(graph, self.options) if self.effort.folded else unfolded(graph)
        if not self.constraints.alike(graph, self.folding):
            self.folding = unfolded(graph)
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
        for candidate in [mesh] if mesh is not None else template_meshes(name, self.cluster):
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
