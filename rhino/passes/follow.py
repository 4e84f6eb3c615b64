"""Layouts for a whole function from a few pins: every op follows its neighbours.

The unit of propagation is one atom of the mesh on one factor of one op's rule. An op that sees a digit of
an atom on one of its tensors splits the factor the digit lies in, and hands the digit to all its tensors
that have the factor and are free to take it. Where the neighbours disagree, the factor that keeps more
bytes in place wins. Everything that no digit reaches stays replicated.

A last sweep in program order settles partial results: they pass through linear ops as long as that does not
make more bytes to reduce, and are resolved at the first consumer otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist import ReshardOp
from rhino.dialects.dist.layouts import argument_layouts, layout_error, layouts_of, result_layouts
from rhino.dialects.hlo.base import HloOp
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.rule import Placement, Rule, Split
from rhino.ir.verify import op_error

Factor = tuple[str, int]  # name, period inside it


@dataclass(frozen=True)
class Decided:
    """Everything `rhino.passes.place.place` wants to know."""

    placements: Mapping[Operation, Placement]
    arguments: tuple[Layout, ...]
    results: tuple[Layout, ...]


@dataclass
class _Node:
    """An op with its rule, the splits decided so far and the pinned layouts of its results."""

    op: HloOp
    rule: Rule
    pin: tuple[Layout, ...] | None
    splits: dict[AxisRef, Split] = field(default_factory=dict)


@dataclass
class _State:
    """Digits that values have so far; `closed` values take no more."""

    mesh: Mesh
    digits: dict[SSAValue, Layout]
    closed: set[SSAValue]


def follow_pins(module: ModuleOp, mesh: Mesh, *, backward: bool = True) -> Decided:
    """Layouts for all values of `@main` from its pins: ``dist.layout`` on arguments, results and ops.

    A pin on an argument or result of the function is its layout; a pin on an op is the layout in which the
    op itself yields its results. A result that replaces an argument in the next step has the argument's
    layout. Without `backward`, digits travel from operands to results only.

    Raises LayoutError when an op cannot yield its pinned layout, ProgramError when the module is already
    placed or holds an op with a region.
    """
    func = signature.main_of(module)
    ret = signature.return_of(func)
    nodes = [_node(op, mesh) for op in func.body.block.ops if op is not ret]
    given = argument_layouts(func, mesh)
    wanted = _wanted_results(func, given, mesh)
    state = _State(mesh, {}, set())
    for arg, layout in zip(func.args, given, strict=True):
        state.digits[arg] = layout or Layout.replicated(len(types.shape_of(arg)))
        if layout is not None or not backward:
            state.closed.add(arg)
    for node in nodes:
        for i, result in enumerate(node.op.results):
            if node.pin is None:
                state.digits[result] = Layout.replicated(len(types.shape_of(result)))
            else:
                state.digits[result] = _without_partial(node.pin[i])
                state.closed.add(result)
    if backward:
        for value, layout in zip(ret.operands, wanted, strict=True):
            if layout is not None and value not in state.closed:
                state.digits[value] = _without_partial(layout)
    _sweep(nodes, state, backward)
    have: dict[SSAValue, Layout] = {
        arg: state.digits[arg] if pin is None else pin for arg, pin in zip(func.args, given, strict=True)
    }
    placements: dict[Operation, Placement] = {}
    for node in nodes:
        placement = _settle(node, have, mesh)
        placements[node.op] = placement
        have.update(zip(node.op.results, placement.results, strict=True))
    results = [
        _without_partial(have[value]) if layout is None else layout
        for value, layout in zip(ret.operands, wanted, strict=True)
    ]
    return Decided(placements, tuple(have[arg] for arg in func.args), tuple(results))


def _node(op: Operation, mesh: Mesh) -> _Node:
    if isinstance(op, ReshardOp):
        raise ProgramError("the module is already placed: it has a dist.reshard")
    if not isinstance(op, HloOp) or (op.regions and not op.STAYS):
        raise op_error(op, "cannot be placed", "run `inline-composites` first" if op.regions else None)
    return _Node(op, op.rule(), layouts_of(op, mesh))


def _wanted_results(func: FuncOp, given: Sequence[Layout | None], mesh: Mesh) -> list[Layout | None]:
    """Pinned layouts of the function's results; a result that replaces a pinned argument takes its layout."""
    slots = signature.results(func)
    pins = result_layouts(func, mesh)
    return [
        given[slot.alias] if pin is None and slot.alias is not None else pin
        for pin, slot in zip(pins, slots, strict=True)
    ]


def _sweep(nodes: Sequence[_Node], state: _State, backward: bool) -> None:
    """Let digits travel until nothing changes; every sweep but the last adds a split, so it ends."""
    while True:
        changed = any([_visit(node, state, backward) for node in nodes])
        if backward:
            changed |= any([_visit(node, state, backward) for node in reversed(nodes)])
        if not changed:
            return
        if not backward:
            # One pass in program order is complete: operands are settled before their users.
            return


def _visit(node: _Node, state: _State, backward: bool) -> bool:
    """Take on splits from the neighbours and hand their digits on. Returns whether anything changed."""
    tensors = _tensors(node)
    votes: dict[AxisRef, dict[Factor, int]] = defaultdict(lambda: defaultdict(int))
    for value, dims, is_result in tensors:
        if is_result and not backward and node.pin is None:
            continue
        weight = types.bytes_of(types.type_of(value))
        for dim, digits in enumerate(state.digits[value].dims):
            for digit in digits:
                factor = node.rule.factor_at(dims, dim, digit)
                if factor is not None and node.rule.kind(factor[0]) != "whole":
                    votes[digit.axis][factor] += weight
    changed = False
    atoms = state.mesh.atoms
    if node.rule.halos:  # the major axis of a dimension must come first, whatever its place in the mesh
        atoms = (*atoms, *reversed(atoms))
    for atom in atoms:
        if atom in node.splits or atom not in votes:
            continue
        for factor, _ in sorted(votes[atom].items(), key=lambda item: (-item[1], item[0])):
            if _accepts(node, Split(atom, *factor), state):
                node.splits[atom] = Split(atom, *factor)
                changed = True
                break
    for split in node.splits.values():
        for value, dims, is_result in tensors:
            if value in state.closed or (not is_result and not backward):
                continue
            layout = state.digits[value]
            at = node.rule.locate(dims, split.factor)
            if at is None or layout.find(split.axis) is not None:
                continue
            grown = layout.with_digit(at[0], split.axis, split.period * at[1])
            if grown.error(types.shape_of(value)) is None:
                state.digits[value] = grown
                changed = True
    return changed


def _tensors(node: _Node) -> list[tuple[SSAValue, tuple[tuple[str, ...], ...], bool]]:
    return [
        *((v, dims, False) for v, dims in zip(node.op.operands, node.rule.operands, strict=True)),
        *((v, dims, True) for v, dims in zip(node.op.results, node.rule.results, strict=True)),
    ]


def _accepts(node: _Node, split: Split, state: _State) -> bool:
    """Whether the op may take one more split: all layouts stay well-formed and pinned ones as they are."""
    if node.rule.halo_error([*node.splits.values(), split]) is not None:
        return False
    placement = node.rule.place([*node.splits.values(), split])
    layouts = (*placement.operands, *placement.results)
    for (value, _, _), layout in zip(_tensors(node), layouts, strict=True):
        if layout.error(types.shape_of(value)) is not None:
            return False
    if node.pin is not None:
        for got, want in zip(placement.results, node.pin, strict=True):
            if got.find(split.axis) != want.find(split.axis):
                return False
    return True


def _settle(node: _Node, have: Mapping[SSAValue, Layout], mesh: Mesh) -> Placement:
    """The op's final placement, given the layouts in which its operands come."""
    rule, op = node.rule, node.op
    if node.pin is not None:
        for atom, kind in dict.fromkeys(p for layout in node.pin for p in layout.partial):
            if atom not in node.splits:
                _split_for_partial(node, atom, kind)
    placement = rule.place(list(node.splits.values()))
    if node.pin is None or placement.results != node.pin:
        placement = _carry_partials(node, placement, have)
    if node.pin is not None and placement.results != node.pin:
        raise layout_error(
            op,
            "cannot yield its pinned layout",
            "pin a layout that the op's sharding rule can produce, or remove the pin",
        )
    return placement


def _split_for_partial(node: _Node, atom: AxisRef, kind: str) -> None:
    """Split a reduced factor so that the results become partial on `atom`, if there is one with room for it."""
    for factor in node.rule.factors:
        if node.rule.kind(factor) == kind:
            taken = [Digit(s.axis, s.period) for s in node.splits.values() if s.factor == factor]
            period = _free_period(node.rule.sizes[factor], taken, atom)
            if period is None:
                continue
            split = Split(atom, factor, period)
            if node.rule.halo_error([*node.splits.values(), split]) is None:
                node.splits[atom] = split
                return


def _free_period(extent: int, taken: Sequence[Digit], atom: AxisRef) -> int | None:
    """The largest period with which `atom` can take one more digit beside those `taken`."""
    for count in range(1, extent + 1):
        if extent % count == 0:
            digit = Digit(atom, extent // count)
            if Layout.make([[*taken, digit]]).error([extent]) is None:
                return digit.period
    return None


def _carry_partials(node: _Node, placement: Placement, have: Mapping[SSAValue, Layout]) -> Placement:
    """Let partial operands pass through the op where its rule allows it and it pays."""
    operands = []
    partial_operands: set[SSAValue] = set()
    for value, layout in zip(node.op.operands, placement.operands, strict=True):
        for atom, kind in have[value].partial:
            if layout.find(atom) is None and atom not in node.splits:
                layout = layout.with_partial(atom, kind)
                partial_operands.add(value)
        operands.append(layout)
    if not partial_operands:
        return placement
    results = node.rule.forward(operands)
    if isinstance(results, str) or any(
        r.dims != p.dims for r, p in zip(results, placement.results, strict=True)
    ):
        return placement
    carried = Placement(tuple(operands), results)
    if node.pin is not None:
        return carried if results == node.pin else placement
    before = _local_bytes(
        (v, layout) for v, layout in zip(node.op.operands, operands, strict=True) if v in partial_operands
    )
    after = _local_bytes(zip(node.op.results, results, strict=True))
    alone = all(len(list(v.uses)) == 1 for v in partial_operands)
    return carried if after < before or (after == before and alone) else placement


def _local_bytes(pairs: Iterable[tuple[SSAValue, Layout]]) -> int:
    seen = dict(pairs)
    return sum(types.bytes_of(types.type_of(v)) // layout.shards() for v, layout in seen.items())


def _without_partial(layout: Layout) -> Layout:
    return layout.without([atom for atom, _ in layout.partial])
