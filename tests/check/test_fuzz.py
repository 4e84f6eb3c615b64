"""`rhino check --fuzz`: cases follow from their seeds, none is wrong, and a wrong pass is found and written."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from rhino.check.fuzz import draw_case, fuzz, run_case
from rhino.cli.main import main
from rhino.dialects import signature
from rhino.dialects.dist import AllReduceOp
from rhino.dialects.text import load_module, print_module
from rhino.passes import PASSES
from rhino.passes.fuse_collectives import fuse_collectives


def test_a_case_follows_from_its_seed() -> None:
    for i in range(10):
        one, same, other = (draw_case(seed) for seed in (f"7/{i}", f"7/{i}", f"8/{i}"))
        assert print_module(one.program.module) == print_module(same.program.module)
        assert one.arrays.keys() == same.arrays.keys() and one.mesh == same.mesh
        assert [p.name for p in one.passes] == [p.name for p in same.passes]
        assert print_module(one.program.module) != print_module(other.program.module)


def test_cases_are_of_all_kinds() -> None:
    kinds = Counter(draw_case(f"0/{i}").kind for i in range(60))
    assert all(kinds[kind] >= 6 for kind in ("placement", "pins", "gradient"))


def test_no_case_is_wrong() -> None:
    told = []
    assert fuzz(15, 1, lambda done, passes: told.append((done, passes))) == (15, None)
    assert [done for done, _ in told] == list(range(1, 16)) and told[-1][1] >= 15 * 8


@pytest.mark.long
@pytest.mark.timeout(0)
def test_no_case_of_many_is_wrong() -> None:
    """``RHINO_EXAMPLES`` cases (2,000 unless it says otherwise)."""
    count = int(os.environ.get("RHINO_EXAMPLES", "2000"))
    assert fuzz(count, 2, lambda done, passes: None) == (count, None)


@dataclass(frozen=True)
class _Wrong(ModulePass):
    """Takes maxima for sums."""

    name = "fuse-collectives"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        fuse_collectives(op)
        for each in signature.main_of(op).body.block.ops:
            if isinstance(each, AllReduceOp) and each.kind == "sum":
                each.properties["kind"] = each.properties["kind"].__class__("max")


def test_a_wrong_pass_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setitem(PASSES, "fuse-collectives", lambda: _Wrong)
    out = tmp_path / "found"
    arguments = ["check", "--fuzz", "100", "--seed", "3", "--out-dir", str(out)]
    with pytest.raises(SystemExit) as done:
        main([*arguments, "--json", str(tmp_path / "report.json")])
    assert done.value.code == 1
    facts = json.loads((tmp_path / "report.json").read_text())
    assert not facts["equal"] and facts["wrong"]["pass"] == "fuse-collectives"
    assert facts["wrong"]["program"] == f"3/{facts['programs']}"
    shown = capsys.readouterr().out
    assert f"DIFFERENT: program 3/{facts['programs']}" in shown and "dist.all_reduce" in shown
    small = load_module(str(out / "fuse-collectives.before.mlir"))
    ops = list(signature.main_of(small).body.block.ops)
    assert len(ops) - 1 == facts["wrong"]["ops"] <= 4
    _, again = run_case(facts["wrong"]["program"])
    assert again is not None and again.wrong is not None


@dataclass(frozen=True)
class _Fails(ModulePass):
    name = "cse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise KeyError("lost")


def test_a_pass_that_fails_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setitem(PASSES, "cse", lambda: _Fails)
    with pytest.raises(SystemExit) as done:
        main(["check", "--fuzz", "5", "--out-dir", str(tmp_path)])
    assert done.value.code == 1
    assert "cse failed: KeyError: 'lost'" in capsys.readouterr().out
    load_module(str(tmp_path / "cse.before.mlir"))


@pytest.mark.parametrize("arguments", [["--fuzz", "0"], ["p.py", "--fuzz", "3"], []])
def test_what_means_nothing(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["check", *arguments])
    assert done.value.code == 2
