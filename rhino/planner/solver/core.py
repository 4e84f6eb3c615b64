"""A reduced network with everything the bound and the search keep between rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import dual, localsearch
from .network import F, I, Network, offsets
from .reduce import incidence

_SAFETY = 1e-11
"""Relative slack taken off floating-point lower bounds (sums of some 1e5 terms)."""


@dataclass(frozen=True)
class Snapshot:
    """Prices and messages at one moment."""

    price: F
    msg: F


class Core:
    """Messages, prices and bound of one network; assignments come and go as arrays."""

    def __init__(self, net: Network, price: F | None = None) -> None:
        self.net = net
        self.aoff, self.adj = incidence(net.n, net.eu, net.ev)
        k = net.sizes
        pairs = np.stack([k[net.eu], k[net.ev]], axis=1).reshape(-1) if net.m else np.zeros(0, np.int64)
        self.moff = offsets(pairs)
        self.msg = np.zeros(int(self.moff[-1]))
        points = len(net.room)
        self.price = np.zeros(points) if price is None else price.copy()
        self.active = np.zeros(points, dtype=np.int64)
        self.best_price, self.best_msg = self.price.copy(), self.msg.copy()
        # best bound, delta, rounds since a change of delta, rounds done, bound at that change (see dual.ascend)
        self.state = np.array([-np.inf, 0.0, 0.0, 0.0, -np.inf])
        self.coff = offsets(np.bincount(net.cnode, minlength=net.n))
        finite = net.table[np.isfinite(net.table)]
        self.span = _span(net.unary, net.uoff) + (_span(net.table, net.eoff) if net.m else 0.0)
        top = float(np.abs(finite).max()) if len(finite) else 0.0
        self.big = min(max(2.0 * self.span, 1.0), max(1e15, 4 * top))
        self.table = np.minimum(net.table, self.big)
        self.incumbent: I | None = None

    @property
    def lower(self) -> float:
        """Best lower bound so far, made safe against rounding."""
        value = float(self.state[0])
        return value - _SAFETY * max(
            abs(value), float(self.best_price @ self.net.room) if len(self.price) else 0.0
        )

    def ascend(self, count: int, upper: float, warm: int = 30) -> None:
        """``count`` rounds of message passing and price steps towards ``upper``."""
        n = self.net
        dual.ascend(
            n.uoff, n.unary, n.eu, n.ev, n.eoff, n.table, self.moff, self.msg, self.aoff, self.adj,
            n.cnode, n.cstart, n.cend, n.cuoff, n.cuse, n.room,
            self.price, self.active, self.best_price, self.best_msg, self.state, upper, count, warm,
        )  # fmt: skip

    def charged(self, price: F) -> F:
        """Unary costs with memory priced."""
        n = self.net
        theta = np.empty(len(n.unary))
        dual.charge(n.uoff, n.unary, n.cnode, n.cstart, n.cend, n.cuoff, n.cuse, price, theta)
        return theta

    def snapshot(self) -> Snapshot:
        """The best prices and messages, safe to read while the bound is being raised."""
        return Snapshot(self.best_price.copy(), self.best_msg.copy())

    def converged(self) -> bool:
        """Whether price steps have become too small to matter."""
        return bool(self.state[1] < 1e-5) or (len(self.net.room) == 0 and bool(self.state[3] > 3000))

    @property
    def young(self) -> bool:
        """Whether the prices still move a lot, so that assignments soon are out of date."""
        moving = self.state[1] > 2e-3 * abs(self.state[0])
        return bool(len(self.net.room) > 0 and self.state[3] < 800 and moving)

    def decode(self, at: Snapshot) -> I:
        """Round the messages to an assignment."""
        n = self.net
        theta = self.charged(at.price)
        x = np.zeros(n.n, dtype=np.int64)
        dual.decode(n.uoff, theta, n.eu, n.ev, n.eoff, n.table, self.moff, at.msg, self.aoff, self.adj, x)
        return x

    def fix(self, upper: float) -> tuple[F, int]:
        """Unary costs with every strategy forbidden that no assignment of cost <= ``upper`` uses."""
        n = self.net
        theta = self.charged(self.best_price)
        msg = self.best_msg.copy()
        arg = np.zeros(n.n, dtype=np.int64)
        parts = (n.uoff, theta, n.eu, n.ev, n.eoff, n.table, self.moff, msg, self.aoff, self.adj)
        dual.sweep(*parts, arg, False)
        paid = float(self.best_price @ n.room) if len(n.room) else 0.0
        base = dual.sweep(*parts, arg, True)
        base -= paid + _SAFETY * (abs(base) + paid)
        unary = n.unary.copy()
        gone = dual.fix(
            n.uoff,
            theta,
            unary,
            n.eu,
            n.ev,
            n.eoff,
            n.table,
            self.moff,
            msg,
            self.aoff,
            self.adj,
            base,
            upper,
        )
        return unary, int(gone)

    def search(
        self, x: I, at: Snapshot, seed: int, count: int, *, limit: int, hot: float, cold: float, boost: F
    ) -> tuple[I, I, bool]:
        """Local search from ``x``: where it ended, the best assignment met, and whether that one is feasible."""
        n = self.net
        slack = n.room - n.profile(x)
        cost = float(n.unary[n.uoff[:-1] + x].sum())
        if n.m:
            cost += float(self.table[n.eoff[:-1] + x[n.eu] * n.sizes[n.ev] + x[n.ev]].sum())
        over = float(np.maximum(0.0, -slack).sum())
        state = np.array([cost, over, cost, over])
        last, best = x.copy(), x.copy()
        rng = np.array([(seed * 0x9E3779B97F4A7C15 + 0x1234567) % (1 << 64) | 1], dtype=np.uint64)
        top = float(at.price.max()) if len(at.price) else 0.0
        unit = top if top > 0 else self.span / max(1.0, float(n.cuse.sum())) + 1e-30
        localsearch.search(
            n.uoff, n.unary, n.eu, n.ev, n.eoff, self.table, self.aoff, self.adj,
            self.coff, n.cstart, n.cend, n.cuoff, n.cuse, at.price, boost, slack, last, best, state, rng,
            count, limit, hot, cold, 1000.0, unit,
        )  # fmt: skip
        return last, best, bool(n.cost(best) < np.inf and self.overuse(best) == 0.0)

    @property
    def scale(self) -> float:
        """Rough size of the costs at stake."""
        value = float(self.state[0])
        return abs(value) if np.isfinite(value) and value != 0 else self.span

    def overuse(self, x: I) -> float:
        """Sum over time of the usage beyond the room."""
        if not len(self.net.room):
            return 0.0
        return float(np.maximum(0.0, self.net.profile(x) - self.net.room).sum())


def _span(values: F, off: I) -> float:
    """Sum over segments of the finite maximum minus the minimum."""
    high = np.maximum.reduceat(np.where(np.isfinite(values), values, -np.inf), off[:-1])
    low = np.minimum.reduceat(values, off[:-1])
    return float((high - low).sum())
