"""Proof of optimality for small cores: toulbar2 with the memory limit added where it is broken.

The limit at a time point is a knapsack constraint. Start from the points with a price, solve, add the points that
the optimum of this relaxation breaks, and repeat: the first optimum that fits everywhere is the optimum. Usages that
are not integers are scaled and rounded down, which keeps every round a relaxation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from .apart import minimise_apart
from .network import F, I, Network
from .toulbar import Knapsack, minimise


@dataclass(frozen=True)
class Proof:
    """What the exact phase showed: an optimum, or that nothing beats ``upper``, or just a bound."""

    assignment: I | None
    lower_bound: float
    proven: bool


def knapsack(net: Network, t: int) -> Knapsack:
    """The limit at time point ``t`` with integer weights."""
    live = np.flatnonzero((net.cstart <= t) & (t < net.cend))
    use = [net.cuse[net.cuoff[c] : net.cuoff[c + 1]] for c in live]
    room = float(net.room[t])
    flat = np.concatenate(use)
    if np.all(flat == np.rint(flat)) and flat.sum() < 2.0**52:
        unit = int(np.gcd.reduce(flat.astype(np.int64)))
        weights = [(u.astype(np.int64) // unit) for u in use]
        return [int(i) for i in net.cnode[live]], weights, int(room // unit)
    scale = 2.0**30 / max(float(flat.max()), 1e-300)
    weights = [np.floor(u * scale).astype(np.int64) for u in use]
    return [int(i) for i in net.cnode[live]], weights, int(np.floor(room * scale * (1 + 1e-9))) + 1


def prove(
    net: Network,
    price: F,
    upper: float,
    seconds: float | None,
    *,
    backtracks: int | None = None,
    seed: int = 1,
    apart: int = 0,
) -> Proof:
    """Find an optimum of ``net`` cheaper than ``upper``, or prove there is none, within the limits.

    ``apart``: in a process of its own, which may take so many bytes; 0 for here.
    """
    engine = partial(minimise_apart, room=apart) if apart else minimise
    began = time.perf_counter()
    points = [int(t) for t in np.flatnonzero(price > 0)]
    if len(points) > 40:
        points = [int(t) for t in np.argsort(-price, kind="stable")[:40]]
    chosen = set(points)
    lower = -np.inf
    while True:
        left = None if seconds is None else seconds - (time.perf_counter() - began)
        if left is not None and left < 0.5:
            return Proof(None, lower, False)
        out = engine(
            net.uoff, net.unary, net.eu, net.ev, net.eoff, net.table, upper=upper, time_limit=left,
            backtracks=backtracks, seed=seed, knapsacks=[knapsack(net, t) for t in sorted(chosen)],
        )  # fmt: skip
        lower = max(lower, out.lower_bound)
        if out.assignment is None:
            return Proof(None, lower, out.proven)
        over = net.profile(out.assignment) - net.room
        if not len(over) or over.max() <= 0:
            return Proof(out.assignment, lower, out.proven)
        if not out.proven:
            return Proof(None, lower, False)
        new = [int(t) for t in np.argsort(-over, kind="stable")[:8] if over[t] > 0 and t not in chosen]
        if not new:
            return Proof(None, lower, False)
        chosen.update(new)
