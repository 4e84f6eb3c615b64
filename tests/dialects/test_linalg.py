"""Cholesky, triangular systems, Fourier transforms and random bits: against JAX and torch, on every device."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hloprog import build, normal, run, run1, type_like, vjp
from localcheck import check_local

from rhino.dialects.signature import Slot, main_of, set_arguments
from rhino.dialects.text import parse_module, print_module
from rhino.ir import types
from rhino.ir.errors import ProgramError, UnsupportedError
from rhino.ir.evaluate import run_module
from rhino.passes.autodiff import differentiate


@pytest.fixture(autouse=True, scope="module")
def double():
    with jax.enable_x64(True):
        yield


def definite(*batch, n=4, dtype=np.float64, seed=0):
    x = normal(*batch, n, n, seed=seed)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * normal(*batch, n, n, seed=seed + 1)
    return (x @ np.conj(np.swapaxes(x, -1, -2)) + n * np.eye(n)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.complex64, np.complex128])
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(dtype, lower):
    a = definite(2, 3, dtype=dtype)
    junk = np.triu(np.full_like(a, 7), 1)
    got = run1(
        lambda b, a: b.cholesky(a, lower),
        (np.tril(a) + junk) if lower else (np.triu(a) + junk.swapaxes(-1, -2)),
    )
    assert got.dtype == dtype
    factor = got if lower else np.conj(got.swapaxes(-1, -2))
    wide = a.astype(np.complex128)
    np.testing.assert_allclose(
        factor,
        np.linalg.cholesky(wide),
        rtol=1e-2 if dtype == np.float16 else 1e-5,
        atol=1e-2 if dtype == np.float16 else 1e-5,
    )
    assert not np.any(np.triu(factor, 1))


def test_cholesky_of_an_indefinite_matrix_is_nan():
    a = np.stack([np.diag([1.0, -1.0]), np.eye(2)])
    got = run1(lambda b, a: b.cholesky(a), a)
    assert np.isnan(got[0][np.tril_indices(2)]).all()
    np.testing.assert_array_equal(got[1], np.eye(2))


def numeric(function, x, dy, step=1e-6):
    out = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        d = np.zeros_like(x)
        d[i] = step
        out[i] = np.sum((function(x + d) - function(x - d)) / (2 * step) * dy)
    return out


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_gradient(lower):
    a, dy = definite(2, n=3), normal(2, 3, 3, seed=7)
    (da,) = vjp(lambda b, a: b.cholesky(a, lower), [a], [dy])
    want = numeric(lambda a: run1(lambda b, a: b.cholesky(a, lower), a), a, dy)
    np.testing.assert_allclose(da, want, rtol=1e-6, atol=1e-7)
    with pytest.raises(UnsupportedError):
        vjp(lambda b, a: b.cholesky(a), [a.astype(np.complex128)], [dy.astype(np.complex128)])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
@pytest.mark.parametrize("how", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_solve(dtype, how, left, lower, unit):
    a, b = definite(2, n=3, dtype=dtype), normal(2, 3, 5, seed=3).astype(dtype)
    b = b if left else np.ascontiguousarray(b.swapaxes(-1, -2))
    got = run1(lambda c, a, b: c.triangular_solve(a, b, left, lower, unit, how), a, b)
    want = jax.lax.linalg.triangular_solve(
        a,
        b,
        left_side=left,
        lower=lower,
        transpose_a=how != "NO_TRANSPOSE",
        conjugate_a=how == "ADJOINT",
        unit_diagonal=unit,
    )
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=1e-4 if dtype == np.float32 else 1e-10)


@pytest.mark.parametrize("how", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower, unit", [(True, False), (False, True)])
def test_triangular_solve_gradient(how, left, lower, unit):
    a, b = definite(2, n=3), normal(2, 3, 2, seed=3)
    b = b if left else np.ascontiguousarray(b.swapaxes(-1, -2))
    dy = normal(*b.shape, seed=4)

    def reference(a, b):
        return jax.lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=how != "NO_TRANSPOSE", unit_diagonal=unit
        )

    want = jax.vjp(reference, a, b)[1](dy)
    got = vjp(lambda c, a, b: c.triangular_solve(a, b, left, lower, unit, how), [a, b], [dy])
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-12)


def gradients(program, *arrays):
    """Of a real loss with respect to real parameters."""
    module = build(program, [type_like(a) for a in arrays])
    set_arguments(main_of(module), [Slot(f"p{i}", "parameter") for i in range(len(arrays))])
    differentiate(module)
    return run_module(module, list(arrays))


@pytest.mark.parametrize("how", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_complex_triangular_solve_gradient(how):
    parts = [normal(3, 3, seed=i) + 2 * np.eye(3) for i in (1, 2)] + [normal(3, 2, seed=i) for i in (3, 4)]

    def program(c, p, q, r, s):
        x = c.triangular_solve(c.complex(p, q), c.complex(r, s), transpose_a=how)
        return c.reduce(c.mul(c.complex_abs(x), c.imag(x)), (0, 1), "sum")

    def reference(p, q, r, s):
        a = torch.tril(torch.complex(p, q))
        a = {"NO_TRANSPOSE": a, "TRANSPOSE": a.mT, "ADJOINT": a.mH}[how]
        x = torch.linalg.solve(a, torch.complex(r, s))
        return (x.abs() * x.imag).sum()

    tensors = [torch.tensor(p, requires_grad=True) for p in parts]
    reference(*tensors).backward()
    for got, tensor in zip(gradients(program, *parts)[1:], tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-8, atol=1e-10)


def test_a_singular_system_is_no_crash():
    got = run1(lambda c, a, b: c.triangular_solve(a, b), np.zeros((2, 2)), np.ones((2, 1)))
    assert not np.isfinite(got).any()


LENGTHS = [([8], (3, 8)), ([5], (2, 5)), ([4, 6], (2, 4, 6)), ([3, 5], (3, 5)), ([2, 3, 4], (2, 3, 4))]


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("lengths, shape", LENGTHS)
@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
def test_fft(kind, lengths, shape, double):
    if kind == "IRFFT":
        shape = (*shape[:-1], lengths[-1] // 2 + 1)
    x = normal(*shape) if kind == "RFFT" else normal(*shape) + 1j * normal(*shape, seed=1)
    x = x if double else x.astype(np.float32 if kind == "RFFT" else np.complex64)
    want = np.asarray(jax.lax.fft(jnp.asarray(x), getattr(jax.lax.FftType, kind), tuple(lengths)))
    got = run1(lambda b, x: b.fft(x, kind, lengths), x)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-10 if double else 1e-4, atol=1e-10 if double else 1e-5)


@pytest.mark.parametrize("lengths, shape", LENGTHS)
@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
def test_fft_gradient(kind, lengths, shape):
    if kind == "IRFFT":
        shape = (*shape[:-1], lengths[-1] // 2 + 1)
    x, y = normal(*shape), normal(*shape, seed=1)
    dims = tuple(range(-len(lengths), 0))

    def program(b, x, y):
        z = b.fft(x if kind == "RFFT" else b.complex(x, y), kind, lengths)
        real, imag = (z, z) if kind == "IRFFT" else (b.real(z), b.imag(z))
        loss = b.mul(real, b.sin(imag))
        return b.reduce(loss, range(len(shape)), "sum")

    def reference(x, y):
        z = x if kind == "RFFT" else torch.complex(x, y)
        transform = {
            "FFT": torch.fft.fftn,
            "IFFT": torch.fft.ifftn,
            "RFFT": torch.fft.rfftn,
            "IRFFT": torch.fft.irfftn,
        }
        z = transform[kind](z, s=lengths, dim=dims)
        real, imag = (z, z) if kind == "IRFFT" else (z.real, z.imag)
        return (real * torch.sin(imag)).sum()

    tensors = [torch.tensor(v, requires_grad=True) for v in (x, y)]
    loss = reference(*tensors)
    loss.backward()
    got = gradients(program, x, y)
    np.testing.assert_allclose(got[0], loss.detach().numpy(), rtol=1e-10)
    np.testing.assert_allclose(got[1], tensors[0].grad.numpy(), rtol=1e-8, atol=1e-10)
    if kind != "RFFT":
        np.testing.assert_allclose(got[2], tensors[1].grad.numpy(), rtol=1e-8, atol=1e-10)


SHAPES = [(), (1,), (3,), (8,), (2, 3), (3, 5), (3, 4, 5), (1, 1), (5, 1, 3)]


@pytest.mark.parametrize("algorithm", ["DEFAULT", "PHILOX", "THREE_FRY"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_random_bits_equal_xla(algorithm, dtype):
    states = [[1, 2], [2**64 - 1, 2**64 - 2], [123456789123456789, 2**63 + 5]]
    for state in states:
        state = np.array(state, np.uint64)
        for shape in SHAPES:
            want_state, want = jax.lax.rng_bit_generator(
                jnp.asarray(state),
                shape,
                dtype=dtype,
                algorithm=getattr(jax.lax.RandomAlgorithm, f"RNG_{algorithm}"),
            )
            kind = types.tensor(shape, types.from_numpy(np.dtype(dtype)))
            after, got = run(lambda b, s, k=kind: b.rng_bit_generator(s, k, algorithm), state)
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, want, err_msg=f"{state} {shape}")
            np.testing.assert_array_equal(after, want_state, err_msg=f"{state} {shape}")


def test_signed_random_bits_and_a_wide_counter():
    state = np.array([7, 2**64 - 1, 3], np.uint64)
    after, got = run(lambda b, s: b.rng_bit_generator(s, types.tensor((8,), types.I32), "PHILOX"), state)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(after, [7, 1, 4])  # two blocks of four words: the carry goes up
    again, tail = run(
        lambda b, s: b.rng_bit_generator(s, types.tensor((4,), types.I32), "PHILOX"),
        np.array([7, 0, 4], np.uint64),
    )
    np.testing.assert_array_equal(got[4:], tail)
    np.testing.assert_array_equal(again, after)


def test_rng_is_made_of_other_ops():
    low, high = np.array(-2.0), np.array(3.0)
    u = run1(lambda b, a, z: b.rng(a, z, (50, 100), "UNIFORM", 3), low, high)
    assert -2 <= u.min() < -1.9 and 2.9 < u.max() < 3 and abs(u.mean() - 0.5) < 0.1
    n = run1(lambda b, a, z: b.rng(a, z, (50, 100), "NORMAL", 3), low, high)
    assert abs(n.mean() + 2) < 0.15 and abs(n.std() - 3) < 0.1
    k = run1(lambda b, a, z: b.rng(a, z, (500,), "UNIFORM", 3), np.int32(2), np.int32(5))
    assert k.dtype == np.int32 and set(k) == {2, 3, 4}
    other = run1(lambda b, a, z: b.rng(a, z, (50, 100), "UNIFORM", 4), low, high)
    assert not np.array_equal(u, other)
    with pytest.raises(ProgramError, match="NORMAL"):
        run(lambda b, a, z: b.rng(a, z, (3,), "NORMAL", 0), np.int32(2), np.int32(5))


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float64)


def test_on_every_device():
    a = np.tile(np.diag([1.0, 4.0]), (4, 6, 1, 1))
    check_local(lambda b, a: b.cholesky(a), [a], limit=20)
    lower = np.tril(integers(4, 2, 2), -1) + np.eye(2) * 2
    assert check_local(lambda b, a, y: b.triangular_solve(a, y), [lower, integers(4, 2, 6)], limit=40) > 20
    right = integers(4, 6, 2)
    check_local(lambda b, a, y: b.triangular_solve(a, y, left_side=False), [lower, right], limit=40)
    z = integers(4, 6, 2) + 1j * integers(4, 6, 2, seed=1)
    check_local(lambda b, z: b.fft(z, "FFT", [2]), [z], limit=30)
    check_local(lambda b, z: b.fft(z, "RFFT", [2]), [z.real.copy()], limit=30)
    check_local(lambda b, z: b.fft(z, "IRFFT", [2]), [z], limit=30)


def test_random_bits_have_a_rule():
    kind = types.tensor((4, 6), types.UI32)
    module = build(lambda b, s: b.rng_bit_generator(s, kind), [types.tensor((2,), types.UI64)])
    (op,) = [o for o in module.walk() if o.name == "hlo.rng_bit_generator"]
    assert op.rule().result_only == {"d0", "d1"}
    assert op.rule().kind("state") == "whole"


def test_text():
    def program(b, a, y, z, s):
        return [
            b.cholesky(a, lower=False),
            b.triangular_solve(a, y, False, False, True, "ADJOINT"),
            b.fft(z, "IRFFT", [4]),
            *b.rng_bit_generator(s, types.tensor((3,), types.UI16), "THREE_FRY"),
        ]

    inputs = [
        types.tensor((2, 2), types.F32),
        types.tensor((3, 2), types.F32),
        types.tensor((3,), types.C64),
        types.tensor((2,), types.UI64),
    ]
    text = print_module(build(program, inputs))
    assert print_module(parse_module(text)) == text
    for part in (" upper ", '"ADJOINT" right unit ', '"IRFFT" [4]', '"THREE_FRY"'):
        assert part in text


def test_errors():
    x, z = normal(2, 3), normal(3) + 0j
    for program, words in [
        (lambda b, x, z: b.cholesky(x), "square"),
        (lambda b, x, z: b.triangular_solve(x, x), "square"),
        (
            lambda b, x, z: b.triangular_solve(b.matmul(x, b.transpose(x, (1, 0))), x, transpose_a="X"),
            "transpose_a",
        ),
        (lambda b, x, z: b.fft(x, "FFT", [3]), "complex"),
        (lambda b, x, z: b.fft(z, "FFT", [4]), "takes .4."),
        (lambda b, x, z: b.fft(z, "DCT", [3]), "no transform"),
        (lambda b, x, z: b.rng_bit_generator(x, types.tensor((2,), types.UI32)), "ui64"),
        (
            lambda b, x, z: b.rng_bit_generator(b.full((2,), types.UI64, 0), types.tensor((2,), types.F32)),
            "bitcast_convert",
        ),
    ]:
        with pytest.raises(ProgramError, match=words):
            run(program, x, z)
