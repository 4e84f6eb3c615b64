"""fuse: gather elementwise, broadcast and reduction ops, and matmuls with what follows them, into kernel regions.

    %a = hlo.add %x, %b                       %z = kernel.region "pointwise" (%x, %b) ({
    %z = hlo.exp %a                   ->        %a = hlo.add ...  %z = hlo.exp ...  kernel.yield %z })

A region has one loop shape. An op joins the region of one of its operands when the shapes fit and no path leads
out of the region and back (the contracted graph stays acyclic). Splat constants and broadcasts cost nothing and
are copied into every region that reads them. Runs on local-stage modules, last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass

from rhino.dialects import signature
from rhino.dialects.hlo.base import HloOp, get_ints, get_text
from rhino.dialects.hlo.constant import ConstantOp, splat_of
from rhino.dialects.hlo.dot import DotGeneralOp
from rhino.dialects.hlo.reduce import ReduceOp
from rhino.dialects.hlo.shape import BroadcastInDimOp, ReshapeOp
from rhino.dialects.kernel import RegionOp, YieldOp
from rhino.ir import types
from rhino.kernels.expressions import BINARY, COMPUTE, FLOAT_ONLY, REDUCE, UNARY
from rhino.kernels.read import is_row_shape

Shape = tuple[int, ...]

#: A row is held whole in registers.
MOST_COLUMNS = 16384
MOST_OPS = 64


@dataclass(frozen=True)
class FusePass(ModulePass):
    """Options: ``matmul`` (default true) also forms regions around matmuls."""

    name = "fuse"

    matmul: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        fuse(op, matmul=self.matmul)


def fuse(module: ModuleOp, *, matmul: bool = True) -> int:
    """Form kernel regions in `@main`, in place; returns how many."""
    block = signature.main_of(module).body.block
    groups = _Grouping(list(block.ops), matmul).groups()
    _rebuild(block, groups)
    return len(groups)


@dataclass
class Group:
    """Ops that one kernel will compute; `cols` is 0 until a reduction joins."""

    kind: str
    loop: Shape
    cols: int
    ops: list[Operation] = field(default_factory=list)

    def admits(self, op: Operation) -> bool:
        """Whether the shapes of an elementwise or reduction op fit this group's loop."""
        if len(self.ops) >= MOST_OPS:
            return False
        if isinstance(op, ReduceOp):
            cols = len(get_ints(op.properties, "dims"))
            return (
                self.kind != "matmul"
                and types.shape_of(op.operands[0]) == self.loop
                and self.cols in (0, cols)
            )
        shape = types.shape_of(op.results[0])
        if isinstance(op, ReshapeOp):
            return is_row_shape(shape, self.loop, self.cols) and self._holds_row(op.operands[0])
        if shape == self.loop:
            return True
        # A matmul's columns are not reduced, so it has no row values.
        return self.kind == "rows" and is_row_shape(shape, self.loop, self.cols)

    def _holds_row(self, value: SSAValue) -> bool:
        return value.owner in self.ops and is_row_shape(types.shape_of(value), self.loop, self.cols)


class _Grouping:
    """Decides which ops go together, walking the block once in order."""

    def __init__(self, ops: Sequence[Operation], matmul: bool) -> None:
        self.ops = ops
        self.matmul = matmul
        self.group_of: dict[Operation, Group] = {}

    def groups(self) -> list[Group]:
        found: list[Group] = []
        for op in self.ops:
            if self.matmul and isinstance(op, DotGeneralOp) and _float_dot(op):
                taken = (*get_ints(op.properties, "rhs_batch"), *get_ints(op.properties, "rhs_contract"))
                cols = len(types.shape_of(op.operands[1])) - len(taken)
                found.append(self._start(Group("matmul", types.shape_of(op.results[0]), cols), op))
            elif (_elementwise(op) or _row_reduction(op) or isinstance(op, ReshapeOp)) and not self._join(op):
                if isinstance(op, ReduceOp):
                    cols = len(get_ints(op.properties, "dims"))
                    found.append(self._start(Group("rows", types.shape_of(op.operands[0]), cols), op))
                elif _elementwise(op) and types.shape_of(op.results[0]):
                    found.append(self._start(Group("pointwise", types.shape_of(op.results[0]), 0), op))
        return [g for g in found if g.ops and (len(g.ops) > 1 or g.kind != "pointwise")]

    def _start(self, group: Group, op: Operation) -> Group:
        group.ops.append(op)
        self.group_of[op] = group
        return group

    def _join(self, op: Operation) -> bool:
        """Put `op` into the groups of its operands, merging those that can be one."""
        candidates: list[Group] = []
        for source in _sources(op):
            group = self.group_of.get(source)
            if group is not None and group not in candidates and group.admits(op) and self._fits(op, group):
                candidates.append(group)
        candidates.sort(key=lambda g: -len(g.ops))
        home: Group | None = None
        for group in candidates:
            if home is None:
                if not self._reaches(self._outside(op, group), group):
                    home = group
            elif _mergeable(home, group) and self._acyclic(home, group):
                rest = [s for s in _sources(op) if self.group_of.get(s) not in (home, group)]
                if not self._reaches(rest, group):
                    self._merge(home, group)
        if home is None:
            return False
        home.ops.append(op)
        self.group_of[op] = home
        if isinstance(op, ReduceOp):
            home.cols = len(get_ints(op.properties, "dims"))
            home.kind = "rows"
        return True

    def _fits(self, op: Operation, group: Group) -> bool:
        """Every operand must be loadable, or stand in the group in the form in which the op reads it."""
        target = types.shape_of(op.operands[0]) if isinstance(op, ReduceOp) else types.shape_of(op.results[0])
        for operand in op.operands:
            owner = operand.owner
            if isinstance(owner, BroadcastInDimOp) and owner.operands[0].owner in group.ops:
                x = owner.operands[0]
                rows = len(group.loop) - group.cols
                dims = get_ints(owner.properties, "dims")
                spread = target == group.loop and is_row_shape(types.shape_of(x), group.loop, group.cols)
                if not (
                    spread
                    and dims[:rows] == tuple(range(rows))
                    and dims[rows:] == tuple(range(rows, len(dims)))
                ):
                    return False
        return True

    def _outside(self, op: Operation, group: Group) -> list[Operation]:
        return [s for s in _sources(op) if self.group_of.get(s) is not group]

    def _reaches(self, start: Iterable[Operation], group: Group) -> bool:
        """Whether any op of `start` depends on `group`, other groups counted as one node each."""
        seen: set[int] = set()
        stack = list(start)
        while stack:
            op = stack.pop()
            if id(op) in seen:
                continue
            other = self.group_of.get(op)
            if other is group:
                return True
            members = [op] if other is None else other.ops
            seen.update(id(m) for m in members)
            for member in members:
                stack.extend(s for o in member.operands if isinstance(s := o.owner, Operation))
        return False

    def _acyclic(self, a: Group, b: Group) -> bool:
        """Whether merging two groups leaves the graph acyclic: no path between them through a third node."""

        def around(x: Group, y: Group) -> bool:
            sources = {id(s): s for op in x.ops for s in _sources(op)}
            return self._reaches([s for s in sources.values() if self.group_of.get(s) not in (x, y)], y)

        return not around(a, b) and not around(b, a)

    def _merge(self, home: Group, other: Group) -> None:
        home.ops.extend(other.ops)
        home.cols = max(home.cols, other.cols)
        home.kind = "rows" if "rows" in (home.kind, other.kind) else home.kind
        for op in other.ops:
            self.group_of[op] = home
        other.ops = []


def _mergeable(a: Group, b: Group) -> bool:
    same = a.loop == b.loop and (a.cols == b.cols or 0 in (a.cols, b.cols))
    return same and "matmul" not in (a.kind, b.kind) and len(a.ops) + len(b.ops) < MOST_OPS


def _free(op: Operation) -> bool:
    """Ops that a kernel makes on the fly: splats, and broadcasts (which are a way to load)."""
    if isinstance(op, ConstantOp):
        return splat_of(op.results[0]) is not None
    return isinstance(op, BroadcastInDimOp)


def _sources(op: Operation) -> list[Operation]:
    """The ops that produce `op`'s operands, looking through those that are free."""
    found: list[Operation] = []
    stack = [o.owner for o in op.operands]
    while stack:
        owner = stack.pop()
        if isinstance(owner, Operation):
            if _free(owner):
                stack.extend(o.owner for o in owner.operands)
            else:
                found.append(owner)
    return found


def _computable(op: Operation) -> bool:
    values = (*op.operands, *op.results)
    return all(types.element_name(types.element_of(v)) in COMPUTE for v in values)


def _float_dot(op: DotGeneralOp) -> bool:
    elements = {types.element_of(v) for v in op.operands}
    return _computable(op) and len(elements) == 1 and types.is_float(elements.pop())


def _elementwise(op: Operation) -> bool:
    if (
        op.name not in UNARY
        and op.name not in BINARY
        and op.name not in ("hlo.compare", "hlo.select", "hlo.convert")
    ):
        return False
    if op.name in FLOAT_ONLY and not types.is_float(types.element_of(op.operands[0])):
        return False
    if op.name == "hlo.convert" and types.element_of(op.results[0]) == types.I1:
        return False
    shape = types.shape_of(op.results[0])
    return _computable(op) and all(types.shape_of(o) == shape for o in op.operands)


def _row_reduction(op: Operation) -> bool:
    """A reduction of floats over trailing dims that are short enough to be held whole."""
    if not isinstance(op, ReduceOp) or not _computable(op):
        return False
    shape, dims = types.shape_of(op.operands[0]), get_ints(op.properties, "dims")
    trailing = bool(dims) and sorted(dims) == list(range(len(shape) - len(dims), len(shape)))
    return (
        trailing
        and get_text(op.properties, "kind") in REDUCE
        and types.is_float(types.element_of(op.operands[0]))
        and 0 < math.prod(shape[d] for d in dims) <= MOST_COLUMNS
        and math.prod(shape) > 0
    )


def _rebuild(block: Block, groups: Sequence[Group]) -> None:
    """Replace every group by a region and put the block in a topological order again."""
    position = {op: i for i, op in enumerate(block.ops)}
    group_of = {op: g for g in groups for op in g.ops}
    regions: dict[int, RegionOp] = {}
    for group in groups:
        group.ops.sort(key=position.__getitem__)
    # Regions are made before anything is detached, so that every use is still visible.
    replacements: dict[SSAValue, SSAValue] = {}
    for group in groups:
        region, outputs = _make_region(group)
        regions[id(group)] = region
        replacements.update(zip(outputs, region.outputs, strict=True))
    order: list[Operation] = []
    done: set[int] = set()

    def emit(op: Operation) -> None:
        stack: list[tuple[Operation, bool]] = [(op, False)]
        while stack:
            current, ready = stack.pop()
            group = group_of.get(current)
            key = id(group) if group is not None else id(current)
            if key in done:
                continue
            members = group.ops if group is not None else [current]
            if ready:
                done.add(key)
                order.append(regions[id(group)] if group is not None else current)
                continue
            stack.append((current, True))
            inputs = regions[id(group)].operands if group is not None else current.operands
            owners = [v.owner for v in inputs if isinstance(v.owner, Operation)]
            stack.extend((o, False) for o in reversed(owners) if o not in members)

    for op in list(block.ops):
        emit(op)
    for old, new in replacements.items():
        old.replace_all_uses_with(new)
    for op in list(block.ops):
        op.detach()
    for op in order:
        block.add_op(op)
    for group in groups:
        for op in reversed(group.ops):
            op.drop_all_references()
    _drop_unused(block)


def _make_region(group: Group) -> tuple[RegionOp, list[SSAValue]]:
    """The region of a group, and the values of the group that are used outside it."""
    members = set(group.ops)
    outputs: list[SSAValue] = [r for op in group.ops for r in op.results if _escapes(r, members)]
    inputs: dict[SSAValue, int] = {}
    body: list[tuple[Operation, Sequence[SSAValue]]] = []
    copied: set[Operation] = set()

    def need(value: SSAValue) -> None:
        owner = value.owner
        if owner in members or owner in copied:
            return
        if isinstance(owner, Operation) and _free(owner):
            for operand in owner.operands:
                need(operand)
            copied.add(owner)
            body.append((owner, owner.results))
        else:
            inputs.setdefault(value, len(inputs))

    for op in group.ops:
        for operand in op.operands:
            need(operand)
        body.append((op, op.results))
    block = Block(arg_types=[v.type for v in inputs])
    mapping: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    for op, results in body:
        clone = op.clone(mapping)
        block.add_op(clone)
        mapping.update(zip(results, clone.results, strict=True))
    block.add_op(YieldOp.of([mapping[o] for o in outputs]))
    region = RegionOp.of(group.kind, list(inputs), [o.type for o in outputs], Region(block))
    region.location = group.ops[-1].location
    return region, outputs


def _escapes(value: SSAValue, members: set[Operation]) -> bool:
    """Whether a value is needed outside its group; broadcasts of it are copied to where they are read."""
    for use in value.uses:
        user = use.operation
        if user in members:
            continue
        if not _free(user) or any(_escapes(r, members) for r in user.results):
            return True
    return False


def _drop_unused(block: Block) -> None:
    for op in reversed(list(block.ops)):
        if isinstance(op, HloOp) and _free(op) and not any(r.uses for r in op.results):
            op.detach()
            op.erase()
