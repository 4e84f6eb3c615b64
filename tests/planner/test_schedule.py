"""From decisions to modules: shared reshards, copies under a memory limit, the same cost before and after."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import cnn, mlp, program, transformer

from rhino.dialects import signature
from rhino.dialects.dist.reshard import ReshardOp
from rhino.dialects.verify import verify
from rhino.ir import types
from rhino.ir.evaluate import run_module
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.passes.fuse_collectives import fuse_collectives
from rhino.passes.spmd import spmd
from rhino.planner.candidates import discover
from rhino.planner.cluster import Cluster
from rhino.planner.combine import Item
from rhino.planner.evaluate import evaluate_plan
from rhino.planner.graph import read
from rhino.planner.materialize import materialize
from rhino.planner.network import Network
from rhino.planner.schedule import cost_of, schedule
from rhino.planner.space import Workshop, build_space
from rhino.planner.tally import peak_memory

CLUSTER = Cluster.parse("4")
STEPS = {
    "mlp": mlp(8, [8, 16, 8], AdamW(), element="f64"),
    "cnn": cnn(4, [4, 8], 6),
    "transformer": transformer(1, 4, 8, 16, 4, 32, AdamW(), element="f64"),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("regather", [False, True])
def test_any_decision_becomes_a_module_of_the_same_cost_and_meaning(name: str, regather: bool) -> None:
    """Decisions at random, not only good ones: reshards of every kind between ops that disagree."""
    rng = np.random.default_rng(7)
    step = STEPS[name]
    args = [
        rng.integers(0, 4, types.shape_of(a)).astype(types.numpy_dtype(types.element_of(a))) + 1
        for a in signature.main_of(step).args
    ]
    want = run_module(step, args)
    for _ in range(3):
        placed = step.clone()
        graph = read(placed)
        shop = Workshop(CLUSTER, Mesh.parse("2x2"))
        network = Network(build_space(graph, discover(graph), shop))
        assignment = _random(network, rng)
        plan = schedule(graph, network.decide(assignment), shop, regather=regather)
        expected = cost_of(plan, shop)
        materialize(placed, plan, shop.mesh)
        verify(placed)
        found = evaluate_plan(placed, CLUSTER)
        assert found.step_time_s == pytest.approx(expected.step_time_s, rel=1e-9)
        assert found.peak_memory_bytes == expected.peak_memory_bytes
        local = placed.clone()
        spmd(local)
        fuse_collectives(local)
        verify(local)
        for got, right in zip(run_module(local, args), want, strict=True):
            np.testing.assert_allclose(
                got, right, rtol=2e-5 if right.dtype == np.float32 else 1e-9, atol=1e-6
            )


def _random(network: Network, rng: np.random.Generator) -> list[int]:
    """An assignment at random in which every partial that an op wants is one that its producer makes."""
    costs = network.problem.costs
    pick = [int(rng.integers(len(c))) for c in costs]
    for _ in range(200):
        broken = [(i, j) for i, j, t in network.problem.edges if not np.isfinite(t[pick[i], pick[j]])]
        if not broken:
            return pick
        for i, j in broken:  # no op lets a partial through then
            for v in (i, j):
                pick[v] = int(rng.integers(len(costs[v]))) if rng.random() < 0.5 else 0
    return [0] * len(costs)


def test_users_of_one_layout_share_one_reshard_and_slices_come_from_what_is_gathered() -> None:
    def body(b, w, x, y):  # type: ignore[no-untyped-def]
        return [b.reduce(b.add(b.matmul(x, w), b.matmul(y, w)), [0, 1], "sum")]

    arguments = [
        ("w", "parameter", (64, 64), "f32"),
        ("x", "input", (64, 64), "f32"),
        ("y", "input", (64, 64), "f32"),
    ]
    step = program(arguments, body)
    graph = read(step)
    shop = Workshop(CLUSTER, Mesh.parse("4"))
    network = Network(build_space(graph, discover(graph), shop))
    pick = [0] * len(network.problem.costs)
    weight = network.argument_variables[0]
    spread = network.space.arguments[0]
    pick[weight] = next(i for i in range(spread.size) if spread.at(i).dims[0])
    plan = schedule(graph, network.decide(pick), shop)
    materialize(step, plan, shop.mesh)
    reshards = [op for op in signature.main_of(step).body.block.ops if isinstance(op, ReshardOp)]
    assert len(reshards) == 1


def test_memory_is_swept_over_lifetimes() -> None:
    # a (10 bytes, kept) -> b (100) -> view of b -> c (5) replaces a; d reads the view and is the last to.
    items = [
        Item(1.0, False, (0,), ((1, 100),)),
        Item(0.0, False, (1,), ((2, 100),), view=True),
        Item(1.0, False, (0,), ((3, 10),)),
        Item(1.0, False, (2,), ((4, 7),)),
    ]
    arguments = [(0, 10, True)]
    assert peak_memory(items, arguments, [(3, 0), (4, None)]) == 10 + 100 + 7
    assert peak_memory(items, arguments, [(3, None), (4, None)]) == 10 + 100 + 10 + 7
    assert peak_memory([], [(0, 10, True), (1, 3, False)], []) == 13
