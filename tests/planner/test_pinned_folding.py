"""Equal layers stay folded under constraints that ask the same of all of them, and only then."""

from __future__ import annotations

import pytest
from planner_programs import transformer

from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.planner import plan
from rhino.planner import search as searching
from rhino.planner.cluster import Cluster
from rhino.planner.effort import Effort
from rhino.planner.graph import read
from rhino.planner.pins import Constraints
from rhino.planner.search import Search

MODULE = transformer(4, 8, 16, 32, 4, 64, AdamW())
CLUSTER, MESH = Cluster.parse("4xH100"), Mesh.parse("a=2,b=2")


@pytest.mark.parametrize(
    ("pins", "forbid", "folded"),
    [
        (['h.*.fc=[{}, {"a"}]'], [], True),
        (["h.?.qkv=replicated", 'wte=[{"a"}, {}]'], ["*fc:b"], True),
        ([], ["strided", "sharded-states"], True),
        ([], ["sequence"], True),
        ([], ["tensor"], True),
        ([], ["data"], True),
        (['h.2.fc=[{}, {"a"}]'], [], False),
        (['h.*.fc=[{}, {"a"}]'], ["h.0.out:b"], False),
    ],
)
def test_layers_are_folded_if_they_are_asked_alike(pins: list[str], forbid: list[str], folded: bool) -> None:
    search = Search(
        read(MODULE), CLUSTER, 1e12, lambda _: None, Constraints.parse(pins, forbid), effort=Effort("O2", 2)
    )
    assert bool(search.folding.runs) is folded


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(
    ("pins", "forbid"),
    [(['h.*.fc=[{"b"}, {"a"}]', "*norm1=replicated"], []), ([], ["tensor"]), ([], ["data"])],
)
def test_folded_plans_obey_and_are_as_good(
    pins: list[str], forbid: list[str], small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(searching, "FEW_BUCKETS", 0)
    one, other = (
        plan(MODULE, CLUSTER, mesh=MESH, pins=pins, forbid=forbid, effort=Effort("O2", 2, folded))
        for folded in (True, False)
    )
    for found in (one, other):
        layouts = {e["name"]: e["layout"] for e in found.to_json()["parameters"]}
        for layer in range(4):
            if pins:
                assert layouts[f"h.{layer}.fc"] == '[{"b"}, {"a"}]'
                assert layouts[f"h.{layer}.norm1"] == "[{}]"
    # Without folding layers may differ, so it finds no less; how the network sees the end may differ by little.
    assert other.lower_bound_s <= one.lower_bound_s * (1 + 1e-9)
    assert one.cost.step_time_s <= 1.01 * other.cost.step_time_s
