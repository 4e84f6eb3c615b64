"""`--micro-batches`: asked for, or chosen because nothing fits otherwise; and every command works on such a plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_programs import tiny

import rhino
from rhino.cli.main import main
from rhino.dialects.text import load_module
from rhino.passes.microbatch import accumulated_in


def run(arguments: list[str]) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return caught.value.code


@pytest.fixture
def program(tmp_path: Path) -> str:
    return tiny(tmp_path, batch=64)


def test_memory_decides_and_all_commands_work_on_the_plan(
    tmp_path: Path, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, plan = tmp_path / "plan.json", tmp_path / "plan.mlir"
    search = ["--cluster", "2xH100", "--memory-limit", "150kB", "--level", "O1"]
    assert run(["plan", program, *search, "-o", str(plan), "--json", str(facts)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    found = json.loads(facts.read_text())
    count, tried = found["micro_batches"], found["micro_batches_tried"]
    assert count > 1 and tried[0]["count"] == 1 and tried[0]["step_time_s"] is None
    assert tried[0]["peak_memory_bytes"] > 150e3 >= found["cost"]["peak_memory_bytes"]
    assert found["cost"]["step_time_s"] == min(t["step_time_s"] for t in tried if t["step_time_s"])
    assert f"{count} micro-batches; memory per device" in out and "with 1, does not fit" in out
    assert found["check"]["verdict"] == "equal"
    assert found["check"]["micro_batches"] == count and found["check"]["micro_batch_results"] > 10
    for mode in ([], ["--shrunk"]):
        assert run(["check", program, "--plan", str(plan), "--cluster", "2xH100", *mode]) == 0
    assert f"{count} micro-batches against the batch as one" in capsys.readouterr().out
    assert run(["explain", str(plan)]) == 0


def test_a_template_that_does_not_apply_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", tiny(tmp_path, batch=1), "--cluster", "2xH100", "--level", "O1"]) == 0
    assert "no dp: a batch of 1 cannot be divided over 2 devices" in " ".join(capsys.readouterr().out.split())


def test_a_number_is_kept_to(tmp_path: Path, program: str, capsys: pytest.CaptureFixture[str]) -> None:
    facts = tmp_path / "plan.json"
    some = ["--nproc", "2", "--plan", "dp", "--micro-batches", "4", "--json", str(facts)]
    assert run(["plan", program, *some]) == 0
    found = json.loads(facts.read_text())
    assert found["micro_batches"] == 4 and found["micro_batches_tried"] == []
    # A device's rows are split into its rows of the micro-batches, and gradients are summed once.
    assert {c["kind"] for c in found["collectives"]} == {"all_reduce"}
    assert run(["check", program, "--nproc", "2", "--plan", "dp", "--micro-batches", "4", "--by-pass"]) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--micro-batches", "3"], 2, "3 micro-batches do not divide the batch of 64"),
        (["--micro-batches", "many"], 2, "give a number, 1 or more, or auto"),
        (["--accumulate-in", "bf16"], 2, "give f32 or same"),
        (["--plan", "PLAN.mlir", "--accumulate-in", "same"], 2, "leave out --accumulate-in"),
        (["--memory-limit", "1kB", "--plan", "dp"], 1, "micro-batches are no way out"),
    ],
)
def test_what_cannot_be(
    tmp_path: Path,
    program: str,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    file = tmp_path / "PLAN.mlir"
    file.touch()
    given = [str(file) if a == "PLAN.mlir" else a for a in arguments]
    assert run(["plan", program, "--nproc", "2", "--level", "O1", *given]) == code
    assert message in " ".join(capsys.readouterr().err.split())


BF16 = """
import torch
from torch import nn

import rhino


def program():
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32)).to(torch.bfloat16)
    batch = torch.ones(8, 32, dtype=torch.bfloat16)
    return rhino.Program(model, lambda m, x: m(x).float().square().mean(), batch, rhino.SGD(lr=0.1))
"""


def test_the_type_of_the_sums_is_counted_and_checked(tmp_path: Path) -> None:
    """Sums in f32 take memory of their own, and what is written for either type passes its checks."""
    path = tmp_path / "bf16.py"
    path.write_text(BF16)
    peaks = {}
    for how in ("f32", "same"):
        facts, plan = tmp_path / f"{how}.json", tmp_path / f"{how}.mlir"
        some = ["--nproc", "2", "--plan", "dp", "--micro-batches", "4", "--accumulate-in", how]
        assert run(["plan", str(path), *some, "-o", str(plan), "--json", str(facts)]) == 0
        found = json.loads(facts.read_text())
        assert found["check"]["verdict"] == "equal"
        peaks[how] = found["cost"]["peak_memory_bytes"]
        assert accumulated_in(load_module(str(plan))) == how
        assert run(["check", str(path), "--plan", str(plan), "--nproc", "2", "--shrunk"]) == 0
    weights = 2 * 32 * 64  # of both layers
    assert peaks["f32"] >= peaks["same"] + weights


def test_the_type_of_the_sums_from_python(tmp_path: Path) -> None:
    scope: dict[str, object] = {}
    exec(BF16, scope)
    program = scope["program"]()  # type: ignore[operator]
    given = {"loss": program.loss, "batch": program.batch, "mesh": "2", "plan": "dp", "micro_batches": 2}
    steps = [
        rhino.parallelize(program.model, optimizer=program.optimizer, accumulate_in=how, **given)
        for how in ("f32", "same")
    ]
    assert [accumulated_in(step.plan.module) for step in steps] == ["f32", "same"]
    losses = [float(step(program.batch)) for step in steps]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
