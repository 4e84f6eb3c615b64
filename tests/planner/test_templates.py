"""Expert templates on traced programs: what they split, what they leave whole, what they move."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import cnn, mlp, program, transformer

from rhino.dialects import signature
from rhino.dialects.dist.layouts import argument_layouts
from rhino.ir.errors import PlanError
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.planner import Plan, plan
from rhino.planner.cluster import Cluster
from rhino.planner.graph import read
from rhino.planner.meshes import template_meshes
from rhino.planner.templates import batch_inputs, batch_of, reach

GPT = transformer(2, 8, 16, 32, 4, 64, AdamW())


def layouts(found: Plan) -> dict[str, object]:
    func = signature.main_of(found.module)
    slots = signature.arguments(func)
    return {s.name: a for s, a in zip(slots, argument_layouts(func, found.mesh), strict=True)}


def by_role(found: Plan, *roles: str) -> list[tuple[str, object]]:
    func = signature.main_of(found.module)
    slots = signature.arguments(func)
    every = zip(slots, argument_layouts(func, found.mesh), strict=True)
    return [(s.name, layout) for s, layout in every if s.role in roles]


def sent(found: Plan) -> dict[str, int]:
    out: dict[str, int] = {}
    for entry in found.to_json()["collectives"]:
        out[entry["kind"]] = out.get(entry["kind"], 0) + entry["bytes"]
    return out


def parameter_bytes(found: Plan) -> int:
    total = 0
    for entry in found.to_json()["parameters"]:
        size = 4
        for extent in entry["shape"]:
            size *= extent
        total += size
    return total


@pytest.mark.parametrize("mesh", [None, Mesh.parse("2x2")])
def test_dp_splits_the_batch_and_reduces_every_gradient_once(mesh: Mesh | None) -> None:
    found = plan(GPT, Cluster.parse("4"), template="dp", mesh=mesh)
    assert all(layout.is_replicated for _, layout in by_role(found, "parameter", "state"))
    for _, layout in by_role(found, "input"):
        assert layout.shards() == 4 and layout.dims[0]
    moved = sent(found)
    assert set(moved) == {"all_reduce"}
    # A ring sends 2 (n - 1) / n of every gradient, and a little for the loss.
    want = 2 * 3 / 4 * parameter_bytes(found)
    assert want <= moved["all_reduce"] <= 1.02 * want


def test_zero3_stores_everything_in_pieces() -> None:
    found = plan(GPT, Cluster.parse("4"), template="zero3")
    for name, layout in by_role(found, "parameter", "state"):
        assert layout.shards() == (4 if name != "optimizer.step" and layout.rank else 1), name
    moved = sent(found)
    want = 3 / 4 * parameter_bytes(found)
    assert want <= moved["all_gather"] <= 2.1 * want, "once if it is kept, twice if it is gathered anew"
    assert moved["reduce_scatter"] >= 0.9 * want
    assert found.cost.peak_memory_bytes < plan(GPT, Cluster.parse("4"), template="dp").cost.peak_memory_bytes


def test_megatron_splits_weights_in_place_and_moves_activations_only() -> None:
    step = mlp(16, [64, 256, 64])
    found = plan(step, Cluster.parse("4"), template="megatron", mesh=Mesh.parse("tp=4"))
    first, second = layouts(found)["layer0.weight"], layouts(found)["layer1.weight"]
    assert first.shards() == second.shards() == 4
    assert first.dims[1] and second.dims[0], "by column, then by row"
    assert layouts(found)["x"].is_replicated
    activations = 2 * 3 / 4 * 4 * 16 * 64
    assert sum(sent(found).values()) <= 2 * activations + 64, "one all-reduce forward"


def test_megatron_with_two_axes_is_tensor_and_data_parallel() -> None:
    found = plan(GPT, Cluster.parse("4"), template="megatron", mesh=Mesh.parse("dp=2,tp=2"))
    for name, layout in by_role(found, "input"):
        assert {d.axis.name for d in layout.dims[0]} == {"dp"} and not layout.dims[1], name
    for name in ("h.0.qkv", "h.0.proj", "h.1.fc", "h.1.out"):
        layout = layouts(found)[name]
        assert {d.axis.name for dims in layout.dims for d in dims} == {"tp"}, name


def test_fsdp_tp_stores_in_pieces_over_data_and_splits_weights_over_tensor() -> None:
    mesh = Mesh.parse("dp=2,tp=2")
    found = plan(GPT, Cluster.parse("4"), template="fsdp_tp", mesh=mesh)
    for name, layout in by_role(found, "input"):
        assert {d.axis.name for d in layout.dims[0]} == {"dp"} and not layout.dims[1], name
    for name, layout in by_role(found, "parameter", "state"):
        axes = {d.axis.name for dims in layout.dims for d in dims}
        assert name == "optimizer.step" or "dp" in axes, name
    for name in ("h.0.qkv", "h.0.proj", "h.1.fc", "h.1.out"):
        layout = layouts(found)[name]
        assert {d.axis.name for dims in layout.dims for d in dims} == {"dp", "tp"}, name
    other = plan(GPT, Cluster.parse("4"), template="megatron", mesh=mesh)
    assert found.cost.peak_memory_bytes < other.cost.peak_memory_bytes


def test_fsdp_tp_splits_tokens_between_products_where_bytes_decide() -> None:
    step = transformer(1, 8, 2048, 1024, 8, 1024, AdamW())
    found = plan(step, Cluster.parse("8xH100"), template="fsdp_tp", mesh=Mesh.parse("dp=2,tp=4"))
    counted = {(c["kind"], c["axis"]): c["bytes"] for c in found.to_json()["collectives"]}
    rows = 4 * 8 // 2 * 2048 * 1024  # bytes of a device's activations, f32
    # Two products by row forward and two by column backward leave partial sums, each scattered over the tokens.
    assert counted["reduce_scatter", "tp"] >= 4 * 3 / 4 * rows
    assert counted.get(("all_reduce", "tp"), 0) < 0.01 * rows


def test_the_tensor_axis_is_found_by_name_wherever_it_stands() -> None:
    found = plan(GPT, Cluster.parse("4"), template="megatron", mesh=Mesh.parse("tp=2,dp=2"))
    assert {d.axis.name for _, layout in by_role(found, "input") for d in layout.dims[0]} == {"dp"}


def test_what_does_not_apply_says_why() -> None:
    with pytest.raises(PlanError, match="batch of 6 cannot be divided over 4"):
        plan(mlp(6, [8, 8]), Cluster.parse("4"), template="zero3", pad=False)
    with pytest.raises(PlanError, match="no matrix product"):
        plan(mlp(8, [7, 5]), Cluster.parse("4"), template="megatron", pad=False)
    with pytest.raises(PlanError, match="no template 'ddp'"):
        plan(mlp(8, [8, 8]), Cluster.parse("4"), template="ddp")
    found = plan(mlp(6, [8, 8]), Cluster.parse("4"), pad=False)
    assert found.templates["dp"] is None and "batch of 6" in found.notes["dp"]


def test_the_batch_is_the_leading_extent_that_inputs_share() -> None:
    def body(b, w, mask, x, y):  # type: ignore[no-untyped-def]
        z = b.mul(
            b.matmul(b.matmul(mask, b.transpose(x, [1, 0])), b.matmul(y, w)),
            b.full((5, 8), x.type.element_type, 1.0),
        )
        return [b.reduce(z, [0, 1], "sum")]

    arguments = [("w", "parameter", (8, 8), "f32"), ("mask", "input", (5, 8), "f32"),
                 ("x", "input", (4, 8), "f32"), ("y", "input", (4, 8), "f32")]  # fmt: skip
    graph = read(program(arguments, body))
    assert batch_of(graph) == 4 and batch_inputs(graph) == [2, 3]


def test_the_batch_reaches_activations_and_their_gradients_but_no_weight() -> None:
    for step in (GPT, cnn(8, [4, 8, 8], 8, AdamW())):
        graph = read(step)
        seen = reach(graph, [(i, (0, 8)) for i in batch_inputs(graph)])
        for i, slot in enumerate(graph.arguments):
            assert bool(seen.values[i]) == (slot.role == "input"), slot.name
        compute = [
            i for i, n in enumerate(graph.nodes) if n.kind.name in ("hlo.dot_general", "hlo.convolution")
        ]
        assert compute and all(seen.nodes[i] for i in compute)


@pytest.mark.parametrize(
    ("cluster", "name", "want"),
    [
        ("2x8xH100", "fsdp_tp", ["dp=2,tp=8"]),
        ("8xH100", "fsdp_tp", ["dp=2,tp=4"]),
        ("2", "fsdp_tp", ["tp=2"]),
        ("3", "fsdp_tp", ["tp=3"]),
        ("4", "megatron", ["dp=2,tp=2", "tp=4"]),
        ("4", "zero3", ["dp=4"]),
    ],
)
def test_meshes_that_suit_a_template(cluster: str, name: str, want: list[str]) -> None:
    assert template_meshes(name, Cluster.parse(cluster)) == [Mesh.parse(text) for text in want]
