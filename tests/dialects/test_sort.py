"""Sort and top_k against torch and numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from hloprog import check_against_torch, normal, run, run1, vjp, whole

from rhino.ir.errors import ProgramError


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.bool_, ml_dtypes.bfloat16])
def test_sort_is_stable(dtype, descending):
    x = whole(4, 7, 3, low=0, high=3).astype(dtype)
    tag = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    for dim in (0, 1, -1):
        keys, tags = run(lambda b, x, t, d=dim: b.sort([x, t], d, descending), x, tag)
        assert keys.dtype == dtype
        want = torch.sort(torch.tensor(x.astype(np.float64)), dim=dim, descending=descending, stable=True)
        np.testing.assert_array_equal(keys.astype(np.float64), want.values.numpy())
        np.testing.assert_array_equal(tags, np.take_along_axis(tag, want.indices.numpy(), dim))


@pytest.mark.parametrize("descending", [False, True])
def test_nan_is_largest(descending):
    x = np.array([np.nan, 1.0, np.inf, np.nan, -np.inf, 1.0])
    got = run1(lambda b, x: b.sort([x], 0, descending), x)
    np.testing.assert_array_equal(got, torch.sort(torch.tensor(x), descending=descending).values.numpy())
    values, indices = run(lambda b, x: b.top_k(x, 3), x)
    np.testing.assert_array_equal(values, [np.nan, np.nan, np.inf])
    np.testing.assert_array_equal(indices, [0, 3, 2])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_sort_gradient(dim, descending):
    for x in (normal(4, 5), whole(4, 5, low=0, high=2)):
        check_against_torch(
            lambda b, x: b.sort([x], dim, descending)[0],
            lambda x: torch.sort(x, dim=dim, descending=descending, stable=True).values,
            [x],
        )


def test_gradient_of_the_operands_that_follow():
    x, y = normal(3, 6), normal(3, 6, seed=1)

    def reference(x, y):
        return torch.gather(y, 1, torch.sort(x, dim=1, stable=True).indices)

    check_against_torch(lambda b, x, y: b.sort([x, y], 1)[1], reference, [x, y], grad=[1])
    dx, dy = vjp(lambda b, x, y: b.sort([x, y], 1), [x, y], [None, whole(3, 6)])
    assert dx is None and dy is not None


@pytest.mark.parametrize("k", [0, 1, 3, 6])
def test_top_k(k):
    x = normal(2, 3, 6)
    values, indices = run(lambda b, x: b.top_k(x, k), x)
    want = torch.topk(torch.tensor(x), k)
    np.testing.assert_array_equal(values, want.values.numpy())
    np.testing.assert_array_equal(indices, want.indices.numpy())
    check_against_torch(lambda b, x: b.top_k(x, k)[0], lambda x: torch.topk(x, k).values, [x])
    ties = np.array([1, 3, 3, 2, 3])
    np.testing.assert_array_equal(run(lambda b, x: b.top_k(x, 4), ties)[1], [1, 2, 4, 3])


def test_errors():
    for program, words in [
        (lambda b, x, y: b.sort([x, y], 0), ["hlo.sort", "operand 1 is f64[3, 2]", "operand 0 is f64[2, 3]"]),
        (lambda b, x, y: b.sort([x], 2), ["hlo.sort", "dimension 2", "f64[2, 3]"]),
        (lambda b, x, y: b.top_k(x, 4)[0], ["hlo.top_k", "k is 4", "f64[2, 3]"]),
    ]:
        with pytest.raises(ProgramError) as error:
            run(program, normal(2, 3), normal(3, 2))
        for word in words:
            assert word in str(error.value)
