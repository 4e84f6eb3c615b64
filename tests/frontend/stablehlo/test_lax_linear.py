"""Custom calls of JAX that become Rhino's own ops: LAPACK's on CPUs, and the approximate top-k."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

from jax import lax
from jaxcheck import Case, compare


def matrices(dtype: str, *batch: int) -> np.ndarray:
    random = np.random.default_rng(0)
    a: Any = random.normal(size=(*batch, 4, 4))
    if np.dtype(dtype).kind == "c":
        a = a + 1j * random.normal(size=a.shape)
    return (a @ np.conj(np.swapaxes(a, -1, -2)) + 4 * np.eye(4)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("batch", [(), (3,), (0,)])
def test_cholesky(dtype: str, batch: tuple[int, ...]) -> None:
    case = Case("cholesky", lax.linalg.cholesky, (matrices(dtype, *batch),))
    assert compare(case).status == "passed", compare(case)


def test_cholesky_says_which_matrix_has_none() -> None:
    a = matrices("float64", 3)
    a[1] = -a[1]
    assert compare(Case("cholesky", lax.linalg.cholesky, (a,))).status == "passed"


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("flags", [(True, False, False), (False, True, False), (True, True, True)])
def test_triangular_solve(dtype: str, left: bool, flags: tuple[bool, bool, bool]) -> None:
    lower, transposed, unit = flags
    right_side = matrices(dtype, 2)[..., :3] if left else matrices(dtype, 2)[:, :3, :]

    def solve(a: Any, b: Any) -> Any:
        return lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=transposed, conjugate_a=unit, unit_diagonal=unit
        )

    case = Case("triangular_solve", solve, (matrices(dtype, 2), right_side), slack=10)
    assert compare(case).status == "passed", compare(case)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_approximate_top_k(dtype: str) -> None:
    x = np.random.default_rng(0).permutation(60).reshape(3, 20).astype(dtype)
    for function in (lax.approx_max_k, lax.approx_min_k):
        case = Case("approx", lambda x, f=function: f(x, 4), (x,))
        assert compare(case).status == "passed", compare(case)


def test_other_factorizations_are_refused_with_their_names() -> None:
    outcome = compare(Case("qr", lax.linalg.qr, (matrices("float32"),)))
    assert outcome.status == "unsupported" and "geqrf" in outcome.message
