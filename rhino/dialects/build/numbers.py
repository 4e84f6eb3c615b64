"""Builder methods of the ops on bits, on complex numbers, and of clamp and its kin."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from rhino.dialects.build.core import BuilderCore
from rhino.dialects.hlo import bits, clamp, complex_numbers
from rhino.dialects.hlo.base import integer, text
from rhino.dialects.hlo.binary import DivOp
from rhino.dialects.hlo.constant import ConstantOp
from rhino.dialects.hlo.elementwise import CompareOp, SelectOp
from rhino.dialects.hlo.unary import NegateOp
from rhino.ir import types
from rhino.ir.dense import dense


class NumbersBuilder(BuilderCore):
    """See the ops of `rhino.dialects.hlo.clamp`, `.bits` and `.complex_numbers`."""

    def clamp(self, minimum: SSAValue, x: SSAValue, maximum: SSAValue) -> SSAValue:
        """The nearest to `x` in [minimum, maximum]; the bounds are scalars or have the shape of `x`."""
        return self.emit1(clamp.ClampOp, [minimum, x, maximum])

    def cbrt(self, x: SSAValue) -> SSAValue:
        return self.emit1(clamp.CbrtOp, [x])

    def round_nearest_afz(self, x: SSAValue) -> SSAValue:
        return self.emit1(clamp.RoundNearestAfzOp, [x])

    def reduce_precision(self, x: SSAValue, exponent_bits: int, mantissa_bits: int) -> SSAValue:
        bits = {"exponent_bits": integer(exponent_bits), "mantissa_bits": integer(mantissa_bits)}
        return self.emit1(clamp.ReducePrecisionOp, [x], bits)

    def optimization_barrier(self, xs: Sequence[SSAValue]) -> tuple[SSAValue, ...]:
        return tuple(self.emit(clamp.OptimizationBarrierOp, list(xs)).results)

    def popcnt(self, x: SSAValue) -> SSAValue:
        return self.emit1(bits.PopcntOp, [x])

    def count_leading_zeros(self, x: SSAValue) -> SSAValue:
        return self.emit1(bits.CountLeadingZerosOp, [x])

    def bitcast_convert(self, x: SSAValue, element_type: Attribute) -> SSAValue:
        return self.emit1(bits.BitcastConvertOp, [x], {"element_type": element_type})

    def compare_total(self, x: SSAValue, y: SSAValue, direction: str) -> SSAValue:
        """As `compare`, in IEEE 754's total order of floats."""
        return self.emit1(bits.CompareTotalOp, [x, y], {"direction": text(direction)})

    def complex(self, x: SSAValue, y: SSAValue) -> SSAValue:
        """x + iy."""
        return self.emit1(complex_numbers.ComplexOp, [x, y])

    def real(self, z: SSAValue) -> SSAValue:
        return self.emit1(complex_numbers.RealOp, [z])

    def imag(self, z: SSAValue) -> SSAValue:
        return self.emit1(complex_numbers.ImagOp, [z])

    def conj(self, z: SSAValue) -> SSAValue:
        """x - iy of x + iy."""
        return self.complex(self.real(z), self.emit1(NegateOp, [self.imag(z)]))

    def complex_sign(self, z: SSAValue) -> SSAValue:
        """z / abs(z), and 0 for 0: StableHLO's sign of a complex number."""
        r = self.complex_abs(z)
        zero = self.emit1(ConstantOp, [], {"value": dense(0, types.type_of(r))})
        one = self.emit1(ConstantOp, [], {"value": dense(1, types.type_of(r))})
        r = self.emit1(SelectOp, [self.emit1(CompareOp, [r, zero], {"direction": text("eq")}), one, r])
        return self.emit1(DivOp, [z, self.complex(r, zero)])

    def complex_abs(self, z: SSAValue) -> SSAValue:
        """The modulus, a real number."""
        return self.emit1(complex_numbers.ComplexAbsOp, [z])
