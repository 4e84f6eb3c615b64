"""What a search does must not grow with the number of equal layers: counted, not timed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import transformer

from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.planner.cluster import Cluster
from rhino.planner.effort import Effort
from rhino.planner.graph import read
from rhino.planner.network import Network
from rhino.planner.search import Search
from rhino.planner.space import build_space


def counted(layers: int, *, folded: bool = True) -> dict[str, int]:
    """Sizes of everything that the search of one mesh makes."""
    graph = read(transformer(layers, 8, 16, 32, 4, 64, AdamW()))
    search = Search(graph, Cluster.parse("8xH100"), 1e12, lambda _: None, effort=Effort("O2", 2, folded))
    mesh = Mesh.parse("x=2,y=4")
    shop = search.shop(mesh)
    problem = Network(
        build_space(graph, search.options, shop, None, search.folding), search.leaders, search.folding
    )
    return {
        "variables": len(problem.problem.costs),
        "strategies": sum(map(len, problem.problem.costs)),
        "edges": len(problem.problem.edges),
        "candidate sets": len(shop._sets),
        "tables": len(shop._tables),
        "questions": len(shop.communication._moves),
        "moments": search.lifetimes.timeline.size,
    }


@pytest.fixture(scope="module")
def shallow() -> dict[str, int]:
    return counted(5)


@pytest.mark.parametrize("layers", [8, 16])
def test_a_deeper_model_is_the_same_problem(shallow: dict[str, int], layers: int) -> None:
    assert counted(layers) == shallow


def test_unfolded_it_is_not(shallow: dict[str, int]) -> None:
    alone = counted(5, folded=False)
    assert alone["variables"] > 2 * shallow["variables"] and alone["edges"] > 2 * shallow["edges"]
