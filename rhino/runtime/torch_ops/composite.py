"""Composites in torch: their decomposition, op by op."""

from __future__ import annotations

from xdsl.ir import Operation

from rhino.dialects.hlo.composite import CompositeOp
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction


def _composite(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, CompositeOp) and ctx.compile_block is not None
    return ctx.compile_block(op.body.block, ctx)


TABLE: dict[str, Lowering] = {"hlo.composite": _composite}
