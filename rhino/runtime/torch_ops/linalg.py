"""Linear algebra, Fourier transforms and random bits in torch."""

from __future__ import annotations

import torch
from xdsl.ir import Operation

from rhino.dialects.hlo.base import get_ints, get_text
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction
from rhino.runtime.torch_ops.host import on_host


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _cholesky(op: Operation, ctx: Context) -> TensorFunction:
    upper = "upper" in op.properties

    def run(a: torch.Tensor) -> torch.Tensor:
        lower = torch.triu(_wide(a)).mH if upper else torch.tril(_wide(a))
        if lower.is_complex() or lower.numel():
            # torch reads one triangle; the diagonal of a Hermitian matrix is real.
            factor, info = torch.linalg.cholesky_ex(lower)
            bad = (info != 0)[..., None, None]
            factor = torch.where(bad, torch.full_like(factor, torch.nan), factor).tril()
        else:
            factor = lower
        return (factor.mH if upper else factor).to(a.dtype)

    return run


def _triangular_solve(op: Operation, ctx: Context) -> TensorFunction:
    how, left = get_text(op.properties, "transpose_a"), "right" not in op.properties
    upper, unit = "lower" not in op.properties, "unit_diagonal" in op.properties
    if how != "NO_TRANSPOSE":
        upper = not upper

    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        matrix = _wide(a)
        matrix = matrix.mT if how == "TRANSPOSE" else matrix.mH if how == "ADJOINT" else matrix
        x = torch.linalg.solve_triangular(matrix, _wide(b), upper=upper, left=left, unitriangular=unit)
        return x.to(b.dtype)

    return run


def _fft(op: Operation, ctx: Context) -> TensorFunction:
    lengths = get_ints(op.properties, "fft_length")
    dims = tuple(range(-len(lengths), 0))
    transform = {
        "FFT": torch.fft.fftn,
        "IFFT": torch.fft.ifftn,
        "RFFT": torch.fft.rfftn,
        "IRFFT": torch.fft.irfftn,
    }
    function = transform[get_text(op.properties, "fft_type")]
    return lambda x: function(x, s=lengths, dim=dims)


TABLE: dict[str, Lowering] = {
    "hlo.cholesky": _cholesky,
    "hlo.triangular_solve": _triangular_solve,
    "hlo.fft": _fft,
    "hlo.rng_bit_generator": on_host,
}
