"""Constraints: read, obeyed by every plan, and named when they clash."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import mlp

from rhino.ir.errors import PlanError, UsageError
from rhino.ir.layout_text import format_layout
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.planner.candidates import COMPUTE, Cut
from rhino.planner.cluster import Cluster
from rhino.planner.found import Found
from rhino.planner.graph import read
from rhino.planner.outer import run
from rhino.planner.pins import PARADIGMS, Ban, Constraints, Pin, is_blocks
from rhino.planner.search import Search
from rhino.planner.templates import batch_inputs, reach

GRAPH = read(mlp(64, [64, 256, 64], AdamW()))
CLUSTER = Cluster.parse("4")


def search(pins: list[str] | None = None, forbid: list[str] | None = None, **options) -> Search:  # type: ignore[no-untyped-def]
    limit = options.pop("limit", 1e12)
    return Search(
        GRAPH, CLUSTER, limit, lambda message: None, Constraints.parse(pins or [], forbid or []), **options
    )


def layout(found: Found, name: str) -> str:
    i = next(i for i, slot in enumerate(GRAPH.arguments) if slot.name == name)
    return format_layout(found.schedule.decision.arguments[i], GRAPH.values[i].shape, found.mesh)


@pytest.mark.parametrize("text", ["", "w", "w=", "=[{}]", "w=[{}", "w=[{x}]"])
def test_pins_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read pin"):
        Pin.parse(text)


@pytest.mark.parametrize("text", ["", "w", ":x", "w:", "w:1"])
def test_bans_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read what to forbid") as error:
        Ban.parse(text)
    assert "data" in str(error.value.remedy)


@pytest.mark.parametrize("mesh", ["x=4", "x=2,y=2", None])
def test_a_pinned_parameter_has_its_layout(mesh: str | None) -> None:
    pins = ['layer0.*ght=[{}, {"x"}]', "layer1.weight=replicated"]
    best = run(search(pins), Mesh.parse(mesh) if mesh else None).best
    assert layout(best, "layer0.weight") == '[{}, {"x"}]'
    assert layout(best, "layer1.weight") == "[{}, {}]"


def test_three_axes_obey_too() -> None:
    many = Search(
        GRAPH, Cluster.parse("8"), 1e12, lambda m: None, Constraints.parse(['layer0.weight=[{"b"}, {}]'], [])
    )
    best = run(many, Mesh.parse("a=2,b=2,c=2")).best
    assert layout(best, "layer0.weight") == '[{"b"}, {}]'


def test_a_pinned_op_makes_its_layout() -> None:
    found = run(search(['dot_general=[{}, {"x"}]']), Mesh.parse("x=4")).best
    for node, candidate in zip(GRAPH.nodes, found.schedule.decision.nodes, strict=True):
        if node.kind.name == "hlo.dot_general":
            shape = GRAPH.values[node.results[0]].shape
            assert candidate is not None
            assert format_layout(candidate.placement.results[0], shape, found.mesh) == '[{}, {"x"}]'


def test_a_forbidden_axis_is_not_used() -> None:
    free = run(search(), Mesh.parse("x=2,y=2")).best
    found = run(search(forbid=["*:y"]), Mesh.parse("x=2,y=2")).best
    assert found.cost.step_time_s >= free.cost.step_time_s
    decision = found.schedule.decision
    atoms = set(found.mesh.atoms_of(found.mesh.axis("y")))
    used = [c.placement.results[0] for c in decision.nodes if c is not None] + list(decision.arguments)
    assert all(atoms.isdisjoint({d.axis for digits in one.dims for d in digits}) for one in used)


@pytest.mark.parametrize("paradigm", PARADIGMS)
def test_a_forbidden_paradigm_is_not_used(paradigm: str) -> None:
    """The batch of this program may be split, and its weights; not both are forbidden at once."""
    best = run(search(forbid=[paradigm]), Mesh.parse("x=4")).best
    decision = best.schedule.decision
    if paradigm == "sharded-states":
        assert all(
            layout.shards() == 1
            for slot, layout in zip(GRAPH.arguments, decision.arguments, strict=True)
            if slot.role in ("parameter", "state")
        )
        return
    if paradigm == "strided":
        for node, candidate in zip(GRAPH.nodes, decision.nodes, strict=True):
            if candidate is not None:
                shape = GRAPH.values[node.results[0]].shape
                assert is_blocks(candidate.placement.results[0], shape)
        return
    x = batch_inputs(GRAPH)[0]
    width = next(i for i, slot in enumerate(GRAPH.arguments) if slot.name == "layer0.weight")
    seeds = {
        "data": [(x, (0, 64))],
        "sequence": [(x, (1, 64))],
        "tensor": [(width, (0, 64)), (width, (1, 256))],
    }
    cuts = reach(GRAPH, seeds[paradigm])
    for i, (node, candidate) in enumerate(zip(GRAPH.nodes, decision.nodes, strict=True)):
        if candidate is not None and (paradigm != "tensor" or node.kind.name in COMPUTE):
            assert not any(isinstance(c, Cut) and c in cuts.nodes[i] for c in candidate.choices)


@pytest.mark.parametrize(
    ("pins", "forbid", "mesh", "parts"),
    [
        (["nope.*=[{}, {}]"], [], "x=4", ["'nope.*' matches no parameter"]),
        (["layer0.weight=[{}]"], [], "x=4", ["pin 'layer0.weight=[{}]'", "1 dimensions", "has 2"]),
        (['layer0.weight=[{"tp"}, {}]'], [], "x=4", ["pin 'layer0.weight", "tp", "axes are x"]),
        (['layer0.weight=[{"tp"}, {}]'], [], None, ["no mesh that is searched has tp", "x, y"]),
        ([], ["*:tp"], None, ["forbid '*:tp'", "no mesh"]),
        (['layer0.weight=[{"x":3}, {}]'], [], "x=4", ["pin 'layer0.weight", "does not fit"]),
        (
            ['layer0.weight=[{"x"}, {}]', "layer*=replicated"],
            [],
            "x=4",
            ["pin 'layer0.weight", "and pin 'layer*=replicated' clash", "layer0.weight on mesh x=4"],
        ),
        (
            ['layer0.weight=[{"x"}, {}]', "layer1.weight=replicated"],
            ["layer0.*:x"],
            "x=4",
            ["pin 'layer0.weight", "forbid 'layer0.*:x' clash"],
        ),
        (['dot_general=[{"x"}, {}]'], ["tensor", "data"], "x=4", ["clash", "dot_general", "forbid '"]),
    ],
)  # fmt: skip
def test_contradictions_name_what_clashes(
    pins: list[str], forbid: list[str], mesh: str | None, parts: list[str]
) -> None:
    with pytest.raises(PlanError) as error:
        run(search(pins, forbid), Mesh.parse(mesh) if mesh else None)
    text = str(error.value.message)
    assert all(part in text for part in parts), text
    assert "layer1" not in text or "layer1" in "".join(parts), "innocent ones are not named"


def test_a_limit_that_pins_cannot_meet_names_them() -> None:
    free = run(search(objective="memory"), Mesh.parse("x=4")).best
    limit = 1.2 * free.cost.peak_memory_bytes
    pins = ["layer*.weight*=replicated", "x=[{}, {}]"]
    with pytest.raises(PlanError, match=r"the smallest needs .* because of pin 'layer") as error:
        run(search(pins, limit=limit), Mesh.parse("x=4"))
    assert "would go" in str(error.value.remedy)


def test_the_objective_memory_needs_less_and_takes_longer() -> None:
    quick = run(search(), Mesh.parse("x=4")).best
    small = run(search(objective="memory"), Mesh.parse("x=4")).best
    assert small.cost.peak_memory_bytes < quick.cost.peak_memory_bytes
    assert small.cost.step_time_s >= quick.cost.step_time_s
