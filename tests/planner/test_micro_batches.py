"""Micro-batches in the planner: chosen where memory is short, as cheap to search as one, and equal to the step."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import mlp, transformer
from xdsl.dialects.builtin import ModuleOp

from rhino.cli.batches import random_arrays
from rhino.cli.planning import local_program
from rhino.dialects import signature
from rhino.dialects.text import parse_module
from rhino.ir.errors import PlanError, UsageError
from rhino.ir.evaluate import run_module
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import SGD, AdamW
from rhino.passes.microbatch import microbatch
from rhino.planner import plan
from rhino.planner.cluster import Cluster
from rhino.planner.effort import Effort
from rhino.planner.graph import read
from rhino.planner.micro import AUTO, Chosen, TooLarge, choose, counts_of, parse_count
from rhino.planner.network import Network
from rhino.planner.plan import load_plan
from rhino.planner.search import Search
from rhino.planner.space import build_space

LIMIT = 100.0


def step_of_rows(rows: int) -> ModuleOp:
    """A program with a batch of so many rows."""
    return parse_module(
        f"""builtin.module {{
      func.func @main(%w: tensor<4xf32> {{rhino.name = "w", rhino.role = "parameter"}},
                      %x: tensor<{rows}x4xf32> {{rhino.name = "x", rhino.role = "input"}}) -> (tensor<{rows}xf32>) {{
        %y = hlo.dot_general %x, %w batch [] x [] contract [1] x [0]
             : (tensor<{rows}x4xf32>, tensor<4xf32>) -> tensor<{rows}xf32>
        func.return %y : tensor<{rows}xf32>
      }}
    }}"""
    )


def chosen(
    needs: dict[int, float], seconds: dict[int, float], rows: int = 16, devices: int = 1
) -> tuple[Chosen[int], list[int]]:
    """What is chosen where plans need so much and take so long, and the numbers that were planned."""
    asked: list[int] = []

    def attempt(count: int) -> int:
        asked.append(count)
        if needs[count] > LIMIT:
            raise TooLarge(PlanError("no plan was found that fits", remedy="use more"), needs[count], LIMIT)
        return count

    found = choose(step_of_rows(rows), devices, attempt, lambda c: (seconds[c], needs[c]), lambda _: None)
    return found, asked


def test_one_where_it_fits() -> None:
    found, asked = chosen({1: 100.0}, {1: 5.0})
    assert found.count == 1 and asked == [1]


def test_the_first_that_fits_or_the_next_if_that_is_faster() -> None:
    needs = {1: 180.0, 2: 110.0, 4: 70.0, 8: 50.0, 16: 40.0}
    found, asked = chosen(needs, {4: 5.0, 8: 6.0})
    assert (found.count, found.plan, asked) == (4, 4, [1, 2, 4, 8])
    assert [(t.count, t.peak_memory_bytes, t.step_time_s) for t in found.tried] == [
        (1, 180.0, None), (2, 110.0, None), (4, 70.0, 5.0), (8, 50.0, 6.0)]  # fmt: skip
    assert chosen(needs, {4: 5.0, 8: 4.0})[0].count == 8


def test_the_last_number_may_be_the_one() -> None:
    found, asked = chosen({1: 150.0, 2: 120.0, 5: 90.0}, {5: 1.0}, rows=5)
    assert found.count == 5 and asked == [1, 5]


def test_nothing_helps() -> None:
    with pytest.raises(TooLarge, match="no plan was found that fits") as error:
        chosen({1: 190.0, 2: 180.0, 4: 175.0, 8: 170.0, 16: 170.0}, {})
    assert error.value.needs == 190.0 and "the batch has no more parts" in str(error.value)


def test_parameters_that_do_not_fit_are_no_matter_of_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 7.0)  # a weight of 16 bytes
    with pytest.raises(TooLarge, match="no plan was found that fits") as error:
        chosen({1: 20.0}, {}, devices=2)
    assert "parameters and states alone need more" in str(error.value)
    assert chosen({1: 20.0, 2: 6.0, 4: 5.0}, {2: 1.0, 4: 2.0}, devices=3)[0].count == 2


def test_numbers() -> None:
    assert counts_of(16) == [1, 2, 4, 8, 16] and counts_of(12) == [1, 2, 4, 12] and counts_of(1) == [1]
    assert parse_count("4") == 4 and parse_count("auto") == AUTO
    for text in ("0", "-1", "two", "1.5"):
        with pytest.raises(UsageError, match="micro-batches"):
            parse_count(text)


def counted(layers: int, count: int) -> dict[str, int]:
    """Sizes of what the search of one mesh makes."""
    module = transformer(layers, 32, 16, 32, 4, 64, AdamW())
    microbatch(module, count)
    graph = read(module)
    search = Search(graph, Cluster.parse("8xH100"), 1e12, lambda _: None, effort=Effort("O2", 2))
    shop = search.shop(Mesh.parse("x=2,y=4"))
    space = build_space(graph, search.options, shop, None, search.folding)
    problem = Network(space, search.leaders, search.folding).problem
    return {
        "variables": len(problem.costs),
        "edges": len(problem.edges),
        "moments": search.lifetimes.timeline.size,
    }


def test_many_micro_batches_are_as_large_a_problem_as_few() -> None:
    one, two, eight = (counted(5, count) for count in (1, 2, 8))
    assert counted(6, 2) == two  # flat in depth, too
    assert eight["moments"] == two["moments"]
    for what in ("variables", "edges"):
        assert two[what] < 1.1 * one[what] and eight[what] < 1.1 * two[what]


def fits_and_is_the_step(step: ModuleOp, cluster: str, mesh: str, share: float) -> None:
    """Plan with less memory than the batch as one needs, and run what comes out."""
    where, most = Cluster.parse(cluster), Effort("O1", 2)
    with pytest.raises(TooLarge) as error:
        plan(step, where, mesh=Mesh.parse(mesh), effort=most, memory_limit=1.0)
    limit = share * error.value.needs
    found = plan(step, where, mesh=Mesh.parse(mesh), effort=most, memory_limit=limit, micro_batches=AUTO)
    assert found.micro_batches > 1 and found.cost.peak_memory_bytes <= limit
    assert load_plan(found.text(), step).micro_batches == found.micro_batches
    known = random_arrays(step, ("parameter", "input", "state"))
    arrays = [known[slot.name] for slot in signature.arguments(signature.main_of(step))]
    ranks = run_module(local_program(found.module), arrays)
    for got, want in zip(ranks, run_module(step, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_what_fits_in_micro_batches_is_the_step() -> None:
    step = mlp(256, [8, 8, 8, 8], SGD(lr=0.5), element="f64")
    fits_and_is_the_step(step, "2xH100", "x=2", 0.5)


@pytest.mark.long
@pytest.mark.parametrize("mesh", ["x=4", "x=2,y=2"])
def test_a_transformer_that_fits_in_micro_batches_is_the_step(mesh: str) -> None:
    step = transformer(2, 16, 8, 16, 2, 32, SGD(lr=0.5), element="f64")
    fits_and_is_the_step(step, "4xH100", mesh, 0.6)
