"""Plans: what analysis says they should be, never dearer than a template, deterministic, equal to the program."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import cnn, mlp, transformer

from rhino.dialects import signature
from rhino.dialects.dist.layouts import argument_layouts
from rhino.dialects.verify import verify
from rhino.ir import types
from rhino.ir.errors import MeshError, PlanError, RhinoError
from rhino.ir.evaluate import run_module
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.passes.fuse_collectives import fuse_collectives
from rhino.passes.spmd import spmd
from rhino.planner import load_plan, plan
from rhino.planner.candidates import discover
from rhino.planner.cluster import Cluster
from rhino.planner.evaluate import evaluate_plan
from rhino.planner.graph import read
from rhino.planner.network import Network
from rhino.planner.schedule import cost_of, schedule
from rhino.planner.solver import evaluate, solve
from rhino.planner.space import MICRO, Workshop, build_space

H100 = Cluster.parse("8xH100")


def layouts(found) -> dict[str, object]:
    func = signature.main_of(found.module)
    slots = signature.arguments(func)
    return {s.name: a for s, a in zip(slots, argument_layouts(func, found.mesh), strict=True)}


def shards(found, name: str) -> int:
    return layouts(found)[name].shards()


def kinds(found) -> set[str]:
    return {c["kind"] for c in found.to_json()["collectives"]}


def test_a_small_network_with_a_large_batch_goes_data_parallel() -> None:
    """Activations move 4 * 65536 * 512 bytes, gradients 4 * 512 * 512: the batch must be split, the weights not."""
    found = plan(mlp(65536, [512, 512, 512]), H100)
    assert layouts(found)["x"].dims[0] and layouts(found)["x"].shards() == 8
    assert shards(found, "layer0.weight") == shards(found, "layer1.weight") == 1
    assert kinds(found) == {"all_reduce"}


def test_convolutions_with_a_large_batch_go_data_parallel() -> None:
    found = plan(cnn(256, [8, 16, 16], 32), H100)
    assert layouts(found)["images"].shards() == 8 and layouts(found)["images"].dims[0]
    assert shards(found, "conv0.weight") == shards(found, "conv1.weight") == 1


def test_wide_layers_with_a_tiny_batch_go_tensor_parallel() -> None:
    """A batch of one cannot be split, and 4 * 16384 * 16384 bytes of gradients must not move."""
    found = plan(mlp(1, [16384, 16384, 16384]), H100)
    assert shards(found, "layer0.weight") == shards(found, "layer1.weight") == 8
    moved = sum(c["bytes"] for c in found.to_json()["collectives"])
    assert moved < 4 * 16384 * 8, "only activations and their gradients move"


def test_states_are_sharded_when_replicas_do_not_fit() -> None:
    step = mlp(4096, [2048, 2048, 2048], AdamW())
    free = plan(step, H100)
    states = 2 * 3 * 4 * 2048 * 2048  # two layers; parameter, m and v; f32
    limit = 0.6 * states + 4 * 4 * 4096 * 2048 / 8
    assert free.cost.peak_memory_bytes > limit
    tight = plan(step, H100, memory_limit=limit)
    assert tight.cost.peak_memory_bytes <= limit
    assert tight.cost.step_time_s >= free.cost.step_time_s
    assert any(shards(tight, f"layer{i}.weight.m") > 1 for i in (0, 1))
    with pytest.raises(PlanError, match="smallest needs"):
        plan(step, H100, memory_limit=states / 100)


@pytest.mark.parametrize(
    "step",
    [
        mlp(64, [256, 1024, 256], AdamW()),
        cnn(16, [8, 16, 16], 16),
        transformer(1, 8, 32, 64, 4, 128, AdamW()),
    ],
    ids=["mlp", "cnn", "transformer"],
)
def test_never_dearer_than_a_template_and_never_below_the_bound(step) -> None:
    for cluster in (Cluster.parse("4"), H100):
        found = plan(step, cluster)
        for name, seconds in found.templates.items():
            assert seconds is None or found.cost.step_time_s <= seconds, name
        assert 0 < found.lower_bound_s <= found.cost.step_time_s
        assert evaluate_plan(found.module, cluster) == found.cost


def test_the_network_is_solved_to_its_optimum() -> None:
    """Every assignment of a tiny program's network, one by one."""
    graph = read(mlp(4, [4, 4]))
    shop = Workshop(Cluster.parse("2"), Mesh.parse("x=2"))
    network = Network(build_space(graph, discover(graph), shop, None))
    problem = network.problem
    small = [range(len(c)) if len(c) <= 3 else range(3) for c in problem.costs]
    count = int(np.prod([len(r) for r in small], dtype=float))
    solution = solve(problem, timeout=None, iterations=400)
    assert solution.optimal and solution.lower_bound == pytest.approx(solution.cost)
    rng = np.random.default_rng(0)
    picks = (
        itertools.product(*small)
        if count <= 20_000
        else (tuple(int(rng.integers(len(c))) for c in problem.costs) for _ in range(20_000))
    )
    best = min(evaluate(problem, pick)[0] for pick in picks)
    assert solution.cost <= best + 1e-9
    # The network's own figure is the time of the plan that it stands for.
    decision = network.decide(solution.assignment)
    assert cost_of(schedule(graph, decision, shop), shop).step_time_s == pytest.approx(
        solution.cost / MICRO, rel=0.02
    )


def test_same_input_same_plan() -> None:
    texts = {plan(transformer(1, 8, 16, 32, 4, 64), Cluster.parse("4")).text() for _ in range(2)}
    assert len(texts) == 1


@pytest.mark.parametrize("template", [None, "dp", "zero3", "megatron", "fsdp_tp"])
def test_planned_programs_give_the_same_bits(template: str | None) -> None:
    """Powers of two and small integers: every sum is exact, so equality is of bits."""
    step = mlp(8, [8, 16, 8], element="f64")
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-2, 3, types.shape_of(a)).astype(np.float64) for a in signature.main_of(step).args]
    want = run_module(step, arrays)
    for mesh in ("4", "2x2"):
        found = plan(step, Cluster.parse("4"), mesh=Mesh.parse(mesh), template=template)
        verify(found.module)
        for module in (found.module, _local(found.module)):
            for got, expected in zip(run_module(module, arrays), want, strict=True):
                np.testing.assert_array_equal(got, expected)


def _local(placed):
    module = placed.clone()
    spmd(module)
    fuse_collectives(module)
    verify(module)
    return module


def test_a_plan_is_read_back_for_its_program_only() -> None:
    step = mlp(8, [8, 8])
    found = plan(step, Cluster.parse("2"))
    again = load_plan(found.text(), step)
    assert again.text() == found.text() and again.cost == found.cost and again.mesh == found.mesh
    with pytest.raises(PlanError, match="another program"):
        load_plan(found.text(), mlp(8, [8, 16]))
    with pytest.raises(PlanError, match="no plan"):
        load_plan('dist.mesh @mesh = <["x"=2]>\nfunc.func @main() {\n  func.return\n}', step)
    damaged = "".join(line for line in found.text().splitlines(True) if "dist.mesh @mesh" not in line)
    with pytest.raises(RhinoError) as error:
        load_plan(damaged, step, name="some.mlir")
    assert error.value.where is not None and error.value.where.startswith("some.mlir")


def test_a_batch_that_cannot_be_divided_and_a_mesh_that_does_not_fit() -> None:
    with pytest.raises(PlanError, match="batch of 6 cannot be divided over 4"):
        plan(mlp(6, [8, 8]), Cluster.parse("4"), template="dp", pad=False)
    with pytest.raises(PlanError, match=r"batch of 3 .* over 8 devices, and padding it to 8 would"):
        plan(mlp(3, [8, 8]), Cluster.parse("8"), template="dp")
    with pytest.raises(PlanError, match="batch of 1 cannot be divided over 4"):
        plan(mlp(1, [8, 8]), Cluster.parse("4"), template="dp")
    with pytest.raises(MeshError, match="3 devices"):
        plan(mlp(6, [8, 8]), Cluster.parse("4"), mesh=Mesh.parse("3"))


def test_json_has_what_the_command_line_promises() -> None:
    found = plan(mlp(8, [8, 8]), Cluster.parse("2")).to_json()
    assert {
        "devices",
        "mesh",
        "cost",
        "lower_bound_s",
        "gap",
        "search_s",
        "parameters",
        "collectives",
        "templates",
    } <= set(found)
    assert set(found["cost"]) >= {"step_time_s", "compute_s", "comm_s", "peak_memory_bytes"}
    assert {"name", "shape", "layout"} <= set(found["parameters"][0])
    assert set(found["templates"]) == {"dp", "zero3", "megatron", "fsdp_tp"}
