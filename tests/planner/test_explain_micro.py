"""What `explain` says of micro-batches, against the same program planned without them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import mlp, transformer

from rhino.cli.main import main
from rhino.dialects.text import parse_module
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.planner import plan
from rhino.planner.cluster import Cluster
from rhino.planner.explain import explain
from rhino.planner.explain_micro import micro_report

FOUR = Cluster.parse("4xH100")
STEPS = {
    "activations": mlp(8192, [64, 256, 64], AdamW()),
    "transformer": transformer(2, 64, 32, 32, 4, 64, AdamW()),
    "weights": mlp(16, [256, 512, 256], AdamW()),
}


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    ("name", "template", "within"),
    [
        ("activations", "dp", 0.02),
        ("transformer", "zero3", 0.15),
        ("weights", "dp", 0.2),  # most of it are buckets of gradients, which come at another time
    ],
)
def test_the_memory_of_the_batch_as_one_is_that_of_its_own_plan(
    name: str, template: str, within: float, count: int
) -> None:
    step, mesh = STEPS[name], Mesh.parse("x=4")
    one = plan(step, FOUR, mesh=mesh, template=template).cost.peak_memory_bytes
    found = plan(step, FOUR, mesh=mesh, template=template, micro_batches=count)
    report = explain(parse_module(found.text(), "<plan>", verify=False))
    micro = report.micro
    assert micro is not None and micro.count == count
    assert micro.whole_peak == pytest.approx(one, rel=within)
    assert micro.held + micro.sums <= report.cost.peak_memory_bytes <= micro.whole_peak
    if name != "weights":
        # What one micro-batch holds, so many times over, is what the batch as one holds beside the states.
        assert micro.held > 0 and report.cost.peak_memory_bytes < 0.8 * one


def test_a_batch_as_one_has_nothing_to_say() -> None:
    found = plan(STEPS["weights"], FOUR, mesh=Mesh.parse("x=4"), template="dp")
    assert explain(parse_module(found.text(), "<plan>", verify=False)).micro is None


def test_lifetimes_are_swept_with_what_grows() -> None:
    # 10 bytes throughout; 5 of a micro-batch, then 7 of a sum beside 6 of another; 20 behind them.
    lives = [(0, 10, 0, 9), (1, 5, 1, 2), (2, 7, 3, 4), (3, 6, 3, 3), (4, 20, 8, 8)]
    found = micro_report(4, lives, {1, 3}, {2})
    assert (found.held, found.sums) == (0, 0), "the peak is behind the micro-batches"
    assert found.whole_peak == 10 + 7 + 4 * 6
    found = micro_report(4, lives[:-1], {1, 3}, {2})
    assert (found.held, found.sums, found.whole_peak) == (6, 7, 41)


def test_the_command_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan_at, facts = tmp_path / "plan.mlir", tmp_path / "facts.json"
    plan_at.write_text(
        plan(STEPS["activations"], FOUR, mesh=Mesh.parse("x=4"), template="dp", micro_batches=4).text()
    )
    with pytest.raises(SystemExit) as done:
        main(["explain", str(plan_at), "--json", str(facts)])
    assert done.value.code == 0
    found = json.loads(facts.read_text())
    assert found["micro_batches"]["count"] == 4
    assert found["micro_batches"]["whole_peak"] > found["cost"]["peak_memory_bytes"]
    text = " ".join(capsys.readouterr().out.split())
    assert "4 micro-batches: " in text and "less than about" in text and "for the batch as one" in text
