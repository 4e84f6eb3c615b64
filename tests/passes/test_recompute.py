"""recompute: the same results to the bit, and less alive between forward and backward."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rhino.dialects import signature
from rhino.frontend.capture import capture
from rhino.frontend.program import Program
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.evaluate import run_module
from rhino.ir.optimizers import SGD
from rhino.passes.recompute import RecomputePass, recompute
from rhino.passes.step import training_step
from rhino.planner import plan
from rhino.planner.cluster import Cluster
from rhino.planner.effort import Effort

LENGTH, WIDTH, LAYERS = 64, 8, 4


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.w(x)[:, None]
        return x + F.scaled_dot_product_attention(y, y, y, is_causal=True)[:, 0]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def forward() -> ModuleOp:
    torch.manual_seed(0)
    batch = torch.randn(2, LENGTH, WIDTH)
    return capture(Program(Model(), lambda model, x: model(x).pow(2).mean(), batch))


def test_results_are_equal_to_the_bit_and_less_is_kept() -> None:
    module = training_step(forward(), SGD(lr=0.1))
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal(types.shape_of(a)).astype(np.float32) for a in signature.main_of(module).args
    ]
    before = run_module(module, inputs)
    needs = plan(module, Cluster.parse("1xH100"), effort=Effort("O1", 1)).cost.peak_memory_bytes
    assert recompute(module) >= LAYERS
    module.verify()
    for a, b in zip(before, run_module(module, inputs), strict=True):
        np.testing.assert_array_equal(a, b)
    less = plan(module, Cluster.parse("1xH100"), effort=Effort("O1", 1)).cost.peak_memory_bytes
    assert less < 0.85 * needs
    assert recompute(module) == 0  # what is used behind the loss is made there already


def test_other_composites_are_left_alone() -> None:
    module = training_step(forward(), SGD(lr=0.1))
    text = str(module)
    assert recompute(module, ["softmax"]) == 0 and str(module) == text


def test_without_a_loss_there_is_no_backward_pass() -> None:
    module = forward()
    func = signature.main_of(module)
    signature.set_results(func, [signature.Slot(name="y") for _ in func.function_type.outputs])
    with pytest.raises(ProgramError, match="no loss"):
        RecomputePass().apply(Context(), module)
