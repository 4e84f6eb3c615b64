"""The flat form of a problem: everything in a few arrays, so that compiled code can walk it.

Node ``i`` owns ``unary[uoff[i]:uoff[i+1]]``; edge ``e`` between ``eu[e]`` and ``ev[e]`` owns the row-major
table ``table[eoff[e]:eoff[e+1]]``. Memory comes as *components*: component ``c`` is live over the compressed
time points ``[cstart[c], cend[c])`` and uses ``cuse[cuoff[c] + s]`` when its owner ``cnode[c]`` picks ``s``.
A node may own several components (nodes that were merged into one), sorted by owner. ``room[t]`` is what is left for
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .problem import FORBIDDEN, Problem

F = np.ndarray
I = np.ndarray  # noqa: E741


@dataclass
class Network:
    """Flat arrays; see the module docstring."""

    uoff: I
    unary: F
    eu: I
    ev: I
    eoff: I
    table: F
    cnode: I
    cstart: I
    cend: I
    cuoff: I
    cuse: F
    room: F

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.uoff) - 1

    @property
    def m(self) -> int:
        """Number of edges."""
        return len(self.eu)

    @property
    def sizes(self) -> I:
        """Number of strategies per node."""
        return np.diff(self.uoff)

    def cost(self, x: I) -> float:
        """Cost of an assignment."""
        k = self.sizes
        total = float(self.unary[self.uoff[:-1] + x].sum())
        if self.m:
            total += float(self.table[self.eoff[:-1] + x[self.eu] * k[self.ev] + x[self.ev]].sum())
        return total

    def profile(self, x: I) -> F:
        """Usage at each compressed time point."""
        line = np.zeros(len(self.room) + 1)
        use = self.cuse[self.cuoff[:-1] + x[self.cnode]]
        np.add.at(line, self.cstart, use)
        np.add.at(line, self.cend, -use)
        return np.cumsum(line)[:-1]


def offsets(sizes: Sequence[int] | I) -> I:
    """Exclusive prefix sums with the total at the end."""
    out = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(np.asarray(sizes, dtype=np.int64), out=out[1:])
    return out


def _concat(parts: Sequence[F]) -> F:
    if not parts:
        return np.zeros(0)
    return np.concatenate([p.reshape(-1) for p in parts]).astype(np.float64, copy=False)


def compress_time(start: I, end: I) -> tuple[I, I, I]:
    """Keep one time point per maximal live set.

    Between two consecutive ends the live set only grows, so the last start before an end dominates every
    earlier point since the previous end. Returns the kept points and the intervals in kept-point indices.
    """
    if len(start) == 0:
        return np.zeros(0, np.int64), start, end
    starts, ends = np.unique(start), np.unique(end)
    last = starts[np.searchsorted(starts, ends, side="left") - 1]
    points = np.unique(last)
    return points, np.searchsorted(points, start, side="left"), np.searchsorted(points, end, side="left")


def flatten(problem: Problem) -> Network:
    """Flat arrays of a problem; forbidden costs become inf, constant usages are taken out of the room."""
    sizes = np.array([len(c) for c in problem.costs], dtype=np.int64)
    unary = _concat(problem.costs)
    m = len(problem.edges)
    eu = np.fromiter((e[0] for e in problem.edges), np.int64, m)
    ev = np.fromiter((e[1] for e in problem.edges), np.int64, m)
    table = _concat([e[2] for e in problem.edges])
    unary = np.where(unary >= FORBIDDEN, np.inf, unary)
    table = np.where(table >= FORBIDDEN, np.inf, table)
    net = Network(
        offsets(sizes), unary, eu, ev, offsets(sizes[eu] * sizes[ev]) if m else offsets([]), table,
        np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), offsets([]), np.zeros(0), np.zeros(0),
    )  # fmt: skip
    if not problem.has_memory:
        return net
    assert problem.usages is not None and problem.intervals is not None and problem.limit is not None
    span = np.array(problem.intervals, dtype=np.int64).reshape(-1, 2)
    owner = np.flatnonzero(span[:, 0] < span[:, 1])
    points, cs, ce = compress_time(span[owner, 0], span[owner, 1])
    use = [np.asarray(problem.usages[i], dtype=np.float64) for i in owner]
    room = np.full(len(points), float(problem.limit))
    net.cnode, net.cstart, net.cend = owner, cs, ce
    net.cuoff, net.cuse, net.room = offsets([len(u) for u in use]), _concat(use), room
    return net
