"""Eigenvalues, singular values, pseudo-inverses: values and gradients, of what no sign of a vector changes."""

from __future__ import annotations

import pytest
import torch
from op_check import Case, case, check, normal


def _eigen(a: torch.Tensor) -> list[torch.Tensor]:
    values, vectors = torch.linalg.eigh(a + a.mT)
    return [values, vectors.abs(), torch.linalg.eigvalsh(a, UPLO="U")]


def _singular(a: torch.Tensor) -> list[torch.Tensor]:
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    return [u.abs(), s, vh.abs(), u[..., :1] @ vh[..., :1, :]]


def _full(a: torch.Tensor) -> list[torch.Tensor]:
    u, _, vh = torch.linalg.svd(a.detach())
    return [u @ u.mT, vh @ vh.mT, u.abs()[..., :2]]


def _symmetric_inverses(a: torch.Tensor) -> list[torch.Tensor]:
    """Of a matrix that is not symmetric too: what torch reads of it, and the gradient that it gives."""
    return [torch.linalg.pinv(a + a.mT, hermitian=True), torch.linalg.pinv(a, hermitian=True)]


def _inverses(a: torch.Tensor) -> list[torch.Tensor]:
    low = a[..., :1] @ a[..., :1].mT  # of rank one
    return [
        torch.linalg.pinv(a),
        torch.linalg.pinv(low.detach()),
        torch.linalg.matrix_rank(low.detach()).double(),
    ]


def _of_low_rank(a: torch.Tensor) -> list[torch.Tensor]:
    """U is orthonormal all the same, and what is subtracted from a matrix of zeros is what torch takes."""
    low = a[:, :1] @ a[:, :1].mT
    u, s, vh = torch.linalg.svd(low.detach(), full_matrices=False)
    return [u.mT @ u, (u * s) @ vh, torch.linalg.norm(a - a.detach(), "nuc")]


CASES = (
    case("low_rank", _of_low_rank, normal(3, 3)),
    case("eigen", _eigen, normal(2, 4, 4)),
    case("one", _eigen, normal(1, 1)),
    case("tall", _singular, normal(2, 4, 3)),
    case("wide", _singular, normal(2, 3)),
    case("full", _full, normal(4, 2), gradient=False),
    case("norms", lambda a: [torch.linalg.norm(a, "nuc"), torch.linalg.cond(a)], normal(3, 4)),
    case("inverses", _inverses, normal(3, 2)),
    case("symmetric_inverses", _symmetric_inverses, normal(2, 3, 3)),
)


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
def test_equals_torch(c: Case) -> None:
    check(CASES, c, torch.float64)
