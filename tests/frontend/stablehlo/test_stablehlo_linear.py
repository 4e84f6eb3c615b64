"""Batch normalisation against XLA, linear algebra and transforms against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rhino.frontend.stablehlo import read_stablehlo, write_stablehlo
from rhino.ir.evaluate import run_module


def op_text(name: str, attributes: str, operands: list[str], results: list[str]) -> str:
    """A module of one op in generic form."""
    arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(operands))
    names = ", ".join(f"%a{i}" for i in range(len(operands)))
    outs = ", ".join(results)
    bound, returned = "%r", "%r"
    if len(results) > 1:
        bound, returned = f"%r:{len(results)}", ", ".join(f"%r#{i}" for i in range(len(results)))
    kind = outs if len(results) == 1 else f"({outs})"
    return (
        f"func.func @main({arguments}) -> ({outs}) {{\n"
        f'  {bound} = "stablehlo.{name}"({names}) <{{{attributes}}}> : ({", ".join(operands)}) -> {kind}\n'
        f"  return {returned} : {outs}\n}}"
    )


X, V = "tensor<2x3x4xf32>", "tensor<3xf32>"


@pytest.mark.parametrize(
    ("name", "operands", "results"),
    [
        ("batch_norm_inference", [X, V, V, V, V], [X]),
        ("batch_norm_training", [X, V, V], [X, V, V]),
        ("batch_norm_grad", [X, V, V, V, X], [X, V, V]),
    ],
)
def test_batch_norm(name: str, operands: list[str], results: list[str]) -> None:
    pytest.importorskip("jax")
    import xla

    random = np.random.default_rng(0)
    arrays: list[Any] = [
        np.abs(random.normal(size=(2, 3, 4) if t == X else (3,))).astype(np.float32) for t in operands
    ]
    text = op_text(name, "epsilon = 1.0e-3 : f32, feature_index = 1 : i64", operands, results)
    for got, want in zip(run_module(read_stablehlo(text), arrays), xla.run(text, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)


C = "complex<f32>"


def ran(text: str, *arrays: Any) -> list[np.ndarray]:
    """Run, write, read back and run again: the same bits."""
    module = read_stablehlo(text)
    found = run_module(module, list(arrays))
    again = run_module(read_stablehlo(write_stablehlo(module)), list(arrays))
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)
    return found


@pytest.mark.parametrize(
    ("kind", "operand", "result", "function"),
    [
        ("FFT", f"2x6x{C}", f"2x6x{C}", np.fft.fft),
        ("IFFT", f"2x6x{C}", f"2x6x{C}", np.fft.ifft),
        ("RFFT", "2x6xf32", f"2x4x{C}", np.fft.rfft),
        ("IRFFT", f"2x4x{C}", "2x6xf32", lambda x: np.fft.irfft(x, 6)),
    ],
)
def test_fourier(kind: str, operand: str, result: str, function: Any) -> None:
    text = (
        f"func.func @main(%x: tensor<{operand}>) -> tensor<{result}> {{\n"
        f"  %0 = stablehlo.fft %x, type = {kind}, length = [6] : (tensor<{operand}>) -> tensor<{result}>\n"
        f"  return %0 : tensor<{result}>\n}}"
    )
    random = np.random.default_rng(0)
    shape = (2, 4) if kind == "IRFFT" else (2, 6)
    x = random.normal(size=shape).astype(np.float32)
    if kind != "RFFT":
        x = (x + 1j * random.normal(size=shape)).astype(np.complex64)
    if kind == "IRFFT":  # the ends of a real signal's spectrum are real
        x[:, [0, 3]] = x[:, [0, 3]].real
    np.testing.assert_allclose(ran(text, x)[0], function(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(lower: bool) -> None:
    text = (
        "func.func @main(%x: tensor<3x3xf64>) -> tensor<3x3xf64> {\n"
        f"  %0 = stablehlo.cholesky %x, lower = {str(lower).lower()} : tensor<3x3xf64>\n"
        "  return %0 : tensor<3x3xf64>\n}"
    )
    a = np.random.default_rng(0).normal(size=(3, 3))
    a = a @ a.T + np.eye(3)
    want = np.linalg.cholesky(a)
    np.testing.assert_allclose(ran(text, a)[0], want if lower else want.T, rtol=1e-12)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve(left: bool, transpose: str) -> None:
    b_type = "tensor<3x2xf64>" if left else "tensor<2x3xf64>"
    attributes = (
        f"left_side = {str(left).lower()}, lower = true, unit_diagonal = false, "
        f"transpose_a = #stablehlo<transpose {transpose}>"
    )
    text = op_text("triangular_solve", attributes, ["tensor<3x3xf64>", b_type], [b_type])
    random = np.random.default_rng(0)
    a = random.normal(size=(3, 3)) + 3 * np.eye(3)
    b = random.normal(size=(3, 2) if left else (2, 3))
    low = np.tril(a) if transpose == "NO_TRANSPOSE" else np.tril(a).T
    want = np.linalg.solve(low, b) if left else np.linalg.solve(low.T, b.T).T
    np.testing.assert_allclose(ran(text, a, b)[0], want, rtol=1e-10)


@pytest.mark.parametrize("algorithm", ["DEFAULT", "PHILOX", "THREE_FRY"])
@pytest.mark.parametrize("element", ["ui32", "ui64"])
def test_random_bits_are_those_of_xla(algorithm: str, element: str) -> None:
    pytest.importorskip("jax")
    import xla

    text = (
        f"func.func public @main(%s: tensor<2xui64>) -> (tensor<2xui64>, tensor<5x3x{element}>) {{\n"
        f"  %0:2 = stablehlo.rng_bit_generator %s, algorithm = {algorithm} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<5x3x{element}>)\n"
        f"  return %0#0, %0#1 : tensor<2xui64>, tensor<5x3x{element}>\n}}"
    )
    state = np.array([7, 2**40 + 1], np.uint64)
    for got, want in zip(ran(text, state), xla.run(text, [state]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_rng_keeps_its_distribution() -> None:
    text = """func.func @main() -> (tensor<4000xf32>, tensor<4000xf32>) {
  %a = stablehlo.constant dense<2.0> : tensor<f32>
  %b = stablehlo.constant dense<3.0> : tensor<f32>
  %n = stablehlo.constant dense<4000> : tensor<1xi64>
  %0 = stablehlo.rng %a, %b, %n, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4000xf32>
  %1 = stablehlo.rng %a, %b, %n, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4000xf32>
  return %0, %1 : tensor<4000xf32>, tensor<4000xf32>
}"""
    uniform, normal = run_module(read_stablehlo(text), [])
    assert uniform.min() >= 2 and uniform.max() < 3 and abs(uniform.mean() - 2.5) < 0.02
    assert abs(normal.mean() - 2) < 0.2 and abs(normal.std() - 3) < 0.2
