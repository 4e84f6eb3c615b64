"""Walkers: annealing cycles of the local search, each some rounds long, from the bound or from the incumbent."""

from __future__ import annotations

import numpy as np

from .core import Core, Snapshot
from .network import I

_HEATS = (1e-5, 1e-4, 3e-6, 3e-5)
"""Starting temperatures of the cycles, relative to the cost of the core."""

_PATIENCE = 60
"""Rounds after which an assignment that still is outside the limit is given up."""


class Walker:
    """One searching thread: remembers its assignment and where it is in its cycle."""

    def __init__(self, seed: int, offset: int) -> None:
        self.seed, self.offset = seed, offset
        self.cycle, self.age, self.rounds = 0, 0, 0
        self.x: I | None = None
        self.broken = False  # whether the assignment is outside the limit
        self.boost = np.zeros(0)

    def reset(self) -> None:
        """Forget the assignment (the core changed)."""
        self.x = None
        self.broken = False
        self.age = 0

    def step(self, core: Core, at: Snapshot, incumbent: I | None) -> I | None:
        """One round; returns the best feasible assignment it met, if any."""
        young = core.young
        length = 2 if young else min(4 << (self.cycle // 2), 64)
        if self.broken and self.age < _PATIENCE:
            length = max(length, self.age + 1)
        if self.x is None or self.age >= length:
            if self.x is not None and not young:
                self.cycle += 1
            self.age = 0
            self.broken = False
            fresh = incumbent is None or young or (self.cycle + self.offset) % 3 == 0
            self.x = core.decode(at) if fresh or incumbent is None else incumbent.copy()
            self.boost = np.zeros(len(core.net.room))
            length = 2 if young else min(4 << (self.cycle // 2), 64)
        scale = abs(core.net.cost(incumbent)) if incumbent is not None else core.scale
        heat = min(scale, 10 * core.scale) * _HEATS[(self.cycle + self.offset) % len(_HEATS)]
        cool = 0.01 ** (1.0 / length)
        hot = heat * cool**self.age if not self.broken else 0.0
        self.age += 1
        self.rounds += 1
        count = min(3000, 100 + 20 * core.net.n)
        last, best, feasible = core.search(
            self.x, at, self.seed * 7919 + self.rounds, count, limit=300, hot=hot, cold=hot * cool,
            boost=self.boost,
        )  # fmt: skip
        self.x = last
        self.broken = core.overuse(last) > 0
        return best if feasible else None
