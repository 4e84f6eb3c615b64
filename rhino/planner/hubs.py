"""How a value is brought to those that read it: once and kept, or anew wherever it is read.

A gathered activation that the forward and the backward pass read can be kept in between, or only its shards are kept
and gathered twice. Under a memory limit a hub decides that together with its layout. *Visits* are the stretches of a
program in which readers follow each other closely: what is made anew is made once for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rhino.ir.layout import Layout
from rhino.planner.cost import VIEWS, elements
from rhino.planner.graph import COMPUTE, Graph
from rhino.planner.space import Spread

#: Readers further apart than this many ops are on different visits.
APART = 64

#: Ways: the layout is made once and kept; it is a view of what is there anyway; it is made anew for every visit.
KEEP, SAME, AGAIN = 0, 1, 2


@dataclass(frozen=True)
class Strategy:
    """One way of bringing a value to its readers.

    Attributes:
        layout: what it is brought into.
        way: KEEP, SAME or AGAIN.
        held: of AGAIN, the most elements that the source's layout may have, which then stay alive.
    """

    layout: Layout
    way: int = KEEP
    held: int = 0


@dataclass(frozen=True, eq=False)
class Hub:
    """The variable of a value's strategies; `spread` has the layout of each."""

    variable: int
    strategies: tuple[Strategy, ...]
    spread: Spread
    sizes: np.ndarray
    """Elements on one device, per strategy."""

    @property
    def way(self) -> np.ndarray:
        return np.array([s.way for s in self.strategies])

    @property
    def held(self) -> np.ndarray:
        return np.array([s.held for s in self.strategies])


def strategies(
    shape: tuple[int, ...], layouts: Sequence[Layout], sources: Sequence[Layout], rooted: bool
) -> list[Strategy]:
    """All strategies that bring a value from one of `sources` into one of `layouts` and that can be worth it.

    Of the sizes of sources the least, the middle one and the greatest below the layout's are told apart. A *rooted*
    value is an argument or a view: its memory is that of something else and stays, whatever its hub does.
    """
    sizes = {elements(shape, source) for source in sources}
    out = []
    for layout in layouts:
        size = elements(shape, layout)
        smaller = sorted(s for s in sizes if s < size)
        out.append(Strategy(layout))
        if rooted:
            out.append(Strategy(layout, SAME))
            out += [Strategy(layout, AGAIN, smaller[-1])] if smaller else []
        else:
            levels = {smaller[0], smaller[len(smaller) // 2], smaller[-1]} if smaller else ()
            out += [Strategy(layout, AGAIN, held) for held in sorted(levels)]
    return out


def barred_and_repeated(
    hub: Hub, source: Spread, shape: tuple[int, ...], stored: bool, visits: int
) -> tuple[np.ndarray, np.ndarray]:
    """Tables of the source's strategies and the hub's: what is no way at all, and how often a reshard is made.

    A *stored* value is an argument or a view of one, of which a device's own piece is a view, too.
    """
    before = sizes_of(shape, source)[:, None]
    after, way = hub.sizes[None, :], hub.way[None, :]
    view = same(source, hub.spread)
    if stored:
        view = view | (after < before)
    again = (before < after) & (before <= hub.held[None, :])
    barred = ((way == SAME) & ~view) | ((way == AGAIN) & ~again)
    return barred, np.where((way == AGAIN) & again, visits, 1)


def same(a: Spread, b: Spread) -> np.ndarray:
    """Table of where the strategies of two spreads have the same layout."""
    place = {layout: i for i, layout in enumerate(a.layouts)}
    found = np.array([place.get(layout, -1) for layout in b.layouts])[b.index]
    return np.asarray(a.index[:, None] == found[None, :])


def sizes_of(shape: tuple[int, ...], spread: Spread) -> np.ndarray:
    """Elements of a value on one device, per strategy."""
    return np.array([elements(shape, layout) for layout in spread.layouts])[spread.index]


@dataclass(frozen=True)
class Reads:
    """When the values of a program are read.

    Attributes:
        stored: per value whether it is an argument, or a view of one.
        last: per value the op that reads it, or a view of it, last.
        visits: per value the stretches ``[start, end)`` of ops in which it is read.
    """

    stored: list[bool]
    last: list[int]
    visits: list[list[tuple[int, int]]]


def reads(graph: Graph) -> Reads:
    """Worked out once."""
    if "reads" not in graph.memo:
        last = _last_uses(graph)
        graph.memo["reads"] = Reads(_stored(graph), last, _visits(graph, last))
    found: Reads = graph.memo["reads"]
    return found


def _stored(graph: Graph) -> list[bool]:
    out = [value.producer is None for value in graph.values]
    for node in graph.nodes:
        if node.kind.name in VIEWS and out[node.operands[0]]:
            out[node.results[0]] = True
    return out


def _last_uses(graph: Graph) -> list[int]:
    end = len(graph.nodes)
    last = [0] * len(graph.values)
    for value in reversed(range(len(graph.values))):
        at = graph.values[value]
        last[value] = end if at.returns else 0 if at.producer is None else at.producer
        for user, _ in at.uses:
            node = graph.nodes[user]
            last[value] = max(last[value], last[node.results[0]] if node.kind.name in VIEWS else user)
    return last


def _visits(graph: Graph, last: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Readers from which no matrix product follows (the update of a parameter) are left out where there are others:
    they take what there is. A reader that makes a view is there until the view is read for the last time.
    """
    ahead = [False] * len(graph.values)
    leads = [False] * len(graph.nodes)
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        leads[index] = node.kind.name in COMPUTE or any(ahead[v] for v in node.results)
        if leads[index]:
            for value in node.operands:
                ahead[value] = True
    out = []
    for at in graph.values:
        users = [user for user, _ in at.uses]
        found: list[tuple[int, int]] = []
        before = -APART - 1
        for user in [u for u in users if leads[u]] or users:
            node = graph.nodes[user]
            end = 1 + (last[node.results[0]] if node.kind.name in VIEWS else user)
            if user - before <= APART:
                found[-1] = found[-1][0], max(found[-1][1], end)
            else:
                found.append((user, end))
            before = user
        out.append(found)
    return out
