"""Builder methods of linear algebra, Fourier transforms and random bits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, SSAValue

from rhino.dialects.build.makers import MakersBuilder
from rhino.dialects.build.shape import ShapeBuilder
from rhino.dialects.hlo.base import ints, text
from rhino.dialects.hlo.fft import FftOp
from rhino.dialects.hlo.linalg import CholeskyOp, TriangularSolveOp
from rhino.dialects.hlo.rng import RngBitGeneratorOp
from rhino.ir import types
from rhino.ir.errors import ProgramError


class LinalgBuilder(ShapeBuilder, MakersBuilder):
    """See the ops of `rhino.dialects.hlo.linalg`, `.fft` and `.rng`."""

    def cholesky(self, a: SSAValue, lower: bool = True) -> SSAValue:
        """L with a = L L^H, or U with a = U^H U; only that triangle of `a` is read."""
        return self.emit1(CholeskyOp, [a], {} if lower else {"upper": UnitAttr()})

    def triangular_solve(
        self,
        a: SSAValue,
        b: SSAValue,
        left_side: bool = True,
        lower: bool = True,
        unit_diagonal: bool = False,
        transpose_a: str = "NO_TRANSPOSE",
    ) -> SSAValue:
        """x with op(a) x = b, or x op(a) = b; only one triangle of `a` is read."""
        properties: dict[str, Attribute] = {"transpose_a": text(transpose_a)}
        for name, on in (("right", not left_side), ("lower", lower), ("unit_diagonal", unit_diagonal)):
            if on:
                properties[name] = UnitAttr()
        return self.emit1(TriangularSolveOp, [a, b], properties)

    def fft(self, x: SSAValue, fft_type: str, fft_length: Sequence[int]) -> SSAValue:
        """FFT, IFFT, RFFT or IRFFT of the last dimensions."""
        return self.emit1(FftOp, [x], {"fft_type": text(fft_type), "fft_length": ints(fft_length)})

    def rng_bit_generator(
        self, state: SSAValue, output_type: types.Type, rng_algorithm: str = "DEFAULT"
    ) -> tuple[SSAValue, SSAValue]:
        """The state after drawing, and random integers of a type."""
        properties = {"rng_algorithm": text(rng_algorithm), "output_type": output_type}
        after, output = self.emit(RngBitGeneratorOp, [state], properties).results
        return after, output

    def rng(
        self, a: SSAValue, b: SSAValue, shape: Sequence[int], rng_distribution: str, seed: int
    ) -> SSAValue:
        """StableHLO's rng: UNIFORM in [a, b), or NORMAL of mean a and deviation b (scalars), a function of `seed`.

        Philox of every element's index, so that the numbers do not depend on the layout. A program's draws differ if
        their seeds do. Raises ProgramError for other distributions.
        """
        element = types.element_of(a)
        work = element if types.is_float(element) else types.F64
        low, high = (self.broadcast_in_dim(self.convert(v, work), shape, ()) for v in (a, b))
        index, key = self.linear_index(shape), self.full((), types.I64, seed)
        if rng_distribution == "UNIFORM":
            drawn = self.add(low, self.mul(self.sub(high, low), self.random_uniform(key, index, work)))
            return self.convert(drawn if types.is_float(element) else self.floor(drawn), element)
        if rng_distribution != "NORMAL" or not types.is_float(element):
            raise ProgramError(f"no {rng_distribution} random numbers of type {types.element_name(element)}")
        first = self.random_uniform(key, self.add(index, index), work)
        second = self.random_uniform(key, self.add(self.add(index, index), self.full_like(index, 1)), work)
        # Box and Muller's transform, of numbers in (0, 1].
        radius = self.sqrt(
            self.mul(self.full_like(first, -2), self.log(self.sub(self.full_like(first, 1), first)))
        )
        wave = self.cos(self.mul(self.full_like(second, 2 * math.pi), second))
        return self.add(low, self.mul(high, self.mul(radius, wave)))
