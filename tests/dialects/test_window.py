"""Pooling windows against torch and against their definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hloprog import check_against_torch, normal, run1, vjp, whole

from rhino.ir.errors import ProgramError, UnsupportedError

NUMPY = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}
START = {"sum": 0.0, "max": -np.inf, "min": np.inf, "prod": 1.0}


def positions(n, window, stride, low, high, base, dilation):
    """For every window position of one dimension the operand's indices it holds, in order."""
    total = (n - 1) * base + 1 + low + high
    count = max(0, (total - ((window - 1) * dilation + 1)) // stride + 1)
    out = []
    for i in range(count):
        at = [i * stride + k * dilation - low for k in range(window)]
        out.append([p // base for p in at if p % base == 0 and 0 <= p // base < n])
    return out


def by_definition(x, kind, *parameters):
    per = [positions(n, *p) for n, *p in zip(x.shape, *parameters, strict=True)]
    y = np.empty([len(p) for p in per])
    for at in np.ndindex(*y.shape):
        block = x[np.ix_(*(np.array(p[i], int) for p, i in zip(per, at, strict=True)))]
        y[at] = NUMPY[kind](block, initial=START[kind])
    return y


GRID = list(itertools.product((1, 2, 3), (1, 2, 3), (-1, 0, 2), (-1, 0, 1), (1, 2), (1, 2)))


@pytest.mark.parametrize("kind", NUMPY)
def test_one_dimension_by_definition(kind):
    x = whole(5, low=-3, high=4)
    for window, stride, low, high, base, dilation in GRID:
        parameters = ((window,), (stride,), [(low, high)], (base,), (dilation,))
        got = run1(
            lambda b, x, p=parameters: b.reduce_window(x, kind, *p),
            x,
        )
        want = by_definition(x, kind, (window,), (stride,), (low,), (high,), (base,), (dilation,))
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", NUMPY)
def test_gradients_by_definition(kind):
    """Sum: linear. Max, min: to the first extremum. Product: leave one out."""
    x = np.array([3.0, -1, 3, 0, 2, 0])
    for window, stride, low, high, base, dilation in GRID[:: 11 if kind == "prod" else 3]:
        parameters = ((window,), (stride,), [(low, high)], (base,), (dilation,))
        where = positions(6, window, stride, low, high, base, dilation)
        dy = whole(len(where), seed=3)
        want = np.zeros(6)
        for i, held in enumerate(where):
            if kind == "sum":
                np.add.at(want, held, dy[i])
            elif kind == "prod":
                for j in held:
                    want[j] += dy[i] * np.prod([x[k] for k in held if k != j])
            elif held:
                best = (np.argmax if kind == "max" else np.argmin)(x[held])
                want[held[best]] += dy[i]
        (got,) = vjp(
            lambda b, x, p=parameters: b.reduce_window(x, kind, *p),
            [x],
            [dy],
        )
        np.testing.assert_array_equal(got, want, err_msg=f"{window} {stride} {low} {high} {base} {dilation}")


@pytest.mark.parametrize(
    ("size", "stride", "padding", "dilation"), [(2, 2, 0, 1), (3, 2, 1, 1), (2, 1, 1, 2), (3, 3, 0, 1)]
)
def test_max_pool(size, stride, padding, dilation):
    check_against_torch(
        lambda b, x: b.reduce_window(
            x, "max", (1, 1, size, size), (1, 1, stride, stride),
            [(0, 0), (0, 0), (padding, padding), (padding, padding)], None, (1, 1, dilation, dilation),
        ),
        lambda x: torch.nn.functional.max_pool2d(x, size, stride, padding, dilation),
        [normal(2, 3, 7, 6)],
    )  # fmt: skip


@pytest.mark.parametrize(("size", "stride", "padding"), [(2, 2, 0), (3, 2, 1)])
def test_avg_pool(size, stride, padding):
    def pool(b, x):
        total = b.reduce_window(
            x,
            "sum",
            (1, 1, size, size),
            (1, 1, stride, stride),
            [(0, 0), (0, 0), (padding, padding), (padding, padding)],
        )
        return b.div(total, b.full_like(total, size * size))

    check_against_torch(
        pool, lambda x: torch.nn.functional.avg_pool2d(x, size, stride, padding), [normal(2, 3, 7, 6)]
    )


def test_select_and_scatter():
    x, source = np.array([[1.0, 5, 5, 2], [0, 0, -1, 7]]), np.array([[10.0, 20], [30, 40]])
    got = run1(lambda b, x, s: b.select_and_scatter(x, s, (1, 2), (1, 2)), x, source)
    np.testing.assert_array_equal(got, [[0, 10, 20, 0], [30, 0, 0, 40]])
    # Padding is never selected, even where everything is -inf; NaN is the maximum.
    low = np.full((3,), -np.inf)
    got = run1(lambda b, x, s: b.select_and_scatter(x, s, (2,), (1,), [(1, 1)]), low, np.arange(1.0, 5))
    np.testing.assert_array_equal(got, [3, 3, 4])
    nan = np.array([1.0, np.nan, 2])
    got = run1(lambda b, x, s: b.select_and_scatter(x, s, (3,)), nan, np.array([8.0]))
    np.testing.assert_array_equal(got, [0, 8, 0])


def test_integers_and_i1():
    x = whole(6, dtype=np.int32)
    got = run1(lambda b, x: b.reduce_window(x, "max", (2,), (2,), [(1, 1)]), x)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(
        got, by_definition(x.astype(np.float64), "max", (2,), (2,), (1,), (1,), (1,), (1,))
    )
    flags = np.array([True, False, False, False])
    np.testing.assert_array_equal(
        run1(lambda b, x: b.reduce_window(x, "or", (2,)), flags), [True, False, False]
    )
    np.testing.assert_array_equal(
        run1(lambda b, x: b.reduce_window(x, "and", (2,), None, [(1, 0)]), flags), [True, False, False, False]
    )


def test_errors():
    x = normal(2, 3)
    for program, words in [
        (lambda b, x: b.reduce_window(x, "max", (2,)), ["hlo.reduce_window", "window [2]", "f64[2, 3]"]),
        (lambda b, x: b.reduce_window(x, "max", (1, 0)), ["size 0", "dimension 1", "f64[2, 3]"]),
        (lambda b, x: b.reduce_window(x, "mean", (1, 1)), ["'mean'"]),
        (
            lambda b, x: b.select_and_scatter(x, x, (1, 2)),
            ["hlo.select_and_scatter", "operand 1", "f64[2, 3]", "[2, 2]"],
        ),
    ]:
        with pytest.raises(ProgramError) as error:
            run1(program, x)
        for word in words:
            assert word in str(error.value)
    with pytest.raises(UnsupportedError, match="once only"):
        vjp(lambda b, x, s: b.select_and_scatter(x, s, (1, 3)), [x, normal(2, 1)], [x])
