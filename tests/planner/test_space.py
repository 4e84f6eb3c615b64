"""The planner cuts images in space where there is nothing else to cut, and pays for the edges."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from oracle_programs import Argument, arrays, byte_cluster, local, mean, program, run_counted, same_results
from planner_programs import cnn
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.dialects.dist import HaloOp
from rhino.ir.errors import PlanError
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import SGD
from rhino.passes.step import training_step
from rhino.planner import Plan, plan
from rhino.planner.cluster import Cluster
from rhino.planner.communication import Communication
from rhino.planner.evaluate import evaluate_plan, work_of
from rhino.planner.plan import collectives


def stem(size: int = 64, element: str = "f64") -> ModuleOp:
    """The beginning of a ResNet on one image: 7x7 by strides of 2, pooling 3x3 by strides of 2, 3x3, 1x1."""
    blocks = {f"block.{i}": (4, 4, 3, 3) for i in range(3)}
    sizes = {"conv": (4, 1, 7, 7), **blocks, "down": (4, 4, 1, 1)}
    arguments: list[Argument] = [(n, "parameter", shape, element) for n, shape in sizes.items()]
    arguments.append(("image", "input", (1, 1, size, size), element))

    def body(b: Builder, *args: SSAValue) -> Sequence[SSAValue]:
        conv, *blocks, down, x = args
        x = b.convolution(x, conv, strides=(2, 2), padding=((3, 3), (3, 3)))
        x = b.maximum(x, b.full_like(x, 0.0))
        pooled = ((0, 0), (0, 0), (1, 1), (1, 1))
        x = b.reduce_window(x, "sum", (1, 1, 3, 3), (1, 1, 2, 2), pooled)
        for block in blocks:
            x = b.convolution(x, block, padding=((1, 1), (1, 1)))
        x = b.convolution(x, down, strides=(2, 2))
        return [mean(b, b.mul(x, x))]

    return training_step(program(arguments, body), SGD(lr=0.5))


def sent(found: Plan) -> dict[str, int]:
    return {entry["kind"]: entry["bytes"] for entry in collectives(found.module)}


def halo_bytes(found: Plan) -> int:
    """What the planner's own list of what a device does says of edges."""
    work = work_of(found.module, Communication(CLUSTER, found.mesh)).combined(
        Communication(CLUSTER, found.mesh)
    )
    steps = [i.collective for i in work.items if i.collective is not None and i.collective.kind == "halo"]
    return int(sum(step.result - step.operand for step in steps))


CLUSTER = byte_cluster(4, 1e8)


def test_one_large_image_is_cut_in_space() -> None:
    """Three convolutions 3x3 with few channels: edges of one line each, there and back, and gradients of the weights."""
    step = cnn(1, [4, 8, 8], 64)
    found = plan(step, CLUSTER, mesh=Mesh.parse("x=4"))
    moved = run_counted(found.module, arrays(step))
    assert set(moved) == {"halo", "all_reduce"}
    assert moved["halo"] == sent(found)["halo"] == halo_bytes(found)
    line = 64 * 4  # bytes of one line of one channel
    # Forward, two convolutions: 4 and 8 channels. Backward: the gradients of both weights again, and that of one input.
    assert moved["halo"] == 2 * line * (4 + 8 + 4 + 8 + 8)
    assert found.cost == evaluate_plan(found.module, CLUSTER)
    same_results(step, found.module, 1e-4)
    ops = [op for op in local(found.module).walk() if isinstance(op, HaloOp)]
    assert all((op.reason or "").startswith("edges for hlo.convolution") for op in ops)
    with pytest.raises(PlanError, match="a batch of 1 cannot be divided"):
        plan(step, CLUSTER, mesh=Mesh.parse("x=4"), template="dp")
    by_weights = plan(step, CLUSTER, mesh=Mesh.parse("x=4"), template="megatron").cost
    assert found.cost.comm_s < by_weights.comm_s / 8


@pytest.mark.parametrize("mesh", ["x=4", "x=2,y=2"])
def test_strides_and_pooling(mesh: str) -> None:
    step = stem()
    found = plan(step, CLUSTER, mesh=Mesh.parse(mesh))
    assert run_counted(found.module, arrays(step))["halo"] == sent(found)["halo"] == halo_bytes(found)
    same_results(step, found.module)


def test_edges_are_never_free() -> None:
    """Time of edges grows with their bytes, and across nodes; a node's own links are the faster ones."""
    near, far = Cluster.parse("8xH100"), Cluster.parse("8x1xH100")
    for cluster in (near, far):
        comm = Communication(cluster, Mesh.parse("x=8"))
        times = [comm.time("halo", *comm.spread((Mesh.parse("x=8").axis("x"),)), n) for n in (1, 1e6, 1e9)]
        assert 0 < cluster.hardware.launch < times[0] < times[1] < times[2]
    one, other = (
        Communication(c, Mesh.parse("x=8")).time("halo", g, k, 1e8) for c, g, k in ((near, 8, 1), (far, 1, 8))
    )
    assert one < other
