"""Loops and branches in torch: the host looks at the condition and runs the region."""

from __future__ import annotations

import torch
from xdsl.ir import Block, Operation

from rhino.dialects.hlo.control import BranchOp
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction


def _block(block: Block, ctx: Context) -> TensorFunction:
    assert ctx.compile_block is not None
    return ctx.compile_block(block, ctx)


def _tuple(values: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return values if isinstance(values, tuple) else (values,)


def _while(op: Operation, ctx: Context) -> TensorFunction:
    cond, body = (_block(region.block, ctx) for region in op.regions)
    count = len(op.results)

    def run(*operands: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        carried, fixed = operands[:count], operands[count:]
        while bool(cond(*carried, *fixed)):
            carried = _tuple(body(*carried, *fixed))
        return carried[0] if count == 1 else carried

    return run


def _branch(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, BranchOp)
    branches = [_block(region.block, ctx) for region in op.regions]
    return lambda selector, *operands: branches[op.choice(selector.cpu().numpy())](*operands)


TABLE: dict[str, Lowering] = {"hlo.while": _while, "hlo.if": _branch, "hlo.case": _branch}
