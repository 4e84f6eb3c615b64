"""The measure sees the collectives of the program that runs: as many, of the same sizes, in the same buckets."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import mlp, transformer

from rhino.dialects import signature
from rhino.dialects.dist import CollectiveOp, ShardOp
from rhino.dialects.dist.mesh import mesh_of
from rhino.ir import types
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.passes.fuse_collectives import fuse_collectives
from rhino.passes.spmd import spmd
from rhino.planner import plan
from rhino.planner.cluster import Cluster
from rhino.planner.combine import Collective, Item, combine, reshard_items
from rhino.planner.communication import Communication
from rhino.planner.evaluate import work_of

STEPS = {
    "mlp": mlp(64, [256, 1024, 256], AdamW()),
    "transformer": transformer(2, 8, 32, 64, 4, 128, AdamW()),
}


def counted(module, mesh) -> Counter[tuple[str, int, int]]:  # type: ignore[no-untyped-def]
    """Kind and bytes of the operand of every collective of the program that runs."""
    local = module.clone()
    spmd(local)
    fuse_collectives(local)
    return Counter(
        (op.name.removeprefix("dist."), op.members(mesh), types.bytes_of(types.type_of(op.x)))
        for op in signature.main_of(local).body.block.ops
        if isinstance(op, CollectiveOp) and not isinstance(op, ShardOp)
    )


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("template", ["dp", "zero3", "megatron"])
def test_collectives_are_those_of_the_program_that_runs(name: str, template: str) -> None:
    cluster = Cluster.parse("4")
    found = plan(STEPS[name], cluster, mesh=Mesh.parse("4"), template=template)
    mesh = mesh_of(found.module)
    communication = Communication(cluster, mesh)
    work = work_of(found.module, communication)
    seen = Counter(
        (c.kind, c.members * c.nodes, int(c.operand))
        for item in work.combined(communication).items
        if (c := item.collective) is not None and c.kind != "shard"
    )
    assert seen == counted(found.module, mesh)
    if template != "megatron":  # parameters' collectives wait for nothing
        assert seen.total() < sum(i.collective is not None for i in work.items)


def test_a_bucket_is_one_collective_and_moves_what_depends_on_it() -> None:
    """Gradients 0 and 1, an update of 0 between them, and a third that needs the update."""

    def reduce(start: int, out: int) -> list[Item]:
        step = Collective("all_reduce", 4, 1, (), "sum", 100.0, 100.0, "f32")
        return reshard_items([step], lambda c: 1.0 + c.operand, start, [out], out)

    items = [
        *reduce(0, 10),
        Item(1.0, False, (10,), ((20, 100),)),
        *reduce(1, 11),
        *reduce(20, 12),
    ]
    found = combine(items, lambda c: 1.0 + c.operand, lambda size, kernels: kernels + size)
    assert [i.time for i in found] == [201.0, 201.0, 0.0, 1.0, 101.0]
    assert [b for b, _ in found[2].writes] == [10, 11] and found[2].view
    assert combine(items, lambda c: 1.0, lambda size, kernels: 0.0, limit=150) == items
