"""Normal form of the memory side of a network.

Each node ends up with disjoint segments of compressed time whose smallest usage is 0 (the minimum is taken out
of the room), none constant. Time points where even the largest usages fit are dropped. A strategy whose usage
exceeds the room somewhere can then never be used (all other nodes need at least 0).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .network import F, I, Network, offsets
from .problem import Infeasible


@njit(cache=True, nogil=True)
def _segments(n: int, uoff: I, unary: F, cnode: I, cstart: I, cend: I, cuoff: I, cuse: F, room: F):  # type: ignore[no-untyped-def]
    """Disjoint segments per node; components must be sorted by node. Mutates ``room``."""
    total = len(cnode)
    cap = 2 * total + 1
    node, start, end = np.empty(cap, np.int64), np.empty(cap, np.int64), np.empty(cap, np.int64)
    off = np.zeros(cap + 1, np.int64)
    size = 0
    c = 0
    while c < total:
        d = c
        while d < total and cnode[d] == cnode[c]:
            d += 1
        size += (2 * (d - c)) * (uoff[cnode[c] + 1] - uoff[cnode[c]])
        c = d
    use = np.empty(size + 1)
    count = 0
    c = 0
    while c < total:
        i = cnode[c]
        k = uoff[i + 1] - uoff[i]
        d = c
        while d < total and cnode[d] == i:
            d += 1
        cuts = np.unique(np.concatenate((cstart[c:d], cend[c:d])))
        grid = np.zeros((len(cuts), k))
        live = np.zeros(len(cuts), np.int64)
        for x in range(c, d):
            if cstart[x] >= cend[x]:
                continue
            a = np.searchsorted(cuts, cstart[x])
            b = np.searchsorted(cuts, cend[x])
            for y in range(a, b):
                live[y] += 1
                for s in range(k):
                    grid[y, s] += cuse[cuoff[x] + s]
        prev = -1
        for y in range(len(cuts) - 1):
            if live[y] == 0:
                prev = -1
                continue
            low, high = np.inf, -np.inf
            for s in range(k):
                if unary[uoff[i] + s] < np.inf:
                    low = min(low, grid[y, s])
                    high = max(high, grid[y, s])
            if low != 0 and low < np.inf:
                for t in range(cuts[y], cuts[y + 1]):
                    room[t] -= low
            if not high > low:
                prev = -1
                continue
            same = prev >= 0
            if same:
                for s in range(k):
                    if use[off[prev] + s] != grid[y, s] - low:
                        same = False
                        break
            if same:
                end[prev] = cuts[y + 1]
                continue
            node[count], start[count], end[count] = i, cuts[y], cuts[y + 1]
            for s in range(k):
                use[off[count] + s] = grid[y, s] - low
            off[count + 1] = off[count] + k
            prev = count
            count += 1
        c = d
    return node[:count], start[:count], end[:count], off[: count + 1], use[: off[count]]


@njit(cache=True, nogil=True)
def _oversized(uoff: I, unary: F, cnode: I, cstart: I, cend: I, cuoff: I, cuse: F, room: F) -> int:
    """Forbid strategies that exceed the room on their own; returns how many."""
    gone = 0
    for c in range(len(cnode)):
        low = np.inf
        for t in range(cstart[c], cend[c]):
            low = min(low, room[t])
        i = cnode[c]
        for s in range(uoff[i + 1] - uoff[i]):
            if cuse[cuoff[c] + s] > low and unary[uoff[i] + s] < np.inf:
                unary[uoff[i] + s] = np.inf
                gone += 1
    return gone


@njit(cache=True, nogil=True)
def _largest(uoff: I, unary: F, cnode: I, cstart: I, cend: I, cuoff: I, cuse: F, points: int) -> F:
    """Sum over nodes of the largest living usage, per time point."""
    line = np.zeros(points + 1)
    for c in range(len(cnode)):
        i = cnode[c]
        top = 0.0
        for s in range(uoff[i + 1] - uoff[i]):
            if unary[uoff[i] + s] < np.inf:
                top = max(top, cuse[cuoff[c] + s])
        line[cstart[c]] += top
        line[cend[c]] -= top
    return np.cumsum(line)[:-1]


def normalise(net: Network) -> int:
    """Bring the memory side of ``net`` into normal form, in place; returns how many strategies it forbade."""
    if len(net.room) == 0:
        return 0
    room = net.room.copy()
    node, start, end, off, use = _segments(
        net.n, net.uoff, net.unary, net.cnode, net.cstart, net.cend, net.cuoff, net.cuse, room
    )
    if room.min() < -1e-9 * max(1.0, float(np.abs(net.room).max())):
        raise Infeasible("memory: even the smallest usages exceed the limit at some point in time")
    room = np.maximum(room, 0.0)
    gone = _oversized(net.uoff, net.unary, node, start, end, off, use, room)
    top = _largest(net.uoff, net.unary, node, start, end, off, use, len(room))
    tight = top > room
    rank = np.concatenate([[0], np.cumsum(tight)])
    start, end = rank[start], rank[end]
    room = room[tight]
    keep = np.flatnonzero(start < end)
    widths = np.diff(off)[keep]
    new = offsets(widths)
    pick = np.repeat(off[keep] - new[:-1], widths) + np.arange(new[-1])
    net.cnode, net.cstart, net.cend = node[keep], start[keep], end[keep]
    net.cuoff, net.cuse, net.room = new, use[pick], room
    _dedupe_points(net)
    return int(gone)


def _dedupe_points(net: Network) -> None:
    """Merge runs of time points with the same live set, keeping the smallest room."""
    points = len(net.room)
    if points == 0:
        return
    edge = np.zeros(points + 1, dtype=bool)
    edge[net.cstart] = True
    edge[net.cend] = True
    edge[0] = True
    heads = np.flatnonzero(edge[:points])
    net.room = np.minimum.reduceat(net.room, heads)
    rank = np.concatenate([[0], np.cumsum(edge[:points])])
    net.cstart, net.cend = rank[net.cstart], rank[net.cend]
