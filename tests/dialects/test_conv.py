"""Convolution against torch and, for what torch lacks, against the definition written as loops."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
import torch
from hloprog import build, check_against_torch, normal, run1, type_like, vjp, whole

from rhino.dialects.hlo.conv import ConvolutionOp
from rhino.ir.errors import ProgramError


def by_definition(x, w, strides, padding, lhs_dilation, rhs_dilation, groups=1, batch_groups=1):
    """(result, number of multiply-adds on real elements), one result position and one tap at a time."""
    rank = x.ndim - 2
    n, c = x.shape[0] // batch_groups, w.shape[1]
    o = w.shape[0] // (groups * batch_groups)
    out = []
    for d in range(rank):
        dilated = (x.shape[2 + d] - 1) * lhs_dilation[d] + 1
        reach = (w.shape[2 + d] - 1) * rhs_dilation[d] + 1
        out.append(max(0, (dilated + sum(padding[d]) - reach) // strides[d] + 1))
    y = np.zeros((n, w.shape[0], *out), x.dtype)
    taps = 0
    for at in np.ndindex(*out):
        for k in np.ndindex(*w.shape[2:]):
            place = [
                a * s + b * r - lo
                for a, s, b, r, (lo, _) in zip(at, strides, k, rhs_dilation, padding, strict=True)
            ]
            if any(
                p % g or not 0 <= p // g < e for p, g, e in zip(place, lhs_dilation, x.shape[2:], strict=True)
            ):
                continue
            source = x[
                (slice(None), slice(None), *(p // g for p, g in zip(place, lhs_dilation, strict=True)))
            ]
            taps += n * w.shape[0] * c
            for g in range(groups * batch_groups):
                part = source[:, g * c : (g + 1) * c] if batch_groups == 1 else source[g * n : (g + 1) * n]
                kernel = w[(slice(g * o, (g + 1) * o), slice(None), *k)]
                y[(slice(None), slice(g * o, (g + 1) * o), *at)] += part @ kernel.T
    return y, taps


TORCH = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}


@pytest.mark.parametrize(
    ("x", "w", "stride", "padding", "dilation", "groups"),
    [
        ((2, 3, 9), (4, 3, 3), 1, 0, 1, 1),
        ((2, 3, 9), (4, 3, 3), 2, 1, 1, 1),
        ((2, 4, 10), (6, 2, 3), 3, 2, 2, 2),
        ((1, 3, 7, 8), (5, 3, 3, 2), (2, 1), (1, 0), (1, 2), 1),
        ((2, 4, 6, 5), (4, 1, 3, 3), 1, 1, 1, 4),
        ((2, 4, 6, 6), (6, 4, 1, 1), 2, 0, 1, 1),
        ((2, 3, 8, 8), (5, 3, 4, 4), 4, 0, 1, 1),
        ((1, 2, 4, 5, 6), (4, 2, 2, 3, 2), (1, 2, 2), (0, 1, 1), 1, 1),
        ((1, 4, 3, 4, 3), (4, 2, 2, 2, 2), 1, 1, 1, 2),
    ],
)
def test_against_torch(x, w, stride, padding, dilation, groups):
    rank = len(x) - 2

    def each(v):
        return v if isinstance(v, tuple) else (v,) * rank

    check_against_torch(
        lambda b, x, w: b.convolution(
            x, w, each(stride), [(p, p) for p in each(padding)], None, each(dilation), groups
        ),
        lambda x, w: TORCH[rank](x, w, None, stride, padding, dilation, groups),
        [whole(*x), whole(*w, seed=1)],
    )


def test_against_torch_transposed():
    """A transposed convolution is one with a dilated input."""
    x, w = whole(2, 3, 5), whole(3, 4, 3, seed=1)
    check_against_torch(
        lambda b, x, w: b.convolution(
            x, b.reverse(b.transpose(w, (1, 0, 2)), (2,)), (1,), [(2 - 1, 2 - 1 + 1)], (2,), (1,)
        ),
        lambda x, w: torch.nn.functional.conv_transpose1d(x, w, None, 2, 1, 1),
        [x, w],
    )


GRID = list(itertools.product((1, 2, 3), (-1, 0, 2), (-1, 0, 1), (1, 2), (1, 2), ((1, 1), (2, 1), (1, 2))))


@pytest.mark.parametrize(
    "part", [*range(5), *(pytest.param(i, marks=pytest.mark.long) for i in range(5, 17))]
)
def test_all_parameters_by_definition(part):
    """Values, flops and gradients (by bilinearity) over a grid of strides, padding, dilations, groups."""
    for stride, low, high, lhs, rhs, (groups, batch_groups) in GRID[part::17]:
        x, w = whole(4, 2 * groups, 5), whole(4, 2, 3, seed=1)
        args = ((stride,), [(low, high)], (lhs,), (rhs,), groups, batch_groups)
        want, taps = by_definition(x, w, *args)
        module = build(lambda b, x, w, a=args: b.convolution(x, w, *a), [type_like(x), type_like(w)])
        (op,) = (op for op in module.walk() if isinstance(op, ConvolutionOp))
        assert op.flops() == 2 * taps, args
        got = run1(lambda b, x, w, a=args: b.convolution(x, w, *a), x, w)
        np.testing.assert_array_equal(got, want, err_msg=str(args))
        # For a bilinear map f, <f(x', w), dy> = <x', dx> and <f(x, w'), dy> = <w', dw>, for any x', w'.
        dy = whole(*want.shape, seed=2)
        dx, dw = vjp(lambda b, x, w, a=args: b.convolution(x, w, *a), [x, w], [dy])
        for seed in range(3):
            x2, w2 = whole(*x.shape, seed=10 + seed), whole(*w.shape, seed=20 + seed)
            assert np.vdot(by_definition(x2, w, *args)[0], dy) == np.vdot(x2, dx), args
            assert np.vdot(by_definition(x, w2, *args)[0], dy) == np.vdot(w2, dw), args


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.int64])
def test_types_and_exactness(dtype):
    x, w = (
        whole(2, 2, 4, 4, low=-2, high=3).astype(dtype),
        whole(3, 2, 3, 3, low=-2, high=3, seed=1).astype(dtype),
    )
    got = run1(lambda b, x, w: b.convolution(x, w, (1, 1), [(1, 1), (1, 1)]), x, w)
    assert got.dtype == dtype
    want = by_definition(
        x.astype(np.float64), w.astype(np.float64), (1, 1), [(1, 1), (1, 1)], (1, 1), (1, 1)
    )[0]
    np.testing.assert_array_equal(got.astype(np.float64), want)


def test_no_spatial_dimension_and_empty_result():
    x, w = whole(3, 4), whole(5, 4, seed=1)
    np.testing.assert_array_equal(run1(lambda b, x, w: b.convolution(x, w), x, w), x @ w.T)
    x, w = whole(1, 1, 2), whole(1, 1, 5)
    assert run1(lambda b, x, w: b.convolution(x, w), x, w).shape == (1, 1, 0)
    dx, dw = vjp(lambda b, x, w: b.convolution(x, w), [x, w], [np.zeros((1, 1, 0))])
    assert not dx.any() and not dw.any()


@pytest.mark.parametrize(
    ("shapes", "options", "words"),
    [
        (
            ((2, 3, 8), (4, 2, 3)),
            {},
            ["hlo.convolution", "operand 0", "f64[2, 3, 8]", "operand 1", "f64[4, 2, 3]", "3 input features"],
        ),
        (((2, 3, 8), (4, 3)), {}, ["ranks", "f64[2, 3, 8]", "f64[4, 3]"]),
        (((2, 4, 8), (3, 2, 3)), {"feature_groups": 2}, ["3 result features", "2 feature groups"]),
        (((3, 4, 8), (4, 4, 3)), {"batch_groups": 2}, ["batch 3", "2 batch groups"]),
        (
            ((4, 4, 8), (4, 2, 3)),
            {"feature_groups": 2, "batch_groups": 2},
            ["2 feature groups and 2 batch groups"],
        ),
        (((4, 4, 8), (4, 4, 3)), {"strides": (1, 1)}, ["strides [1, 1]", "1 spatial"]),
        (((4, 4, 8), (4, 4, 3)), {"strides": (0,)}, ["stride 0", "f64[4, 4, 8]"]),
    ],
)
def test_errors(shapes, options, words):
    with pytest.raises(ProgramError) as error:
        run1(lambda b, x, w: b.convolution(x, w, **options), *(normal(*s) for s in shapes))
    for word in words:
        assert word in str(error.value)
