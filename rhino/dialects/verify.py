"""Checks of the placed and the local stage: what every pass that makes such modules promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist import LayoutAttr, LocalOp, MeshOp, ReshardOp, mesh_of
from rhino.dialects.dist.layouts import GLOBAL_TYPE, LAYOUT, argument_layouts, layouts_of, result_layouts
from rhino.dialects.dist.mesh import mesh_op_of
from rhino.dialects.hlo.base import HloOp
from rhino.ir import types
from rhino.ir.errors import LayoutError, ProgramError, RhinoError
from rhino.ir.evaluate import is_local
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.reshard import reshard_steps
from rhino.ir.verify import op_error, verify_module


def verify(module: ModuleOp) -> None:
    """Verify every op, SSA dominance, and what the stage of the module promises.

    Raises ProgramError that names the op and its place in the text or in the user's program.
    """
    verify_module(module)
    stage = stage_of(module)
    if stage == "placed":
        check_placed(module)
    elif stage == "local":
        check_local(module)


def stage_of(module: ModuleOp) -> str:
    """``global``, ``placed`` or ``local``: what a module says of itself. Modules without `@main` are global.

    A module with some layouts but not all of them is a global one with pins.
    """
    if not any(isinstance(op, FuncOp) and op.sym_name.data == "main" for op in module.ops):
        return "global"
    func = signature.main_of(module)
    if mesh_op_of(module) is None:
        return "global"
    if is_local(func):
        return "local"
    ops = [op for op in func.body.block.ops if op.results]
    if any(isinstance(op, ReshardOp) for op in ops):
        return "placed"
    pinned = [LAYOUT in attrs.data for attrs in func.arg_attrs or ()]
    everywhere = all(LAYOUT in op.attributes for op in ops) and all(pinned) and len(pinned) == len(func.args)
    return "placed" if everywhere and (ops or pinned) else "global"


def check_placed(module: ModuleOp) -> None:
    """The placed stage: layouts everywhere, every op admits its own, only reshards change them.

    Raises ProgramError that names the op, the operand and both layouts.
    """
    mesh = _mesh_first(module)
    func = signature.main_of(module)
    ret = signature.return_of(func)
    layouts: dict[SSAValue, Layout] = {}
    for arg, layout in zip(func.args, _attempt(func, lambda: argument_layouts(func, mesh)), strict=True):
        if layout is None:
            raise op_error(
                func, f"argument {arg.index} of @main has no {LAYOUT}", "run `place` or `propagate`"
            )
        layouts[arg] = layout
    for op in func.body.block.ops:
        if op is not ret:
            _check_placed_op(op, layouts, mesh)
    for i, (value, want) in enumerate(
        zip(ret.operands, _attempt(func, lambda: result_layouts(func, mesh)), strict=True)
    ):
        if want is None:
            raise op_error(func, f"result {i} of @main has no {LAYOUT}", "run `place` or `propagate`")
        if layouts[value] != want:
            raise op_error(
                ret,
                f"operand {i} has layout {show(value, layouts[value], mesh)}, "
                f"but @main promises {show(value, want, mesh)}",
                "insert a dist.reshard",
            )


def _check_placed_op(op: Operation, layouts: dict[SSAValue, Layout], mesh: Mesh) -> None:
    if not isinstance(op, HloOp | ReshardOp):
        raise op_error(op, "has no place in a placed program", "only hlo ops and dist.reshard do")
    if op.regions and not (isinstance(op, HloOp) and op.STAYS):
        raise op_error(op, "has a region, which cannot be placed", "run `inline-composites` first")
    own = _attempt(op, lambda: layouts_of(op, mesh))
    if own is None:
        raise op_error(op, f"has no {LAYOUT}", "run `place` or `propagate`")
    for result, layout in zip(op.results, own, strict=True):
        layouts[result] = layout
    if isinstance(op, ReshardOp):
        shape = types.shape_of(op.x)
        _attempt(op, lambda: reshard_steps(shape, layouts[op.x], own[0], mesh))
        return
    operands = [layouts[v] for v in op.operands]
    why = op.rule().admits(operands, own)
    if why is not None:
        have = ", ".join(show(v, layout, mesh) for v, layout in zip(op.operands, operands, strict=True))
        gives = ", ".join(show(v, layout, mesh) for v, layout in zip(op.results, own, strict=True))
        raise op_error(op, f"{why}: operands {have or 'none'}, results {gives}", "insert a dist.reshard")


def check_local(module: ModuleOp) -> None:
    """The local stage: no reshards and no layouts inside, a boundary that says what the arrays are parts of.

    Raises ProgramError that names the op or the argument.
    """
    mesh = _mesh_first(module)
    func = signature.main_of(module)
    for op in func.body.block.ops:
        if not isinstance(op, HloOp | LocalOp | ReturnOp) and not op.name.startswith("kernel."):
            raise op_error(op, "has no place in a local program", "run `spmd`")
        if LAYOUT in op.attributes:
            raise op_error(op, f"carries {LAYOUT} in a local program", "remove the attribute")
    ret = signature.return_of(func)
    arguments = [a.type for a in func.args]
    _check_boundary(func, "argument", signature.arguments(func), arguments, mesh)
    _check_boundary(func, "result", signature.results(func), [v.type for v in ret.operands], mesh)


def _check_boundary(
    func: FuncOp, what: str, slots: Sequence[signature.Slot], local: Sequence[object], mesh: Mesh
) -> None:
    for i, (slot, type) in enumerate(zip(slots, local, strict=True)):
        other: Mapping[str, object] = dict(slot.other)
        whole, layout = other.get(GLOBAL_TYPE), other.get(LAYOUT)
        if not isinstance(whole, TensorType) or not isinstance(layout, LayoutAttr):
            raise op_error(func, f"{what} {i} of @main lacks {LAYOUT} or {GLOBAL_TYPE}", "run `spmd`")
        shape = tuple(whole.get_shape())
        resolved = _attempt(func, lambda layout=layout, shape=shape: layout.resolve(shape, mesh))
        want = types.tensor(resolved.local_shape(shape), whole.element_type)
        if type != want:
            raise op_error(
                func,
                f"{what} {i} of @main is {types.show(type)}, but {types.show(whole)} "  # type: ignore[arg-type]
                f"in layout {layout.data} is {types.show(want)} on every device",
            )


def show(value: SSAValue, layout: Layout, mesh: Mesh) -> str:
    """A layout as it is written, for messages."""
    return str(LayoutAttr.of(layout, types.shape_of(value), mesh).data)


def _mesh_first(module: ModuleOp) -> Mesh:
    first = module.body.block.first_op
    if not isinstance(first, MeshOp):
        raise ProgramError(
            "dist.mesh is not the module's first op", remedy='start it with `dist.mesh @mesh = <["dp"=2]>`'
        )
    return mesh_of(module)


def _attempt(op: Operation, read):  # type: ignore[no-untyped-def]
    """Run `read`, turning what is wrong with layouts into an error about `op`."""
    try:
        return read()
    except (LayoutError, ProgramError) as error:
        raise op_error(op, error.message, error.remedy) from None
    except RhinoError as error:
        raise op_error(op, str(error)) from None
