"""Small programs for kernel tests, and a way to run a fused module with generated kernels or with numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.kernel import RegionOp
from rhino.ir import types
from rhino.kernels.launch import compile_kernel
from rhino.kernels.read import read

Body = Callable[..., Sequence[SSAValue]]


def program(arguments: Sequence[types.Type], body: Body) -> ModuleOp:
    """A module whose @main is built by ``body(builder, *arguments)``."""
    func = FuncOp("main", (list(arguments), []))
    builder = Builder(InsertPoint.at_end(func.body.block))
    results = list(body(builder, *func.args))
    builder.insert(ReturnOp(*results))
    func.function_type = FunctionType.from_lists(list(arguments), [r.type for r in results])
    module = ModuleOp([func])
    module.verify()
    return module


def tensor(*shape: int, element: str = "f32") -> types.Type:
    return types.tensor(shape, types.element(element))


def run(module: ModuleOp, arguments: Sequence[np.ndarray], *, triton: bool = False) -> list[np.ndarray]:
    """Evaluate @main op by op; kernel regions by numpy, or by the generated kernel in Triton's interpreter."""
    func = signature.main_of(module)
    values: dict[SSAValue, np.ndarray] = dict(zip(func.args, arguments, strict=True))
    for op in func.body.block.ops:
        if isinstance(op, ReturnOp):
            return [values[v] for v in op.operands]
        inputs = [values[v] for v in op.operands]
        if triton and isinstance(op, RegionOp):
            import torch

            tensors = [torch.from_numpy(np.array(x, order="C")) for x in inputs]
            outputs = [t.numpy() for t in compile_kernel(read(op))(tensors)]
        else:
            outputs = op.evaluate(*inputs)
        values.update(zip(op.results, outputs, strict=True))
    raise AssertionError("no return")


def layer_norm(b: Builder, x: SSAValue, scale: SSAValue) -> SSAValue:
    """Layer norm over the last dim, with the small ops a front end leaves."""
    shape = types.shape_of(x)
    last, rest = len(shape) - 1, list(range(len(shape) - 1))
    element = types.element_of(x)

    def mean(v: SSAValue) -> SSAValue:
        total = b.reduce(v, [last], "sum")
        return b.mul(total, b.full(shape[:-1], element, 1 / shape[-1]))

    centred = b.sub(x, b.broadcast_in_dim(mean(x), shape, rest))
    variance = mean(b.mul(centred, centred))
    inverse = b.rsqrt(b.add(variance, b.full(shape[:-1], element, 1e-5)))
    normal = b.mul(centred, b.broadcast_in_dim(inverse, shape, rest))
    return b.mul(normal, b.broadcast_in_dim(scale, shape, [last]))


def linear(b: Builder, x: SSAValue, w: SSAValue, bias: SSAValue) -> SSAValue:
    rank = len(types.shape_of(x))
    y = b.dot_general(x, w, batch=((), ()), contract=((rank - 1,), (0,)))
    shape = types.shape_of(y)
    return b.add(y, b.broadcast_in_dim(bias, shape, [len(shape) - 1]))
