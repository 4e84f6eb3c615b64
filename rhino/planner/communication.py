"""Time of collectives and of reshards on a cluster (seconds).

A group of n devices on some mesh axes sits on k nodes with g members on each. How long its collectives take is in
`rhino.planner.model.collectives`: the fastest protocol inside the node, joined with the network between nodes. A
reshard takes the sum of its steps. A local slice costs a launch, so no step is free.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rhino.ir import types
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh, merge_refs
from rhino.ir.reshard import Step, reshard_steps
from rhino.ir.rule import Placement
from rhino.planner.cluster import Cluster
from rhino.planner.combine import BUCKETED, Collective
from rhino.planner.cost import copy_time
from rhino.planner.graph import Kind
from rhino.planner.model.collectives import KINDS, collective_time
from rhino.planner.model.machine import network
from rhino.planner.pairs import Catalogue, Question, question_of

#: One step with the bytes of its local operand at item size 1: (kind, members per node, nodes, bytes).
Move = tuple[str, int, int, float]


@dataclass(frozen=True)
class _Steps:
    """The steps of all pairs of two lists of layouts: a pair asks question ``which[pair]``, and step i is
    ``moves[move[i]]`` of the question ``owner[i]``.
    """

    which: np.ndarray
    moves: tuple[Move, ...]
    owner: np.ndarray
    move: np.ndarray
    barred: np.ndarray
    """Per question whether nothing leads there."""


class Communication:
    """Times on one cluster and one mesh; remembers what it has worked out."""

    def __init__(self, cluster: Cluster, mesh: Mesh) -> None:
        self.cluster = cluster
        self.mesh = mesh
        self.network = network(cluster.hardware, cluster.hardware.kernels.get("network", {}))
        self._spread: dict[tuple[AxisRef, ...], tuple[int, int]] = {}
        self._moves: dict[Question, tuple[Move, ...] | None] = {}
        self._catalogue = Catalogue()
        self._times: dict[Move, float] = {}
        self._steps: dict[object, _Steps] = {}
        self._collectives: dict[object, tuple[Collective, ...]] = {}

    def spread(self, axes: tuple[AxisRef, ...]) -> tuple[int, int]:
        """``(members per node, nodes)`` of the groups on `axes` (the fullest node, the first group)."""
        if axes not in self._spread:
            nodes = [device // self.cluster.devices_per_node for device in self._first_group(axes)]
            self._spread[axes] = max(Counter(nodes).values()), len(set(nodes))
        return self._spread[axes]

    def _first_group(self, axes: tuple[AxisRef, ...]) -> list[int]:
        """The devices whose coordinates are 0 on everything but `axes`."""
        group, names = [0], [name for name, _ in self.mesh.axes]
        for axis in axes:
            minor = math.prod(size for _, size in self.mesh.axes[names.index(axis.name) + 1 :])
            stride = minor * (self.mesh.sizes[axis.name] // (axis.pre * axis.size))
            group = [device + i * stride for device in group for i in range(axis.size)]
        return group

    def step_time(self, step: Step, shape: Sequence[int], itemsize: int) -> float:
        """Time of one step on a tensor of global `shape`."""
        kind, g, k, size = self._move(step, shape)
        return self.time(kind, g, k, size * itemsize)

    def reshard_time(self, shape: tuple[int, ...], itemsize: int, a: Layout, b: Layout) -> float:
        """Time to take a tensor from layout `a` to `b`; infinite when nothing leads there (to a new partial)."""
        moves = self._reshard(shape, a, b)
        if moves is None:
            return math.inf
        return sum(self.time(kind, g, k, size * itemsize) for kind, g, k, size in moves)

    def collectives(
        self, shape: tuple[int, ...], itemsize: int, element: str, a: Layout, b: Layout
    ) -> tuple[Collective, ...]:
        """The steps from `a` to `b`, which must lead somewhere, with the bytes of either side."""
        key = shape, itemsize, element, a, b
        if key not in self._collectives:
            self._collectives[key] = tuple(
                Collective(
                    *self._move(step, shape)[:3],
                    step.axes,
                    step.reduction,
                    float(math.prod(step.before.local_shape(shape)) * itemsize),
                    float(math.prod(step.after.local_shape(shape)) * itemsize),
                    element,
                )
                for step in reshard_steps(shape, a, b, self.mesh)
            )
        return self._collectives[key]

    def edges(self, kind: Kind, placement: Placement) -> tuple[Collective, ...]:
        """The edges that an op gets from its neighbours to put to operand 0, one dimension after the other."""
        out: list[Collective] = []
        shape: list[int] = []
        for factor, halo in kind.rule.halos.items():
            assert halo.operand == 0
            at, layout = kind.rule.locate(kind.rule.operands[0], factor), placement.operands[0]
            assert at is not None
            if not layout.dims[at[0]] or not halo.before + halo.after:
                continue
            global_shape, itemsize = kind.operand_tensors[0]
            shape = shape or list(layout.local_shape(global_shape))
            before = math.prod(shape) * itemsize
            shape[at[0]] += halo.before + halo.after
            axes = merge_refs([digit.axis for digit in layout.dims[at[0]]])
            after, element = math.prod(shape) * itemsize, types.element_name(kind.operands[0].element_type)
            out.append(
                Collective("halo", *self.spread(axes), axes, None, float(before), float(after), element)
            )
        return tuple(out)

    def edge_seconds(self, kind: Kind, placement: Placement) -> float:
        """Seconds that an op takes to get its neighbours' edges."""
        return sum(self.price(step) for step in self.edges(kind, placement))

    def price(self, collective: Collective) -> float:
        """Seconds of a collective; of edges, with putting them to what is there."""
        if collective.kind == "halo":
            moved = collective.result - collective.operand
            sent = self.time("halo", collective.members, collective.nodes, moved)
            return sent + copy_time(self.cluster.hardware, collective.result, 1)
        return self.time(collective.kind, collective.members, collective.nodes, collective.operand)

    def share(self, kind: str, g: int, k: int, size: float, bucket: int) -> float:
        """Seconds of a collective that depends on no other: its share of a full bucket of so many bytes, where it may
        be in one. No bucket that is no larger gives it for less: larger collectives take less time per byte.
        """
        larger = size * g * k if kind == "all_gather" else size
        if kind not in BUCKETED or not 0 < larger < bucket:
            return self.time(kind, g, k, size)
        part = larger / bucket
        return min(self.time(kind, g, k, size), part * self.time(kind, g, k, size / part))

    def reshard_times(
        self,
        shape: tuple[int, ...],
        itemsize: int,
        a: Sequence[Layout],
        b: Sequence[Layout],
        bucket: int = 0,
    ) -> np.ndarray:
        """`reshard_time` from every layout of `a` to every one of `b`: a table of shape ``(len(a), len(b))``.

        `bucket`: the value's reshards depend on no other collective's result, nor others on theirs, so that each
        counts for its `share` of a bucket of so many bytes.
        """
        units = [
            # An empty dimension stays one.
            math.gcd(
                extent, *(period // axis.size for layout in (*a, *b) for axis, period in layout.dims[dim])
            )
            or 1
            for dim, extent in enumerate(shape)
        ]
        small = tuple(extent // unit for extent, unit in zip(shape, units, strict=True))
        sources, targets = (tuple(_shrink(layout, units) for layout in side) for side in (a, b))
        key = small, sources, targets
        if key not in self._steps:
            self._steps[key] = self._all_steps(small, sources, targets)
        steps, scale = self._steps[key], math.prod(units) * itemsize
        times = np.array([self.share(kind, g, k, size * scale, bucket) for kind, g, k, size in steps.moves])
        total = np.bincount(
            steps.owner, weights=times[steps.move] if len(times) else None, minlength=len(steps.barred)
        ).astype(np.float64)
        total[steps.barred] = math.inf
        return total[steps.which]

    def _all_steps(self, shape: tuple[int, ...], a: Sequence[Layout], b: Sequence[Layout]) -> _Steps:
        pairs = self._catalogue.pairs(shape, a, b)
        moves: dict[Move, int] = {}
        owner, move, barred = [], [], []
        for at, (question, scale) in enumerate(zip(pairs.questions, pairs.scale, strict=True)):
            found = self._asked(question)
            barred.append(found is None)
            for kind, g, k, size in found or ():
                owner.append(at)
                move.append(moves.setdefault((kind, g, k, size * scale), len(moves)))
        owners, which = (np.array(x, dtype=np.int64) for x in (owner, move))
        return _Steps(pairs.which, tuple(moves), owners, which, np.array(barred, dtype=bool))

    def _reshard(self, shape: tuple[int, ...], a: Layout, b: Layout) -> tuple[Move, ...] | None:
        """The steps from `a` to `b` at item size 1, None when nothing leads there."""
        question, scale = question_of(shape, a, b)
        moves = self._asked(question)
        return None if moves is None else tuple((kind, g, k, size * scale) for kind, g, k, size in moves)

    def _asked(self, question: Question) -> tuple[Move, ...] | None:
        """The steps that answer a question, None when nothing leads there."""
        if question not in self._moves:
            shape, a, b = question.shape, question.before, question.after
            leads = not b.partial or set(b.partial) <= set(a.partial)
            self._moves[question] = (
                tuple(self._move(step, shape) for step in reshard_steps(shape, a, b, self.mesh))
                if leads
                else None
            )
        return self._moves[question]

    def time(self, kind: str, g: int, k: int, size: float) -> float:
        """Time of a collective on groups of `g` members on each of `k` nodes; `size`: bytes of the local operand."""
        key = (kind, g, k, size)
        if key not in self._times:
            self._times[key] = self._time(kind, g, k, size)
        return self._times[key]

    def _time(self, kind: str, g: int, k: int, size: float) -> float:
        if kind == "shard":
            return self.cluster.hardware.launch
        if kind == "halo":
            # To the next on either side: where a group spans nodes, some of them are elsewhere.
            kind, g, k = ("permute", 1, 2) if k > 1 else ("permute", 2, 1)
        return float(collective_time(self.network, KINDS[kind], float(g), float(k), float(size), 0.0))

    def _move(self, step: Step, shape: Sequence[int]) -> Move:
        size = float(math.prod(step.before.local_shape(shape)))
        if step.kind == "shard":
            return "shard", 1, 1, size
        if step.kind == "permute":
            per = self.cluster.devices_per_node
            crosses = any(s // per != t // per for s, t in step.pairs)
            return ("permute", 1, 2, size) if crosses else ("permute", 2, 1, size)
        return (step.kind, *self.spread(step.axes), size)


def _shrink(layout: Layout, units: Sequence[int]) -> Layout:
    """The layout when every dimension is counted in its unit."""
    return Layout(
        tuple(
            tuple(Digit(axis, period // unit) for axis, period in digits)
            for digits, unit in zip(layout.dims, units, strict=True)
        ),
        layout.partial,
    )
