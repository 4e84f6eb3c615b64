"""Buckets: several small collectives of one sort as one over a flat buffer.

    %a1 = dist.all_reduce sum %a over ["dp"] : tensor<4x8xf32>
    %b1 = dist.all_reduce sum %b over ["dp"] : tensor<16xf32>
becomes
    %flat = hlo.concatenate (hlo.reshape %a), (hlo.reshape %b)
    %sum = dist.all_reduce sum %flat over ["dp"] : tensor<48xf32>
    %a1 = hlo.reshape (hlo.slice %sum), %b1 = ...

The same for all_gathers and reduce_scatters, whose buffers have a row for every member of the group. Only
collectives of one sort, reduction, axes and element type are collected, and none that depends on another of its
bucket. The common one stands where the operands of all are there; what depends on one that came earlier moves
behind it. So the updates of parameters, each of which waits for its own gradient only, wait for the bucket's, and
small parameters are gathered ahead of their own layers.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.dist import AllGatherOp, AllReduceOp, ReduceScatterOp
from rhino.ir import types
from rhino.ir.mesh import Mesh

_REASONS_SHOWN = 3

#: Ops whose time is arithmetic: no bucket makes them wait.
COMPUTE = frozenset({"hlo.dot_general", "hlo.convolution"})

Member = AllReduceOp | AllGatherOp | ReduceScatterOp


#: Bytes of a bucket where nothing else is said.
BUCKET_BYTES = 4 << 20


class Element(NamedTuple):
    """One op of a program as `group` sees it: what it reads and makes; of a collective of the sort that is collected,
    the bytes of its larger side (None of every other op); whether it is a matrix product or convolution.
    """

    reads: Iterable[Hashable]
    writes: Iterable[Hashable]
    size: int | None
    heavy: bool = False


class Group(NamedTuple):
    """A bucket.

    Attributes:
        members: positions of its collectives.
        stand: the position in front of which it stands: all that its members read is there.
        late: positions between the first member and `stand` of what depends on a member, and so moves behind it.
    """

    members: list[int]
    stand: int
    late: list[int]


def group(elements: Iterable[Element], limit: int) -> list[Group]:
    """Which collectives of one sort share a bucket, given the program in order: the decision of this pass, which the
    planner's measure shares. Buckets of one are left out.

    A bucket takes one collective after another until one depends on it, the bytes go beyond `limit`, or it would
    have to stand behind a matrix product that waits for one of its members: a bucket of one small gather per layer
    would otherwise hold back all layers but the last.
    """
    groups: list[Group] = []
    made: dict[Hashable, int] = {}
    open_: _Open | None = None
    for at, (reads, writes, size, heavy) in enumerate(elements):
        reads, writes = tuple(reads), tuple(writes)
        made.update(dict.fromkeys(writes, at))
        dependent = open_ is not None and not open_.tainted.isdisjoint(reads)
        if open_ is not None and dependent:
            open_.late.append(at)
            open_.tainted.update(writes)
            if heavy:
                open_.first_heavy = min(open_.first_heavy, at)
        if size is None or size > limit or size == 0:
            continue
        ready = 1 + max((made[value] for value in reads if value in made), default=-1)
        if open_ is None or dependent or open_.total + size > limit or ready > open_.first_heavy:
            if open_ is not None and len(open_.members) > 1:
                groups.append(open_.closed())
            open_ = _Open(at)
        open_.members.append(at)
        open_.stand = max(open_.stand, ready)
        open_.tainted.update(writes)
        open_.total += size
    if open_ is not None and len(open_.members) > 1:
        groups.append(open_.closed())
    return groups


@dataclass
class _Open:
    """A bucket that still takes members."""

    stand: int
    members: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    tainted: set[Hashable] = field(default_factory=set)
    total: int = 0
    first_heavy: float = math.inf
    """Position of the first matrix product that depends on a member."""

    def closed(self) -> Group:
        return Group(self.members, self.stand, [i for i in self.late if i < self.stand])


def bucket_collectives(block: Block, mesh: Mesh, limit: int) -> None:
    """Collect collectives into buckets of at most `limit` bytes (of the larger side), in place."""
    # One key after another: whether ops depend on each other is then read off the program as it has become.
    for key in dict.fromkeys(_key(op) for op in block.ops if isinstance(op, Member)):
        ops = list(block.ops)
        for members, stand, late in group((_element(op, key) for op in ops), limit):
            _close([ops[i] for i in members], ops[stand], [ops[i] for i in late], mesh)  # type: ignore[misc]


def _element(op: Operation, key: tuple[object, ...]) -> Element:
    size = None
    if isinstance(op, Member) and _key(op) == key:
        size = max(types.bytes_of(types.type_of(v)) for v in (op.x, op.result))
    reads = [operand for inner in op.walk() for operand in inner.operands]
    return Element(reads, op.results, size, op.name in COMPUTE)


def _key(op: Member) -> tuple[object, ...]:
    kind = None if isinstance(op, AllGatherOp) else op.kind
    return (type(op), kind, op.axes_attr, types.element_of(op.x))


def _close(members: list[Member], stand: Operation, late: list[Operation], mesh: Mesh) -> None:
    """Combine the members in front of `stand`, together with what waits for one of them."""
    for op in late:
        op.detach()
    block = stand.parent
    assert block is not None
    b = Builder(InsertPoint.before(stand))
    _combine(members, b, mesh)
    block.insert_ops_before(late, stand)
    for member in members:
        block.erase_op(member)


def _combine(members: list[Member], b: Builder, mesh: Mesh) -> None:
    last = members[-1]
    b.location = last.location
    n = math.prod(a.size for a in last.axes(mesh))
    parts = [_flatten(op, n, b) for op in members]
    total = _collective(last, b.concatenate(parts, len(types.shape_of(parts[0])) - 1), mesh, _reason(members))
    b.insert(total)
    *rows, _ = types.shape_of(total.result)
    first, at = [0] * len(rows), 0
    for op in members:
        size = math.prod(types.shape_of(op.result)) // math.prod(rows)
        with b.at(op.location):
            part = _unflatten(op, n, b.slice(total.result, [*first, at], [*rows, at + size]), b)
        at += size
        part.name_hint = op.result.name_hint
        op.result.replace_all_uses_with(part)


def _collective(like: Member, flat: SSAValue, mesh: Mesh, reason: str) -> Member:
    """The collective of the buffer, whose dimension 0 is the one that is gathered or scattered."""
    axes = like.axes(mesh)
    if isinstance(like, AllReduceOp):
        return AllReduceOp.make(flat, axes, mesh, reason=reason, kind=like.kind)
    if isinstance(like, AllGatherOp):
        return AllGatherOp.make(flat, axes, mesh, reason=reason, dim=0)
    return ReduceScatterOp.make(flat, axes, mesh, reason=reason, kind=like.kind, dim=0)


def _flatten(op: Member, n: int, b: Builder) -> SSAValue:
    """The operand as ``[size]``; to be gathered ``[1, size]``; to be scattered ``[n, size / n]``."""
    shape = types.shape_of(op.x)
    if isinstance(op, AllReduceOp):
        return b.reshape(op.x, [math.prod(shape)])
    if isinstance(op, AllGatherOp):
        return b.reshape(op.x, [1, math.prod(shape)])
    x, dim = op.x, op.dim
    if dim or op.period != shape[0]:
        # A digit of n members with period P on extent e: [.., e / P, n, P / n, ..], with n brought to the front.
        apart = (*shape[:dim], shape[dim] // op.period, n, op.period // n, *shape[dim + 1 :])
        order = [dim + 1, *(d for d in range(len(apart)) if d != dim + 1)]
        x = b.transpose(b.reshape(x, apart), order)
    return b.reshape(x, [n, math.prod(shape) // n])


def _unflatten(op: Member, n: int, x: SSAValue, b: Builder) -> SSAValue:
    """The inverse, for the results: of a part of the buffer, ``[n, size / n]`` if it was gathered."""
    shape = types.shape_of(op.result)
    if not isinstance(op, AllGatherOp) or (op.dim == 0 and op.period == shape[0]):
        return b.reshape(x, shape)
    dim, chunk = op.dim, op.period // n
    x = b.reshape(x, [n, *shape[:dim], shape[dim] // op.period, chunk, *shape[dim + 1 :]])
    order = [*range(1, dim + 2), 0, *range(dim + 2, len(shape) + 2)]
    return b.reshape(b.transpose(x, order), shape)


def _reason(members: list[Member]) -> str:
    reasons = [op.reason for op in members if op.reason]
    more = len(reasons) - _REASONS_SHOWN
    text = "; ".join(reasons[:_REASONS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return f"combines {len(members)}: {text}" if text else f"combines {len(members)}"
