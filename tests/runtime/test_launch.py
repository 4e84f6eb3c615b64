"""The launcher: environment of the ranks, and what it says and does when one of them dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from rhino.ir.errors import PlanError, RunError
from rhino.runtime.launch import LostContactError, first_cause, launch, read_error, write_error


def script(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def test_ranks_get_torchruns_environment(tmp_path: Path) -> None:
    launch(
        script(
            f"""
            import os
            names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
            with open({str(tmp_path)!r} + "/" + os.environ["RANK"], "w") as f:
                f.write(" ".join(os.environ[n] for n in names))
            """
        ),
        3,
    )
    assert [(tmp_path / str(r)).read_text() for r in range(3)] == [f"{r} {r} 3 3 127.0.0.1" for r in range(3)]


def test_exit_code_and_last_lines_are_reported_and_others_stop(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(
        RunError, match=r"rank 1 died: exited with code 3; the last lines it wrote:\s+broken here"
    ):
        launch(
            script(
                f"""
                import os, sys, time
                if os.environ["RANK"] == "1":
                    print("broken here", file=sys.stderr)
                    sys.exit(3)
                open({str(tmp_path)!r} + "/" + str(os.getpid()), "w").close()
                time.sleep(60)
                """
            ),
            3,
        )
    assert time.monotonic() - started < 10
    assert not [p for p in tmp_path.iterdir() if is_alive(int(p.name))]


def test_a_killed_rank_is_named_with_its_signal() -> None:
    with pytest.raises(RunError, match=r"rank 0 died: killed by signal 9 \(SIGKILL\)"):
        launch(
            script(
                """
                import os, signal, time
                if os.environ["RANK"] == "0":
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)
                """
            ),
            2,
        )


def test_a_rank_that_ignores_sigterm_is_killed() -> None:
    started = time.monotonic()
    with pytest.raises(RunError, match="rank 1"):
        launch(
            script(
                """
                import os, signal, sys, time
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                if os.environ["RANK"] == "1":
                    time.sleep(0.5)
                    sys.exit(1)
                time.sleep(60)
                """
            ),
            2,
        )
    assert time.monotonic() - started < 10


def test_an_error_of_rhinos_keeps_its_class() -> None:
    with pytest.raises(PlanError, match="no such plan") as caught:
        launch(
            script(
                """
                import os, sys, time
                from rhino.ir.errors import PlanError
                from rhino.runtime.launch import write_error
                if os.environ["RANK"] == "0":
                    write_error(PlanError("no such plan", where="plan.mlir:3:1", remedy="make one"))
                    sys.exit(1)
                time.sleep(60)
                """
            ),
            2,
        )
    assert caught.value.where == "plan.mlir:3:1" and caught.value.remedy == "make one"


def test_the_first_cause_is_not_a_rank_that_lost_contact() -> None:
    lost, died = LostContactError("rank 0: all_reduce failed"), RunError("rank 1 died")
    assert first_cause([lost, died]) is died
    assert first_cause([lost]) is lost


def test_errors_pass_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not write_error(RunError("nobody listens"))
    monkeypatch.setenv("RHINO_ERROR_FILE", str(tmp_path / "error.json"))
    assert write_error(LostContactError("gone"))
    assert isinstance(read_error(tmp_path / "error.json"), LostContactError)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_rank_outlives_its_parent(tmp_path: Path, number: signal.Signals) -> None:
    rank = tmp_path / "rank.py"
    pids_at = tmp_path / "pids"
    pids_at.mkdir()
    rank.write_text(
        "import os, time\n"
        "from rhino.runtime.launch import watch_parent\n"
        "watch_parent()\n"
        f"open({str(pids_at)!r} + '/' + str(os.getpid()), 'w').close()\n"
        "time.sleep(60)\n"
    )
    code = f"import sys; from rhino.runtime.launch import launch; launch([sys.executable, {str(rank)!r}], 2)"
    parent = subprocess.Popen(script(code), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while len(list(pids_at.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    pids = [int(p.name) for p in pids_at.iterdir()]
    assert len(pids) == 2
    os.kill(parent.pid, number)
    parent.wait(timeout=10)
    deadline = time.monotonic() + 10
    while any(is_alive(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(p) for p in pids)
