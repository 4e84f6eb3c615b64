"""Ops that `torch.export` orders by tokens: checks whose only effect is an error."""

from __future__ import annotations

from rhino.frontend.torch_ops.context import Handler, OpContext

#: What stands for a token: nothing is ordered here, as nothing has an effect.
TOKEN = "token"

_CHECKS = frozenset({"aten._linalg_check_errors.default"})


def with_effects(c: OpContext, token: object, op: object, *_: object, **__: object) -> list[object]:
    """A check raises nothing in a compiled program: what failed gives infinities or NaN."""
    if str(op) not in _CHECKS:
        raise c.unsupported(f"the side effect of {op}", remedy="remove it from the program")
    results = c.node.meta["val"]
    return [TOKEN, *[None] * (len(results) - 1)]


def check(c: OpContext, *_: object, **__: object) -> None:
    """A check that is not ordered."""


ATEN: dict[str, Handler] = {"with_effects": with_effects, **{name: check for name in _CHECKS}}
