"""Layouts: where the elements of a tensor live on a mesh.

A layout says for every mesh *atom* (prime-sized sub-axis) one of: replicated; partial with a reduction kind;
or a *digit* of one tensor dimension. A digit ``(axis, period)`` on a dimension of extent E, with
``n = axis.size``, ``n | period`` and ``period | E``, puts index ``i`` on coordinate
``(i mod period) // (period / n)``. A period equal to the extent is the contiguous block split, smaller
periods are strided.

Several digits on one dimension are kept major to minor; each next period must divide the previous digit's
chunk (``period / n``): together they read as digits of a mixed-radix number, and all shards are equal.
The local array of a device keeps, in increasing global order, the indices whose digits equal its coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rhino.ir.errors import LayoutError
from rhino.ir.mesh import AxisRef, Mesh

PARTIAL_KINDS = ("sum", "max", "min", "prod", "and", "or")


class Digit(NamedTuple):
    """One place of a dimension's index, owned by one atom of the mesh."""

    axis: AxisRef
    period: int

    @property
    def chunk(self) -> int:
        """Length of the contiguous run that one coordinate owns in every period."""
        return self.period // self.axis.size


@dataclass(frozen=True)
class Layout:
    """An immutable, canonical layout over atoms; equal layouts compare and hash equal.

    Attributes:
        dims: for each tensor dimension its digits, major to minor (descending period).
        partial: ``(atom, kind)`` pairs, sorted by atom.
    """

    dims: tuple[tuple[Digit, ...], ...]
    partial: tuple[tuple[AxisRef, str], ...] = ()

    def __post_init__(self) -> None:
        # Layouts are dictionary keys in every search; the hash of nested tuples is not cached by Python.
        object.__setattr__(self, "_hash", hash((self.dims, self.partial)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined,no-any-return]

    @staticmethod
    def replicated(rank: int) -> Layout:
        return Layout(((),) * rank)

    @staticmethod
    def make(
        dims: Sequence[Iterable[Digit]],
        partial: Iterable[tuple[AxisRef, str]] = (),
    ) -> Layout:
        """Build a layout from digits and partials in any order, splitting composite sub-axes into atoms."""
        out = []
        for digits in dims:
            atoms: list[Digit] = []
            for axis, period in digits:
                for atom in Mesh.atoms_of(axis):
                    atoms.append(Digit(atom, period))
                    period //= atom.size
            out.append(tuple(sorted(atoms, key=lambda d: (-d.period, d.axis))))
        parts = [(atom, kind) for axis, kind in partial for atom in Mesh.atoms_of(axis)]
        return Layout(tuple(out), tuple(sorted(parts)))

    @staticmethod
    def block(shape: Sequence[int], splits: Sequence[tuple[int, AxisRef]]) -> Layout:
        """Contiguous splits ``(dim, axis)``; several on one dimension nest, first is major."""
        dims: list[list[Digit]] = [[] for _ in shape]
        left = list(shape)
        for dim, axis in splits:
            dims[dim].append(Digit(axis, left[dim]))
            left[dim] //= axis.size
        return Layout.make(dims)

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def is_replicated(self) -> bool:
        return not self.partial and not any(self.dims)

    def axes(self) -> tuple[AxisRef, ...]:
        """All atoms used, by digits or partials."""
        return tuple(d.axis for digits in self.dims for d in digits) + tuple(a for a, _ in self.partial)

    def shards(self) -> int:
        """Number of distinct pieces the tensor is cut into."""
        return math.prod(d.axis.size for digits in self.dims for d in digits)

    def local_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of every device's array, for a global `shape`."""
        return tuple(
            extent // math.prod(d.axis.size for d in digits)
            for extent, digits in zip(shape, self.dims, strict=True)
        )

    def find(self, atom: AxisRef) -> tuple[int, int] | str | None:
        """What the layout says of `atom`: ``(dim, period)``, a partial kind, or None when replicated."""
        for dim, digits in enumerate(self.dims):
            for digit in digits:
                if digit.axis == atom:
                    return dim, digit.period
        for axis, kind in self.partial:
            if axis == atom:
                return kind
        return None

    def without(self, atoms: Iterable[AxisRef]) -> Layout:
        """The same layout with `atoms` replicated."""
        drop = set(atoms)
        return Layout(
            tuple(tuple(d for d in digits if d.axis not in drop) for digits in self.dims),
            tuple(p for p in self.partial if p[0] not in drop),
        )

    def with_digit(self, dim: int, atom: AxisRef, period: int) -> Layout:
        """The same layout with a further digit (not checked; see `error`)."""
        dims = list(self.dims)
        dims[dim] = tuple(sorted((*dims[dim], Digit(atom, period)), key=lambda d: (-d.period, d.axis)))
        return Layout(tuple(dims), self.partial)

    def with_partial(self, atom: AxisRef, kind: str) -> Layout:
        """The same layout with a further partial atom."""
        return Layout(self.dims, tuple(sorted((*self.partial, (atom, kind)))))

    def error(self, shape: Sequence[int]) -> str | None:
        """Why this layout is ill-formed for a tensor of `shape`, or None if it is well-formed."""
        if len(shape) != self.rank:
            return f"layout of rank {self.rank} on a tensor of shape {list(shape)}"
        used = self.axes()
        if len(set(used)) != len(used):
            return "a mesh axis is used twice"
        for dim, (extent, digits) in enumerate(zip(shape, self.dims, strict=True)):
            limit = extent
            for digit in digits:
                name, size, period = digit.axis.name, digit.axis.size, digit.period
                if period <= 0 or period % size:
                    return f"dim {dim}: axis '{name}' of size {size} does not divide period {period}"
                if limit % period:
                    return f"dim {dim} of {extent}: period {period} of axis '{name}' does not divide {limit}"
                limit = digit.chunk
        for _, kind in self.partial:
            if kind not in PARTIAL_KINDS:
                return f"unknown partial kind '{kind}'"
        if len({kind for _, kind in self.partial}) > 1:
            # A sum of maxima is no maximum of sums: without an order of the axes this would mean nothing.
            return "partial with two different kinds"
        return None

    def check(self, shape: Sequence[int]) -> None:
        """Raise LayoutError if the layout is ill-formed for `shape`."""
        if (why := self.error(shape)) is not None:
            raise LayoutError(why)

    def local_period(self, dim: int, digit: Digit) -> int:
        """The period of `digit` in the array that the *minor* digits of the same dim have already shrunk."""
        minor = math.prod(d.axis.size for d in self.dims[dim] if d.period < digit.period)
        return digit.period // minor

    def indices(self, shape: Sequence[int], mesh: Mesh, device: int) -> tuple[list[int], ...]:
        """For each dimension the global indices that `device` holds, in increasing order (brute force)."""
        out = []
        for extent, digits in zip(shape, self.dims, strict=True):
            coords = [(d, mesh.coordinate(device, (d.axis,))) for d in digits]
            out.append([i for i in range(extent) if all((i % d.period) // d.chunk == c for d, c in coords)])
        return tuple(out)
