"""Memory in the network: what every variable's choice keeps alive, and when.

Time is counted in ops (in moments, see `rhino.planner.timeline`, when layers are folded). A value takes the bytes of
its layout from its op to its last reader (readers of its views included). With a hub, the value as made lives for one
op and the hub's layout for the rest, or, where that is made anew, the value as made for the rest and the hub's layout
on every visit. Parameters and states take theirs through the whole step. Makers take what `rhino.planner.cost.held`
says, which is next to nothing, and are left out. A variable with several such *components* gets copies that are tied
to it by tables of zeros and infinities.

This is the search's view; what a plan really needs is swept by `rhino.planner.tally`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rhino.planner.cost import elements
from rhino.planner.fold import Folding
from rhino.planner.graph import Graph
from rhino.planner.hubs import AGAIN, KEEP, SAME, Strategy, barred_and_repeated, reads
from rhino.planner.network import Network
from rhino.planner.solver import Problem
from rhino.planner.space import Spread
from rhino.planner.tally import KEPT
from rhino.planner.timeline import Span, Timeline


@dataclass(frozen=True)
class Component:
    """Bytes that `variable` keeps alive over the moments ``[start, end)``, per strategy; none under the pairs of
    strategies of `source` and `variable` that `free` names.
    """

    variable: int
    usage: np.ndarray
    start: int
    end: int
    source: int = 0
    free: np.ndarray | None = None


class Lifetimes:
    """When the values of a program are alive, by classes of copies; the same for all its networks."""

    def __init__(self, graph: Graph, folding: Folding) -> None:
        self.graph = graph
        self.timeline = Timeline(len(graph.nodes), folding.runs, folding.repeats)
        last = reads(graph).last
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
        visits: dict[int, list[list[tuple[int, int]]]] = {}
        for value, found in enumerate(reads(graph).visits):
            if found:
                visits.setdefault(folding.values[value], []).append(found)
        self.read = {v: spans((a, b) for f in each for a, b in f) for v, each in visits.items()}
        """Per first value of a class the visits of its readers."""
        self.between = {v: spans((f[0][0], f[-1][1]) for f in each) for v, each in visits.items()}
        """The same, with all between the first and the last."""


class Memory:
    """The components of a network, and the problems with a limit that they make of it."""

    def __init__(self, network: Network, lifetimes: Lifetimes | None = None) -> None:
        self.network = network
        self.graph = network.graph
        self.lifetimes = lifetimes or Lifetimes(network.graph, network.folding)
        self.components = [*self._arguments(), *self._results(), *self._rooted()]

    def peak(self, assignment: Sequence[int]) -> float:
        """The most bytes that an assignment keeps alive at any moment."""
        line = np.zeros(self.lifetimes.timeline.size + 1)
        for component in self.components:
            pick = assignment[component.variable]
            if component.free is not None and component.free[assignment[component.source], pick]:
                continue
            usage = component.usage[pick]
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
            source = self.network.source(value)
            if self.graph.values[value].producer is None or source is None or self.network.rooted(value):
                continue
            hub = self.network.hubs.get(value)
            if hub is not None:
                itemsize = self.graph.values[value].itemsize
                again = hub.way == AGAIN
                kept = itemsize * np.where(again, hub.held, hub.sizes).astype(np.float64)
                out += _components(hub.variable, kept, self.lifetimes.rest[value])
                if again.any():
                    anew = itemsize * np.where(again, hub.sizes, 0).astype(np.float64)
                    out += _components(hub.variable, anew, self.lifetimes.read.get(value, ()))
                spans = self.lifetimes.made[value]
            out += _components(source[0], self._bytes(value, source[1]), spans)
        return out

    def _rooted(self) -> list[Component]:
        """What hubs make of arguments and views."""
        out = []
        for value, hub in self.network.hubs.items():
            source = self.network.source(value)
            if source is None or not self.network.rooted(value):
                continue
            at = self.graph.values[value]
            made = at.itemsize * hub.sizes.astype(np.float64)
            kept, anew = (np.where(hub.way == way, made, 0.0) for way in (KEEP, AGAIN))
            free = None
            if not self.network.ways:
                free, _ = barred_and_repeated(
                    replace(hub, strategies=tuple(Strategy(s.layout, SAME) for s in hub.strategies)),
                    source[1], at.shape, reads(self.graph).stored[value], 1,
                )  # fmt: skip
                free = ~free
            spans = self.lifetimes.between.get(value, ())
            out += [Component(c.variable, c.usage, c.start, c.end, source[0], free)
                    for c in _components(hub.variable, kept, spans)]  # fmt: skip
            if anew.any():
                out += _components(hub.variable, anew, self.lifetimes.read.get(value, ()))
        return out


def _components(variable: int, usage: np.ndarray, spans: Iterable[Span]) -> list[Component]:
    return [Component(variable, usage if n == 1 else n * usage, a, b) for a, b, n in spans]
