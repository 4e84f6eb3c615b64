"""Why a planted fault changes nothing: arguments from the program's structure, none of which runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from bounds import chooses_nothing, meets_zeros
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    AxisIndexOp,
    CollectiveOp,
    HaloOp,
    PermuteOp,
    ReduceScatterOp,
)
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import GLOBAL_TYPE, LAYOUT
from rhino.dialects.hlo.constant import splat_of
from rhino.ir import types
from rhino.ir.layout import Layout
from rhino.ir.mesh import AxisRef, Mesh

Atoms = frozenset[AxisRef]
IDEMPOTENT = ("max", "min", "and", "or")


def everywhere(op: Operation) -> bool:
    return True


def downstream(
    altered: Sequence[Operation], through: Callable[[Operation], bool] = everywhere
) -> set[Operation]:
    """The ops that depend on one of these, and they themselves; beyond an op only if it may be gone `through`."""
    found: set[Operation] = set()
    stack = list(altered)
    while stack:
        op = stack.pop()
        if op not in found:
            found.add(op)
            if through(op):
                stack.extend(use.operation for result in op.results for use in result.uses)
    return found


def from_arguments(module: ModuleOp) -> set[SSAValue]:
    """The values that depend on an argument."""
    block = signature.main_of(module).body.block
    found: set[SSAValue] = set(block.args)
    for op in block.ops:
        if any(v in found for v in op.operands):
            found.update(op.results)
    return found


def uniform(value: SSAValue) -> bool:
    """Whether all elements on all ranks are one constant that was only moved about."""
    while isinstance(value.owner, Operation):
        op = value.owner
        if splat_of(value) is not None:
            return True
        moves = isinstance(op, CollectiveOp) and not isinstance(op, AllReduceOp | HaloOp | ReduceScatterOp)
        if not moves and op.name not in ("hlo.broadcast_in_dim", "hlo.reshape", "hlo.transpose", "hlo.slice"):
            return False
        value = op.operands[0]
    return False


def of_labels(value: SSAValue) -> bool:
    """Whether a value is zero, up to its sign, wherever an index is not an element of an argument of integers."""
    while isinstance(value.owner, Operation) and value.owner.name in ("hlo.negate", "hlo.convert"):
        value = value.owner.operands[0]
    op = value.owner
    if not isinstance(op, Operation) or op.name != "hlo.select":
        return False
    zero, test = splat_of(op.operands[2]), op.operands[0].owner
    return zero is not None and zero == 0 and getattr(test, "name", "") == "hlo.compare"


def varying(module: ModuleOp, mesh: Mesh) -> Mapping[SSAValue, Atoms]:
    """For every value the axes along which ranks may hold different arrays."""
    func = signature.main_of(module)
    out: dict[SSAValue, Atoms] = {}
    for arg, slot in zip(func.args, signature.arguments(func), strict=True):
        other = dict(slot.other)
        layout = other[LAYOUT]
        assert isinstance(layout, LayoutAttr)
        out[arg] = frozenset(layout.resolve(tuple(other[GLOBAL_TYPE].get_shape()), mesh).axes())
    for op in func.body.block.ops:
        axes = frozenset().union(*(out[v] for v in op.operands)) if op.operands else frozenset()
        if isinstance(op, AxisIndexOp | CollectiveOp):
            mine = frozenset(a for axis in op.axes(mesh) for a in Mesh.atoms_of(axis))
            if isinstance(op, AllReduceOp | AllGatherOp):
                axes -= mine
            elif axes & mine or not isinstance(op, PermuteOp):  # what all hold may change places as it likes
                axes |= mine
        for result in op.results:
            out[result] = axes
    return out


def harmless_padding(original: ModuleOp, mesh: Mesh, copy: Operation) -> str | None:
    """Why a select against padding may be left out; `copy` stands in its place."""
    if of_labels(copy.operands[0]):
        return "padding is zero already: no label is of a class that does not exist"
    assert copy.parent is not None
    place = list(copy.parent.ops).index(copy)
    select = list(signature.main_of(original).body.block.ops)[place]
    assert select.name == "hlo.select"
    if chooses_nothing(original, mesh, select):
        return "padding is zero already, whatever the arguments hold"
    if meets_zeros(original, mesh, select):
        return "padding is multiplied by zeros, whatever the arguments hold"
    return None


def reason(
    kind: str,
    original: ModuleOp,
    mutant: ModuleOp,
    altered: Sequence[Operation],
    near: Iterable[Operation],
    mesh: Mesh,
) -> str | None:
    """Why a mutant that was found equal on some arguments is equal on all, or None if nothing shows it.

    `near` are the ops up to the first ones that stand for values of the placed program.
    """
    if not any(isinstance(op, ReturnOp) for op in downstream(altered)):
        return "no result depends on it"
    if not any(op.results and any(r in from_arguments(mutant) for r in op.results) for op in near):
        return "it is about constants, and they are equal"
    first = altered[0]
    if isinstance(first, CollectiveOp) and uniform(first.results[0]):
        return "all elements are one constant"
    differs = varying(mutant, mesh)
    if kind == "padding let in":
        return harmless_padding(original, mesh, first)
    if kind == "a collective duplicated" and getattr(first, "kind", None) in IDEMPOTENT:
        return "the reduction of equal values is that value"
    if kind == "a collective moved":
        user, reduce = altered
        assert isinstance(reduce, AllReduceOp)
        axes = [a for axis in reduce.axes(mesh) for a in Mesh.atoms_of(axis)]
        moved = user.results[0]
        partial = [Layout(((),) * len(types.shape_of(v)), ()) for v in user.operands]
        for i, value in enumerate(user.operands):
            zero = reduce.kind == "sum" and (constant := splat_of(value)) is not None and constant == 0
            if differs[value] & set(axes) or zero:
                for atom in axes:
                    partial[i] = partial[i].with_partial(atom, reduce.kind)
        others = [v for v in user.operands if not differs[v] & set(axes)]
        if user.name == "hlo.add" and reduce.kind in ("max", "min") and len(others) == 1:
            return "the greatest of sums with one number is the sum with the greatest"
        follow = user.rule().forward(partial)
        if not isinstance(follow, str) and follow[0].partial and moved.has_one_use():
            return "the reduction passes through the op by its rule"
    if kind in ("the rank map permuted", "sender and receiver swapped", "a collective dropped"):
        ops = [op for op in altered if isinstance(op, PermuteOp | AllGatherOp | AllToAllOp)]
        for op in ops:
            mine = {a for axis in op.axes(mesh) for a in Mesh.atoms_of(axis)}
            source = (
                op.x.owner.x if isinstance(op.x.owner, PermuteOp) and not isinstance(op, PermuteOp) else op.x
            )
            if not differs[source] & mine:
                return "all ranks of the group hold the same"
    return None
