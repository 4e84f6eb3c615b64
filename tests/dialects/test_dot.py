"""dot_general and matmul against einsum, numpy's matmul and torch."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
import torch
from hloprog import build, check_against_torch, normal, run1, type_like, whole
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.dot import DotGeneralOp
from rhino.ir.errors import ProgramError


def einsum_text(x_rank: int, y_rank: int, batch, contract) -> str:
    """dot_general's definition as an einsum."""
    letters = iter("abcdefghijklmnop")
    x, y = [""] * x_rank, [""] * y_rank
    for i, j in [*zip(*batch, strict=True), *zip(*contract, strict=True)]:
        x[i] = y[j] = next(letters)
    for dims in (x, y):
        for d, name in enumerate(dims):
            dims[d] = name or next(letters)
    out = [x[i] for i in batch[0]]
    out += [x[d] for d in range(x_rank) if d not in batch[0] and d not in contract[0]]
    out += [y[d] for d in range(y_rank) if d not in batch[1] and d not in contract[1]]
    return f"{''.join(x)},{''.join(y)}->{''.join(out)}"


def all_dots():
    """Every choice of at most one batch and one contracted pair for ranks 1 to 3, and a few more."""
    for x_rank, y_rank in itertools.product((1, 2, 3), repeat=2):
        pairs = list(itertools.product(range(x_rank), range(y_rank)))
        for batch in [None, *pairs]:
            for contract in [None, *pairs]:
                if batch and contract and (batch[0] == contract[0] or batch[1] == contract[1]):
                    continue
                yield (
                    x_rank,
                    y_rank,
                    (batch[:1], batch[1:]) if batch else ((), ()),
                    (contract[:1], contract[1:]) if contract else ((), ()),
                )
    yield 4, 4, ((1, 0), (2, 0)), ((3,), (1,))
    yield 4, 4, ((0,), (3,)), ((3, 1), (0, 2))
    yield 3, 4, ((), ()), ((2, 0), (1, 3))


CASES = list(all_dots())


@pytest.mark.parametrize("part", range(4))
def test_values_and_gradients(part):
    for x_rank, y_rank, batch, contract in CASES[part::4]:
        shape_x, shape_y = [2, 3, 4, 5][:x_rank], [6, 7, 8, 9][:y_rank]
        for i, j in [*zip(*batch, strict=True), *zip(*contract, strict=True)]:
            shape_y[j] = shape_x[i]
        text = einsum_text(x_rank, y_rank, batch, contract)
        check_against_torch(
            lambda b, x, y, bt=batch, c=contract: b.dot_general(x, y, bt, c),
            lambda x, y, t=text: torch.einsum(t, x, y),
            [whole(*shape_x), whole(*shape_y, seed=1)],
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.int8])
def test_types_and_exactness(dtype):
    x, y = whole(3, 5).astype(dtype), whole(5, 4, seed=1).astype(dtype)
    got = run1(lambda b, x, y: b.matmul(x, y), x, y)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.float64), x.astype(np.float64) @ y.astype(np.float64))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((3,), (5, 3, 4)),
        ((2, 3), (3, 4)),
        ((2, 3), (5, 6, 3, 4)),
        ((5, 6, 2, 3), (3, 4)),
        ((5, 6, 2, 3), (3,)),
        ((5, 2, 3), (5, 3, 4)),
        ((6, 1, 2, 3), (5, 3, 4)),
        ((1, 2, 3), (5, 3, 4)),
    ],
)
def test_matmul(x, y):
    check_against_torch(lambda b, x, y: b.matmul(x, y), torch.matmul, [normal(*x), normal(*y, seed=1)])


def test_gradients_of_a_linear_layer_need_no_transpose():
    x, w = normal(2, 3, 4), normal(4, 5)
    module = build(lambda b, x, w: b.matmul(x, w), [type_like(x), type_like(w)])
    dot = next(op for op in module.walk() if isinstance(op, DotGeneralOp))
    b = Builder(InsertPoint.before(dot.parent_block().last_op))
    _, dw = dot.derivative(b, [dot.result])
    assert isinstance(dw.owner, DotGeneralOp)


def test_flops():
    x, y = normal(4, 2, 8), normal(4, 8, 3)
    module = build(lambda b, x, y: b.matmul(x, y), [type_like(x), type_like(y)])
    assert next(op for op in module.walk() if isinstance(op, DotGeneralOp)).flops() == 2 * 4 * 2 * 8 * 3


@pytest.mark.parametrize(
    ("program", "shapes", "words"),
    [
        (
            lambda b, x, y: b.matmul(x, y),
            [(2, 3), (4, 5)],
            ["hlo.dot_general", "operand 0", "f64[2, 3]", "operand 1", "f64[4, 5]", "3 and 4"],
        ),
        (
            lambda b, x, y: b.dot_general(x, y, ((0,), ()), ((1,), (0,))),
            [(2, 3), (3, 5)],
            ["batch", "number"],
        ),
        (
            lambda b, x, y: b.dot_general(x, y, ((0,), (0,)), ((0,), (1,))),
            [(2, 3), (2, 2)],
            ["twice", "f64[2, 3]"],
        ),
        (lambda b, x, y: b.dot_general(x, y, contract=((5,), (0,))), [(2, 3), (2, 2)], ["dimension 5"]),
        (lambda b, x, y: b.matmul(x, y), [(2, 2, 3), (4, 3, 5)], ["f64[2, 2, 3]", "f64[4, 3, 5]"]),
    ],
)
def test_errors(program, shapes, words):
    with pytest.raises(ProgramError) as error:
        run1(program, *(normal(*s) for s in shapes))
    for word in words:
        assert word in str(error.value)
