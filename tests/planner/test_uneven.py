"""Extents that a mesh does not divide: they are padded, the pads are counted, and nothing that users see changes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

sys.path.insert(0, str(Path(__file__).parent))
from planner_programs import cnn, mlp, transformer

from rhino.cli.planning import local_program
from rhino.dialects import signature
from rhino.dialects.dist.layouts import argument_layouts
from rhino.ir import types
from rhino.ir.errors import PlanError
from rhino.ir.evaluate import run_module
from rhino.ir.mesh import Mesh
from rhino.passes.pad import PadPass
from rhino.passes.widen_floats import widen_floats
from rhino.planner import Plan, load_plan, plan
from rhino.planner import uneven as planning
from rhino.planner.cluster import Cluster
from rhino.planner.uneven import even, growth_of, multiples, padded

FOUR = Cluster.parse("4")

#: 10 heads of 2 in a width of 20, a batch of 6.
VOCABULARY = 257
GPT = transformer(1, 6, 4, 20, 10, VOCABULARY, hidden=32)


def layouts(found: Plan) -> dict[str, list[bool]]:
    """By name of an argument, which of its dimensions are divided."""
    func = signature.main_of(found.module)
    slots = signature.arguments(func)
    return {
        slot.name: [bool(digits) for digits in layout.dims]
        for slot, layout in zip(slots, argument_layouts(func, found.mesh), strict=True)
        if layout is not None
    }


def arrays(step: ModuleOp) -> list[np.ndarray]:
    """Arguments in float64, as users give them; indices from the whole range."""
    rng = np.random.default_rng(0)
    func = signature.main_of(step)
    return [
        rng.normal(size=types.shape_of(arg))
        if types.is_float(types.element_of(arg))
        else rng.integers(0, VOCABULARY, types.shape_of(arg))
        for arg in func.args
    ]


def same(step: ModuleOp, found: Plan) -> None:
    """The local program gives what the step gives, in float64."""
    local = local_program(found.module)
    wide = step.clone()
    for module in (local, wide):
        widen_floats(module)
    given = arrays(step)
    slots = signature.results(signature.main_of(step))
    for slot, got, want in zip(slots, run_module(local, given), run_module(wide, given), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12, err_msg=slot.name)


@pytest.mark.parametrize(("template", "mesh"), [("dp", "dp=4"), ("zero3", "a=2,b=2")])
def test_a_language_model_of_which_little_divides(template: str, mesh: str) -> None:
    found = plan(GPT, FOUR, mesh=Mesh.parse(mesh), template=template)
    assert "6:8" in found.padding.split(",") and layouts(found)["tokens"][0]
    same(GPT, found)


@pytest.mark.parametrize(("mesh", "grown"), [("tp=4", {10: 12, 257: 260}), ("dp=2,tp=2", {6: 8, 257: 258})])
def test_heads_and_vocabulary_over_a_tensor_axis(mesh: str, grown: dict[int, int]) -> None:
    """Whether it is worth it is another question: the program is grown before it is planned."""
    pins = ['wte=[{"tp"}, {}]', 'h.0.proj=[{"tp"}, {}]']
    found = plan(padded(GPT, grown), FOUR, mesh=Mesh.parse(mesh), template="megatron", pins=pins, pad=False)
    func = signature.main_of(found.module)
    held = {s.name: types.shape_of(a) for s, a in zip(signature.arguments(func), func.args, strict=True)}
    assert held["wte"] == (grown[257], 20) and layouts(found)["wte"] == [True, False]
    assert held["h.0.proj"] == (2 * grown.get(10, 10), 20) and layouts(found)["h.0.proj"] == [True, False]
    assert layouts(found)["tokens"][0] == (6 in grown)
    shapes = {p["name"]: p["shape"] for p in found.to_json()["parameters"]}  # as users know them
    assert shapes["wte"] == [VOCABULARY, 20] and shapes["h.0.proj"] == [20, 20]
    same(GPT, found)


@pytest.mark.parametrize("template", ["dp", None])
def test_convolutions_on_an_uneven_batch(template: str | None) -> None:
    step = cnn(6, [3, 8], 6)
    found = plan(step, FOUR, template=template)
    if template is not None:
        assert "6:8" in found.padding and layouts(found)["images"][0]
    same(step, found)


def test_the_search_pads_where_that_is_cheaper_and_only_what_it_divides() -> None:
    """Two rows more than a million cost nothing and divide the work, growing 514 brings nothing."""
    batch, fast = 2**20 + 2, Cluster.parse("4xH100")
    step = mlp(batch, [512, 514, 512])
    found = plan(step, fast)
    assert found.padding == f"{batch}:{batch + 2}"
    whole = plan(step, fast, pad=False)
    assert found.cost.step_time_s < whole.cost.step_time_s
    assert found.templates["dp"] is not None and whole.templates["dp"] is None
    assert all(t is None or found.cost.step_time_s <= t for t in found.templates.values())


def test_a_small_program_is_left_as_it_is() -> None:
    """Its work takes less than any collective, however it is divided."""
    found = plan(mlp(6, [8, 8]), FOUR)
    assert found.padding == "" and found.text() == plan(mlp(6, [8, 8]), FOUR, pad=False).text()


def test_padding_is_work() -> None:
    """A batch of 9 on 8 devices is 16 rows: two on each, not 9 / 8."""
    eight = Cluster.parse("8")
    by_nine, by_sixteen = (plan(mlp(n, [256, 256]), eight, template="dp") for n in (9, 16))
    assert by_nine.padding == "9:16"
    assert by_nine.cost.compute_s >= by_sixteen.cost.compute_s


def test_an_even_program_is_planned_once_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    step = mlp(8, [16, 8])
    before = plan(step, FOUR, pad=False).text()
    monkeypatch.delattr(planning, "classes_of")  # nobody asks which dimensions belong together
    after = plan(step, FOUR)
    assert after.text() == before and after.to_json()["padding"] == ""


def test_a_padded_plan_is_read_back_and_is_what_the_pass_makes() -> None:
    step = mlp(6, [8, 10])
    found = plan(step, FOUR, template="dp")
    again = load_plan(found.text(), step)
    assert again.padding == found.padding == "6:8" and again.text() == found.text()
    facts = again.to_json()
    assert facts["padding"] == "6:8" and facts["parameters"][0]["shape"] == [8, 10]
    grown = step.clone()
    PadPass(extents=found.padding).apply(Context(), grown)
    shapes = [
        [types.shape_of(arg) for arg in signature.main_of(module).args] for module in (grown, again.module)
    ]
    assert shapes[0] == shapes[1]


def test_a_pin_on_a_vocabulary_that_does_not_divide() -> None:
    found = plan(GPT, FOUR, mesh=Mesh.parse("tp=4"), pins=['wte=[{"tp"}, {}]'])
    assert "257:260" in found.padding and layouts(found)["wte"] == [True, False]
    with pytest.raises(PlanError):
        plan(GPT, FOUR, mesh=Mesh.parse("tp=4"), pins=['wte=[{"tp"}, {}]'], pad=False)


@pytest.mark.parametrize(
    ("extent", "devices", "grown"),
    [(6, 4, 8), (257, 4, 260), (10, 4, 12), (3, 8, 4), (33, 16, 36), (12, 4, None)],
)
def test_what_extents_grow_to(extent: int, devices: int, grown: int | None) -> None:
    step = mlp(extent, [64, 64])
    assert growth_of(step, multiples(None, devices)) == ({} if grown is None else {extent: grown})
    assert even(step, None, devices) == (grown is None)
