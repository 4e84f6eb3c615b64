"""spmd: turn a placed module into the program that every rank runs: local shapes, explicit collectives.

    %w1 = dist.reshard %w to #dist.layout<[{}, {}]> : tensor<8x16xf32>         // was [{"tp"}, {}]
    %h = hlo.dot_general %x, %w1 {dist.layout = [#dist.layout<[{"dp"}, {}]>]}
becomes
    %w1 = dist.all_gather %w dim 0 over ["tp"] {bytes = .., reason = "reshard .. for hlo.dot_general"}
    %h = hlo.dot_general %x, %w1 : (tensor<2x8xf32>, tensor<8x16xf32>) -> tensor<2x16xf32>

The function is rebuilt front to back. Every op emits itself through `HloOp.localize`; a value that is
partial is computed by the unchanged op on every rank's share. Arguments and results keep their layouts and
global types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.dist import LayoutAttr, ReshardOp
from rhino.dialects.dist.layouts import (
    GLOBAL_TYPE,
    LAYOUT,
    layout_error,
    read_layouts,
    result_layouts,
    with_attribute,
)
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.dist.steps import emit_steps
from rhino.dialects.hlo.base import HloOp, Localizer
from rhino.ir import types
from rhino.ir.collector import collector_paused
from rhino.ir.layout import Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.reshard import reshard_steps
from rhino.ir.text import show_location
from rhino.ir.verify import op_error


@dataclass(frozen=True)
class SpmdPass(ModulePass):
    """Options: none. Raises ProgramError or LayoutError when the module is not a placed one that verifies."""

    name = "spmd"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        spmd(op)


class LocalBuilder(Builder):
    """A builder for local programs: a coordinate is made once, and written with the mesh's axis names."""

    def __init__(self, point: InsertPoint, mesh: Mesh) -> None:
        super().__init__(point)
        self._mesh = mesh
        self._coordinates: dict[tuple[AxisRef, ...], SSAValue] = {}

    def axis_index(self, axes: Sequence[AxisRef], mesh: Mesh | None = None) -> SSAValue:
        key = tuple(axes)
        if key not in self._coordinates:
            self._coordinates[key] = super().axis_index(axes, mesh or self._mesh)
        return self._coordinates[key]


@collector_paused()
def spmd(module: ModuleOp) -> None:
    """Rewrite the placed `@main` into its local form, in place.

    Raises ProgramError when something has no layout or an op has a region, LayoutError when an op's rule
    does not admit its layouts.
    """
    mesh = mesh_of(module)
    func = signature.main_of(module)
    ret = signature.return_of(func)
    layouts = read_layouts(func, mesh)
    returned = result_layouts(func, mesh)
    names = signature.results(func)
    for i, (value, layout) in enumerate(zip(ret.operands, returned, strict=True)):
        if layout is not None and layouts[value] != layout:
            raise layout_error(
                ret,
                f"operand {i} has layout {_show(value, layouts[value], mesh)}, "
                f"but @main promises {_show(value, layout, mesh)}",
            )
    old = func.body.block
    block = Block(arg_types=[_local_type(arg, layouts[arg]) for arg in old.args])
    values: dict[SSAValue, SSAValue] = {}
    for arg, new in zip(old.args, block.args, strict=True):
        new.name_hint = arg.name_hint
        values[arg] = new
    builder = LocalBuilder(InsertPoint.at_end(block), mesh)
    for op in old.ops:
        with builder.at(op.location):
            if isinstance(op, ReshardOp):
                outs: Sequence[SSAValue] = [_reshard(builder, op, values[op.x], layouts, mesh, names)]
            elif isinstance(op, ReturnOp):
                builder.insert(ReturnOp(*(values[v] for v in op.operands)))
                continue
            else:
                outs = _localize(builder, op, values, layouts, mesh)
        for result, out in zip(op.results, outs, strict=True):
            values[result] = out
            if out.name_hint is None:
                out.name_hint = result.name_hint
    _keep_global(func, [layouts[v] for v in ret.operands], mesh)
    func.body.add_block(block)
    func.body.erase_block(old, safe_erase=False)
    func.function_type = FunctionType.from_lists(
        [a.type for a in block.args], [v.type for v in signature.return_of(func).operands]
    )


def _localize(
    builder: Builder,
    op: Operation,
    values: dict[SSAValue, SSAValue],
    layouts: dict[SSAValue, Layout],
    mesh: Mesh,
) -> Sequence[SSAValue]:
    if not isinstance(op, HloOp) or (op.regions and not op.STAYS):
        remedy = "run `inline-composites` before `place`" if op.regions else None
        raise op_error(op, "has no local form", remedy)
    operands = tuple(layouts[v] for v in op.operands)
    results = tuple(layouts[v] for v in op.results)
    if (why := op.rule().admits(operands, results)) is not None:
        raise layout_error(op, why)
    local = tuple(_local_type(v, layout) for v, layout in zip(op.results, results, strict=True))
    last = builder.point.block.last_op
    context = Localizer(builder, mesh, operands, results, local)
    outs = op.localize(context, [values[v] for v in op.operands])
    kept = {key: value for key, value in op.attributes.items() if key != LAYOUT}
    if kept:
        _mark(builder.point.block.first_op if last is None else last.next_op, type(op), kept)
    return outs


def _mark(op: Operation | None, kind: type[Operation], attributes: Mapping[str, Attribute]) -> None:
    """Give the discardable attributes of an op to the ops of its kind that stand for it, from `op` on."""
    while op is not None:
        if isinstance(op, kind):
            op.attributes.update(attributes)
        op = op.next_op


def _reshard(
    builder: Builder,
    op: ReshardOp,
    value: SSAValue,
    layouts: dict[SSAValue, Layout],
    mesh: Mesh,
    names: Sequence[signature.Slot],
) -> SSAValue:
    before, after = layouts[op.x], layouts[op.result]
    shape = types.shape_of(op.x)
    steps = reshard_steps(shape, before, after, mesh)
    change = f"{_show(op.x, before, mesh)} -> {_show(op.x, after, mesh)}".replace('"', "")
    reason = f"reshard {change} for {_consumer(op, names)}"
    return emit_steps(builder, value, steps, mesh, reason)


def _consumer(op: ReshardOp, names: Sequence[signature.Slot]) -> str:
    """The first user of a reshard and where it comes from in the user's program."""
    uses = list(op.result.uses)
    if not uses:
        return "nothing"
    more = f" and {len(uses) - 1} more" if len(uses) > 1 else ""
    user, index = uses[0].operation, uses[0].index
    if isinstance(user, ReturnOp):
        return f"result {names[index].name or index}{more}"
    place = show_location(user.location)
    return f"{user.name} at {place}{more}" if place else f"{user.name}{more}"


def _show(value: SSAValue, layout: Layout, mesh: Mesh) -> str:
    return str(LayoutAttr.of(layout, types.shape_of(value), mesh).data)


def _local_type(value: SSAValue, layout: Layout) -> types.Type:
    type = types.type_of(value)
    if layout.shards() == 1:
        return type
    return types.tensor(layout.local_shape(types.shape_of(value)), type.element_type)


def _keep_global(func: FuncOp, returned: Sequence[Layout], mesh: Mesh) -> None:
    """Write the global type of every argument and result, and the layouts of results that had none."""
    signature.set_arguments(
        func,
        [
            with_attribute(slot, GLOBAL_TYPE, arg.type)
            for slot, arg in zip(signature.arguments(func), func.args, strict=True)
        ],
    )
    slots = []
    for slot, value, layout in zip(
        signature.results(func), signature.return_of(func).operands, returned, strict=True
    ):
        layout_attr = LayoutAttr.of(layout, types.shape_of(value), mesh)
        slots.append(with_attribute(with_attribute(slot, LAYOUT, layout_attr), GLOBAL_TYPE, value.type))
    signature.set_results(func, slots)
