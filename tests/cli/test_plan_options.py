"""`rhino plan --level --no-fold --mesh-axes`: what is searched, and how thoroughly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_programs import tiny

from rhino.cli.main import main
from rhino.cli.planning import Request
from rhino.planner.effort import Effort


def run(arguments: list[str]) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return caught.value.code


def test_less_effort_is_asked_for_and_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, facts = tiny(tmp_path), tmp_path / "plan.json"
    plain = ["plan", program, "--nproc", "4", "--json", str(facts)]
    assert run([*plain, "--level", "O1", "--no-fold", "--mesh-axes", "1"]) == 0
    one = json.loads(facts.read_text())
    assert run([*plain, "--mesh-axes", "2"]) == 0
    two = json.loads(facts.read_text())
    assert one["mesh"].count("=") == 1
    assert two["cost"]["step_time_s"] <= one["cost"]["step_time_s"]


def test_the_command_line_searches_as_thoroughly_as_the_library() -> None:
    assert Request().effort == Effort()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--level", "O3"], "there is no level 'O3'"),
        (["--mesh-axes", "4"], "meshes of 4 axes are not searched"),
    ],
)
def test_efforts_that_there_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["plan", tiny(tmp_path), "--nproc", "2", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_plan_file_takes_no_effort(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.mlir"
    plan.write_text("")
    assert run(["plan", tiny(tmp_path), "--plan", str(plan), "--level", "O1"]) == 2
    assert "taken as it is" in capsys.readouterr().err
