"""Six model families: the distributed program equals the original, the original equals PyTorch, no template is cheaper."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import models
from xdsl.dialects.builtin import ModuleOp

from rhino.cli.check import Report, compare_distributed, compare_pytorch
from rhino.cli.main import main
from rhino.cli.planning import Request, make_plan
from rhino.cli.source import Source, forward_of, load, step_of
from rhino.dialects import signature
from rhino.dialects.dist.layouts import argument_layouts
from rhino.ir.errors import RhinoWarning
from rhino.ir.mesh import Mesh
from rhino.planner import Plan, plan
from rhino.planner.cluster import Cluster

MESHES = ("2", "4", "2x2", "2x4")
TEMPLATES = ("dp", "zero3", "megatron", "fsdp_tp")
LIMIT = 1e-10
PROGRAMS = Path(__file__).parent / "programs"


def program_of(name: str) -> str:
    return str(PROGRAMS / f"{name}.py")


@cache
def captured(name: str) -> tuple[Source, ModuleOp]:
    source = load(program_of(name))
    return source, step_of(forward_of(source), source.optimizer)


@pytest.fixture(autouse=True, scope="module")
def _forget() -> Iterator[None]:
    yield
    captured.cache_clear()


def slow_devices(mesh: str) -> tuple[Cluster, Mesh]:
    """Devices a thousand times slower than this machine's processes, but with its links.

    For models as small as these, copies of the work cost less than any message on real hardware; here every op is
    worth dividing, and what the search finds is divided throughout.
    """
    where = Mesh.parse(mesh)
    cluster = Cluster.parse(str(where.size))
    part = cluster.hardware
    slow = replace(
        part,
        memory_bandwidth=part.memory_bandwidth / 1e3,
        flops={name: rate / 1e3 for name, rate in part.flops.items()},
    )
    return replace(cluster, hardware=slow), where


def make(name: str, mesh: str, how: str) -> Plan:
    """The plan that `rhino check --plan HOW` makes, or the searched one for slow devices."""
    _, step = captured(name)
    if how != "slow devices":
        return make_plan(step, Request(mesh=mesh, plan=how))
    cluster, where = slow_devices(mesh)
    return plan(step, cluster, mesh=where)


def prove(name: str, mesh: str, how: str = "auto") -> Plan:
    """One plan: never dearer than a template, and equal to the single-device program."""
    source, step = captured(name)
    made = make(name, mesh, how)
    for template, seconds in made.templates.items():
        assert seconds is not None, made.notes
        assert made.cost.step_time_s <= seconds, template
    if how in ("auto", "slow devices"):
        assert set(made.templates) == set(TEMPLATES)
        assert 0 < made.lower_bound_s <= made.cost.step_time_s
    report = Report("float64", made.mesh.size, str(made.mesh))
    compare_distributed(source, step, made, report)
    assert report.equal, report.failures
    assert report.max_rel_error <= LIMIT
    assert report.compared == {"distributed": len(signature.results(signature.main_of(step)))}
    if how != "auto":
        assert report.collectives, "a plan under which all devices do the same work proves nothing"
        reduces = any(c["kind"] in ("all_reduce", "reduce_scatter") for c in made.to_json()["collectives"])
        assert report.max_rel_error > 0 or not reduces, "sums over devices add in another order"
    return made


def pieces(made: Plan) -> dict[str, tuple[str, int]]:
    """Role and number of different pieces of every argument with a layout."""
    func = signature.main_of(made.module)
    layouts = argument_layouts(func, made.mesh)
    return {
        slot.name: (slot.role, layout.shards())
        for slot, layout in zip(signature.arguments(func), layouts, strict=True)
        if layout is not None
    }


@pytest.mark.parametrize("name", models.MODELS)
def test_one_device_equals_pytorch(name: str) -> None:
    """Loss; gradient, new value and both moments of every parameter; every buffer that the forward pass changes."""
    source = load(program_of(name))  # its own: the reference trains the model
    model = source.python("the test").model
    report = Report("float64", 1, "")
    compare_pytorch(source, report)
    assert report.equal, report.failures
    assert report.max_rel_error <= LIMIT
    changed = sum(type(m).__name__ == "BatchNorm2d" for m in model.modules()) * 3
    assert (changed > 0) == (name == "resnet")
    assert report.compared == {"pytorch": 1 + 4 * len(list(model.parameters())) + changed}


@pytest.mark.parametrize("name", ["t5", "bert"])
def test_tied_weights_are_one_parameter(name: str) -> None:
    """Its gradient, the sum over all places that use it, was compared with PyTorch's above."""
    source, step = captured(name)
    model = source.python("the test").model
    once = dict(model.named_parameters())
    ties = {
        first: {n for n, p in model.named_parameters(remove_duplicate=False) if p is once[first]} - {first}
        for first in once
    }
    assert any(ties.values())
    slots = [s for s in signature.arguments(signature.main_of(step)) if s.role == "parameter"]
    assert {s.name: set(s.tied) for s in slots} == ties


def test_running_statistics_are_results() -> None:
    _, step = captured("resnet")
    results = {s.name for s in signature.results(signature.main_of(step)) if s.role == "buffer"}
    model = captured("resnet")[0].python("the test").model
    assert results == {name for name, _ in model.named_buffers()}


@pytest.mark.parametrize("name", models.MODELS)
def test_two_axes_by_the_cheapest_plan(name: str) -> None:
    """For so small a model it hardly communicates, if at all."""
    prove(name, "2x2")


@pytest.mark.parametrize("name", models.MODELS)
def test_four_devices_with_the_work_divided(name: str) -> None:
    prove(name, "4", "slow devices")


def test_two_axes_with_the_work_divided() -> None:
    prove("resnet", "2x2", "slow devices")


@pytest.mark.parametrize("name", models.MODELS)
def test_data_parallel_splits_the_batch_and_nothing_else(name: str, recwarn: pytest.WarningsRecorder) -> None:
    made = prove(name, "2", "dp")
    for argument, (role, count) in pieces(made).items():
        assert count == (2 if role == "input" else 1), argument
    assert {c["kind"] for c in made.to_json()["collectives"]} == {"all_reduce"}
    # The planner warns of ops that are worth dividing and cannot be; these models have none.
    assert not [w for w in recwarn if issubclass(w.category, RhinoWarning)]


@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_zero3_stores_every_parameter_in_pieces(name: str) -> None:
    made = prove(name, "4", "zero3")
    for argument, (role, count) in pieces(made).items():
        # The models' extents are multiples of 4; step counts are scalars.
        assert count == 4 or role == "buffer" or argument.endswith("step"), argument
    assert {"all_gather", "reduce_scatter"} <= {c["kind"] for c in made.to_json()["collectives"]}


@pytest.mark.parametrize("name", models.MODELS)
def test_megatron_splits_batch_and_weights(name: str) -> None:
    made = prove(name, "2x2", "megatron")
    found = pieces(made)
    assert {count for role, count in found.values() if role == "input"} == {2}
    assert 2 in {count for role, count in found.values() if role == "parameter"}
    used = {axis for c in made.to_json()["collectives"] for axis in c["axis"].split(",")}
    assert used == {"x", "y"}


def test_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["check", program_of("gpt2"), "--mesh", "2x4", "--plan", "megatron"])
    assert exit.value.code == 0
    assert "equal: 86 values distributed, 113 values pytorch; mesh" in capsys.readouterr().out


def same_plan_elsewhere(name: str, mesh: str) -> None:
    """Plans here and in a process that hashes strings differently, and so orders sets differently, are one text."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_check; "
        "made = test_check.make(sys.argv[2], sys.argv[3], 'slow devices'); "
        "sys.stdout.write(made.text(debug=True) + repr(made.lower_bound_s))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(Path(__file__).parent), name, mesh],
        env={**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    made = make(name, mesh, "slow devices")
    assert made.text(debug=True) + repr(made.lower_bound_s) == done.stdout
    assert "dist.reshard" in done.stdout


def test_another_process_makes_the_same_plan() -> None:
    same_plan_elsewhere("resnet", "2x2")


@pytest.mark.long
@pytest.mark.parametrize("name", models.MODELS)
def test_another_process_makes_the_same_plan_of_every_model(name: str) -> None:
    same_plan_elsewhere(name, "2x4")


@pytest.mark.long
@pytest.mark.parametrize("how", ["auto", "slow devices", *TEMPLATES])
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", models.MODELS)
def test_every_model_on_every_mesh(name: str, mesh: str, how: str) -> None:
    prove(name, mesh, how)
