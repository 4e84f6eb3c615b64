"""Models that compute parts in float32 agree with PyTorch in float64 once everything is widened."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rhino.check.wide import capture_wide, wide
from rhino.cli.check import Report, compare_pytorch
from rhino.cli.source import Source
from rhino.frontend.program import Program
from rhino.ir import types
from rhino.ir.optimizers import SGD


class Narrow(nn.Module):
    """A norm in float32 whose epsilon matters, a float32 constant, a rotation in complex64, a probability in bf16."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 8, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x * self.weight).float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
        y = y / torch.sqrt(torch.tensor(3, dtype=torch.float32))
        turn = torch.polar(torch.ones(4), torch.arange(4, dtype=torch.float32) * 0.3)
        z = torch.view_as_real(torch.view_as_complex(y.reshape(-1, 4, 2)) * turn).flatten(1)
        return z.softmax(-1, dtype=torch.bfloat16).to(x.dtype) @ self.weight


def program() -> Program:
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1e-3
    return Program(Narrow(), lambda model, x: model(x).square().sum(), x, SGD(lr=0.1))


def test_narrow_parts_agree_with_pytorch() -> None:
    report = Report("float64", 1, "")
    compare_pytorch(Source("narrow", program=program()), report)
    assert report.compared == {"pytorch": 3} and report.max_rel_error < 1e-13


def test_nothing_narrow_is_left() -> None:
    elements = {
        types.element_name(types.element_of(value))
        for op in capture_wide(program()).walk()
        if op.name.startswith("hlo.")
        for value in op.results
    }
    assert "f64" in elements and not elements & {"f32", "bf16", "f16", "c64"}


@pytest.mark.parametrize(
    ("x", "y"),
    [((8, 16), (3, 16, 24)), ((3, 16, 24), (24, 8)), ((16, 8), (8, 24))],
    ids=["rows", "columns", "contracted"],
)
def test_grouped_products_in_float64(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    """torch's own kernel takes no float64; in float32 it, and its gradients, agree to rounding. One group is empty."""
    g = torch.Generator().manual_seed(0)
    offsets = torch.tensor([3, 3, 8], dtype=torch.int32)
    narrow = [torch.randn(shape, generator=g).requires_grad_() for shape in (x, y)]
    want = nn.functional.grouped_mm(narrow[0], narrow[1], offs=offsets)
    want.square().sum().backward()
    broad = [a.detach().double().requires_grad_() for a in narrow]
    with wide():
        got = nn.functional.grouped_mm(broad[0], broad[1], offs=offsets)
        got.square().sum().backward()
    assert got.dtype == torch.float64
    torch.testing.assert_close(got.float(), want, rtol=1e-5, atol=1e-5)
    for a, b in zip(broad, narrow, strict=True):
        assert a.grad is not None and b.grad is not None
        torch.testing.assert_close(a.grad.float(), b.grad, rtol=1e-5, atol=1e-4)
