"""What the ops of local programs share: the axes they act along, the digits they cut and join, their text.

A collective acts on the groups of ranks that differ on its axes only, each ordered by its coordinate there,
outer axis first. Periods are local (see `rhino.dialects.dist.exchange`) and left out when the digit is a
block. `reason` says which reshard a collective belongs to, `bytes` how many bytes every rank sends.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import IRDLOperation, operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from rhino.dialects.dist.attributes import AxesAttr, parse_axes, print_axes
from rhino.dialects.dist.mesh import mesh_of
from rhino.ir import types
from rhino.ir.errors import RhinoError
from rhino.ir.mesh import AxisRef, Mesh

PerRank = Sequence[np.ndarray]
Properties = Mapping[str, Attribute]


class LocalOp(IRDLOperation, ABC):
    """An op on one device's arrays that acts along mesh axes."""

    traits = traits_def(Pure())
    axes_attr = prop_def(AxesAttr, prop_name="axes")

    def axes(self, mesh: Mesh) -> tuple[AxisRef, ...]:
        """The axes whose groups take part, outer first. Raises MeshError if the mesh lacks one."""
        return self.axes_attr.resolve(mesh)

    def members(self, mesh: Mesh) -> int:
        """Ranks per group."""
        return math.prod(a.size for a in self.axes(mesh))

    @abstractmethod
    def evaluate_ranks(self, mesh: Mesh, operands: Sequence[PerRank]) -> list[list[np.ndarray]]:
        """For each result the arrays of all ranks, from those of each operand."""

    @abstractmethod
    def error(self, mesh: Mesh) -> str | None:
        """Why the op is malformed, naming the operand and both shapes; None if it is fine."""

    def verify_(self) -> None:
        try:
            why = self.error(mesh_of(self))
        except RhinoError as error:
            raise VerifyException(f"{self.name}: {error}") from error
        if why is not None:
            raise VerifyException(f"{self.name}: {why}")


class CollectiveOp(LocalOp, ABC):
    """``dist.<name> [kind] %x <digits> over [<axes>] <more> {reason = .., bytes = ..} : type [-> type]``.

    Subclasses name the properties of the digit that they cut from the operand (`CUT`) and of the one that
    they join in the result (`JOIN`), each as dimension and period; shapes and checks follow from that.
    """

    x = operand_def(TensorType)
    result = result_def(TensorType)
    reason_attr = opt_prop_def(StringAttr, prop_name="reason")
    bytes_attr = opt_prop_def(IntegerAttr, prop_name="bytes")

    CUT: ClassVar[tuple[str, str] | None] = None
    JOIN: ClassVar[tuple[str, str] | None] = None

    @property
    def reason(self) -> str | None:
        """Which reshard this op belongs to."""
        return self.reason_attr.data if self.reason_attr is not None else None

    @property
    def bytes(self) -> int:
        """Bytes that every rank sends, 0 if the op does not say."""
        return self.bytes_attr.value.data if self.bytes_attr is not None else 0

    @classmethod
    def make(
        cls,
        x: SSAValue,
        axes: Sequence[AxisRef],
        mesh: Mesh,
        *,
        reason: str | None = None,
        **fields: int | str | Sequence[int],
    ) -> Self:
        """An op of this class on `x`; `fields` are its properties as Python values, the result type follows.

        A period that covers the whole dimension is left out, so that equal ops have equal properties.
        """
        properties: dict[str, Attribute] = {"axes": AxesAttr.of(axes, mesh)}
        for key, value in fields.items():
            if isinstance(value, str):
                properties[key] = StringAttr(value)
            elif isinstance(value, int):
                properties[key] = IntegerAttr(value, i64)
            else:
                properties[key] = DenseArrayBase.from_list(i64, list(value))
        shape, members = types.shape_of(x), math.prod(a.size for a in axes)
        result = cls.result_shape(shape, members, properties)
        for digit, where in ((cls.CUT, shape), (cls.JOIN, result)):
            if digit is not None and digit[1] in properties:
                dim, period = (integer_of(properties, key) for key in digit)
                if period == where[dim]:
                    del properties[digit[1]]
        if reason is not None:
            properties["reason"] = StringAttr(reason)
        type = types.tensor(result, types.element_of(x))
        if (sent := cls.sent(types.bytes_of(types.type_of(x)), types.bytes_of(type), members)) > 0:
            properties["bytes"] = IntegerAttr(sent, i64)
        return cls.create(operands=[x], result_types=[type], properties=properties)

    @classmethod
    @abstractmethod
    def sent(cls, operand: int, result: int, members: int) -> int:
        """Bytes that every rank sends for an operand and a result of so many bytes (ring or pairwise algorithm)."""

    @classmethod
    def result_shape(cls, shape: Sequence[int], members: int, properties: Properties) -> tuple[int, ...]:
        """Shape of the result for an operand of `shape` in groups of `members`."""
        out = list(shape)
        if cls.CUT is not None:
            out[integer_of(properties, cls.CUT[0])] //= members
        if cls.JOIN is not None:
            out[integer_of(properties, cls.JOIN[0])] *= members
        return tuple(out)

    def digit(self, names: tuple[str, str], shape: Sequence[int]) -> tuple[int, int]:
        """``(dim, local period)`` of a digit on an array of `shape`."""
        dim = integer_of(self.properties, names[0])
        return dim, integer_of(self.properties, names[1]) if names[1] in self.properties else shape[dim]

    def cut(self) -> tuple[int, int]:
        """``(dim, local period)`` of the digit cut from the operand, for ops that cut."""
        assert self.CUT is not None
        return self.digit(self.CUT, types.shape_of(self.x))

    def join(self) -> tuple[int, int]:
        """``(dim, local period)`` of the digit joined in the result, for ops that join."""
        assert self.JOIN is not None
        return self.digit(self.JOIN, types.shape_of(self.result))

    def error(self, mesh: Mesh) -> str | None:
        members = self.members(mesh)
        x, result = types.type_of(self.x), types.type_of(self.result)
        shape = types.shape_of(self.x)
        for names in (self.CUT, self.JOIN):
            if names is not None and not 0 <= (dim := integer_of(self.properties, names[0])) < len(shape):
                return f"operand 0 of type {types.show(x)} has no dim {dim}"
        if self.CUT is not None and (why := _digit_error(shape, self.digit(self.CUT, shape), members)):
            return f"operand 0 of type {types.show(x)}: {why}"
        whole = self.result_shape(shape, members, self.properties)
        if self.JOIN is not None and (why := _digit_error(whole, self.digit(self.JOIN, whole), members)):
            return f"operand 0 of type {types.show(x)}, joined to {list(whole)}: {why}"
        want = types.tensor(whole, x.element_type)
        if result != want:
            return (
                f"operand 0 of type {types.show(x)} in groups of {members} gives {types.show(want)}, "
                f"but the result has type {types.show(result)}"
            )
        return None

    # Text. Subclasses say what stands before the operand, after it and after the axes.

    @classmethod
    def parse_head(cls, parser: Parser) -> dict[str, Attribute]:
        return {}

    @classmethod
    def parse_digits(cls, parser: Parser) -> dict[str, Attribute]:
        return {}

    @classmethod
    def parse_tail(cls, parser: Parser) -> dict[str, Attribute]:
        return {}

    def print_head(self, printer: Printer) -> None:
        pass

    def print_digits(self, printer: Printer) -> None:
        pass

    def print_tail(self, printer: Printer) -> None:
        pass

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        properties = cls.parse_head(parser)
        x = parser.parse_unresolved_operand()
        properties |= cls.parse_digits(parser)
        parser.parse_keyword("over")
        properties["axes"] = AxesAttr(parse_axes(parser))
        properties |= cls.parse_tail(parser)
        attributes = dict(parser.parse_optional_attr_dict())
        for key in ("reason", "bytes"):
            if key in attributes:
                properties[key] = attributes.pop(key)
        parser.parse_punctuation(":")
        at = parser.pos
        type = parser.parse_type()
        result = parser.parse_type() if parser.parse_optional_punctuation("->") else type
        operands = parser.resolve_operands([x], [type], at)
        return cls.create(
            operands=operands, result_types=[result], properties=properties, attributes=attributes
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        self.print_head(printer)
        printer.print_ssa_value(self.x)
        self.print_digits(printer)
        printer.print_string(" over ")
        print_axes(printer, self.axes_attr.data)
        self.print_tail(printer)
        notes: dict[str, Attribute] = {
            key: self.properties[key] for key in ("reason", "bytes") if key in self.properties
        }
        printer.print_op_attributes({**notes, **self.attributes})
        printer.print_string(" : ")
        printer.print_attribute(self.x.type)
        if self.x.type != self.result.type:
            printer.print_string(" -> ")
            printer.print_attribute(self.result.type)


def parse_integer(parser: Parser, keyword: str, name: str) -> dict[str, Attribute]:
    """``keyword N`` as property `name`."""
    parser.parse_keyword(keyword)
    return {name: IntegerAttr(parser.parse_integer(allow_boolean=False, allow_negative=False), i64)}


def parse_period(parser: Parser, name: str = "period") -> dict[str, Attribute]:
    """``period N``, if it is there."""
    if parser.parse_optional_keyword("period") is None:
        return {}
    return {name: IntegerAttr(parser.parse_integer(allow_boolean=False, allow_negative=False), i64)}


def print_period(printer: Printer, period: IntegerAttr | None) -> None:
    if period is not None:
        printer.print_string(f" period {period.value.data}")


def integer_of(properties: Properties, name: str) -> int:
    attr = properties[name]
    assert isinstance(attr, IntegerAttr)
    return attr.value.data


def _digit_error(shape: Sequence[int], digit: tuple[int, int], members: int) -> str | None:
    """Why an array of `shape` has no digit ``(dim, period)`` of `members` places."""
    dim, period = digit
    if period < members or period % members or shape[dim] % period:
        return f"dim {dim} of extent {shape[dim]} has no digit of {members} members with period {period}"
    return None
