"""A second process for half of a search: the same answers, whether there is one, and whether it lives."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import time

import pytest
from planner_programs import transformer

from rhino.ir.errors import RhinoWarning
from rhino.ir.optimizers import AdamW
from rhino.planner import lanes as lanes_module
from rhino.planner import plan
from rhino.planner import search as searching
from rhino.planner.cluster import Cluster
from rhino.planner.effort import Effort
from rhino.planner.lanes import Lanes, Progress

OWN = os.getpid()


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "processors", lambda: 2)


def whoami(task: str, progress: Progress) -> tuple[str, int]:
    progress(f"on {task}")
    return task, os.getpid()


def test_the_second_task_is_done_by_another_process(two: None) -> None:
    said: list[str] = []
    with Lanes(whoami, said.append) as lanes:
        lanes.start()
        (a, first), (b, second) = lanes.both("a", "b")
        assert (a, b, first) == ("a", "b", OWN)
        assert second != OWN
        assert lanes.both("c", "d") == (("c", OWN), ("d", second))
    assert said == ["on a", "on b", "on c", "on d"]
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


def test_one_processor_does_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "processors", lambda: 1)
    with Lanes(whoami, lambda _: None) as lanes:
        lanes.start()
        assert lanes.both("a", "b") == (("a", OWN), ("b", OWN))


def test_a_worker_of_a_pool_has_no_second_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_config", {"daemon": True})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert lanes_module.processors() == 1
    with Lanes(whoami, lambda _: None) as lanes:
        lanes.start()
        assert lanes.both("a", "b") == (("a", OWN), ("b", OWN))


def test_no_room_for_a_second_process_is_a_warning(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise OSError(errno.ENOMEM, "no memory")

    with Lanes(whoami, lambda _: None) as lanes:
        with monkeypatch.context() as inside:
            inside.setattr(os, "fork", fork)
            with pytest.warns(RhinoWarning, match="no memory"):
                lanes.start()
        assert lanes.both("a", "b") == (("a", OWN), ("b", OWN))


def fails(task: str, progress: Progress) -> str:
    if os.getpid() != OWN:
        if task == "raises":
            raise ValueError("no such luck")
        os.kill(os.getpid(), signal.SIGKILL)
    return task


@pytest.mark.parametrize("task, why", [("raises", "ValueError: no such luck"), ("dies", "it ended")])
def test_a_process_that_fails_is_replaced_with_a_warning(two: None, task: str, why: str) -> None:
    with Lanes(fails, lambda _: None) as lanes:
        lanes.start()
        with pytest.warns(RhinoWarning, match=why):
            assert lanes.both("a", task) == ("a", task)
        assert lanes.both("c", task) == ("c", task)


def test_an_interruption_ends_the_second_process_too(two: None) -> None:
    second = 0

    def interrupted(task: str, progress: Progress) -> int:
        nonlocal second
        if os.getpid() != OWN:
            time.sleep(60)
        assert lanes._second is not None
        second = lanes._second[0].pid or 0
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Lanes(interrupted, lambda _: None) as lanes:
        lanes.start()
        lanes.both("a", "b")
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


def test_what_both_have_is_named_and_not_copied(two: None) -> None:
    here = {"big": object()}

    def work(task: object, progress: Progress) -> tuple[object, bool]:
        return here["big"], task is here["big"]

    with Lanes(
        work,
        lambda _: None,
        shared=lambda item: "big" if item is here["big"] else None,
        resolve=lambda name: here[str(name)],
    ) as lanes:
        lanes.start()
        assert lanes.both(here["big"], here["big"]) == ((here["big"], True), (here["big"], True))


@pytest.mark.parametrize("limit", [None, 0.7])
def test_a_plan_does_not_depend_on_processors(limit: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "FEW_BUCKETS", 0)  # small programs are else searched in one lane
    module = transformer(4, 8, 16, 32, 4, 64, AdamW())
    texts = []
    for processors in (1, 2):
        monkeypatch.setattr(lanes_module, "processors", lambda count=processors: count)
        free = plan(module, Cluster.parse("8xH100"), effort=Effort("O2", 2))
        found = free
        if limit is not None:
            most = limit * free.cost.peak_memory_bytes
            found = plan(module, Cluster.parse("8xH100"), effort=Effort("O2", 2), memory_limit=most)
        texts.append((found.text(), found.templates, found.lower_bound_s))
    assert texts[0] == texts[1]
