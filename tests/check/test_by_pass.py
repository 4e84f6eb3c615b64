"""`rhino check --by-pass`: no false alarm, and a wrong pass is named together with the op, and written, minimised."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from check_programs import EXACT, RANDOM, write
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from rhino.check.by_pass import Outcome, Pass, check_passes
from rhino.check.minimise import minimise
from rhino.cli.by_pass import pipeline, write_wrong
from rhino.cli.check import _arguments, check_source_by_pass
from rhino.cli.main import main
from rhino.cli.planning import Request, make_plan
from rhino.cli.source import Source, forward_of, load, step_of
from rhino.dialects import signature
from rhino.dialects.dist import AllReduceOp
from rhino.dialects.hlo import binary
from rhino.dialects.text import load_module, print_module
from rhino.ir import types
from rhino.ir.errors import RunError, UsageError
from rhino.ir.evaluate import run_module
from rhino.passes import PASSES

REQUEST = Request(mesh="dp=2,tp=2", plan="megatron")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return load(write(tmp_path_factory.mktemp("by_pass"), "exact.py", EXACT))


def drop_reductions(module: ModuleOp) -> ModuleOp:
    """A pass that takes every partial value for a whole one."""
    for op in list(signature.main_of(module).body.block.ops):
        if isinstance(op, AllReduceOp):
            name = op.result.name_hint
            op.result.replace_all_uses_with(op.x)
            op.x.name_hint = op.x.name_hint or name
            op.parent_block().erase_op(op)
    return module


def swap_subtractions(module: ModuleOp) -> ModuleOp:
    for op in signature.main_of(module).body.block.ops:
        if op.name == "hlo.sub":
            op.operands = list(reversed(op.operands))
    return module


def run(source: Source, extra: Pass, after: str) -> Outcome:
    """The pipeline with one more pass."""
    forward = forward_of(source)
    step = step_of(forward, source.optimizer)
    passes = pipeline(forward, source.optimizer, lambda m: make_plan(m, REQUEST).module)
    at = [each.name for each in passes].index(after) + 1
    slots = signature.arguments(signature.main_of(step))
    arrays = _arguments(source, step, integers=False)
    known = {slot.name: array for slot, array in zip(slots, arrays, strict=True)}
    return check_passes(forward, [*passes[:at], extra, *passes[at:]], known, limit=1e-10)


@pytest.mark.parametrize("text", [EXACT, RANDOM], ids=["exact", "random"])
def test_the_pipeline_is_right_and_is_that_of_a_run(tmp_path: Path, text: str) -> None:
    source = load(write(tmp_path, "program.py", text))
    report = check_source_by_pass(source, REQUEST, folder=str(tmp_path))
    assert report.equal and report.wrong_pass is None and report.collectives
    assert [each.name for each in report.passes] == [
        "autodiff", "optimizer", "fold-constants", "canonicalize", "cse", "dce",
        "plan", "spmd", "fuse-collectives", "fuse",
    ]  # fmt: skip
    assert all(each.results for each in report.passes) and report.passes[-1].values > 50
    forward = forward_of(source)
    module = forward.clone()
    for each in pipeline(forward, source.optimizer, lambda m: m)[:6]:
        module = each.apply(module)
    assert print_module(module) == print_module(step_of(forward, source.optimizer))


def test_integers_too(source: Source) -> None:
    with pytest.raises(UsageError, match=r"has hlo\.random_uniform"):
        check_source_by_pass(source, REQUEST, "integer")


def test_a_wrong_pass_on_the_local_program(source: Source, tmp_path: Path) -> None:
    outcome = run(source, Pass("lose", drop_reductions, local=True), "spmd")
    wrong = outcome.wrong
    assert wrong is not None and (wrong.made_by.name, wrong.number) == ("lose", 9)
    assert [each.name for each in outcome.passed][-2:] == ["plan", "spmd"]
    finding = wrong.finding
    # The partial product itself is right; dropout is the first to take it for whole.
    assert finding.op == "hlo.select" and finding.where is not None and "exact.py" in finding.where
    assert finding.ranks and "where it was" in finding.detail
    report = write_wrong(wrong, 1e-10, str(tmp_path / "out"))
    assert report["ops"] <= 3 and not report["whole"]
    before, after, arguments, facts = (Path(f) for f in report["files"])
    assert json.loads(facts.read_text())["pass"] == "lose"
    small = load_module(str(before))
    with np.load(arguments) as arrays:
        given = [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
    # What was written shows the fault without the checker.
    assert np.isfinite(run_module(small, given)[0]).all()
    with pytest.raises(RunError, match="devices 0 and 1 must hold equal pieces"):
        run_module(load_module(str(after)), given)
    assert print_module(drop_reductions(small.clone())) == print_module(load_module(str(after)))


def test_a_wrong_pass_on_the_whole_program(source: Source) -> None:
    outcome = run(source, Pass("swap", swap_subtractions), "cse")
    wrong = outcome.wrong
    assert wrong is not None and wrong.made_by.name == "swap"
    assert wrong.finding.op == "hlo.sub" and not wrong.finding.ranks
    small = minimise(wrong, 1e-10)
    assert small.ops == 1 and len(small.arrays) == 2


def test_a_value_that_is_lost(source: Source) -> None:
    def lose(module: ModuleOp) -> ModuleOp:
        func = signature.main_of(module)
        slots = signature.results(func)
        signature.set_results(func, [*slots[:-1], signature.Slot("other", slots[-1].role)])
        return module

    wrong = run(source, Pass("lose", lose), "dce").wrong
    assert wrong is not None and "is not returned any more" in wrong.finding.detail
    assert minimise(wrong, 1e-10).whole


def test_a_module_that_does_not_verify(source: Source) -> None:
    def spoil(module: ModuleOp) -> ModuleOp:
        ret = signature.return_of(signature.main_of(module))
        ret.operands = [ret.operands[-1], *ret.operands[1:]]
        return module

    wrong = run(source, Pass("spoil", spoil), "dce").wrong
    assert wrong is not None and wrong.finding.op == "verify" and wrong.finding.detail


@dataclass(frozen=True)
class _Wrong(ModulePass):
    name = "fuse-collectives"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for each in list(signature.main_of(op).body.block.ops):
            if isinstance(each, binary.MulOp) and types.is_float(types.element_of(each.results[0])):
                each.operands = [each.operands[0], each.operands[0]]


def test_on_the_command_line(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setitem(PASSES, "fuse-collectives", lambda: _Wrong)
    out = tmp_path / "found"
    given = [source.path, "--mesh", "dp=2,tp=2", "--plan", "dp", "--by-pass", "--out-dir", str(out)]
    with pytest.raises(SystemExit) as done:
        main(["check", *given, "--json", str(tmp_path / "report.json")])
    assert done.value.code == 1
    shown = capsys.readouterr().out
    assert "fuse-collectives: the first pass after which something differs" in shown
    assert "hlo.mul at " in shown and "exact.py" in shown and "before.mlir" in shown
    facts = json.loads((tmp_path / "report.json").read_text())
    assert not facts["equal"] and facts["wrong_pass"]["pass"] == "fuse-collectives"
    assert {f.name for f in out.iterdir()} == {
        f"fuse-collectives.{end}" for end in ("before.mlir", "after.mlir", "arguments.npz", "json")
    }
    with pytest.raises(SystemExit) as done:
        main(["check", *given, "--mode", "float32"])
    assert done.value.code == 2


def test_a_plan_file(source: Source, tmp_path: Path) -> None:
    step = step_of(forward_of(source), source.optimizer)
    path = tmp_path / "plan.mlir"
    path.write_text(make_plan(step, REQUEST).text())
    report = check_source_by_pass(source, Request(plan=str(path)), folder=str(tmp_path))
    assert report.equal and report.mesh == "dp=2,tp=2" and report.passes[-1].values > 50
