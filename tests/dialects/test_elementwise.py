"""Elementwise ops against torch: values in every element type, gradients at ordinary and at special points."""

import ml_dtypes
import numpy as np
import pytest
import torch
from op_programs import gradients, program, run, type_of

from rhino.dialects.builder import Builder
from rhino.ir import types
from rhino.ir.errors import ProgramError

NAN, INF = float("nan"), float("inf")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-8, 30.0, -30.0, INF, -INF, NAN]

UNARY = {
    "negate": torch.neg,
    "abs": torch.abs,
    "sign": lambda x: torch.where(torch.isnan(x), x, torch.sign(x)),
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "tanh": torch.tanh,
    "logistic": torch.sigmoid,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "erf": torch.erf,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round_even": torch.round,
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "rem": torch.fmod,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "atan2": torch.atan2,
}


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(np.array(array))


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.detach().numpy()


def method(name):
    return lambda b, *xs: getattr(b, name)(*xs)


def close(got, want, dtype):
    tolerance = {"float64": 1e-13, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}[np.dtype(dtype).name]
    wide = np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance * 1e-2)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", UNARY)
def test_unary_values(name, dtype):
    x = np.array(SPECIAL).astype(dtype)
    got = run(method(name), x)
    assert got.dtype == dtype
    with np.errstate(all="ignore"):
        want = to_numpy(UNARY[name](to_torch(x)))
    if name in ("sin", "cos", "tan"):
        finite = np.isfinite(x.astype(np.float64))
        got, want = got[finite], want[finite]
    close(got, want, dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", BINARY)
def test_binary_values(name, dtype):
    x, y = (a.reshape(-1).astype(dtype) for a in np.meshgrid(SPECIAL[:11], SPECIAL[:11]))
    got = run(method(name), x, y)
    want = to_numpy(BINARY[name](to_torch(x), to_torch(y)))
    if name == "pow":  # torch rounds 16-bit powers twice
        overflow = ~np.isfinite(want.astype(np.float64)) & np.isfinite(got.astype(np.float64))
        got, want = got[~overflow], want[~overflow]
    close(got, want, dtype)


@pytest.mark.parametrize("name", UNARY)
def test_unary_gradients(name):
    x = np.array([0.0, 1.0, -1.0, 0.3, -0.7, 2.5, -3.2, 7.0])
    dy = np.linspace(-2, 3, len(x))
    (got,) = gradients(method(name), dy, x)
    leaf = torch.tensor(x, requires_grad=True)
    (want,) = torch.autograd.grad(UNARY[name](leaf), leaf, torch.tensor(dy))
    if got is None:
        assert not want.any()
        return
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", BINARY)
def test_binary_gradients(name):
    points = [0.0, 1.0, -1.0, 0.3, -2.0, 2.0, 3.7]
    x, y = (np.array(a.reshape(-1)) for a in np.meshgrid(points, points))
    if name == "rem":
        x, y = x[y != 0], y[y != 0]
    dy = np.linspace(-2, 3, len(x))
    got = gradients(method(name), dy, x, y)
    leaves = [torch.tensor(a, requires_grad=True) for a in (x, y)]
    want = torch.autograd.grad(BINARY[name](*leaves), leaves, torch.tensor(dy))
    keep = (x != 0) | (y != 0) if name == "atan2" else np.ones(len(x), bool)  # no derivative at the origin
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g[keep], w.numpy()[keep], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, -1.0, 1.0, 0.0])
def test_power_with_constant_exponent(exponent):
    x = np.array([0.0, 1.0, -1.0, 0.3, 2.0])

    def power(b: Builder, x):
        return b.pow(x, b.full_like(x, exponent))

    got, none = gradients(power, np.ones(5), x)
    leaf = torch.tensor(x, requires_grad=True)
    (want,) = torch.autograd.grad(leaf**exponent, leaf, torch.ones(5, dtype=torch.float64))
    assert none is None
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-12)


def test_select_and_convert_gradients():
    p, x, y, dy = np.array([True, False]), np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])
    none, dx, dy_ = gradients(method("select"), dy, p, x, y)
    assert none is None and dx.tolist() == [5, 0] and dy_.tolist() == [0, 6]
    back = gradients(lambda b, x: b.convert(x, types.F32), np.ones(2, np.float32), x)
    assert back[0].dtype == np.float64
    assert gradients(lambda b, x: b.convert(x, types.I32), np.ones(2, np.int32), x) == [None]


INTEGERS = [0, 1, -1, 7, -7, 3, -3, 127, -128]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integer_arithmetic_wraps_and_truncates(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = [*INTEGERS, low, high]
    x, y = (a.reshape(-1).astype(dtype) for a in np.meshgrid(values, values))
    bits = np.dtype(dtype).itemsize * 8

    def wrap(v):
        return (int(v) - low) % (1 << bits) + low

    def c_div(a, b):
        return -1 if b == 0 else wrap(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))

    cases = {
        "add": lambda a, b: wrap(a + b),
        "sub": lambda a, b: wrap(a - b),
        "mul": lambda a, b: wrap(a * b),
        "div": c_div,
        "rem": lambda a, b: (
            a if b == 0 else wrap(a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)))
        ),
        "maximum": max,
        "minimum": min,
        "and_": lambda a, b: a & b,
        "or_": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
    }
    for name, reference in cases.items():
        got = run(method(name), x, y)
        want = [reference(int(a), int(b)) for a, b in zip(x, y, strict=True)]
        assert got.dtype == dtype and got.tolist() == want, name


def test_integer_power():
    x, y = (a.reshape(-1).astype(np.int32) for a in np.meshgrid([0, 1, -1, 2, -3], [0, 1, 2, 5, -1, -2]))
    want = [
        int(a) ** int(b) if b >= 0 else (0 if a == 0 else int(1 / float(a) ** -int(b)))  # 0 as XLA has it
        for a, b in zip(x, y, strict=True)
    ]
    assert run(method("pow"), x, y).tolist() == want


def test_shifts_beyond_the_width():
    x = np.array([5, -5, -128, 127], np.int8)
    for amount in (0, 1, 3, 7, 8, 100, -1):
        n = np.full(4, amount, np.int8)
        shift = amount if 0 <= amount < 8 else 8
        assert run(method("shift_left"), x, n).tolist() == [((int(v) << shift) + 128) % 256 - 128 for v in x]
        assert run(method("shift_right_arithmetic"), x, n).tolist() == [int(v) >> shift for v in x]
        logical = [(int(v) % 256) >> shift for v in x]
        assert run(method("shift_right_logical"), x, n).tolist() == [(v + 128) % 256 - 128 for v in logical]


@pytest.mark.parametrize("direction", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_compare(direction):
    x, y = (np.array(a.reshape(-1)) for a in np.meshgrid(SPECIAL, SPECIAL))
    got = run(lambda b, x, y: b.compare(x, y, direction), x, y)
    want = getattr(torch, direction)(torch.tensor(x), torch.tensor(y)).numpy()
    assert got.dtype == np.bool_ and (got == want).all()
    short = [a.astype(ml_dtypes.bfloat16) for a in (x, y)]
    assert run(lambda b, x, y: b.compare(x, y, direction), *short).dtype == np.bool_


def test_logic_and_predicates():
    p, q = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert run(method("not_"), p).tolist() == [False, False, True, True]
    assert run(method("xor"), p, q).tolist() == [False, True, True, False]
    assert run(method("not_"), np.array([0, -1, 5], np.int32)).tolist() == [-1, 0, -6]
    for dtype in (np.float32, ml_dtypes.bfloat16):
        x = np.array([1.0, INF, -INF, NAN]).astype(dtype)
        assert run(method("is_finite"), x).tolist() == [True, False, False, False]


def test_select_by_scalar_and_by_element():
    x, y = np.arange(3.0), -np.arange(3.0)
    assert run(method("select"), np.array(True), x, y).tolist() == x.tolist()
    assert run(method("select"), np.array([True, False, True]), x, y).tolist() == [0, -1, 2]


ALL = [
    np.float64,
    np.float32,
    np.float16,
    ml_dtypes.bfloat16,
    np.bool_,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
]


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", ALL)
def test_convert(source, target):
    x = np.array([0, 1, 2, 3, 100, -1, -3.7, 0.1]).astype(source)
    got = run(lambda b, x: b.convert(x, types.from_numpy(np.dtype(target))), x)
    assert got.dtype == target
    torch_type = torch.bfloat16 if target == ml_dtypes.bfloat16 else to_torch(np.zeros(1, target)).dtype
    want = to_numpy(to_torch(x).to(torch_type))
    assert got.astype(np.float64).tolist() == want.astype(np.float64).tolist()


def test_errors_name_the_operand_and_both_types():
    f, g = types.tensor([4], types.F32), types.tensor([5], types.F32)
    with pytest.raises(ProgramError, match=r"hlo.add: operand 1 is f32\[5\] but operand 0 is f32\[4\]"):
        program(method("add"), [f, g])
    with pytest.raises(ProgramError, match=r"hlo.exp: operand 0 is i32\[4\]"):
        program(method("exp"), [types.tensor([4], types.I32)])
    with pytest.raises(ProgramError, match=r"hlo.select: operand 2 is f32\[5\] but operand 1 is f32\[4\]"):
        program(method("select"), [types.tensor([4], types.I1), f, g])
    with pytest.raises(ProgramError, match=r"hlo.select: operand 0 is f32\[4\]"):
        program(method("select"), [f, f, f])
    with pytest.raises(ProgramError, match="no comparison 'less'"):
        program(lambda b, x, y: b.compare(x, y, "less"), [f, f])


def test_scalars_stay_arrays():
    got = run(lambda b, x: b.exp(b.add(x, x)), np.array(1.0))
    assert isinstance(got, np.ndarray) and got.shape == ()


def test_partial_rules():
    f = types.tensor([4], types.F32)

    def rule(name, *kinds):
        op = program(method(name), list(kinds) or [f, f]).body.block.first_op.body.block.first_op
        return op.rule()

    assert rule("add").linear == ((0, 1),)
    assert rule("mul").linear == ((0,), (1,))
    assert rule("div").linear == ((0,),)
    assert rule("div", *[type_of(np.zeros(4, np.int32))] * 2).linear == ()
    assert rule("maximum").carries == {"max": ((0,), (1,), (0, 1))}
    assert rule("exp", f).linear == ()
