"""`rhino explain`: tables for people, everything as JSON, clear messages for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_programs import FORWARD, tiny, write

from rhino.cli.main import main


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("plan")
    out = folder / "plan.mlir"
    assert call("plan", tiny(folder), "--mesh", "x=2", "-o", str(out)) == 0
    return str(out)


def test_where_time_and_memory_go(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = tmp_path / "facts.json"
    assert call("explain", plan, "--top", "3", "--json", str(facts)) == 0
    text = capsys.readouterr().out
    assert (
        "Ops" in text and "Collectives" in text and "Memory at the peak" in text and "% of the step" in text
    )
    found = json.loads(facts.read_text())
    assert sum(e["amount"] for e in found["memory"]) == found["cost"]["peak_memory_bytes"]
    assert any("first" in (e["where"] or "") and e["where"].endswith(")") for e in found["ops"])
    assert found["alternatives"] == found["what_if"] == found["constraints"] == []


def test_alternatives_of_an_op(plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = tmp_path / "facts.json"
    assert call("explain", plan, "--op", "first/dot_general", "--json", str(facts)) == 0
    assert "chosen" in capsys.readouterr().out
    found = json.loads(facts.read_text())["alternatives"]
    assert len(found) == 3, "forward, and two products of the backward pass"
    for op in found:
        assert sum(a["chosen"] for a in op["alternatives"]) == 1 and len(op["alternatives"]) > 2
        assert op["where"].startswith("first (")


def test_what_more_would_buy(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("explain", plan, "--what-if") == 0
    text = capsys.readouterr().out
    assert "1 GB more memory per device: step" in text and "twice the nodes (2x2xCPU)" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{plan}", "--op", "third/dot_general"], "no op of the plan is called 'third/dot_general'"),
        (["{plan}", "--top", "0"], "--top is 0"),
        (["{forward}"], "this is no plan"),
        (["absent.mlir"], "absent.mlir"),
    ],
)
def test_bad_input(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    forward = write(tmp_path, "forward.mlir", FORWARD)
    capsys.readouterr()
    code = call("explain", *(a.format(plan=plan, forward=forward) for a in arguments))
    error = capsys.readouterr().err
    assert code in (1, 2) and message in error and error.count("error:") == 1, error
