"""What StableHLO text says, as plain values: the result of parsing, before anything is given a meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TensorSyntax:
    """``tensor<2x?xf32>``: extents (None where dynamic) and the name of the element type."""

    shape: tuple[int | None, ...]
    element: str

    def __str__(self) -> str:
        extents = "".join("?x" if n is None else f"{n}x" for n in self.shape)
        return f"tensor<{extents}{self.element}>"


@dataclass(frozen=True)
class OtherType:
    """A type that is no tensor: ``!stablehlo.token``, ``tuple<...>``, ``i32``."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class FunctionSyntax:
    """``(types) -> (types)``."""

    inputs: tuple[TypeSyntax, ...]
    outputs: tuple[TypeSyntax, ...]


TypeSyntax = TensorSyntax | OtherType | FunctionSyntax


@dataclass(frozen=True)
class Literal:
    """``dense<...> : type``: elements as text in row-major order, or the bytes of a string or resource.

    Attributes:
        elements: texts of numbers, or pairs of texts for complex elements.
        shape: that of the nested lists; () for a single element, which fills the tensor.
        data: little-endian bytes, where they were given instead of elements.
        type: the tensor's type.
        at: position in the text.
    """

    elements: tuple[Any, ...]
    shape: tuple[int, ...]
    data: bytes | None
    type: TensorSyntax
    at: int


@dataclass(frozen=True)
class Resource:
    """``dense_resource<name> : type``; the bytes stand at the end of the file."""

    name: str
    type: TensorSyntax
    at: int


@dataclass(frozen=True)
class Symbol:
    """``@name``."""

    name: str


@dataclass(frozen=True)
class Struct:
    """A dialect's attribute: ``#stablehlo.gather<offset_dims = [1], ...>`` is ``Struct("stablehlo.gather", ...)``.

    `text` is what stands between the angle brackets; `fields` what it says where it is a list of
    ``name = value``; ``#stablehlo<comparison_direction EQ>`` has the text ``comparison_direction EQ``.
    """

    name: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def word(self) -> str:
        """The last word of the text: the value of an enumeration."""
        return self.text.split()[-1] if self.text.split() else ""


@dataclass(frozen=True)
class Word:
    """A bare word where an attribute is expected, such as ``EQ`` in a pretty form."""

    text: str


@dataclass(frozen=True)
class Location:
    """A source location: ``("file", line, column)``, a name, both, or an alias that is resolved later."""

    name: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    alias: str = ""


@dataclass
class Argument:
    """An argument of a function or region."""

    name: str
    type: TypeSyntax
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Body:
    """A region of one block."""

    arguments: list[Argument]
    ops: list[OpSyntax]


@dataclass
class OpSyntax:
    """One op, whichever form it was written in.

    Attributes:
        name: with its dialect, as in ``stablehlo.add``.
        operands: names of values (``%0``, or ``%0#1`` for one of several results).
        results: for every name on the left of ``=`` how many values it stands for.
        attributes: by the names of the generic form.
        at: position of the op's name in the text.
    """

    name: str
    operands: list[str]
    results: list[tuple[str, int]]
    attributes: dict[str, Any]
    regions: list[Body]
    operand_types: tuple[TypeSyntax, ...]
    result_types: tuple[TypeSyntax, ...]
    at: int
    location: Location | None = None


@dataclass
class FunctionDef:
    """A function; `result_attributes` has one dictionary per result."""

    name: str
    private: bool
    body: Body
    results: list[TypeSyntax]
    result_attributes: list[dict[str, Any]]
    attributes: dict[str, Any]
    at: int


@dataclass
class ModuleSyntax:
    """A module: its functions by name, its meshes (``sdy.mesh``), the resources and location aliases."""

    name: str
    attributes: dict[str, Any]
    functions: dict[str, FunctionDef]
    meshes: dict[str, Any]
    resources: dict[str, bytes]
    locations: dict[str, Location]
    at: int = 0
