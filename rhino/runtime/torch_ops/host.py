"""Ops that run on the host: torch has nothing like them, and their numpy definition is what they are."""

from __future__ import annotations

import numpy as np
import torch
from xdsl.ir import Operation

from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.generic import MapOp
from rhino.dialects.hlo.regions import RegionOp, is_elementwise
from rhino.runtime.tensors import to_numpy, to_torch
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction


def on_host(op: Operation, ctx: Context) -> TensorFunction:
    """The op's numpy evaluation; tensors come from and go back to the device."""
    assert isinstance(op, HloOp)
    evaluate = op.prepared() if isinstance(op, RegionOp) else op.evaluate

    def run(*operands: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        with np.errstate(all="ignore"):
            results = evaluate(*map(to_numpy, operands))
        out = tuple(to_torch(np.asarray(r), ctx.device) for r in results)
        return out[0] if len(out) == 1 else out

    return run


def _map(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, MapOp) and ctx.compile_block is not None
    if not is_elementwise(op.body.block):
        return on_host(op, ctx)
    body = ctx.compile_block(op.body.block, ctx)

    def run(*operands: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        out = body(*operands)
        shape = operands[0].shape
        return tuple(y.expand(shape) for y in out) if isinstance(out, tuple) else out.expand(shape)

    return run


TABLE: dict[str, Lowering] = {
    "hlo.map": _map,
    "hlo.generic_reduce": on_host,
    "hlo.generic_reduce_window": on_host,
    "hlo.generic_sort": on_host,
    "hlo.generic_scatter": on_host,
    "hlo.generic_select_and_scatter": on_host,
}
