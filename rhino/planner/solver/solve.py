"""The entry point: reduce, price, repair, search; anytime, with a lower bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .network import F, I, Network, flatten
from .problem import Infeasible, Problem, Solution, evaluate
from .toulbar import minimise


def _priced(net: Network, price: F) -> F:
    """Unary costs with memory charged at ``price`` per unit and time point."""
    total = np.concatenate([[0.0], np.cumsum(price)])
    per = total[net.cend] - total[net.cstart]
    unary = net.unary.copy()
    widths = np.diff(net.cuoff)
    owner = np.repeat(net.uoff[net.cnode] - net.cuoff[:-1], widths) + np.arange(len(net.cuse))
    np.add.at(unary, owner, net.cuse * np.repeat(per, widths))
    return unary


def solve(
    problem: Problem,
    *,
    timeout: float | None = 60,
    seed: int = 0,
    iterations: int | None = None,
    start: Sequence[int] | None = None,
    gap: float = 0.0,
    progress: Callable[..., Any] | None = None,
) -> Solution:
    """Minimise ``problem``; see the package docstring for the meaning of the arguments."""
    began = time.perf_counter()
    problem.check()
    net = flatten(problem)
    best: I | None = None
    best_cost = np.inf
    lower = -np.inf
    if start is not None:
        x = np.asarray(start, dtype=np.int64)
        c = net.cost(x)
        if c < np.inf and np.all(net.profile(x) <= net.room):
            best, best_cost = x, c
    price = np.zeros(len(net.room))
    step, count, proven = 1.0, 0, False
    while True:
        left = None if timeout is None else timeout - (time.perf_counter() - began)
        if count and ((left is not None and left <= 0) or (iterations is not None and count >= iterations)):
            break
        out = minimise(
            net.uoff, _priced(net, price), net.eu, net.ev, net.eoff, net.table,
            time_limit=None if left is None else max(left, 1), seed=seed,
        )  # fmt: skip
        count += 1
        if out.assignment is None and out.proven:
            raise Infeasible("the costs alone forbid every assignment (memory plays no part)")
        lower = max(lower, out.lower_bound - float(price @ net.room))
        if out.assignment is None:
            break
        x = out.assignment
        over = net.profile(x) - net.room if len(net.room) else np.zeros(0)
        cost = net.cost(x)
        if np.all(over <= 0) and cost < best_cost:
            best, best_cost = x, cost
        if best is not None and best_cost <= lower + 1e-9 * abs(lower):
            proven = True
            break
        if not len(net.room) or (best is not None and best_cost - lower <= gap * abs(best_cost)):
            break
        grad = np.where((price <= 0) & (over < 0), 0.0, over)
        norm = float(grad @ grad)
        if norm == 0:
            break
        target = best_cost if best is not None else max(abs(lower) * 1.1, 1.0)
        price = np.maximum(0.0, price + step * max(target - lower, 1e-3 * abs(lower)) / norm * over)
        step *= 0.97
        if progress is not None:
            progress(seconds=time.perf_counter() - began, cost=best_cost, lower_bound=lower, iteration=count)
    if best is None:
        raise Infeasible("memory: no assignment within the limit was found in the time given")
    cost, peak = evaluate(problem, best.tolist())
    return Solution(
        tuple(int(s) for s in best), cost, min(lower, cost), peak, proven, time.perf_counter() - began, count
    )
