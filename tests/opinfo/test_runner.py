"""Results are not lost: not to entries that hang or bring their process down, not to a run that is stopped."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch's op database needs it")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "properties")]

import runner  # noqa: E402

#: Answers like a worker; `hang` never does, `die` ends the process.
FAKE = """
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    name = line.strip()
    if name == "hang":
        time.sleep(60)
    if name == "die":
        sys.exit(3)
    print('{"kind": "passed", "reasons": {}, "name": "' + name + '"}', flush=True)
"""


def test_an_entry_that_hangs_or_dies_costs_only_itself() -> None:
    rows: dict[str, runner.Row] = {}
    runner.run_all(["a", "hang", "b", "die", "c"], [sys.executable, "-c", FAKE], 1.0, rows.__setitem__)
    assert {n: r["kind"] for n, r in rows.items()} == {
        "a": "passed",
        "hang": "slow",
        "b": "passed",
        "die": "wrong",
        "c": "passed",
    }
    assert rows["die"]["reasons"] == {"wrong": "the process ended (3)"}


def test_a_run_goes_on_where_another_stopped(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    assert runner.load(path) == {}
    runner.save(path, {"a": {"kind": "passed"}, "b": {"kind": "wrong"}})
    assert [p.name for p in tmp_path.iterdir()] == ["rows.json"]
    rows = runner.load(path)
    assert list(runner.waiting(["a", "b", "c"], rows, ())) == ["c"]
    assert list(runner.waiting(["a", "b", "c"], rows, ("wrong",))) == ["b", "c"]
