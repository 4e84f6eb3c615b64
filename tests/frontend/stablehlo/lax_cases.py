"""Calls of `jax.lax` primitives with drawn shapes, element types and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from jax import lax
from jaxcheck import Case

FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
INTEGERS = (*SIGNED, *UNSIGNED)
REAL = (*FLOATS, *INTEGERS)
NUMBERS = (*REAL, *COMPLEX)
ALL = (*NUMBERS, "bool")


class Draw:
    """Random shapes, dtypes and arrays from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """From `low` to `high`, both possible."""
        return int(self.random.integers(low, high + 1))

    def choice(self, items: Sequence[Any]) -> Any:
        return items[self.integer(0, len(items) - 1)]

    def shape(self, low: int = 0, high: int = 3, least: int = 1) -> tuple[int, ...]:
        return tuple(self.integer(least, 5) for _ in range(self.integer(low, high)))

    def array(self, dtype: str, shape: Sequence[int], low: float = -3.0, high: float = 3.0) -> np.ndarray:
        """Numbers in [low, high]; unsigned ones are shifted to begin at 0."""
        shape = tuple(shape)
        if dtype == "bool":
            return self.random.integers(0, 2, shape).astype(bool)
        kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        if kind.kind == "u":
            low, high = max(0.0, low), high + max(0.0, -low)
        if kind.kind in "iu":
            return self.random.integers(int(np.ceil(low)), int(high) + 1, shape).astype(kind)
        values = self.random.uniform(low, high, shape)
        if kind.kind == "c":
            values = values + 1j * self.random.uniform(low, high, shape)
        return np.asarray(values).astype(kind)


_UNARY: dict[str, tuple[Callable[..., Any], Sequence[str], float, float]] = {
    "abs": (lax.abs, (*FLOATS, *SIGNED, *COMPLEX), -9, 9),
    "acos": (lax.acos, (*FLOATS, *COMPLEX), -1, 1),
    "acosh": (lax.acosh, (*FLOATS, *COMPLEX), 1, 9),
    "asin": (lax.asin, (*FLOATS, *COMPLEX), -1, 1),
    "asinh": (lax.asinh, (*FLOATS, *COMPLEX), -9, 9),
    "atan": (lax.atan, (*FLOATS, *COMPLEX), -9, 9),
    "atanh": (lax.atanh, (*FLOATS, *COMPLEX), -0.9, 0.9),
    "bessel_i1e": (lax.bessel_i1e, FLOATS, -20, 20),
    "cbrt": (lax.cbrt, FLOATS, -9, 9),
    "ceil": (lax.ceil, FLOATS, -9, 9),
    "clz": (lax.clz, INTEGERS, -9, 99),
    "conj": (lax.conj, COMPLEX, -9, 9),
    "cos": (lax.cos, (*FLOATS, *COMPLEX), -5, 5),
    "cosh": (lax.cosh, (*FLOATS, *COMPLEX), -5, 5),
    "digamma": (lax.digamma, FLOATS, -4, 9),
    "erf": (lax.erf, FLOATS, -3, 3),
    "erfc": (lax.erfc, FLOATS, -3, 6),
    "erf_inv": (lax.erf_inv, FLOATS, -0.999, 0.999),
    "exp": (lax.exp, (*FLOATS, *COMPLEX), -4, 4),
    "expm1": (lax.expm1, (*FLOATS, *COMPLEX), -2, 2),
    "floor": (lax.floor, FLOATS, -9, 9),
    "imag": (lax.imag, COMPLEX, -9, 9),
    "is_finite": (lax.is_finite, FLOATS, -9, 9),
    "lgamma": (lax.lgamma, FLOATS, -4, 9),
    "log": (lax.log, (*FLOATS, *COMPLEX), 0.1, 9),
    "log1p": (lax.log1p, (*FLOATS, *COMPLEX), -0.5, 5),
    "logistic": (lax.logistic, (*FLOATS, *COMPLEX), -5, 5),
    "neg": (lax.neg, NUMBERS, -9, 9),
    "bitwise_not": (lax.bitwise_not, (*INTEGERS, "bool"), -9, 99),
    "population_count": (lax.population_count, INTEGERS, -9, 99),
    "real": (lax.real, COMPLEX, -9, 9),
    "round": (lax.round, FLOATS, -5, 5),
    "round_even": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), FLOATS, -5, 5),
    "rsqrt": (lax.rsqrt, (*FLOATS, *COMPLEX), 0.2, 9),
    "sign": (lax.sign, NUMBERS, -3, 3),
    "sin": (lax.sin, (*FLOATS, *COMPLEX), -5, 5),
    "sinh": (lax.sinh, (*FLOATS, *COMPLEX), -5, 5),
    "sqrt": (lax.sqrt, (*FLOATS, *COMPLEX), 0, 9),
    "square": (lax.square, NUMBERS, -3, 3),
    "tan": (lax.tan, (*FLOATS, *COMPLEX), -1, 1),
    "tanh": (lax.tanh, (*FLOATS, *COMPLEX), -3, 3),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 5, 7), FLOATS, -9, 9),
}

_BINARY: dict[str, tuple[Callable[..., Any], Sequence[str], float, float]] = {
    "add": (lax.add, NUMBERS, -90, 90),
    "atan2": (lax.atan2, FLOATS, -3, 3),
    "bitwise_and": (lax.bitwise_and, (*INTEGERS, "bool"), -99, 99),
    "bitwise_or": (lax.bitwise_or, (*INTEGERS, "bool"), -99, 99),
    "bitwise_xor": (lax.bitwise_xor, (*INTEGERS, "bool"), -99, 99),
    "complex": (lax.complex, ("float32", "float64"), -3, 3),
    "div": (lax.div, NUMBERS, -9, 9),
    "eq": (lax.eq, ALL, -2, 2),
    "ne": (lax.ne, ALL, -2, 2),
    "ge": (lax.ge, (*REAL, "bool"), -2, 2),
    "gt": (lax.gt, (*REAL, "bool"), -2, 2),
    "le": (lax.le, (*REAL, "bool"), -2, 2),
    "lt": (lax.lt, (*REAL, "bool"), -2, 2),
    "max": (lax.max, (*REAL, "bool"), -9, 9),
    "min": (lax.min, (*REAL, "bool"), -9, 9),
    "mul": (lax.mul, NUMBERS, -99, 99),
    "nextafter": (lax.nextafter, ("float32", "float64"), -9, 9),
    "polygamma": (lambda n, x: lax.polygamma(lax.floor(n), x), ("float32", "float64"), 0.5, 4),
    "pow": (lax.pow, ("float32", "float64", *COMPLEX), 0.2, 3),
    "rem": (lax.rem, REAL, -9, 9),
    "shift_left": (lax.shift_left, INTEGERS, 0, 12),
    "shift_right_arithmetic": (lax.shift_right_arithmetic, INTEGERS, 0, 99),
    "shift_right_logical": (lax.shift_right_logical, INTEGERS, 0, 99),
    "zeta": (lax.zeta, ("float32", "float64"), 1.5, 6),
    "sub": (lax.sub, NUMBERS, -90, 90),
}


def unary(d: Draw, name: str) -> Case:
    function, dtypes, low, high = _UNARY[name]
    dtype, shape = d.choice(dtypes), d.shape()
    return Case(f"{name} {dtype}{list(shape)}", function, (d.array(dtype, shape, low, high),))


def binary(d: Draw, name: str) -> Case:
    function, dtypes, low, high = _BINARY[name]
    dtype, shape = d.choice(dtypes), d.shape()
    arguments = tuple(d.array(dtype, shape, low, high) for _ in range(2))
    return Case(f"{name} {dtype}{list(shape)}", function, arguments)


def integer_pow(d: Draw) -> Case:
    dtype, shape, exponent = d.choice(NUMBERS), d.shape(), d.integer(0, 4)
    x = d.array(dtype, shape, -3, 3)
    return Case(f"integer_pow {dtype} {exponent}", lambda x: lax.integer_pow(x, exponent), (x,), slack=4)


def convert(d: Draw) -> Case:
    source, target, shape = d.choice(ALL), d.choice(ALL), d.shape()
    if source in COMPLEX and target not in COMPLEX:
        target = source
    x = d.array(source, shape, -200, 300)
    return Case(f"convert {source} {target}", lambda x: lax.convert_element_type(x, target), (x,))


def bitcast(d: Draw) -> Case:
    source = d.choice((*FLOATS, *INTEGERS))
    size = np.dtype(ml_dtypes.bfloat16 if source == "bfloat16" else source).itemsize
    same = {
        1: ("int8", "uint8"),
        2: ("int16", "float16", "bfloat16"),
        4: ("uint32", "float32"),
        8: ("int64",),
    }
    target = d.choice((*same[size], "uint8", "int16"))
    wide = np.dtype(ml_dtypes.bfloat16 if target == "bfloat16" else target).itemsize
    shape = (*d.shape(), wide // size) if wide > size else d.shape()
    x = d.array(source, shape, -200, 100)
    return Case(f"bitcast {source} {target}", lambda x: lax.bitcast_convert_type(x, target), (x,))


def select(d: Draw) -> Case:
    dtype, shape = d.choice(ALL), d.shape()
    which = d.array("bool", shape if d.integer(0, 1) else ())
    return Case(f"select {dtype}", lax.select_n, (which, d.array(dtype, shape), d.array(dtype, shape)))


def clamp(d: Draw) -> Case:
    dtype, shape = d.choice(REAL), d.shape()
    scalar = () if d.integer(0, 1) else shape
    bounds = d.array(dtype, scalar, -2, 0), d.array(dtype, scalar, 0, 2)
    return Case(f"clamp {dtype}", lax.clamp, (bounds[0], d.array(dtype, shape), bounds[1]))


def iota(d: Draw) -> Case:
    dtype, shape = d.choice(NUMBERS), d.shape(1)
    dim = d.integer(0, len(shape) - 1)
    return Case(f"iota {dtype}", lambda: lax.broadcasted_iota(dtype, shape, dim), ())


def broadcast_in_dim(d: Draw) -> Case:
    dtype, shape = d.choice(ALL), d.shape(1, 4)
    dims = sorted(d.random.choice(len(shape), d.integer(0, len(shape)), replace=False).tolist())
    x = d.array(dtype, [shape[i] if d.integer(0, 2) else 1 for i in dims])
    return Case(f"broadcast_in_dim {dtype}", lambda x: lax.broadcast_in_dim(x, shape, dims), (x,))


def reshape(d: Draw) -> Case:
    dtype = d.choice(ALL)
    a, b, c = (d.integer(1, 4) for _ in range(3))
    target = d.choice([(a * b, c), (a, b * c), (c, b, a), (a * b * c,)])
    return Case(f"reshape {dtype}", lambda x: lax.reshape(x, target), (d.array(dtype, (a, b, c)),))


def transpose(d: Draw) -> Case:
    dtype, shape = d.choice(ALL), d.shape(1, 4)
    order = d.random.permutation(len(shape)).tolist()
    return Case(f"transpose {dtype}", lambda x: lax.transpose(x, order), (d.array(dtype, shape),))


def rev(d: Draw) -> Case:
    dtype, shape = d.choice(ALL), d.shape(1)
    dims = [i for i in range(len(shape)) if d.integer(0, 1)]
    return Case(f"rev {dtype}", lambda x: lax.rev(x, dims), (d.array(dtype, shape),))


def concatenate(d: Draw) -> Case:
    dtype, shape = d.choice(ALL), list(d.shape(1))
    dim = d.integer(0, len(shape) - 1)
    parts = []
    for _ in range(d.integer(1, 3)):
        shape[dim] = d.integer(0, 3)
        parts.append(d.array(dtype, shape))
    return Case(f"concatenate {dtype}", lambda *xs: lax.concatenate(xs, dim), tuple(parts))


def pad(d: Draw) -> Case:
    dtype, shape = d.choice(ALL), d.shape()
    least = [-1 if n > 1 else 0 for n in shape]
    config = [(d.integer(low, 2), d.integer(low, 2), d.integer(0, 2)) for low in least]
    constant = d.integer(0, 1)
    value = d.array(dtype, ())
    x = d.array(dtype, shape, -3, 3)
    if constant:
        return Case(f"pad {dtype} {config}", lambda x: lax.pad(x, value, config), (x,))
    return Case(f"pad {dtype} {config}", lambda x, v: lax.pad(x, v, config), (x, value))


def slice_(d: Draw) -> Case:
    dtype, shape = d.choice(ALL), d.shape(1)
    start = [d.integer(0, n - 1) for n in shape]
    limit = [d.integer(s, n) for s, n in zip(start, shape, strict=True)]
    strides = [d.integer(1, 3) for _ in shape]
    return Case(f"slice {dtype}", lambda x: lax.slice(x, start, limit, strides), (d.array(dtype, shape),))


def dynamic_slice(d: Draw) -> Case:
    dtype, shape, index = d.choice(ALL), d.shape(1), d.choice(INTEGERS)
    sizes = [d.integer(1, n) for n in shape]
    starts = tuple(d.array(index, (), -2, 6) for _ in shape)
    x = d.array(dtype, shape)
    return Case(f"dynamic_slice {dtype} {index}", lambda x, *s: lax.dynamic_slice(x, s, sizes), (x, *starts))


def dynamic_update_slice(d: Draw) -> Case:
    dtype, shape, index = d.choice(ALL), d.shape(1), d.choice(INTEGERS)
    update = d.array(dtype, [d.integer(1, n) for n in shape])
    starts = tuple(d.array(index, (), -2, 6) for _ in shape)
    return Case(
        f"dynamic_update_slice {dtype} {index}",
        lambda x, u, *s: lax.dynamic_update_slice(x, u, s),
        (d.array(dtype, shape), update, *starts),
    )


_REDUCERS: dict[str, tuple[Any, Sequence[str]]] = {
    "sum": (lax.add, NUMBERS),
    "prod": (lax.mul, NUMBERS),
    "max": (lax.max, REAL),
    "min": (lax.min, REAL),
    "and": (lax.bitwise_and, ("bool", *SIGNED)),
    "or": (lax.bitwise_or, ("bool", *INTEGERS)),
    "xor": (lax.bitwise_xor, ("bool", *INTEGERS)),
}


def reduce(d: Draw) -> Case:
    name = d.choice(list(_REDUCERS))
    function, dtypes = _REDUCERS[name]
    # XLA leaves the initial value out where nothing is combined: extents are 2 or more.
    dtype, shape = d.choice(dtypes), d.shape(1, 3, 2)
    dims = [i for i in range(len(shape)) if d.integer(0, 1)] or [0]
    x = d.array(dtype, shape, 0.5, 2) if name == "prod" else d.array(dtype, shape)
    init = d.array(dtype, ())
    if name == "prod":
        init = np.ones((), x.dtype)
    return Case(f"reduce {name} {dtype}", lambda x: lax.reduce(x, init, function, dims), (x,), slack=4)


def argminmax(d: Draw) -> Case:
    dtype, shape = d.choice(REAL), d.shape(1)
    dim, index = d.integer(0, len(shape) - 1), d.choice(("int32", "int64", "uint8"))
    function = d.choice((lax.argmax, lax.argmin))
    x = d.array(dtype, shape, -2, 2)
    if dtype in FLOATS and d.integer(0, 1):
        x.reshape(-1)[d.integer(0, x.size - 1)] = np.nan
    return Case(f"{function.__name__} {dtype} {index}", lambda x: function(x, dim, index), (x,))


def cumulative(d: Draw) -> Case:
    function = d.choice((lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp))
    dtypes = ("float32", "float64") if function in (lax.cumlogsumexp, lax.cumprod) else REAL
    dtype, shape, reverse = d.choice(dtypes), d.shape(1), bool(d.integer(0, 1))
    dim = d.integer(0, len(shape) - 1)
    x = d.array(dtype, shape)
    return Case(f"{function.__name__} {dtype}", lambda x: function(x, dim, reverse), (x,), slack=8)


def dot_general(d: Draw) -> Case:
    dtype = d.choice(NUMBERS)
    sizes = {k: d.integer(1, 4) for k in "bcdmn"}
    lhs, rhs = list("bcdm"), list("bcdn")
    d.random.shuffle(lhs)
    d.random.shuffle(rhs)
    batch = "b" if d.integer(0, 1) else ""
    contract = [k for k in "bcd" if k not in batch]
    numbers = (
        ([lhs.index(k) for k in contract], [rhs.index(k) for k in contract]),
        ([lhs.index(k) for k in batch], [rhs.index(k) for k in batch]),
    )
    preferred = (
        {"int8": "int32", "bfloat16": "float32", "uint8": "uint32"}.get(dtype) if d.integer(0, 1) else None
    )
    arguments = (d.array(dtype, [sizes[k] for k in lhs]), d.array(dtype, [sizes[k] for k in rhs]))
    return Case(
        f"dot_general {dtype} {preferred}",
        lambda x, y: lax.dot_general(x, y, numbers, preferred_element_type=preferred),
        arguments,
        slack=8,
    )


def convolution(d: Draw) -> Case:
    dtype = d.choice(("float32", "float64", "bfloat16", "int32"))
    rank, groups, batch_groups = d.integer(1, 2), 1, 1
    which = d.integer(0, 3)
    groups = 2 if which == 1 else 1
    batch_groups = 2 if which == 2 else 1
    spatial = [d.integer(3, 6) for _ in range(rank)]
    window = [d.integer(1, 3) for _ in range(rank)]
    inputs, outputs = 2 * groups, 2 * groups * batch_groups
    letters = "HW"[:rank]
    orders = [list("NC" + letters), list("OI" + letters), list("NC" + letters)]
    for order in orders:
        d.random.shuffle(order)
    sizes = dict(zip(letters, spatial, strict=True)) | {"N": 2 * batch_groups, "C": inputs}
    kernel = dict(zip(letters, window, strict=True)) | {"O": outputs, "I": inputs // groups}
    x = d.array(dtype, [sizes[k] for k in orders[0]])
    w = d.array(dtype, [kernel[k] for k in orders[1]])
    strides = [d.integer(1, 2) for _ in range(rank)]
    padding = [(d.integer(0, 2), d.integer(-1, 2)) for _ in range(rank)]
    lhs_dilation = [d.integer(1, 2) for _ in range(rank)]
    rhs_dilation = [d.integer(1, 2) for _ in range(rank)]
    names = tuple("".join(order) for order in orders)
    return Case(
        f"conv {dtype} {names} groups {groups} {batch_groups}",
        lambda x, w: lax.conv_general_dilated(
            x, w, strides, padding, lhs_dilation, rhs_dilation, names, groups, batch_groups
        ),
        (x, w),
        slack=8,
    )


def reduce_window(d: Draw) -> Case:
    name = d.choice(("sum", "max", "min", "prod"))
    function = _REDUCERS[name][0]
    dtype, shape = d.choice(("float32", "float64", "bfloat16", "int32", "uint8")), d.shape(1)
    window = [d.integer(1, 3) for _ in shape]
    strides = [d.integer(1, 2) for _ in shape]
    padding = [(d.integer(0, 2), d.integer(0, 2)) for _ in shape]
    dilations = [[d.integer(1, 2) for _ in shape] for _ in range(2)]
    init = np.asarray({"sum": 0, "prod": 1, "max": 0, "min": 2}[name]).astype(d.array(dtype, ()).dtype)
    x = d.array(dtype, shape, 0, 2)
    return Case(
        f"reduce_window {name} {dtype}",
        lambda x: lax.reduce_window(x, init, function, window, strides, padding, *dilations),
        (x,),
        slack=8,
    )


def max_pool_gradient(d: Draw) -> Case:
    import jax

    shape = (1, d.integer(3, 6), d.integer(3, 6), 2)
    window, strides = (1, d.integer(1, 3), 2, 1), (1, d.integer(1, 2), 2, 1)
    x = d.array(d.choice(("float32", "float64")), shape)

    def pooled(x: Any) -> Any:
        low = np.array(-np.inf, x.dtype)
        return (lax.reduce_window(x, low, lax.max, window, strides, "SAME") ** 2).sum()

    return Case("max pool gradient", jax.grad(pooled), (x,))


def gather(d: Draw) -> Case:
    dtype, shape = d.choice(ALL), d.shape(2, 3, 2)
    index = d.choice(INTEGERS)
    count = d.integer(1, len(shape))
    dims = tuple(sorted(d.random.choice(len(shape), count, replace=False).tolist()))
    sizes = tuple(1 if i in dims else d.integer(1, n) for i, n in enumerate(shape))
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(1, 1 + len(shape) - count)), collapsed_slice_dims=dims, start_index_map=dims
    )
    mode = d.choice(("clip", "fill"))
    start = d.array(index, (d.integer(1, 4), count), -1, 5)
    return Case(
        f"gather {dtype} {index} {mode}",
        lambda x, i: lax.gather(x, i, numbers, sizes, mode=mode),
        (d.array(dtype, shape), start),
    )


def scatter(d: Draw) -> Case:
    kinds = {
        "set": (lax.scatter, ALL),
        "add": (lax.scatter_add, NUMBERS),
        "mul": (lax.scatter_mul, NUMBERS),
        "min": (lax.scatter_min, REAL),
        "max": (lax.scatter_max, REAL),
    }
    name = d.choice(list(kinds))
    function, dtypes = kinds[name]
    dtype, shape = d.choice(dtypes), d.shape(2, 3, 2)
    index = d.choice(("int32", "uint8", "int64"))
    count = d.integer(1, len(shape))
    dims = tuple(sorted(d.random.choice(len(shape), count, replace=False).tolist()))
    number = d.integer(1, 4)
    window = [n for i, n in enumerate(shape) if i not in dims]
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, 1 + len(window))),
        inserted_window_dims=dims,
        scatter_dims_to_operand_dims=dims,
    )
    if name == "set":  # at distinct places: which of several stays is nobody's promise
        number = 1
    start = d.array(index, (number, count), -1, 4)
    update = d.array(dtype, (number, *window), 0.5, 2)
    return Case(
        f"scatter {name} {dtype} {index}",
        lambda x, i, u: function(x, i, u, numbers),
        (d.array(dtype, shape), start, update),
        slack=4,
    )


def sort(d: Draw) -> Case:
    shape = d.shape(1)
    dim = d.integer(0, len(shape) - 1)
    keys = d.integer(1, 2)
    operands = tuple(d.array(d.choice(REAL), shape, -2, 2) for _ in range(d.integer(keys, 3)))
    for x in operands:
        if x.dtype.kind == "f" and d.integer(0, 2) == 0:
            x.reshape(-1)[d.integer(0, x.size - 1)] = np.nan
    return Case(f"sort {keys}", lambda *xs: lax.sort(xs, dimension=dim, num_keys=keys), operands)


def top_k(d: Draw) -> Case:
    dtype, shape = d.choice(REAL), d.shape(1)
    k = d.integer(1, shape[-1])
    return Case(f"top_k {dtype}", lambda x: lax.top_k(x, k), (d.array(dtype, shape),))


GENERATORS: dict[str, Callable[[Draw], Case]] = {
    **{name: lambda d, name=name: unary(d, name) for name in _UNARY},  # type: ignore[misc]
    **{name: lambda d, name=name: binary(d, name) for name in _BINARY},  # type: ignore[misc]
    "integer_pow": integer_pow,
    "convert": convert,
    "bitcast": bitcast,
    "select": select,
    "clamp": clamp,
    "iota": iota,
    "broadcast_in_dim": broadcast_in_dim,
    "reshape": reshape,
    "transpose": transpose,
    "rev": rev,
    "concatenate": concatenate,
    "pad": pad,
    "slice": slice_,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "reduce": reduce,
    "argminmax": argminmax,
    "cumulative": cumulative,
    "dot_general": dot_general,
    "convolution": convolution,
    "reduce_window": reduce_window,
    "max_pool_gradient": max_pool_gradient,
    "gather": gather,
    "scatter": scatter,
    "sort": sort,
    "top_k": top_k,
}


def cases(rounds: int, seed: int = 0) -> Iterator[Case]:
    """`rounds` cases of every primitive."""
    for at, make in enumerate(GENERATORS.values()):
        for k in range(rounds):
            yield make(Draw(seed * 1_000_003 + at * 1009 + k))
