"""The simulator against closed forms and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino.ir.errors import UsageError
from rhino.planner.model.configuration import Schedule
from rhino.planner.model.schedule import bubble_time, depth_to_end, in_flight
from rhino.planner.model.simulate import BACKWARD, FORWARD, Pipeline, simulate

STAGES = st.integers(1, 8)
MICRO = st.integers(1, 16)


@settings(deadline=None, max_examples=60)
@given(p=STAGES, m=MICRO, f=st.floats(0.1, 3.0), b=st.floats(0.1, 3.0))
def test_uniform_1f1b_and_gpipe_equal_the_closed_form(p: int, m: int, f: float, b: float) -> None:
    for schedule in (Schedule.ONE_F_ONE_B, Schedule.GPIPE):
        found = simulate(Pipeline.chain(p, m, forward=f, backward=b, schedule=schedule))
        closed = m * (f + b) + bubble_time(float(schedule), p, 1.0, m, f + b, p * (f + b), f / (f + b))
        assert found.seconds == pytest.approx(closed) == pytest.approx((m + p - 1) * (f + b))
        for s in range(p):
            assert found.peak[s] == in_flight(float(schedule), p, 1.0, m, s)


@settings(deadline=None, max_examples=40)
@given(p=st.integers(2, 6), rounds=st.integers(1, 4), v=st.integers(2, 4))
def test_uniform_interleaving_divides_the_bubble(p: int, rounds: int, v: int) -> None:
    m = p * rounds
    found = simulate(Pipeline.chain(p, m, chunks=v))
    assert found.seconds == pytest.approx(3 * m + 3 * (p - 1) / v)
    if rounds > 1:
        assert found.peak[0] == pytest.approx(in_flight(float(Schedule.ONE_F_ONE_B), p, v, m, 0.0))
        assert found.peak[0] == pytest.approx(p * (1 + (p - 1) / (p * v)))


@settings(deadline=None, max_examples=40)
@given(p=st.integers(2, 6), extra=st.integers(0, 12))
def test_zero_bubble_is_between_its_bound_and_1f1b(p: int, extra: int) -> None:
    m = 2 * p + extra
    times = {}
    for schedule in (Schedule.ONE_F_ONE_B, Schedule.ZB_1P, Schedule.ZB_2P):
        t = simulate(Pipeline.chain(p, m, backward=1.0, weight=1.0, schedule=schedule))
        times[schedule] = t.seconds
        limit = 2 * p if schedule is Schedule.ZB_2P else p
        assert t.peak.max() <= limit + 1e-9
    # The last stage cannot start before p - 1 forwards.
    assert times[Schedule.ZB_2P] == pytest.approx(3 * m + p - 1)
    assert times[Schedule.ZB_2P] <= times[Schedule.ZB_1P] <= times[Schedule.ONE_F_ONE_B] + 1e-9


@st.composite
def dags(draw: st.DrawFn) -> Pipeline:
    n = draw(st.integers(1, 7))
    pairs = [(u, v) for u, v in itertools.combinations(range(n), 2) if draw(st.booleans())]
    return Pipeline(
        forward=[draw(st.integers(1, 3)) for _ in range(n)],
        backward=[draw(st.integers(1, 4)) for _ in range(n)],
        weight=[0] * n,
        edges=pairs,
        transfer=[draw(st.integers(0, 2)) for _ in pairs],
        micro_batches=draw(st.integers(1, 6)),
    )


@settings(deadline=None, max_examples=80)
@given(p=dags())
def test_dag_timelines_obey_every_dependency_and_keep_devices_exclusive(p: Pipeline) -> None:
    t = simulate(p)
    m = p.micro_batches
    for (u, v), x in zip(p.edges, p.transfer, strict=True):
        assert np.all(t.start[FORWARD, v] >= t.end[FORWARD, u] + x - 1e-9)
        assert np.all(t.start[BACKWARD, u] >= t.end[BACKWARD, v] + x - 1e-9)
    for s in range(len(p.forward)):
        assert np.all(t.start[BACKWARD, s] >= t.end[FORWARD, s] - 1e-9)
        spans = sorted(zip(t.start[:2, s].ravel(), t.end[:2, s].ravel(), strict=True))
        assert all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(spans))
        assert sum(e - b for b, e in spans) == pytest.approx(m * (p.forward[s] + p.backward[s]))
        assert t.busy[s] == m * (p.forward[s] + p.backward[s])


@settings(deadline=None, max_examples=60)
@given(p=dags())
def test_equal_dag_stages_follow_the_law_with_depth(p: Pipeline) -> None:
    n = len(p.forward)
    equal = Pipeline([1.0] * n, [2.0] * n, [0.0] * n, p.edges, [0.0] * len(p.edges), p.micro_batches)
    successors: list[list[int]] = [[] for _ in range(n)]
    for u, v in p.edges:
        successors[u].append(v)
    depth = max(depth_to_end(successors))
    assert simulate(equal).seconds == pytest.approx(3 * (p.micro_batches + depth - 1))


def test_malformed_pipelines_are_errors() -> None:
    with pytest.raises(UsageError, match="backwards"):
        simulate(Pipeline([1, 1], [1, 1], [0, 0], [(1, 0)], [0], 1))
    with pytest.raises(UsageError, match="in turns"):
        simulate(Pipeline.chain(4, 6, chunks=2))
    with pytest.raises(UsageError, match="lengths"):
        simulate(Pipeline([1], [1, 1], [0], [], [], 1))
