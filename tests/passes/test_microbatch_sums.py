"""In which type micro-batches are added up: f32 unless asked otherwise, as a loop in PyTorch with sums in float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rhino.dialects import signature
from rhino.dialects.text import parse_module, print_module
from rhino.frontend.capture import capture
from rhino.frontend.program import Program
from rhino.ir import types
from rhino.ir.errors import UsageError
from rhino.ir.evaluate import run_module
from rhino.ir.optimizers import SGD
from rhino.passes.inline_composites import inline_composites
from rhino.passes.microbatch import MicrobatchPass, accumulated_in, microbatch
from rhino.passes.step import training_step

ROWS, WIDE, COUNT = 64, 24, 16
Rng = np.random.Generator


class Linear(nn.Module):
    """Its gradient is the batch's input times what the loss weighs its output with.

    And times a factor of one, without which it would be one of data alone, and computed beforehand.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDE, WIDE, dtype=torch.bfloat16))
        self.register_buffer("one", torch.ones(WIDE, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight) * self.one


def weighed(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return (model(batch[0]) * batch[1]).float().sum()


def batch_of(draw: Callable[[Rng, tuple[int, ...]], np.ndarray]) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(3)
    x, d = (torch.tensor(draw(rng, (ROWS, WIDE))).to(torch.bfloat16) for _ in range(2))
    return x, d


def step_of(batch: tuple[Tensor, Tensor], clip: float | None) -> ModuleOp:
    module = training_step(capture(Program(Linear(), weighed, batch)), SGD(lr=1.0, clip_norm=clip))
    inline_composites(module)
    return module


def gradients(module: ModuleOp, batch: tuple[Tensor, Tensor]) -> np.ndarray:
    """What one step of SGD takes from weights of zero."""
    func = signature.main_of(module)
    known = {"batch.0": batch[0], "batch.1": batch[1], "weight": torch.zeros(WIDE, WIDE)}
    known["one"] = torch.ones(WIDE)
    arrays = [
        known[slot.name].float().numpy().astype(types.numpy_dtype(types.element_of(arg)))
        for slot, arg in zip(signature.arguments(func), func.args, strict=True)
    ]
    results = run_module(module, arrays)
    index = next(i for i, s in enumerate(signature.results(func)) if s.role == "parameter")
    assert results[index].dtype == types.numpy_dtype(types.BF16)
    return -results[index].astype(np.float64)


def loop(batch: tuple[Tensor, Tensor], accumulate: torch.dtype, clip: float | None) -> np.ndarray:
    """Micro-batches of every `COUNT`-th row in PyTorch, their gradients added in a type, then one step."""
    model = Linear()
    total = torch.zeros(WIDE, WIDE, dtype=accumulate)
    for i in range(COUNT):
        model.zero_grad()
        weighed(model, (batch[0][i::COUNT], batch[1][i::COUNT])).backward()
        assert model.weight.grad is not None
        total += model.weight.grad.to(accumulate)
    if clip is not None:
        total *= torch.clamp(clip / (torch.linalg.vector_norm(total) + 1e-6), max=1.0)
    model.weight.grad = total.to(torch.bfloat16)
    torch.optim.SGD(model.parameters(), 1.0).step()
    return -model.weight.detach().double().numpy()


def whole_numbers(rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
    """Products of four rows are exact in f32, so that a micro-batch's gradient has but one value in bf16."""
    return rng.integers(0, 8, shape).astype(np.float64)


def reals(rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
    return rng.normal(1.0, 0.3, shape)


def test_sums_are_those_of_a_loop_with_sums_in_float32() -> None:
    batch = batch_of(whole_numbers)
    module = step_of(batch, None)
    same = module.clone()
    microbatch(module, COUNT)
    microbatch(same, COUNT, accumulate_in="same")
    wide, narrow = loop(batch, torch.float32, None), loop(batch, torch.bfloat16, None)
    assert (wide != narrow).mean() > 0.2
    np.testing.assert_array_equal(gradients(module, batch), wide)
    np.testing.assert_array_equal(gradients(same, batch), narrow)


@pytest.mark.parametrize("clip", [None, 100.0])
def test_sums_in_f32_are_nearer_to_the_gradient(clip: float | None) -> None:
    """With a norm to clip by the program widens gradients itself, and so their terms."""
    batch = batch_of(reals)
    exact = batch[0].double().T.numpy() @ batch[1].double().numpy()
    if clip is not None:
        exact *= min(1.0, clip / (np.linalg.norm(exact) + 1e-6))
    module = step_of(batch, clip)
    errors = {}
    for how in ("f32", "same"):
        small = module.clone()
        microbatch(small, COUNT, accumulate_in=how)
        small.verify()
        errors[how] = np.linalg.norm(gradients(small, batch) - exact) / np.linalg.norm(exact)
    if clip is None:
        assert 2 * errors["f32"] < errors["same"]
    else:
        assert errors["f32"] == errors["same"]
    assert errors["f32"] < 2**-8, "not more than rounding terms and sum once costs"
    np.testing.assert_allclose(loop(batch, torch.float32, clip), exact, rtol=2**-6)


def test_what_widens_the_sum_gets_it_unrounded() -> None:
    module = parse_module(
        """builtin.module {
      func.func @main(%x: tensor<4x3xbf16> {rhino.name = "x", rhino.role = "input"},
                      %w: tensor<3xbf16> {rhino.name = "w", rhino.role = "parameter"})
          -> (tensor<3xf32>, tensor<3xbf16>) {
        %b = hlo.broadcast_in_dim %w dims [1] : tensor<3xbf16> -> tensor<4x3xbf16>
        %y = hlo.mul %x, %b : tensor<4x3xbf16>
        %r = hlo.reduce "sum" %y dims [0] : tensor<4x3xbf16> -> tensor<3xbf16>
        %c = hlo.convert %r to f32 : tensor<3xbf16> -> tensor<3xf32>
        %d = hlo.add %c, %c : tensor<3xf32>
        func.return %d, %r : tensor<3xf32>, tensor<3xbf16>
      }
    }"""
    )
    dtype = types.numpy_dtype(types.BF16)
    x = np.array([[256, 1, 0], [1, 256, 3], [1, 1, 0], [1, 1, 0]]).astype(dtype)
    microbatch(module, 4)
    wide, narrow = run_module(module, [x, np.ones(3).astype(dtype)])
    np.testing.assert_array_equal(wide, [518, 518, 6])
    np.testing.assert_array_equal(
        narrow.astype(np.float32), np.array([259, 259, 3]).astype(dtype).astype(np.float32)
    )


@pytest.mark.parametrize("element", ["f32", "f64", "i32"])
def test_other_types_are_added_as_they_are(element: str) -> None:
    text = f"""builtin.module {{
      func.func @main(%w: tensor<3x{element}> {{rhino.name = "w", rhino.role = "parameter"}},
                      %x: tensor<4x3x{element}> {{rhino.name = "x", rhino.role = "input"}}) -> tensor<3x{element}> {{
        %b = hlo.broadcast_in_dim %w dims [1] : tensor<3x{element}> -> tensor<4x3x{element}>
        %y = hlo.mul %x, %b : tensor<4x3x{element}>
        %r = hlo.reduce "sum" %y dims [0] : tensor<4x3x{element}> -> tensor<3x{element}>
        func.return %r : tensor<3x{element}>
      }}
    }}"""
    one, other = parse_module(text), parse_module(text)
    microbatch(one, 2)
    microbatch(other, 2, accumulate_in="same")
    assert "hlo.convert" not in print_module(one)
    other.attributes.clear()
    assert print_module(one) == print_module(other)


def test_a_greatest_value_needs_no_wider_type() -> None:
    module = parse_module(
        """builtin.module {
      func.func @main(%x: tensor<4x3xbf16> {rhino.name = "x", rhino.role = "input"},
                      %w: tensor<3xbf16> {rhino.name = "w", rhino.role = "parameter"}) -> tensor<3xbf16> {
        %b = hlo.broadcast_in_dim %w dims [1] : tensor<3xbf16> -> tensor<4x3xbf16>
        %y = hlo.mul %x, %b : tensor<4x3xbf16>
        %r = hlo.reduce "max" %y dims [0] : tensor<4x3xbf16> -> tensor<3xbf16>
        func.return %r : tensor<3xbf16>
      }
    }"""
    )
    microbatch(module, 2)
    assert "f32" not in print_module(module)


def test_the_option_of_the_pass_is_remembered() -> None:
    batch = batch_of(reals)
    module = step_of(batch, None)
    small = module.clone()
    MicrobatchPass(count=2, accumulate_in="same").apply(Context(), small)
    assert accumulated_in(parse_module(print_module(small))) == "same"
    MicrobatchPass(count=2).apply(Context(), module)
    assert accumulated_in(module) == "f32"
    with pytest.raises(UsageError, match="added up in 'bf16'"):
        microbatch(module, 2, accumulate_in="bf16")
