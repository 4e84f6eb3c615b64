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
from rhino.planner.fold import Folding, unfolded
from rhino.planner.graph import buckets, result_argument
from rhino.planner.solver import Problem
from rhino.planner.space import Space, Spread


@dataclass(frozen=True)
class Decision:
    """A complete choice: a candidate per op (None where it follows), a layout per argument, a layout per hub."""

    nodes: tuple[Candidate | None, ...]
    arguments: tuple[Layout, ...]
    hubs: dict[int, Layout]


@dataclass(frozen=True)
class Demand:
    """A user of a value: the variable whose strategy says which layout it wants, or a fixed layout."""

    variable: int | None
    spread: Spread | None
    layout: Layout | None

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
        share_arguments: bool = True,
        share_buckets: bool = True,
    ) -> None:
        """`regions` names for every op one whose decision it shares (see `rhino.planner.regions`); so does `folding`,
        whose classes the space must have been built with: what is counted once stands for all copies of it.

        Without `share_arguments` arguments get no hubs: what is gathered from them is gathered for each user. Without
        `share_buckets` every collective counts in full, also where it will share a bucket.
        """
        self.space = space
        self.share_arguments = share_arguments
        self.graph = space.graph
        self.folding = unfolded(space.graph) if folding is None else folding
        self._costs: list[np.ndarray] = []
        self._edges: dict[tuple[int, int], np.ndarray] = {}
        self.node_variables: list[int | None] = []
        self.argument_variables: list[int] = []
        self.hubs: dict[int, tuple[int, Spread]] = {}
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
                out.append(Demand(self.node_variables[user], made.operands[position], None))
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

        if len(demands) > 1 and (self.share_arguments or at.producer is not None):
            layouts = dict.fromkeys(spread.layouts)
            for demand in demands:
                layouts.update(dict.fromkeys(demand.layouts))
            hub_spread = shop.spread(list(layouts))
            hub = self._variable(np.zeros(hub_spread.size))
            self.hubs[value] = hub, hub_spread
            self._edge(variable, hub, table(hub_spread))
            variable, spread = hub, hub_spread
        for demand in demands:
            if demand.spread is None or demand.variable is None:
                assert demand.layout is not None
                self._unary(variable, table(shop.spread([demand.layout]))[:, 0])
                continue
            self._edge(variable, demand.variable, table(demand.spread))

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
        chosen = {value: spread.at(assignment[variable]) for value, (variable, spread) in self.hubs.items()}
        hubs = {value: chosen[first] for value, first in enumerate(self.folding.values) if first in chosen}
        return Decision(tuple(nodes), arguments, hubs)

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
        around: dict[int, np.ndarray] = {v: self.problem.costs[v] for v, _ in self.hubs.values()}
        for i, j, table in self.problem.edges:
            if i in around and picks[j] >= 0:
                around[i] = around[i] + table[:, picks[j]]
            if j in around and picks[i] >= 0:
                around[j] = around[j] + table[picks[i]]
        for variable, costs in around.items():
            picks[variable] = int(np.argmin(costs))
        return picks
