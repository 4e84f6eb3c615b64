"""Device meshes: named, ordered axes, and references to whole axes or sub-axes.

A device's id is its row-major coordinate. Inside the compiler every axis is read as its *atoms*: sub-axes of
prime size, major to minor (an axis of size 8 is three atoms of size 2). Text shows whole axes again.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rhino.ir.errors import MeshError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True, order=True)
class AxisRef:
    """A sub-axis: the `size` coordinates of axis `name` that remain after its `pre` major ones are taken off.

    The whole axis is ``pre == 1`` with the axis' own size. The coordinate of a device on the sub-axis is
    ``(c // (axis_size // (pre * size))) % size`` where ``c`` is its coordinate on the axis.
    """

    name: str
    pre: int
    size: int


@dataclass(frozen=True)
class Mesh:
    """A named, ordered list of axes with sizes. Raises MeshError if names repeat or a size is below 1."""

    axes: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.axes]
        if len(set(names)) != len(names):
            raise MeshError(f"mesh axis named twice in {self}", remedy="give every axis its own name")
        for name, size in self.axes:
            if not _NAME.match(name):
                raise MeshError(f"'{name}' is not an axis name", remedy="use letters, digits and _")
            if size < 1:
                raise MeshError(f"mesh axis '{name}' has size {size}", remedy="sizes are 1 or more")

    @staticmethod
    def parse(text: str) -> Mesh:
        """Read ``dp=2,tp=4`` (names and sizes) or ``2x4`` (axes then named ``x``, ``y``, ``z``)."""
        text = text.strip()
        if re.fullmatch(r"\d+(x\d+)*", text):
            sizes = [int(s) for s in text.split("x")]
            if len(sizes) > 3:
                raise MeshError(f"mesh '{text}' has {len(sizes)} axes", remedy="use at most three")
            return Mesh(tuple(zip("xyz", sizes, strict=False)))
        axes: list[tuple[str, int]] = []
        for part in text.split(","):
            match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\d+)\s*", part)
            if match is None:
                raise MeshError(
                    f"cannot read '{part}' in mesh '{text}'", remedy="write it like dp=2,tp=4 or 2x4"
                )
            axes.append((match[1], int(match[2])))
        if len(axes) > 3:
            raise MeshError(f"mesh '{text}' has {len(axes)} axes", remedy="use at most three")
        return Mesh(tuple(axes))

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)

    @cached_property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(size for _, size in self.axes)

    @cached_property
    def sizes(self) -> dict[str, int]:
        return dict(self.axes)

    def axis(self, name: str) -> AxisRef:
        """The whole axis called `name`. Raises MeshError if there is none."""
        if name not in self.sizes:
            known = ", ".join(n for n, _ in self.axes)
            raise MeshError(f"mesh {self} has no axis '{name}'", remedy=f"its axes are: {known}")
        return AxisRef(name, 1, self.sizes[name])

    @cached_property
    def atoms(self) -> tuple[AxisRef, ...]:
        """All atoms in mesh order, major to minor."""
        return tuple(itertools.chain.from_iterable(self.atoms_of(self.axis(name)) for name, _ in self.axes))

    @staticmethod
    def atoms_of(ref: AxisRef) -> tuple[AxisRef, ...]:
        """The prime-sized sub-axes that make up `ref`, major to minor; empty for size 1."""
        atoms, pre = [], ref.pre
        for prime in prime_factors(ref.size):
            atoms.append(AxisRef(ref.name, pre, prime))
            pre *= prime
        return tuple(atoms)

    def order(self, ref: AxisRef) -> tuple[int, int]:
        """A sort key: position of the axis in the mesh, then major sub-axes first."""
        return next(i for i, (name, _) in enumerate(self.axes) if name == ref.name), ref.pre

    @cached_property
    def _weights(self) -> dict[str, int]:
        weights, weight = {}, 1
        for name, size in reversed(self.axes):
            weights[name] = weight
            weight *= size
        return weights

    def coordinate(self, device: int, refs: Sequence[AxisRef]) -> int:
        """The mixed-radix coordinate of `device` on the given (sub-)axes, outer first."""
        index = 0
        for ref in refs:
            on_axis = (device // self._weights[ref.name]) % self.sizes[ref.name]
            minor = self.sizes[ref.name] // (ref.pre * ref.size)
            index = index * ref.size + (on_axis // minor) % ref.size
        return index

    def groups(self, refs: Sequence[AxisRef]) -> tuple[tuple[int, ...], ...]:
        """Devices that agree outside `refs`, each group ordered by its coordinate on `refs`."""
        rest = [a for a in self.atoms if not any(covers(r, a) for r in refs)]
        groups: dict[int, list[int]] = {}
        for device in range(self.size):
            groups.setdefault(self.coordinate(device, rest), []).append(device)
        return tuple(
            tuple(sorted(group, key=lambda d: self.coordinate(d, refs)))
            for _, group in sorted(groups.items())
        )

    def devices(self) -> Iterator[int]:
        return iter(range(self.size))


def covers(ref: AxisRef, atom: AxisRef) -> bool:
    """Whether `atom` (of prime size) is part of `ref`."""
    return ref.name == atom.name and ref.pre <= atom.pre and atom.pre * atom.size <= ref.pre * ref.size


def merge_refs(refs: Sequence[AxisRef]) -> tuple[AxisRef, ...]:
    """Join neighbours that continue one another: ``tp:(1)2, tp:(2)2`` becomes ``tp:(1)4``."""
    out: list[AxisRef] = []
    for ref in refs:
        if out and out[-1].name == ref.name and out[-1].pre * out[-1].size == ref.pre:
            out[-1] = AxisRef(ref.name, out[-1].pre, out[-1].size * ref.size)
        else:
            out.append(ref)
    return tuple(out)


def prime_factors(n: int) -> tuple[int, ...]:
    """Prime factors of n, ascending, with multiplicity."""
    out, p = [], 2
    while n > 1:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return tuple(out)
