"""Repeated layers: which ops and arguments of a program are copies of each other.

A traced program lists the ops of equal layers in equal order, forward, backward (last layer first) and in the
optimizer's update. So its ops, read as a sequence of kinds, has *runs*: stretches that repeat with a period. Op ``i``
of one copy and op ``i + period`` of the next stand for each other. The first and the last copy may hold a few ops
more (what all layers share is made in the first), so what lies before and after a run is aligned with its nearest copy.

Micro-batches are copies of each other, too: the pass `microbatch` numbers their ops, and ops of one number stand for
each other. Layers are looked for inside of a micro-batch.

Copies share their decisions: the planner's network has one variable for all of them (`rhino.planner.network`), and
grows with the layer, not with their number. Two ops of a class always have the same kind, so whatever the classes are,
a folded plan is a plan of the whole program; a wrong class could only rule out better ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

import numpy as np

from rhino.ir.disjoint import DisjointSets
from rhino.passes.microbatch import micro_number
from rhino.planner.candidates import Options
from rhino.planner.graph import Graph, result_argument

#: Ops that must agree in a row for two places to be compared at all.
WINDOW = 16

#: Copies that a run has at least; two equal neighbours are as likely siblings (keys and values) as layers.
COPIES = 3

#: A layer holds at least so many ops: shorter periods are those of chains of equal ops.
SHORTEST = 8


@dataclass(frozen=True)
class Run:
    """A stretch of ops ``[start, stop)`` whose kinds repeat with `period`."""

    start: int
    stop: int
    period: int

    @property
    def copies(self) -> int:
        return (self.stop - self.start) // self.period


@dataclass(frozen=True)
class Folding:
    """Classes of what stands for each other, each named by its first member.

    Attributes:
        runs: the repeated stretches, in program order.
        nodes: per op the first op of its class.
        arguments: per argument of `@main` the first argument of its class.
        values: per value the first value of its class: made by, read by and returned as members of the same classes.
        repeats: stretches ``[start, end)`` that repeat what stands before and after them: the micro-batches between
            the first and the last.
    """

    runs: tuple[Run, ...]
    nodes: tuple[int, ...]
    arguments: tuple[int, ...]
    values: tuple[int, ...]
    repeats: tuple[tuple[int, int], ...] = ()

    @cached_property
    def node_copies(self) -> Counter[int]:
        """How many ops the class of every first op has."""
        return Counter(self.nodes)

    @cached_property
    def value_copies(self) -> Counter[int]:
        """How many values the class of every first value has."""
        return Counter(self.values)


def unfolded(graph: Graph) -> Folding:
    """Every op and argument alone."""
    sizes = len(graph.nodes), len(graph.arguments), len(graph.values)
    nodes, arguments, values = (tuple(range(size)) for size in sizes)
    return Folding((), nodes, arguments, values)


def fold(graph: Graph, options: Options) -> Folding:
    """Find the repeated layers of a program. Ops and arguments of a class have the same options."""
    ids: dict[Hashable, int] = {}
    numbers = [micro_number(node.op) for node in graph.nodes]
    # Equal ops of different micro-batches count as different ones here, so that no run reaches from one to the next.
    kinds = np.array(
        [
            ids.setdefault((id(n.kind), m and m[0]), len(ids))
            for n, m in zip(graph.nodes, numbers, strict=True)
        ],
        dtype=np.int64,
    )
    found = runs(kinds)
    if not found and not any(numbers):
        return unfolded(graph)
    classes = DisjointSets(len(kinds))
    inside = np.zeros(len(kinds), dtype=bool)
    for run in found:
        inside[run.start : run.stop] = True
        for i in range(run.start, run.stop - run.period):
            classes.join(i, i + run.period)
    for run in found:
        for i, j in _aligned(kinds, inside, run):
            classes.join(i, j)
    same: dict[Hashable, int] = {}
    for i, number in enumerate(numbers):
        if number is not None:
            classes.join(i, same.setdefault((id(graph.nodes[i].kind), number[1]), i))
    nodes = _first((classes.find(i), options.nodes[i]) for i in range(len(kinds)))
    arguments = _arguments(graph, nodes, options)
    return Folding(tuple(found), nodes, arguments, _values(graph, nodes, arguments), _repeats(numbers))


def _repeats(numbers: Sequence[tuple[int, str] | None]) -> tuple[tuple[int, int], ...]:
    """The stretch of the micro-batches between the first and the last."""
    last = max((number[0] for number in numbers if number), default=0)
    inner = [i for i, number in enumerate(numbers) if number and 0 < number[0] < last]
    return ((inner[0], inner[-1] + 1),) if inner else ()


def together(folding: Folding, regions: Sequence[int]) -> list[int]:
    """For every op the first op that it decides with, by its class or by its region."""
    classes = DisjointSets(len(regions))
    for i, (first, leader) in enumerate(zip(folding.nodes, regions, strict=True)):
        classes.join(i, first)
        classes.join(i, leader)
    return [classes.find(i) for i in range(len(regions))]


def _first(keys: Iterable[Hashable]) -> tuple[int, ...]:
    """For every key the place of the first equal one."""
    seen: dict[Hashable, int] = {}
    return tuple(seen.setdefault(key, i) for i, key in enumerate(keys))


def runs(kinds: np.ndarray) -> list[Run]:
    """The disjoint stretches of a sequence that repeat, those that hold most of it first served; sorted by start."""
    out: list[Run] = []
    free = np.ones(len(kinds), dtype=bool)
    for period in _periods(kinds):
        same = (kinds[period:] == kinds[:-period]) & free[period:] & free[:-period]
        for start, stop in _stretches(same):
            if stop - start >= (COPIES - 1) * period:
                out.append(Run(start, stop + period, period))
                free[start : stop + period] = False
    return sorted(out, key=lambda run: run.start)


def _periods(kinds: np.ndarray) -> list[int]:
    """Distances at which the sequence equals itself, those that explain most of it first."""
    if len(kinds) < 2 * WINDOW:
        return []
    windows = np.lib.stride_tricks.sliding_window_view(kinds, WINDOW)
    powers = np.array([pow(1_000_003, i, 1 << 61) for i in range(WINDOW)], dtype=np.uint64)
    keys = (windows.astype(np.uint64) * powers).sum(axis=1, dtype=np.uint64)
    last: dict[int, int] = {}
    distances: Counter[int] = Counter()
    for at, key in enumerate(keys.tolist()):
        if key in last:
            distances[at - last[key]] += 1
        last[key] = at
    held = {
        period: sum(
            stop - start
            for start, stop in _stretches(kinds[period:] == kinds[:-period])
            if stop - start >= (COPIES - 1) * period
        )
        for period, count in distances.items()
        if count >= SHORTEST and period >= SHORTEST
    }
    # Of equal coverage the shortest: twice a period is a period too, and covers almost as much.
    return sorted((p for p, n in held.items() if n), key=lambda p: (-(held[p] + p), p))


def _stretches(same: np.ndarray) -> list[tuple[int, int]]:
    """The maximal ranges in which a row of booleans is true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _aligned(kinds: np.ndarray, inside: np.ndarray, run: Run) -> Iterable[tuple[int, int]]:
    """Pairs of an op before or after a run and the op of the run that it stands for."""
    reach = run.period + run.period // 2
    before = range(max(0, run.start - reach), run.start)
    after = range(run.stop, min(len(kinds), run.stop + reach))
    for outside, copy in (
        (before, range(run.start, run.start + run.period)),
        (after, range(run.stop - run.period, run.stop)),
    ):
        mine = [i for i in outside if not inside[i]]
        matcher = SequenceMatcher(None, kinds[mine].tolist(), kinds[copy.start : copy.stop].tolist(), False)
        for block in matcher.get_matching_blocks():
            for k in range(block.size):
                yield mine[block.a + k], copy.start + block.b + k


def _arguments(graph: Graph, nodes: Sequence[int], options: Options) -> tuple[int, ...]:
    """Arguments are copies of each other when copies of ops read them in the same places, and replace them."""
    ends = {slot.alias: graph.returned[i] for i, slot in enumerate(graph.results) if slot.alias is not None}
    keys: list[Hashable] = []
    for i, slot in enumerate(graph.arguments):
        value = graph.values[i]
        new = ends.get(i)
        made = None if new is None else graph.values[new].producer
        if not value.uses and made is None:
            keys.append(i)
            continue
        end = None if made is None else nodes[made]
        keys.append(
            (
                slot.role,
                slot.slot,
                value.shape,
                value.itemsize,
                _users(graph, nodes, i),
                end,
                options.arguments[i],
            )
        )
    return _first(keys)


def _users(graph: Graph, nodes: Sequence[int], value: int) -> tuple[tuple[int, int], ...]:
    """The classes of the ops that read a value, each with the operand that it is."""
    return tuple(sorted({(nodes[user], position) for user, position in graph.values[value].uses}))


def _values(graph: Graph, nodes: Sequence[int], arguments: Sequence[int]) -> tuple[int, ...]:
    keys: list[Hashable] = []
    for i, value in enumerate(graph.values):
        source = (-1, arguments[i]) if value.producer is None else (nodes[value.producer], value.port)
        ends = []
        for result in value.returns:
            argument = result_argument(graph, result)
            ends.append(-1 if argument is None else arguments[argument])
        keys.append((source, _users(graph, nodes, i), tuple(ends)))
    return _first(keys)
