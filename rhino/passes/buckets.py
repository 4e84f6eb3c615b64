"""Buckets: several small all_reduces as one over a flat buffer.

    %a1 = dist.all_reduce sum %a over ["dp"] : tensor<4x8xf32>
    %b1 = dist.all_reduce sum %b over ["dp"] : tensor<16xf32>
becomes
    %flat = hlo.concatenate (hlo.reshape %a), (hlo.reshape %b)
    %sum = dist.all_reduce sum %flat over ["dp"] : tensor<48xf32>
    %a1 = hlo.reshape (hlo.slice %sum), %b1 = ...

Only all_reduces of one kind, axes and element type are collected, and none that depends on another of its bucket.
The common all_reduce stands where the last one was defined; what depends on the others moves behind it. So the
updates of parameters, each of which waits for its own gradient only, wait for the bucket's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.dist import AllReduceOp
from rhino.ir import types
from rhino.ir.mesh import Mesh

_REASONS_SHOWN = 3


@dataclass
class _Bucket:
    """All_reduces that do not depend on each other, and the ops after the first that depend on one of them."""

    members: list[AllReduceOp] = field(default_factory=list)
    bytes: int = 0
    dependent: set[Operation] = field(default_factory=set)

    def depends(self, op: Operation) -> bool:
        """Whether `op` uses, directly or not, a member's result; asked in program order."""
        sources = {operand.owner for inner in op.walk() for operand in inner.operands}
        found = not sources.isdisjoint(self.dependent) or not sources.isdisjoint(self.members)
        if found:
            self.dependent.add(op)
        return found


def bucket_all_reduces(block: Block, mesh: Mesh, limit: int) -> None:
    """Collect all_reduces into buckets of at most `limit` bytes of operands, in place."""
    # One key after another: whether ops depend on each other is then read off the program as it has become.
    for key in dict.fromkeys(_key(op) for op in block.ops if isinstance(op, AllReduceOp)):
        bucket = _Bucket()
        for op in list(block.ops):
            dependent = bool(bucket.members) and bucket.depends(op)
            if not isinstance(op, AllReduceOp) or _key(op) != key:
                continue
            size = types.bytes_of(types.type_of(op.x))
            if size > limit:
                continue
            if dependent or bucket.bytes + size > limit:
                _close(bucket, mesh)
                bucket = _Bucket()
            bucket.members.append(op)
            bucket.bytes += size
        _close(bucket, mesh)


def _key(op: AllReduceOp) -> tuple[object, ...]:
    return (op.kind_attr, op.axes_attr, types.element_of(op.x))


def _close(bucket: _Bucket, mesh: Mesh) -> None:
    """Combine the members, behind which everything that depends on one of them moves."""
    if len(bucket.members) < 2:
        return
    last = bucket.members[-1]
    block = last.parent
    assert block is not None
    # Between the first and the last member; what comes later is where it should be.
    between: list[Operation] = []
    op: Operation | None = bucket.members[0]
    while op is not None and op is not last:
        if op in bucket.dependent:
            between.append(op)
        op = op.next_op
    for op in reversed(between):
        op.detach()
        block.insert_op_after(op, last)
    _combine(bucket.members, mesh)


def _combine(members: list[AllReduceOp], mesh: Mesh) -> None:
    last = members[-1]
    builder = Builder(InsertPoint.before(last))
    builder.location = last.location
    sizes = [math.prod(types.shape_of(op.x)) for op in members]
    flat = builder.concatenate(
        [builder.reshape(op.x, [size]) for op, size in zip(members, sizes, strict=True)], 0
    )
    total = builder.insert(
        AllReduceOp.make(flat, last.axes(mesh), mesh, reason=_reason(members), kind=last.kind)
    ).result
    at = 0
    for op, size in zip(members, sizes, strict=True):
        with builder.at(op.location):
            part = builder.reshape(builder.slice(total, [at], [at + size]), types.shape_of(op.x))
        at += size
        part.name_hint = op.result.name_hint
        op.result.replace_all_uses_with(part)
    for op in members:
        assert op.parent is not None
        op.parent.erase_op(op)


def _reason(members: list[AllReduceOp]) -> str:
    reasons = [op.reason for op in members if op.reason]
    more = len(reasons) - _REASONS_SHOWN
    text = "; ".join(reasons[:_REASONS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return f"combines {len(members)}: {text}" if text else f"combines {len(members)}"
