"""Reductions, cumulative ops, sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops.context import Handler, Number, OpContext, axes, axis, keep_dims, spread
from rhino.frontend.torch_ops.pointwise import as_bool
from rhino.ir import types

Dims = int | Sequence[int] | None


def reduce(c: OpContext, x: SSAValue, dims: Dims, kind: str, keep: bool = False) -> SSAValue:
    """Reduce over `dims` (None or empty: all), with extent 1 left on them if `keep`."""
    shape = types.shape_of(x)
    over = axes(dims, len(shape))
    value = c.b.reduce(x, over, kind) if over else x
    return c.b.reshape(value, keep_dims(shape, over)) if keep and over else value


def count(shape: Sequence[int], dims: Sequence[int]) -> int:
    return math.prod(shape[d] for d in dims)


def mean_of(c: OpContext, x: SSAValue, dims: Dims, keep: bool = False) -> SSAValue:
    """Mean as a sum divided by the count, which rounds as torch does."""
    total = reduce(c, x, dims, "sum", keep)
    shape = types.shape_of(x)
    return c.b.div(total, c.full(count(shape, axes(dims, len(shape))), total))


def sum_(
    c: OpContext, x: SSAValue, dim: Dims = None, keepdim: bool = False, *, dtype: object = None
) -> SSAValue:
    """Half types are summed in f32, as torch does."""
    wide_x = c.widened(c.convert(x, c.element))
    return c.convert(reduce(c, wide_x, dim, "sum", keepdim), c.element)


def mean(
    c: OpContext, x: SSAValue, dim: Dims = None, keepdim: bool = False, *, dtype: object = None
) -> SSAValue:
    return c.convert(mean_of(c, c.widened(c.convert(x, c.element)), dim, keepdim), c.element)


def prod(
    c: OpContext, x: SSAValue, dim: Dims = None, keepdim: bool = False, *, dtype: object = None
) -> SSAValue:
    return reduce(c, c.convert(x, c.element), dim, "prod", keepdim)


def _extremum(kind: str) -> Handler:
    def handler(c: OpContext, x: SSAValue, dim: Dims = None, keepdim: bool = False) -> SSAValue:
        return reduce(c, x, dim, kind, keepdim)

    return handler


def _extremum_dim(arg: Callable[[Builder, SSAValue, int], SSAValue]) -> Handler:
    """Value and index; the value is picked by the index, so that its gradient goes to one element."""

    def handler(c: OpContext, x: SSAValue, dim: int, keepdim: bool = False) -> list[SSAValue]:
        shape = types.shape_of(x)
        if not shape:
            return [x, c.b.full([], types.I64, 0)]
        d = axis(dim, len(shape))
        index = arg(c.b, x, d)
        kept = c.b.reshape(index, keep_dims(shape, [d]))
        value = c.b.take_along(x, kept, d)
        return [value, kept] if keepdim else [c.b.reshape(value, types.shape_of(index)), index]

    return handler


def _arg_extremum(arg: Callable[[Builder, SSAValue, int], SSAValue]) -> Handler:
    def handler(c: OpContext, x: SSAValue, dim: int | None = None, keepdim: bool = False) -> SSAValue:
        shape = types.shape_of(x)
        if not shape:
            return c.b.full([], types.I64, 0)
        if dim is None:
            index = arg(c.b, c.b.reshape(x, [math.prod(shape)]), 0)
        else:
            index = arg(c.b, x, axis(dim, len(shape)))
        return index if types.shape_of(index) == c.shape else c.b.reshape(index, list(c.shape))

    return handler


def any_(c: OpContext, x: SSAValue, dim: Dims = None, keepdim: bool = False) -> SSAValue:
    return reduce(c, as_bool(c, x), dim, "or", keepdim)


def all_(c: OpContext, x: SSAValue, dim: Dims = None, keepdim: bool = False) -> SSAValue:
    return reduce(c, as_bool(c, x), dim, "and", keepdim)


def moments(c: OpContext, x: SSAValue, dims: Dims, correction: float = 0) -> tuple[SSAValue, SSAValue]:
    """Mean and (two-pass) variance over `dims`, which are dropped."""
    shape = types.shape_of(x)
    over = axes(dims, len(shape))
    mean = mean_of(c, x, over) if over else x
    centred = c.b.sub(x, spread(c.b, mean, shape, over))
    total = reduce(c, c.b.mul(centred, centred), over, "sum") if over else c.b.mul(centred, centred)
    return mean, c.b.div(total, c.full(max(count(shape, over) - correction, 0), total))


def _shaped(c: OpContext, x: SSAValue) -> SSAValue:
    """`x` with the result's extents of 1, in the result's type."""
    return c.convert(x if types.shape_of(x) == c.shape else c.b.reshape(x, list(c.shape)), c.element)


def var(
    c: OpContext, x: SSAValue, dim: Dims = None, *, correction: Number | None = 1, keepdim: bool = False
) -> SSAValue:
    _, variance = moments(c, c.widened(x), dim, 1 if correction is None else correction)
    return _shaped(c, variance)


def var_mean(
    c: OpContext, x: SSAValue, dim: Dims = None, *, correction: Number | None = 1, keepdim: bool = False
) -> list[SSAValue]:
    mean, variance = moments(c, c.widened(x), dim, 1 if correction is None else correction)
    return [_shaped(c, v) for v in (variance, mean)]


def std(
    c: OpContext, x: SSAValue, dim: Dims = None, *, correction: Number | None = 1, keepdim: bool = False
) -> SSAValue:
    _, variance = moments(c, c.widened(x), dim, 1 if correction is None else correction)
    return _shaped(c, _safe_sqrt(c, variance))


def _safe_sqrt(c: OpContext, x: SSAValue) -> SSAValue:
    """A square root whose derivative at zero is zero, as torch defines it for norms and deviations."""
    b, zero = c.b, c.full(0, x)
    at_zero = b.compare(x, zero, "eq")
    return b.select(at_zero, zero, b.sqrt(b.select(at_zero, c.full(1, x), x)))


def vector_norm(
    c: OpContext,
    x: SSAValue,
    ord: Number = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: object = None,
) -> SSAValue:
    if types.is_complex(types.element_of(x)):
        x = c.b.complex_abs(x)
    y = c.widened(c.convert(x, c.element))
    return c.convert(norm_of(c, y, ord, dim, keepdim), c.element)


def norm_of(c: OpContext, x: SSAValue, ord: Number, dim: Dims = None, keep: bool = False) -> SSAValue:
    """The norm of a given order, with torch's derivatives where it has none: zero at zero."""
    b = c.b
    if ord == 2:
        return _safe_sqrt(c, reduce(c, b.mul(x, x), dim, "sum", keep))
    size = b.abs(x)
    if ord in (math.inf, -math.inf):
        return reduce(c, size, dim, "max" if ord > 0 else "min", keep)
    if ord == 1:
        return reduce(c, size, dim, "sum", keep)
    if ord == 0:
        return reduce(c, b.convert(as_bool(c, x), types.element_of(x)), dim, "sum", keep)
    total = reduce(c, _powered(c, size, ord), dim, "sum", keep)
    return _powered(c, total, 1 / ord)


def _powered(c: OpContext, x: SSAValue, exponent: float) -> SSAValue:
    """A power of numbers >= 0 whose derivative at zero and infinity is zero."""
    b, zero = c.b, c.full(0, x)
    usual = b.and_(b.compare(x, zero, "ne"), b.is_finite(x))
    power = b.pow(b.select(usual, x, c.full(1, x)), c.full(exponent, x))
    at_zero, at_infinity = (0.0, math.inf) if exponent > 0 else (math.inf, 0.0)
    edge = b.select(b.compare(x, zero, "eq"), c.full(at_zero, x), c.full(at_infinity, x))
    edge = b.select(b.compare(x, x, "ne"), c.full(math.nan, x), edge)
    return b.select(usual, power, edge)


def logsumexp(c: OpContext, x: SSAValue, dim: Dims, keepdim: bool = False) -> SSAValue:
    b, y = c.b, c.widened(c.convert(x, c.element))
    shape = types.shape_of(y)
    over = axes(dim, len(shape))
    if not over:
        return y
    top = b.stop_gradient(b.reduce(y, over, "max"))
    top = b.select(b.is_finite(top), top, c.full(0, top))  # a row of -inf has no finite maximum
    total = b.reduce(b.exp(b.sub(y, spread(b, top, shape, over))), over, "sum")
    return _shaped(c, b.add(b.log(total), top))


def _cumulative(kind: str) -> Handler:
    def handler(c: OpContext, x: SSAValue, dim: int, *, dtype: object = None) -> SSAValue:
        y = c.convert(x, c.element)
        if not c.shape:
            return y
        return c.convert(c.b.cumulative(c.widened(y), axis(dim, len(c.shape)), kind), c.element)

    return handler


def sort(c: OpContext, x: SSAValue, dim: int = -1, descending: bool = False) -> list[SSAValue]:
    """Sorted values and where they came from; equal elements keep their order."""
    if not types.shape_of(x):
        return [x, c.b.full([], types.I64, 0)]
    d = axis(dim, len(c.shape))
    index = c.b.iota(types.tensor(c.shape, types.I64), d)
    values, order = c.b.sort([x, index], d, descending)
    return [values, order]


def sort_stable(
    c: OpContext, x: SSAValue, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> list[SSAValue]:
    return sort(c, x, dim, descending)


def topk(
    c: OpContext, x: SSAValue, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> list[SSAValue]:
    shape = types.shape_of(x)
    if not shape:
        return [x, c.b.full([], types.I64, 0)]
    d, last = axis(dim, len(shape)), len(shape) - 1
    perm = list(range(len(shape)))
    perm[d], perm[last] = perm[last], perm[d]
    y = x if d == last else c.b.transpose(x, perm)
    # The smallest are the largest after a flip of order: negation, or for integers the complement.
    order = c.b.negate if types.is_float(types.element_of(x)) else c.b.not_
    values, index = c.b.top_k(y if largest else order(y), k)
    values = values if largest else order(values)
    if d != last:
        values, index = c.b.transpose(values, perm), c.b.transpose(index, perm)
    return [values, index]


def hash_tensor(
    c: OpContext, x: SSAValue, dims: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0
) -> SSAValue:
    """The exclusive or of the elements' bits, floats as f64 and integers as i64."""
    b = c.b
    element = types.F64 if types.is_float(types.element_of(x)) else types.I64
    if mode != 0 or types.is_complex(types.element_of(x)):
        raise c.unsupported(f"mode {mode} of {types.element_of(x)}", remedy="hash real numbers with mode 0")
    bits = b.bitcast_convert(b.stop_gradient(c.convert(x, element)), types.UI64)
    over = axes(dims, len(types.shape_of(x)))
    if over:
        start = b.full([], types.UI64, 0)
        (bits,) = b.generic_reduce([bits], [start], over, lambda b, one, other: [b.xor(one, other)])
    return b.reshape(bits, list(c.shape))


ATEN: dict[str, Handler] = {
    "aten.hash_tensor.default": hash_tensor,
    "aten.sum.default": sum_,
    "aten.sum.dim_IntList": sum_,
    "aten.mean.default": mean,
    "aten.mean.dim": mean,
    "aten.prod.default": prod,
    "aten.prod.dim_int": prod,
    "aten.amax.default": _extremum("max"),
    "aten.amin.default": _extremum("min"),
    "aten.max.default": _extremum("max"),
    "aten.min.default": _extremum("min"),
    "aten.max.dim": _extremum_dim(Builder.argmax),
    "aten.min.dim": _extremum_dim(Builder.argmin),
    "aten.argmax.default": _arg_extremum(Builder.argmax),
    "aten.argmin.default": _arg_extremum(Builder.argmin),
    "aten.any.default": any_,
    "aten.any.dim": any_,
    "aten.any.dims": any_,
    "aten.all.default": all_,
    "aten.all.dim": all_,
    "aten.all.dims": all_,
    "aten.var.correction": var,
    "aten.std.correction": std,
    "aten.var_mean.correction": var_mean,
    "aten.linalg_vector_norm.default": vector_norm,
    "aten.logsumexp.default": logsumexp,
    "aten.cumsum.default": _cumulative("sum"),
    "aten.cumprod.default": _cumulative("prod"),
    "aten.sort.default": sort,
    "aten.sort.stable": sort_stable,
    "aten.topk.default": topk,
}
