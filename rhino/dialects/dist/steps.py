"""Reshard steps as ops of a local program."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.dialects.dist.collectives import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    PermuteOp,
    ReduceScatterOp,
    ShardOp,
)
from rhino.dialects.dist.local import CollectiveOp
from rhino.ir.mesh import Mesh
from rhino.ir.reshard import Step

_OPS: dict[str, type[CollectiveOp]] = {
    "shard": ShardOp,
    "all_gather": AllGatherOp,
    "all_reduce": AllReduceOp,
    "reduce_scatter": ReduceScatterOp,
    "all_to_all": AllToAllOp,
    "permute": PermuteOp,
}


def emit_steps(builder: Builder, value: SSAValue, steps: Sequence[Step], mesh: Mesh, reason: str) -> SSAValue:
    """Insert `steps` on a local value; returns the last result."""
    for step in steps:
        value = builder.insert(collective(value, step, mesh, reason)).result
    return value


def collective(value: SSAValue, step: Step, mesh: Mesh, reason: str) -> CollectiveOp:
    """The op of one step."""
    fields: dict[str, int | str | list[int]] = {}
    for key in ("dim", "period", "to_dim", "to_period"):
        if (number := getattr(step, key)) is not None:
            fields[key] = number
    if step.reduction is not None:
        fields["kind"] = step.reduction
    if step.kind == "permute":
        fields["to"] = [target for _, target in sorted(step.pairs)]
    return _OPS[step.kind].make(value, step.axes, mesh, reason=reason, **fields)
