"""Six model families: the distributed program equals the original, the original equals PyTorch, no template is cheaper."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import models
from xdsl.dialects.builtin import ModuleOp

from rhino.cli.check import Report, compare_distributed, compare_pytorch
from rhino.cli.planning import Request, make_plan
from rhino.cli.source import Source, forward_of, step_of

MESHES = ("2", "4", "2x2", "2x4")
TEMPLATES = ("dp", "zero3", "megatron")
LIMIT = 1e-10


@cache
def captured(name: str) -> tuple[Source, ModuleOp]:
    source = Source(name, program=models.MODELS[name]())
    return source, step_of(forward_of(source), source.optimizer)


@pytest.fixture(autouse=True, scope="module")
def _forget() -> Iterator[None]:
    yield
    captured.cache_clear()


def prove(name: str, mesh: str, plan: str = "auto") -> None:
    """One plan: never dearer than a template, and equal to the single-device program."""
    source, step = captured(name)
    made = make_plan(step, Request(mesh=mesh, plan=plan))
    for template, seconds in made.templates.items():
        assert seconds is None or made.cost.step_time_s <= seconds, template
    report = Report("float64", made.mesh.size, str(made.mesh))
    compare_distributed(source, step, made, report)
    assert report.equal, report.failures
    assert report.max_rel_error <= LIMIT


@pytest.mark.parametrize("name", models.MODELS)
def test_one_device_equals_pytorch(name: str) -> None:
    """Forward, gradients and updated parameters of the captured training step."""
    source, _ = captured(name)
    report = Report("float64", 1, "")
    compare_pytorch(source, report)
    assert report.equal, report.failures
    assert report.max_rel_error <= LIMIT


@pytest.mark.parametrize("name", models.MODELS)
def test_two_devices_equal_one(name: str) -> None:
    """The cheapest plan of so small a model hardly communicates; data parallel always does."""
    prove(name, "2")
    prove(name, "2", "dp")


@pytest.mark.parametrize(("name", "plan"), [("gpt2", "megatron"), ("resnet", "zero3")])
def test_a_mesh_of_two_axes_equals_one_device(name: str, plan: str) -> None:
    prove(name, "2x2", plan)


@pytest.mark.long
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", models.MODELS)
def test_every_model_on_every_mesh(name: str, mesh: str) -> None:
    prove(name, mesh)


@pytest.mark.long
@pytest.mark.parametrize("plan", TEMPLATES)
@pytest.mark.parametrize("name", models.MODELS)
def test_every_template(name: str, plan: str) -> None:
    prove(name, "4" if plan != "megatron" else "2x2", plan)
