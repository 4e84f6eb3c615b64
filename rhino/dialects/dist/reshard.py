"""`dist.reshard`: the only op of a placed module that changes a layout."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.mesh import find_mesh
from rhino.dialects.hlo.base import TENSOR
from rhino.ir import types
from rhino.ir.errors import RhinoError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh


@irdl_op_definition
class ReshardOp(IRDLOperation):
    """The same tensor in another layout: ``dist.reshard %x to #dist.layout<[{"dp"}, {}]> : tensor<8x4xf32>``.

    Types are global. `rhino.ir.reshard.reshard_steps` says what the change takes.
    """

    name = "dist.reshard"
    T: ClassVar = VarConstraint("T", TENSOR)
    x = operand_def(T)
    result = result_def(T)
    to = prop_def(LayoutAttr)
    traits = traits_def(Pure())

    @classmethod
    def make(cls, x: SSAValue, layout: Layout, mesh: Mesh) -> ReshardOp:
        to = LayoutAttr.of(layout, types.shape_of(x), mesh)
        return cls.create(operands=[x], result_types=[x.type], properties={"to": to})

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        """The identity: a layout changes where elements live, not what they are."""
        return operands

    def verify_(self) -> None:
        mesh = find_mesh(self)
        if mesh is None:
            raise VerifyException(f"{self.name}: the module has no mesh")
        try:
            self.to.resolve(types.shape_of(self.x), mesh)
        except RhinoError as error:
            raise VerifyException(
                f"{self.name}: operand 0 of type {types.show(self.x.type)} cannot take the layout: {error}"
            ) from error

    @classmethod
    def parse(cls, parser: Parser) -> ReshardOp:
        x = parser.parse_unresolved_operand()
        parser.parse_keyword("to")
        at = parser.pos
        to = parser.parse_attribute()
        if not isinstance(to, LayoutAttr):
            parser.raise_error("expected a #dist.layout", at_position=at)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        at = parser.pos
        type = parser.parse_type()
        operands = parser.resolve_operands([x], [type], at)
        return cls.create(
            operands=operands, result_types=[type], properties={"to": to}, attributes=attributes
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.x)
        printer.print_string(" to ")
        printer.print_attribute(self.to)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.x.type)


OPS = [ReshardOp]
