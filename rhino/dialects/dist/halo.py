"""The exchange of edges between neighbours, for windows that reach over the border of a device's part."""

from __future__ import annotations

from collections.abc import Sequence
import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from rhino.dialects.dist import exchange
from rhino.dialects.dist.collectives import ReducingOp
from rhino.dialects.dist.local import LocalOp, PerRank, Properties, integer_of, parse_integer
from rhino.ir import types
from rhino.ir.mesh import Mesh
from rhino.ir.neutral import identity


@irdl_op_definition
class HaloOp(ReducingOp):
    """Puts the neighbours' edges to every rank's array along one dimension.

    ``dist.halo max %x dim 2 over ["sp"] low 1 high 2 : tensor<1x3x8xf32> -> tensor<1x3x11xf32>``: the last element of
    the rank before comes in front, the first two of the rank behind come behind. In front of the first rank and behind
    the last stands the neutral element of the kind: 0 for sum, minus infinity for max.
    `bytes` is what a rank between two others sends.
    """

    name = "dist.halo"
    dim_attr = prop_def(IntegerAttr, prop_name="dim")
    low_attr = prop_def(IntegerAttr, prop_name="low")
    high_attr = prop_def(IntegerAttr, prop_name="high")

    @property
    def dim(self) -> int:
        """The dimension that is cut over the axes, in blocks."""
        return self.dim_attr.value.data

    @property
    def edges(self) -> tuple[int, int]:
        """How many elements come from the rank before and from the one behind."""
        return self.low_attr.value.data, self.high_attr.value.data

    @classmethod
    def sent(cls, operand: int, result: int, members: int) -> int:
        return result - operand

    @classmethod
    def result_shape(cls, shape: Sequence[int], members: int, properties: Properties) -> tuple[int, ...]:
        dim = integer_of(properties, "dim")
        edges = integer_of(properties, "low") + integer_of(properties, "high")
        return tuple(extent + edges if d == dim else extent for d, extent in enumerate(shape))

    def evaluate_ranks(self, mesh: Mesh, operands: Sequence[PerRank]) -> list[list[np.ndarray]]:
        fill = identity(self.kind, types.numpy_dtype(types.element_of(self.x)))
        return [exchange.halo(mesh, self.axes(mesh), operands[0], self.dim, self.edges, fill)]

    def error(self, mesh: Mesh) -> str | None:
        shape = types.shape_of(self.x)
        if not 0 <= self.dim < len(shape):
            return f"operand 0 of type {types.show(self.x.type)} has no dim {self.dim}"
        if not 0 <= min(self.edges) <= max(self.edges) <= shape[self.dim]:
            return (
                f"edges of {self.edges[0]} and {self.edges[1]} elements do not lie within one neighbour: dim {self.dim} "
                f"of operand 0 of type {types.show(self.x.type)} has {shape[self.dim]}"
            )
        return super().error(mesh)

    @classmethod
    def parse_digits(cls, parser: Parser) -> dict[str, Attribute]:
        return parse_integer(parser, "dim", "dim")

    @classmethod
    def parse_tail(cls, parser: Parser) -> dict[str, Attribute]:
        return parse_integer(parser, "low", "low") | parse_integer(parser, "high", "high")

    def print_digits(self, printer: Printer) -> None:
        printer.print_string(f" dim {self.dim}")

    def print_tail(self, printer: Printer) -> None:
        printer.print_string(f" low {self.edges[0]} high {self.edges[1]}")


OPS: list[type[LocalOp]] = [HaloOp]
