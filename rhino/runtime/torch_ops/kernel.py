"""Kernel regions as generated Triton kernels. Only programs that `fuse` went over have them."""

from __future__ import annotations

import torch
from xdsl.ir import Operation

from rhino.dialects.kernel import RegionOp
from rhino.kernels.launch import compile_kernel
from rhino.kernels.read import read
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction


def _region(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, RegionOp)
    launch = compile_kernel(read(op))
    single = len(op.outputs) == 1

    def run(*inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        outputs = launch(inputs)
        return outputs[0] if single else tuple(outputs)

    return run


TABLE: dict[str, Lowering] = {"kernel.region": _region}
