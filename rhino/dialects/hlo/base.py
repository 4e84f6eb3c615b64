"""What every `hlo` op has: one class in which everything the system knows about the op stands together."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, StringAttr, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import BaseAttr, IRDLOperation, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.kinds import VerifiedByKind
from rhino.ir.layout import Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.rule import Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder

Properties = Mapping[str, Attribute]

#: A tensor of any type. Its parts need no constraints of their own: a tensor type is checked when it is made, and
#: checking it again at every use is a quarter of the time of `verify`.
TENSOR: BaseAttr[types.Type] = BaseAttr(TensorType)


@dataclass(frozen=True)
class Localizer:
    """What `HloOp.localize` may use: layouts of operands and results, local result types, and a builder.

    The builder inserts where the op stood. ``builder.axis_index(axes)`` gives this device's coordinate.
    """

    builder: Builder
    mesh: Mesh
    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]
    result_types: tuple[types.Type, ...]

    def coordinate(self, axes: Sequence[AxisRef]) -> SSAValue:
        """This device's mixed-radix coordinate on `axes`, outer first: ``i64[]``."""
        return self.builder.axis_index(axes, self.mesh)


class HloOp(VerifiedByKind, IRDLOperation, ABC):
    """Base of all `hlo` ops.

    Subclasses declare operands, results, properties and an assembly format, then define in this order
    `infer`, `rule`, `evaluate`, `derivative`, `flops`, and `localize` if their properties hold extents.
    """

    traits = traits_def(Pure())

    #: Whether an op with regions stays one when the program is placed and cut; if not, it is inlined before.
    STAYS: ClassVar[bool] = False

    #: Operand index sets through which a partial sum may pass; see `rhino.ir.rule`.
    LINEAR: ClassVar[tuple[tuple[int, ...], ...]] = ()

    @classmethod
    @abstractmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        """Result types. Raises ProgramError naming the operand and both shapes when they do not fit."""

    @abstractmethod
    def rule(self) -> Rule:
        """The sharding rule for this op's shapes."""

    @abstractmethod
    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        """Results for numpy operands, in the operands' precision (the oracle for everything else)."""

    def derivative(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        """Cotangent of every operand from those of the results; None where there is none.

        `cotangents[i]` is None when result i does not reach the loss. The default is for ops through which no
        gradient flows (comparisons, integers).
        """
        return [None] * len(self.operands)

    def flops(self) -> int:
        """Floating-point operations, a multiply-add counted as two."""
        return sum(int(np.prod(types.shape_of(r), dtype=np.int64)) for r in self.results)

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        """Emit this op on one device's shards and return its local results.

        The default emits the same op with local types, which is right whenever no property holds an extent.
        """
        op = type(self).create(
            operands=list(operands), result_types=list(ctx.result_types), properties=dict(self.properties)
        )
        return ctx.builder.insert(op).results

    def verify_(self) -> None:
        try:
            want = self.infer([types.type_of(o) for o in self.operands], self.properties)
        except ProgramError as error:
            raise VerifyException(f"{self.name}: {error.message}") from error
        for i, (result, type) in enumerate(zip(self.results, want, strict=True)):
            if result.type != type:
                raise VerifyException(
                    f"{self.name}: result {i} has type {types.show(result.type)}, "
                    f"but its operands give {types.show(type)}"
                )


def ints(values: Sequence[int]) -> DenseArrayBase:
    """A list of integers as a property."""
    return _ints(tuple(int(v) for v in values))


@functools.lru_cache(maxsize=4096)  # attributes are immutable, and making one costs as much as making an op
def _ints(values: tuple[int, ...]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i64, values)


def integer(value: int) -> IntegerAttr:
    return IntegerAttr(int(value), i64)


def text(value: str) -> StringAttr:
    return StringAttr(value)


def get_ints(properties: Properties, name: str) -> tuple[int, ...]:
    """Read an integer-list property."""
    attr = properties[name]
    assert isinstance(attr, DenseArrayBase)
    return tuple(int(v) for v in attr.get_values())


def get_integer(properties: Properties, name: str) -> int:
    attr = properties[name]
    assert isinstance(attr, IntegerAttr)
    return int(attr.value.data)


def get_text(properties: Properties, name: str) -> str:
    attr = properties[name]
    assert isinstance(attr, StringAttr)
    return attr.data


def same_types(name: str, operands: Sequence[types.Type]) -> types.Type:
    """The common type of all operands; raises ProgramError naming the first that differs."""
    for i, type in enumerate(operands[1:], 1):
        if type != operands[0]:
            raise ProgramError(
                f"operand {i} is {types.show(type)} but operand 0 is {types.show(operands[0])}",
                remedy=f"{name} needs equal types; use broadcast or convert first",
            )
    return operands[0]


def shapes(values: Sequence[SSAValue]) -> list[tuple[int, ...]]:
    return [types.shape_of(v) for v in values]


__all__ = [
    "TENSOR",
    "HloOp",
    "Localizer",
    "Properties",
    "TensorType",
    "get_integer",
    "get_ints",
    "get_text",
    "integer",
    "ints",
    "same_types",
    "shapes",
    "text",
]
