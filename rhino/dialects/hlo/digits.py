"""Index arithmetic between a device's local index and the global one: insert, delete and compare digits.

A digit ``(axis of size n, period P)`` with chunk ``c = P / n`` reads global index g as ``(a, k, r)``:
``g = a P + k c + r``, k the coordinate on the axis. Locally the middle place is missing: ``l = a c + r``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from rhino.dialects.hlo.base import Localizer
from rhino.ir import types
from rhino.ir.layout import Digit
from rhino.ir.mesh import AxisRef

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder

#: Neighbouring atoms that read as one number: ``(axes, size, period)``.
Place = tuple[tuple[AxisRef, ...], int, int]


def places(digits: Sequence[Digit]) -> list[Place]:
    """Join digits that continue one another (next period = this chunk), major to minor."""
    out: list[Place] = []
    for digit in digits:
        if out and digit.period == out[-1][2] // out[-1][1]:
            axes, size, period = out[-1]
            out[-1] = ((*axes, digit.axis), size * digit.axis.size, period)
        else:
            out.append(((digit.axis,), digit.axis.size, digit.period))
    return out


def local_to_global(
    b: Builder, index: SSAValue, digits: Sequence[Digit], ctx: Localizer, extent: int
) -> SSAValue:
    """Global indices (i64) of local indices along a dimension of global `extent` that carries `digits`."""
    # Minor places first: a place's period counts the elements with everything minor to it already put back.
    for axes, size, period in reversed(places(digits)):
        chunk = period // size
        here = _like(b, ctx.coordinate(axes), index)
        offset = _scale(b, here, chunk)
        if period == extent // _major(digits, period):
            index = b.add(index, offset)
        elif chunk == 1:
            index = b.add(_scale(b, index, period), offset)
        else:
            major, minor = _split(b, index, chunk)
            index = b.add(b.add(_scale(b, major, period), offset), minor)
    return index


def global_to_local(b: Builder, index: SSAValue, digits: Sequence[Digit], extent: int) -> SSAValue:
    """Local indices of global ones (i64, within ``[0, extent)``), whoever owns them; see `owned`."""
    # Major places first: they do not disturb the periods of those minor to them.
    for _, size, period in places(digits):
        chunk = period // size
        if period == extent:
            index = b.rem(index, b.full_like(index, chunk)) if chunk > 1 else b.full_like(index, 0)
        elif chunk == 1:
            index = b.div(index, b.full_like(index, period))
        else:
            major, _ = _split(b, index, period)
            index = b.add(_scale(b, major, chunk), b.rem(index, b.full_like(index, chunk)))
        extent //= size
    return index


def owned(b: Builder, index: SSAValue, digits: Sequence[Digit], ctx: Localizer, extent: int) -> SSAValue:
    """Which global indices (i64, within ``[0, extent)``) this device holds: i1 of the same shape."""
    mask: SSAValue | None = None
    for axes, size, period in places(digits):
        chunk = period // size
        digit = index if period == extent else b.rem(index, b.full_like(index, period))
        if chunk > 1:
            digit = b.div(digit, b.full_like(index, chunk))
        mine = b.compare(digit, _like(b, ctx.coordinate(axes), index), "eq")
        mask = mine if mask is None else b.and_(mask, mine)
    if mask is None:
        return b.full(types.shape_of(index), types.I1, True)
    return mask


def _major(digits: Sequence[Digit], period: int) -> int:
    """Product of the sizes of all digits with a larger period: what is still missing from the extent."""
    return math.prod(d.axis.size for d in digits if d.period > period)


def _like(b: Builder, scalar: SSAValue, like: SSAValue) -> SSAValue:
    shape = types.shape_of(like)
    return b.broadcast_in_dim(scalar, shape, ()) if shape else scalar


def _scale(b: Builder, x: SSAValue, factor: int) -> SSAValue:
    return x if factor == 1 else b.mul(x, b.full_like(x, factor))


def _split(b: Builder, index: SSAValue, by: int) -> tuple[SSAValue, SSAValue]:
    divisor = b.full_like(index, by)
    return b.div(index, divisor), b.rem(index, divisor)
