"""Coverage: many model families import unchanged; loss and gradients equal torch's.

Most of them compute norms, rotary angles or the loss in float32 inside, hence the tolerance.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))
from models import named_tensors
from more_models import MORE, make

from rhino.dialects import signature
from rhino.frontend.capture import SEED, capture
from rhino.ir.evaluate import run_module
from rhino.passes.autodiff import differentiate


@pytest.mark.long
@pytest.mark.parametrize("name", MORE)
def test_model_equals_torch(name: str) -> None:
    program = make(name)
    module = capture(program)
    differentiate(module)
    func = signature.main_of(module)
    tensors = named_tensors(program) | {SEED: np.zeros((), np.int64)}
    outputs = run_module(module, [tensors[s.name] for s in signature.arguments(func)])
    loss = program.loss(program.model, program.batch)
    loss.backward()
    np.testing.assert_allclose(outputs[0], loss.detach(), rtol=1e-6)
    gradients = {n: p.grad for n, p in program.model.named_parameters() if p.grad is not None}
    largest = max(float(g.abs().max()) for g in gradients.values())
    for slot, output in zip(signature.results(func), outputs, strict=True):
        if slot.role == "gradient" and slot.of in gradients:
            expected = gradients[slot.of].numpy()
            np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5 * largest, err_msg=slot.name)
