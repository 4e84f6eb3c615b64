"""Every `hlo` op in torch against its numpy definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from torch_linalg_cases import CASES as LINALG_CASES
from torch_number_cases import CASES as NUMBER_CASES
from torch_number_cases import TYPES
from torch_op_cases import CASES as MORE_CASES
from torch_op_check import FLOATS, INTEGERS, draw, run
from torch_region_cases import CASES as REGION_CASES

from rhino.dialects.hlo import Hlo
from rhino.dialects.hlo.base import HloOp
from rhino.ir import types
from rhino.runtime.torch_ops import TABLE


def _unary(method: str, names: Sequence[str], positive: bool = False) -> Callable[[], None]:
    def case() -> None:
        for name in names:
            for shape in ((3, 5), (), (0, 2)):
                run(lambda b, x: getattr(b, method)(x), [draw(name, shape, 1, positive)])

    return case


def _binary(method: str, names: Sequence[str], positive: bool = False) -> Callable[[], None]:
    def case() -> None:
        for name in names:
            for shape in ((4, 6), ()):
                x, y = draw(name, shape, 1, positive), draw(name, shape, 2, positive)
                run(lambda b, x, y: getattr(b, method)(x, y), [x, y])

    return case


def _extremes(method: str, amounts: Sequence[int] | None = None) -> Callable[[], None]:
    """Integers at the ends of their range, and shift amounts around the width."""

    def case() -> None:
        for name in INTEGERS:
            info = np.iinfo(types.numpy_dtype(types.element(name)))
            xs = np.array([info.min, info.min + 1, -1, 0, 1, info.max], info.dtype)
            ys = np.array(amounts or xs, np.int64)
            bits = info.bits
            ys = ys if amounts is None else np.array([*amounts, bits - 1, bits, bits + 1])
            left, right = (a.reshape(-1).astype(info.dtype) for a in np.meshgrid(xs, ys))
            run(lambda b, x, y: getattr(b, method)(x, y), [left, right])

    return case


def _quotients(method: str) -> None:
    _binary(method, (*FLOATS, *INTEGERS))()
    _extremes(method, [0, 1, 2, -1, -2])()


def _powers() -> None:
    _binary("pow", FLOATS, positive=True)()
    for name in INTEGERS:
        x, y = (
            a.reshape(-1).astype(name.replace("i", "int")) for a in np.meshgrid(range(-3, 4), range(-3, 4))
        )
        run(lambda b, x, y: b.pow(x, y), [x, y])


def _compare() -> None:
    for direction in ("eq", "ne", "lt", "le", "gt", "ge"):
        for name in (*FLOATS, *INTEGERS, "i1"):
            x, y = draw(name, (40,), 1), draw(name, (40,), 2)
            y[::3] = x[::3]
            run(lambda b, x, y, d=direction: b.compare(x, y, d), [x, y])
    nan = np.array([np.nan, 1.0], np.float32)
    for direction in ("eq", "ne", "lt", "ge"):
        run(lambda b, x, y, d=direction: b.compare(x, y, d), [nan, nan[::-1].copy()])


def _select() -> None:
    for name in (*FLOATS, *INTEGERS, "i1"):
        for shape in ((3, 4), ()):
            arrays = [draw("i1", shape, 3), draw(name, (3, 4), 1), draw(name, (3, 4), 2)]
            run(lambda b, p, x, y: b.select(p, x, y), arrays)


def _convert() -> None:
    for source in (*FLOATS, *INTEGERS, "i1"):
        for target in (*FLOATS, *INTEGERS, "i1"):
            x = draw(source, (30,), 1)
            x = (x * 7).astype(x.dtype) if source in FLOATS else x
            run(lambda b, x, t=target: b.convert(x, types.element(t)), [x], exact=True)


def _constant() -> None:
    for name in (*FLOATS, *INTEGERS, "i1"):
        run(lambda b, a=draw(name, (2, 3), 1): b.constant(a), [], exact=True)
        run(lambda b, n=name: b.full((2, 3), types.element(n), 1), [], exact=True)
        run(lambda b, n=name: b.full((), types.element(n), 0), [], exact=True)
        run(lambda b, n=name: b.full((0, 3), types.element(n), 0), [], exact=True)
    run(lambda b: b.constant(np.array([np.inf, -np.inf, np.nan], np.float32)), [], exact=True)


def _iota() -> None:
    for name in (*FLOATS, *INTEGERS):
        for dim in range(2):
            run(lambda b, n=name, d=dim: b.iota(types.tensor((3, 4), types.element(n)), d), [], exact=True)


def _random_uniform() -> None:
    index = np.array([0, 1, 2, 2**31, 2**32 - 1, 2**32, 2**63 - 1, -1, -(2**63)], np.int64)
    for seed in (0, 1, -1, 2**40 + 7, -(2**63)):
        for name in FLOATS:
            run(
                lambda b, s, i, n=name: b.random_uniform(s, i, types.element(n)),
                [np.array(seed, np.int64), index],
                exact=True,
            )


def _broadcast() -> None:
    for shape, result, dims in (
        ((3,), (2, 3), (1,)),
        ((3,), (3, 2), (0,)),
        ((1, 3), (4, 3), (0, 1)),
        ((), (2, 2), ()),
        ((2, 3), (3, 5, 2), (2, 0)),
        ((3, 1), (1, 3, 2), (1, 2)),
    ):
        run(lambda b, x, r=result, d=dims: b.broadcast_in_dim(x, r, d), [draw("f32", shape, 1)], exact=True)


def _slice() -> None:
    x = draw("i32", (6, 7), 1)
    for start, limit, strides in (
        ((1, 2), (5, 7), (1, 1)),
        ((0, 0), (6, 7), (2, 3)),
        ((2, 3), (2, 7), (1, 1)),
    ):
        run(lambda b, x, s=start, e=limit, t=strides: b.slice(x, s, e, t), [x], exact=True)


def _pad() -> None:
    for low, high, interior in (
        ((1, 0), (2, 3), (0, 0)),
        ((0, 1), (0, 0), (1, 2)),
        ((-1, 1), (2, -2), (0, 0)),
        ((-1, -2), (1, 0), (2, 1)),
        ((-4, 0), (5, 0), (0, 0)),
        ((-3, 0), (0, 0), (0, 0)),
    ):
        for name in ("f32", "i64", "i1", "bf16"):
            x, value = draw(name, (3, 4), 1), True if name == "i1" else 2
            run(lambda b, x, v=value, a=low, z=high, i=interior: b.pad(x, v, a, z, i), [x], exact=True)


def _dynamic_slice() -> None:
    for first in (-3, 0, 1, 9):
        arrays = [draw("f32", (5, 4), 1), np.array(first, np.int32), np.array(1, np.int32)]
        for sizes in ((2, 3), (5, 4), (1, 4), (0, 2)):
            run(lambda b, x, i, j, s=sizes: b.dynamic_slice(x, [i, j], s), arrays, exact=True)


def _dynamic_update_slice() -> None:
    for first in (-3, 0, 1, 9):
        for shape in ((2, 3), (5, 4), (1, 4)):
            arrays = [
                draw("f32", (5, 4), 1),
                draw("f32", shape, 2),
                np.array(first, np.int64),
                np.array(1, np.int64),
            ]
            run(lambda b, x, u, i, j: b.dynamic_update_slice(x, u, [i, j]), arrays, exact=True)


def _concatenate() -> None:
    arrays = [draw("f32", (2, n, 2), n) for n in (1, 3, 0, 2)]
    run(lambda b, *xs: b.concatenate(xs, 1), arrays, exact=True)


def _reduce() -> None:
    for kind in ("sum", "prod", "max", "min", "and", "or"):
        names: Sequence[str] = (*INTEGERS, "i1") if kind in ("and", "or") else (*FLOATS, *INTEGERS)
        for name in (*names, *(("i1",) if kind in ("max", "min") else ())):
            for shape, dims in (
                ((3, 5, 2), (1,)),
                ((3, 5, 2), (0, 2)),
                ((3, 5), (0, 1)),
                ((0, 3), (0,)),
                ((7,), (0,)),
            ):
                run(
                    lambda b, x, k=kind, d=dims: b.reduce(x, d, k),
                    [draw(name, shape, 1, positive=kind == "prod")],
                )


def _arg(method: str) -> Callable[[], None]:
    def case() -> None:
        for name in (*FLOATS, *INTEGERS, "i1"):
            for dim in range(2):
                run(lambda b, x, d=dim: getattr(b, method)(x, d), [draw(name, (6, 9), 1)])
        run(lambda b, x: getattr(b, method)(x, 0), [np.array([1.0, np.nan, 3.0, np.nan], np.float32)])

    return case


def _cumulative() -> None:
    for kind in ("sum", "prod", "max", "min", "and", "or"):
        names: Sequence[str] = (*INTEGERS, "i1") if kind in ("and", "or") else (*FLOATS, *INTEGERS)
        for name in (*names, *(("i1",) if kind in ("max", "min") else ())):
            for reverse in (False, True):
                x = draw(name, (3, 7), 1, positive=kind == "prod")
                run(lambda b, x, k=kind, r=reverse: b.cumulative(x, 1, k, r), [x])
                run(lambda b, x, k=kind, r=reverse: b.cumulative(x, 0, k, r), [x])


def _dot() -> None:
    for left, right, batch, contract in (
        ((3, 4), (4, 5), ((), ()), ((1,), (0,))),
        ((4, 3), (5, 4), ((), ()), ((0,), (1,))),
        ((2, 3, 4), (4, 5), ((), ()), ((2,), (0,))),
        ((2, 3, 4), (2, 3, 5), ((), ()), ((0, 1), (0, 1))),
        ((2, 3, 4), (3, 2, 5), ((), ()), ((1, 0), (0, 1))),
        ((2, 3, 6, 4), (2, 3, 5, 4), ((0, 1), (0, 1)), ((3,), (3,))),
        ((2, 6, 3, 4), (2, 5, 3, 4), ((0, 2), (0, 2)), ((3,), (3,))),
        ((4, 2, 3), (2, 4), ((1, 0), (0, 1)), ((), ())),
        ((3,), (4,), ((), ()), ((), ())),
        ((3,), (3,), ((), ()), ((0,), (0,))),
        ((2, 0), (0, 3), ((), ()), ((1,), (0,))),
    ):
        for name in (*FLOATS, *INTEGERS):
            arrays = [draw(name, left, 1), draw(name, right, 2)]
            run(lambda b, x, y, bt=batch, c=contract: b.dot_general(x, y, bt, c), arrays)


CASES: dict[str, Callable[[], None]] = {
    **{f"hlo.{n}": _unary(n, (*FLOATS, *INTEGERS)) for n in ("negate", "abs", "sign")},
    **{
        f"hlo.{n}": _unary(n, FLOATS)
        for n in (
            "exp",
            "expm1",
            "tanh",
            "logistic",
            "sin",
            "cos",
            "tan",
            "erf",
            "floor",
            "ceil",
            "round_even",
        )
    },
    **{f"hlo.{n}": _unary(n, FLOATS, positive=True) for n in ("log", "log1p", "sqrt", "rsqrt")},
    "hlo.stop_gradient": _unary("stop_gradient", FLOATS),
    "hlo.not": _unary("not_", (*INTEGERS, "i1")),
    "hlo.is_finite": lambda: (
        [
            run(lambda b, x: b.is_finite(x), [np.array([1, np.nan, np.inf, -np.inf, 0], t)])
            for t in ("f4", "f8", "f2")
        ]
        and None
    ),
    **{f"hlo.{n}": _binary(n, (*FLOATS, *INTEGERS)) for n in ("add", "sub", "mul")},
    "hlo.div": lambda: _quotients("div"),
    "hlo.rem": lambda: _quotients("rem"),
    "hlo.pow": _powers,
    **{f"hlo.{n}": _binary(n, (*FLOATS, *INTEGERS, "i1")) for n in ("maximum", "minimum")},
    "hlo.atan2": _binary("atan2", FLOATS),
    "hlo.and": _binary("and_", (*INTEGERS, "i1")),
    "hlo.or": _binary("or_", (*INTEGERS, "i1")),
    "hlo.xor": _binary("xor", (*INTEGERS, "i1")),
    **{
        f"hlo.{n}": _extremes(n, [0, 1, 2, -1])
        for n in ("shift_left", "shift_right_logical", "shift_right_arithmetic")
    },
    "hlo.compare": _compare,
    "hlo.select": _select,
    "hlo.convert": _convert,
    "hlo.constant": _constant,
    "hlo.iota": _iota,
    "hlo.random_uniform": _random_uniform,
    "hlo.broadcast_in_dim": _broadcast,
    "hlo.reshape": lambda: (
        run(lambda b, x: b.reshape(x, (4, 6)), [draw("f32", (2, 3, 4), 1)], exact=True) and None
    ),
    "hlo.transpose": lambda: (
        run(
            lambda b, x: b.reshape(b.transpose(x, (2, 0, 1)), (8, 3)), [draw("f32", (2, 3, 4), 1)], exact=True
        )
        and None
    ),
    "hlo.slice": _slice,
    "hlo.pad": _pad,
    "hlo.concatenate": _concatenate,
    "hlo.reverse": lambda: (
        run(lambda b, x: b.reverse(x, (0, 2)), [draw("f32", (2, 3, 4), 1)], exact=True) and None
    ),
    "hlo.dynamic_slice": _dynamic_slice,
    "hlo.dynamic_update_slice": _dynamic_update_slice,
    "hlo.reduce": _reduce,
    "hlo.argmax": _arg("argmax"),
    "hlo.argmin": _arg("argmin"),
    "hlo.cumulative": _cumulative,
    "hlo.dot_general": _dot,
    **MORE_CASES,
    **NUMBER_CASES,
    **REGION_CASES,
    **LINALG_CASES,
}


@pytest.mark.parametrize("name", sorted(op.name for op in Hlo.operations if issubclass(op, HloOp)))
def test_torch_equals_numpy(name: str) -> None:
    assert name in TABLE, f"{name} has no torch lowering: add one to rhino/runtime/torch_ops"
    assert name in CASES, f"{name} has no case in this test"
    CASES[name]()


@pytest.mark.parametrize("what", TYPES)
def test_element_types(what: str) -> None:
    TYPES[what]()
