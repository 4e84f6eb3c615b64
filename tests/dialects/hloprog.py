"""Helpers of the op tests: write a program with the builder, run it, differentiate it, compare with torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp
from rhino.dialects.text import parse_module, print_module
from rhino.ir import types
from rhino.ir.evaluate import compile_function

Program = Callable[..., SSAValue | Sequence[SSAValue]]


def type_like(array: np.ndarray) -> types.Type:
    return types.tensor(array.shape, types.from_numpy(array.dtype))


def build(program: Program, inputs: Sequence[types.Type]) -> ModuleOp:
    """A module whose @main is ``program(builder, *arguments)``."""
    func = FuncOp("main", (list(inputs), []))
    b = Builder(InsertPoint.at_end(func.body.block))
    out = program(b, *func.args)
    finish(func, [out] if isinstance(out, SSAValue) else list(out))
    return ModuleOp([func])


def finish(func: FuncOp, results: Sequence[SSAValue]) -> None:
    func.body.block.add_op(ReturnOp(*results))
    func.function_type = func.function_type.from_lists(
        list(func.function_type.inputs), [r.type for r in results]
    )


def execute(module: ModuleOp, *arrays: np.ndarray) -> list[np.ndarray]:
    """Print, parse, verify and run."""
    text = print_module(module)
    again = parse_module(text)
    assert print_module(again) == text
    (func,) = again.ops
    assert isinstance(func, FuncOp)
    return compile_function(func)(*arrays)


def run(program: Program, *arrays: np.ndarray) -> list[np.ndarray]:
    return execute(build(program, [type_like(a) for a in arrays]), *arrays)


def run1(program: Program, *arrays: np.ndarray) -> np.ndarray:
    (out,) = run(program, *arrays)
    return out


def vjp(
    program: Program, arrays: Sequence[np.ndarray], cotangents: Sequence[np.ndarray | None]
) -> list[np.ndarray | None]:
    """Cotangents of all arguments by walking the derivatives of the program's ops."""
    given = [c for c in cotangents if c is not None]
    func = FuncOp("main", ([type_like(a) for a in (*arrays, *given)], []))
    b = Builder(InsertPoint.at_end(func.body.block))
    args = func.args[: len(arrays)]
    out = program(b, *args)
    outs = [out] if isinstance(out, SSAValue) else list(out)
    grads: dict[SSAValue, SSAValue] = {}
    rest = iter(func.args[len(arrays) :])
    for value, cotangent in zip(outs, cotangents, strict=True):
        if cotangent is not None:
            grads[value] = next(rest)
    for op in reversed([op for op in func.body.block.ops if isinstance(op, HloOp)]):
        given_here = [grads.get(r) for r in op.results]
        if all(g is None for g in given_here):
            continue
        for operand, grad in zip(op.operands, op.derivative(b, given_here), strict=True):
            if grad is not None:
                assert grad.type == operand.type, (op.name, grad.type, operand.type)
                grads[operand] = b.add(grads[operand], grad) if operand in grads else grad
    finish(func, [grads[a] for a in args if a in grads])
    found = iter(execute(ModuleOp([func]), *arrays, *given))
    return [next(found) if a in grads else None for a in args]


def check_against_torch(
    program: Program,
    reference: Callable[..., torch.Tensor],
    arrays: Sequence[np.ndarray],
    *,
    grad: Sequence[int] | None = None,
    tolerance: float = 1e-10,
    seed: int = 0,
) -> None:
    """Values and gradients (of the float64 arguments, or those in `grad`) equal torch's."""
    tensors = [torch.tensor(a) for a in arrays]
    wanted = [i for i, a in enumerate(arrays) if a.dtype == np.float64] if grad is None else list(grad)
    for i in wanted:
        tensors[i].requires_grad_()
    want = reference(*tensors)
    got = run1(program, *arrays)
    assert got.shape == tuple(want.shape)
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=tolerance, atol=tolerance)
    if not wanted:
        return
    dy = np.random.default_rng(seed + 99).integers(-3, 4, got.shape).astype(np.float64)
    expected = torch.autograd.grad(want, [tensors[i] for i in wanted], torch.tensor(dy), allow_unused=True)
    actual = vjp(program, arrays, [dy])
    for i, e in zip(wanted, expected, strict=True):
        a = actual[i]
        if e is None:
            assert a is None or not np.any(a)
        else:
            assert a is not None, f"no gradient for argument {i}"
            np.testing.assert_allclose(a, e.numpy(), rtol=tolerance, atol=tolerance, err_msg=f"argument {i}")


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def whole(*shape: int, low: int = -4, high: int = 5, seed: int = 0, dtype: type = np.float64) -> np.ndarray:
    """Integer-valued data."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)
