"""Memory in the network: what every variable's choice keeps alive, and when.

Time is counted in ops (in moments, see `rhino.planner.timeline`, when layers are folded). A value takes the bytes of
its layout from its op to its last reader (readers of its views included). With a hub, the value as made lives for one
op and the hub's layout for the rest. Parameters and states take theirs through the whole step, and what is gathered
from them only while the op that reads it runs. A variable with several such *components* gets copies that are tied to
it by tables of zeros and infinities.

This is the search's view; what a plan really needs is swept by `rhino.planner.tally`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rhino.planner.candidates import COMPUTE
from rhino.planner.cost import VIEWS, elements
from rhino.planner.fold import Folding
from rhino.planner.graph import Graph
from rhino.planner.network import Network
from rhino.planner.solver import Problem
from rhino.planner.space import Spread
from rhino.planner.tally import KEPT
from rhino.planner.timeline import Span, Timeline


@dataclass(frozen=True)
class Component:
    """Bytes that `variable` keeps alive over the moments ``[start, end)``, per strategy."""

    variable: int
    usage: np.ndarray
    start: int
    end: int


class Lifetimes:
    """When the values of a program are alive, by classes of copies; the same for all its networks."""

    def __init__(self, graph: Graph, folding: Folding) -> None:
        self.graph = graph
        self.timeline = Timeline(len(graph.nodes), folding.runs)
        last = _last_uses(graph)
        end = len(graph.nodes) + 1
        replaced = {slot.alias for slot in graph.results}
        whole: dict[int, list[tuple[int, int]]] = {}
        for value, first in enumerate(folding.values):
            at = graph.values[value]
            if at.producer is None:
                kept = value in replaced or graph.arguments[value].role in KEPT
                whole.setdefault(first, []).append((0, end if kept else last[value] + 1))
            elif all(graph.results[r].alias is None for r in at.returns):
                # the new value of an argument takes the old one's place
                whole.setdefault(first, []).append((at.producer, last[value] + 1))
        spans = self.timeline.spans
        self.whole = {value: spans(lives) for value, lives in whole.items()}
        """Per first value of a class the spans of its class, from its op to its last reader."""
        self.made = {value: spans((a, a + 1) for a, _ in lives) for value, lives in whole.items()}
        """The same, of the op that makes it alone."""
        self.rest = {value: spans((a + 1, b) for a, b in lives) for value, lives in whole.items()}
        """The same, from the next op on."""
        runs: dict[int, list[tuple[int, int]]] = {}
        for index, first in enumerate(folding.nodes):
            if graph.nodes[index].kind.name in COMPUTE:
                runs.setdefault(first, []).append((index, index + 1))
        self.compute = {index: spans(lives) for index, lives in runs.items()}
        """Per first matrix product of a class when the products of the class run."""
        self.stored = [at.producer is None for at in graph.values]
        """Per value whether it is an argument, or a view of one."""
        for node in graph.nodes:
            if node.kind.name in VIEWS and self.stored[node.operands[0]]:
                self.stored[node.results[0]] = True


def _last_uses(graph: Graph) -> list[int]:
    """Per value the op that reads it, or a view of it, last."""
    end = len(graph.nodes)
    last = [0] * len(graph.values)
    for value in reversed(range(len(graph.values))):
        at = graph.values[value]
        last[value] = end if at.returns else 0 if at.producer is None else at.producer
        for user, _ in at.uses:
            node = graph.nodes[user]
            last[value] = max(last[value], last[node.results[0]] if node.kind.name in VIEWS else user)
    return last


class Memory:
    """The components of a network, and the problems with a limit that they make of it."""

    def __init__(self, network: Network, lifetimes: Lifetimes | None = None) -> None:
        self.network = network
        self.graph = network.graph
        self.lifetimes = lifetimes or Lifetimes(network.graph, network.folding)
        self.components = [*self._arguments(), *self._results(), *self._temporaries()]

    def peak(self, assignment: Sequence[int]) -> float:
        """The most bytes that an assignment keeps alive at any moment."""
        line = np.zeros(self.lifetimes.timeline.size + 1)
        for component in self.components:
            usage = component.usage[assignment[component.variable]]
            line[component.start] += usage
            line[component.end] -= usage
        return float(np.cumsum(line).max())

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

    def _bytes(self, value: int, spread: Spread) -> np.ndarray:
        at = self.graph.values[value]
        each = np.array([at.itemsize * elements(at.shape, layout) for layout in spread.layouts])
        return each[spread.index].astype(np.float64)

    def _arguments(self) -> list[Component]:
        out = []
        for i, variable in enumerate(self.network.argument_variables):
            if i in self.lifetimes.whole:
                usage = self._bytes(i, self.network.space.arguments[i])
                out += _components(variable, usage, self.lifetimes.whole[i])
        return out

    def _results(self) -> list[Component]:
        out = []
        for value, spans in self.lifetimes.whole.items():
            at, source = self.graph.values[value], self.network.source(value)
            if at.producer is None or source is None:
                continue
            hub = self.network.hubs.get(value)
            if hub is not None:
                out += _components(hub[0], self._bytes(value, hub[1]), self.lifetimes.rest[value])
                spans = self.lifetimes.made[value]
            if self.graph.nodes[at.producer].kind.name not in VIEWS:
                out += _components(source[0], self._bytes(value, source[1]), spans)
        return out

    def _temporaries(self) -> list[Component]:
        """What matrix products read of parameters, while they run."""
        out = []
        for index, spans in self.lifetimes.compute.items():
            node = self.graph.nodes[index]
            made, variable = self.network.space.sets[index], self.network.node_variables[index]
            if made is None or variable is None:
                continue
            usage = sum(
                (
                    self._bytes(value, spread)
                    for value, spread in zip(node.operands, made.operands, strict=True)
                    if self.lifetimes.stored[value]
                ),
                np.zeros(len(made.times)),
            )
            if usage.any():
                out += _components(variable, usage, spans)
        return out


def _components(variable: int, usage: np.ndarray, spans: Iterable[Span]) -> list[Component]:
    return [Component(variable, usage if n == 1 else n * usage, a, b) for a, b, n in spans]
