"""Buckets: several small all_reduces as one over a flat buffer.

    %a1 = dist.all_reduce sum %a over ["dp"] : tensor<4x8xf32>
    %b1 = dist.all_reduce sum %b over ["dp"] : tensor<16xf32>
becomes
    %flat = hlo.concatenate (hlo.reshape %a), (hlo.reshape %b)
    %sum = dist.all_reduce sum %flat over ["dp"] : tensor<48xf32>
    %a1 = hlo.reshape (hlo.slice %sum), %b1 = ...

Only all_reduces of one kind, axes and element type are collected, and only while the first use of every one
of them comes after the last one is defined (as gradients' do): the common all_reduce stands at that last
definition, so no value is used before it exists.
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
    members: list[AllReduceOp] = field(default_factory=list)
    bytes: int = 0
    first_use: float = math.inf


def bucket_all_reduces(block: Block, mesh: Mesh, limit: int) -> None:
    """Collect all_reduces into buckets of at most `limit` bytes of operands, in place."""
    ops = list(block.ops)
    number = {op: i for i, op in enumerate(ops)}
    open_buckets: dict[tuple[object, ...], _Bucket] = {}
    done: list[_Bucket] = []
    for i, op in enumerate(ops):
        if not isinstance(op, AllReduceOp):
            continue
        size = types.bytes_of(types.type_of(op.x))
        if size > limit:
            continue
        key = (op.kind_attr, op.axes_attr, types.element_of(op.x))
        bucket = open_buckets.get(key)
        if bucket is None or bucket.first_use <= i or bucket.bytes + size > limit:
            bucket = open_buckets[key] = _Bucket()
            done.append(bucket)
        bucket.members.append(op)
        bucket.bytes += size
        bucket.first_use = min(
            bucket.first_use, *(_position(use.operation, block, number) for use in op.result.uses)
        )
    for bucket in done:
        if len(bucket.members) > 1:
            _combine(bucket.members, mesh)


def _position(op: Operation, block: Block, number: dict[Operation, int]) -> int:
    """Number of the op of `block` that is, or contains, `op`."""
    while op.parent is not block:
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return number[op]


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
