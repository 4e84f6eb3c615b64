"""The solver against brute force on small random problems."""

from __future__ import annotations

import itertools
import signal
from dataclasses import replace

import numpy as np
import pytest

from rhino.planner.solver import Infeasible, NothingBelow, Problem, Solution, evaluate, solve
from rhino.planner.solver.apart import minimise_apart
from rhino.planner.solver.core import Core
from rhino.planner.solver.network import flatten
from rhino.planner.solver.reduce import reduce_network
from rhino.planner.solver.toulbar import minimise


def random_problem(seed: int, *, memory: bool = False, n: int = 7, floats: bool = False) -> Problem:
    """Random graph with parallel edges, forbidden entries and, if asked, a binding memory limit."""
    rng = np.random.default_rng(seed)
    k = rng.integers(1, 5, n)
    draw = (
        (lambda size: rng.random(size) * 50 - 5) if floats else (lambda size: rng.integers(0, 50, size) * 1.0)
    )
    costs = tuple(draw(int(a)) for a in k)
    edges = []
    for _ in range(int(n * 1.5)):
        i, j = (int(v) for v in rng.choice(n, 2, replace=False))
        table = draw((int(k[i]), int(k[j])))
        table[rng.random(table.shape) < 0.2] = 1e18
        edges.append((i, j, table))
    if not memory:
        return Problem(costs, tuple(edges))
    usages = tuple((rng.random(int(a)) if floats else rng.integers(0, 20, int(a))) * 1.0 for a in k)
    begin = rng.integers(0, 8, n)
    spans = tuple((int(b), int(b + d)) for b, d in zip(begin, rng.integers(0, 6, n), strict=True))
    limit = 2.0 if floats else float(rng.integers(15, 45))
    return Problem(costs, tuple(edges), usages, spans, limit)


def chain(seed: int, n: int, k: int = 4, *, cross: int = 0) -> Problem:
    """A long chain with memory that binds and, with ``cross``, long-range edges that keep the core large.

    Midway between the smallest usages (6 live nodes of at most 10 each) and the usual ones.
    """
    rng = np.random.default_rng(seed)
    pairs = [(i, i + 1) for i in range(n - 1)]
    pairs += [tuple(sorted(int(v) for v in rng.choice(n, 2, replace=False))) for _ in range(cross)]  # type: ignore[misc]
    edges = tuple((i, j, rng.integers(0, 60, (k, k)).astype(float)) for i, j in pairs)
    costs = tuple(rng.integers(0, 30, k).astype(float) for _ in range(n))
    usages = tuple(
        np.concatenate([np.sort(rng.integers(10, 40, k - 1))[::-1], rng.integers(0, 10, 1)]).astype(float)
        for _ in range(n)
    )
    spans = tuple((i, i + 6) for i in range(n))
    return Problem(costs, edges, usages, spans, 75.0)


def brute(problem: Problem) -> float:
    """The optimum by enumeration (inf: infeasible)."""
    best = np.inf
    for x in itertools.product(*(range(len(c)) for c in problem.costs)):
        cost, peak = evaluate(problem, x)
        if problem.limit is None or peak <= problem.limit:
            best = min(best, cost)
    return float(best)


def check(problem: Problem, found: Solution) -> None:
    """A solution means what it says."""
    cost, peak = evaluate(problem, found.assignment)
    assert (cost, peak) == (found.cost, found.peak_usage)
    assert found.lower_bound <= found.cost
    assert problem.limit is None or peak <= problem.limit


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_optimum_and_feasibility_match_brute_force(seed: int, floats: bool, memory: bool) -> None:
    problem = random_problem(seed, floats=floats, memory=memory)
    want = brute(problem)
    if np.isinf(want):
        by_cost = np.isinf(brute(replace(problem, limit=None)))
        with pytest.raises(Infeasible, match="cost" if by_cost else "memory"):
            solve(problem)
        return
    found = solve(problem)
    check(problem, found)
    assert found.cost == pytest.approx(want, rel=1e-9)
    assert found.lower_bound <= want + 1e-6
    assert found.optimal


@pytest.mark.parametrize("seed", range(30))
def test_reduction_keeps_the_optimum_and_expands_back(seed: int) -> None:
    problem = random_problem(seed, memory=seed % 2 == 1, n=8)
    want = brute(problem)
    net = flatten(problem)
    try:
        reduction = reduce_network(net)
    except Infeasible:
        assert np.isinf(want)
        return
    small = reduction.net
    best = np.inf
    for choice in itertools.product(*(range(int(k)) for k in small.sizes)):
        x = np.array(choice, dtype=np.int64)
        full = reduction.expand(x)
        cost = small.cost(x) + reduction.constant
        fits = bool(np.all(small.profile(x) <= small.room))
        if np.isinf(cost):
            continue  # a pair that was dominated, not forbidden
        assert cost == pytest.approx(net.cost(full))
        assert fits == bool(np.all(net.profile(full) <= net.room))
        assert np.array_equal(reduction.project(full), x)
        if fits:
            best = min(best, cost)
    assert best == pytest.approx(want)


def test_reduction_removes_followers_and_trees() -> None:
    """A node tied to its neighbour by a bijection disappears, memory included; a tree without memory as well."""
    tie = np.where(np.eye(3), 0.0, np.inf)
    base = np.array([3.0, 2.0, 1.0])
    usage = np.array([1.0, 2.0, 3.0])
    problem = Problem((base, base), ((0, 1, tie),), (usage, usage), ((0, 4), (2, 6)), 4.0)
    assert reduce_network(flatten(problem)).net.n <= 1
    assert solve(problem).assignment == (1, 1)
    tree = chain(1, 50)
    assert reduce_network(flatten(Problem(tree.costs, tree.edges))).net.n == 0


@pytest.mark.parametrize("seed", range(30))
def test_every_bound_is_below_the_optimum(seed: int) -> None:
    for draw in itertools.count(1000 * seed):
        problem = random_problem(draw, memory=True, n=8)
        want, net = brute(problem), flatten(problem)
        if np.isfinite(want) and np.isfinite(net.unary).all():
            break
    core = Core(net)
    previous = -np.inf
    for _ in range(6):
        core.ascend(10, want, warm=5)
        assert previous <= core.lower <= want + 1e-6
        previous = core.lower
    unary, _ = core.fix(want)
    kept = tuple(np.where(np.isfinite(part), c, np.inf) for part, c in zip(
        np.split(unary, net.uoff[1:-1]), problem.costs, strict=True))  # fmt: skip
    assert brute(replace(problem, costs=kept)) == want  # fixing removed only what cannot be optimal


def test_bound_of_a_tree_is_tight() -> None:
    tree = chain(3, 12)
    problem = Problem(tree.costs, tree.edges)
    core = Core(flatten(problem))
    core.ascend(5, np.inf)
    assert core.lower == pytest.approx(solve(problem).cost)


def test_search_on_a_large_core_is_feasible_bounded_and_repeatable() -> None:
    problem = chain(5, 400, 6, cross=500)
    first = solve(problem, iterations=3, seed=4)
    again = solve(problem, iterations=3, seed=4)
    check(problem, first)
    assert first.assignment == again.assignment
    assert (first.cost, first.lower_bound, first.iterations) == (
        again.cost,
        again.lower_bound,
        again.iterations,
    )
    assert first.gap < 0.5
    longer = solve(problem, iterations=6, seed=4)
    assert longer.cost <= first.cost
    assert longer.lower_bound >= first.lower_bound


def test_warm_start_is_never_made_worse() -> None:
    problem = chain(6, 400, 6, cross=500)
    good = solve(problem, iterations=6)
    warm = solve(problem, iterations=1, start=good.assignment, seed=9)
    assert warm.cost <= good.cost
    check(problem, warm)
    easy = random_problem(3)
    best = solve(easy)
    assert solve(easy, start=best.assignment).cost == best.cost
    with pytest.raises(ValueError, match="start"):
        solve(easy, start=[0])


def test_time_limit_and_progress() -> None:
    problem = chain(7, 400, 6, cross=500)
    seen: list[float] = []
    found = solve(problem, timeout=4, progress=lambda **k: seen.append(k["lower_bound"]))
    check(problem, found)
    assert found.seconds < 8
    assert seen == sorted(seen)


def test_gap_stops_early() -> None:
    problem = chain(7, 400, 6, cross=500)
    found = solve(problem, iterations=200, gap=0.5)
    assert found.gap <= 0.5
    assert found.iterations < 200


@pytest.mark.parametrize(
    "problem",
    [
        Problem((np.zeros(2),), ((0, 0, np.zeros((2, 2))),)),
        Problem((np.zeros(2), np.zeros(3)), ((0, 1, np.zeros((3, 2))),)),
        Problem((np.zeros(2),), (), limit=3.0),
        Problem((np.zeros(0),), ()),
    ],
)
def test_malformed_problems_are_refused(problem: Problem) -> None:
    with pytest.raises(ValueError, match=r"node|edge|limit"):
        solve(problem)


def test_edge_cases() -> None:
    assert solve(Problem((), ())).assignment == ()
    assert solve(Problem((np.array([2.0, 1.0]),), ())).assignment == (1,)
    alone = Problem((np.array([1, 2]),), (), (np.array([5, 1]),), ((0, 1),), 4)
    assert solve(alone).assignment == (1,)
    unlimited = replace(alone, limit=None)
    assert solve(unlimited).assignment == (0,)
    with pytest.raises(Infeasible, match="memory"):
        solve(replace(alone, limit=0.5))


def test_nothing_reaches_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    solve(chain(8, 40, 5, cross=40), iterations=2)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_a_cutoff_ends_the_search_where_nothing_is_below_it() -> None:
    problem = chain(7, 120, 5, cross=150)
    known = solve(problem, timeout=None, iterations=4)
    with pytest.raises(NothingBelow):
        solve(problem, timeout=None, iterations=4, cutoff=0.8 * known.lower_bound)
    found = solve(problem, timeout=None, iterations=4, cutoff=known.cost)
    check(problem, found)
    assert found.lower_bound < known.cost


def test_patience_ends_a_search_that_brings_nothing() -> None:
    problem = chain(7, 120, 5, cross=150)
    hasty = solve(problem, timeout=None, iterations=30, patience=2)
    assert hasty.iterations < 30
    check(problem, hasty)


def test_a_limit_on_time_ends_with_its_search() -> None:
    uoff, eoff = np.arange(3) * 2, np.arange(2) * 4
    unary, table = np.arange(4.0), np.array([3.0, 0.0, 1.0, 2.0])
    minimise(uoff, unary, np.array([0]), np.array([1]), eoff, table, time_limit=5)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_process_apart_finds_the_same_and_may_fail() -> None:
    net = flatten(chain(3, 12, 4, cross=10))
    arrays = (net.uoff, net.unary, net.eu, net.ev, net.eoff, net.table)
    here, there = minimise(*arrays), minimise_apart(*arrays, time_limit=30.0)
    assert there.proven and there.lower_bound == here.lower_bound
    lost = minimise_apart(*arrays, time_limit=30.0, backtracks="no number")
    assert lost.assignment is None and not lost.proven and lost.lower_bound == -np.inf


def test_a_process_apart_may_run_out_of_memory() -> None:
    net = flatten(chain(3, 12, 4, cross=10))
    arrays = (net.uoff, net.unary, net.eu, net.ev, net.eoff, net.table)
    lost = minimise_apart(*arrays, time_limit=30.0, room=64 << 20)
    assert lost.assignment is None and not lost.proven and lost.lower_bound == -np.inf
