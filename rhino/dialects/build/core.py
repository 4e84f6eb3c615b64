"""The core of the builder: where ops go, what location they get, and how their result types are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from xdsl.dialects.builtin import LocationAttr, UnknownLoc
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.digits import places
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.layout import Layout
from rhino.ir.mesh import AxisRef, Mesh

OpT = TypeVar("OpT", bound=Operation)


class BuilderCore:
    """Inserts ops at a point; every op gets the current location."""

    def __init__(self, point: InsertPoint) -> None:
        self.point = point
        self.location: LocationAttr = UnknownLoc()

    @contextmanager
    def at(self, location: LocationAttr) -> Iterator[None]:
        """Give all ops built inside the block this location."""
        saved, self.location = self.location, location
        try:
            yield
        finally:
            self.location = saved

    def insert(self, op: OpT) -> OpT:
        """Insert an op that already has its types."""
        if isinstance(op.location, UnknownLoc):
            op.location = self.location
        if self.point.insert_before is not None:
            self.point.block.insert_op_before(op, self.point.insert_before)
        else:
            self.point.block.add_op(op)
        return op

    def emit(
        self,
        op: type[HloOp],
        operands: Sequence[SSAValue],
        properties: Mapping[str, Attribute] | None = None,
        regions: Sequence[Region] = (),
    ) -> HloOp:
        """Infer result types and insert the op. Raises ProgramError naming the op and what does not fit."""
        properties = dict(properties or {})
        try:
            result_types = op.infer([types.type_of(o) for o in operands], properties)
        except ProgramError as error:
            message = f"{op.name}: {error.message}"
            raise ProgramError(message, where=error.where, remedy=error.remedy) from None
        return self.insert(
            op.create(
                operands=operands,
                result_types=result_types,
                properties=properties,
                location=self.location,
                regions=regions,
            )
        )

    def emit1(
        self,
        op: type[HloOp],
        operands: Sequence[SSAValue],
        properties: Mapping[str, Attribute] | None = None,
    ) -> SSAValue:
        """`emit` for ops with one result: the result."""
        return self.emit(op, operands, properties).results[0]

    def axis_index(self, axes: Sequence[AxisRef], mesh: Mesh | None = None) -> SSAValue:
        """This device's mixed-radix coordinate on `axes`, outer first: ``i64[]``. For local programs only."""
        from rhino.dialects.dist.collectives import AxisIndexOp  # global programs never need `dist`

        return self.insert(AxisIndexOp.over(axes, mesh)).results[0]

    def halo(
        self,
        x: SSAValue,
        dim: int,
        axes: Sequence[AxisRef],
        mesh: Mesh,
        edges: tuple[int, int],
        kind: str,
        reason: str,
    ) -> SSAValue:
        """A block of a dimension that is cut over `axes`, with the `edges` of the blocks before and behind it; beyond
        the first and the last block stands the neutral element of `kind`. For local programs only.
        """
        from rhino.dialects.dist.halo import HaloOp

        low, high = edges
        op = HaloOp.make(x, axes, mesh, reason=reason, kind=kind, dim=dim, low=low, high=high)
        return self.insert(op).result

    def shard(self, x: SSAValue, layout: Layout, mesh: Mesh) -> SSAValue:
        """This device's part of a value that every device holds whole. For local programs only."""
        from rhino.dialects.dist.collectives import ShardOp

        for dim, digits in enumerate(layout.dims):
            # Major first: that leaves the periods of the minor digits as they are.
            for axes, _, period in places(digits):
                x = self.insert(ShardOp.make(x, axes, mesh, dim=dim, period=period)).result
        return x
