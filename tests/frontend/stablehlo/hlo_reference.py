"""StableHLO's own reference interpreter, which ships in jaxlib: what a text without arguments computes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from rhino.frontend.stablehlo import literals
from rhino.frontend.stablehlo.cursor import Cursor
from rhino.frontend.stablehlo.syntax import Literal
from rhino.ir import types


@cache
def context() -> Any:
    """An MLIR context that knows the interpreter's own ops (``interpreter.run_parallel``)."""
    made = mlir.make_ir_context()
    stablehlo.register_interpreter_dialect(made)
    return made


def run_reference(text: str) -> list[np.ndarray]:
    """The results of `@main`. Raises ValueError where the interpreter does not know an op."""
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        return [_array(str(value)) for value in stablehlo.eval_module(module, [])]


def pretty(text: str, generic: bool = False) -> str:
    """The same program as MLIR prints it."""
    with context(), ir.Location.unknown():
        return str(ir.Module.parse(text).operation.get_asm(print_generic_op_form=generic))


def _array(text: str) -> np.ndarray:
    literal = Cursor(text, "result").attribute()
    assert isinstance(literal, Literal)
    assert all(n is not None for n in literal.type.shape)
    type = types.tensor([n or 0 for n in literal.type.shape], types.element(literal.type.element))
    return np.array(np.broadcast_to(literals.array(literal, type), type.get_shape()))
