"""What a plan says that it communicates is what the partitioned program communicates when it runs."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from oracle_programs import arrays, block, byte_cluster, bytes_sent, moe, run_counted, two_towers, vgg
from planner_programs import cnn, mlp, transformer

from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.planner import Plan, plan
from rhino.planner.cluster import Cluster
from rhino.planner.communication import Communication
from rhino.planner.evaluate import work_of
from rhino.planner.plan import collectives

STEPS = {
    "mlp": (mlp(16, [16, 64, 16], AdamW(), element="f64"), 1e7),
    "cnn": (cnn(8, [4, 8, 8], 8), 1e9),
    "transformer": (transformer(1, 8, 16, 32, 4, 64, AdamW(), element="f64"), 1e9),
    "block": (block(4, 8, 32, 4, "f64"), 1e8),
    "vgg": (vgg(8, 16, (16, "P", 32), 64, 16, "f64"), 1e9),
    "experts": (moe(8, 16, 32, 64, 8, 4, "f64"), 1e9),
    "gated experts": (moe(4, 16, 32, 64, 2, 16, "f64", gated=True), 1e9),
    "two towers": (two_towers(8, 64, 32, (64, 32), (8, 16), 8, 16, "f64"), 1e9),
}

#: Few, so that it is quick; `long` takes all.
QUICK = {
    ("mlp", "x=2,y=2", None),
    ("cnn", "x=4", None),
    ("transformer", "x=4", "zero3"),
    ("transformer", "x=2,y=2", "megatron"),
    ("block", "x=4", None),
    ("vgg", "x=4", None),
    ("experts", "x=4", None),
    ("gated experts", "x=4", None),
    ("two towers", "x=4", None),
}


def planned(found: Plan, cluster: Cluster) -> dict[str, int]:
    """Bytes per kind by the planner's own list of what a device does, which its cost is the sum of."""
    communication = Communication(cluster, found.mesh)
    out: Counter[str] = Counter()
    for item in work_of(found.module, communication).combined(communication).items:
        one = item.collective
        if one is not None and one.kind != "shard":
            out[one.kind] += bytes_sent(one.kind, int(one.operand), int(one.result), one.members * one.nodes)
    return dict(out)


@pytest.mark.parametrize(
    ("name", "mesh", "template"),
    [
        pytest.param(*case, marks=[] if case in QUICK else pytest.mark.long)
        for case in (
            (name, mesh, template)
            for name in STEPS
            for mesh in ("x=4", "x=2,y=2", "x=2,y=4", "x=2,y=2,z=2")
            for template in (None, "dp", "zero3", "megatron", "fsdp_tp")
            if not (name == "gated experts" and mesh > "x=2,y=2" and template in ("dp", "zero3"))
            and not (name == "block" and mesh > "x=2,y=2" and template in ("dp", "zero3"))
        )
    ],
)
def test_planned_bytes_are_those_counted_when_it_runs(name: str, mesh: str, template: str | None) -> None:
    step, rate = STEPS[name]
    cluster = byte_cluster(Mesh.parse(mesh).size, rate)
    found = plan(step, cluster, mesh=Mesh.parse(mesh), template=template)
    counted = run_counted(found.module, arrays(step))
    said: Counter[str] = Counter()
    for entry in collectives(found.module):
        said[entry["kind"]] += entry["bytes"]
    assert counted == planned(found, cluster) == dict(said)
    # The cost is these bytes, a nanosecond each, and one for every kernel that cuts or copies.
    assert found.cost.comm_s * 1e9 == pytest.approx(sum(counted.values()), abs=300)
