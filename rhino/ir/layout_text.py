"""Layouts as people write them: whole axes and sub-axes by name, block periods left out.

::

    [{"dp"}, {}, {"tp":192}]                    dim 0 in blocks over dp, dim 2 over tp with period 192
    [{"tp", "dp"}]                              two axes on one dimension, major first
    [{}, {"tp":(1)2:16}, {"tp":(2)2}]           sub-axes: (product of what is major)size, then the period
    [{"dp"}, {}] partial {"tp": sum}            over tp only the sum of the local arrays is the tensor

A `LayoutSpec` is the written form; `resolve` gives the `Layout` over atoms that it means for a shape and a
mesh, `LayoutSpec.of` writes a layout down canonically (equal layouts, equal text).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from rhino.ir.errors import LayoutError, MeshError
from rhino.ir.layout import PARTIAL_KINDS, Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh

_TOKEN = re.compile(
    r'\s*(?:"(?P<name>[A-Za-z_]\w*)"|(?P<word>[A-Za-z_]\w*)|(?P<int>\d+)|(?P<mark>[\[\]{},:()]))'
)


@dataclass(frozen=True)
class AxisSpec:
    """An axis as written: its name and, where given, sub-axis ``(pre, size)`` and period."""

    name: str
    sub: tuple[int, int] | None = None
    period: int | None = None

    def __str__(self) -> str:
        return self.axis_text() + ("" if self.period is None else f":{self.period}")

    def axis_text(self) -> str:
        """The axis without its period."""
        return f'"{self.name}"' + ("" if self.sub is None else f":({self.sub[0]}){self.sub[1]}")

    def ref(self, mesh: Mesh) -> AxisRef:
        """The (sub-)axis of `mesh` that is meant. Raises MeshError if it has no such axis."""
        whole = mesh.axis(self.name)
        if self.sub is None:
            return whole
        pre, size = self.sub
        if pre < 1 or size < 1 or whole.size % (pre * size):
            raise MeshError(
                f"{self.axis_text()} is no part of axis '{self.name}' of size {whole.size}",
                remedy="write (pre)size with pre * size a divisor of the axis size",
            )
        ref = AxisRef(self.name, pre, size)
        if not set(Mesh.atoms_of(ref)) <= set(mesh.atoms):
            cuts = [str(atom.pre) for atom in mesh.atoms if atom.name == self.name]
            raise MeshError(
                f"{self.axis_text()} does not fall on a cut of axis '{self.name}' of size {whole.size}",
                remedy=f"axes are cut at prime factors, the smallest major; pre may be {', '.join(cuts)}",
            )
        return ref


@dataclass(frozen=True)
class LayoutSpec:
    """A layout as written; see the module's docstring.

    Attributes:
        dims: for each dimension its axes, major first.
        partial: ``(axis, kind)`` pairs; their axes have no period.
    """

    dims: tuple[tuple[AxisSpec, ...], ...]
    partial: tuple[tuple[AxisSpec, str], ...] = ()

    def __str__(self) -> str:
        text = "[" + ", ".join("{" + ", ".join(map(str, axes)) + "}" for axes in self.dims) + "]"
        if self.partial:
            text += (
                " partial {" + ", ".join(f"{axis.axis_text()}: {kind}" for axis, kind in self.partial) + "}"
            )
        return text

    @staticmethod
    def parse(text: str) -> LayoutSpec:
        """Read the written form. Raises LayoutError that shows where it stops making sense."""
        return _Reader(text).layout()

    @property
    def rank(self) -> int:
        return len(self.dims)

    def resolve(self, shape: Sequence[int], mesh: Mesh) -> Layout:
        """The layout over atoms that this means for a tensor of `shape` on `mesh`.

        An omitted period is the extent, or what the axes written before on the same dimension leave of it.
        Raises MeshError for axes that `mesh` lacks and LayoutError if the layout does not fit the tensor.
        """
        if len(shape) != self.rank:
            raise LayoutError(
                f"layout {self} has {self.rank} dimensions, the tensor of shape {list(shape)} {len(shape)}",
                remedy="write one {...} per dimension, empty for a whole one",
            )
        dims: list[list[Digit]] = []
        for dim, (extent, axes) in enumerate(zip(shape, self.dims, strict=True)):
            digits: list[Digit] = []
            left = extent
            for axis in axes:
                ref = axis.ref(mesh)
                period = left if axis.period is None else axis.period
                if period < 1 or period % ref.size or left % period:
                    raise LayoutError(
                        _misfit(axis, ref, dim, extent, left, period),
                        remedy="the axis size must divide the period, and the period what is left of the "
                        "extent; write major axes first, or leave the dimension whole",
                    )
                digits.append(Digit(ref, period))
                left = period // ref.size
            dims.append(digits)
        layout = Layout.make(dims, [(axis.ref(mesh), kind) for axis, kind in self.partial])
        if (why := layout.error(shape)) is not None:
            raise LayoutError(f"layout {self}: {why}", remedy="use every axis once, and one kind of partial")
        return layout

    @staticmethod
    def of(layout: Layout, shape: Sequence[int], mesh: Mesh) -> LayoutSpec:
        """The canonical written form: sub-axes joined, block periods left out, partials in mesh order."""
        dims = []
        for extent, digits in zip(shape, layout.dims, strict=True):
            joined: list[Digit] = []
            for digit in digits:
                if joined and joined[-1].chunk == digit.period and _follows(joined[-1].axis, digit.axis):
                    joined[-1] = Digit(_join(joined[-1].axis, digit.axis), joined[-1].period)
                else:
                    joined.append(digit)
            axes, left = [], extent
            for axis, period in joined:
                axes.append(_spec(axis, mesh, None if period == left else period))
                left = period // axis.size
            dims.append(tuple(axes))
        partial: list[tuple[AxisRef, str]] = []
        for axis, kind in sorted(layout.partial, key=lambda item: mesh.order(item[0])):
            if partial and partial[-1][1] == kind and _follows(partial[-1][0], axis):
                partial[-1] = _join(partial[-1][0], axis), kind
            else:
                partial.append((axis, kind))
        return LayoutSpec(tuple(dims), tuple((_spec(axis, mesh, None), kind) for axis, kind in partial))


def format_layout(layout: Layout, shape: Sequence[int], mesh: Mesh) -> str:
    """Canonical text of a layout."""
    return str(LayoutSpec.of(layout, shape, mesh))


def parse_layout(text: str, shape: Sequence[int], mesh: Mesh) -> Layout:
    """Read and resolve a layout; raises as `LayoutSpec.parse` and `LayoutSpec.resolve` do."""
    return LayoutSpec.parse(text).resolve(shape, mesh)


def _misfit(axis: AxisSpec, ref: AxisRef, dim: int, extent: int, left: int, period: int) -> str:
    where = f"dim {dim} of extent {extent}"
    if period < 1:
        return f"{where}: period {period} of {axis.axis_text()} is not positive"
    if axis.period is None:
        return f"{where}: {axis} of size {ref.size} does not divide the {left} that are left to it"
    if period % ref.size:
        return f"{where}: {axis} of size {ref.size} does not divide its period {period}"
    return f"{where}: period {period} of {axis.axis_text()} does not divide the {left} that are left to it"


def _follows(head: AxisRef, axis: AxisRef) -> bool:
    return head.name == axis.name and head.pre * head.size == axis.pre


def _join(head: AxisRef, axis: AxisRef) -> AxisRef:
    return AxisRef(head.name, head.pre, head.size * axis.size)


def _spec(axis: AxisRef, mesh: Mesh, period: int | None) -> AxisSpec:
    whole = axis.pre == 1 and axis.size == mesh.sizes[axis.name]
    return AxisSpec(axis.name, None if whole else (axis.pre, axis.size), period)


class _Reader:
    """Recursive descent over the tokens of one layout."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                self.fail(at + len(text[at:]) - len(text[at:].lstrip()), "this is no part of a layout")
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind], match.start(kind) - (kind == "name")))
            at = match.end()
        self.next = 0

    def fail(self, at: int, why: str) -> NoReturn:
        raise LayoutError(
            f"cannot read layout {self.text.strip()!r}: {why} at column {at + 1}",
            remedy='write it like [{"dp"}, {}, {"tp":192}] partial {"pp": sum}',
        )

    def peek(self) -> str:
        return self.tokens[self.next][1] if self.next < len(self.tokens) else ""

    def take(self, want: str) -> str:
        """The next token, which must be the mark `want`, or of kind `name`, `word` or `int`."""
        if self.next == len(self.tokens):
            self.fail(len(self.text.rstrip()), f"it ends where {_say(want)} should follow")
        kind, value, at = self.tokens[self.next]
        if want != (kind if want in ("name", "word", "int") else value) or (kind != "mark" and want == value):
            self.fail(at, f"{_say(want)} should stand")
        self.next += 1
        return value

    def layout(self) -> LayoutSpec:
        dims: list[tuple[AxisSpec, ...]] = []
        self.take("[")
        while self.peek() != "]":
            if dims:
                self.take(",")
            dims.append(self.axes())
        self.take("]")
        partial: list[tuple[AxisSpec, str]] = []
        if self.next < len(self.tokens):
            at = self.tokens[self.next][2]
            if self.take("word") != "partial":
                self.fail(at, "'partial' should stand")
            self.take("{")
            while self.peek() != "}" or not partial:
                if partial:
                    self.take(",")
                axis = self.axis(period=False)
                self.take(":")
                at = self.tokens[self.next][2] if self.next < len(self.tokens) else 0
                kind = self.take("word")
                if kind not in PARTIAL_KINDS:
                    self.fail(at, f"one of {', '.join(PARTIAL_KINDS)} should stand")
                partial.append((axis, kind))
            self.take("}")
        if self.next < len(self.tokens):
            self.fail(self.tokens[self.next][2], "nothing more should stand")
        return LayoutSpec(tuple(dims), tuple(partial))

    def axes(self) -> tuple[AxisSpec, ...]:
        out: list[AxisSpec] = []
        self.take("{")
        while self.peek() != "}":
            if out:
                self.take(",")
            out.append(self.axis(period=True))
        self.take("}")
        return tuple(out)

    def axis(self, period: bool) -> AxisSpec:
        name = self.take("name")
        sub = None
        if [t[1] for t in self.tokens[self.next : self.next + 2]] == [":", "("]:
            self.take(":")
            self.take("(")
            pre = int(self.take("int"))
            self.take(")")
            sub = pre, int(self.take("int"))
        if period and self.peek() == ":":
            self.take(":")
            return AxisSpec(name, sub, int(self.take("int")))
        return AxisSpec(name, sub)


def _say(want: str) -> str:
    return {"name": "an axis name in quotes", "word": "a word", "int": "a number"}.get(want, f"'{want}'")
