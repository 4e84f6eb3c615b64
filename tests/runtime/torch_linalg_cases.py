"""Cases of `test_torch_ops`: linear algebra, Fourier transforms, random bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch_op_check import draw, run

from rhino.ir import types


def _complex(name: str, *shape: int) -> np.ndarray:
    part = "f32" if name == "complex<f32>" else "f64"
    return draw(part, shape, 1) + 1j * draw(part, shape, 2)


def _matrices(name: str) -> np.ndarray:
    x = _complex(name, 2, 3, 3) if name.startswith("complex") else draw(name, (2, 3, 3), 1)
    wide = x.astype(np.complex128 if name.startswith("complex") else np.float64)
    return (wide @ np.conj(wide.swapaxes(-1, -2)) + 3 * np.eye(3)).astype(x.dtype)


def _cholesky() -> None:
    for name in ("f64", "f32", "bf16", "complex<f32>", "complex<f64>"):
        for lower in (True, False):
            run(lambda b, a, low=lower: b.cholesky(a, low), [_matrices(name)])
    run(lambda b, a: b.cholesky(a), [np.stack([np.diag([1.0, -1.0]), np.eye(2)])])
    run(lambda b, a: b.cholesky(a), [np.zeros((0, 2, 2))])


def _triangular_solve() -> None:
    for name in ("f64", "f32", "complex<f64>"):
        for how in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
            for left, lower, unit in ((True, True, False), (False, True, True), (True, False, False)):
                a = _matrices(name)
                b = np.ascontiguousarray(a[:, :, :2] if left else a[:, :2, :])
                run(
                    lambda c, a, b, o=(left, lower, unit, how): c.triangular_solve(a, b, *o),
                    [a, b],
                )


def _fft() -> None:
    for name in ("complex<f32>", "complex<f64>"):
        x = _complex(name, 2, 4, 6)
        for lengths in ([6], [4, 6]):
            for kind in ("FFT", "IFFT"):
                run(lambda b, x, k=kind, n=lengths: b.fft(x, k, n), [x])
            run(lambda b, x, n=lengths: b.fft(x, "RFFT", n), [x.real.copy()])
            half = [*lengths[:-1], 10]
            run(lambda b, x, n=half: b.fft(x, "IRFFT", n), [x])


def _rng_bit_generator() -> None:
    for algorithm in ("DEFAULT", "PHILOX", "THREE_FRY"):
        for name in ("ui8", "ui32", "i64"):
            kind = types.tensor((3, 5), types.element(name))
            run(
                lambda b, s, k=kind, a=algorithm: b.rng_bit_generator(s, k, a),
                [np.array([5, 9], np.uint64)],
                exact=True,
            )


CASES: dict[str, Callable[[], None]] = {
    "hlo.cholesky": _cholesky,
    "hlo.triangular_solve": _triangular_solve,
    "hlo.fft": _fft,
    "hlo.rng_bit_generator": _rng_bit_generator,
}
