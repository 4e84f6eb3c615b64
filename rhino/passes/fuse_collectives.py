"""fuse-collectives: fewer and smaller collectives in a local program.

* Equal collectives become one.
* ``shard(all_reduce(x))`` becomes ``reduce_scatter(x)``, with an all_reduce over the axes that are left.
* ``reduce_scatter(x)`` beside ``all_reduce(x)`` over the same axes becomes a shard of what is there anyway.
* ``all_reduce(x) + all_reduce(y)`` becomes ``all_reduce(x + y)`` (also for max, min, and, or, products;
  also for reduce_scatter), where nothing else uses the operands.
* all_gathers (or all_reduces) over different axes in a row become one when they join one contiguous digit.
* A collective that undoes the one before it goes away: gather and shard, all_to_all and back, permute and
  back.
* Small collectives of one sort that do not depend on each other become one over a flat buffer (see
  `rhino.passes.buckets`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation
from xdsl.passes import ModulePass

from rhino.dialects import signature
from rhino.dialects.dist import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    CollectiveOp,
    LocalOp,
    PermuteOp,
    ReduceScatterOp,
    ShardOp,
)
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.hlo.base import HloOp
from rhino.ir.collector import collector_paused
from rhino.ir.errors import UsageError
from rhino.ir.mesh import AxisRef, Mesh, merge_refs
from rhino.passes.buckets import BUCKET_BYTES, bucket_collectives

# Reductions commute with the elementwise op of the same kind; a sum also with differences.
_COMMUTES = {
    "hlo.add": "sum",
    "hlo.sub": "sum",
    "hlo.maximum": "max",
    "hlo.minimum": "min",
    "hlo.mul": "prod",
    "hlo.and": "and",
    "hlo.or": "or",
}


@dataclass(frozen=True)
class FuseCollectivesPass(ModulePass):
    """Options: `bytes`, the size of the buffers that collect small ones (default 4 MiB, 0 for none)."""

    name = "fuse-collectives"
    bytes: int = BUCKET_BYTES

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.bytes < 0:
            raise UsageError(f"fuse-collectives: bytes is {self.bytes}", remedy="give 0 or more")
        fuse_collectives(op, self.bytes)


@collector_paused()
def fuse_collectives(module: ModuleOp, bucket_bytes: int = BUCKET_BYTES) -> None:
    """Apply the rewrites of this module's docstring to the local `@main`, in place."""
    mesh = mesh_of(module)
    block = signature.main_of(module).body.block
    if not any(isinstance(op, LocalOp) for op in block.ops):
        return
    while True:
        _share(block)
        if not any([_rewrite(op, mesh) for op in list(block.ops) if op.parent is block]):
            break
    if bucket_bytes:
        bucket_collectives(block, mesh, bucket_bytes)
    _drop_dead(block)


def _rewrite(op: Operation, mesh: Mesh) -> bool:
    """Apply the first rewrite that fits `op`. Returns whether one did."""
    if isinstance(op, LocalOp) and not op.result.uses:  # type: ignore[attr-defined]
        return _replace(op, None)
    if isinstance(op, ShardOp):
        return _scatter(op, mesh) or _undo(op, mesh)
    if isinstance(op, AllToAllOp | PermuteOp):
        return _undo(op, mesh)
    if isinstance(op, AllGatherOp):
        return _merge_gathers(op, mesh)
    if isinstance(op, AllReduceOp):
        return _merge_reduces(op, mesh)
    if isinstance(op, ReduceScatterOp):
        return _reuse_reduction(op, mesh)
    if isinstance(op, HloOp) and op.name in _COMMUTES:
        return _reduce_later(op, mesh)
    return False


def _share(block: Block) -> None:
    """One op for all that act alike on one value, whatever their reasons."""
    seen: dict[tuple[object, ...], LocalOp] = {}
    for op in list(block.ops):
        if isinstance(op, LocalOp):
            properties = frozenset((k, v) for k, v in op.properties.items() if k not in ("reason", "bytes"))
            first = seen.setdefault((type(op), tuple(op.operands), properties), op)
            if first is not op:
                op.results[0].replace_all_uses_with(first.results[0])
                _erase(op)


def _scatter(op: ShardOp, mesh: Mesh) -> bool:
    """shard(all_reduce(x)) -> [all_reduce](reduce_scatter(x)), when the shard is the only user."""
    reduce = op.x.owner
    if not isinstance(reduce, AllReduceOp) or not op.x.has_one_use():
        return False
    mine = _atoms(op.axes(mesh))
    if not set(mine) <= set(_atoms(reduce.axes(mesh))):
        return False
    rest = [a for a in _atoms(reduce.axes(mesh)) if a not in mine]
    new: CollectiveOp = ReduceScatterOp.make(
        reduce.x,
        op.axes(mesh),
        mesh,
        reason=_reasons([reduce]),
        kind=reduce.kind,
        dim=op.dim,
        period=op.period,
    )
    _insert(new, reduce)
    if rest:
        new = AllReduceOp.make(
            new.result, merge_refs(rest), mesh, reason=_reasons([reduce]), kind=reduce.kind
        )
        _insert(new, reduce)
    return _replace(op, new) and _replace(reduce, None)


def _reuse_reduction(op: ReduceScatterOp, mesh: Mesh) -> bool:
    """reduce_scatter(x) -> shard(all_reduce(x)), when somebody else needs the all_reduce over the same axes."""
    mine = set(_atoms(op.axes(mesh)))
    for use in op.x.uses:
        reduce = use.operation
        if not isinstance(reduce, AllReduceOp) or reduce.kind != op.kind or not reduce.result.uses:
            continue
        if set(_atoms(reduce.axes(mesh))) == mine:
            # Only the operand is needed for either, so the all_reduce may stand where the first of both stood.
            earlier = AllReduceOp.make(
                op.x, reduce.axes(mesh), mesh, reason=_reasons([reduce, op]), kind=op.kind
            )
            block = op.parent
            assert block is not None
            first = op if op.is_before_in_block(reduce) else reduce
            _insert(earlier, first)
            _replace(reduce, earlier)
            new = ShardOp.make(earlier.result, op.axes(mesh), mesh, dim=op.dim, period=op.period)
            _insert(new, op)
            return _replace(op, new)
    return False


def _undo(op: ShardOp | AllToAllOp | PermuteOp, mesh: Mesh) -> bool:
    """Drop an op that takes back what its operand's op did."""
    before = op.x.owner
    if not isinstance(before, CollectiveOp) or before.axes(mesh) != op.axes(mesh):
        return False
    if isinstance(op, ShardOp):
        undone = isinstance(before, AllGatherOp) and before.join() == op.cut()
    elif isinstance(op, AllToAllOp):
        undone = isinstance(before, AllToAllOp) and before.join() == op.cut() and before.cut() == op.join()
    else:
        undone = isinstance(before, PermuteOp) and all(
            op.targets[t] == source for source, t in enumerate(before.targets)
        )
    if undone:
        op.result.replace_all_uses_with(before.x)
        _erase(op)
    return undone


def _merge_gathers(op: AllGatherOp, mesh: Mesh) -> bool:
    """Two all_gathers on one dimension that join neighbouring digits become one."""
    first = op.x.owner
    if not isinstance(first, AllGatherOp) or first.dim != op.dim or not op.x.has_one_use():
        return False
    inner, outer = first.axes(mesh), op.axes(mesh)
    n1, n2 = first.members(mesh), op.members(mesh)
    if first.period == op.period // n2:  # the second digit is the major one
        axes, period = (*outer, *inner), op.period
    elif op.period * n1 == first.period * n2:
        axes, period = (*inner, *outer), first.period * n2
    else:
        return False
    new = AllGatherOp.make(
        first.x, merge_refs(axes), mesh, reason=_reasons([first, op]), dim=op.dim, period=period
    )
    _insert(new, op)
    return _replace(op, new) and _replace(first, None)


def _merge_reduces(op: AllReduceOp, mesh: Mesh) -> bool:
    """Two all_reduces of one kind in a row over different axes become one."""
    first = op.x.owner
    if not isinstance(first, AllReduceOp) or first.kind != op.kind or not op.x.has_one_use():
        return False
    atoms = (*_atoms(first.axes(mesh)), *_atoms(op.axes(mesh)))
    if len(set(atoms)) != len(atoms):
        return False
    axes = merge_refs(sorted(atoms, key=mesh.order))
    new = AllReduceOp.make(first.x, axes, mesh, reason=_reasons([first, op]), kind=op.kind)
    _insert(new, op)
    return _replace(op, new) and _replace(first, None)


def _reduce_later(op: HloOp, mesh: Mesh) -> bool:
    """f(reduce(x), reduce(y)) -> reduce(f(x, y)) when nothing else uses the reduced values."""
    kind = _COMMUTES[op.name]
    a, b = (operand.owner for operand in op.operands)
    if not isinstance(a, AllReduceOp | ReduceScatterOp) or type(a) is not type(b) or a is b:
        return False
    assert isinstance(b, AllReduceOp | ReduceScatterOp)
    notes = ("reason", "bytes")
    same = {k: v for k, v in a.properties.items() if k not in notes} == {
        k: v for k, v in b.properties.items() if k not in notes
    }
    if a.kind != kind or not same or not all(operand.has_one_use() for operand in op.operands):
        return False
    inner = type(op).create(
        operands=[a.x, b.x], result_types=[a.x.type], properties=dict(op.properties), location=op.location
    )
    _insert(inner, op)
    fields = {"dim": a.dim, "period": a.period} if isinstance(a, ReduceScatterOp) else {}
    new = type(a).make(inner.results[0], a.axes(mesh), mesh, reason=_reasons([a, b]), kind=kind, **fields)
    _insert(new, op)
    op.results[0].replace_all_uses_with(new.result)
    _erase(op)
    return _replace(a, None) and _replace(b, None)


def _atoms(axes: Iterable[AxisRef]) -> list[AxisRef]:
    return [atom for axis in axes for atom in Mesh.atoms_of(axis)]


def _reasons(ops: Iterable[CollectiveOp]) -> str | None:
    """The reasons of the ops that one op replaces, each once."""
    known = dict.fromkeys(part for op in ops if op.reason for part in op.reason.split("; "))
    return "; ".join(known) or None


def _insert(op: Operation, before: Operation) -> None:
    block = before.parent
    assert block is not None
    op.location = before.location
    block.insert_op_before(op, before)


def _replace(op: LocalOp, new: CollectiveOp | None) -> bool:
    """Put the result of `new` in place of that of `op` (unused if there is none); always True."""
    if new is not None:
        new.result.name_hint = op.results[0].name_hint
        op.results[0].replace_all_uses_with(new.result)
    _erase(op)
    return True


def _erase(op: Operation) -> None:
    assert op.parent is not None
    op.parent.erase_op(op)


def _drop_dead(block: Block) -> None:
    for op in reversed(list(block.ops)):
        if isinstance(op, LocalOp) and not any(r.uses for r in op.results):
            _erase(op)
