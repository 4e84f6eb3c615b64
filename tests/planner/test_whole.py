"""What a mesh cannot divide is named; what it can divide, or is too small to matter, is not."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import mlp, program

from rhino.cli.main import main
from rhino.dialects.text import print_module
from rhino.ir.errors import RhinoWarning
from rhino.planner import plan
from rhino.planner.cluster import Cluster


def sorting(*shape: int):
    """The sum of a sorted tensor times itself; sorting needs its last dimension whole."""
    return program(
        [("x", "input", shape, "f32")],
        lambda b, x: [
            b.reduce(b.mul(b.sort([x], len(shape) - 1)[0], x), range(len(shape)), "sum"),
        ],
    )


def test_an_op_without_a_dimension_to_divide_is_named() -> None:
    with pytest.warns(
        RhinoWarning, match=r"hlo.sort \(1048576, 1048576\) runs whole on every device: no dimension"
    ):
        plan(sorting(2**20), Cluster.parse("4"))


def test_a_dimension_that_the_mesh_does_not_divide_is_named() -> None:
    with pytest.warns(RhinoWarning, match=r"hlo.sort \(7x1048576, 7x1048576\) runs whole"):
        plan(sorting(7, 2**20), Cluster.parse("2"))


@pytest.mark.parametrize(
    "step", [sorting(8, 2**20), sorting(64), mlp(8, [16, 16])], ids=["rows", "small", "mlp"]
)
def test_what_divides_or_is_small_is_not(step) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RhinoWarning)
        plan(step, Cluster.parse("2"))
        plan(sorting(2**20), Cluster.parse("1"))


def test_the_command_line_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sorting.mlir"
    path.write_text(print_module(sorting(2**20)))
    with pytest.raises(SystemExit) as exit:
        main(["plan", str(path), "--nproc", "2"])
    assert exit.value.code == 0
    said = capsys.readouterr().err
    assert "warning: " in said and "hlo.sort (1048576, 1048576) runs whole on every device" in said
    assert "plan.py" not in said
