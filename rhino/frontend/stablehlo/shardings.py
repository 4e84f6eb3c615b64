"""Sharding annotations as pins: ``sdy.sharding`` becomes `dist.layout`; what cannot be one is named in a warning."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Operation, OpResult, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import LAYOUT
from rhino.dialects.dist.mesh import MeshOp
from rhino.frontend.stablehlo.importer import Importer
from rhino.frontend.stablehlo.syntax import FunctionDef, Struct
from rhino.ir import types
from rhino.ir.errors import RhinoError
from rhino.ir.layout_text import LayoutSpec
from rhino.ir.mesh import Mesh

_SDY = "sdy.sharding"
_AXIS = re.compile(r'"([^"]*)"\s*=\s*(\d+)')


@dataclass(frozen=True)
class _Meshes:
    """The text's meshes by name; all pins must be on one of them."""

    known: dict[str, Mesh]

    @classmethod
    def of(cls, importer: Importer) -> _Meshes:
        found: dict[str, Mesh] = {}
        for name, value in importer.syntax.meshes.items():
            mesh = _mesh(value)
            if mesh is None:
                importer.warn(importer.syntax.at, f"mesh @{name} is dropped: it is none of named axes")
            else:
                found[name] = mesh
        return cls(found)


def _mesh(value: Any) -> Mesh | None:
    text = value.text if isinstance(value, Struct) else ""
    axes = [(name, int(size)) for name, size in _AXIS.findall(text)]
    if not axes or "device_ids" in text:
        return None
    try:
        return Mesh(tuple(axes))
    except RhinoError:
        return None


def apply_shardings(importer: Importer, module: ModuleOp, entry: FunctionDef) -> None:
    """Pin arguments, results and ops of `@main` as the text annotates them; warn of what cannot be."""
    meshes = _Meshes.of(importer)
    func = signature.main_of(module)
    wanted: list[tuple[str, Any, SSAValue, int]] = []
    for i, argument in enumerate(entry.body.arguments):
        wanted.append((f"argument {i}", _annotation(argument.attributes), func.args[i], entry.at))
    returned = list(signature.return_of(func).operands)
    for i, attributes in enumerate(entry.result_attributes):
        wanted.append((f"result {i}", _annotation(attributes), returned[i], entry.at))
    for value, sharding, at in importer.shardings:
        wanted.append(("value", sharding, value, at))
    chosen: str | None = None
    pins: list[tuple[str, SSAValue, LayoutAttr, int]] = []
    for what, sharding, value, at in wanted:
        if sharding is None:
            continue
        name, layout = _layout(importer, what, sharding, value, meshes, at)
        if layout is None or name is None:
            continue
        if chosen is not None and name != chosen:
            importer.warn(
                at, f"the sharding of {what} is dropped: it is on mesh @{name}, others on @{chosen}"
            )
            continue
        chosen = name
        pins.append((what, value, layout, at))
    if chosen is None:
        return
    first = module.body.block.first_op
    assert first is not None
    module.body.block.insert_op_before(MeshOp.of(meshes.known[chosen]), first)
    for what, value, layout, at in pins:
        _pin(importer, func, what, value, layout, at)


def _annotation(attributes: dict[str, Any]) -> Any:
    found = attributes.get(_SDY)
    return found if found is not None else attributes.get("mhlo.sharding")


def _layout(
    importer: Importer, what: str, sharding: Any, value: SSAValue, meshes: _Meshes, at: int
) -> tuple[str | None, LayoutAttr | None]:
    """The mesh and layout that an annotation means; (None, None) after a warning where there is none."""
    text = _sdy_text(sharding)
    if text is None:
        shown = sharding if isinstance(sharding, str) else getattr(sharding, "text", "?")
        if shown not in ("{replicated}", "{maximal device=0}"):
            importer.warn(at, f"the sharding {shown} of {what} is dropped: only sdy.sharding is read")
        return None, None
    parsed = _parse(text)
    if parsed is None or parsed[0] not in meshes.known:
        importer.warn(at, f"the sharding <{text}> of {what} is dropped: it is on no mesh of named axes")
        return None, None
    name, dims, partial = parsed
    if not any(dims) and not partial and "?" in text:
        return None, None  # all dimensions open: nothing is asked for
    spec_text = "[" + ", ".join("{" + d + "}" for d in dims) + "]" + partial
    try:
        attr = LayoutAttr(LayoutSpec.parse(spec_text))
        attr.resolve(types.shape_of(value), meshes.known[name])
    except RhinoError as error:
        importer.warn(at, f"the sharding <{text}> of {what} is dropped: {error.message}")
        return None, None
    return name, attr


def _sdy_text(sharding: Any) -> str | None:
    """What stands between the brackets of an ``sdy.sharding``, however it was given."""
    if isinstance(sharding, Struct) and sharding.name.startswith("sdy.sharding"):
        text = sharding.text.strip()
        return text[1:-1] if text.startswith("[<") else text
    if isinstance(sharding, str) and "sdy.sharding" in sharding:
        found = re.search(r"sdy\.sharding(?:_per_value)?<\[?<?(.*?)>?\]?>$", sharding.strip())
        return found[1] if found else None
    return None


_SHARDING = re.compile(r"\s*<?\s*@(?P<mesh>[\w.]+)\s*,\s*\[(?P<dims>.*?)\](?P<rest>.*)", re.DOTALL)


def _parse(text: str) -> tuple[str, list[str], str] | None:
    """Mesh, the axes of every dimension as text, and the partial axes as `dist.layout` writes them."""
    found = _SHARDING.match(text)
    if found is None:
        return None
    dims = []
    for part in re.findall(r"\{([^{}]*)\}(?:p\d+)?", found["dims"]):
        axes = [axis.strip() for axis in part.split(",")]
        dims.append(", ".join(axis for axis in axes if axis and axis != "?"))
    partial = ""
    summed = re.search(r"unreduced\s*=\s*\{([^{}]*)\}", found["rest"])
    if summed is not None and summed[1].strip():
        axes = [axis.strip() for axis in summed[1].split(",")]
        partial = " partial {" + ", ".join(f"{axis}: sum" for axis in axes) + "}"
    return found["mesh"], dims, partial


def _pin(importer: Importer, func: Any, what: str, value: SSAValue, layout: LayoutAttr, at: int) -> None:
    index = what.partition(" ")[2]
    if what.startswith("result"):
        slots = signature.results(func)
        slots[int(index)] = _with_layout(slots[int(index)], layout)
        signature.set_results(func, slots)
        return
    if not isinstance(value, OpResult):
        if value not in func.args:
            importer.warn(
                at, f"the sharding <{layout.data}> of a value inside of a loop or branch is dropped"
            )
            return
        position = list(func.args).index(value)
        slots = signature.arguments(func)
        known = dict(slots[position].other).get(LAYOUT)
        if known is not None and known != layout:
            importer.warn(
                at, f"the sharding <{layout.data}> of argument {position} is dropped: it has another"
            )
            return
        slots[position] = _with_layout(slots[position], layout)
        signature.set_arguments(func, slots)
        return
    _pin_op(importer, value.op, value.index, layout, at)


def _with_layout(slot: signature.Slot, layout: LayoutAttr) -> signature.Slot:
    others = tuple((k, v) for k, v in slot.other if k != LAYOUT)
    return replace(slot, other=(*others, (LAYOUT, layout)))


def _pin_op(importer: Importer, op: Operation, index: int, layout: LayoutAttr, at: int) -> None:
    """An op's pin holds a layout for each of its results: one alone cannot be pinned among several."""
    parent = op.parent_op()
    if parent is None or parent.name != "func.func":
        importer.warn(at, f"the sharding <{layout.data}> of a value inside of a loop or branch is dropped")
        return
    if len(op.results) != 1:
        importer.warn(at, f"the sharding <{layout.data}> of a result of {op.name} is dropped: it has several")
        return
    known = op.attributes.get(LAYOUT)
    if known is not None and known != ArrayAttr([layout]):
        importer.warn(at, f"the sharding <{layout.data}> of a value of {op.name} is dropped: it has another")
        return
    op.attributes[LAYOUT] = ArrayAttr([layout])
