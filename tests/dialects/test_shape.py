"""Shape ops against numpy and torch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hloprog import check_against_torch, normal, run1, vjp, whole

from rhino.ir.errors import ProgramError

DTYPES = [np.float32, np.float16, np.int64, np.int8, np.bool_]


@pytest.mark.parametrize(
    ("src", "dst", "dims"),
    [
        ((3,), (2, 3), (1,)),
        ((3, 1), (3, 4), (0, 1)),
        ((2, 3), (3, 5, 2), (2, 0)),  # order of dims is free
        ((1, 3), (4, 2, 3), (1, 2)),
        ((), (2, 2), ()),
        ((1, 1), (1, 1, 1), (0, 2)),
    ],
)
def test_broadcast_in_dim(src, dst, dims):
    def reference(x):
        order = sorted(range(len(dims)), key=dims.__getitem__)
        x = x.permute(order)
        return x.reshape(
            [x.shape[sorted(dims).index(d)] if d in dims else 1 for d in range(len(dst))]
        ).expand(dst)

    check_against_torch(lambda b, x: b.broadcast_in_dim(x, dst, dims), reference, [normal(*src)])


def test_broadcast_to_matches_numpy():
    x = whole(3, 1)
    np.testing.assert_array_equal(
        run1(lambda b, x: b.broadcast_to(x, (2, 3, 4)), x), np.broadcast_to(x, (2, 3, 4))
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_reshape_and_transpose(dtype):
    x = whole(2, 3, 4, dtype=dtype)
    np.testing.assert_array_equal(run1(lambda b, x: b.reshape(x, (4, 6)), x), x.reshape(4, 6))
    for perm in itertools.permutations(range(3)):
        np.testing.assert_array_equal(run1(lambda b, x, p=perm: b.transpose(x, p), x), x.transpose(perm))


def test_reshape_and_transpose_gradients():
    check_against_torch(lambda b, x: b.reshape(x, (4, 6)), lambda x: x.reshape(4, 6), [normal(2, 3, 4)])
    for perm in itertools.permutations(range(3)):
        check_against_torch(
            lambda b, x, p=perm: b.transpose(x, p), lambda x, p=perm: x.permute(p), [normal(2, 3, 4)]
        )


@pytest.mark.parametrize(
    ("start", "limit", "strides"),
    [((0, 0), (5, 6), (1, 1)), ((1, 2), (4, 6), (1, 1)), ((0, 1), (5, 6), (2, 3)), ((2, 2), (2, 5), (1, 1))],
)
def test_slice(start, limit, strides):
    (a, c), (b_, d), (s, t) = start, limit, strides
    check_against_torch(
        lambda b, x: b.slice(x, start, limit, strides), lambda x: x[a:b_:s, c:d:t], [normal(5, 6)]
    )


def pad_reference(x: np.ndarray, value, low, high, interior) -> np.ndarray:
    """StableHLO's definition, element by element."""
    shape = [
        max(0, lo + n + max(0, n - 1) * g + hi)
        for n, lo, hi, g in zip(x.shape, low, high, interior, strict=True)
    ]
    out = np.full(shape, value, x.dtype)
    for index in np.ndindex(*x.shape):
        at = tuple(lo + i * (g + 1) for i, lo, g in zip(index, low, interior, strict=True))
        if all(0 <= i < n for i, n in zip(at, shape, strict=True)):
            out[at] = x[index]
    return out


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad_exhaustive_in_one_dimension(dtype):
    cases = list(itertools.product((0, 1, 2, 4), range(-3, 3), range(-3, 3), range(3)))
    for n, lo, hi, gap in cases[:: 1 if dtype == np.float32 else 7]:
        x = whole(n, low=1, dtype=dtype)
        got = run1(lambda b, x, p=((lo,), (hi,), (gap,)): b.pad(x, 1, *p), x)
        np.testing.assert_array_equal(
            got, pad_reference(x, 1, (lo,), (hi,), (gap,)), err_msg=f"{n} {lo} {hi} {gap}"
        )


@pytest.mark.parametrize("value", [0.0, -2.5, float("inf"), float("-inf"), float("nan")])
def test_pad_value(value):
    x = normal(2, 3)
    got = run1(lambda b, x: b.pad(x, value, (1, -1), (0, 2), (1, 0)), x)
    np.testing.assert_array_equal(got, pad_reference(x, value, (1, -1), (0, 2), (1, 0)))


def test_pad_gradient_is_its_transpose():
    # The map is linear (value 0): <pad(x), c> == <x, pad^T(c)> for all x, so columns of the matrix suffice.
    for n, lo, hi, gap in itertools.product((1, 3), (-2, 0, 1), (-1, 0, 2), (0, 1)):
        width = len(pad_reference(np.zeros(n), 0, (lo,), (hi,), (gap,)))
        matrix = np.stack([pad_reference(row, 0, (lo,), (hi,), (gap,)) for row in np.eye(n)])
        c = whole(width)
        (got,) = vjp(lambda b, x, p=((lo,), (hi,), (gap,)): b.pad(x, 0, *p), [normal(n)], [c])
        np.testing.assert_array_equal(got if got is not None else np.zeros(n), matrix @ c)


def test_concatenate():
    xs = [normal(2, 1, 3), normal(2, 4, 3, seed=1), normal(2, 2, 3, seed=2)]
    check_against_torch(lambda b, *xs: b.concatenate(xs, -2), lambda *xs: torch.cat(xs, 1), xs)


def test_reverse():
    check_against_torch(
        lambda b, x: b.reverse(x, (0, -1)), lambda x: torch.flip(x, (0, 2)), [normal(2, 3, 4)]
    )


@pytest.mark.parametrize("starts", [(0, 0), (1, 2), (-3, 9), (2, 1)])
def test_dynamic_slice_clamps(starts):
    i, j = (np.array(s) for s in starts)
    a, c = min(max(starts[0], 0), 2), min(max(starts[1], 0), 2)
    check_against_torch(
        lambda b, x, i, j: b.dynamic_slice(x, (i, j), (2, 3)),
        lambda x, i, j: x[a : a + 2, c : c + 3],
        [normal(4, 5), i, j],
    )

    def update(x, u, i, j):
        out = x.clone()
        out[a : a + 2, c : c + 3] = u
        return out

    check_against_torch(
        lambda b, x, u, i, j: b.dynamic_update_slice(x, u, (i, j)),
        update,
        [normal(4, 5), normal(2, 3, seed=1), i, j],
    )


@pytest.mark.parametrize(
    ("program", "shapes", "words"),
    [
        (lambda b, x: b.reshape(x, (4, 2)), [(2, 3)], ["hlo.reshape", "operand 0", "f64[2, 3]", "f64[4, 2]"]),
        (
            lambda b, x: b.broadcast_in_dim(x, (2, 4), (1,)),
            [(3,)],
            ["hlo.broadcast_in_dim", "f64[3]", "f64[2, 4]"],
        ),
        (lambda b, x: b.broadcast_to(x, (3,)), [(2, 3)], ["hlo.broadcast_in_dim", "f64[2, 3]", "f64[3]"]),
        (lambda b, x: b.transpose(x, (0, 0)), [(2, 3)], ["hlo.transpose", "[0, 0]", "f64[2, 3]"]),
        (lambda b, x: b.slice(x, (0, 1), (2, 4)), [(2, 3)], ["hlo.slice", "1:4:1", "f64[2, 3]"]),
        (lambda b, x: b.slice(x, (0,), (2,)), [(2, 3)], ["hlo.slice", "1 entries", "f64[2, 3]"]),
        (lambda b, x: b.pad(x, 0, (1,), (0,)), [(2, 3)], ["hlo.pad", "f64[2, 3]"]),
        (
            lambda b, x, y: b.concatenate((x, y), 0),
            [(2, 3), (2, 4)],
            ["hlo.concatenate", "operand 1", "f64[2, 4]", "f64[2, 3]"],
        ),
        (lambda b, x: b.reverse(x, (2,)), [(2, 3)], ["hlo.reverse", "dimension 2", "f64[2, 3]"]),
        (
            lambda b, x, i: b.dynamic_slice(x, (i, i), (1, 1)),
            [(2, 3), ()],
            ["hlo.dynamic_slice", "operand 1", "f64[]", "integers"],
        ),
    ],
)
def test_errors_name_op_operand_and_shapes(program, shapes, words):
    with pytest.raises(ProgramError) as error:
        run1(program, *(normal(*s) if s else np.array(1.0) for s in shapes))
    for word in words:
        assert word in str(error.value)
