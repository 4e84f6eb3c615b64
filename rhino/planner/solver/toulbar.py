"""toulbar2 as the engine for networks without a memory constraint (prices folded into the unary costs).

toulbar2 works on integers. Every table is shifted to minimum zero, multiplied by a power of two and rounded
to nearest, so a cost of ``n + m`` tables moves by at most ``(n + m) / 2 / scale``; the lower bound is lowered
by that much. Integer costs with ``scale >= 1`` are exact.

Run as a script, for `rhino.planner.solver.apart`, this file imports nothing of Rhino, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .network import F, I

_HEADROOM = 2.0**50

Knapsack = tuple[Sequence[int], Sequence[np.ndarray], int]


@dataclass(frozen=True)
class Outcome:
    """What a toulbar2 run found: the assignment (None: nothing better than ``upper``) and a valid bound."""

    assignment: I | None
    lower_bound: float
    proven: bool


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Send file descriptors 1 and 2 to /dev/null: toulbar2 prints from C++."""
    saved = [os.dup(1), os.dup(2)]
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 1)
        os.dup2(null, 2)
        yield
    finally:
        for fd, old in zip((1, 2), saved, strict=True):
            os.dup2(old, fd)
            os.close(old)
        os.close(null)


def _shift(values: F, off: I) -> tuple[F, F]:
    """Each row segment minus its minimum, and the minima."""
    if len(off) > 1 and np.isinf(np.minimum.reduceat(values, off[:-1])).any():
        return values, np.array([np.inf])
    low = np.minimum.reduceat(values, off[:-1]) if len(off) > 1 else np.zeros(0)
    return values - np.repeat(low, np.diff(off)), low


def minimise(
    uoff: I, unary: F, eu: I, ev: I, eoff: I, table: F,
    *, upper: float = np.inf, time_limit: float | None = None, backtracks: int | None = None, seed: int = 1,
    knapsacks: Sequence[Knapsack] = (),
) -> Outcome:  # fmt: skip
    """Minimise the network; only assignments cheaper than ``upper`` count.

    ``time_limit`` is CPU seconds (toulbar2 counts whole ones); ``backtracks`` bounds the search reproducibly.
    ``knapsacks`` are (nodes, one integer weight vector per node, room): the weights must sum to at most the room.
    """
    import pytoulbar2.pytb2 as tb2
    from pytoulbar2 import CFN

    sizes = np.diff(uoff)
    n, m = len(sizes), len(eu)
    u0, ulow = _shift(unary, uoff)
    t0, tlow = _shift(table, eoff)
    base = float(ulow.sum() + tlow.sum())
    if not np.isfinite(base):
        return Outcome(None, np.inf, True)
    fu, ft = np.where(np.isfinite(u0), u0, 0.0), np.where(np.isfinite(t0), t0, 0.0)
    worst = float(np.maximum.reduceat(fu, uoff[:-1]).sum()) + (
        float(np.maximum.reduceat(ft, eoff[:-1]).sum()) if m else 0.0
    )
    cap = min(worst, upper - base)
    if cap < 0:
        return Outcome(None, upper, True)
    exact = bool(np.all(fu == np.rint(fu)) and np.all(ft == np.rint(ft)))
    scale = 2.0 ** np.floor(np.log2(_HEADROOM / max(cap, 1e-300)))
    scale = min(scale, 1.0) if exact else min(scale, 2.0**80)
    slack = 0.0 if exact and scale >= 1 else 0.5 * (n + m) / scale
    top = int(np.floor(cap * scale + slack * scale)) + 1  # strictly above every assignment worth finding
    qu = np.where(u0 * scale < top, np.rint(u0 * scale), float(top))
    qt = np.where(t0 * scale < top, np.rint(t0 * scale), float(top))

    with _quiet():
        cfn = CFN(ubinit=top, resolution=0, seed=seed, verbose=-1)
        wcsp = cfn.CFN.wcsp
        # The library adapts this while it searches and does not reset it: left alone, a result depends on the solves
        # before it.
        tb2.option.hbfs = 1
        if backtracks is not None:
            tb2.option.backtrackLimit = backtracks
        order = np.argsort(sizes, kind="stable")
        place = np.empty(n, dtype=np.int64)
        place[order] = np.arange(n)
        count = 0
        for k, group in _groups(sizes[order]):
            wcsp.makeEnumeratedVariableVec(len(group), f"k{k}_", 0, int(k) - 1)
            ids = order[group]
            costs = qu[uoff[ids][:, None] + np.arange(k)[None, :]]
            wcsp.postUnaryVecConstraints(
                np.arange(count, count + len(group)), np.ascontiguousarray(costs), False
            )
            count += len(group)
        if m:
            key = sizes[eu] * (int(sizes.max()) + 1) + sizes[ev]
            eorder = np.argsort(key, kind="stable")
            for _, group in _groups(key[eorder]):
                ids = eorder[group]
                ki, kj = int(sizes[eu[ids[0]]]), int(sizes[ev[ids[0]]])
                costs = qt[eoff[ids][:, None] + np.arange(ki * kj)[None, :]].reshape(len(ids), ki, kj)
                scope = np.stack([place[eu[ids]], place[ev[ids]]], axis=1)
                wcsp.postMultBinaryVecConstraints(
                    np.ascontiguousarray(scope), np.ascontiguousarray(costs), False
                )
        for nodes, weights, room in knapsacks:
            words = [str(-room)]
            for _node, w in zip(nodes, weights, strict=True):
                used = [f"{s} {-int(v)}" for s, v in enumerate(w) if v != 0]
                words.append(str(len(used)))
                words.extend(used)
            wcsp.postKnapsackConstraint([int(place[i]) for i in nodes], " ".join(words), kp=True)
        limit = 0 if time_limit is None else max(1, int(time_limit))
        found = cfn.Solve(timeLimit=limit)
        # The library leaves its timer running: it would go off in the middle of whatever comes next.
        cfn.CFN.timerStop()
        # an interrupted search leaves its bound in getDDualBound; a finished one proves its incumbent
        stopped = bool(tb2.option.limited) if hasattr(tb2.option, "limited") else False
        dual = float(cfn.GetDDualBound())
    if found is None:
        if stopped:
            return Outcome(None, max(dual, 0.0) / scale + base - slack, False)
        return Outcome(None, min(upper, np.inf), True)
    values = np.asarray(found[0], dtype=np.int64)[place]
    proven = not stopped
    bound = (float(found[1]) if proven else min(max(dual, 0.0), float(found[1]))) / scale + base - slack
    return Outcome(values, bound, proven)


def _groups(sorted_keys: I) -> Iterator[tuple[int, I]]:
    """Runs of equal keys as index arrays."""
    if len(sorted_keys) == 0:
        return
    cut = np.flatnonzero(np.diff(sorted_keys)) + 1
    for part in np.split(np.arange(len(sorted_keys)), cut):
        yield int(sorted_keys[part[0]]), part


def main() -> None:
    """Reads (bytes of address space, arrays, options) from the input, pickled, and writes the outcome's fields."""
    room, arrays, options = pickle.load(sys.stdin.buffer)
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    outcome = minimise(*arrays, **options)
    sys.stdout.buffer.write(pickle.dumps((outcome.assignment, outcome.lower_bound, outcome.proven)))


if __name__ == "__main__":
    main()
