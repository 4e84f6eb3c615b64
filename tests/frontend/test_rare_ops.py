"""Ops that few programs have: histograms of points, hashes, filled positions, Airy's function, cross entropy in chunks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from op_check import Case, case, check, integers, normal, positive, run_family
from scipy import special
from torch import nn

from rhino.ir.errors import RhinoError


def _histograms(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
    counts, edges = torch.histogramdd(x, [2, 3])
    dense, _ = torch.histogramdd(x, [2, 2], range=[-1.0, 1.0, -0.5, 2.0], weight=weight, density=True)
    given, _ = torch.histogramdd(x, [torch.tensor([-1.0, 0.0, 0.5]).double(), edges[1]])
    astray, _ = torch.histogramdd(x, [torch.tensor([-1.5, 0.5, -0.7, 0.3, 1.5]).double(), edges[1]])
    return [counts, *edges, dense, given, astray]


def _hashes(x: torch.Tensor, k: torch.Tensor) -> list[torch.Tensor]:
    return [torch.hash_tensor(x).view(torch.int64), torch.hash_tensor(k, dim=0).view(torch.int64)]


def _chunks(x: torch.Tensor, matrix: torch.Tensor, bias: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    parts = [
        F.linear_cross_entropy(
            x, matrix, goal, linear_bias=bias, reduction=r, ignore_index=1, options=options
        )
        for r in ("mean", "sum", "none")
    ]
    return torch.cat([p.reshape(-1) for p in parts])


CASES = (
    case("histograms", _histograms, normal(9, 2), positive(9), gradient=False),
    case("hashes", _hashes, normal(3, 2), integers(-5, 9, 4, 2), gradient=False),
    case("take", torch.take, normal(3, 4), integers(-12, 12, 2, 3)),
    case(
        "fill",
        lambda x, v, k: torch.index_fill(x, 1, k, v.sum()),
        normal(3, 4),
        normal(1),
        integers(0, 4, 7),
    ),
    case("chunks", _chunks, normal(6, 3), normal(4, 3), normal(4), integers(0, 4, 6)),
    case("airy", lambda x: torch.special.airy_ai(5 * x), positive(20), gradient=False),
)


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
def test_equals_torch(c: Case) -> None:
    check(CASES, c, torch.float64)


def test_airy_is_exact_where_torch_is_not() -> None:
    """Between -5 and -2 torch's function is off by 3e-6."""
    whole = (case("airy", lambda x: torch.special.airy_ai(30 * x), normal(60), gradient=False),)
    both = run_family(whole, torch.float64)
    assert not isinstance(both, RhinoError)
    x = 30 * whole[0].arguments(torch.float64)[0].numpy()
    assert abs(both.found["airy_out0"] - special.airy(x)[0]).max() < 1e-13
