"""Ops that make a tensor out of nothing, in torch."""

from __future__ import annotations

import torch
from xdsl.ir import Operation

from rhino.dialects.hlo.base import get_integer
from rhino.dialects.hlo.constant import ConstantOp
from rhino.ir import types
from rhino.ir.dense import is_splat, to_numpy
from rhino.runtime.tensors import to_torch, torch_dtype
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction


def _constant(op: Operation, ctx: Context) -> TensorFunction:
    """Made once. A splat is one element seen from everywhere."""
    assert isinstance(op, ConstantOp)
    array, shape = to_numpy(op.value), types.shape_of(op.result)
    if is_splat(op.value) and array.size:
        value = to_torch(array.reshape(-1)[:1], ctx.device).reshape(()).expand(shape)
    else:
        value = to_torch(array, ctx.device)
    return lambda: value


def _iota(op: Operation, ctx: Context) -> TensorFunction:
    dim, shape = get_integer(op.properties, "dim"), types.shape_of(op.results[0])
    count = torch.arange(shape[dim], device=ctx.device).to(torch_dtype(types.element_of(op.results[0])))
    value = count.reshape([-1 if d == dim else 1 for d in range(len(shape))]).expand(shape)
    return lambda: value


TABLE: dict[str, Lowering] = {"hlo.constant": _constant, "hlo.iota": _iota}
