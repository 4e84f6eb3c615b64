"""Times of ops: matrix products by the calibrated model on their local shapes, never below the floor that bounds use."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import cnn, transformer

from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.rule import Placement
from rhino.planner.candidates import discover
from rhino.planner.cluster import Cluster, hardware
from rhino.planner.cost import least_time, local_product, op_time
from rhino.planner.graph import read
from rhino.planner.model.gemm import gemm_time
from rhino.planner.model.machine import machine, matmuls
from rhino.planner.space import Workshop, build_space

STEP = transformer(1, 8, 32, 64, 4, 128, element="bf16")


def test_a_local_product_is_read_off_the_shapes() -> None:
    """Attention's scores: batch and heads, queries x keys, head size; over batch, heads, and the contracted factor."""
    graph = read(STEP)
    shop = Workshop(Cluster.parse("8xH100"), Mesh.parse("2x4"))
    space = build_space(graph, discover(graph), shop)
    node, made = next(
        (n, s)
        for n, s in zip(graph.nodes, space.sets, strict=True)
        if n.kind.name == "hlo.dot_general" and len(n.kind.result_tensors[0][0]) == 4
    )
    (b, h, q, d), (_, _, k, _) = (shape for shape, _ in node.kind.operand_tensors)
    assert made is not None and len(made.candidates) > 8
    for candidate in made.candidates:
        lhs, rhs = (
            layout.local_shape(shape)
            for (shape, _), layout in zip(
                node.kind.operand_tensors, candidate.placement.operands, strict=True
            )
        )
        batch = lhs[0] * lhs[1]
        want = (float(lhs[2]), float(rhs[2]), float(lhs[3]), float(batch))
        assert local_product(node.kind, candidate.placement, candidate.shards) == want
        seconds = op_time(hardware("H100"), node.kind, candidate.placement, candidate.shards)
        assert seconds == gemm_time(machine("H100").matmul, *want)
    assert (b, h, q, d, k) == (8, 4, 32, 16, 32)


@pytest.mark.parametrize("part", ["H100", "A100", "L4", "V100", "CPU"])
@pytest.mark.parametrize("step", [STEP, cnn(16, [8, 16], 16)], ids=["transformer", "cnn"])
def test_no_placement_takes_less_than_the_floor(part: str, step) -> None:  # type: ignore[no-untyped-def]
    graph = read(step)
    shop = Workshop(Cluster.parse(f"4x{part}"), Mesh.parse("2x2"))
    space = build_space(graph, discover(graph), shop)
    checked = 0
    for node, made in zip(graph.nodes, space.sets, strict=True):
        if made is None:
            continue
        floor = least_time(shop.cluster.hardware, node.kind, 4)
        times = [op_time(shop.cluster.hardware, node.kind, c.placement, c.shards) for c in made.candidates]
        assert floor <= min(times) * (1 + 1e-9), node.kind.name
        checked += len(times)
    assert checked > 100


def test_types_that_were_not_measured_keep_the_roofline() -> None:
    assert set(matmuls(hardware("H100"))) == {"bf16", "f16"} and not matmuls(hardware("CPU"))
    graph = read(transformer(1, 8, 32, 64, 4, 128, element="f32"))
    part = hardware("H100")
    node = next(n for n in graph.nodes if n.kind.name == "hlo.dot_general")
    whole = Placement(
        tuple(Layout.replicated(len(s)) for s, _ in node.kind.operand_tensors),
        tuple(Layout.replicated(len(s)) for s, _ in node.kind.result_tensors),
    )
    moved = sum(
        size * math.prod(shape) for shape, size in (*node.kind.operand_tensors, *node.kind.result_tensors)
    )
    want = part.launch + max(node.kind.flops / part.flops["f32"], moved / part.memory_bandwidth)
    assert op_time(part, node.kind, whole, 1) == pytest.approx(want)
