"""Attributes of `dist`: meshes, layouts and groups of axes, thin wrappers around the values of `rhino.ir`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from rhino.ir.errors import MeshError, RhinoError
from rhino.ir.layout import Layout
from rhino.ir.layout_text import AxisSpec, LayoutSpec
from rhino.ir.mesh import AxisRef, Mesh, merge_refs
from rhino.ir.text import text_in_angles


@irdl_attr_definition
class MeshAttr(Data[Mesh]):
    """``#dist.mesh<["dp"=2, "tp"=4]>``: axes and their sizes."""

    name = "dist.mesh"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Mesh:
        def axis() -> tuple[str, int]:
            name = parser.parse_str_literal(" for a mesh axis")
            parser.parse_punctuation("=")
            return name, parser.parse_integer(allow_boolean=False, allow_negative=False)

        at = parser.pos
        with parser.in_angle_brackets():
            axes = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, axis)
        try:
            return Mesh(tuple(axes))
        except MeshError as error:
            parser.raise_error(str(error), at_position=at, end_position=parser.pos)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets(), printer.in_square_brackets():
            printer.print_list(self.data.axes, lambda axis: printer.print_string(f'"{axis[0]}"={axis[1]}'))


@irdl_attr_definition
class LayoutAttr(Data[LayoutSpec]):
    """``#dist.layout<[{"dp"}, {}, {"tp":192}] partial {"tp": sum}>``: a layout as written.

    What it means depends on the shape of the tensor and on the mesh, see `resolve`.
    """

    name = "dist.layout"

    @classmethod
    def of(cls, layout: Layout, shape: tuple[int, ...], mesh: Mesh) -> LayoutAttr:
        """The attribute for a layout; equal layouts give equal attributes."""
        return _layout_attr(layout, shape, mesh)

    def resolve(self, shape: tuple[int, ...], mesh: Mesh) -> Layout:
        """The layout of a tensor of global `shape`. Raises LayoutError or MeshError if it does not fit."""
        return _resolve(self.data, tuple(shape), mesh)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> LayoutSpec:
        at = parser.pos
        text = text_in_angles(parser)
        try:
            return _parse(text)
        except RhinoError as error:
            parser.raise_error(str(error), at_position=at, end_position=parser.pos)

    def print_parameter(self, printer: Printer) -> None:
        printer.print_string(f"<{self.data}>")


# Thousands of ops share a handful of layouts: reading, writing and resolving each of them once is what makes
# large placed modules quick. The functions are pure, so remembering what they gave changes nothing else.
_parse = lru_cache(maxsize=1 << 14)(LayoutSpec.parse)


@lru_cache(maxsize=1 << 16)
def _layout_attr(layout: Layout, shape: tuple[int, ...], mesh: Mesh) -> LayoutAttr:
    return LayoutAttr(LayoutSpec.of(layout, shape, mesh))


@lru_cache(maxsize=1 << 16)
def _resolve(spec: LayoutSpec, shape: tuple[int, ...], mesh: Mesh) -> Layout:
    return spec.resolve(shape, mesh)


@irdl_attr_definition
class AxesAttr(Data[tuple[AxisSpec, ...]]):
    """``#dist.axes<["dp", "tp":(1)2]>``: the axes of a group of devices, outer first."""

    name = "dist.axes"

    @classmethod
    def of(cls, axes: Iterable[AxisRef], mesh: Mesh | None) -> AxesAttr:
        """The attribute for (sub-)axes, neighbours merged; with a mesh, whole axes are just their names."""
        sizes = mesh.sizes if mesh is not None else {}

        def spec(axis: AxisRef) -> AxisSpec:
            whole = axis.pre == 1 and sizes.get(axis.name) == axis.size
            return AxisSpec(axis.name, None if whole else (axis.pre, axis.size))

        return cls(tuple(spec(axis) for axis in merge_refs(list(axes))))

    def resolve(self, mesh: Mesh) -> tuple[AxisRef, ...]:
        """The (sub-)axes of a mesh. Raises MeshError if it lacks one, or if they overlap."""
        return _resolve_axes(self.data, mesh)

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> tuple[AxisSpec, ...]:
        with parser.in_angle_brackets():
            return parse_axes(parser)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            print_axes(printer, self.data)


@lru_cache(maxsize=4096)
def _resolve_axes(specs: tuple[AxisSpec, ...], mesh: Mesh) -> tuple[AxisRef, ...]:
    out = tuple(spec.ref(mesh) for spec in specs)
    atoms = [atom for axis in out for atom in Mesh.atoms_of(axis)]
    if len(set(atoms)) != len(atoms):
        raise MeshError(
            f"the axes [{', '.join(s.axis_text() for s in specs)}] overlap", remedy="name every axis once"
        )
    return out


def parse_axes(parser: AttrParser) -> tuple[AxisSpec, ...]:
    """``["dp", "tp":(1)2]``"""

    def axis() -> AxisSpec:
        name = parser.parse_str_literal(" for a mesh axis")
        if parser.parse_optional_punctuation(":") is None:
            return AxisSpec(name)
        with parser.in_parens():
            pre = parser.parse_integer(allow_boolean=False, allow_negative=False)
        return AxisSpec(name, (pre, parser.parse_integer(allow_boolean=False, allow_negative=False)))

    return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, axis))


def print_axes(printer: Printer, axes: Iterable[AxisSpec]) -> None:
    printer.print_string(f"[{', '.join(axis.axis_text() for axis in axes)}]")
