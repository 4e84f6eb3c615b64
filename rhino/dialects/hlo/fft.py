"""Discrete Fourier transforms of the last dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import fft
from xdsl.dialects.builtin import StringAttr
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties, get_ints, get_text
from rhino.dialects.hlo.common import Cotangents, ints_def
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder

KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")


@irdl_op_definition
class FftOp(HloOp):
    """The Fourier transform of the last dimensions, of which `fft_length` gives the lengths.

    ``%y = hlo.fft %x "FFT" [4, 8] : tensor<3x4x8xcomplex<f32>> -> tensor<3x4x8xcomplex<f32>>``
    ``%y = hlo.fft %x "RFFT" [8] : tensor<3x8xf32> -> tensor<3x5xcomplex<f32>>``

    FFT, IFFT (divided by the number of elements); RFFT of real numbers, which keeps the first half of the last
    dimension; IRFFT, its inverse. Other dimensions may be split.
    """

    name = "hlo.fft"
    x = operand_def(TENSOR)
    fft_type = prop_def(StringAttr)
    fft_length = ints_def()
    result = result_def(TENSOR)
    assembly_format = "$x $fft_type $fft_length attr-dict `:` type($x) `->` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        kind, lengths = get_text(properties, "fft_type"), get_ints(properties, "fft_length")
        if kind not in KINDS:
            raise ProgramError(f"no transform '{kind}'", remedy=f"use one of {', '.join(KINDS)}")
        shape, element = list(x.get_shape()), x.element_type
        real_in = kind == "RFFT"
        if (element not in (types.F32, types.F64)) if real_in else not types.is_complex(element):
            raise ProgramError(
                f"operand 0 is {types.show(x)}, but {kind} takes {'f32 or f64' if real_in else 'complex'}"
            )
        half = [*lengths[:-1], lengths[-1] // 2 + 1] if lengths else []
        want = half if kind == "IRFFT" else list(lengths)
        if (
            not lengths
            or min(lengths) < 1
            or shape[len(shape) - len(lengths) :] != want
            or len(shape) < len(want)
        ):
            raise ProgramError(
                f"operand 0 is {types.show(x)}, but {kind} of length {list(lengths)} takes {want}"
            )
        kept = shape[: len(shape) - len(lengths)]
        if kind == "RFFT":
            return [types.tensor([*kept, *half], types.complex_of(element))]
        return [types.tensor([*kept, *lengths], types.real_part(element) if kind == "IRFFT" else element)]

    def rule(self) -> Rule:
        x, y = types.shape_of(self.x), types.shape_of(self.result)
        batch = len(x) - len(get_ints(self.properties, "fft_length"))
        kept = tuple((f"d{i}",) for i in range(batch))
        sizes = {f"d{i}": n for i, n in enumerate(x[:batch])}
        kinds: dict[str, str] = {}
        ends = []
        for tag, shape in (("x", x), ("y", y)):
            names = [f"{tag}{i}" for i in range(len(shape) - batch)]
            sizes.update(zip(names, shape[batch:], strict=True))
            kinds.update(dict.fromkeys(names, "whole"))
            ends.append((*kept, *((n,) for n in names)))
        return Rule((ends[0],), (ends[1],), sizes, kinds, linear=((0,),))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = operands
        lengths = get_ints(self.properties, "fft_length")
        axes = tuple(range(x.ndim - len(lengths), x.ndim))
        dtype = types.numpy_dtype(types.element_of(self.result))
        if x.size == 0:
            return (np.zeros((*x.shape[: axes[0]], *types.shape_of(self.result)[axes[0] :]), dtype),)
        transform = {"FFT": fft.fftn, "IFFT": fft.ifftn, "RFFT": fft.rfftn, "IRFFT": fft.irfftn}
        return (np.asarray(transform[self.fft_type.data](x, s=lengths, axes=axes)).astype(dtype, copy=False),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        """The transposed map; a transform's matrix is symmetric."""
        (dy,) = cotangents
        assert dy is not None
        b, kind = builder, self.fft_type.data
        lengths, rank = get_ints(self.properties, "fft_length"), len(types.shape_of(self.x))
        if kind in ("FFT", "IFFT"):
            return [b.fft(dy, kind, lengths)]
        if kind == "RFFT":  # the second half of the dimension was not kept
            high = [0] * (rank - 1) + [lengths[-1] - types.shape_of(dy)[-1]]
            return [b.real(b.fft(b.pad(dy, 0, [0] * rank, high), "FFT", lengths))]
        back = b.conj(b.fft(dy, "RFFT", lengths))
        shape = types.shape_of(back)
        # Elements of the half that is kept stand for their mirror images, too, but for those that have none.
        twice = np.full(shape[-1], 2.0)
        twice[0] = 1
        if lengths[-1] % 2 == 0:
            twice[-1] = 1
        weights = b.constant((twice / math.prod(lengths)).astype(types.numpy_dtype(types.element_of(dy))))
        spread = b.broadcast_in_dim(b.convert(weights, types.element_of(back)), shape, [rank - 1])
        return [b.mul(back, spread)]

    def flops(self) -> int:
        """Five N log2 N, the usual count."""
        count = math.prod(get_ints(self.properties, "fft_length"))
        shape = types.shape_of(self.x)
        batch = math.prod(shape[: len(shape) - len(get_ints(self.properties, "fft_length"))])
        return int(5 * batch * count * max(1.0, math.log2(max(2, count))))


OPS: list[type[HloOp]] = [FftOp]
