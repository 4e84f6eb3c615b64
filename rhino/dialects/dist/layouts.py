"""Layouts of values in placed modules: read from and written to the attributes that hold them.

Results of ops have theirs in the op's ``dist.layout`` array, arguments and results of `@main` in
``arg_attrs`` and ``res_attrs``, and the result of a `dist.reshard` has the layout it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ArrayAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.dist.reshard import ReshardOp
from rhino.ir import types
from rhino.ir.errors import LayoutError, ProgramError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.text import show_location

LAYOUT = "dist.layout"
GLOBAL_TYPE = "dist.global_type"


def set_layouts(op: Operation, layouts: Sequence[Layout], mesh: Mesh) -> None:
    """Write one layout per result of `op`."""
    op.attributes[LAYOUT] = ArrayAttr(
        [
            LayoutAttr.of(layout, types.shape_of(result), mesh)
            for result, layout in zip(op.results, layouts, strict=True)
        ]
    )


def layouts_of(op: Operation, mesh: Mesh) -> tuple[Layout, ...] | None:
    """The layouts of an op's results, or None if it says nothing of them.

    Raises ProgramError when there are not as many layouts as results, LayoutError when one does not fit its
    result.
    """
    if isinstance(op, ReshardOp):
        return (op.to.resolve(types.shape_of(op.result), mesh),)
    attr = op.attributes.get(LAYOUT)
    if attr is None:
        return None
    if not isinstance(attr, ArrayAttr) or len(attr.data) != len(op.results):
        raise ProgramError(f"{op.name}: needs one dist.layout for each of its {len(op.results)} results")
    return tuple(_resolve(item, result, mesh) for item, result in zip(attr.data, op.results, strict=True))


def layout_of(value: SSAValue, mesh: Mesh | None = None) -> Layout:
    """The layout of a value of a placed module. Raises ProgramError if it has none.

    To read the layouts of many values use `read_layouts`.
    """
    if isinstance(value, OpResult):
        layouts = layouts_of(value.op, mesh or mesh_of(value.op))
        found = None if layouts is None else layouts[value.index]
        where = value.op.name
    else:
        assert isinstance(value, BlockArgument)
        func = value.block.parent_op()
        if not isinstance(func, FuncOp):
            raise ProgramError("the argument of a nested region has no layout")
        found = argument_layouts(func, mesh or mesh_of(func))[value.index]
        where = f"argument {value.index}"
    if found is None:
        raise ProgramError(f"{where} has no dist.layout", remedy="run `place` or `propagate` first")
    return found


def read_layouts(func: FuncOp, mesh: Mesh) -> dict[SSAValue, Layout]:
    """The layouts of all values of a placed function. Raises ProgramError if one is missing."""
    out: dict[SSAValue, Layout] = {}
    for arg, layout in zip(func.args, argument_layouts(func, mesh), strict=True):
        if layout is None:
            raise ProgramError(
                f"argument {arg.index} of @{func.sym_name.data} has no dist.layout",
                remedy="run `place` or `propagate` first",
            )
        out[arg] = layout
    for op in func.body.block.ops:
        layouts = layouts_of(op, mesh)
        if layouts is None:
            if op.results:
                raise ProgramError(f"{op.name} has no dist.layout", remedy="run `place` or `propagate` first")
            continue
        out.update(zip(op.results, layouts, strict=True))
    return out


def argument_layouts(func: FuncOp, mesh: Mesh) -> list[Layout | None]:
    """The layout of every argument, None where there is none. Argument types must be global."""
    shapes = [types.shape_of(arg) for arg in func.args]
    return _slot_layouts(signature.arguments(func), shapes, mesh)


def result_layouts(func: FuncOp, mesh: Mesh) -> list[Layout | None]:
    """The layout of every result, None where there is none."""
    shapes = [types.shape_of(value) for value in signature.return_of(func).operands]
    return _slot_layouts(signature.results(func), shapes, mesh)


def set_argument_layouts(func: FuncOp, layouts: Sequence[Layout], mesh: Mesh) -> None:
    values = [(types.shape_of(arg), layout) for arg, layout in zip(func.args, layouts, strict=True)]
    slots = [
        with_attribute(slot, LAYOUT, LayoutAttr.of(layout, shape, mesh))
        for slot, (shape, layout) in zip(signature.arguments(func), values, strict=True)
    ]
    signature.set_arguments(func, slots)


def set_result_layouts(func: FuncOp, layouts: Sequence[Layout], mesh: Mesh) -> None:
    returned = signature.return_of(func).operands
    values = [(types.shape_of(value), layout) for value, layout in zip(returned, layouts, strict=True)]
    slots = [
        with_attribute(slot, LAYOUT, LayoutAttr.of(layout, shape, mesh))
        for slot, (shape, layout) in zip(signature.results(func), values, strict=True)
    ]
    signature.set_results(func, slots)


def layout_error(op: Operation, message: str, remedy: str | None = None) -> LayoutError:
    """An error about the layouts of an op: its location if known, its name in front of the message."""
    return LayoutError(f"{op.name}: {message}", where=show_location(op.location), remedy=remedy)


def with_attribute(slot: signature.Slot, key: str, value: Attribute) -> signature.Slot:
    """The slot with one more attribute that is not the signature's own."""
    return replace(slot, other=(*(item for item in slot.other if item[0] != key), (key, value)))


def _slot_layouts(
    slots: Sequence[signature.Slot], shapes: Sequence[tuple[int, ...]], mesh: Mesh
) -> list[Layout | None]:
    out: list[Layout | None] = []
    for slot, shape in zip(slots, shapes, strict=True):
        attr = dict(slot.other).get(LAYOUT)
        out.append(attr.resolve(shape, mesh) if isinstance(attr, LayoutAttr) else None)
    return out


def _resolve(attr: Attribute, value: SSAValue, mesh: Mesh) -> Layout:
    if not isinstance(attr, LayoutAttr):
        raise ProgramError(f"expected a #dist.layout, found {attr}")
    return attr.resolve(types.shape_of(value), mesh)
