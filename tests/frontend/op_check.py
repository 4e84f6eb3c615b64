"""Captures many small torch functions as one program and compares each with torch, values and gradients.

One capture per family keeps the suite quick. Every case owns a parameter per floating-point argument and a buffer
per result: the buffers carry all results out elementwise, and the loss is a weighted sum, so that the gradient of
each parameter tests its own case alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import nn

from rhino.dialects import signature
from rhino.frontend.capture import capture
from rhino.frontend.program import Program
from rhino.ir.errors import RhinoError
from rhino.ir.evaluate import run_module
from rhino.passes.autodiff import differentiate

Maker = Callable[[torch.Generator, torch.dtype], torch.Tensor]


def normal(*shape: int) -> Maker:
    return lambda g, dtype: torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)


def positive(*shape: int) -> Maker:
    return lambda g, dtype: (torch.rand(shape, generator=g, dtype=torch.float64) + 0.5).to(dtype)


def unit(*shape: int) -> Maker:
    """In (-0.9, 0.9)."""
    return lambda g, dtype: (torch.rand(shape, generator=g, dtype=torch.float64) * 1.8 - 0.9).to(dtype)


def integers(low: int, high: int, *shape: int) -> Maker:
    return lambda g, dtype: torch.randint(low, high, shape, generator=g)


def booleans(*shape: int) -> Maker:
    return lambda g, dtype: torch.rand(shape, generator=g) < 0.6


def values(*numbers: float, dtype: torch.dtype | None = None) -> Maker:
    return lambda g, d: torch.tensor(numbers, dtype=dtype or d)


@dataclass(frozen=True)
class Case:
    """A function of tensors; `gradient` tells whether torch's gradient is compared as well."""

    name: str
    function: Callable[..., torch.Tensor | Sequence[torch.Tensor]]
    inputs: tuple[Maker, ...]
    gradient: bool = True

    def arguments(self, dtype: torch.dtype) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(zlib.crc32(self.name.encode()))
        return [make(generator, dtype) for make in self.inputs]

    def results(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        out = self.function(*arguments)
        return [out] if isinstance(out, torch.Tensor) else list(out)


def case(name: str, function: Callable[..., object], *inputs: Maker, gradient: bool = True) -> Case:
    return Case(name, function, inputs, gradient)  # type: ignore[arg-type]


class _Family(nn.Module):
    def __init__(self, cases: Sequence[Case], dtype: torch.dtype) -> None:
        super().__init__()
        self.cases = cases
        self.batch: dict[str, torch.Tensor] = {}
        for c in cases:
            arguments = c.arguments(dtype)
            for i, argument in enumerate(arguments):
                if argument.is_floating_point():
                    self.register_parameter(f"{c.name}_in{i}", nn.Parameter(argument))
                else:
                    self.batch[f"{c.name}_in{i}"] = argument
            for k, result in enumerate(c.results(arguments)):
                self.register_buffer(f"{c.name}_out{k}", torch.zeros_like(result))
                if result.is_floating_point():
                    w = torch.linspace(0.3, 1.7, max(result.numel(), 1), dtype=torch.float64)
                    self.batch[f"{c.name}_w{k}"] = w[: result.numel()].reshape(result.shape).to(result.dtype)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for c in self.cases:
            names = [f"{c.name}_in{i}" for i in range(len(c.inputs))]
            arguments = [batch[n] if n in batch else getattr(self, n) for n in names]
            for k, result in enumerate(c.results(arguments)):
                getattr(self, f"{c.name}_out{k}").copy_(result.detach())
                if result.is_floating_point() and c.gradient:
                    total = total + (result * batch[f"{c.name}_w{k}"]).sum().double()
        return total


@dataclass(frozen=True)
class Compared:
    """Arrays by name, from the captured program and from torch."""

    found: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]


@cache
def run_family(cases: tuple[Case, ...], dtype: torch.dtype) -> Compared | RhinoError:
    """`compare_family`, or the error that it raised; once per family."""
    try:
        return compare_family(cases, dtype)
    except RhinoError as error:
        return error


def compare_family(cases: tuple[Case, ...], dtype: torch.dtype) -> Compared:
    """Capture all cases as one program, evaluate it and its gradients, and run torch."""
    model = _Family(cases, dtype)
    module = capture(Program(model, lambda m, batch: m(batch), model.batch))
    loss = model(model.batch)
    if loss.requires_grad:
        differentiate(module)
    func = signature.main_of(module)
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers()), **model.batch}
    arguments = [as_numpy(tensors[s.name]) for s in signature.arguments(func)]
    outputs = run_module(module, arguments)
    slots = signature.results(func)
    found = {s.name: o for s, o in zip(slots, outputs, strict=True)}
    expected = {"loss": as_numpy(loss)}
    expected |= {n: as_numpy(b) for n, b in model.named_buffers()}
    if loss.requires_grad:
        names, parameters = zip(*model.named_parameters(), strict=True)
        for name, gradient in zip(
            names, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True
        ):
            if gradient is not None:
                expected[f"{name}.grad"] = as_numpy(gradient)
    return Compared(found, expected)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy().copy()


TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}


def check(cases: tuple[Case, ...], c: Case, dtype: torch.dtype) -> None:
    """Assert that the results and gradients of one case equal torch's."""
    both = run_family(cases, dtype)
    if isinstance(both, RhinoError):
        raise both
    names = [n for n in both.expected if n.startswith((f"{c.name}_out", f"{c.name}_in"))]
    assert any("_out" in n for n in names)
    for name in names:
        found, expected = both.found[name], both.expected[name]
        assert found.shape == expected.shape and found.dtype == expected.dtype, name
        if expected.dtype.kind == "f":
            scale = float(np.max(np.abs(expected[np.isfinite(expected)]), initial=1.0))
            np.testing.assert_allclose(
                found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale, err_msg=name
            )
        else:
            np.testing.assert_array_equal(found, expected, err_msg=name)
