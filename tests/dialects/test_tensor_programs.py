"""Programs written by hand: they compute what numpy computes, and mistakes name the line, the shapes and the cure."""

import numpy as np
import pytest
from xdsl.context import Context

from rhino.dialects.program import (
    bf16,
    composite,
    concatenate,
    constant,
    f32,
    f64,
    full,
    function,
    i1,
    i32,
    i64,
    iota,
    parameter,
    random_uniform,
    stack,
    where,
)
from rhino.dialects.text import parse_module, print_module
from rhino.ir import types
from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.philox import uniform

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(4, 6)), RNG.normal(size=(4, 6))


def agree(body, *arrays, tolerance=1e-14):
    """`body` on Tensors equals `body` on numpy arrays."""
    names = [types.tensor(a.shape, types.from_numpy(a.dtype)) for a in arrays]
    got = function(*names)(body)(*arrays)
    np.testing.assert_allclose(got, body(*arrays), rtol=tolerance, atol=tolerance)


OPERATORS = [
    lambda x, y: x + y * 2 - 1 / (y * y + 1),
    lambda x, y: 1 + x,
    lambda x, y: 3 - x,
    lambda x, y: -x + abs(y),
    lambda x, y: x**2 + 2**y,
    lambda x, y: x[0] * y,
    lambda x, y: x[:, :1] + y[:1],
    lambda x, y: x @ y.T,
    lambda x, y: x.T @ y,
    lambda x, y: x[1] @ y[1],
    lambda x, y: (x > y) & (x <= 1) | ~(y == 0),
    lambda x, y: (x != y) ^ (x >= 0),
    lambda x, y: x.sum() + y.max(1).min() * x.prod(0).mean(),
    lambda x, y: x.reshape(2, -1).reshape((3, 8)).transpose(1, 0),
    lambda x, y: np.float64(2) * x + np.arange(6.0),
    lambda x, y: np.arange(6.0) - x,
]


@pytest.mark.parametrize("body", OPERATORS)
def test_operators_are_numpy_s(body):
    agree(body, X, Y)


@pytest.mark.parametrize("name", ["exp", "expm1", "log1p", "tanh", "sin", "cos", "floor", "ceil", "sign"])
def test_functions_are_numpy_s(name):
    got = function(f64[4, 6])(lambda x: getattr(x * x, name)())(X)
    np.testing.assert_allclose(got, getattr(np, name)(X * X), rtol=1e-14)


INDICES = [
    np.s_[1],
    np.s_[-1],
    np.s_[1:3],
    np.s_[:, 2],
    np.s_[..., 2],
    np.s_[::2, 1:6:3],
    np.s_[None, 1:, None],
    np.s_[..., None],
    np.s_[-3:-1, ...],
    np.s_[3:1],
    np.s_[0, 0],
    np.s_[:],
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing_is_numpy_s(index):
    got = function(f64[4, 6])(lambda x: x[index])(X)
    assert got.shape == X[index].shape and np.array_equal(got, X[index])


def test_indexing_by_a_tensor_picks_rows():
    rows = np.array([[3, 0], [1, 1]])
    got = function(f64[4, 6], i64[2, 2])(lambda x, i: x[i])(X, rows)
    assert np.array_equal(got, X[rows])


def test_more_methods():
    @function(f64[4, 6])
    def main(x):
        top = x.argmax(1)
        return {
            "softmax": x.softmax(),
            "relu": x.relu(),
            "sigmoid": x.sigmoid(),
            "any": (x > 1).any(0),
            "all": (x > -5).all(),
            "kept": x.sum((0, 1), keepdims=True),
            "cumsum": x.cumsum(-1),
            "argmax": top,
            "half": x.astype(bf16).astype("f64"),
            "maximum": x.maximum(0).minimum(0.5),
            "where": where(x > 0, x, 1),
            "scalar": where(x.sum() > 1e9, x, -1.0),
            "joined": concatenate([x, x], 1),
            "stacked": stack([x, x], -1),
            "wide": x[0].broadcast_to(2, 4, 6),
            "count": iota(x, i64[3], 0),
            "full": full(x, f32[2], 7),
            "constant": constant(x, np.array([1, 2])),
        }

    got = main(X)
    power = np.exp(X - X.max(1, keepdims=True))
    want = {
        "softmax": power / power.sum(1, keepdims=True),
        "relu": np.maximum(X, 0),
        "sigmoid": 1 / (1 + np.exp(-X)),
        "any": (X > 1).any(0),
        "all": np.array(True),
        "kept": X.sum(keepdims=True),
        "cumsum": X.cumsum(1),
        "argmax": X.argmax(1),
        "half": X,
        "maximum": np.clip(X, 0, 0.5),
        "where": np.where(X > 0, X, 1),
        "scalar": np.full_like(X, -1),
        "joined": np.concatenate([X, X], 1),
        "stacked": np.stack([X, X], -1),
        "wide": np.broadcast_to(X[0], (2, 4, 6)),
        "count": np.arange(3),
        "full": np.full(2, 7),
        "constant": np.array([1, 2]),
    }
    assert list(got) == list(want)
    for name, value in want.items():
        assert got[name].shape == value.shape, name
        np.testing.assert_allclose(got[name], value, rtol=0.01 if name == "half" else 1e-12, err_msg=name)


def test_random_numbers_follow_the_element_index():
    main = function(i64[()])(lambda seed: random_uniform(seed, (3, 5)))
    assert np.array_equal(main(9), uniform(9, np.arange(15).reshape(3, 5), np.dtype(np.float32)))


def test_programs_have_names_roles_and_text():
    @function(f32[4, 8], parameter(f32[8, 16]))
    def main(x, w):
        return (x @ w).relu().sum()

    text = str(main)
    assert '%x: tensor<4x8xf32> {rhino.name = "x", rhino.role = "input"}' in text
    assert '%w: tensor<8x16xf32> {rhino.name = "w", rhino.role = "parameter"}' in text
    assert '{rhino.name = "loss", rhino.role = "loss"}' in text
    assert print_module(parse_module(text)) == text
    x, w = RNG.normal(size=(4, 8)), RNG.normal(size=(8, 16))  # float64 arrays are converted
    np.testing.assert_allclose(main(x, w), np.maximum(x @ w, 0).sum(), rtol=1e-5)


def test_programs_train():
    from rhino.passes.autodiff import AutodiffPass

    @function(f64[4], parameter(f64[4]))
    def main(x, w):
        return ((x * w).relu() ** 2).sum()

    AutodiffPass().apply(Context(), main.module)
    from rhino.ir.evaluate import run_module

    x, w = np.array([1.0, -2.0, 3.0, 0.0]), np.array([0.5, 1.0, 2.0, 1.0])
    _, gradient = run_module(main.module, [x, w])
    np.testing.assert_allclose(gradient, 2 * np.maximum(x * w, 0) * x)


def test_ops_know_the_user_s_line():
    main = function(f32[4])(lambda x: x.softmax())
    locations = {str(op.location) for op in main.module.walk() if op.name.startswith("hlo.")}
    (location,) = locations
    assert "test_tensor_programs.py" in location


def test_results_keep_their_structure():
    assert function(f32[2])(lambda x: x)([1, 2]).tolist() == [1, 2]
    assert [r.tolist() for r in function(f32[2])(lambda x: (x, x + 1))([1, 2])] == [[1, 2], [2, 3]]
    assert set(function(f32[2])(lambda x: {"a": x})([1, 2])) == {"a"}


def test_composites_are_named_ops():
    @composite("norm", eps=1e-5, axis=0, mode="rms")
    def norm(x):
        return x * ((x * x).mean() + 1e-5).rsqrt()

    @composite("pair")
    def pair(x, y):
        return {"sum": x + y, "difference": x - y}

    @function(f64[4])
    def main(x):
        parts = pair(norm(x), x)
        return parts["sum"] * parts["difference"]

    assert 'hlo.composite "norm"(%x) {eps = 1.000000e-05 : f64, axis = 0 : i64, mode = "rms"}' in str(main)
    x = np.arange(4.0)
    n = x / np.sqrt((x * x).mean() + 1e-5)
    np.testing.assert_allclose(main(x), n * n - x * x)


@pytest.mark.parametrize(
    "types_, body, why",
    [
        ((f32[4, 8], f32[3]), lambda x, y: x + y, "add: f32[4, 8] and f32[3] do not broadcast"),
        ((f32[4], i32[4]), lambda x, y: x * y, "mul of f32[4] and i32[4]: element types differ"),
        ((i32[4],), lambda x: x + 0.5, "add of Tensor(i32[4]) and 0.5, which is no i32"),
        ((f32[4],), lambda x: x + "one", "add of Tensor(f32[4]) and str"),
        ((f32[4],), lambda x: x + np.zeros(4), "element types differ"),
        ((f32[4, 8], f32[4, 8]), lambda x, y: x @ y, "contract dimensions 1 and 0 have extents 8 and 4"),
        ((f32[4],), lambda x: x.sum(1), "no dimension 1 in Tensor(f32[4])"),
        ((f32[4],), lambda x: x[5], "index 5 does not fit dimension 0 of Tensor(f32[4])"),
        ((f32[4],), lambda x: x[0, 0], "2 indices for Tensor(f32[4])"),
        ((f32[4],), lambda x: x[::-1], "step -1"),
        ((f32[4],), lambda x: x.reshape(3), "reshape"),
        ((f32[4],), lambda x: 1 if x > 0 else x, "no truth value"),
        ((f32[4],), lambda x: x.astype("f8"), "no element type 'f8'"),
        ((i32[4],), lambda x: x.exp(), "operand 0 is i32[4]"),
        ((f32[4],), lambda x: x & x, "operand 0 is f32[4], but hlo.and takes integer or i1"),
        ((f32[4], i1[3]), lambda x, p: where(p, x, 0), "where: i1[3] and f32[4] do not broadcast"),
        ((f32[4],), lambda x: concatenate([]), "nothing to concatenate"),
    ],
)
def test_mistakes_name_the_line_and_both_shapes(types_, body, why):
    with pytest.raises(ProgramError) as caught:
        function(*types_)(body)
    assert why in str(caught.value)
    assert caught.value.where is not None and "test_tensor_programs.py" in caught.value.where


def test_mistakes_in_signatures():
    with pytest.raises(ProgramError, match="takes 2 arguments, but 1 types are given"):
        function(f32[4])(lambda x, y: x)
    with pytest.raises(ProgramError, match="returns int"):
        function(f32[4])(lambda x: 3)
    kept = []
    function(f32[4])(lambda x: kept.append(x) or x)
    with pytest.raises(ProgramError, match="belongs to another function"):
        function(f32[4])(lambda x: x + kept[0])
    with pytest.raises(ProgramError, match="belongs to another function"):
        function(f32[4])(lambda x: kept[0])
    with pytest.raises(ProgramError, match="no shape"):
        f32[4, -1]


def test_mistakes_in_calls():
    main = function(f32[4], i32[2])(lambda x, i: x)
    with pytest.raises(UsageError, match="1 arguments given where the program has 2"):
        main(np.zeros(4))
    with pytest.raises(UsageError, match=r"argument i is float64\[2\] instead of i32\[2\]"):
        main(np.zeros(4), np.zeros(2))
    with pytest.raises(UsageError, match=r"argument 0 is float32\[5\]"):
        main(np.zeros(5), [0, 1])
