"""`rhino.parallelize`: simulated in one process, and on real ranks, against plain PyTorch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from api_program import batch, loss, make_model

import rhino
from rhino.ir.errors import UsageError
from rhino.runtime.launch import launch
from rhino.runtime.reference import Reference

STEPS = 4


@pytest.fixture(scope="module")
def reference() -> tuple[list[float], dict[str, torch.Tensor]]:
    trained = Reference(make_model(), loss, rhino.SGD(lr=0.1, momentum=0.9))
    losses = [float(trained.step(batch(i))) for i in range(STEPS)]
    return losses, trained.model.state_dict()


@pytest.mark.parametrize(("plan", "mesh"), [("dp", "dp=2"), ("auto", "a=2,b=2")])
def test_one_process_simulates_all_devices(
    plan: str, mesh: str, reference: tuple[list[float], dict[str, torch.Tensor]]
) -> None:
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    step = rhino.parallelize(
        model, loss=loss, batch=batch(0), optimizer=rhino.SGD(lr=0.1, momentum=0.9), plan=plan, mesh=mesh
    )
    assert step.plan is not None and str(step.plan.mesh) == mesh
    losses = [float(step(batch(i))) for i in range(STEPS)]
    assert losses == pytest.approx(reference[0], rel=1e-5)
    assert set(step.state_dict()) == set(reference[1])
    for name, tensor in step.state_dict().items():
        torch.testing.assert_close(tensor, reference[1][name], rtol=1e-4, atol=1e-6)
        assert torch.equal(model.state_dict()[name], before[name]), "the user's model was changed"


@pytest.mark.parametrize("plan", ["zero3"])
def test_ranks_train_alike(
    plan: str, tmp_path: Path, reference: tuple[list[float], dict[str, torch.Tensor]]
) -> None:
    out = tmp_path / "out.json"
    script = str(Path(__file__).with_name("ranks_api.py"))
    launch([sys.executable, script, plan, str(STEPS), str(out)], 2)
    got = json.loads(out.read_text())
    assert got["losses"] == pytest.approx(reference[0], rel=1e-5)
    for name, values in got["weights"].items():
        want = reference[1][name]
        torch.testing.assert_close(torch.tensor(values, dtype=want.dtype), want, rtol=1e-4, atol=1e-6)


def test_batches_of_another_shape_are_refused() -> None:
    step = rhino.parallelize(make_model(), loss=loss, batch=batch(0), plan="dp", mesh="dp=2")
    wrong = {"x": torch.zeros(6, 8), "y": torch.zeros(6, dtype=torch.int64)}
    with pytest.raises(UsageError):
        step(wrong)
    with pytest.raises(UsageError, match="lacks 'y'"):
        step({"x": batch(0)["x"]})
