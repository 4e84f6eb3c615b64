"""Dropout is part of the program: PyTorch with the same masks agrees, and no plan changes a bit of the losses."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from check_programs import EXACT, RANDOM, RECOMPUTED, write
from xdsl.dialects.builtin import ModuleOp

from rhino.cli.check import Report, check_source, compare_pytorch
from rhino.cli.planning import Request, local_program, make_plan
from rhino.cli.source import Source, forward_of, load, step_of
from rhino.dialects import signature
from rhino.frontend.program import named_inputs
from rhino.frontend.torch_ops import random
from rhino.ir import types
from rhino.ir.evaluate import run_module
from rhino.runtime.launch import launch
from rhino.runtime.state import values_of
from rhino.runtime.tensors import to_numpy

ROOT = Path(__file__).parents[2]
PLANS = ("auto", "dp", "zero3", "megatron", "fsdp_tp")
STEPS = 3


@pytest.mark.parametrize("mode", ["float64", "float32"])
def test_pytorch_agrees_when_it_gets_the_same_numbers(tmp_path: Path, mode: str) -> None:
    report = Report(mode, 1, "")
    compare_pytorch(load(write(tmp_path, "random.py", RANDOM)), report)
    assert report.compared["pytorch"] > 20 and report.equal and not report.notes


def test_a_wrong_scale_of_dropout_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unscaled(b, x, p, seed, site):
        out, kept = right(b, x, p, seed, site)
        return b.mul(out, b.full_like(out, 1 - p)), kept

    right = random.dropout_of
    monkeypatch.setattr(random, "dropout_of", unscaled)
    report = Report("float64", 1, "")
    compare_pytorch(load(write(tmp_path, "random.py", RANDOM)), report)
    assert "loss" in {f.name for f in report.failures}


def test_other_draws_are_said_to_be_not_compared(tmp_path: Path) -> None:
    report = check_source(load(write(tmp_path, "recomputed.py", RECOMPUTED)), Request(nproc=2, plan="dp"))
    assert report.equal and "pytorch" not in report.compared
    (note,) = report.notes
    assert note.startswith("not compared with PyTorch: PyTorch draws more than the program's 1 random")


def step_losses(source: Source, step: ModuleOp, request: Request) -> list[float]:
    """Losses of the first steps of a plan on the interpreter."""
    program = source.python("training")
    module = local_program(make_plan(step, request).module)
    func = signature.main_of(step)
    arguments, results = signature.arguments(func), signature.results(func)
    provide = values_of(program.model, seed=0)
    arrays = []
    for slot, arg in zip(arguments, func.args, strict=True):
        kept = slot.role in ("parameter", "buffer")
        dtype = types.numpy_dtype(types.element_of(arg))
        arrays.append(to_numpy(provide(slot.name)) if kept else np.zeros(types.shape_of(arg), dtype))
    losses = []
    for number in range(STEPS):
        batch = {name: to_numpy(tensor) for name, tensor in named_inputs(program.batch_at(number))}
        arrays = [batch.get(slot.name, array) for slot, array in zip(arguments, arrays, strict=True)]
        for slot, value in zip(results, run_module(module, arrays), strict=True):
            if slot.role == "loss":
                losses.append(float(value))
            if slot.alias is not None:
                arrays[slot.alias] = value
    return losses


def captured(path: str) -> tuple[Source, ModuleOp]:
    source = load(path)
    return source, step_of(forward_of(source), source.optimizer)


@pytest.mark.parametrize(
    "ranks", [("2", "dp=2,tp=2"), pytest.param(("1", "2", "4", "dp=2,tp=2", "2x2x2"), marks=pytest.mark.long)]
)
def test_losses_on_the_interpreter_are_the_same_bit_for_bit(tmp_path: Path, ranks: Sequence[str]) -> None:
    """Whatever the arithmetic, the masks are the same; here it is exact, so that the losses are too."""
    source, step = captured(write(tmp_path, "exact.py", EXACT))
    alone = step_losses(source, step, Request(nproc=1))
    assert len(set(alone)) == STEPS and all(loss > 0 for loss in alone)
    for text in ranks:
        for plan in PLANS:
            request = Request(nproc=int(text), plan=plan) if text.isdigit() else Request(mesh=text, plan=plan)
            assert step_losses(source, step, request) == alone, (text, plan)


@pytest.mark.parametrize(
    ("ranks", "plans"),
    [
        (2, ("megatron",)),
        pytest.param(1, PLANS, marks=pytest.mark.long),
        pytest.param(2, PLANS, marks=pytest.mark.long),
        pytest.param(4, PLANS, marks=pytest.mark.long),
    ],
)
def test_losses_on_gloo_are_the_same(tmp_path: Path, ranks: int, plans: Sequence[str]) -> None:
    path, out = write(tmp_path, "random.py", RANDOM), tmp_path / "losses.json"
    alone = step_losses(*captured(path), Request(nproc=1))
    assert len(set(alone)) == STEPS
    script = str(ROOT / "tests" / "cli" / "ranks_plans.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    launch([sys.executable, script, path, str(STEPS), str(out), *plans], ranks, environment)
    losses = json.loads(out.read_text())
    assert list(losses) == list(plans)
    for plan, value in losses.items():
        assert value == pytest.approx(alone, rel=1e-5), plan
