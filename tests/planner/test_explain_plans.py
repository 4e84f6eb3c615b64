"""Explanations agree with what is measured: sums, alternatives against plans measured on their own, what memory buys."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import mlp, transformer

from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.text import parse_module, print_module
from rhino.dialects.verify import verify
from rhino.ir.errors import PlanError
from rhino.ir.layout_text import format_layout
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.planner import plan
from rhino.planner.candidates import choices_for, discover
from rhino.planner.cluster import Cluster
from rhino.planner.evaluate import evaluate_plan
from rhino.planner.explain import alternatives, explain, unplaced, unplaced_module, what_if
from rhino.planner.graph import read
from rhino.planner.materialize import materialize
from rhino.planner.schedule import schedule
from rhino.planner.space import Workshop

CLUSTER = Cluster.parse("4xH100")
STEPS = {
    "mlp": mlp(64, [256, 1024, 256], AdamW()),
    "transformer": transformer(2, 8, 32, 64, 4, 128, AdamW(), element="bf16"),
}


@pytest.fixture(scope="module", params=STEPS)
def planned(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    found = plan(STEPS[request.param], CLUSTER, mesh=Mesh.parse("2x2"), template="megatron")
    return parse_module(found.text(debug=True), "<plan>", verify=False), found


def test_time_and_memory_are_accounted_for(planned) -> None:  # type: ignore[no-untyped-def]
    module, found = planned
    report = explain(module)
    assert report.cost == found.cost == evaluate_plan(module, CLUSTER)
    assert sum(e.amount for e in report.ops) == pytest.approx(report.cost.compute_s)
    assert sum(e.amount for e in report.collectives) == pytest.approx(report.cost.comm_s)
    assert sum(e.amount for e in report.memory) == report.cost.peak_memory_bytes
    assert sum(report.kinds.values()) == pytest.approx(report.cost.step_time_s)
    assert sum(e.share for e in report.memory) == pytest.approx(1)
    assert any(e.what.startswith("parameter ") for e in report.memory)
    assert "% of the step; most of all " in report.dominant


def test_a_plan_without_its_layouts_is_the_program(planned) -> None:  # type: ignore[no-untyped-def]
    module, found = planned
    whole, placements, arguments = unplaced_module(module)
    verify(whole)
    assert "dist." not in print_module(whole) and len(placements) and len(arguments)
    again = plan(whole, CLUSTER, mesh=found.mesh, template="megatron")
    assert again.cost.step_time_s == pytest.approx(found.cost.step_time_s, rel=1e-3)


def test_an_alternative_costs_what_its_plan_costs() -> None:
    found = plan(STEPS["mlp"], CLUSTER, mesh=Mesh.parse("2x2"), template="megatron")
    module = parse_module(found.text(debug=True), "<plan>", verify=False)
    (report, *_) = alternatives(module, "dot_general")
    _, decision = unplaced(module)
    assert len(report.alternatives) > 4
    assert sum(a.chosen for a in report.alternatives) == 1
    own = next(a for a in report.alternatives if a.chosen)
    assert (own.more_s, own.more_bytes) == (0.0, 0)
    times = [a.more_s for a in report.alternatives]
    assert times == sorted(times)
    # The second: written out as a module of its own and measured there.
    other = next(a for a in report.alternatives if not a.chosen and a.more_s != 0)
    whole = unplaced_module(module)[0]
    graph = read(whole)
    shop = Workshop(CLUSTER, mesh_of(module))
    index = next(i for i, node in enumerate(graph.nodes) if node.kind.name == "hlo.dot_general")
    options = discover(graph)
    made = shop.candidate_set(
        graph.nodes[index].kind, tuple(choices_for(options.nodes[index], axis) for axis in shop.axes)
    )
    shapes = [graph.values[v].shape for v in (*graph.nodes[index].operands, *graph.nodes[index].results)]
    for candidate in made.candidates:
        layouts = (*candidate.placement.operands, *candidate.placement.results)
        texts = [
            format_layout(one, shape, shop.mesh).replace('"', "")
            for one, shape in zip(layouts, shapes, strict=True)
        ]
        if f"{', '.join(texts[:-1])} -> {texts[-1]}" == other.layouts:
            break
    else:
        pytest.fail("the alternative is no candidate")
    costs = []
    for one in (decision.nodes[index], candidate):
        whole = unplaced_module(module)[0]
        graph = read(whole)
        nodes = (*decision.nodes[:index], one, *decision.nodes[index + 1 :])
        materialize(whole, schedule(graph, replace(decision, nodes=nodes), shop), shop.mesh)
        verify(whole)
        costs.append(evaluate_plan(whole, CLUSTER))
    assert costs[1].step_time_s - costs[0].step_time_s == pytest.approx(other.more_s, rel=1e-6)
    assert costs[1].peak_memory_bytes - costs[0].peak_memory_bytes == other.more_bytes


def test_unknown_names_list_known_ones(planned) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PlanError, match="no op of the plan is called 'nope'") as error:
        alternatives(planned[0], "nope")
    assert "dot_general" in str(error.value.remedy)
    with pytest.raises(PlanError, match="this is no plan"):
        explain(STEPS["mlp"])


def test_more_memory_and_more_nodes_are_planned_anew() -> None:
    """Under a tight limit states are split; a GB more lets them be, and nothing larger is needed."""
    step = mlp(4096, [2048, 2048, 2048], AdamW())
    states = 2 * 3 * 4 * 2048 * 2048
    tight = plan(step, CLUSTER, mesh=Mesh.parse("4"), memory_limit=0.8 * states + 4 * 4 * 4096 * 2048 / 4)
    more, twice = what_if(tight.module)
    assert more.cost is not None and twice.cost is not None
    assert more.cost.step_time_s <= tight.cost.step_time_s
    assert "2x4xH100" in twice.change
    pinned = plan(mlp(64, [64, 64]), CLUSTER, mesh=Mesh.parse("a=2,b=2"), pins=['layer0.weight=[{"a"}, {}]'])
    assert all(w.cost is None and "has a" in str(w.reason) for w in what_if(pinned.module))
