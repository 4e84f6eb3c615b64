"""place: write a decided placement into a module, with a reshard wherever a value must change its layout.

    %h = hlo.dot_general %x, %w
becomes
    %w1 = dist.reshard %w to #dist.layout<[{}, {"tp"}]>
    %h = hlo.dot_general %x, %w1 {dist.layout = [#dist.layout<[{"dp"}, {"tp"}]>]}

On the command line the decisions are the pins that the module already carries (``dist.layout`` on
arguments, results and ops); everything else follows greedily from the operands, in program order.
`propagate` also lets pins act backward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from rhino.dialects import signature
from rhino.dialects.dist import MeshOp, ReshardOp
from rhino.dialects.dist.layouts import layout_error, set_argument_layouts, set_layouts, set_result_layouts
from rhino.dialects.dist.mesh import mesh_op_of
from rhino.dialects.hlo.base import HloOp
from rhino.ir import types
from rhino.ir.errors import LayoutError, MeshError, ProgramError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.reshard import reshard_steps
from rhino.ir.rule import Placement
from rhino.ir.verify import op_error


@dataclass(frozen=True)
class PlacePass(ModulePass):
    """Options: `mesh` (``dp=2,tp=4`` or ``2x4``), which may be left out when the module has one.

    Raises MeshError when there is no mesh or two different ones, LayoutError when a pin fits neither its
    value nor the mesh.
    """

    name = "place"
    mesh: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        from rhino.passes.follow import follow_pins

        mesh = choose_mesh(op, self.mesh)
        decided = follow_pins(op, mesh, backward=False)
        place(op, mesh, decided.placements, decided.arguments, decided.results)


def choose_mesh(module: ModuleOp, text: str | None) -> Mesh:
    """The mesh of an option, or else of the module. Raises MeshError when there is none or they clash."""
    known = mesh_op_of(module)
    if text is None:
        if known is None:
            raise MeshError("no mesh was given and the module has none", remedy='say mesh="dp=2,tp=4"')
        return known.mesh
    mesh = Mesh.parse(text)
    if known is not None and known.mesh != mesh:
        raise MeshError(
            f"the module is written for mesh {known.mesh}, not for {mesh}",
            remedy="leave the option out or remove the dist.mesh of the module",
        )
    return mesh


def place(
    module: ModuleOp,
    mesh: Mesh,
    placements: Mapping[Operation, Placement],
    arguments: Sequence[Layout],
    results: Sequence[Layout],
) -> None:
    """Write the layouts of all values of `@main` and insert the reshards between them, in place.

    `placements` gives every `hlo` op the layouts it takes and yields, `arguments` and `results` are those
    of the function. A reshard is shared by all consumers that want the same layout. One that makes a value
    smaller stands right after the value's definition, any other right before the first consumer, so that
    the larger form lives for as short as possible.

    Raises ProgramError if an op is missing or has a region, LayoutError if a layout does not fit or cannot
    be reached.
    """
    func = signature.main_of(module)
    ret = signature.return_of(func)
    ops = [op for op in func.body.block.ops if op is not ret]
    have = _write_layouts(func, ops, mesh, placements, arguments)
    if len(results) != len(ret.operands):
        raise ProgramError(f"@main has {len(ret.operands)} results, but {len(results)} layouts were given")
    _insert_reshards(func, ops, ret, mesh, have, placements, results)
    set_result_layouts(func, results, mesh)
    if mesh_op_of(module) is None:
        first = module.body.block.first_op
        assert first is not None
        module.body.block.insert_op_before(MeshOp.of(mesh), first)


def _write_layouts(
    func: FuncOp,
    ops: Sequence[Operation],
    mesh: Mesh,
    placements: Mapping[Operation, Placement],
    arguments: Sequence[Layout],
) -> dict[SSAValue, Layout]:
    """Set ``dist.layout`` on arguments and ops; returns the layout of every value."""
    if len(arguments) != len(func.args):
        raise ProgramError(f"@main has {len(func.args)} arguments, but {len(arguments)} layouts were given")
    for arg, layout in zip(func.args, arguments, strict=True):
        _check(func, f"argument {arg.index}", types.shape_of(arg), layout)
    set_argument_layouts(func, arguments, mesh)
    have: dict[SSAValue, Layout] = dict(zip(func.args, arguments, strict=True))
    for op in ops:
        if not isinstance(op, HloOp) or (op.regions and not op.STAYS):
            raise op_error(op, "cannot be placed", "run `inline-composites` first" if op.regions else None)
        placement = placements.get(op)
        if placement is None or len(placement.results) != len(op.results):
            raise op_error(op, "no placement was given for it")
        for i, (result, layout) in enumerate(zip(op.results, placement.results, strict=True)):
            _check(op, f"result {i}", types.shape_of(result), layout)
            have[result] = layout
        set_layouts(op, placement.results, mesh)
    return have


def _insert_reshards(
    func: FuncOp,
    ops: Sequence[Operation],
    ret: ReturnOp,
    mesh: Mesh,
    have: Mapping[SSAValue, Layout],
    placements: Mapping[Operation, Placement],
    results: Sequence[Layout],
) -> None:
    made: dict[tuple[SSAValue, Layout], SSAValue] = {}
    first = func.body.block.first_op
    assert first is not None

    def use(value: SSAValue, want: Layout, user: Operation, index: int) -> SSAValue:
        if have[value] == want:
            return value
        if (value, want) not in made:
            _check(user, f"operand {index}", types.shape_of(value), want)
            _check_reachable(user, f"operand {index}", value, have[value], want, mesh)
            reshard = ReshardOp.make(value, want, mesh)
            reshard.location = user.location
            reshard.result.name_hint = value.name_hint
            made[value, want] = reshard.result
            _insert(reshard, value, user, first, shrinks=_local(value, want) < _local(value, have[value]))
        return made[value, want]

    for op in (*ops, ret):
        wants = results if op is ret else placements[op].operands
        operands = [
            use(value, want, op, i) for i, (value, want) in enumerate(zip(op.operands, wants, strict=True))
        ]
        if any(a is not b for a, b in zip(operands, op.operands, strict=True)):
            op.operands = operands


def _insert(reshard: ReshardOp, value: SSAValue, user: Operation, first: Operation, shrinks: bool) -> None:
    block = user.parent
    assert block is not None
    if not shrinks:
        block.insert_op_before(reshard, user)
    elif isinstance(value.owner, Operation):
        block.insert_op_after(reshard, value.owner)
    else:
        block.insert_op_before(reshard, first)


def _local(value: SSAValue, layout: Layout) -> int:
    return math.prod(layout.local_shape(types.shape_of(value)))


def _check(op: Operation, what: str, shape: tuple[int, ...], layout: Layout) -> None:
    if (why := layout.error(shape)) is not None:
        raise layout_error(op, f"{what}: {why}")


def _check_reachable(
    op: Operation, what: str, value: SSAValue, have: Layout, want: Layout, mesh: Mesh
) -> None:
    try:
        reshard_steps(types.shape_of(value), have, want, mesh)
    except LayoutError as error:
        raise layout_error(op, f"{what}: {error.message}", error.remedy) from None
