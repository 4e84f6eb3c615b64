"""Under a memory limit: what the network says of bytes and seconds is what the plan is measured at."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import transformer

from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.passes.inline_composites import inline_composites
from rhino.planner import search as searching
from rhino.planner.cluster import Cluster
from rhino.planner.effort import Effort
from rhino.planner.graph import read
from rhino.planner.search import Search


@pytest.mark.parametrize("mesh", ["8", pytest.param("2x4", marks=pytest.mark.long)])
def test_the_network_counts_what_is_measured(mesh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "FEW_BUCKETS", 0)
    module = transformer(4, 8, 128, 512, 8, 1024, AdamW())
    inline_composites(module)
    cluster = Cluster.parse("2x4xH100")
    graph = read(module)
    free = Search(graph, cluster, 1e12, lambda message: None, effort=Effort("O2", 2))
    loose = free.solve("search", Mesh.parse(mesh))
    limit = 0.9 * loose.cost.peak_memory_bytes
    tight = Search(graph, cluster, limit, lambda message: None, effort=Effort("O2", 2))
    found = tight.solve("search", Mesh.parse(mesh))
    seconds, size = found.direct[1].step_time_s, found.direct[1].peak_memory_bytes
    assert found.network_bytes <= limit
    assert found.decision.again
    assert size == pytest.approx(found.network_bytes, rel=0.1)
    assert seconds == pytest.approx(found.network_s, rel=0.1)
    assert loose.lower_bound <= found.lower_bound <= found.network_s * (1 + 1e-3)
