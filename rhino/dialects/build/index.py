"""Builder methods of gather, scatter, sort and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, SSAValue

from rhino.dialects.build.makers import MakersBuilder
from rhino.dialects.build.shape import ShapeBuilder
from rhino.dialects.hlo import index, sort
from rhino.dialects.hlo.base import integer, ints, text
from rhino.dialects.hlo.common import positive_dims
from rhino.ir import types
from rhino.ir.errors import ProgramError


class IndexBuilder(ShapeBuilder, MakersBuilder):
    """Methods take and return SSA values; see `rhino.dialects.hlo.index` and `rhino.dialects.hlo.sort`."""

    def gather(
        self,
        x: SSAValue,
        indices: SSAValue,
        *,
        offset_dims: Sequence[int],
        collapsed_slice_dims: Sequence[int] = (),
        operand_batching_dims: Sequence[int] = (),
        start_indices_batching_dims: Sequence[int] = (),
        start_index_map: Sequence[int],
        index_vector_dim: int,
        slice_sizes: Sequence[int],
    ) -> SSAValue:
        """StableHLO's gather; indices are clamped so that slices fit."""
        properties = {
            "offset_dims": ints(offset_dims),
            "collapsed_slice_dims": ints(collapsed_slice_dims),
            "operand_batching_dims": ints(operand_batching_dims),
            "start_indices_batching_dims": ints(start_indices_batching_dims),
            "start_index_map": ints(start_index_map),
            "index_vector_dim": integer(index_vector_dim),
            "slice_sizes": ints(slice_sizes),
        }
        return self.emit1(index.GatherOp, [x, indices], properties)

    def scatter(
        self,
        x: SSAValue,
        indices: SSAValue,
        updates: SSAValue,
        kind: str,
        *,
        update_window_dims: Sequence[int],
        inserted_window_dims: Sequence[int] = (),
        input_batching_dims: Sequence[int] = (),
        scatter_indices_batching_dims: Sequence[int] = (),
        scatter_dims_to_operand_dims: Sequence[int],
        index_vector_dim: int,
    ) -> SSAValue:
        """StableHLO's scatter with a combiner (set, add, max, min, mul); what lies outside is dropped."""
        properties = {
            "kind": text(kind),
            "update_window_dims": ints(update_window_dims),
            "inserted_window_dims": ints(inserted_window_dims),
            "input_batching_dims": ints(input_batching_dims),
            "scatter_indices_batching_dims": ints(scatter_indices_batching_dims),
            "scatter_dims_to_operand_dims": ints(scatter_dims_to_operand_dims),
            "index_vector_dim": integer(index_vector_dim),
        }
        return self.emit1(index.ScatterOp, [x, indices, updates], properties)

    def take(self, x: SSAValue, indices: SSAValue, dim: int) -> SSAValue:
        """numpy's ``take``: dimension `dim` replaced by those of `indices`, which are clamped."""
        shape, rank = types.shape_of(x), len(types.shape_of(indices))
        (dim,) = _dims(x, [dim], "take")
        return self.gather(
            x,
            indices,
            offset_dims=[*range(dim), *range(dim + rank, len(shape) - 1 + rank)],
            collapsed_slice_dims=[dim],
            start_index_map=[dim],
            index_vector_dim=rank,
            slice_sizes=[1 if d == dim else n for d, n in enumerate(shape)],
        )

    def take_along(self, x: SSAValue, indices: SSAValue, dim: int) -> SSAValue:
        """``y[i, j] = x[indices[i, j], j]`` for ``dim == 0``; `indices` may be shorter than `x` elsewhere."""
        (dim,) = _dims(x, [dim], "take_along")
        x = self._cut(x, indices, dim, "take_along")
        if math.prod(types.shape_of(indices)) == 0:
            return self.full(types.shape_of(indices), types.element_of(x), 0)
        rank = len(types.shape_of(x))
        others = [d for d in range(rank) if d != dim]
        return self.gather(
            x,
            indices,
            offset_dims=[],
            collapsed_slice_dims=[dim],
            operand_batching_dims=others,
            start_indices_batching_dims=others,
            start_index_map=[dim],
            index_vector_dim=rank,
            slice_sizes=[1] * rank,
        )

    def scatter_along(
        self, x: SSAValue, indices: SSAValue, updates: SSAValue, dim: int, kind: str
    ) -> SSAValue:
        """`updates` set at or combined with the elements that `take_along` would read."""
        (dim,) = _dims(x, [dim], "scatter_along")
        part = self._cut(x, indices, dim, "scatter_along")
        if math.prod(types.shape_of(indices)) == 0:
            return x
        rank = len(types.shape_of(x))
        others = [d for d in range(rank) if d != dim]
        out = self.scatter(
            part,
            indices,
            updates,
            kind,
            update_window_dims=[],
            inserted_window_dims=[dim],
            input_batching_dims=others,
            scatter_indices_batching_dims=others,
            scatter_dims_to_operand_dims=[dim],
            index_vector_dim=rank,
        )
        if part is x:
            return out
        return self.dynamic_update_slice(x, out, [self.full((), types.I64, 0)] * rank)

    def _cut(self, x: SSAValue, indices: SSAValue, dim: int, name: str) -> SSAValue:
        """The part of `x` that `indices` can refer to: its extents outside of `dim`."""
        shape, want = types.shape_of(x), types.shape_of(indices)
        if len(shape) != len(want) or any(
            b > a for d, (a, b) in enumerate(zip(shape, want, strict=True)) if d != dim
        ):
            raise ProgramError(
                f"{name}: operand 1 is {types.show(indices.type)} and does not fit operand 0 "
                f"{types.show(x.type)} along dimension {dim}",
                remedy="ranks must be equal and other extents no larger",
            )
        limit = [a if d == dim else b for d, (a, b) in enumerate(zip(shape, want, strict=True))]
        return self.slice(x, [0] * len(shape), limit)

    def sort(self, operands: Sequence[SSAValue], dim: int, descending: bool = False) -> list[SSAValue]:
        """All operands reordered along `dim` so that the first is sorted; equal elements keep their order."""
        properties: dict[str, Attribute] = {"dim": integer(positive_dims(operands[0], [dim])[0])}
        if descending:
            properties["descending"] = UnitAttr()
        return list(self.emit(sort.SortOp, operands, properties).results)

    def top_k(self, x: SSAValue, k: int) -> tuple[SSAValue, SSAValue]:
        """The `k` largest elements along the last dimension, descending, and their indices (i64)."""
        values, indices = self.emit(sort.TopKOp, [x], {"k": integer(k)}).results
        return values, indices


def _dims(x: SSAValue, dims: Sequence[int], name: str) -> list[int]:
    """Non-negative dimensions. Raises ProgramError if `x` lacks one."""
    out = positive_dims(x, dims)
    for d in out:
        if not 0 <= d < len(types.shape_of(x)):
            raise ProgramError(f"{name}: operand 0 is {types.show(x.type)} and has no dimension {d}")
    return out
