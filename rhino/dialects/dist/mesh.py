"""`dist.mesh`: the device mesh of a module, to which layouts and collectives refer without naming it."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolNameConstraint
from xdsl.ir import Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import HasParent, SymbolOpInterface

from rhino.dialects.dist.attributes import MeshAttr
from rhino.ir.errors import ProgramError
from rhino.ir.mesh import Mesh


@irdl_op_definition
class MeshOp(IRDLOperation):
    """``dist.mesh @mesh = <["dp"=2, "tp"=4]>``: axes with sizes, device ids are row-major coordinates."""

    name = "dist.mesh"
    sym_name = prop_def(SymbolNameConstraint())
    mesh_attr = prop_def(MeshAttr, prop_name="mesh")
    traits = traits_def(SymbolOpInterface(), HasParent(ModuleOp))

    @classmethod
    def of(cls, mesh: Mesh, name: str = "mesh") -> MeshOp:
        return cls.create(properties={"sym_name": StringAttr(name), "mesh": MeshAttr(mesh)})

    @property
    def mesh(self) -> Mesh:
        return self.mesh_attr.data

    @classmethod
    def parse(cls, parser: Parser) -> MeshOp:
        name = parser.parse_symbol_name()
        parser.parse_punctuation("=")
        mesh = MeshAttr(MeshAttr.parse_parameter(parser))
        attributes = parser.parse_optional_attr_dict()
        return cls.create(properties={"sym_name": name, "mesh": mesh}, attributes=attributes)

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" = ")
        self.mesh_attr.print_parameter(printer)
        printer.print_op_attributes(self.attributes)


def mesh_op_of(module: ModuleOp) -> MeshOp | None:
    """The module's `dist.mesh`, or None if it has none."""
    for op in module.ops:
        if isinstance(op, MeshOp):
            return op
    return None


def find_mesh(op: Operation | None) -> Mesh | None:
    """The mesh of the innermost module around `op` (or of the module `op` itself), or None."""
    while op is not None:
        if isinstance(op, ModuleOp) and (found := mesh_op_of(op)) is not None:
            return found.mesh
        op = op.parent_op()
    return None


def mesh_of(op: Operation) -> Mesh:
    """The mesh of the module around `op`. Raises ProgramError if there is none."""
    mesh = find_mesh(op)
    if mesh is None:
        raise ProgramError(
            "the module has no mesh", remedy='start it with `dist.mesh @mesh = <["dp"=2, "tp"=4]>`'
        )
    return mesh


OPS = [MeshOp]
