"""U-Net, VGG, Wide-ResNet, DLRM, two towers, LSTM, mixtures of experts: equal to PyTorch, and equal when divided."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from own_models import OWN
from test_check import LIMIT, program_of, prove

from rhino.cli.check import Report, compare_pytorch
from rhino.cli.source import load


def equals_pytorch(name: str) -> None:
    """The loss, every gradient, every new value and both moments, every buffer that the forward pass changes."""
    source = load(program_of(name))
    model = source.python("the test").model
    report = Report("float64", 1, "")
    compare_pytorch(source, report)
    assert report.max_rel_error <= LIMIT, report.failures
    changed = sum(type(m).__name__ == "BatchNorm2d" for m in model.modules()) * 3
    assert report.compared == {"pytorch": 1 + 4 * len(list(model.parameters())) + changed}


def test_dlrm() -> None:
    equals_pytorch("dlrm")
    prove("dlrm", "4", "slow devices")


def test_mixture_of_experts() -> None:
    equals_pytorch("mixtral")
    prove("mixtral", "2x2")


@pytest.mark.long
@pytest.mark.parametrize("name", OWN)
def test_own_model_equals_pytorch(name: str) -> None:
    equals_pytorch(name)


@pytest.mark.long
@pytest.mark.parametrize("how", ["auto", "slow devices"])
@pytest.mark.parametrize("mesh", ["4", "2x2"])
@pytest.mark.parametrize("name", OWN)
def test_own_model_divided(name: str, mesh: str, how: str) -> None:
    prove(name, mesh, how)
