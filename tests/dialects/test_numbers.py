"""Clamp, roundings, bits, complex numbers, one-byte floats: values, gradients, rules, text."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from hloprog import build, check_against_torch, execute, normal, run, run1, type_like, vjp, whole
from localcheck import check_local

from rhino.dialects.signature import Slot, main_of, set_arguments
from rhino.dialects.text import parse_module, print_module
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.passes.autodiff import differentiate

SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 1e-8, -30.0, 70000.0, np.inf, -np.inf, np.nan]
FLOATS = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


@pytest.fixture(autouse=True, scope="module")
def double():
    with jax.enable_x64(True):
        yield


def same(got, want):
    """Equal bit for bit but for the payload and sign of NaN."""
    want = np.asarray(want)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    signs = [np.signbit(np.nan_to_num(a.astype(np.float64), nan=1.0)) for a in (got, want)]
    np.testing.assert_array_equal(*signs)


@pytest.mark.parametrize("dtype", FLOATS)
def test_roundings_equal_xla(dtype):
    with np.errstate(over="ignore"):
        x = np.concatenate([np.array(SPECIAL), normal(40) * 20, normal(40) * 1e-6]).astype(dtype)
    same(
        run1(lambda b, x: b.round_nearest_afz(x), x),
        jax.lax.round(jnp.asarray(x), jax.lax.RoundingMethod.AWAY_FROM_ZERO),
    )
    for bits in ((5, 10), (8, 7), (4, 3), (5, 2), (3, 0), (8, 23), (11, 52)):
        want = jax.lax.reduce_precision(jnp.asarray(x), *bits)
        same(run1(lambda b, x, m=bits: b.reduce_precision(x, *m), x), want)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
def test_bits_equal_xla(dtype):
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, 0, 1, 2, 3, 100, info.max // 3], dtype)
    np.testing.assert_array_equal(run1(lambda b, x: b.popcnt(x), x), jax.lax.population_count(jnp.asarray(x)))
    np.testing.assert_array_equal(run1(lambda b, x: b.count_leading_zeros(x), x), jax.lax.clz(jnp.asarray(x)))


@pytest.mark.parametrize("old", [np.int8, np.uint8, np.int16, np.float16, np.float32, np.uint32, np.float64])
@pytest.mark.parametrize("new", [np.uint8, ml_dtypes.bfloat16, np.int32, np.uint64])
def test_bitcast_equals_xla(old, new):
    a, z = np.dtype(old).itemsize, np.dtype(new).itemsize
    x = np.random.default_rng(0).integers(0, 255, (3, z // a if z > a else 2, a), np.uint8).view(old)[..., 0]
    want = np.asarray(jax.lax.bitcast_convert_type(jnp.asarray(x), new))
    got = run1(lambda b, x: b.bitcast_convert(x, types.from_numpy(np.dtype(new))), x)
    assert got.dtype == new and got.tobytes() == want.tobytes() and got.shape == want.shape


@pytest.mark.parametrize("dtype", FLOATS)
def test_total_order(dtype):
    x = np.array([-np.nan, -np.inf, -1.5, -0.0, 0.0, 1.5, np.inf, np.nan], dtype)
    x[0], x[-1] = np.copysign(x[0], dtype(-1)), np.copysign(x[-1], dtype(1))
    left, right = (a.reshape(-1).copy() for a in np.meshgrid(x, x))
    i, j = (a.reshape(-1) for a in np.meshgrid(np.arange(8), np.arange(8)))
    for direction, ufunc in (("lt", np.less), ("ge", np.greater_equal), ("eq", np.equal)):
        got = run1(lambda b, x, y, d=direction: b.compare_total(x, y, d), left, right)
        np.testing.assert_array_equal(got, ufunc(i, j))


@pytest.mark.parametrize("dtype", [*FLOATS, np.int32, np.uint32])
def test_clamp_equals_xla(dtype):
    x = np.array(SPECIAL if np.dtype(dtype).kind not in "iu" else [0, 1, 5, 9, 200]).astype(dtype)
    bounds = [(dtype(1), dtype(3)), (np.full(x.shape, dtype(2)), np.full(x.shape, dtype(7)))]
    for low, high in bounds:
        low, high = np.asarray(low), np.asarray(high)
        want = jax.lax.clamp(jnp.asarray(low), jnp.asarray(x), jnp.asarray(high))
        np.testing.assert_array_equal(run1(lambda b, a, x, z: b.clamp(a, x, z), low, x, high), want)


@pytest.mark.parametrize("bounds", [(), (3, 4)])
def test_clamp_gradient(bounds):
    x, low, high = normal(3, 4), normal(*bounds, seed=1) - 0.5, normal(*bounds, seed=2) + 0.5
    arrays = [np.asarray(low), x, np.asarray(high)]
    check_against_torch(lambda b, a, x, z: b.clamp(a, x, z), lambda a, x, z: torch.clamp(x, a, z), arrays)
    tied = [np.array(-1.0), whole(3, 4), np.array(2.0)]
    check_against_torch(
        lambda b, a, x, z: b.clamp(a, x, z), lambda a, x, z: torch.clamp(x, a, z), tied, grad=[1]
    )


def test_gradients_of_reals():
    x = np.abs(normal(4, 3)) + 0.2
    check_against_torch(lambda b, x: b.cbrt(x), lambda x: x ** (1 / 3), [x])
    (dx,) = vjp(lambda b, x: b.reduce_precision(x, 5, 10), [x], [x])
    np.testing.assert_array_equal(dx, run1(lambda b, x: b.reduce_precision(x, 5, 10), x))
    dx, dy = vjp(lambda b, x, y: b.optimization_barrier([x, y]), [x, x + 1], [x, None])
    np.testing.assert_array_equal(dx, x)
    assert dy is None


def complex_loss(body):
    """Real parameters in, complex numbers inside, a real loss out: as Rhino and as torch."""

    def program(b, x, y):
        return b.reduce(body(b, b.complex(x, y), b.complex(y, x)), (0, 1), "sum")

    return program


COMPLEX = {
    "real": (lambda b, z, w: b.real(z), lambda z, w: z.real),
    "imag": (lambda b, z, w: b.imag(z), lambda z, w: z.imag),
    "abs": (lambda b, z, w: b.complex_abs(z), lambda z, w: z.abs()),
    "sign": (lambda b, z, w: b.imag(b.complex_sign(z)), lambda z, w: torch.sgn(z).imag),
    "conj": (lambda b, z, w: b.imag(b.mul(b.conj(z), w)), lambda z, w: (z.conj() * w).imag),
    "mul": (lambda b, z, w: b.real(b.mul(z, w)), lambda z, w: (z * w).real),
    "div": (lambda b, z, w: b.imag(b.div(z, w)), lambda z, w: (z / w).imag),
    "exp": (lambda b, z, w: b.real(b.exp(b.sub(z, w))), lambda z, w: torch.exp(z - w).real),
    "log": (lambda b, z, w: b.imag(b.log(z)), lambda z, w: torch.log(z).imag),
    "sqrt": (lambda b, z, w: b.real(b.sqrt(z)), lambda z, w: torch.sqrt(z).real),
    "rsqrt": (lambda b, z, w: b.real(b.rsqrt(z)), lambda z, w: torch.rsqrt(z).real),
    "tanh": (lambda b, z, w: b.real(b.tanh(z)), lambda z, w: torch.tanh(z).real),
    "sin": (lambda b, z, w: b.imag(b.sin(z)), lambda z, w: torch.sin(z).imag),
    "cos": (lambda b, z, w: b.imag(b.cos(z)), lambda z, w: torch.cos(z).imag),
    "logistic": (lambda b, z, w: b.imag(b.logistic(z)), lambda z, w: torch.sigmoid(z).imag),
    "pow": (lambda b, z, w: b.real(b.pow(z, w)), lambda z, w: torch.pow(z, w).real),
    "cube": (lambda b, z, w: b.real(b.pow(z, b.full_like(z, 3))), lambda z, w: torch.pow(z, 3).real),
    "dot": (lambda b, z, w: b.imag(b.matmul(z, b.transpose(w, (1, 0)))), lambda z, w: (z @ w.T).imag),
    "select": (
        lambda b, z, w: b.real(b.select(b.compare(z, w, "ne"), z, w)),
        lambda z, w: torch.where(z != w, z, w).real,
    ),
    "convert": (
        lambda b, z, w: b.mul(b.convert(z, types.F64), b.imag(b.mul(b.convert(b.real(w), types.C128), z))),
        lambda z, w: z.real * (w.real.to(torch.complex128) * z).imag,
    ),
    "pad": (lambda b, z, w: b.imag(b.mul(b.pad(z, 1j, (1, 0), (0, 0)), b.pad(w, 0, (0, 0), (1, 0)))), None),
    "gather": (
        lambda b, z, w: b.real(b.mul(b.take(z, b.constant(np.array([2, 0, 2])), 0), w)),
        lambda z, w: (z[[2, 0, 2]] * w).real,
    ),
    "sums": (
        lambda b, z, w: b.real(b.mul(b.cumulative(z, 1, "sum"), b.cumulative(w, 1, "prod"))),
        lambda z, w: (z.cumsum(1) * w.cumprod(1)).real,
    ),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradients(name):
    body, reference = COMPLEX[name]
    x, y = normal(3, 4) + 0.3, normal(3, 4, seed=1)
    module = build(complex_loss(body), [type_like(x), type_like(y)])
    func = main_of(module)
    set_arguments(func, [Slot("x", "parameter"), Slot("y", "parameter")])
    differentiate(module)
    loss, dx, dy = execute(module, x, y)
    tx, ty = torch.tensor(x, requires_grad=True), torch.tensor(y, requires_grad=True)
    if reference is None:
        z, w = torch.complex(tx, ty), torch.complex(ty, tx)
        z = torch.cat([torch.full((1, 4), 1j, dtype=z.dtype), z])
        want = (z * torch.cat([w, torch.zeros((1, 4), dtype=z.dtype)])).imag.sum()
    else:
        want = reference(torch.complex(tx, ty), torch.complex(ty, tx)).sum()
    want.backward()
    np.testing.assert_allclose(loss, want.detach().numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(dx, tx.grad.numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(dy, ty.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_values_equal_numpy(dtype):
    z = (normal(3, 4) + 1j * normal(3, 4, seed=1)).astype(dtype)
    for method, ufunc in (("exp", np.exp), ("log1p", np.log1p), ("tan", np.tan)):
        np.testing.assert_allclose(run1(lambda b, z, m=method: getattr(b, m)(z), z), ufunc(z), rtol=1e-5)
    np.testing.assert_allclose(
        run1(lambda b, z: b.logistic(z), z), jax.lax.logistic(jnp.asarray(z)), rtol=1e-5
    )
    assert run1(lambda b, z: b.complex_abs(z), np.array([3e30 + 4e30j], dtype))[0] == pytest.approx(5e30)


def test_complex_numbers_have_no_order():
    z = np.ones(3, np.complex64)
    for program in (
        lambda b, z: b.compare(z, z, "lt"),
        lambda b, z: b.maximum(z, z),
        lambda b, z: b.reduce(z, (0,), "max"),
        lambda b, z: b.sign(z),
    ):
        with pytest.raises(ProgramError, match="complex"):
            run(program, z)
    with pytest.raises(ProgramError, match="f32 or f64"):
        run(lambda b, x: b.complex(x, x), np.ones(2, np.float16))


@pytest.mark.parametrize("name", [types.element_name(t) for t in types.FLOAT8])
def test_one_byte_floats(name):
    dtype = types.numpy_dtype(types.element(name))
    with np.errstate(all="ignore"):
        x = np.array([0.25, 1.5, 2.0, 3.5]).astype(dtype)
        y = np.array([1.0, 0.5, 4.0, 2.0]).astype(dtype)
        got = run1(lambda b, x, y: b.add(b.mul(x, y), x), x, y)
        product = (x.astype(np.float32) * y.astype(np.float32)).astype(dtype)
        want = (product.astype(np.float32) + x.astype(np.float32)).astype(dtype)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    np.testing.assert_array_equal(run1(lambda b, x: b.convert(x, types.F32), x), x.astype(np.float32))
    constant = run1(lambda b: b.constant(x))
    assert constant.tobytes() == x.tobytes()


@pytest.mark.parametrize("text", ["(1.0, -2.5)", "[(1.0, 2.0), (0x7F800000, -0.0)]", "(0x7FC00000, 3.0)"])
def test_complex_literals(text):
    source = (
        f"func.func @main() {{\n  %c = hlo.constant dense<{text}> : tensor<2xcomplex<f32>>\n  func.return\n}}"
    )
    printed = print_module(parse_module(source))
    assert f"dense<{text}> : tensor<2xcomplex<f32>>" in printed
    assert print_module(parse_module(printed)) == printed


@pytest.mark.parametrize("text", ["1.0", "(1.0)", "(1.0, 2.0, 3.0)", "((1.0, 2.0), 3.0)", "(true, 1.0)"])
def test_bad_complex_literals(text):
    with pytest.raises(ProgramError):
        parse_module(
            f"func.func @main() {{\n  %c = hlo.constant dense<{text}> : tensor<2xcomplex<f32>>\n  func.return\n}}"
        )


def integers(*shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def test_on_every_device():
    x, y = integers(4, 6), integers(4, 6, seed=1)
    low, high = integers(4, 6, seed=2), integers(4, 6, seed=3)
    assert check_local(lambda b, a, x, z: b.clamp(a, x, z), [low, x, high], limit=40) > 40
    scalars = [np.array(-1.0), x, np.array(2.0)]
    assert check_local(lambda b, a, x, z: b.clamp(a, x, z), scalars, limit=40) > 40
    for method in ("round_nearest_afz", "cbrt"):
        check_local(lambda b, x, m=method: getattr(b, m)(x), [x], limit=12)
    check_local(lambda b, x: b.reduce_precision(x, 5, 2), [x * 1.37], limit=24)
    check_local(lambda b, x, y: b.optimization_barrier([x, y]), [x, y[0]], limit=40)
    for method in ("popcnt", "count_leading_zeros"):
        check_local(lambda b, x, m=method: getattr(b, m)(x), [integers(4, 6, dtype=np.int32)], limit=12)
    check_local(lambda b, x: b.bitcast_convert(x, types.I32), [integers(4, 6, dtype=np.float32)], limit=12)
    for target in (types.I8, types.UI32, types.I64):
        check_local(
            lambda b, x, t=target: b.bitcast_convert(x, t), [integers(4, 2, dtype=np.int32)], limit=24
        )
    check_local(lambda b, x, y: b.compare_total(x, y, "lt"), [x, y], limit=12)
    check_local(lambda b, x, y: b.complex(x, y), [x, y], limit=40)
    z = x + 1j * y
    for method in ("real", "imag", "negate"):
        check_local(lambda b, z, m=method: getattr(b, m)(z), [z], limit=24)
    check_local(lambda b, z: b.complex_abs(z), [z], limit=12)
    check_local(lambda b, z: b.convert(z, types.F64), [z], limit=24)
    check_local(lambda b, z, w: b.mul(z, w), [z, z], limit=24)


def test_clamp_carries_all_that_is_sound():
    """Every group of partial operands, tried: those that give the clamped value are those that the rule names."""
    import itertools

    rng = np.random.default_rng(0)
    parts = rng.integers(-3, 4, (3, 2, 2000))  # operand, device, element
    module = build(lambda b, a, x, z: b.clamp(a, x, z), [types.tensor((4,), types.F64)] * 3)
    (op,) = [o for o in module.walk() if o.name == "hlo.clamp"]
    for kind, combine in (("max", np.max), ("min", np.min)):
        found = set()
        for size in (1, 2, 3):
            for group in itertools.combinations(range(3), size):
                whole_ = [combine(p, axis=0) if i in group else p[0] for i, p in enumerate(parts)]
                local = [
                    op.evaluate(*(p[d] if i in group else p[0] for i, p in enumerate(parts)))[0]
                    for d in (0, 1)
                ]
                if np.array_equal(combine(np.stack(local), axis=0), op.evaluate(*whole_)[0]):
                    found.add(group)
        assert set(op.rule().carries[kind]) == found


def test_errors():
    x = np.ones((2, 3), np.float32)
    for program, words in [
        (lambda b, x: b.clamp(b.full((3,), types.F32, 0), x, x), ["hlo.clamp", "operand 0", "f32[3]"]),
        (lambda b, x: b.clamp(b.full((), types.F64, 0), x, x), ["hlo.clamp", "f64[]"]),
        (lambda b, x: b.popcnt(x), ["hlo.popcnt", "integer"]),
        (lambda b, x: b.bitcast_convert(x, types.F64), ["hlo.bitcast_convert", "2 elements"]),
        (lambda b, x: b.bitcast_convert(x, types.I1), ["hlo.bitcast_convert", "i1"]),
        (lambda b, x: b.reduce_precision(x, 0, 3), ["hlo.reduce_precision", "0 exponent bits"]),
        (lambda b, x: b.real(x), ["hlo.real", "complex"]),
        (lambda b, x: b.compare_total(b.convert(x, types.I32), b.convert(x, types.I32), "lt"), ["floats"]),
    ]:
        with pytest.raises(ProgramError) as error:
            run(program, x)
        for word in words:
            assert word in str(error.value)
