"""Inverse and hyperbolic functions of complex numbers, after Kahan, "Branch Cuts" (1987).

Each takes and returns a pair of real values; square roots are those of complex numbers, so that nothing cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder

Real = Callable[[Builder, SSAValue], SSAValue]


class ComplexMath:
    """Functions of complex values; `asinh` of real ones is given."""

    def __init__(self, asinh: Real) -> None:
        self._asinh = asinh

    def _roots(self, b: Builder, z: SSAValue) -> tuple[SSAValue, SSAValue]:
        """Square roots of 1 - z and 1 + z."""
        one = b.full_like(z, 1)
        return b.sqrt(b.sub(one, z)), b.sqrt(b.add(one, z))

    @staticmethod
    def _turn(b: Builder, z: SSAValue) -> SSAValue:
        """iz."""
        return b.complex(b.negate(b.imag(z)), b.real(z))

    @staticmethod
    def _back(b: Builder, z: SSAValue) -> SSAValue:
        """-iz."""
        return b.complex(b.imag(z), b.negate(b.real(z)))

    @staticmethod
    def _cross(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
        """The imaginary part of conj(x) y."""
        return b.sub(b.mul(b.real(x), b.imag(y)), b.mul(b.imag(x), b.real(y)))

    @staticmethod
    def _dot(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
        """The real part of x y."""
        return b.sub(b.mul(b.real(x), b.real(y)), b.mul(b.imag(x), b.imag(y)))

    def asin(self, b: Builder, z: SSAValue) -> SSAValue:
        minus, plus = self._roots(b, z)
        return b.complex(
            b.atan2(b.real(z), self._dot(b, minus, plus)), self._asinh(b, self._cross(b, minus, plus))
        )

    def acos(self, b: Builder, z: SSAValue) -> SSAValue:
        minus, plus = self._roots(b, z)
        angle = b.atan2(b.real(minus), b.real(plus))
        return b.complex(b.add(angle, angle), self._asinh(b, self._cross(b, plus, minus)))

    def acosh(self, b: Builder, z: SSAValue) -> SSAValue:
        one = b.full_like(z, 1)
        minus, plus = b.sqrt(b.sub(z, one)), b.sqrt(b.add(z, one))
        real = b.add(b.mul(b.real(minus), b.real(plus)), b.mul(b.imag(minus), b.imag(plus)))
        angle = b.atan2(b.imag(minus), b.real(plus))
        return b.complex(self._asinh(b, real), b.add(angle, angle))

    def asinh(self, b: Builder, z: SSAValue) -> SSAValue:
        return self._back(b, self.asin(b, self._turn(b, z)))

    def atanh(self, b: Builder, z: SSAValue) -> SSAValue:
        """log1p(4|x| / ((1 - |x|)^2 + y^2)) / 4 with the sign of x, and half the angle of (1 - x^2 - y^2, 2y).

        Where squares would overflow |x| / (x^2 + y^2) is 1 / (|x| / y + y / |x|) / y, and the angle plus or minus pi.
        """
        x, y = b.real(z), b.imag(z)
        size, one, zero = b.abs(x), b.full_like(x, 1), b.full_like(x, 0)
        square, gap = b.mul(y, y), b.sub(one, size)
        far, bound = b.full_like(x, 2.0**53 + 2), b.full_like(x, (2.0**53 + 2) ** 2)
        near = b.and_(b.compare(size, bound, "lt"), b.compare(b.abs(y), bound, "lt"))
        ratio = b.div(b.div(one, b.add(b.div(size, y), b.div(y, size))), y)
        infinite = b.not_(b.and_(b.is_finite(x), b.is_finite(y)))
        ratio = b.select(infinite, zero, ratio)
        ratio = b.select(b.compare(b.mul(b.abs(y), far), size, "lt"), b.div(one, size), ratio)
        ratio = b.select(near, b.div(size, b.add(b.mul(gap, gap), square)), ratio)
        part = b.mul(b.full_like(x, 0.25), b.log1p(b.mul(b.full_like(x, 4), ratio)))
        part = b.select(b.compare(x, zero, "ge"), part, b.negate(part))
        angle = b.atan2(b.add(y, y), b.sub(b.mul(gap, b.add(one, size)), square))
        turn = b.select(b.compare(y, zero, "ge"), b.full_like(y, math.pi), b.full_like(y, -math.pi))
        angle = b.select(near, angle, turn)
        return b.complex(part, b.mul(b.full_like(x, 0.5), angle))

    def atan(self, b: Builder, z: SSAValue) -> SSAValue:
        return self._back(b, self.atanh(b, self._turn(b, z)))

    @staticmethod
    def _halves(b: Builder, z: SSAValue) -> tuple[SSAValue, SSAValue]:
        """exp(z) / 2 and exp(-z) / 2, which overflow only where the result does."""
        half = b.log(b.full_like(z, 0.5))
        return b.exp(b.add(z, half)), b.exp(b.sub(half, z))

    def sinh(self, b: Builder, z: SSAValue) -> SSAValue:
        return b.sub(*self._halves(b, z))

    def cosh(self, b: Builder, z: SSAValue) -> SSAValue:
        return b.add(*self._halves(b, z))

    def tan(self, b: Builder, z: SSAValue) -> SSAValue:
        return self._back(b, b.tanh(self._turn(b, z)))
