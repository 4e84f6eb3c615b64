"""Reductions, index of an extremum and running reductions against numpy and torch."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
import torch
from hloprog import check_against_torch, normal, run1, vjp, whole

from rhino.ir.errors import ProgramError

NUMPY = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}
TIES = np.array([[1.0, 3, 3, -2], [3, 0, 0, 0], [-1, -1, 3, 2]])
ZEROS = np.array([[0.0, 2, 3, 4], [0, 2, 0, 5], [1, 2, 3, 4], [0, 0, 0, 2]])


@pytest.mark.parametrize("kind", NUMPY)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.int32, np.int8])
def test_reduce_values(kind, dtype):
    x = whole(2, 3, 4, low=-2, high=3, dtype=dtype)
    for dims in [(0,), (1,), (2,), (0, 2), (2, 1), (0, 1, 2)]:
        got = run1(lambda b, x, d=dims: b.reduce(x, d, kind), x)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, NUMPY[kind](x, axis=dims).astype(dtype))


@pytest.mark.parametrize("kind", ["and", "or"])
def test_reduce_logical(kind):
    for x in (whole(3, 4, low=0, high=2, dtype=np.bool_), whole(3, 4, low=-9, high=9, dtype=np.int32)):
        want = np.bitwise_and.reduce(x, 1) if kind == "and" else np.bitwise_or.reduce(x, 1)
        np.testing.assert_array_equal(run1(lambda b, x: b.reduce(x, (-1,), kind), x), want)


def test_reduce_of_i1_and_of_nothing():
    x = np.zeros((2, 0))
    for kind, neutral in [("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf)]:
        np.testing.assert_array_equal(run1(lambda b, x, k=kind: b.reduce(x, (1,), k), x), [neutral] * 2)
    y = np.array([[True, False], [True, True]])
    np.testing.assert_array_equal(run1(lambda b, y: b.reduce(y, (1,), "max"), y), [True, True])
    np.testing.assert_array_equal(run1(lambda b, y: b.reduce(y, (1,), "min"), y), [False, True])


def test_narrow_floats_accumulate_wide():
    x = np.full(4096, 1 / 256, ml_dtypes.bfloat16)
    assert run1(lambda b, x: b.reduce(x, (0,), "sum"), x) == 16
    assert run1(lambda b, x: b.reduce(x, (0,), "sum"), x.astype(np.float16)) == 16


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_round_every_step(dtype, reverse):
    x = np.random.default_rng(1).normal(size=(3, 40)).astype(dtype)
    want = np.zeros_like(x)
    for i in range(40):
        total = np.zeros(3, dtype)
        for j in range(i, 40) if reverse else range(i + 1):
            total = (total.astype(np.float64) + x[:, j].astype(np.float64)).astype(dtype)
        want[:, i] = total
    got = run1(lambda b, x: b.cumulative(x, 1, "sum", reverse), x)
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def test_nan_wins():
    x = np.array([1.0, np.nan, 3.0])
    for kind in ("max", "min", "sum"):
        assert np.isnan(run1(lambda b, x, k=kind: b.reduce(x, (0,), k), x))
    assert run1(lambda b, x: b.argmax(x, 0), x) == torch.argmax(torch.tensor(x)).item() == 1


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_reduce_gradients(dims):
    def prod(x):
        for d in sorted(dims, reverse=True):
            x = x.prod(d)
        return x

    for x in (TIES, ZEROS, normal(3, 4)):
        check_against_torch(lambda b, x: b.reduce(x, dims, "sum"), lambda x: x.sum(dims), [x])
        check_against_torch(lambda b, x: b.reduce(x, dims, "max"), lambda x: x.amax(dims), [x])
        check_against_torch(lambda b, x: b.reduce(x, dims, "min"), lambda x: x.amin(dims), [x])
        check_against_torch(lambda b, x: b.reduce(x, dims, "prod"), prod, [x])


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.bool_, ml_dtypes.bfloat16])
def test_arg_extremum(dtype):
    x = whole(3, 5, 4, low=0, high=3).astype(dtype)
    for dim in (0, 1, -1):
        for name, want in (("argmax", np.argmax), ("argmin", np.argmin)):
            got = run1(lambda b, x, n=name, d=dim: getattr(b, n)(x, d), x)
            assert got.dtype == np.int64
            np.testing.assert_array_equal(got, want(x.astype(np.float64), axis=dim))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
def test_cumulative(kind, reverse):
    accumulate = {
        "sum": np.cumsum,
        "prod": np.cumprod,
        "max": np.maximum.accumulate,
        "min": np.minimum.accumulate,
    }
    reference = {
        "sum": torch.cumsum,
        "prod": torch.cumprod,
        "max": lambda x, d: torch.cummax(x, d).values,
        "min": lambda x, d: torch.cummin(x, d).values,
    }[kind]
    x = whole(3, 5, dtype=np.int32)
    for dim in (0, 1):
        flip = (lambda v, d=dim: np.flip(v, d)) if reverse else (lambda v: v)
        got = run1(lambda b, x, d=dim: b.cumulative(x, d, kind, reverse), x)
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got, flip(accumulate[kind](flip(x), axis=dim)).astype(np.int32))

        def want(x, d=dim):
            return reference(x.flip(d), d).flip(d) if reverse else reference(x, d)

        for data in (TIES, ZEROS, ZEROS[:, ::-1].copy(), normal(3, 4)):
            check_against_torch(lambda b, x, d=dim: b.cumulative(x, d, kind, reverse), want, [data])


def test_product_gradients_by_definition():
    """All patterns of zeros on four elements; the product's partial derivatives by leaving elements out."""
    for pattern in itertools.product((0.0, 1.0), repeat=4):
        x = np.array([2.0, -3, 5, 7]) * pattern
        dy = np.array([1.0, -2, 3, 5])
        (got,) = vjp(lambda b, x: b.cumulative(x, 0, "prod"), [x], [dy])
        want = [sum(dy[j] * np.prod(np.delete(x[: j + 1], i)) for j in range(i, 4)) for i in range(4)]
        np.testing.assert_array_equal(got, want)
        (got,) = vjp(lambda b, x: b.reduce(x, (0,), "prod"), [x], [np.array(3.0)])
        np.testing.assert_array_equal(got, [3 * np.prod(np.delete(x, i)) for i in range(4)])


@pytest.mark.parametrize(
    ("program", "x", "words"),
    [
        (
            lambda b, x: b.reduce(x, (2,), "sum"),
            normal(2, 3),
            ["hlo.reduce", "dimension 2", "operand 0", "f64[2, 3]"],
        ),
        (lambda b, x: b.reduce(x, (0, 0), "sum"), normal(2, 3), ["twice", "f64[2, 3]"]),
        (lambda b, x: b.reduce(x, (0,), "mean"), normal(2, 3), ["'mean'", "sum"]),
        (lambda b, x: b.reduce(x, (0,), "or"), normal(2, 3), ["'or'", "f64[2, 3]"]),
        (lambda b, x: b.reduce(x, (0,), "sum"), normal(2, 3) > 0, ["'sum'", "i1[2, 3]"]),
        (lambda b, x: b.argmax(x, 1), normal(2, 0), ["hlo.argmax", "f64[2, 0]"]),
        (lambda b, x: b.cumulative(x, 5, "sum"), normal(2, 3), ["hlo.cumulative", "dimension 5"]),
    ],
)
def test_errors(program, x, words):
    with pytest.raises(ProgramError) as error:
        run1(program, x)
    for word in words:
        assert word in str(error.value)
