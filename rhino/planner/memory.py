"""Memory in the network: what every variable's choice keeps alive, and when.

Time is counted in ops. A value takes the bytes of its layout from its op to its last reader (readers of its views
included). With a hub, the value as made lives for one op and the hub's layout for the rest. Parameters and states
take theirs through the whole step, and what is gathered from them only while the op that reads it runs. A variable
with several such *components* gets copies that are tied to it by tables of zeros and infinities.

This is the search's view; what a plan really needs is swept by `rhino.planner.tally`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rhino.planner.candidates import COMPUTE
from rhino.planner.cost import VIEWS
from rhino.planner.network import Network
from rhino.planner.solver import Problem
from rhino.planner.space import Spread
from rhino.planner.tally import KEPT


@dataclass(frozen=True)
class Component:
    """Bytes that `variable` keeps alive over the ops ``[start, end)``, per strategy."""

    variable: int
    usage: np.ndarray
    start: int
    end: int


class Memory:
    """The components of a network, and the problems with a limit that they make of it."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.graph = network.graph
        self._last = self._last_uses()
        self.components = [*self._arguments(), *self._results(), *self._temporaries()]

    def problem(self, limit: float) -> Problem:
        """The network under a limit of bytes per device."""
        costs = list(self.network.problem.costs)
        edges = list(self.network.problem.edges)
        usages = [np.zeros(len(c)) for c in costs]
        intervals = [(0, 0)] * len(costs)
        ties: dict[int, np.ndarray] = {}
        for component in self.components:
            if component.usage.max() <= limit * 1e-6:
                continue
            variable, size = component.variable, len(component.usage)
            if intervals[variable] == (0, 0):
                usages[variable], intervals[variable] = component.usage, (component.start, component.end)
                continue
            if size not in ties:
                ties[size] = np.where(np.eye(size, dtype=bool), 0.0, math.inf)
            edges.append((variable, len(costs), ties[size]))
            costs.append(np.zeros(size))
            usages.append(component.usage)
            intervals.append((component.start, component.end))
        return Problem(tuple(costs), tuple(edges), tuple(usages), tuple(intervals), limit)

    def _last_uses(self) -> list[int]:
        """Per value the op that reads it, or a view of it, last."""
        end = len(self.graph.nodes)
        last = [0] * len(self.graph.values)
        for value in reversed(range(len(self.graph.values))):
            at = self.graph.values[value]
            last[value] = end if at.returns else 0 if at.producer is None else at.producer
            for user, _ in at.uses:
                node = self.graph.nodes[user]
                last[value] = max(last[value], last[node.results[0]] if node.kind.name in VIEWS else user)
        return last

    def _bytes(self, value: int, spread: Spread) -> np.ndarray:
        at = self.graph.values[value]
        each = np.array([at.itemsize * math.prod(layout.local_shape(at.shape)) for layout in spread.layouts])
        return each[spread.index].astype(np.float64)

    def _arguments(self) -> list[Component]:
        end = len(self.graph.nodes) + 1
        replaced = {slot.alias for slot in self.graph.results}
        out = []
        for i, variable in enumerate(self.network.argument_variables):
            kept = i in replaced or self.graph.arguments[i].role in KEPT
            usage = self._bytes(i, self.network.space.arguments[i])
            out.append(Component(variable, usage, 0, end if kept else self._last[i] + 1))
        return out

    def _results(self) -> list[Component]:
        out = []
        for value, at in enumerate(self.graph.values):
            if at.producer is None or any(self.graph.results[r].alias is not None for r in at.returns):
                continue  # the new value of an argument takes the old one's place
            source = self.network.source(value)
            if source is None:
                continue
            start, end = at.producer, self._last[value] + 1
            hub = self.network.hubs.get(value)
            if hub is not None:
                out.append(Component(hub[0], self._bytes(value, hub[1]), start + 1, end))
                end = start + 1
            if self.graph.nodes[at.producer].kind.name not in VIEWS:
                out.append(Component(source[0], self._bytes(value, source[1]), start, end))
        return [c for c in out if c.start < c.end]

    def _temporaries(self) -> list[Component]:
        """What matrix products read of parameters, while they run."""
        out = []
        stored = [at.producer is None for at in self.graph.values]
        for index, node in enumerate(self.graph.nodes):
            if node.kind.name in VIEWS and stored[node.operands[0]]:
                stored[node.results[0]] = True
            made, variable = self.network.space.sets[index], self.network.node_variables[index]
            if made is None or variable is None or node.kind.name not in COMPUTE:
                continue
            usage = sum(
                (
                    self._bytes(value, spread)
                    for value, spread in zip(node.operands, made.operands, strict=True)
                    if stored[value]
                ),
                np.zeros(len(made.times)),
            )
            if usage.any():
                out.append(Component(variable, usage, index, index + 1))
        return out
