"""What a search finds: complete plans, and what no plan can beat."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from rhino.ir.errors import PlanError
from rhino.ir.mesh import Mesh
from rhino.ir.quantity import size
from rhino.planner.cluster import Cluster
from rhino.planner.cost import least_time
from rhino.planner.graph import Graph
from rhino.planner.network import Decision
from rhino.planner.schedule import Schedule, cost_of, schedule
from rhino.planner.space import Workshop
from rhino.planner.tally import PlanCost


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
        f"no plan was found that fits {size(limit)} per device: the smallest needs {size(needs)}",
        remedy="use more devices, a smaller batch or a higher memory limit, or let the pass `recompute` make again "
        "what attention keeps for the backward pass",
    )
