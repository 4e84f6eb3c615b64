"""Cases of `test_torch_ops`: ops with regions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch_op_check import draw, run

from rhino.ir import types


def _while() -> None:
    def counted(b, x, name):  # type: ignore[no-untyped-def]
        k = b.full((), types.element(name), 0)
        return b.while_(
            [k, x],
            [x],
            lambda c, k, y, w: [c.compare(k, c.full_like(k, 4), "lt")],
            lambda c, k, y, w: [c.add(k, c.full_like(k, 1)), c.sub(c.mul(y, w), y)],
        )

    for name in ("i32", "ui32", "i64"):
        run(lambda b, x, n=name: counted(b, x, n), [draw("f32", (3, 4), 1)])

    def until(b, x):  # type: ignore[no-untyped-def]
        def cond(c, y):  # type: ignore[no-untyped-def]
            return [c.compare(c.reduce(y, (0,), "max"), c.full((), types.F32, 0.1), "gt")]

        return b.while_([x], [], cond, lambda c, y: [c.mul(y, c.full_like(y, 0.5))])

    run(until, [draw("f32", (5,), 1)])


def _if() -> None:
    for p in (True, False):
        run(
            lambda b, p, x: b.if_(p, [x], lambda c, x: [c.exp(x), x], lambda c, x: [x, c.sin(x)]),
            [np.array(p), draw("f64", (3,), 1)],
        )


def _case() -> None:
    for i in (-1, 0, 1, 7):
        branches = [lambda c, x: [c.exp(x)], lambda c, x: [c.sin(x)]]
        run(lambda b, i, x, f=branches: b.case(i, [x], f), [np.int32(i), draw("f64", (3,), 1)])


def _generic() -> dict[str, Callable[[], None]]:
    def add(c, a, z):  # type: ignore[no-untyped-def]
        return [c.add(c.mul(a, z), z)]

    x, s = draw("bf16", (4, 6), 1), draw("bf16", (4, 3), 2)
    one = np.array(1, x.dtype)
    numbers = {
        "update_window_dims": [1],
        "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [0],
        "index_vector_dim": 1,
    }
    rows = np.array([2, 0, 2])

    def ge(c, a, z):  # type: ignore[no-untyped-def]
        return [c.compare(a, z, "ge")]

    def fives(c, a):  # type: ignore[no-untyped-def]
        return [c.full((), types.I32, 5), c.negate(a)]

    return {
        "hlo.map": lambda: run(lambda b, x: b.map([x], fives), [x]) and None,
        "hlo.generic_reduce": lambda: (
            run(lambda b, x, v: b.generic_reduce([x], [v], [1], add), [x, one]) and None
        ),
        "hlo.generic_reduce_window": lambda: (
            run(lambda b, x, v: b.generic_reduce_window([x], [v], (1, 2), None, None, add), [x, one]) and None
        ),
        "hlo.generic_sort": lambda: (
            run(lambda b, x: b.generic_sort([x], 1, ge), [draw("ui8", (3, 9), 1)]) and None
        ),
        "hlo.generic_scatter": lambda: (
            run(lambda b, x, i, u: b.generic_scatter([x], i, [u], add, **numbers), [x, rows, x[:3]]) and None
        ),
        "hlo.generic_select_and_scatter": lambda: (
            run(
                lambda b, x, s, v: b.generic_select_and_scatter(x, s, v, (1, 2), (1, 2), None, ge, add),
                [x, s, one],
            )
            and None
        ),
    }


CASES: dict[str, Callable[[], None]] = {"hlo.while": _while, "hlo.if": _if, "hlo.case": _case, **_generic()}
