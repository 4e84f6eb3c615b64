"""Builder methods of loops and branches, whose regions are given as functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects.build.core import BuilderCore
from rhino.dialects.hlo.composite import YieldOp
from rhino.dialects.hlo.control import BranchOp, CaseOp, IfOp, WhileOp
from rhino.dialects.hlo.regions import RegionOp
from rhino.ir import types
from rhino.ir.errors import ProgramError

#: ``body(builder, *arguments)`` builds a region and returns what it yields.
Body = Callable[..., Sequence[SSAValue]]


class ControlBuilder(BuilderCore):
    """See the ops of `rhino.dialects.hlo.control`. A region may use its own arguments only."""

    def region(self, arguments: Sequence[Attribute], body: Body) -> Region:
        """A region of one block that takes arguments of these types."""
        block = Block(arg_types=list(arguments))
        inner = type(self)(InsertPoint.at_end(block))
        inner.location = self.location
        inner.insert(YieldOp.create(operands=list(body(inner, *block.args))))
        return Region(block)

    def emit_regions(
        self,
        op: type[RegionOp],
        operands: Sequence[SSAValue],
        properties: dict[str, Attribute],
        regions: Sequence[Region],
    ) -> tuple[SSAValue, ...]:
        """Infer result types and insert the op. Raises ProgramError naming the op and what does not fit."""
        try:
            result_types = op.infer_with([types.type_of(o) for o in operands], properties, regions)
        except ProgramError as error:
            raise ProgramError(
                f"{op.name}: {error.message}", where=error.where, remedy=error.remedy
            ) from None
        new = op.create(
            operands=list(operands),
            result_types=list(result_types),
            properties=properties,
            regions=list(regions),
            location=self.location,
        )
        return tuple(self.insert(new).results)

    def while_(
        self, initial: Sequence[SSAValue], fixed: Sequence[SSAValue], cond: Body, body: Body
    ) -> tuple[SSAValue, ...]:
        """The last values of a loop. Both regions take the carried values and then the fixed ones."""
        operands = [*initial, *fixed]
        kinds = [o.type for o in operands]
        return self.emit_regions(WhileOp, operands, {}, [self.region(kinds, cond), self.region(kinds, body)])

    def branch(
        self, op: type[RegionOp], selector: SSAValue, operands: Sequence[SSAValue], branches: Sequence[Body]
    ) -> tuple[SSAValue, ...]:
        """An `hlo.if` or `hlo.case` whose regions take the operands."""
        assert issubclass(op, BranchOp)
        regions = [self.region([o.type for o in operands], body) for body in branches]
        return self.emit_regions(op, [selector, *operands], {}, regions)

    def if_(
        self, predicate: SSAValue, operands: Sequence[SSAValue], on_true: Body, on_false: Body
    ) -> tuple[SSAValue, ...]:
        """What `on_true` gives where the scalar predicate holds, else what `on_false` does."""
        return self.branch(IfOp, predicate, operands, [on_true, on_false])

    def case(
        self, index: SSAValue, operands: Sequence[SSAValue], branches: Sequence[Body]
    ) -> tuple[SSAValue, ...]:
        """What branch number `index` gives; the last one where there is none of that number."""
        return self.branch(CaseOp, index, operands, branches)
