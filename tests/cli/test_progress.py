"""Progress: nothing for what is quick, plain lines without a terminal, a bar on one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rhino.cli import progress
from rhino.ir.mesh import Mesh
from rhino.planner.outer import AXES, Job

ROOT = Path(__file__).parents[2]


def test_quick_things_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.phase("quick"):
        pass
    assert capsys.readouterr() == ("", "")


def test_slow_things_say_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.05)
    with progress.phase("slow", 4) as bar:
        bar.advance(3)
        bar.tell("mesh x=2")
        time.sleep(0.2)
    out, error = capsys.readouterr()
    assert out == ""
    assert error.splitlines()[0] == "slow: mesh x=2 ... 3/4" and error.splitlines()[-1].startswith("slow: 0.")


def test_other_ranks_are_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.01)
    with progress.phase("slow", quiet=True):
        time.sleep(0.1)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar() -> None:
    code = (
        "import time\nfrom rhino.cli import progress\nprogress.PATIENCE_S = 0.05\n"
        "with progress.phase('training', 2) as bar:\n    time.sleep(0.4)\n    print('step 1/2', flush=True)\n"
        "    bar.advance()\n    time.sleep(0.4)\n"
    )
    leader, follower = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:  # Linux says so when the last writer is gone
            break
        if not part:
            break
        shown += part
    assert process.wait(timeout=30) == 0
    text = shown.decode(errors="replace")
    assert "━" in text and "0/2" in text and "1/2" in text and "step 1/2" in text


def test_a_mesh_with_its_axes_as_one_is_told_as_such() -> None:
    asked = Mesh.parse("dp=2,tp=2")
    assert str(Job(AXES, Mesh.parse("dp=4"), goal=asked)) == "mesh dp=2,tp=2, first as dp=4"
    assert str(Job(AXES, asked, goal=asked)) == "mesh dp=2,tp=2"
    assert str(Job(AXES, asked)) == "mesh dp=2,tp=2"
