"""What ops with regions share: their text, and running the body of a region on whole arrays at once.

A region is isolated: what it needs from outside comes in as operands of the op and arguments of its blocks. It ends in
`hlo.yield`.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, Pure
from xdsl.utils.exceptions import VerifyException

from rhino.dialects.hlo.base import HloOp, Localizer, Properties
from rhino.dialects.hlo.bits import BitcastConvertOp
from rhino.dialects.hlo.clamp import ClampOp
from rhino.dialects.hlo.composite import YieldOp
from rhino.dialects.hlo.constant import ConstantOp
from rhino.dialects.hlo.elementwise import ConvertOp, PointwiseOp, SelectOp
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.evaluate import compile_block

Evaluate = Callable[..., tuple[np.ndarray, ...]]
#: One end of a tie between dimensions: operand or result i of the op, or a value in one of its regions.
End = tuple[str, int] | SSAValue


class RegionOp(HloOp):
    """Base of ops with regions that stay in the program (unlike composites, which are inlined).

    In the text: operands, properties as a dictionary, types, then the regions in parentheses.
    """

    traits = traits_def(Pure(), IsolatedFromAbove())
    STAYS: ClassVar = True

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        """Not used: the regions have a say; see `infer_with`."""
        raise ProgramError(f"the types of {cls.name} come from its regions")

    @classmethod
    @abstractmethod
    def infer_with(
        cls, operands: Sequence[types.Type], properties: Properties, regions: Sequence[Region]
    ) -> Sequence[types.Type]:
        """Result types. Raises ProgramError when operands, properties and regions do not fit together."""

    @abstractmethod
    def prepared(self) -> Evaluate:
        """The op as a function of arrays, its regions compiled."""

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        return self.prepared()(*operands)

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """The same op with the same regions, for ops whose regions work on single elements."""
        op = type(self).create(
            operands=list(operands),
            result_types=list(ctx.result_types),
            properties=dict(self.properties),
            regions=[region.clone() for region in self.regions],
        )
        return ctx.builder.insert(op).results

    def verify_(self) -> None:
        try:
            want = self.infer_with([types.type_of(o) for o in self.operands], self.properties, self.regions)
        except ProgramError as error:
            raise VerifyException(f"{self.name}: {error.message}") from error
        if list(self.result_types) != list(want):
            raise VerifyException(
                f"{self.name}: results are {_show(self.result_types)}, but its operands and regions give "
                f"{_show(want)}"
            )

    @classmethod
    def parse(cls, parser: Parser) -> RegionOp:
        arguments = parser.parse_op_args_list()
        properties = parser.parse_optional_attr_dict()
        attributes = parser.parse_optional_attr_dict_with_keyword()
        parser.parse_punctuation(":")
        at = parser.pos
        type = parser.parse_function_type()
        regions = parser.parse_region_list()
        return cls.create(
            operands=parser.resolve_operands(arguments, type.inputs.data, at),
            result_types=type.outputs.data,
            properties=properties,
            attributes=dict(attributes.data) if attributes is not None else {},
            regions=regions,
        )

    def print(self, printer: Printer) -> None:
        printer.print_operands(self.operands)
        if self.properties:
            printer.print_op_attributes(self.properties)
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" : ")
        printer.print_function_type(self.operand_types, self.result_types)
        printer.print_regions(self.regions)


def _show(given: Sequence[Attribute]) -> str:
    return ", ".join(map(types.show, given)) or "none"


def block_of(region: Region) -> Block:
    """The one block of a region. Raises ProgramError if there is none or more."""
    if len(region.blocks) != 1:
        raise ProgramError(f"a region has {len(region.blocks)} blocks where it must have one")
    return region.block


def yielded(block: Block) -> Sequence[SSAValue]:
    """What a block yields. Raises ProgramError if it does not end in `hlo.yield`."""
    last = block.last_op
    if not isinstance(last, YieldOp):
        raise ProgramError("a region does not end in hlo.yield")
    return last.operands


def check_region(what: str, region: Region, arguments: Sequence[types.Type]) -> list[types.Type]:
    """Types that the region yields. Raises ProgramError unless it takes exactly these arguments."""
    block = block_of(region)
    got = [a.type for a in block.args]
    if got != list(arguments):
        raise ProgramError(f"the {what} takes {_show(got)} where it must take {_show(arguments)}")
    return [types.type_of(v) for v in yielded(block)]


def scalars(elements: Sequence[Attribute]) -> list[types.Type]:
    """Scalars of these element types."""
    return [types.tensor((), e) for e in elements]


def elements_of(operands: Sequence[types.Type]) -> list[Attribute]:
    return [o.element_type for o in operands]


def works_elementwise(op: Operation) -> bool:
    """Whether the op's `evaluate`, made for scalars, does the same for every element of arrays."""
    if isinstance(op, BitcastConvertOp):
        return types.shape_of(op.result) == types.shape_of(op.x)
    return isinstance(op, PointwiseOp | SelectOp | ConvertOp | ClampOp | ConstantOp | YieldOp)


def is_elementwise(block: Block) -> bool:
    """Whether a body on scalars can run on whole arrays at once."""
    return all(map(works_elementwise, block.ops))


def compiled(block: Block) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """A block as a function of arrays, the regions of the ops in it compiled, too."""
    executable = compile_block(block)
    steps = [replace(s, run=s.op.prepared()) if isinstance(s.op, RegionOp) else s for s in executable.steps]
    return replace(executable, steps=tuple(steps)).run


def elementwise(block: Block) -> Evaluate:
    """A body on scalars as a function of arrays of one shape (or scalars): it runs once if it can, else per element."""
    run = compiled(block)
    dtypes = [types.numpy_dtype(types.element_of(v)) for v in yielded(block)]
    at_once = is_elementwise(block)

    def call(*operands: np.ndarray) -> tuple[np.ndarray, ...]:
        shape = np.broadcast_shapes(*(o.shape for o in operands))
        if at_once:
            return tuple(np.broadcast_to(y, shape) for y in run(operands))
        flat = [np.broadcast_to(o, shape).reshape(-1) for o in operands]
        out = [np.empty(math.prod(shape), dtype) for dtype in dtypes]
        for i in range(math.prod(shape)):
            for column, value in zip(out, run([np.asarray(x[i]) for x in flat]), strict=True):
                column[i] = value
        return tuple(column.reshape(shape) for column in out)

    return call


def region_flops(region: Region) -> int:
    """Floating-point operations of one run of a region."""
    return sum(op.flops() for op in region.block.ops if isinstance(op, HloOp))


def fold(body: Evaluate, initial: Sequence[np.ndarray], xs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Combine the last axis of all arrays, in order, beginning with the initial values.

    Few elements one after the other; many pairwise, which an associative body cannot tell apart.
    """
    shape, count = xs[0].shape[:-1], xs[0].shape[-1]
    result = tuple(np.broadcast_to(v, shape) for v in initial)
    if count > _IN_SEQUENCE:
        parts = list(xs)
        while (count := parts[0].shape[-1]) > 1:
            pairs = count - count % 2
            joined = body(*(x[..., 0:pairs:2] for x in parts), *(x[..., 1:pairs:2] for x in parts))
            parts = [np.concatenate([y, x[..., pairs:]], axis=-1) for y, x in zip(joined, parts, strict=True)]
        return body(*result, *(x[..., 0] for x in parts))
    return functools.reduce(lambda acc, i: body(*acc, *(x[..., i] for x in xs)), range(count), result)


_IN_SEQUENCE = 128
