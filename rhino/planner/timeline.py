"""Lifetimes of copies: when, and how many of them, are alive at the moments that can be a plan's worst.

Copies share their decisions, so at one place in a layer the bytes alive change from copy to copy by the same amount:
what the forward pass keeps grows with every layer, what the backward pass frees shrinks, gradients grow again. What
grows steadily is largest at an end. So of every run only the ops of its first and last copies are kept as moments,
and a sweep costs no more for many layers than for a few. Of micro-batches the first and the last are kept.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rhino.planner.fold import Run

#: Copies at either end of a run whose moments are kept; the outermost differ in what comes before and after them.
ENDS = 2

#: ``(start, end, how many)``: so many copies are alive over the moments ``[start, end)``.
Span = tuple[int, int, int]


class Timeline:
    """The moments of a program of `length` ops (and the end), and lifetimes counted in them."""

    def __init__(self, length: int, runs: Iterable[Run], repeats: Iterable[tuple[int, int]] = ()) -> None:
        """`repeats` are stretches that hold no more than what stands around them."""
        keep = np.ones(length + 1, dtype=bool)
        for start, end in repeats:
            keep[start:end] = False
        for run in runs:
            keep[run.start + ENDS * run.period : max(run.start, run.stop - ENDS * run.period)] = False
        self.moments = np.flatnonzero(keep)
        self._before = np.concatenate(([0], np.cumsum(keep)))

    @property
    def size(self) -> int:
        return len(self.moments)

    def spans(self, lives: Iterable[tuple[int, int]]) -> tuple[Span, ...]:
        """Lifetimes ``[start, end)`` of copies, in ops, as spans of moments that hold them all, nested or apart."""
        change: dict[int, int] = {}
        for start, end in lives:
            a, b = int(self._before[start]), int(self._before[min(end, len(self._before) - 1)])
            if a < b:
                change[a] = change.get(a, 0) + 1
                change[b] = change.get(b, 0) - 1
        out: list[Span] = []
        open_: list[tuple[int, int]] = []
        for at in sorted(change):
            more = change[at]
            if more > 0:
                open_.append((at, more))
            while more < 0:
                since, many = open_.pop()
                gone = min(many, -more)
                out.append((since, at, gone))
                more += gone
                if many > gone:
                    open_.append((since, many - gone))
        return tuple(sorted(out))
