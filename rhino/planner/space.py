"""The plan space on one mesh: for every op its candidates with their times, for every argument its layouts.

Everything is worked out once per distinct question (op kind and choices, pair of layout sets and shape) and shared
by all equal ops, whatever layer they stand in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rhino.ir.layout import Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.rule import Placement
from rhino.planner.candidates import (
    Candidate,
    Choice,
    Mark,
    Options,
    argument_layouts,
    candidates,
    choices_for,
    marks_for,
)
from rhino.planner.cluster import Cluster
from rhino.planner.communication import Communication
from rhino.planner.cost import op_time
from rhino.planner.fold import Folding, unfolded
from rhino.planner.graph import Graph, Kind

#: Networks count in microseconds: a plan's cost is then far from the solver's smallest distinguishable difference.
MICRO = 1e6


@dataclass(frozen=True, eq=False)
class Spread:
    """The layouts that a value has under the strategies of its owner: ``layouts[index[strategy]]``.

    Equal spreads are one object, so that identity serves as a key.
    """

    layouts: tuple[Layout, ...]
    index: np.ndarray

    def at(self, strategy: int) -> Layout:
        return self.layouts[int(self.index[strategy])]

    @property
    def size(self) -> int:
        """Number of strategies."""
        return len(self.index)


@dataclass(frozen=True, eq=False)
class CandidateSet:
    """The candidates of ops of one kind with equal choices: times in microseconds, and the layouts of every port."""

    candidates: tuple[Candidate, ...]
    times: np.ndarray
    operands: tuple[Spread, ...]
    results: tuple[Spread, ...]

    @cached_property
    def place(self) -> dict[Placement, int]:
        """The strategy of every placement."""
        return {candidate.placement: i for i, candidate in enumerate(self.candidates)}


class Workshop:
    """Makes and remembers candidate sets, layout sets and reshard tables for one cluster and mesh."""

    def __init__(self, cluster: Cluster, mesh: Mesh) -> None:
        self.cluster = cluster
        self.mesh = mesh
        self.axes: tuple[AxisRef, ...] = tuple(mesh.axis(name) for name, _ in mesh.axes)
        self.communication = Communication(cluster, mesh)
        self._spreads: dict[tuple[tuple[Layout, ...], bytes], Spread] = {}
        self._sets: dict[object, tuple[Kind, CandidateSet]] = {}
        self._digits: dict[object, dict[Layout, tuple[Mark | None, ...]]] = {}
        self._seconds: dict[tuple[int, Placement], float] = {}
        self._pairs: dict[
            tuple[tuple[int, ...], int, tuple[Layout, ...], tuple[Layout, ...], int], np.ndarray
        ] = {}
        self._tables: dict[tuple[tuple[int, ...], int, int, int, int], np.ndarray] = {}

    def spread(self, layouts: Sequence[Layout]) -> Spread:
        """The spread of a list of layouts, one per strategy."""
        place: dict[Layout, int] = {}
        index = np.array([place.setdefault(layout, len(place)) for layout in layouts], dtype=np.int32)
        key = tuple(place), index.tobytes()
        return self._spreads.setdefault(key, Spread(key[0], index))

    def candidate_set(
        self, kind: Kind, choices: tuple[tuple[Choice, ...], ...], together: tuple[tuple[int, ...], ...] = ()
    ) -> CandidateSet:
        """Candidates of an op of `kind` with ``choices[i]`` open to axis i; axes `together` choose alike."""
        key = id(kind), choices, together
        if key not in self._sets:
            found = candidates(kind.rule, choices, self.axes, together)
            times = [
                MICRO
                * (
                    self.op_seconds(kind, c.placement, c.shards)
                    + self.communication.edge_seconds(kind, c.placement)
                )
                for c in found
            ]
            made = CandidateSet(
                found,
                np.array(times),
                tuple(
                    self.spread([c.placement.operands[i] for c in found]) for i in range(len(kind.operands))
                ),
                tuple(self.spread([c.placement.results[i] for c in found]) for i in range(len(kind.results))),
            )
            self._sets[key] = kind, made  # the kind is kept alive: its identity is the key
        return self._sets[key][1]

    def op_seconds(self, kind: Kind, placement: Placement, shards: int) -> float:
        """`op_time`, remembered. Kinds live as long as their graph, so their identity is a key."""
        key = id(kind), placement
        if key not in self._seconds:
            self._seconds[key] = op_time(self.cluster.hardware, kind, placement, shards)
        return self._seconds[key]

    def argument(
        self, shape: tuple[int, ...], marks: tuple[tuple[Mark | None, ...], ...]
    ) -> dict[Layout, tuple[Mark | None, ...]]:
        """The layouts of an argument with ``marks[i]`` open to axis i, each with the marks it takes."""
        key = shape, marks
        if key not in self._digits:
            self._digits[key] = argument_layouts(shape, marks, self.axes)
        return self._digits[key]

    def table(
        self, shape: tuple[int, ...], itemsize: int, a: Spread, b: Spread, bucket: int = 0
    ) -> np.ndarray:
        """Reshard times in microseconds from every strategy of `a` to every strategy of `b`.

        `bucket`: bytes of the buckets that collectives count for their share of (see `Communication.share`), or 0.
        """
        key = shape, itemsize, id(a), id(b), bucket
        if key not in self._tables:
            pairs = self._unique(shape, itemsize, a.layouts, b.layouts, bucket)
            self._tables[key] = np.ascontiguousarray(pairs[np.ix_(a.index, b.index)])
        return self._tables[key]

    def _unique(
        self,
        shape: tuple[int, ...],
        itemsize: int,
        a: tuple[Layout, ...],
        b: tuple[Layout, ...],
        bucket: int,
    ) -> np.ndarray:
        key = shape, itemsize, a, b, bucket
        if key not in self._pairs:
            self._pairs[key] = MICRO * self.communication.reshard_times(shape, itemsize, a, b, bucket)
        return self._pairs[key]


@dataclass(frozen=True)
class Restriction:
    """Narrows a plan space: which choices an op keeps for an axis, which digits an argument keeps.

    ``choices(op index, axis position, choices)`` and ``marks(argument index, axis position, marks)`` return what
    stays; ``layouts(argument index, layouts)``, where given, also drops whole layouts.
    """

    choices: Callable[[int, int, tuple[Choice, ...]], tuple[Choice, ...]]
    marks: Callable[[int, int, tuple[Mark | None, ...]], tuple[Mark | None, ...]]
    layouts: Callable[[int, Sequence[Layout]], tuple[Layout, ...]] | None = None
    together: tuple[tuple[int, ...], ...] = ()


@dataclass
class Space:
    """Candidate sets per op (None for ops that follow their users) and spreads per argument."""

    graph: Graph
    shop: Workshop
    sets: list[CandidateSet | None]
    arguments: list[Spread]


def build_space(
    graph: Graph,
    options: Options,
    shop: Workshop,
    restriction: Restriction | None = None,
    folding: Folding | None = None,
) -> Space:
    """The plan space of a program on the workshop's mesh, narrowed by a restriction.

    With a `folding` the restriction is asked about the first of every class.
    """
    if folding is None:
        folding = unfolded(graph)
    sets: list[CandidateSet | None] = []
    for i, (node, choices) in enumerate(zip(graph.nodes, options.nodes, strict=True)):
        if node.free or folding.nodes[i] != i:
            sets.append(None if node.free else sets[folding.nodes[i]])
            continue
        per_axis = tuple(choices_for(choices, axis) for axis in shop.axes)
        if restriction is not None:
            per_axis = tuple(restriction.choices(i, a, c) for a, c in enumerate(per_axis))
        sets.append(shop.candidate_set(node.kind, per_axis, restriction.together if restriction else ()))
    arguments: list[Spread] = []
    for i, known in enumerate(options.arguments):
        if folding.arguments[i] != i:
            arguments.append(arguments[folding.arguments[i]])
            continue
        per_marks = tuple(marks_for(known, axis) for axis in shop.axes)
        if restriction is not None:
            per_marks = tuple(restriction.marks(i, a, m) for a, m in enumerate(per_marks))
        layouts = tuple(shop.argument(graph.values[i].shape, per_marks))
        if restriction is not None and restriction.layouts is not None:
            layouts = restriction.layouts(i, layouts)
        spread = shop.spread(layouts)
        arguments.append(spread)
    return Space(graph, shop, sets, arguments)
