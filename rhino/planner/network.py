"""One cost function network for the whole step, and back from an assignment to a decision.

Variables: every op that does not simply follow its users, every argument, and a *hub* for every value that is read
more than once. A hub picks one layout in which the value is made available to all its users: the value is brought
there once, and every user starts from there. So what users share is paid once. Costs: op times; edges: reshard
times. The new value of an argument (a parameter, an optimizer state) ends in the argument's own layout, because it
is the next step's argument; the loss and other outputs end replicated; a gradient ends like its parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rhino.ir.layout import Layout
from rhino.planner.candidates import Candidate
from rhino.planner.cost import VIEWS
from rhino.planner.fold import Folding, unfolded
from rhino.planner.graph import buckets, result_argument
from rhino.planner.hubs import (
    APART,
    KEEP,
    Hub,
    Strategy,
    barred_and_repeated,
    reads,
    same,
    sizes_of,
    strategies,
)
from rhino.planner.solver import Problem
from rhino.planner.space import Space, Spread


@dataclass(frozen=True)
class Decision:
    """A complete choice: a candidate per op (None where it follows), a layout per argument, a layout per hub; `again`:
    the values of which nothing larger is kept from one visit to the next.
    """

    nodes: tuple[Candidate | None, ...]
    arguments: tuple[Layout, ...]
    hubs: dict[int, Layout]
    again: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Demand:
    """A user of a value: the variable whose strategy says which layout it wants, or a fixed layout; `far`: it makes a
    view that is read long after.
    """

    variable: int | None
    spread: Spread | None
    layout: Layout | None
    far: bool = False

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """What it may want."""
        if self.spread is not None:
            return self.spread.layouts
        assert self.layout is not None
        return (self.layout,)


class Network:
    """Builds the problem of a plan space; `decide` and `assign` translate between assignments and decisions."""

    def __init__(
        self,
        space: Space,
        regions: Sequence[int] | None = None,
        folding: Folding | None = None,
        *,
        ways: bool = False,
        share_buckets: bool = True,
    ) -> None:
        """`regions` names for every op one whose decision it shares (see `rhino.planner.regions`); so does `folding`,
        whose classes the space must have been built with: what is counted once stands for all copies of it.

        With `ways` hubs also decide whether a layout is kept or made anew, see `rhino.planner.hubs`; else it is kept.
        Without `share_buckets` every collective counts in full, also where it will share a bucket.
        """
        self.space = space
        self.ways = ways
        self.graph = space.graph
        self.folding = unfolded(space.graph) if folding is None else folding
        self._costs: list[np.ndarray] = []
        self._edges: dict[tuple[int, int], np.ndarray] = {}
        self.node_variables: list[int | None] = []
        self.argument_variables: list[int] = []
        self.hubs: dict[int, Hub] = {}
        """Per value that is the first of its class and read more than once."""
        for index, (first, spread) in enumerate(zip(self.folding.arguments, space.arguments, strict=True)):
            alone = first == index
            self.argument_variables.append(
                self._variable(np.zeros(spread.size)) if alone else self.argument_variables[first]
            )
        for index, first in enumerate(self.folding.nodes):
            if first == index:
                self.node_variables.append(self._node(index, index if regions is None else regions[index]))
            else:
                self.node_variables.append(self.node_variables[first])
        self._reads = reads(self.graph)
        self._buckets = buckets(self.graph) if share_buckets else [0] * len(self.graph.values)
        for value, first in enumerate(self.folding.values):
            if first == value:
                self._connect(value, self.folding.value_copies[value])
        self.problem = Problem(tuple(self._costs), tuple((i, j, t) for (i, j), t in self._edges.items()))

    def _node(self, index: int, leader: int) -> int | None:
        """The variable of an op: its leader's if that has the very same strategies, else its own."""
        made, other = self.space.sets[index], self.space.sets[leader]
        if made is None:
            return None
        copies = self.folding.node_copies[index]
        times = made.times if copies == 1 else copies * made.times
        if leader == index or other is None or other.results[0] is not made.results[0]:
            return self._variable(times)
        variable = self.node_variables[leader]
        assert variable is not None
        self._unary(variable, times)
        return variable

    def source(self, value: int) -> tuple[int, Spread] | None:
        """The variable that decides a value's layout and the layouts it gives, or None when the value follows."""
        at = self.graph.values[value]
        if at.producer is None:
            return self.argument_variables[value], self.space.arguments[value]
        made = self.space.sets[at.producer]
        variable = self.node_variables[at.producer]
        return None if made is None or variable is None else (variable, made.results[at.port])

    def demands(self, value: int) -> list[Demand]:
        """All users of a value; users that want the same layouts by the same decision count once."""
        at = self.graph.values[value]
        whole = Layout.replicated(len(at.shape))
        out = []
        for user, position in at.uses:
            made = self.space.sets[user]
            if made is None:
                out.append(Demand(None, None, whole))
            else:
                view = self.graph.nodes[user].kind.name in VIEWS
                far = view and self._reads.last[self.graph.nodes[user].results[0]] - user > APART
                out.append(Demand(self.node_variables[user], made.operands[position], None, far))
        for result in at.returns:
            argument = result_argument(self.graph, result)
            if argument is None:
                out.append(Demand(None, None, whole))
            else:
                out.append(Demand(self.argument_variables[argument], self.space.arguments[argument], None))
        return list(dict.fromkeys(out))

    def _variable(self, costs: np.ndarray) -> int:
        self._costs.append(costs)
        return len(self._costs) - 1

    def _connect(self, value: int, copies: int) -> None:
        source, demands = self.source(value), self.demands(value)
        if source is None or not demands:
            return
        shop, at = self.space.shop, self.graph.values[value]
        bucket = self._buckets[value]
        variable, spread = source

        def table(to: Spread) -> np.ndarray:
            once = shop.table(at.shape, at.itemsize, spread, to, bucket)
            return once if copies == 1 else copies * once

        visits = self._reads.visits[value]
        if len(demands) > 1 or (self.ways and visits and visits[-1][1] - visits[0][0] > APART):
            hub = self._hub(value, spread, demands)
            stored = self._reads.stored[value]
            barred, times = barred_and_repeated(hub, spread, at.shape, stored, len(visits))
            self._edge(variable, hub.variable, np.where(barred, np.inf, table(hub.spread) * times))
            variable, spread = hub.variable, hub.spread
        for demand in demands:
            if demand.spread is None or demand.variable is None:
                assert demand.layout is not None
                self._unary(variable, table(shop.spread([demand.layout]))[:, 0])
                continue
            once = table(demand.spread)
            if self.ways and demand.far:
                # What such a view holds is counted with the hub, not with the view.
                before = sizes_of(at.shape, spread)[:, None]
                barred = (before <= sizes_of(at.shape, demand.spread)) & ~same(spread, demand.spread)
                once = np.where(barred, np.inf, once)
            self._edge(variable, demand.variable, once)

    def _hub(self, value: int, source: Spread, demands: Sequence[Demand]) -> Hub:
        at, shop = self.graph.values[value], self.space.shop
        layouts = dict.fromkeys(source.layouts)
        for demand in demands:
            layouts.update(dict.fromkeys(demand.layouts))
        found = (
            strategies(at.shape, list(layouts), source.layouts, self.rooted(value))
            if self.ways
            else [Strategy(layout) for layout in layouts]
        )
        spread = shop.spread([strategy.layout for strategy in found])
        variable = self._variable(np.zeros(spread.size))
        self.hubs[value] = Hub(variable, tuple(found), spread, sizes_of(at.shape, spread))
        return self.hubs[value]

    def rooted(self, value: int) -> bool:
        """Whether the memory of a value is that of another, or an argument's."""
        producer = self.graph.values[value].producer
        return producer is None or self.graph.nodes[producer].kind.name in VIEWS

    def _unary(self, variable: int, extra: np.ndarray) -> None:
        if extra.any():
            self._costs[variable] = self._costs[variable] + extra

    def _edge(self, i: int, j: int, table: np.ndarray) -> None:
        if i == j:
            self._unary(i, np.diagonal(table))
        elif table.any():
            key, table = ((i, j), table) if i < j else ((j, i), table.T)
            known = self._edges.get(key)
            self._edges[key] = table if known is None else known + table

    def decide(self, assignment: Sequence[int]) -> Decision:
        """The decision that an assignment stands for."""
        nodes: list[Candidate | None] = []
        for variable, made in zip(self.node_variables, self.space.sets, strict=True):
            nodes.append(None if variable is None or made is None else made.candidates[assignment[variable]])
        arguments = tuple(
            spread.at(assignment[variable])
            for variable, spread in zip(self.argument_variables, self.space.arguments, strict=True)
        )
        chosen = {value: hub.strategies[assignment[hub.variable]] for value, hub in self.hubs.items()}
        of = {value: chosen[first] for value, first in enumerate(self.folding.values) if first in chosen}
        again = frozenset(value for value, strategy in of.items() if strategy.way != KEEP)
        return Decision(tuple(nodes), arguments, {v: strategy.layout for v, strategy in of.items()}, again)

    def assign(self, decision: Decision) -> list[int] | None:
        """An assignment that stands for a decision, hubs chosen to fit; None when it is not in this space."""
        picks = [-1] * len(self.problem.costs)
        for variable, made, candidate in zip(
            self.node_variables, self.space.sets, decision.nodes, strict=True
        ):
            if variable is None or made is None or candidate is None or picks[variable] >= 0:
                continue
            found = made.place.get(candidate.placement)
            if found is None:
                return None
            picks[variable] = found
        for variable, spread, layout in zip(
            self.argument_variables, self.space.arguments, decision.arguments, strict=True
        ):
            if layout not in spread.layouts:
                return None
            picks[variable] = int(np.flatnonzero(spread.index == spread.layouts.index(layout))[0])
        around: dict[int, np.ndarray] = {
            hub.variable: self.problem.costs[hub.variable] for hub in self.hubs.values()
        }
        for i, j, table in self.problem.edges:
            if i in around and picks[j] >= 0:
                around[i] = around[i] + table[:, picks[j]]
            if j in around and picks[i] >= 0:
                around[j] = around[j] + table[picks[i]]
        for variable, costs in around.items():
            picks[variable] = int(np.argmin(costs))
        return picks
