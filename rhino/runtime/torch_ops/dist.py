"""The ops of local programs in torch: collectives through a communicator."""

from __future__ import annotations

import torch
from xdsl.ir import BlockArgument, Operation, SSAValue

from rhino.dialects.dist.collectives import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    AxisIndexOp,
    PermuteOp,
    ReduceScatterOp,
    ShardOp,
)
from rhino.dialects.dist.halo import HaloOp
from rhino.dialects.hlo.common import identity, python_number
from rhino.dialects.hlo.shape import BroadcastInDimOp, ReshapeOp, SliceOp, TransposeOp
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.runtime.collectives import Communicator
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction


def _communicator(op: Operation, ctx: Context) -> Communicator:
    if ctx.communicator is None:
        raise ProgramError(
            f"{op.name} in a program that runs on one device", remedy="run it with `rhino run --nproc N`"
        )
    return ctx.communicator


def _all_reduce(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, AllReduceOp)
    comm = _communicator(op, ctx)
    axes, kind = op.axes(comm.mesh), op.kind
    return lambda x: comm.all_reduce(x, axes, kind)


def _all_gather(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, AllGatherOp)
    comm = _communicator(op, ctx)
    axes, dim, period = op.axes(comm.mesh), op.dim, op.period
    return lambda x: comm.all_gather(x, axes, dim, period)


def _reduce_scatter(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, ReduceScatterOp)
    comm = _communicator(op, ctx)
    axes, kind, dim, period = op.axes(comm.mesh), op.kind, op.dim, op.period
    return lambda x: comm.reduce_scatter(x, axes, kind, dim, period)


def _all_to_all(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, AllToAllOp)
    comm = _communicator(op, ctx)
    axes, dim, period, to_dim, to_period = op.axes(comm.mesh), op.dim, op.period, op.to_dim, op.to_period
    return lambda x: comm.all_to_all(x, axes, dim, period, to_dim, to_period)


def _is_view_of_argument(x: SSAValue) -> bool:
    while isinstance(x.owner, (BroadcastInDimOp, ReshapeOp, ShardOp, SliceOp, TransposeOp)):
        x = x.owner.operands[0]
    return isinstance(x, BlockArgument)


def _shard(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, ShardOp)
    comm = _communicator(op, ctx)
    axes, dim, period = op.axes(comm.mesh), op.dim, op.period
    stays = _is_view_of_argument(op.x)

    def piece(x: torch.Tensor) -> torch.Tensor:
        """A view, unless that would keep alive more than the piece."""
        out = comm.shard(x, axes, dim, period)
        whole = out.untyped_storage().nbytes()
        return out if stays or whole <= out.numel() * out.element_size() else out.clone()

    return piece


def _permute(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, PermuteOp)
    comm = _communicator(op, ctx)
    pairs = list(enumerate(op.targets))
    return lambda x: comm.permute(x, pairs)


def _halo(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, HaloOp)
    comm = _communicator(op, ctx)
    axes, dim, edges = op.axes(comm.mesh), op.dim, op.edges
    fill = python_number(identity(op.kind, types.numpy_dtype(types.element_of(op.x))))
    return lambda x: comm.halo(x, axes, dim, edges, fill)


def _axis_index(op: Operation, ctx: Context) -> TensorFunction:
    assert isinstance(op, AxisIndexOp)
    comm = _communicator(op, ctx)
    value = torch.tensor(comm.coordinate(op.axes(comm.mesh)), dtype=torch.int64, device=ctx.device)
    return lambda: value


TABLE: dict[str, Lowering] = {
    "dist.all_reduce": _all_reduce,
    "dist.all_gather": _all_gather,
    "dist.reduce_scatter": _reduce_scatter,
    "dist.all_to_all": _all_to_all,
    "dist.shard": _shard,
    "dist.permute": _permute,
    "dist.halo": _halo,
    "dist.axis_index": _axis_index,
}
