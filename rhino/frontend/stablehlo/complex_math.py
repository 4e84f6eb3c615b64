"""Inverse and hyperbolic functions of complex numbers, after Kahan, "Branch Cuts" (1987).

Each takes and returns a pair of real values; square roots are those of complex numbers, so that nothing cancels.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder

Real = Callable[[Builder, SSAValue], SSAValue]


class ComplexMath:
    """Functions of complex values; `asinh`, `sinh` and `cosh` of real ones are given."""

    def __init__(self, asinh: Real, sinh: Real, cosh: Real) -> None:
        self._asinh, self._sinh, self._cosh = asinh, sinh, cosh

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
        x, y = b.real(z), b.imag(z)
        one = b.full_like(x, 1)
        square = b.mul(y, y)
        gap = b.sub(one, x)
        ratio = b.div(b.mul(b.full_like(x, 4), x), b.add(b.mul(gap, gap), square))
        angle = b.atan2(b.add(y, y), b.sub(b.mul(gap, b.add(one, x)), square))
        return b.complex(b.mul(b.full_like(x, 0.25), b.log1p(ratio)), b.mul(b.full_like(x, 0.5), angle))

    def atan(self, b: Builder, z: SSAValue) -> SSAValue:
        return self._back(b, self.atanh(b, self._turn(b, z)))

    def sinh(self, b: Builder, z: SSAValue) -> SSAValue:
        x, y = b.real(z), b.imag(z)
        return b.complex(b.mul(self._sinh(b, x), b.cos(y)), b.mul(self._cosh(b, x), b.sin(y)))

    def cosh(self, b: Builder, z: SSAValue) -> SSAValue:
        x, y = b.real(z), b.imag(z)
        return b.complex(b.mul(self._cosh(b, x), b.cos(y)), b.mul(self._sinh(b, x), b.sin(y)))

    def tan(self, b: Builder, z: SSAValue) -> SSAValue:
        return self._back(b, b.tanh(self._turn(b, z)))
