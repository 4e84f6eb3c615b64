"""Small programs for tests of ops: build a function, run it, differentiate it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp
from rhino.ir import types
from rhino.ir.evaluate import run_module
from rhino.ir.verify import verify_module

Body = Callable[..., "SSAValue | Sequence[SSAValue]"]


def program(body: Body, arguments: Sequence[types.Type]) -> ModuleOp:
    """A module whose @main returns what `body(builder, *arguments)` returns."""
    func = FuncOp("main", (list(arguments), []))
    builder = Builder(InsertPoint.at_end(func.body.block))
    results = body(builder, *func.args)
    results = [results] if isinstance(results, SSAValue) else list(results)
    builder.insert(ReturnOp(*results))
    func.update_function_type()
    module = ModuleOp([func])
    verify_module(module)
    return module


def type_of(array: np.ndarray) -> types.Type:
    return types.tensor(array.shape, types.from_numpy(array.dtype))


def run(body: Body, *arrays: np.ndarray) -> np.ndarray:
    """The single result of `body` for these arrays."""
    (result,) = run_module(program(body, [type_of(a) for a in arrays]), arrays)
    return result


def gradients(body: Body, cotangent: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray | None]:
    """Cotangents of all operands of the last op that `body` builds, from that of its result."""
    missing: list[bool] = []

    def with_derivative(b: Builder, dy: SSAValue, *operands: SSAValue) -> list[SSAValue]:
        result = body(b, *operands)
        assert isinstance(result, SSAValue) and isinstance(result.owner, HloOp)
        out = result.owner.derivative(b, [dy])
        missing.extend(o is None for o in out)
        return [o for o in out if o is not None]

    module = program(with_derivative, [type_of(a) for a in (cotangent, *arrays)])
    results = iter(run_module(module, (cotangent, *arrays)))
    return [None if none else next(results) for none in missing]
