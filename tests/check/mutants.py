"""Faults to plant in correct local programs. Each kind says where it can be planted and what it then changes.

`PLANT[kind](op, mesh, choices)` changes the program around `op` and returns the ops whose values may be the first
wrong ones, or None when the fault cannot be planted there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from equivalent import varying
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, i64
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.check.choices import Choices
from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.dist import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    AxesAttr,
    AxisIndexOp,
    CollectiveOp,
    HaloOp,
    PermuteOp,
    ReduceScatterOp,
    ShardOp,
)
from rhino.dialects.dist.local import LocalOp
from rhino.ir import types
from rhino.ir.mesh import AxisRef, Mesh

Altered = Sequence[Operation] | None
Plant = Callable[[Operation, Mesh, Choices], Altered]
PLANT: dict[str, Plant] = {}


def kind(name: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        PLANT[name] = plant
        return plant

    return add


# Small edits.


def before(op: Operation) -> Builder:
    builder = Builder(InsertPoint.before(op))
    builder.location = op.location
    return builder


def after(op: Operation) -> Builder:
    return Builder(InsertPoint.after(op))


def swap(op: Operation, value: SSAValue) -> list[Operation]:
    """Everybody who used the result of `op` uses `value`; the op goes away.

    Returns the users, and what makes `value` where that now stands for what the op stood for.
    """
    changed = [use.operation for use in op.results[0].uses]
    if isinstance(value.owner, Operation) and value.name_hint is None:
        value.name_hint = op.results[0].name_hint
        changed.append(value.owner)
    op.results[0].replace_all_uses_with(value)
    op.parent.erase_op(op)
    return changed


def feed(op: Operation, old: SSAValue, new: SSAValue) -> None:
    op.operands = [new if v is old else v for v in op.operands]


def append(op: Operation, make: Callable[[SSAValue], SSAValue]) -> Operation:
    """Everybody who used the result of `op` uses what `make` does to it."""
    result = op.results[0]
    uses = list(result.uses)
    new = make(result)
    for use in uses:
        use.operation.operands[use.index] = new
    # The new value stands for what the old one stood for.
    new.name_hint, result.name_hint = result.name_hint, None
    return new.owner


def remake(op: CollectiveOp, x: SSAValue, axes: Sequence[AxisRef], mesh: Mesh) -> CollectiveOp:
    """The same collective on another operand or other axes."""
    fields: dict[str, int | str | list[int]] = {}
    if isinstance(op, AllReduceOp | ReduceScatterOp):
        fields["kind"] = op.kind
    if op.CUT is not None:
        fields.update(zip(op.CUT, op.cut(), strict=True))
    if op.JOIN is not None:
        fields.update(zip(op.JOIN, op.join(), strict=True))
    if isinstance(op, PermuteOp):
        fields["to"] = list(op.targets)
    if isinstance(op, HaloOp):
        fields |= {"kind": op.kind, "dim": op.dim, "low": op.edges[0], "high": op.edges[1]}
    return type(op).make(x, axes, mesh, **fields)


def axes_of(op: LocalOp, mesh: Mesh) -> list[AxisRef]:
    return [atom for axis in op.axes(mesh) for atom in Mesh.atoms_of(axis)]


def rotated(mesh: Mesh, axes: Sequence[AxisRef]) -> list[int]:
    """Every rank sends to the next one of its group."""
    to = [0] * mesh.size
    for group in mesh.groups(axes):
        for i, rank in enumerate(group):
            to[rank] = group[(i + 1) % len(group)]
    return to


def permuted(builder: Builder, x: SSAValue, axes: Sequence[AxisRef], mesh: Mesh) -> SSAValue:
    return builder.insert(PermuteOp.make(x, axes, mesh, to=rotated(mesh, axes))).result


def depends(value: SSAValue) -> bool:
    """Whether a value depends on an argument."""
    stack, seen = [value], set()
    while stack:
        owner = stack.pop().owner
        if not isinstance(owner, Operation):
            return True
        if owner not in seen:
            seen.add(owner)
            stack.extend(owner.operands)
    return False


# The kinds.


@kind("a collective dropped")
def drop(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if isinstance(op, AllGatherOp):
        b = before(op)
        chunk = op.period // op.members(mesh)
        shape = list(types.shape_of(op.x))
        n, dim = op.members(mesh), op.dim
        parts = b.reshape(op.x, [*shape[:dim], shape[dim] // chunk, 1, chunk, *shape[dim + 1 :]])
        many = b.concatenate([parts] * n, dim + 1)
        return [many.owner, *swap(op, b.reshape(many, types.shape_of(op.result)))]
    if isinstance(op, ReduceScatterOp):
        new = before(op).insert(ShardOp.make(op.x, op.axes(mesh), mesh, dim=op.dim, period=op.period))
        return [new, *swap(op, new.result)]
    if isinstance(op, CollectiveOp) and op.x.type == op.result.type:
        return swap(op, op.x)
    return None


@kind("a collective duplicated")
def duplicate(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if isinstance(op, ReduceScatterOp):
        first = before(op).insert(AllReduceOp.make(op.x, op.axes(mesh), mesh, kind=op.kind))
        feed(op, op.x, first.result)
        return [op]
    if isinstance(op, CollectiveOp) and op.x.type == op.result.type and not isinstance(op, ShardOp):
        return [append(op, lambda x: after(op).insert(remake(op, x, op.axes(mesh), mesh)).result)]
    return None


@kind("a collective moved")
def move(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, AllReduceOp):
        return None
    users = [u.operation for u in op.result.uses]
    users = [u for u in users if u.name.startswith("hlo.") and len(u.results) == 1 and not u.regions]
    users = [u for u in users if u.results[0].type == op.x.type]
    if not users:
        return None
    user = choices.pick(users)
    feed(user, op.result, op.x)
    return [
        user,
        append(
            user, lambda x: after(user).insert(AllReduceOp.make(x, op.axes(mesh), mesh, kind=op.kind)).result
        ),
    ]


@kind("the wrong axis")
def wrong_axis(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, LocalOp):
        return None
    mine = axes_of(op, mesh)
    at = choices.integer(0, len(mine) - 1) if mine else 0
    others = [a for a in mesh.atoms if mine and a not in mine and a.size == mine[at].size]
    if not others or isinstance(op, PermuteOp):
        return None
    mine[at] = choices.pick(others)
    op.properties["axes"] = AxesAttr.of(mine, mesh)
    return [op]


@kind("the wrong group")
def wrong_group(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, AllReduceOp):
        return None
    mine = axes_of(op, mesh)
    # The greatest of equal numbers is that number.
    different = mesh.atoms if op.kind == "sum" else varying(op.get_toplevel_object(), mesh)[op.x]
    options = [[*mine, a] for a in mesh.atoms if a not in mine and a in different]
    options += [[a for a in mine if a != b] for b in mine if len(mine) > 1]
    if not options:
        return None
    op.properties["axes"] = AxesAttr.of(choices.pick(options), mesh)
    return [op]


@kind("all_reduce for reduce_scatter")
def all_reduce_for_scatter(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, ReduceScatterOp):
        return None
    b = before(op)
    whole = b.insert(AllReduceOp.make(op.x, op.axes(mesh), mesh, kind=op.kind)).result
    shape, n, dim, period = list(types.shape_of(op.x)), op.members(mesh), op.dim, op.period
    digits = [*shape[:dim], shape[dim] // period, n, period // n, *shape[dim + 1 :]]
    limit = list(digits)
    limit[dim + 1] = 1
    first = b.slice(b.reshape(whole, digits), [0] * len(digits), limit)
    return [first.owner, *swap(op, b.reshape(first, types.shape_of(op.result)))]


@kind("partial taken for replicated")
def partial_taken(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    sites = [v for v in op.operands if isinstance(v.owner, AllReduceOp)]
    if not sites:
        return None
    value = choices.pick(sites)
    feed(op, value, value.owner.x)
    return [op]


@kind("a wrong scale")
def wrong_scale(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, AllReduceOp | ReduceScatterOp) or not types.is_float(types.element_of(op.x)):
        return None
    factor = choices.pick([op.members(mesh), 1 / op.members(mesh)])
    return [append(op, lambda x: after(op).mul(x, after(op).full_like(x, factor)))]


@kind("a wrong period")
def wrong_period(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, CollectiveOp):
        return None
    n = op.members(mesh)
    options = []
    for names, value in ((op.CUT, op.x), (op.JOIN, op.result)):
        if names is not None:
            extent = types.shape_of(value)[op.digit(names, types.shape_of(value))[0]]
            now = op.digit(names, types.shape_of(value))[1]
            options += [
                (names[1], p) for p in range(n, extent + 1) if p % n == 0 and extent % p == 0 and p != now
            ]
    if not options:
        return None
    key, period = choices.pick(options)
    op.properties[key] = IntegerAttr(period, i64)
    return [op]


@kind("the rank map permuted")
def rank_map(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if isinstance(op, PermuteOp):
        # Ranks that hold the same may take each other's place.
        different = varying(op.get_toplevel_object(), mesh)[op.x]
        axes = [a for a in axes_of(op, mesh) if a in different]
        if not axes:
            return None
        to = list(op.targets)
        a, b = choices.order(choices.pick([g for g in mesh.groups(axes) if len(g) > 1]))[:2]
        to[a], to[b] = to[b], to[a]
        op.properties["to"] = DenseArrayBase.from_list(i64, to)
        return [op]
    if isinstance(op, AllGatherOp | AllToAllOp):
        feed(op, op.x, permuted(before(op), op.x, op.axes(mesh), mesh))
        return [op]
    if isinstance(op, ReduceScatterOp):
        return [append(op, lambda x: permuted(after(op), x, op.axes(mesh), mesh))]
    return None


@kind("sender and receiver swapped")
def swapped(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, PermuteOp):
        return None
    to = [0] * mesh.size
    for source, target in enumerate(op.targets):
        to[target] = source
    if to == list(op.targets):
        return None
    op.properties["to"] = DenseArrayBase.from_list(i64, to)
    return [op]


@kind("an offset off by one")
def off_by_one(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if isinstance(op, ShardOp):
        extent = types.shape_of(op.x)[op.dim]
        if extent < 2:
            return None
        b, shape = before(op), list(types.shape_of(op.x))
        ones, middle = [0] * len(shape), list(shape)
        ones[op.dim], middle[op.dim] = 1, 1
        rolled = b.concatenate([b.slice(op.x, ones, shape), b.slice(op.x, [0] * len(shape), middle)], op.dim)
        feed(op, op.x, rolled)
        return [op]
    if isinstance(op, AxisIndexOp):
        # The offset of this rank's piece: the coordinate, spread over a shape, times the size of a piece.
        users = [u.operation for u in op.result.uses]
        users += [u.operation for b in users if b.name == "hlo.broadcast_in_dim" for u in b.results[0].uses]
        uses = [user for user in users if user.name == "hlo.mul"]
        if not uses:
            return None
        user = choices.pick(uses)
        return [append(user, lambda x: after(user).add(x, after(user).full_like(x, 1)))]
    return None


@kind("padding let in")
def unmasked(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    """A select that keeps padding out of a sum or a maximum (its condition is about indices) is left out."""
    if (
        op.name != "hlo.select"
        or depends(op.operands[0])
        or not types.is_float(types.element_of(op.results[0]))
        or not any(u.operation.name in ("hlo.reduce", "hlo.dot_general") for u in op.results[0].uses)
    ):
        return None
    copy = before(op).maximum(op.operands[1], op.operands[1])
    return [copy.owner, *swap(op, copy)]


@kind("the wrong piece")
def wrong_piece(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, ShardOp):
        return None
    return [append(op, lambda x: permuted(after(op), x, op.axes(mesh), mesh))]


@kind("a tied weight updated once")
def lost(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    """As when a tied weight gets the gradient of one of its uses only."""
    if op.name != "hlo.add" or not types.is_float(types.element_of(op.results[0])):
        return None
    keep = choices.pick([0, 1])
    copy = before(op).maximum(op.operands[keep], op.operands[keep])  # under the name of the sum
    return [copy.owner, *swap(op, copy)]


@kind("random numbers by local index")
def local_index(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if op.name != "hlo.random_uniform" or not varying(op.get_toplevel_object(), mesh)[op.operands[1]]:
        return None  # where every rank draws everything, its index is the global one
    feed(op, op.operands[1], before(op).linear_index(list(types.shape_of(op.operands[1]))))
    return [op]


@kind("a bf16 reduction")
def narrow(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, AllReduceOp | ReduceScatterOp) or op.kind != "sum":
        return None
    element = types.element_of(op.x)
    if not types.is_float(element):
        return None
    rounded = before(op).convert(op.x, types.BF16)
    new = before(op).insert(remake(op, rounded, op.axes(mesh), mesh))
    return [rounded.owner, new, *swap(op, before(op).convert(new.result, element))]


@kind("the wrong reduction")
def wrong_kind(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, AllReduceOp | ReduceScatterOp):
        return None
    logic = ["and", "or"]
    others = [k for k in (logic if op.kind in logic else ["sum", "max", "min", "prod"]) if k != op.kind]
    if types.element_of(op.x) == types.I1 and op.kind not in logic:
        return None
    op.properties["kind"] = StringAttr(choices.pick(others))
    return [op]


@kind("the wrong buffer")
def wrong_buffer(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, CollectiveOp):
        return None
    block = op.parent
    known = list(block.args)
    for other in block.ops:
        if other is op:
            break
        known.extend(other.results)
    others = [v for v in known if v.type == op.x.type and v is not op.x]
    if not others:
        return None
    feed(op, op.x, choices.pick(others))
    return [op]


@kind("an update lost")
def not_updated(op: Operation, mesh: Mesh, choices: Choices) -> Altered:
    if not isinstance(op, ReturnOp):
        return None
    func = op.parent_op()
    slots = signature.results(func)
    options = [
        i
        for i, s in enumerate(slots)
        if s.role == "parameter" and s.alias is not None and func.args[s.alias].type == op.operands[i].type
    ]
    if not options:
        return None
    i = choices.pick(options)
    op.operands[i] = func.args[slots[i].alias]
    return [op]
