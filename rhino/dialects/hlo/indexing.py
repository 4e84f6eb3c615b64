"""The dimension numbers of gather and scatter: what they mean, and index arithmetic through the builder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import SSAValue

from rhino.dialects.hlo.common import check_dims, check_integer, check_length
from rhino.ir import types
from rhino.ir.errors import ProgramError

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


@dataclass(frozen=True)
class Indexing:
    """What gather and scatter share, under gather's names; scatter's updates play gather's result.

    Attributes:
        operand: shape of the array that is indexed.
        indices: shape of the index array.
        offset: dimensions of the result that run inside a slice.
        collapsed: operand dimensions of slice size 1 that the result lacks.
        operand_batch, indices_batch: dimensions that are paired, operand with indices.
        index_map: operand dimension of every component of an index vector.
        vector_dim: dimension of `indices` that holds the vectors; its rank if the vectors are scalars.
        sizes: extents of a slice.
    """

    operand: tuple[int, ...]
    indices: tuple[int, ...]
    offset: tuple[int, ...]
    collapsed: tuple[int, ...]
    operand_batch: tuple[int, ...]
    indices_batch: tuple[int, ...]
    index_map: tuple[int, ...]
    vector_dim: int
    sizes: tuple[int, ...]

    @property
    def batch_dims(self) -> list[int]:
        """Dimensions of `indices` without the one that holds the vectors."""
        return [d for d in range(len(self.indices)) if d != self.vector_dim]

    @property
    def offset_operand(self) -> list[int]:
        """Operand dimensions of the slices that the result has, in order."""
        return [
            d for d in range(len(self.operand)) if d not in self.collapsed and d not in self.operand_batch
        ]

    @property
    def rank(self) -> int:
        return len(self.batch_dims) + len(self.offset)

    @property
    def batch_result(self) -> list[int]:
        """Result dimensions that come from `batch_dims`, in order."""
        return [d for d in range(self.rank) if d not in self.offset]

    @property
    def result(self) -> tuple[int, ...]:
        extents = dict(zip(self.batch_result, (self.indices[d] for d in self.batch_dims), strict=True))
        extents.update(zip(self.offset, (self.sizes[d] for d in self.offset_operand), strict=True))
        return tuple(extents[d] for d in range(self.rank))

    def check(self, x: types.Type, indices: types.Type) -> None:
        """Raise ProgramError if the dimension numbers do not fit the types of operand and indices."""
        both = f"operand 0 is {types.show(x)} and operand 1 is {types.show(indices)}"
        check_integer(1, indices)
        check_length("slice sizes", self.sizes, x)
        check_dims("collapsed and batching dims", (*self.collapsed, *self.operand_batch), x)
        check_dims("index map", self.index_map, x)
        check_dims("indices batching dims", self.indices_batch, indices, 1)
        if not 0 <= self.vector_dim <= len(self.indices):
            raise ProgramError(f"{both}: index vector dim {self.vector_dim} is no dimension of operand 1")
        length = self.indices[self.vector_dim] if self.vector_dim < len(self.indices) else 1
        if length != len(self.index_map):
            raise ProgramError(
                f"{both}: index vectors have {length} components, the index map {list(self.index_map)} "
                f"names {len(self.index_map)} dimensions"
            )
        if len(self.operand_batch) != len(self.indices_batch) or self.vector_dim in self.indices_batch:
            raise ProgramError(
                f"{both}: batching dims {list(self.operand_batch)} and {list(self.indices_batch)} do not pair"
            )
        if set(self.operand_batch) & set(self.index_map):
            raise ProgramError(f"{both}: a batching dimension may not be in index map {list(self.index_map)}")
        for a, b in zip(self.operand_batch, self.indices_batch, strict=True):
            if self.operand[a] != self.indices[b]:
                raise ProgramError(f"{both}: batching dimensions {a} and {b} have different extents")
        for d, (size, extent) in enumerate(zip(self.sizes, self.operand, strict=True)):
            if not 0 <= size <= extent:
                raise ProgramError(f"{both}: slice size {size} does not fit dimension {d} of operand 0")
            if (d in self.collapsed or d in self.operand_batch) and size != 1:
                raise ProgramError(
                    f"{both}: slice size {size} of collapsed or batching dimension {d} must be 1"
                )
        if len(self.offset) != len(self.offset_operand):
            raise ProgramError(
                f"{both}: {len(self.offset)} offset dims for the {len(self.offset_operand)} slice dimensions "
                f"that are neither collapsed nor batching"
            )
        if any(not 0 <= d < self.rank for d in self.offset) or len(set(self.offset)) != len(self.offset):
            raise ProgramError(
                f"{both}: offset dims {list(self.offset)} do not fit a result of rank {self.rank}"
            )

    def positions(self, indices: np.ndarray, clamp: bool) -> tuple[np.ndarray, ...]:
        """For each operand dimension the index of every result element, broadcastable to the result.

        With `clamp`, slices are moved so that they lie inside the operand; without, they may lie outside.
        """
        if self.vector_dim < len(self.indices):
            starts = np.moveaxis(indices, self.vector_dim, -1)
        else:
            starts = indices[..., None]
        starts = starts.astype(np.int64)

        def on(dims: Sequence[int], values: np.ndarray) -> np.ndarray:
            shape = [1] * self.rank
            for d, extent in zip(dims, values.shape, strict=True):
                shape[d] = extent
            return values.reshape(shape)

        out = [np.zeros([1] * self.rank, np.int64) for _ in self.operand]
        for component, d in enumerate(self.index_map):
            start = starts[..., component]
            if clamp:
                start = np.clip(start, 0, self.operand[d] - self.sizes[d])
            out[d] = out[d] + on(self.batch_result, start)
        for a, b in zip(self.operand_batch, self.indices_batch, strict=True):
            out[a] = out[a] + on([self.batch_result[self.batch_dims.index(b)]], np.arange(self.indices[b]))
        for at, d in zip(self.offset, self.offset_operand, strict=True):
            out[d] = out[d] + on([at], np.arange(self.sizes[d]))
        return tuple(out)

    def flat_positions(
        self, indices: np.ndarray, operand: Sequence[int], result: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each result element the row-major position in an operand of this shape, and whether it is inside."""
        flat, inside = np.zeros((), np.int64), np.ones((), np.bool_)
        for at, extent in zip(self.positions(indices, clamp=False), operand, strict=True):
            flat, inside = flat * extent + at, inside & (at >= 0) & (at < extent)
        return np.broadcast_to(flat, result), np.broadcast_to(inside, result)

    def single(self) -> list[int]:
        """Operand dimensions of which an index picks one element: each device can look up its own part."""
        return [d for d in self.index_map if self.sizes[d] == 1 and self.operand[d] > 1]

    def factors(self, single_kind: str, batch_kind: str, clamps: bool) -> Factors:
        """Factors of operand, indices and result.

        `single_kind` is the kind of the dimensions in `single`, `batch_kind` that of the index dimensions
        which the operand lacks. A slice of a whole dimension passes; if indexed, only when that `clamps`.
        """
        f = Factors([()] * len(self.operand), [()] * len(self.indices), [()] * self.rank, {}, {})
        for at, d in zip(self.batch_result, self.batch_dims, strict=True):
            if d in self.indices_batch:
                f.indices[d] = f.result[at] = f.add(f"b{d}", self.indices[d], "pass")
                f.operand[self.operand_batch[self.indices_batch.index(d)]] = f.indices[d]
            else:
                f.indices[d] = f.result[at] = f.add(f"i{d}", self.indices[d], batch_kind)
        if self.vector_dim < len(self.indices):
            f.indices[self.vector_dim] = f.add("v", self.indices[self.vector_dim], "whole")
        ends = dict(zip(self.offset_operand, self.offset, strict=True))
        for d, (extent, size) in enumerate(zip(self.operand, self.sizes, strict=True)):
            if d in self.operand_batch:
                continue
            if d in self.single():
                f.operand[d] = f.add(f"s{d}", extent, single_kind)
                if d in ends:
                    f.result[ends[d]] = f.add(f"u{d}", size, "whole")
            elif d in ends and size == extent and (clamps or d not in self.index_map):
                f.operand[d] = f.result[ends[d]] = f.add(f"o{d}", extent, "pass")
            else:
                f.operand[d] = f.add(f"t{d}", extent, "whole")
                if d in ends:
                    f.result[ends[d]] = f.add(f"u{d}", size, "whole")
        return f


@dataclass
class Factors:
    """Factors of an indexing under construction: per dimension of operand, indices, result; sizes; kinds."""

    operand: list[tuple[str, ...]]
    indices: list[tuple[str, ...]]
    result: list[tuple[str, ...]]
    sizes: dict[str, int]
    kinds: dict[str, str]

    def add(self, name: str, size: int, kind: str) -> tuple[str, ...]:
        self.sizes[name] = size
        if kind != "pass":
            self.kinds[name] = kind
        return (name,)


def components(b: Builder, ix: Indexing, indices: SSAValue) -> list[SSAValue]:
    """The components of the index vectors, as i64 without the dimension that holds the vectors."""
    if types.element_of(indices) != types.I64:
        indices = b.convert(indices, types.I64)
    shape = types.shape_of(indices)
    if ix.vector_dim == len(shape):
        return [indices]
    out = []
    start, limit = [0] * len(shape), list(shape)
    for i in range(shape[ix.vector_dim]):
        start[ix.vector_dim], limit[ix.vector_dim] = i, i + 1
        part = b.slice(indices, start, limit)
        out.append(b.reshape(part, [n for d, n in enumerate(shape) if d != ix.vector_dim]))
    return out


def join(b: Builder, ix: Indexing, parts: Sequence[SSAValue]) -> SSAValue:
    """Index vectors from their components; undoes `components`."""
    shape = types.shape_of(parts[0])
    if ix.vector_dim == len(ix.indices):
        return parts[0]
    lifted = [b.reshape(p, (*shape[: ix.vector_dim], 1, *shape[ix.vector_dim :])) for p in parts]
    return b.concatenate(lifted, ix.vector_dim)


def clamp(b: Builder, index: SSAValue, last: int) -> SSAValue:
    """`index` moved into ``[0, last]``."""
    return b.maximum(b.minimum(index, b.full_like(index, last)), b.full_like(index, 0))


def in_bounds(b: Builder, index: SSAValue, extent: int) -> SSAValue:
    """Which indices lie in ``[0, extent)``."""
    return b.and_(
        b.compare(index, b.full_like(index, 0), "ge"), b.compare(index, b.full_like(index, extent), "lt")
    )
