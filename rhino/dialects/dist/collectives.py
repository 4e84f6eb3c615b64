"""The ops of local programs: collectives, the local slice, and this device's coordinate."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, TensorType, i64
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def, result_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from rhino.dialects.dist import exchange
from rhino.dialects.dist.attributes import AxesAttr, parse_axes, print_axes
from rhino.dialects.dist.local import (
    CollectiveOp,
    LocalOp,
    PerRank,
    parse_integer,
    parse_period,
    print_period,
)
from rhino.ir import types
from rhino.ir.layout import PARTIAL_KINDS
from rhino.ir.mesh import AxisRef, Mesh


class ReducingOp(CollectiveOp, ABC):
    """A collective that combines arrays with a reduction kind, written before the operand."""

    kind_attr = prop_def(StringAttr, prop_name="kind")

    @property
    def kind(self) -> str:
        """What the arrays are combined with: sum, max, min, prod, and, or."""
        return self.kind_attr.data

    def error(self, mesh: Mesh) -> str | None:
        if self.kind not in PARTIAL_KINDS:
            return f"'{self.kind}' is not one of {', '.join(PARTIAL_KINDS)}"
        if self.kind in ("and", "or") and types.is_float(types.element_of(self.x)):
            return f"operand 0 of type {types.show(self.x.type)} has no '{self.kind}'"
        return super().error(mesh)

    @classmethod
    def parse_head(cls, parser: Parser) -> dict[str, Attribute]:
        return {"kind": StringAttr(parser.parse_keyword_in(PARTIAL_KINDS, " for a reduction"))}

    def print_head(self, printer: Printer) -> None:
        printer.print_string(f"{self.kind} ")


class _OneDigitOp(CollectiveOp, ABC):
    """A collective that cuts or joins one digit: ``dim D over [..] period P``."""

    dim_attr = prop_def(IntegerAttr, prop_name="dim")
    period_attr = opt_prop_def(IntegerAttr, prop_name="period")

    @property
    def dim(self) -> int:
        return self.dim_attr.value.data

    @property
    def period(self) -> int:
        """Local period of the digit; the extent of the whole dimension when it is a block."""
        return (self.cut() if self.CUT else self.join())[1]

    @classmethod
    def parse_digits(cls, parser: Parser) -> dict[str, Attribute]:
        return parse_integer(parser, "dim", "dim")

    @classmethod
    def parse_tail(cls, parser: Parser) -> dict[str, Attribute]:
        return parse_period(parser)

    def print_digits(self, printer: Printer) -> None:
        printer.print_string(f" dim {self.dim}")

    def print_tail(self, printer: Printer) -> None:
        print_period(printer, self.period_attr)


@irdl_op_definition
class AllReduceOp(ReducingOp):
    """The combination of a group, for all: ``dist.all_reduce sum %x over ["tp"] : tensor<4x8xf32>``."""

    name = "dist.all_reduce"

    @classmethod
    def sent(cls, operand: int, result: int, members: int) -> int:
        return -(-2 * operand * (members - 1) // members)

    def evaluate_ranks(self, mesh: Mesh, operands: Sequence[PerRank]) -> list[list[np.ndarray]]:
        return [exchange.all_reduce(mesh, self.axes(mesh), operands[0], self.kind)]


@irdl_op_definition
class AllGatherOp(_OneDigitOp):
    """Joins the arrays of a group.

    ``dist.all_gather %x dim 1 over ["tp"] period 32 : tensor<4x24xf32> -> tensor<4x96xf32>``; the period is
    counted in the result.
    """

    name = "dist.all_gather"
    JOIN: ClassVar = ("dim", "period")

    @classmethod
    def sent(cls, operand: int, result: int, members: int) -> int:
        return operand * (members - 1)

    def evaluate_ranks(self, mesh: Mesh, operands: Sequence[PerRank]) -> list[list[np.ndarray]]:
        return [exchange.all_gather(mesh, self.axes(mesh), operands[0], *self.join())]


@irdl_op_definition
class ReduceScatterOp(ReducingOp, _OneDigitOp):
    """Every rank gets its part of the combination of its group.

    ``dist.reduce_scatter sum %x dim 0 over ["dp"] : tensor<8x64xf32> -> tensor<4x64xf32>``; the period is
    counted in the operand.
    """

    name = "dist.reduce_scatter"
    CUT: ClassVar = ("dim", "period")

    @classmethod
    def sent(cls, operand: int, result: int, members: int) -> int:
        return operand * (members - 1) // members

    def evaluate_ranks(self, mesh: Mesh, operands: Sequence[PerRank]) -> list[list[np.ndarray]]:
        return [exchange.reduce_scatter(mesh, self.axes(mesh), operands[0], self.kind, *self.cut())]


@irdl_op_definition
class ShardOp(_OneDigitOp):
    """Every rank keeps its part of its own array, without communication.

    ``dist.shard %x dim 1 over ["tp"] period 32 : tensor<4x96xf32> -> tensor<4x24xf32>``; the period is
    counted in the operand.
    """

    name = "dist.shard"
    CUT: ClassVar = ("dim", "period")

    @classmethod
    def sent(cls, operand: int, result: int, members: int) -> int:
        return 0

    def evaluate_ranks(self, mesh: Mesh, operands: Sequence[PerRank]) -> list[list[np.ndarray]]:
        return [exchange.shard(mesh, self.axes(mesh), operands[0], *self.cut())]


@irdl_op_definition
class AllToAllOp(CollectiveOp):
    """Cuts along one dimension, exchanges the pieces, joins along another (or the same).

    ``dist.all_to_all %x cut 2 join 0 over ["tp"] : tensor<2x8x64xf32> -> tensor<8x8x16xf32>``; either may
    have a ``period``: that of the cut is counted in the operand, that of the join in the result.
    """

    name = "dist.all_to_all"
    dim_attr = prop_def(IntegerAttr, prop_name="dim")
    period_attr = opt_prop_def(IntegerAttr, prop_name="period")
    to_dim_attr = prop_def(IntegerAttr, prop_name="to_dim")
    to_period_attr = opt_prop_def(IntegerAttr, prop_name="to_period")
    CUT: ClassVar = ("to_dim", "to_period")
    JOIN: ClassVar = ("dim", "period")

    @property
    def dim(self) -> int:
        """The dimension that is joined."""
        return self.join()[0]

    @property
    def period(self) -> int:
        """Local period of the digit that is joined, counted in the result."""
        return self.join()[1]

    @property
    def to_dim(self) -> int:
        """The dimension that is cut."""
        return self.cut()[0]

    @property
    def to_period(self) -> int:
        """Local period of the digit that is cut, counted in the operand."""
        return self.cut()[1]

    @classmethod
    def sent(cls, operand: int, result: int, members: int) -> int:
        return operand * (members - 1) // members

    def evaluate_ranks(self, mesh: Mesh, operands: Sequence[PerRank]) -> list[list[np.ndarray]]:
        return [exchange.all_to_all(mesh, self.axes(mesh), operands[0], *self.join(), *self.cut())]

    @classmethod
    def parse_digits(cls, parser: Parser) -> dict[str, Attribute]:
        return (
            parse_integer(parser, "cut", "to_dim")
            | parse_period(parser, "to_period")
            | parse_integer(parser, "join", "dim")
            | parse_period(parser)
        )

    def print_digits(self, printer: Printer) -> None:
        printer.print_string(f" cut {self.to_dim_attr.value.data}")
        print_period(printer, self.to_period_attr)
        printer.print_string(f" join {self.dim_attr.value.data}")
        print_period(printer, self.period_attr)


@irdl_op_definition
class PermuteOp(CollectiveOp):
    """Rank r sends its array to rank ``to[r]``: ``dist.permute %x over ["tp"] to [1, 0] : tensor<4xf32>``."""

    name = "dist.permute"
    to_attr = prop_def(DenseArrayBase, prop_name="to")

    @property
    def targets(self) -> tuple[int, ...]:
        """For every rank of the mesh the rank it sends to."""
        return tuple(int(t) for t in self.to_attr.get_values())

    @classmethod
    def sent(cls, operand: int, result: int, members: int) -> int:
        return operand

    def evaluate_ranks(self, mesh: Mesh, operands: Sequence[PerRank]) -> list[list[np.ndarray]]:
        out = list(operands[0])
        for source, target in enumerate(self.targets):
            out[target] = operands[0][source]
        return [out]

    def error(self, mesh: Mesh) -> str | None:
        if len(self.targets) != mesh.size or sorted(self.targets) != list(range(mesh.size)):
            return f"the targets {list(self.targets)} are no permutation of the mesh's {mesh.size} ranks"
        where = {rank: i for i, group in enumerate(exchange.groups(mesh, self.axes(mesh))) for rank in group}
        for source, target in enumerate(self.targets):
            if where[source] != where[target]:
                return f"ranks {source} and {target} are not in one group over the axes"
        return super().error(mesh)

    @classmethod
    def parse_tail(cls, parser: Parser) -> dict[str, Attribute]:
        parser.parse_keyword("to")
        targets = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        return {"to": DenseArrayBase.from_list(i64, targets)}

    def print_tail(self, printer: Printer) -> None:
        printer.print_string(f" to {list(self.targets)}")


@irdl_op_definition
class AxisIndexOp(LocalOp):
    """This device's coordinate on some axes, outer first: ``dist.axis_index ["dp", "tp"] : tensor<i64>``."""

    name = "dist.axis_index"
    result = result_def(TensorType)

    @classmethod
    def over(cls, axes: Sequence[AxisRef], mesh: Mesh | None = None) -> AxisIndexOp:
        """The op for `axes`; with a mesh, whole axes are written by their names alone."""
        return cls.create(
            result_types=[types.tensor([], types.I64)], properties={"axes": AxesAttr.of(axes, mesh)}
        )

    def evaluate_ranks(self, mesh: Mesh, operands: Sequence[PerRank]) -> list[list[np.ndarray]]:
        axes = self.axes(mesh)
        return [[np.array(mesh.coordinate(rank, axes), dtype=np.int64) for rank in mesh.devices()]]

    def error(self, mesh: Mesh) -> str | None:
        self.axes(mesh)
        if self.result.type != types.tensor([], types.I64):
            return f"the result has type {types.show(self.result.type)} instead of i64[]"
        return None

    @classmethod
    def parse(cls, parser: Parser) -> AxisIndexOp:
        axes = AxesAttr(parse_axes(parser))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        return cls.create(
            result_types=[parser.parse_type()], properties={"axes": axes}, attributes=attributes
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        print_axes(printer, self.axes_attr.data)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)


OPS: list[type[LocalOp]] = [
    AllReduceOp,
    AllGatherOp,
    ReduceScatterOp,
    AllToAllOp,
    PermuteOp,
    ShardOp,
    AxisIndexOp,
]
