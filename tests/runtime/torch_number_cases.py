"""Cases of `test_torch_ops`: clamp and roundings, bits, complex numbers, unsigned integers, one-byte floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from torch_op_check import FLOATS, INTEGERS, draw, run

from rhino.ir import types

UNSIGNED = ("ui8", "ui16", "ui32", "ui64")
COMPLEX = ("complex<f32>", "complex<f64>")
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-8, -30.0, np.inf, -np.inf, np.nan]


def special(name: str) -> np.ndarray:
    return np.array(SPECIAL).astype(types.numpy_dtype(types.element(name)))


def number(name: str, shape: Sequence[int], seed: int) -> np.ndarray:
    """`draw`, for complex and unsigned types too; unsigned ones over their whole range."""
    dtype = types.numpy_dtype(types.element(name))
    rng = np.random.default_rng([seed, *name.encode()])
    if dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if dtype.kind == "u":
        values = rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.5, values, values % 5).astype(dtype)
    return draw(name, shape, seed)


def _clamp() -> None:
    for name in (*FLOATS, *INTEGERS, *UNSIGNED, "i1"):
        for bounds in ((), (4, 5)):
            low, high = number(name, bounds, 1), number(name, bounds, 2)
            run(lambda b, low, x, high: b.clamp(low, x, high), [low, number(name, (4, 5), 3), high])
    x, nan = special("f32"), np.array(np.nan, np.float32)
    run(lambda b, low, x, high: b.clamp(low, x, high), [np.float32(-1.0), x, np.float32(2.0)], exact=True)
    run(lambda b, low, x, high: b.clamp(low, x, high), [nan, x, np.float32(2.0)], exact=True)


def _unary(method: str, names: Sequence[str], specials: bool = False) -> Callable[[], None]:
    def case() -> None:
        for name in names:
            for shape in ((3, 5), (), (0, 2)):
                run(lambda b, x: getattr(b, method)(x), [number(name, shape, 1)])
            if specials:
                run(lambda b, x: getattr(b, method)(x), [special(name)])

    return case


def _reduce_precision() -> None:
    for name in FLOATS:
        for bits in ((5, 10), (8, 7), (4, 3), (5, 0), (2, 1), (11, 52)):
            for x in (
                special(name),
                draw(name, (50,), 1),
                (draw(name, (50,), 2) * 1e5).astype(special(name).dtype),
            ):
                run(lambda b, x, m=bits: b.reduce_precision(x, *m), [x], exact=True)


def _bits(method: str) -> Callable[[], None]:
    def case() -> None:
        for name in (*INTEGERS, *UNSIGNED):
            info = np.iinfo(types.numpy_dtype(types.element(name)))
            x = np.array([info.min, 0, 1, 2, 3, 100, info.max, info.max // 2], info.dtype)
            run(lambda b, x: getattr(b, method)(x), [x], exact=True)
            run(lambda b, x: getattr(b, method)(x), [x[3]], exact=True)

    return case


def _bitcast() -> None:
    names = (*FLOATS, *INTEGERS, *UNSIGNED, "complex<f32>", "f8E4M3FN")
    for old in names:
        for new in names:
            a, z = (types.itemsize(types.element(n)) for n in (old, new))
            x = number(old, (3, z // a) if z > a else (3, 2), 1)
            run(lambda b, x, n=new: b.bitcast_convert(x, types.element(n)), [x], exact=True)


def _compare_total() -> None:
    for name in FLOATS:
        x = np.concatenate([special(name), -special(name)[-1:]])
        left, right = (a.reshape(-1).copy() for a in np.meshgrid(x, x))
        for direction in ("eq", "ne", "lt", "le", "gt", "ge"):
            run(lambda b, x, y, d=direction: b.compare_total(x, y, d), [left, right], exact=True)


def _complex() -> None:
    for name in ("f32", "f64"):
        run(lambda b, x, y: b.complex(x, y), [special(name), draw(name, (12,), 1)], exact=True)


def complex_everywhere() -> None:
    """Ops of real numbers on complex ones."""
    for name in COMPLEX:
        for method in (
            "negate",
            "complex_sign",
            "exp",
            "expm1",
            "log",
            "log1p",
            "sqrt",
            "rsqrt",
            "tanh",
            "logistic",
        ):
            run(lambda b, x, m=method: getattr(b, m)(x), [number(name, (3, 4), 1)])
        for method in ("sin", "cos", "tan", "cbrt", "stop_gradient"):
            run(lambda b, x, m=method: getattr(b, m)(x), [number(name, (3, 4), 1)])
        for method in ("add", "sub", "mul", "div", "pow"):
            arrays = [number(name, (3, 4), 1), number(name, (3, 4), 2)]
            run(lambda b, x, y, m=method: getattr(b, m)(x, y), arrays)
        for direction in ("eq", "ne"):
            run(lambda b, x, d=direction: b.compare(x, x, d), [number(name, (5,), 1)])
        for other in (*FLOATS, *COMPLEX, "i32", "i1"):
            run(lambda b, x, t=other: b.convert(x, types.element(t)), [number(name, (5,), 1)])
            run(lambda b, x, t=name: b.convert(x, types.element(t)), [number(other, (5,), 1)])
        x = number(name, (3, 4), 1)
        run(lambda b, x: b.reduce(x, (1,), "sum"), [x])
        run(lambda b, x: b.reduce(x, (0, 1), "prod"), [x])
        run(lambda b, x: b.cumulative(x, 1, "sum"), [x])
        run(lambda b, x: b.dot_general(x, x, ((), ()), ((1,), (1,))), [x])
        run(lambda b, x: b.transpose(b.reshape(b.concatenate([x, x], 0), (4, 6)), (1, 0)), [x], exact=True)
        run(lambda b, x: b.select(b.compare(x, x, "eq"), x, b.full_like(x, 1 + 2j)), [x], exact=True)
        run(lambda b, x: b.pad(x, 0, (1, 0), (0, 2), (0, 1)), [x], exact=True)
        run(lambda b, i, n=name: b.iota(types.tensor((3, 4), types.element(n)), 1), [np.int64(0)], exact=True)


def unsigned_everywhere() -> None:
    """Ops of signed integers on unsigned ones, over the whole range."""
    for name in UNSIGNED:
        x, y = number(name, (6, 8), 1), number(name, (6, 8), 2)
        for method in ("add", "sub", "mul", "div", "rem", "pow", "maximum", "minimum", "and_", "or_", "xor"):
            run(lambda b, x, y, m=method: getattr(b, m)(x, y), [x, y], exact=True)
        for method in ("shift_left", "shift_right_logical", "shift_right_arithmetic"):
            amounts = np.resize(np.arange(8 * x.itemsize + 3), x.shape).astype(x.dtype)
            run(lambda b, x, y, m=method: getattr(b, m)(x, y), [x, amounts], exact=True)
        for method in ("negate", "abs", "sign", "not_"):
            run(lambda b, x, m=method: getattr(b, m)(x), [x], exact=True)
        for direction in ("eq", "ne", "lt", "le", "gt", "ge"):
            run(lambda b, x, y, d=direction: b.compare(x, y, d), [x, y], exact=True)
        for kind in ("sum", "prod", "max", "min", "and", "or"):
            run(lambda b, x, k=kind: b.reduce(x, (1,), k), [x], exact=True)
            run(lambda b, x, k=kind: b.cumulative(x, 0, k), [x], exact=True)
            run(lambda b, x, k=kind: b.reduce_window(x, k, (2, 2), (1, 2), [(0, 0), (0, 0)]), [x], exact=True)
        run(lambda b, x: b.sort([x], 1), [x], exact=True)
        run(lambda b, x: b.top_k(x, 3), [x], exact=True)
        run(lambda b, x: b.argmax(x, 1), [x], exact=True)
        run(lambda b, x, y: b.dot_general(x, y, ((), ()), ((1,), (1,))), [x, y], exact=True)
        run(lambda b, x, p: b.select(p, x, b.reverse(x, (0,))), [x, x > y], exact=True)
        for other in (*FLOATS, *INTEGERS, *UNSIGNED, "i1"):
            run(lambda b, x, t=other: b.convert(x, types.element(t)), [x], exact=True)
            run(lambda b, x, t=name: b.convert(x, types.element(t)), [number(other, (9,), 4)], exact=True)
        indices = np.array([0, 5, 2, 7], x.dtype)
        run(lambda b, x, i: b.take(x, i, 0), [x, indices], exact=True)
        run(lambda b, x, i: b.dynamic_slice(x, [i, i], (2, 3)), [x, x.dtype.type(4)], exact=True)
        run(lambda b, n=name: b.iota(types.tensor((3, 4), types.element(n)), 1), [], exact=True)


def narrow_everywhere() -> None:
    """One-byte floats: converted, moved, and computed with in f32."""
    for name in ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ"):
        x = draw("f32", (4, 5), 1).astype(types.numpy_dtype(types.element(name)))
        for other in (*FLOATS, name):
            run(lambda b, x, t=other: b.convert(x, types.element(t)), [x], exact=True)
        run(lambda b, x, t=name: b.convert(x, types.element(t)), [draw("f32", (50,), 2)], exact=True)
        run(lambda b, x: b.add(x, b.mul(x, x)), [x], exact=True)
        run(lambda b, x: b.transpose(b.concatenate([x, x], 1), (1, 0)), [x], exact=True)
        run(lambda b, x: b.reduce(x, (1,), "max"), [x], exact=True)
        run(lambda b, x: b.maximum(x, b.negate(x)), [x], exact=True)


def saturating_converts() -> None:
    x = np.array([0, -0.5, 1.9, -1.9, 3e9, -3e9, 1e20, -1e20, np.nan, np.inf, -np.inf, 127.5, 255.9, -129])
    for source in FLOATS:
        for target in (*INTEGERS, *UNSIGNED):
            array = x.astype(types.numpy_dtype(types.element(source)))
            run(lambda b, x, t=target: b.convert(x, types.element(t)), [array], exact=True)


CASES: dict[str, Callable[[], None]] = {
    "hlo.clamp": _clamp,
    "hlo.cbrt": _unary("cbrt", FLOATS, specials=True),
    "hlo.round_nearest_afz": _unary("round_nearest_afz", FLOATS, specials=True),
    "hlo.reduce_precision": _reduce_precision,
    "hlo.optimization_barrier": lambda: (
        run(lambda b, x, y: b.optimization_barrier([x, y]), [special("f32"), draw("i32", (2,), 1)]) and None
    ),
    "hlo.popcnt": _bits("popcnt"),
    "hlo.count_leading_zeros": _bits("count_leading_zeros"),
    "hlo.bitcast_convert": _bitcast,
    "hlo.compare_total": _compare_total,
    "hlo.complex": _complex,
    "hlo.real": _unary("real", COMPLEX),
    "hlo.imag": _unary("imag", COMPLEX),
    "hlo.complex_abs": _unary("complex_abs", COMPLEX),
}

#: Element types that run through other ops.
TYPES: dict[str, Callable[[], None]] = {
    "complex": complex_everywhere,
    "unsigned": unsigned_everywhere,
    "one-byte floats": narrow_everywhere,
    "floats to integers": saturating_converts,
}
