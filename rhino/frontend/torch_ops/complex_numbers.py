"""Complex numbers: their parts, conjugates and angles; Fourier transforms as products with cosines and sines."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops.context import Handler, OpContext, axis, cast
from rhino.frontend.torch_ops.numeric import angle as angle_of_real
from rhino.ir import types


def _is_complex(x: SSAValue) -> bool:
    return types.is_complex(types.element_of(x))


def make_complex(c: OpContext, real: SSAValue, imag: SSAValue) -> SSAValue:
    parts = types.real_part(c.element)
    return c.b.complex(*(c.broadcast(c.convert(v, parts), c.shape) for v in (real, imag)))


def polar(c: OpContext, size: SSAValue, angle: SSAValue) -> SSAValue:
    size, angle = (c.broadcast(v, c.shape) for v in (size, angle))
    return c.b.complex(c.b.mul(size, c.b.cos(angle)), c.b.mul(size, c.b.sin(angle)))


def real(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.real(x) if _is_complex(x) else x


def imag(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.imag(x)


def conj(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.conj(x) if _is_complex(x) else x


def view_as_real(c: OpContext, x: SSAValue) -> SSAValue:
    """The parts side by side along a new last dimension."""
    shape = types.shape_of(x)
    parts = [c.b.reshape(part, [*shape, 1]) for part in (c.b.real(x), c.b.imag(x))]
    return c.b.concatenate(parts, len(shape))


def view_as_complex(c: OpContext, x: SSAValue) -> SSAValue:
    shape = types.shape_of(x)
    low = [0] * len(shape)
    real = c.b.slice(x, low, [*shape[:-1], 1])
    imag = c.b.slice(x, [*low[:-1], 1], list(shape))
    return c.b.complex(c.b.reshape(real, list(c.shape)), c.b.reshape(imag, list(c.shape)))


def absolute(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.complex_abs(x) if _is_complex(x) else c.b.abs(c.convert(x, c.element))


def sign(c: OpContext, x: SSAValue) -> SSAValue:
    """x / |x|, or zero."""
    if types.element_of(x) == types.I1:
        return x
    return c.b.complex_sign(x) if _is_complex(x) else c.b.sign(x)


def angle(c: OpContext, x: SSAValue) -> SSAValue:
    if not _is_complex(x):
        return angle_of_real(c, x)
    b, re, im = c.b, c.b.real(x), c.b.imag(x)
    zero = b.and_(b.compare(re, c.full(0, re), "eq"), b.compare(im, c.full(0, im), "eq"))
    return b.select(zero, b.stop_gradient(b.atan2(im, re)), b.atan2(im, b.select(zero, c.full(1, re), re)))


def _waves(b: Builder, rows: int, columns: int, n: int, element: object) -> tuple[SSAValue, SSAValue]:
    """Cosine and sine of 2 pi j k / n for j in `rows`, k in `columns`; the product is taken modulo n, exactly."""
    type = types.tensor([rows, columns], types.I64)
    count = b.rem(b.mul(b.iota(type, 0), b.iota(type, 1)), b.full([rows, columns], types.I64, n))
    angle = b.convert(count, types.F64)
    angle = b.mul(angle, b.full_like(angle, 2 * math.pi / n))
    return cast(b, b.cos(angle), element), cast(b, b.sin(angle), element)  # type: ignore[arg-type]


def _along(b: Builder, x: SSAValue, matrix: SSAValue, dim: int) -> SSAValue:
    """`x` with a dimension multiplied by a matrix ``[extent, new extent]``."""
    last = len(types.shape_of(x)) - 1
    y = b.dot_general(x, matrix, contract=((dim,), (0,)))
    return y if dim == last else b.transpose(y, [*range(dim), last, *range(dim, last)])


def _scale(c: OpContext, x: SSAValue, n: int, mode: int) -> SSAValue:
    """Normalization as torch numbers it: none, by the root of n, by n."""
    factor = {0: 1.0, 1: 1 / math.sqrt(n), 2: 1.0 / n}[mode]
    return x if factor == 1 else c.b.mul(x, c.full(factor, x))


def _transform(c: OpContext, x: SSAValue, dim: int, forward: bool) -> SSAValue:
    b, n = c.b, types.shape_of(x)[dim]
    re, im = b.real(x), b.imag(x)
    cosine, sine = _waves(b, n, n, n, types.element_of(re))
    if forward:
        sine = b.negate(sine)
    new_re = b.sub(_along(b, re, cosine, dim), _along(b, im, sine, dim))
    return b.complex(new_re, b.add(_along(b, re, sine, dim), _along(b, im, cosine, dim)))


def fft_c2c(c: OpContext, x: SSAValue, dims: Sequence[int], normalization: int, forward: bool) -> SSAValue:
    shape = types.shape_of(x)
    over = [axis(d, len(shape)) for d in dims]
    for d in over:
        x = _transform(c, x, d, forward)
    return _scale(c, x, math.prod(shape[d] for d in over), normalization)


def fft_r2c(c: OpContext, x: SSAValue, dims: Sequence[int], normalization: int, onesided: bool) -> SSAValue:
    """The last of `dims` first, which is cut to its first half if `onesided`."""
    b, shape = c.b, types.shape_of(x)
    *rest, last = [axis(d, len(shape)) for d in dims]
    n = shape[last]
    cosine, sine = _waves(b, n, n // 2 + 1 if onesided else n, n, types.element_of(x))
    y = b.complex(_along(b, x, cosine, last), b.negate(_along(b, x, sine, last)))
    for d in rest:
        y = _transform(c, y, d, forward=True)
    return _scale(c, y, math.prod(shape[axis(d, len(shape))] for d in dims), normalization)


def fft_c2r(c: OpContext, x: SSAValue, dims: Sequence[int], normalization: int, size: int) -> SSAValue:
    """Back from the first half of a spectrum: its inner elements count twice, for their conjugates."""
    b, shape = c.b, types.shape_of(x)
    *rest, last = [axis(d, len(shape)) for d in dims]
    for d in rest:
        x = _transform(c, x, d, forward=False)
    half = size // 2 + 1
    x = b.slice(x, [0] * len(shape), [half if d == last else n for d, n in enumerate(types.shape_of(x))])
    re, im = b.real(x), b.imag(x)
    cosine, sine = _waves(b, half, size, size, types.element_of(re))
    row = b.iota(types.tensor([half, size], types.I64), 0)
    edge = b.compare(row, b.full_like(row, 0), "eq")
    if size % 2 == 0:
        edge = b.or_(edge, b.compare(row, b.full_like(row, size // 2), "eq"))
    weight = b.select(edge, b.full_like(cosine, 1), b.full_like(cosine, 2))
    y = b.sub(_along(b, re, b.mul(weight, cosine), last), _along(b, im, b.mul(weight, sine), last))
    return _scale(c, y, size * math.prod(shape[d] for d in rest), normalization)


ATEN: dict[str, Handler] = {
    "aten.complex.default": make_complex,
    "aten.polar.default": polar,
    "aten.real.default": real,
    "aten.imag.default": imag,
    "aten._conj.default": conj,
    "aten.conj.default": conj,
    "aten._conj_physical.default": conj,
    "aten.conj_physical.default": conj,
    "aten._neg_view.default": lambda c, x: c.b.negate(x),
    "aten.resolve_conj.default": lambda c, x: x,
    "aten.resolve_neg.default": lambda c, x: x,
    "aten.view_as_real.default": view_as_real,
    "aten.view_as_complex.default": view_as_complex,
    "aten.abs.default": absolute,
    "aten.sgn.default": sign,
    "aten.angle.default": angle,
    "aten._fft_c2c.default": fft_c2c,
    "aten._fft_r2c.default": fft_r2c,
    "aten._fft_c2r.default": fft_c2r,
}
