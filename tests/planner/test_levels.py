"""Levels and folding: what may not depend on luck."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import mlp, transformer

from rhino.dialects.text import print_module
from rhino.ir.errors import UsageError
from rhino.ir.optimizers import AdamW
from rhino.planner import Plan, plan
from rhino.planner import search as searching
from rhino.planner.cluster import Cluster
from rhino.planner.effort import Effort
from rhino.planner.evaluate import evaluate_plan

PROGRAMS = {
    "mlp": mlp(64, (32, 64, 64, 8), AdamW()),
    "transformer": transformer(4, 8, 16, 32, 4, 64, AdamW()),
    "wide transformer": transformer(3, 8, 8, 128, 4, 64, AdamW()),
}


def made(module: ModuleOp, cluster: str, **effort: object) -> Plan:
    return plan(module, Cluster.parse(cluster), effort=Effort(**effort))


@pytest.fixture(params=["measured at once", "measured at the end"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large folded programs are measured only at the end; here small ones are too."""
    if request.param == "measured at the end":
        monkeypatch.setattr(searching, "FEW_BUCKETS", 0)


@pytest.mark.parametrize("cluster", ["4xH100", "2x2xV100"])
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_o2_costs_no_more_than_o1_and_that_no_more_than_any_template(
    name: str, cluster: str, how: None
) -> None:
    o1 = made(PROGRAMS[name], cluster, level="O1", mesh_axes=2)
    o2 = made(PROGRAMS[name], cluster, level="O2", mesh_axes=2)
    templates = [s for found in (o1, o2) for s in found.templates.values() if s is not None]
    seconds = [evaluate_plan(found.module, Cluster.parse(cluster)).step_time_s for found in (o2, o1)]
    assert seconds[0] <= seconds[1] <= min(templates)
    assert o1.lower_bound_s <= o2.cost.step_time_s and o2.lower_bound_s <= o2.cost.step_time_s


def test_unfolded_layers_may_differ_and_so_cost_no_more_in_the_network() -> None:
    """The bound without folding is over a larger space."""
    folded, alone = (made(PROGRAMS["transformer"], "4xH100", mesh_axes=1, folded=f) for f in (True, False))
    assert alone.lower_bound_s <= folded.lower_bound_s * (1 + 1e-3)
    assert print_module(folded.module) == print_module(
        made(PROGRAMS["transformer"], "4xH100", mesh_axes=1).module
    )


def test_unknown_efforts() -> None:
    with pytest.raises(UsageError, match="O3"):
        Effort(level="O3")
    with pytest.raises(UsageError, match="4 axes"):
        Effort(mesh_axes=4)
