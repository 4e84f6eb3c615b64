"""Exact reduction of a network, with or without memory, and the way back.

Rounds of: memory normal form, arc consistency, dominance, contraction; each on fresh flat arrays, until a round
removes little. Assignments of the reduced network expand to assignments of the original with the same cost (plus
the constant) and, for each remaining time point, the same usage relative to the room.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from . import contract as _contract
from .filters import dominate, propagate, shrink
from .memory import normalise
from .network import I, Network, offsets
from .problem import Infeasible

_DOMINANCE_WORK = 400_000


@dataclass(frozen=True)
class Stage:
    """One round: stage assignment -> previous assignment."""

    n: int
    kept: I  # nodes of the previous network that are still there, by new index
    keep: I  # their kept strategies
    koff: I
    steps: I
    args: I
    size: I  # strategies per node while contracting

    def expand(self, x: I) -> I:
        """The assignment before this round."""
        full = np.zeros(self.n, dtype=np.int64)
        full[self.kept] = self.keep[self.koff[:-1] + x]
        _contract.replay(self.steps, self.args, self.size, full)
        return full

    def project(self, full: I) -> I:
        """The assignment after this round; -1 where the strategy is gone."""
        before = offsets(self.size)
        place = np.full(int(before[-1]), -1, dtype=np.int64)
        owner = np.repeat(np.arange(len(self.kept)), np.diff(self.koff))
        place[before[self.kept[owner]] + self.keep] = np.arange(len(self.keep)) - self.koff[owner]
        chosen = full[self.kept]
        return np.where(chosen >= 0, place[before[self.kept] + np.maximum(chosen, 0)], -1)


@dataclass(frozen=True)
class Reduction:
    """A reduced network with its constant cost and the stages that led to it."""

    net: Network
    constant: float
    stages: tuple[Stage, ...]

    def expand(self, x: I) -> I:
        """Assignment of the original network."""
        for stage in reversed(self.stages):
            x = stage.expand(x)
        return x

    def project(self, x: I) -> I:
        """Assignment of the reduced network nearest to one of the original; -1 where its strategy is gone."""
        for stage in self.stages:
            x = stage.project(x)
        return x


def incidence(n: int, eu: I, ev: I) -> tuple[I, I]:
    """CSR lists of the edges at each node."""
    m = len(eu)
    ends = np.concatenate([eu, ev])
    order = np.argsort(ends, kind="stable")
    return offsets(np.bincount(ends, minlength=n)), order % m if m else order


def _why_empty(net: Network, memory: bool) -> Infeasible:
    if memory:
        return Infeasible("memory: the limit leaves some node without a usable strategy")
    return Infeasible("the costs alone forbid every assignment (memory plays no part)")


def _filter(net: Network, memory: bool) -> None:
    """Arc consistency, then dominance, in place."""
    aoff, adj = incidence(net.n, net.eu, net.ev)
    if propagate(net.uoff, net.unary, net.eu, net.ev, net.eoff, net.table, aoff, adj) >= 0:
        raise _why_empty(net, memory)
    coff = offsets(np.bincount(net.cnode, minlength=net.n))
    gone = dominate(
        net.uoff,
        net.unary,
        net.eu,
        net.ev,
        net.eoff,
        net.table,
        aoff,
        adj,
        coff,
        net.cuoff,
        net.cuse,
        _DOMINANCE_WORK,
    )
    if gone:
        propagate(net.uoff, net.unary, net.eu, net.ev, net.eoff, net.table, aoff, adj)


def _round(net: Network, growth: int) -> tuple[Network, float, Stage, bool]:
    """Contract once and rebuild; the flag says whether a pool was full."""
    n, m = net.n, net.m
    sizes = net.sizes
    pool = np.empty(2 * len(net.table) + 2_000_000)
    pool[: len(net.table)] = net.table
    cpool = np.empty(2 * len(net.cuse) + 2_000_000)
    cpool[: len(net.cuse)] = net.cuse
    c = len(net.cnode)
    chead = np.full(n, -1, dtype=np.int64)
    cnext = np.full(c, -1, dtype=np.int64)
    for_node = offsets(np.bincount(net.cnode, minlength=n)) if c else np.zeros(n + 1, dtype=np.int64)
    owns = np.flatnonzero(np.diff(for_node))
    chead[owns] = for_node[:-1][owns]
    if c > 1:
        cnext[:-1] = np.where(net.cnode[1:] == net.cnode[:-1], np.arange(1, c), -1)
    unary, eu, ev, eoff, cuoff = (
        net.unary.copy(),
        net.eu.copy(),
        net.ev.copy(),
        net.eoff.copy(),
        net.cuoff.copy(),
    )
    alive, ealive = np.ones(n, dtype=np.int64), np.ones(m, dtype=np.int64)
    steps, args = np.empty((n, 4), dtype=np.int64), np.empty(len(pool), dtype=np.int64)
    code, nsteps, constant = _contract.contract(
        sizes, net.uoff, unary, eu, ev, eoff, pool, len(net.table),
        chead, cnext, cuoff, cpool, len(net.cuse), alive, ealive, steps, args, growth,
    )  # fmt: skip
    if code == _contract.EMPTY:
        raise _why_empty(net, bool(len(net.room)))
    kept = np.flatnonzero(alive)
    live = unary < np.inf
    owner = np.repeat(np.arange(n), sizes)
    live &= alive[owner].astype(bool)
    counts = np.bincount(owner[live], minlength=n)[kept]
    if len(counts) and counts.min() == 0:
        raise _why_empty(net, bool(len(net.room)))
    flat = np.flatnonzero(live)
    keep = flat - net.uoff[owner[flat]]
    koff = offsets(counts)
    place = np.full(n, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    edges = np.flatnonzero(ealive)
    neu, nev = place[eu[edges]], place[ev[edges]]
    neoff = offsets(counts[neu] * counts[nev]) if len(edges) else offsets([])
    table = np.empty(int(neoff[-1]))
    # strategy lists are indexed by old node in shrink, so spread the offsets over all old nodes
    spread = offsets(np.bincount(owner[live], minlength=n))
    shrink(net.uoff, keep, spread, eu[edges], ev[edges], eoff[edges], pool, neoff, table)
    # components: walk the lists of the kept nodes
    cnode = np.empty(c, dtype=np.int64)
    corder = np.empty(c, dtype=np.int64)
    count = _contract.list_components(kept, chead, cnext, cnode, corder)
    cnode, corder = cnode[:count], corder[:count]
    widths = counts[cnode] if count else np.zeros(0, dtype=np.int64)
    ncuoff = offsets(widths)
    base = np.repeat(koff[cnode] - ncuoff[:-1], widths) + np.arange(ncuoff[-1])
    cuse = cpool[np.repeat(cuoff[corder], widths) + keep[base]] if count else np.zeros(0)
    new = Network(
        koff, unary[flat], neu, nev, neoff, table,
        cnode, net.cstart[corder], net.cend[corder], ncuoff, cuse, net.room,
    )  # fmt: skip
    stage = Stage(
        n, kept, keep, koff, steps[:nsteps].copy(), args[: _args_used(steps, nsteps, sizes)].copy(), sizes
    )
    return new, constant, stage, code == _contract.FULL


def _args_used(steps: I, count: int, size: I) -> int:
    if count == 0:
        return 0
    _, a, b, o = steps[count - 1]
    return int(o + (size[a] if a >= 0 else 1) * (size[b] if b >= 0 else 1))


def reduce_network(net: Network, *, growth: int = 64, rounds: int = 8) -> Reduction:
    """Reduce until a round removes less than one node in fifty."""
    stages: list[Stage] = []
    constant = 0.0
    net = replace(net, unary=net.unary.copy(), table=net.table.copy())
    for _ in range(rounds):
        before = net.n
        gone = normalise(net)
        _filter(net, bool(gone))
        net, extra, stage, full = _round(net, growth)
        constant += extra
        stages.append(stage)
        if not full and net.n > 0.98 * before:
            break
    normalise(net)
    return Reduction(net, constant, tuple(stages))
