"""Control flow: loops and branches. Everything that a region reads is an operand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import Region, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    region_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)

from rhino.dialects.hlo.base import TENSOR, Localizer, Properties
from rhino.dialects.hlo.common import Cotangents
from rhino.dialects.hlo.region_rule import Ties, rule_of, tie_regions
from rhino.dialects.hlo.regions import (
    End,
    Evaluate,
    RegionOp,
    check_region,
    compiled,
    region_flops,
    yielded,
)
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


class ControlOp(RegionOp):
    """Base of loops and branches: they may be split along dimensions that all their regions pass through."""

    @abstractmethod
    def links(self) -> Iterator[tuple[End, End, int]]:
        """Which values go in and out of the regions: two ends that are laid out alike, and their rank."""

    def ties(self) -> Ties:
        """Groups of dimensions of all values, outside and inside."""
        return tie_regions(self, self.links(), (region.block for region in self.regions))

    def rule(self) -> Rule:
        return rule_of(self, self.ties())

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        from rhino.dialects.local_regions import (
            localize_regions,  # it needs the builder, which needs this file
        )

        return localize_regions(self, self.ties(), ctx, operands)


def _rank(value: SSAValue) -> int:
    return len(types.shape_of(value))


@irdl_op_definition
class WhileOp(ControlOp):
    """Runs `body` as long as `cond` holds, from the initial values on; what it yields goes into the next turn.

    Example::

        %n, %y = hlo.while(%i, %x, %w) : (tensor<i64>, tensor<4xf32>, tensor<4xf32>) -> (tensor<i64>, tensor<4xf32>) ({
        ^bb0(%k: tensor<i64>, %a: tensor<4xf32>, %b: tensor<4xf32>):
          %end = hlo.constant dense<3> : tensor<i64>
          %more = hlo.compare "lt", %k, %end : tensor<i64> -> tensor<i1>
          hlo.yield %more : tensor<i1>
        }, {
        ^bb0(%k: tensor<i64>, %a: tensor<4xf32>, %b: tensor<4xf32>):
          %one = hlo.constant dense<1> : tensor<i64>
          %next = hlo.add %k, %one : tensor<i64>
          %c = hlo.mul %a, %b : tensor<4xf32>
          hlo.yield %next, %c : tensor<i64>, tensor<4xf32>
        })

    The first operands, as many as there are results, are carried around; both regions see the others unchanged. It
    can be differentiated if the number of turns follows from constants. It can be split along dimensions that the
    regions pass through.
    """

    name = "hlo.while"
    arguments = var_operand_def(TENSOR)
    cond = region_def("single_block")
    body = region_def("single_block")
    outputs = var_result_def(TENSOR)

    @classmethod
    def infer_with(
        cls, operands: Sequence[types.Type], properties: Properties, regions: Sequence[Region]
    ) -> Sequence[types.Type]:
        cond, body = regions
        found = check_region("condition", cond, operands)
        if found != [types.tensor((), types.I1)]:
            raise ProgramError(
                f"the condition yields {', '.join(map(types.show, found))} instead of one i1[]"
            )
        out = check_region("body", body, operands)
        if out != list(operands[: len(out)]):
            raise ProgramError(
                f"the body yields {', '.join(map(types.show, out))}, but the values that it carries are "
                f"{', '.join(map(types.show, operands[: len(out)]))}"
            )
        return out

    def links(self) -> Iterator[tuple[End, End, int]]:
        for i, value in enumerate(self.operands):
            for region in (self.cond, self.body):
                yield ("operand", i), region.block.args[i], _rank(value)
        for i, value in enumerate(yielded(self.body.block)):
            yield ("operand", i), value, _rank(value)
            yield ("operand", i), ("result", i), _rank(value)

    def prepared(self) -> Evaluate:
        cond, body = compiled(self.cond.block), compiled(self.body.block)
        count = len(self.results)

        def run(*operands: np.ndarray) -> tuple[np.ndarray, ...]:
            carried, fixed = list(operands[:count]), operands[count:]
            while bool(cond([*carried, *fixed])[0]):
                carried = body([*carried, *fixed])
            return tuple(carried)

        return run

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        from rhino.dialects.hlo.region_derivative import while_derivative

        return while_derivative(self, builder, cotangents)

    def flops(self) -> int:
        """Of as many turns as can be foretold, else of one."""
        from rhino.dialects.hlo.trips import trip_count

        return (trip_count(self) or 1) * (region_flops(self.cond) + region_flops(self.body))


class BranchOp(ControlOp):
    """Base of ops that run one of their regions on the operands after the first."""

    @classmethod
    def branch_types(
        cls, operands: Sequence[types.Type], regions: Sequence[Region], names: Sequence[str]
    ) -> Sequence[types.Type]:
        """What all branches yield. Raises ProgramError if they differ."""
        found = [
            check_region(name, region, operands[1:]) for name, region in zip(names, regions, strict=True)
        ]
        for name, out in zip(names, found, strict=True):
            if out != found[0]:
                raise ProgramError(
                    f"the {name} yields {', '.join(map(types.show, out))}, "
                    f"but the {names[0]} {', '.join(map(types.show, found[0]))}"
                )
        return found[0]

    def links(self) -> Iterator[tuple[End, End, int]]:
        for region in self.regions:
            for i, argument in enumerate(region.block.args, 1):
                yield ("operand", i), argument, _rank(argument)
            for i, value in enumerate(yielded(region.block)):
                yield ("result", i), value, _rank(value)

    @abstractmethod
    def choice(self, selector: np.ndarray) -> int:
        """Which region runs."""

    def prepared(self) -> Evaluate:
        branches = [compiled(region.block) for region in self.regions]

        def run(selector: np.ndarray, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
            return tuple(branches[self.choice(selector)](operands))

        return run

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        from rhino.dialects.hlo.region_derivative import branch_derivative

        return branch_derivative(self, builder, cotangents)

    def flops(self) -> int:
        """Of the longest branch."""
        return max(map(region_flops, self.regions))


@irdl_op_definition
class IfOp(BranchOp):
    """What the first region yields if the predicate holds, else what the second does.

    Example::

        %y = hlo.if(%p, %x) : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32> ({
        ^bb0(%a: tensor<4xf32>):
          %b = hlo.exp %a : tensor<4xf32>
          hlo.yield %b : tensor<4xf32>
        }, {
        ^bb0(%a: tensor<4xf32>):
          hlo.yield %a : tensor<4xf32>
        })

    Both regions take the operands after the predicate. It can be split along dimensions that both pass through.
    """

    name = "hlo.if"
    predicate = operand_def(TENSOR)
    arguments = var_operand_def(TENSOR)
    on_true = region_def("single_block")
    on_false = region_def("single_block")
    outputs = var_result_def(TENSOR)

    @classmethod
    def infer_with(
        cls, operands: Sequence[types.Type], properties: Properties, regions: Sequence[Region]
    ) -> Sequence[types.Type]:
        if operands[0] != types.tensor((), types.I1):
            raise ProgramError(f"operand 0 is {types.show(operands[0])}, but the predicate must be i1[]")
        return cls.branch_types(operands, regions, ("true branch", "false branch"))

    def choice(self, selector: np.ndarray) -> int:
        return 0 if selector else 1


@irdl_op_definition
class CaseOp(BranchOp):
    """What region number `index` yields; the last one where there is none of that number.

    Example::

        %y = hlo.case(%i, %x) : (tensor<i32>, tensor<4xf32>) -> tensor<4xf32> ({
        ^bb0(%a: tensor<4xf32>):
          hlo.yield %a : tensor<4xf32>
        }, {
        ^bb0(%a: tensor<4xf32>):
          %b = hlo.negate %a : tensor<4xf32>
          hlo.yield %b : tensor<4xf32>
        })

    All regions take the operands after the index. It can be split along dimensions that all pass through.
    """

    name = "hlo.case"
    index = operand_def(TENSOR)
    arguments = var_operand_def(TENSOR)
    branches = var_region_def("single_block")
    outputs = var_result_def(TENSOR)

    @classmethod
    def infer_with(
        cls, operands: Sequence[types.Type], properties: Properties, regions: Sequence[Region]
    ) -> Sequence[types.Type]:
        index = operands[0]
        if index.get_shape() or not types.is_integer(index.element_type):
            raise ProgramError(f"operand 0 is {types.show(index)}, but the index must be a scalar integer")
        if not regions:
            raise ProgramError("there is no branch")
        return cls.branch_types(operands, regions, [f"branch {i}" for i in range(len(regions))])

    def choice(self, selector: np.ndarray) -> int:
        last = len(self.regions) - 1
        return int(selector) if 0 <= int(selector) <= last else last


OPS: list[type[RegionOp]] = [WhileOp, IfOp, CaseOp]

__all__ = ["OPS", "BranchOp", "CaseOp", "ControlOp", "IfOp", "WhileOp"]
