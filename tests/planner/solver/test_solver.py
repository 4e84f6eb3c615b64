"""The solver against brute force on small random problems."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rhino.planner.solver import Infeasible, Problem, evaluate, solve


def random_problem(seed: int, *, memory: bool = False, n: int = 7, floats: bool = False) -> Problem:
    """Random graph with parallel edges, forbidden entries and, if asked, a binding memory limit."""
    rng = np.random.default_rng(seed)
    k = rng.integers(1, 5, n)
    draw = (lambda size: rng.random(size) * 50) if floats else (lambda size: rng.integers(0, 50, size) * 1.0)
    costs = tuple(draw(int(a)) for a in k)
    edges = []
    for _ in range(int(n * 1.5)):
        i, j = (int(v) for v in rng.choice(n, 2, replace=False))
        table = draw((int(k[i]), int(k[j])))
        table[rng.random(table.shape) < 0.2] = 1e18
        edges.append((i, j, table))
    if not memory:
        return Problem(costs, tuple(edges))
    usages = tuple(rng.integers(0, 20, int(a)).astype(float) for a in k)
    begin = rng.integers(0, 8, n)
    spans = tuple((int(b), int(b + d)) for b, d in zip(begin, rng.integers(0, 6, n), strict=True))
    return Problem(costs, tuple(edges), usages, spans, float(rng.integers(15, 45)))


def brute(problem: Problem) -> float:
    """The optimum by enumeration (inf: infeasible)."""
    best = np.inf
    for x in itertools.product(*(range(len(c)) for c in problem.costs)):
        cost, peak = evaluate(problem, x)
        if problem.limit is None or peak <= problem.limit:
            best = min(best, cost)
    return float(best)


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_matches_brute_force_without_memory(seed: int, floats: bool) -> None:
    problem = random_problem(seed, floats=floats)
    want = brute(problem)
    if np.isinf(want):
        with pytest.raises(Infeasible, match="cost"):
            solve(problem)
        return
    found = solve(problem)
    assert found.cost == pytest.approx(want, rel=1e-12)
    assert found.lower_bound <= want + 1e-9
    assert found.optimal
