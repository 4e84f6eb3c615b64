"""`rhino plan --pin --forbid --objective`, and the same from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from cli_programs import tiny

import rhino
from rhino.cli.main import main
from rhino.ir.errors import PlanError


def test_a_pinned_plan_keeps_to_it_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, out, facts = tiny(tmp_path), tmp_path / "plan.mlir", tmp_path / "plan.json"
    main_returns(["plan", program, "--nproc", "2", "-o", str(out), "--json", str(facts)])
    free = json.loads(facts.read_text())
    name = free["parameters"][0]["name"]
    pin = f'{name}=[{{"x"}}, {{}}]'
    main_returns(
        [
            "plan",
            program,
            "--nproc",
            "2",
            "--pin",
            pin,
            "--forbid",
            "*.m:x",
            "-o",
            str(out),
            "--json",
            str(facts),
        ]
    )
    found = json.loads(facts.read_text())
    assert found["parameters"][0]["layout"] == '[{"x"}, {}]'
    assert found["constraints"] == [f"pin '{pin}'", "forbid '*.m:x'"] and free["constraints"] == []
    assert "rhino.constraints" in out.read_text()
    assert found["cost"]["step_time_s"] >= free["cost"]["step_time_s"]


def main_returns(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--pin", "w"], 2, "cannot read pin 'w'"),
        (["--forbid", "everything"], 2, "cannot read what to forbid"),
        (["--objective", "beauty"], 2, "no objective 'beauty'"),
        (["--pin", "absent.*=replicated"], 1, "'absent.*' matches no"),
        (["--pin", '*=[{"tp"}, {}]'], 1, "no mesh that is searched has tp"),
        (["--pin", '*weight=[{"x"}, {}]', "--forbid", "*weight:x"], 1, "clash"),
    ],
)
def test_constraints_that_cannot_be_met(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["plan", tiny(tmp_path), "--nproc", "2", *arguments])
    error = capsys.readouterr().err
    assert caught.value.code == code and message in error and error.count("error:") == 1, error


def test_a_plan_file_takes_no_constraints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.mlir"
    plan.write_text("")
    with pytest.raises(SystemExit) as caught:
        main(["plan", tiny(tmp_path), "--plan", str(plan), "--pin", "w=replicated"])
    assert caught.value.code == 2 and "taken as it is" in capsys.readouterr().err


def test_pins_from_python() -> None:
    model = torch.nn.Linear(8, 8)
    batch = torch.ones(4, 8)

    def loss(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x).square().mean()

    step = rhino.parallelize(
        model, loss=loss, batch=batch, cluster="2", mesh="tp=2", pins={"weight": '[{"tp"}, {}]'}
    )
    assert step.plan is not None
    weight = next(p for p in step.plan.to_json()["parameters"] if p["name"] == "weight")
    assert weight["layout"] == '[{"tp"}, {}]'
    assert float(step(batch)) == pytest.approx(float(loss(model, batch).detach()), rel=1e-5)
    with pytest.raises(PlanError, match="forbid 'weight:tp' clash"):
        rhino.parallelize(
            model, loss=loss, batch=batch, mesh="tp=2", pins=['weight=[{"tp"}, {}]'], forbid=["weight:tp"]
        )
