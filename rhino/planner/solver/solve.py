"""The entry point: reduce, bound, prove if small, search otherwise; anytime, with a lower bound.

All phases run for counted steps, and the clock only decides when to stop, so runs that end by proof or by
``iterations`` repeat exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from .apart import ROOM
from .core import Core
from .exact import prove
from .network import I, Network, flatten
from .problem import Infeasible, NothingBelow, Problem, Solution, evaluate
from .reduce import Reduction, reduce_network
from .walk import Walker

_SMALL = 200_000
"""Table entries up to which a core is handed to the exact phase at once."""
_TINY = 20_000
"""Table entries up to which a core without memory needs no incumbent first."""
_TAME = 64
"""Nodes up to which a core with memory is handed to toulbar2 in this process."""
_MOVE = 1e-5
"""Share of the cost by which the gap must narrow for a round to have brought something."""
_BACKTRACKS = 5_000
"""Search effort of the first exact attempt."""
_KNAPSACK_BACKTRACKS = 2_000
"""Search effort of every exact attempt on a core with memory."""


class _Run:
    """One call of :func:`solve`: the incumbent in the original network, and the current core."""

    def __init__(
        self, problem: Problem, timeout: float | None, seed: int, gap: float, cutoff: float = np.inf
    ) -> None:
        self.began = time.perf_counter()
        self.problem, self.timeout, self.seed, self.gap, self.cutoff = problem, timeout, seed, gap, cutoff
        self.origin: Network = flatten(problem)
        whole = all(np.all(v == np.rint(v)) for v in (self.origin.unary, self.origin.table) if len(v))
        self.whole = whole  # integer costs: anything better is better by at least 1
        self.best: I | None = None
        self.cost = np.inf
        self.lower = -np.inf
        self.reductions: list[Reduction] = []
        self.constant = 0.0
        self.iteration = 0
        self.margin = 0.2 + 4e-6 * (len(problem.costs) + len(problem.edges))  # seconds to write the result
        self.tried: tuple[int, float] | None = None  # nodes and upper bound of the last proof with knapsacks
        self.complete = False  # the search space below the incumbent is proven empty

    # -- bookkeeping ---------------------------------------------------------------------------------------
    def left(self) -> float | None:
        """Seconds left (None: no limit)."""
        return None if self.timeout is None else self.timeout - (time.perf_counter() - self.began)

    def late(self, margin: float = 0.0) -> bool:
        """Whether the time is up."""
        left = self.left()
        return left is not None and left <= margin

    def expand(self, x: I) -> I:
        """Assignment of the original network from one of the current core."""
        for reduction in reversed(self.reductions):
            x = reduction.expand(x)
        return x

    def offer(self, full: I) -> bool:
        """Take an assignment of the original network as incumbent if it is feasible and better."""
        cost = self.origin.cost(full)
        if not cost < self.cost:
            return False
        if len(self.origin.room) and np.any(self.origin.profile(full) > self.origin.room):
            return False
        self.best, self.cost = full, cost
        return True

    def raise_lower(self, value: float) -> None:
        """A proven bound on the core's optimum; beyond the incumbent it proves the incumbent."""
        value += self.constant
        if self.whole:
            value = float(np.ceil(value - 1e-6)) if abs(value) < 1e15 else value
        self.lower = max(self.lower, min(value, self.cost))

    @property
    def goal(self) -> float:
        """What the bound may aim at, in the core's terms: the incumbent's cost or the cutoff, else no limit."""
        return min(self.cost, self.cutoff) - self.constant

    @property
    def upper(self) -> float:
        """The incumbent's cost in the core's terms."""
        return self.cost - self.constant

    @property
    def target(self) -> float:
        """Cost below which an improvement would have to lie, in the core's terms."""
        if not np.isfinite(self.cost):
            return np.inf
        return self.upper - (1.0 if self.whole else 1e-9 * max(1.0, abs(self.cost)))

    def closed(self) -> bool:
        """Whether to stop: the incumbent is good enough, or nothing is left below the cutoff."""
        return self.lower >= self.cutoff or self.near()

    def near(self) -> bool:
        """Whether the incumbent is proven or within the gap asked for."""
        if self.best is None:
            return False
        slack = 0.0 if self.whole else 1e-9 * max(1.0, abs(self.cost))
        return self.complete or self.cost - self.lower <= max(slack, self.gap * abs(self.cost))

    # -- phases --------------------------------------------------------------------------------------------
    def reduce(self, net: Network) -> Network:
        """Reduce and remember the way back."""
        reduction = reduce_network(net)
        self.reductions.append(reduction)
        self.constant += reduction.constant
        return reduction.net

    def adopt(self, core: Core) -> None:
        """Carry the incumbent over to a new core, filling gaps from its bound."""
        if self.best is None or core.net.n == 0:
            return
        x = self.best
        for reduction in self.reductions:
            x = reduction.project(x)
        x = np.where(x >= 0, x, core.decode(core.snapshot()))
        core.incumbent = x

    def take(self, core: Core, x: I | None) -> None:
        """Offer an assignment of the core."""
        if x is not None and self.offer(self.expand(x)):
            core.incumbent = x

    def prove(self, core: Core, backtracks: int) -> None:
        """Exact phase on the core; settles the run when it succeeds."""
        left = self.left()
        # toulbar2 counts processor seconds, which may pass slower than those on the clock
        seconds = None if left is None else max(1.0, left / 3)
        apart = 0
        if len(core.net.room):
            # With knapsacks the library's memory was seen to grow without bound: after some ten thousand backtracks,
            # or at once, already on networks of 255 nodes and 3,198 table entries.
            backtracks = min(backtracks, _KNAPSACK_BACKTRACKS)
            if self.tried == (core.net.n, self.upper):
                return
            self.tried = core.net.n, self.upper
            if core.net.n > _TAME:
                apart = ROOM if len(core.net.table) > _TINY else ROOM // 2
        proof = prove(
            core.net, core.best_price, self.upper, seconds, backtracks=backtracks, seed=self.seed, apart=apart
        )
        if proof.assignment is not None:
            self.take(core, proof.assignment)
        if proof.proven:
            if self.best is None:
                raise Infeasible("nothing is left")
            self.complete = True
        else:
            self.raise_lower(proof.lower_bound)

    def tighten(self, core: Core, share: float) -> Core | None:
        """Forbid what the bound rules out; a new core when that pays, None when nothing is left to find."""
        unary, gone = core.fix(self.target)
        if gone < share * len(unary):
            return core
        try:
            net = self.reduce(replace(core.net, unary=unary))
        except Infeasible:
            self.complete = True
            return None
        if net.n == 0:
            self.offer(self.expand(np.zeros(0, dtype=np.int64)))
            self.complete = True
            return None
        return Core(net)


def _cause(problem: Problem) -> str:
    """Why nothing was found, once the search space is known to be empty."""
    if problem.has_memory:
        try:
            solve(replace(problem, limit=None, usages=None, intervals=None), timeout=10, gap=1e300)
        except Infeasible as error:
            return str(error)
        return "memory: no assignment fits the limit (without the limit there are some)"
    return "the costs alone forbid every assignment (memory plays no part)"


class _Patience:
    """Counts the rounds in which neither the incumbent nor the bound moved by much."""

    def __init__(self, rounds: int | None) -> None:
        self.rounds = rounds
        self.stale = 0
        self.mark = np.inf

    def lost(self, run: _Run) -> bool:
        """Whether the last so many rounds brought next to nothing; asked once after every round."""
        gap = run.cost - run.lower
        if not np.isfinite(run.cost) or gap < self.mark - _MOVE * abs(run.cost):
            self.mark, self.stale = gap, 0
        else:
            self.stale += 1
        return self.rounds is not None and self.stale >= self.rounds


def _settle(
    run: _Run, iterations: int | None, patience: _Patience, progress: Callable[..., Any] | None
) -> None:
    net = run.reduce(run.origin)
    if net.n == 0:
        run.offer(run.expand(np.zeros(0, dtype=np.int64)))
        run.complete = True
        return
    core = Core(net)
    if len(net.table) <= _SMALL:
        fresh = _attack(run, core)
        if fresh is None or run.closed():
            return
        core = fresh
    core.ascend(60, run.goal)
    run.raise_lower(core.lower)
    run.adopt(core)
    walkers = [Walker(run.seed * 1000 + w, w) for w in range(2)]
    next_fix, backtracks = 16, 2 * _BACKTRACKS
    lap = 0.0
    with ThreadPoolExecutor(1) as pool:
        while not run.closed() and not run.late(run.margin + 1.3 * lap):
            if (iterations is not None and run.iteration >= iterations) or (
                run.iteration and patience.lost(run)
            ):
                break
            clock = time.perf_counter()
            run.iteration += 1
            at, incumbent = core.snapshot(), core.incumbent
            job: Future[Any]
            if core.converged():
                job = pool.submit(walkers[1].step, core, at, incumbent)
            else:
                job = pool.submit(core.ascend, 40, run.goal)
            run.take(core, walkers[0].step(core, at, incumbent))
            run.take(core, job.result())
            run.raise_lower(core.lower)
            lap = max(0.7 * lap, time.perf_counter() - clock)
            if progress is not None:
                progress(
                    seconds=time.perf_counter() - run.began, cost=run.cost, lower_bound=run.lower,
                    iteration=run.iteration,
                )  # fmt: skip
            if run.iteration < next_fix or run.best is None or run.closed():
                continue
            next_fix = int(next_fix * 1.5)
            fresh = run.tighten(core, 0.25)
            if fresh is None:
                return
            if fresh is not core:
                core = fresh
                core.ascend(100, run.goal)
                run.adopt(core)
                for walker in walkers:
                    walker.reset()
            if len(core.net.table) <= _SMALL:
                run.prove(core, backtracks)
                backtracks *= 2


def _attack(run: _Run, core: Core) -> Core | None:
    """Small cores: a quick incumbent, reduced-cost fixing, then proof. None when the search space is exhausted."""
    if len(core.net.table) <= _TINY and not len(core.net.room):
        run.prove(core, _BACKTRACKS)
        return core
    core.ascend(200, run.goal)
    run.raise_lower(core.lower)
    run.adopt(core)
    walker = Walker(run.seed * 1000 + 7, 0)
    for _ in range(8):
        run.take(core, walker.step(core, core.snapshot(), core.incumbent))
        if run.closed():
            return core
    core.ascend(200, run.goal)
    run.raise_lower(core.lower)
    if run.best is not None and not run.closed():
        fresh = run.tighten(core, 0.02)
        if fresh is None:
            return None
        if fresh is not core:
            core = fresh
            core.ascend(200, run.goal)
            run.adopt(core)
    if not run.closed():
        run.prove(core, _BACKTRACKS)
    return core


def solve(
    problem: Problem,
    *,
    timeout: float | None = 60,
    seed: int = 0,
    iterations: int | None = None,
    start: Sequence[int] | None = None,
    gap: float = 0.0,
    cutoff: float = np.inf,
    patience: int | None = None,
    progress: Callable[..., Any] | None = None,
) -> Solution:
    """Minimise ``problem``.

    Args:
        problem: the network.
        timeout: seconds from the call (None: until proven or ``iterations``).
        seed: seed of everything random.
        iterations: at most this many search rounds; makes the result independent of the clock.
        start: an assignment the result is never worse than, if feasible.
        gap: stop when ``(cost - lower_bound) / |cost|`` is proven to be at most this.
        cutoff: stop when nothing of a lower cost is proven to exist.
        patience: stop when, with an incumbent, this many rounds on end brought next to nothing.
        progress: called as ``progress(seconds=, cost=, lower_bound=, iteration=)`` after each round.

    Raises:
        Infeasible: no assignment exists, or none was found in time (the message says which, and whether
            costs or memory are the cause). NothingBelow: the bound reached ``cutoff`` before an assignment was found.
    """
    problem.check()
    if iterations is not None:
        timeout = None
    run = _Run(problem, timeout, seed, gap, cutoff)
    if start is not None:
        x = np.asarray(start, dtype=np.int64)
        if x.shape != (run.origin.n,) or np.any(x < 0) or np.any(x >= run.origin.sizes):
            raise ValueError("start must give a strategy of each node")
        run.offer(x)
    try:
        _settle(run, iterations, _Patience(patience), progress)
    except Infeasible as error:
        if run.best is None:
            raise Infeasible(_cause(problem)) from error
        run.complete = True  # nothing but the warm start is left
    if run.best is None and run.lower >= cutoff:
        raise NothingBelow(cutoff)
    if run.best is None:
        what = (
            "memory: no assignment within the limit" if problem.has_memory else "costs: no allowed assignment"
        )
        raise Infeasible(f"{what} was found in the time given (none is proven not to exist)")
    cost, peak = evaluate(problem, run.best.tolist())
    lower = cost if run.complete else min(run.lower, cost)
    return Solution(
        tuple(int(s) for s in run.best), cost, lower, peak, run.complete or (run.near() and run.gap == 0.0),
        time.perf_counter() - run.began, run.iteration,
    )  # fmt: skip
