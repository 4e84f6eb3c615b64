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


CASES: dict[str, Callable[[], None]] = {"hlo.while": _while, "hlo.if": _if, "hlo.case": _case}
