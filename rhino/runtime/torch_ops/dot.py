"""General matrix products in torch: one `mm` or `bmm`, with transposes folded into strides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from xdsl.ir import Operation

from rhino.dialects.hlo.dot import DotGeneralOp
from rhino.ir import types
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction


def _free(rank: int, *taken: Sequence[int]) -> list[int]:
    gone = {d for dims in taken for d in dims}
    return [d for d in range(rank) if d not in gone]


def _product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Batched product for element types that cuBLAS has none for."""
    return (x.unsqueeze(-1) * y.unsqueeze(-3)).sum(-2, dtype=x.dtype)


def _dot_general(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, DotGeneralOp)
    batch_x, batch_y, contract_x, contract_y = op.dims
    shape_x, shape_y = types.shape_of(op.lhs), types.shape_of(op.rhs)
    free_x = _free(len(shape_x), batch_x, contract_x)
    free_y = _free(len(shape_y), batch_y, contract_y)
    k = math.prod(shape_x[d] for d in contract_x)
    m, n = math.prod(shape_x[d] for d in free_x), math.prod(shape_y[d] for d in free_y)
    batch = math.prod(shape_x[d] for d in batch_x)
    order_x, order_y = (*batch_x, *free_x, *contract_x), (*batch_y, *contract_y, *free_y)
    result = types.shape_of(op.result)
    # Without batch dimensions a plain product keeps BLAS' transposed forms open.
    head = (batch,) if batch_x else ()
    left, right = (*head, m, k), (*head, k, n)
    multiply: Callable[..., torch.Tensor] = torch.bmm if batch_x else torch.mm
    if ctx.device.type == "cuda" and types.is_integer(types.element_of(op.lhs)):
        multiply = _product
    return lambda x, y: multiply(x.permute(order_x).reshape(left), y.permute(order_y).reshape(right)).reshape(
        result
    )


TABLE: dict[str, Lowering] = {"hlo.dot_general": _dot_general}
