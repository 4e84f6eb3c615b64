"""A named op that carries its decomposition: a kernel can claim it whole, passes can look inside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import DictionaryAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from rhino.dialects.hlo.base import HloOp, Properties, shapes
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.evaluate import compile_block
from rhino.ir.rule import Rule


@irdl_op_definition
class CompositeOp(HloOp):
    """Computes what its region computes from the operands.

    Example::

        %y = hlo.composite "softmax"(%x) {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32> {
        ^bb0(%a: tensor<4x8xf32>):
          %e = hlo.exp %a : tensor<4x8xf32>
          hlo.yield %e : tensor<4x8xf32>
        }

    The pass `inline-composites` replaces it by its region, before layouts exist.
    """

    name = "hlo.composite"
    arguments = var_operand_def(TensorType)
    composite_name = prop_def(StringAttr)
    composite_attributes = opt_prop_def(DictionaryAttr)
    body = region_def("single_block")
    outputs = var_result_def(TensorType)
    traits = traits_def(Pure(), IsolatedFromAbove())

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        """Not used: the result types are those that the region yields; see `infer_from`."""
        raise ProgramError(f"the types of {cls.name} come from its region")

    @staticmethod
    def infer_from(operands: Sequence[types.Type], body: Region) -> list[types.Type]:
        """Types of what the region yields. Raises ProgramError if its arguments do not fit the operands."""
        block = body.block
        for i, (operand, argument) in enumerate(zip(operands, block.args, strict=False)):
            if operand != argument.type:
                raise ProgramError(
                    f"operand {i} is {types.show(operand)} but argument {i} of the region "
                    f"is {types.show(argument.type)}"
                )
        if len(operands) != len(block.args):
            raise ProgramError(f"{len(operands)} operands for a region of {len(block.args)} arguments")
        last = block.last_op
        if not isinstance(last, YieldOp):
            raise ProgramError("the region does not end in hlo.yield")
        return [types.type_of(v) for v in last.operands]

    def yielded(self) -> Sequence[SSAValue]:
        """What the region yields."""
        last = self.body.block.last_op
        assert last is not None
        return last.operands

    def rule(self) -> Rule:
        """Everything whole: a composite that is not inlined runs replicated."""
        sizes: dict[str, int] = {}

        def whole(tag: str, shape: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
            sizes.update({f"{tag}_{d}": e for d, e in enumerate(shape)})
            return tuple((f"{tag}_{d}",) for d in range(len(shape)))

        ins = tuple(whole(f"x{i}", s) for i, s in enumerate(shapes(self.operands)))
        outs = tuple(whole(f"y{i}", s) for i, s in enumerate(shapes(self.results)))
        return Rule(ins, outs, sizes, dict.fromkeys(sizes, "whole"))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(compile_block(self.body.block).run(operands))

    def flops(self) -> int:
        return sum(op.flops() for op in self.body.block.ops if isinstance(op, HloOp))

    def verify_(self) -> None:
        try:
            want = self.infer_from([types.type_of(o) for o in self.operands], self.body)
        except ProgramError as error:
            raise VerifyException(f"{self.name}: {error.message}") from error
        got = list(self.result_types)
        if got != want:
            raise VerifyException(
                f"{self.name}: results are {', '.join(map(types.show, got))}, "
                f"but the region yields {', '.join(map(types.show, want))}"
            )

    @classmethod
    def parse(cls, parser: Parser) -> CompositeOp:
        properties: dict[str, Attribute] = {"composite_name": StringAttr(parser.parse_str_literal())}
        arguments = parser.parse_op_args_list()
        entries = parser.parse_optional_attr_dict()
        if entries:
            properties["composite_attributes"] = DictionaryAttr(entries)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        parser.parse_punctuation(":")
        at = parser.pos
        type = parser.parse_function_type()
        body = parser.parse_region()
        return cls.create(
            operands=parser.resolve_operands(arguments, type.inputs.data, at),
            result_types=type.outputs.data,
            properties=properties,
            attributes=dict(attributes.data) if attributes is not None else {},
            regions=[body],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.composite_name.data)
        printer.print_operands(self.operands)
        if self.composite_attributes is not None:
            printer.print_op_attributes(self.composite_attributes.data)
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" : ")
        printer.print_function_type(self.operand_types, self.result_types)
        printer.print_string(" ")
        printer.print_region(self.body)


@irdl_op_definition
class YieldOp(IRDLOperation):
    """``hlo.yield %y : tensor<4xf32>``: the results of an op's region."""

    name = "hlo.yield"
    values = var_operand_def(TensorType)
    assembly_format = "attr-dict ($values^ `:` type($values))?"
    traits = traits_def(Pure(), IsTerminator())

    def verify_(self) -> None:
        if not isinstance(self.parent_op(), HloOp):
            raise VerifyException("hlo.yield ends the region of an hlo op")


OPS: list[type[IRDLOperation]] = [CompositeOp, YieldOp]
