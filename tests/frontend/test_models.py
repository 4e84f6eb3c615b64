"""Six models from `transformers`: captured loss, updated buffers and gradients equal torch's to 1e-10."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))
from models import MODELS, named_tensors

from rhino.check.wide import capture_wide, wide
from rhino.dialects import signature
from rhino.dialects.text import parse_module
from rhino.ir.evaluate import run_module
from rhino.ir.printing import print_module
from rhino.passes.autodiff import differentiate


def close(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    scale = max(float(np.abs(expected).max(initial=0.0)), 1e-3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * scale, err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_forward_and_gradients_equal_torch(name: str) -> None:
    program = MODELS[name]()
    model = program.model
    module = capture_wide(program)  # some parts compute in float32, whose constants are rounded
    text = print_module(module, debug=True)
    again = parse_module(text)
    assert print_module(again, debug=True) == text
    differentiate(module)
    func = signature.main_of(module)
    tensors = named_tensors(program)
    outputs = run_module(module, [tensors[s.name] for s in signature.arguments(func)])
    with wide():
        loss = program.loss(model, program.batch)
        loss.backward()
    gradients = {n: p.grad for n, p in model.named_parameters()}
    buffers = dict(model.named_buffers())
    checked = set()
    for slot, output in zip(signature.results(func), outputs, strict=True):
        if slot.role == "loss":
            close(output, loss.detach().numpy(), "loss")
        elif slot.role == "gradient":
            expected = gradients[slot.of]
            assert expected is not None, slot.of
            close(output, expected.numpy(), slot.name)
            checked.add(slot.of)
        else:
            assert slot.role == "buffer" and signature.arguments(func)[slot.alias].name == slot.name
            close(output, buffers[slot.name].numpy(), slot.name)
    assert checked == set(gradients)
