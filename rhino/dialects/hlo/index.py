"""Gather and scatter with StableHLO's dimension numbers: gather clamps, scatter drops what is outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from rhino.dialects.hlo.base import (
    TENSOR,
    HloOp,
    Localizer,
    Properties,
    get_integer,
    get_ints,
    get_text,
    ints,
)
from rhino.dialects.hlo.common import (
    UFUNCS,
    Cotangents,
    check_element,
    check_kind,
    check_length,
    identity,
    integer_def,
    ints_def,
    python_number,
    wide,
)
from rhino.dialects.hlo.constant import splat_of
from rhino.dialects.hlo.digits import global_to_local, owned
from rhino.dialects.hlo.indexing import Indexing, clamp, components, in_bounds, join
from rhino.dialects.hlo.reduce import leave_one_out
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.mesh import AxisRef
from rhino.ir.rule import REDUCTIONS, Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


#: How a scatter combines an update with what is there, as a reduction; None: it replaces it.
KINDS: dict[str, str | None] = {"set": None, "add": "sum", "max": "max", "min": "min", "mul": "prod"}


@irdl_op_definition
class GatherOp(HloOp):
    """StableHLO's gather: slices of `x` that begin at the vectors in `indices`, clamped so that they fit.

    ``%y = hlo.gather %x, %i offset [1] collapsed [0] batching [] x [] map [0] vector 1 sizes [1, 8]
      : (tensor<16x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>``

    In the text: offset_dims, collapsed_slice_dims, operand_batching_dims x start_indices_batching_dims,
    start_index_map, index_vector_dim, slice_sizes.
    """

    name = "hlo.gather"
    x = operand_def(TENSOR)
    indices = operand_def(TENSOR)
    offset_dims = ints_def()
    collapsed_slice_dims = ints_def()
    operand_batching_dims = ints_def()
    start_indices_batching_dims = ints_def()
    start_index_map = ints_def()
    index_vector_dim = integer_def()
    slice_sizes = ints_def()
    result = result_def(TENSOR)
    assembly_format = (
        "$x `,` $indices `offset` $offset_dims `collapsed` $collapsed_slice_dims `batching` "
        "$operand_batching_dims `x` $start_indices_batching_dims `map` $start_index_map "
        "`vector` $index_vector_dim `sizes` $slice_sizes attr-dict `:` functional-type(operands, results)"
    )

    @classmethod
    def indexing_of(cls, x: types.Type, indices: types.Type, properties: Properties) -> Indexing:
        return Indexing(
            x.get_shape(),
            indices.get_shape(),
            get_ints(properties, "offset_dims"),
            get_ints(properties, "collapsed_slice_dims"),
            get_ints(properties, "operand_batching_dims"),
            get_ints(properties, "start_indices_batching_dims"),
            get_ints(properties, "start_index_map"),
            get_integer(properties, "index_vector_dim"),
            get_ints(properties, "slice_sizes"),
        )

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        x, indices = operands
        ix = cls.indexing_of(x, indices, properties)
        check_length("slice sizes", ix.sizes, x)
        ix.check(x, indices)
        return [types.tensor(ix.result, x.element_type)]

    @property
    def indexing(self) -> Indexing:
        return self.indexing_of(types.type_of(self.x), types.type_of(self.indices), self.properties)

    def rule(self) -> Rule:
        """Any dimension but those cut by slices may be split.

        Of a dimension that is looked up, each device finds what it has: a partial sum (for i1, or).
        """
        kind = "or" if types.element_of(self.x) == types.I1 else "sum"
        f = self.indexing.factors(kind, "pass", clamps=True)
        return Rule(
            (tuple(f.operand), tuple(f.indices)),
            (tuple(f.result),),
            f.sizes,
            f.kinds,
            carries={k: ((0,),) for k in REDUCTIONS},
            linear=((0,),),
        )

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        x, indices = operands
        ix = self.indexing
        if 0 in ix.result:
            return (np.zeros(ix.result, x.dtype),)
        return (np.array(np.broadcast_to(x[ix.positions(indices, clamp=True)], ix.result)),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        b, ix = builder, self.indexing
        parts = [
            clamp(b, part, ix.operand[d] - ix.sizes[d])
            for part, d in zip(components(b, ix, self.indices), ix.index_map, strict=True)
        ]
        indices = join(b, ix, parts) if parts else self.indices
        return [scatter_like(b, ix, b.full_like(self.x, 0), indices, dy, "add"), None]

    def flops(self) -> int:
        return 0

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        b, ix = ctx.builder, self.indexing
        x, indices = operands
        local = types.shape_of(x)
        sizes = [
            local[d] if size == ix.operand[d] and d not in ix.single() and d in ix.offset_operand else size
            for d, size in enumerate(ix.sizes)
        ]
        split = {d for d in ix.single() if ctx.operands[0].dims[d]}
        mask: SSAValue | None = None
        if split:
            parts = components(b, ix, indices)
            for i, d in enumerate(ix.index_map):
                if d in split:
                    index = clamp(b, parts[i], ix.operand[d] - 1)
                    mine = owned(b, index, ctx.operands[0].dims[d], ctx, ix.operand[d])
                    mask = mine if mask is None else b.and_(mask, mine)
                    parts[i] = global_to_local(b, index, ctx.operands[0].dims[d], ix.operand[d])
            indices = join(b, ix, parts)
        y = b.emit(type(self), [x, indices], {**self.properties, "slice_sizes": ints(sizes)}).results[0]
        if mask is None:
            return [y]
        mask = b.broadcast_in_dim(mask, types.shape_of(y), ix.batch_result)
        return [b.select(mask, y, b.full_like(y, 0))]


@irdl_op_definition
class ScatterOp(HloOp):
    """StableHLO's scatter: `updates` put at, or combined with what is at, the vectors in `indices`.

    ``%y = hlo.scatter "add" %x, %i, %u window [1] inserted [0] batching [] x [] map [0] vector 1
      : (tensor<16x8xf32>, tensor<4xi64>, tensor<4x8xf32>) -> tensor<16x8xf32>``

    In the text: update_window_dims, inserted_window_dims, input_batching_dims x
    scatter_indices_batching_dims, scatter_dims_to_operand_dims, index_vector_dim.
    Kinds: set, add, max, min, mul. Elements outside are dropped.
    Where several updates are set at one place the last in row-major order stays; the gradient of each is then
    taken as if it did. The gradient of max and min is shared evenly among ties.
    """

    name = "hlo.scatter"
    kind = prop_def(StringAttr)
    x = operand_def(TENSOR)
    indices = operand_def(TENSOR)
    updates = operand_def(TENSOR)
    update_window_dims = ints_def()
    inserted_window_dims = ints_def()
    input_batching_dims = ints_def()
    scatter_indices_batching_dims = ints_def()
    scatter_dims_to_operand_dims = ints_def()
    index_vector_dim = integer_def()
    result = result_def(TENSOR)
    assembly_format = (
        "$kind $x `,` $indices `,` $updates `window` $update_window_dims `inserted` $inserted_window_dims "
        "`batching` $input_batching_dims `x` $scatter_indices_batching_dims "
        "`map` $scatter_dims_to_operand_dims `vector` $index_vector_dim attr-dict `:` "
        "functional-type(operands, results)"
    )

    @classmethod
    def indexing_of(cls, operands: Sequence[types.Type], properties: Properties) -> Indexing:
        """The gather that would read what the scatter writes, its slice sizes found in the updates' shape."""
        x, indices, updates = (t.get_shape() for t in operands)
        window = get_ints(properties, "update_window_dims")
        inserted = get_ints(properties, "inserted_window_dims")
        batching = get_ints(properties, "input_batching_dims")
        sizes = [1] * len(x)
        free = [d for d in range(len(x)) if d not in inserted and d not in batching]
        for d, at in zip(free, window, strict=False):
            sizes[d] = updates[at] if 0 <= at < len(updates) else 1
        return Indexing(
            x,
            indices,
            window,
            inserted,
            batching,
            get_ints(properties, "scatter_indices_batching_dims"),
            get_ints(properties, "scatter_dims_to_operand_dims"),
            get_integer(properties, "index_vector_dim"),
            tuple(sizes),
        )

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        x, indices, updates = operands
        kind = get_text(properties, "kind")
        if kind not in KINDS:
            raise ProgramError(f"unknown kind '{kind}'", remedy=f"use one of {', '.join(KINDS)}")
        if kind != "set":
            check_kind(KINDS[kind] or "", x, REDUCTIONS)
        check_element(2, updates, x)
        ix = cls.indexing_of(operands, properties)
        ix.check(x, indices)
        if updates.get_shape() != ix.result:
            raise ProgramError(
                f"operand 2 is {types.show(updates)}, but operand 0 {types.show(x)} and operand 1 "
                f"{types.show(indices)} with these dimension numbers need {list(ix.result)}"
            )
        return [x]

    @property
    def indexing(self) -> Indexing:
        return self.indexing_of([types.type_of(o) for o in self.operands], self.properties)

    def rule(self) -> Rule:
        """Windows and batching dims pass; so do dimensions that are looked up: each device takes its own.

        Splitting the updates leaves partial results; `x` then counts on one device only (see `localize`).
        """
        kind = KINDS[self.kind.data]
        f = self.indexing.factors("pass", kind or "whole", clamps=False)
        together, either = ((0, 2),), ((0, 2), (0,), (2,))
        carries: dict[str, tuple[tuple[int, ...], ...]] = {}
        for k in REDUCTIONS:
            if kind in (None, k):  # the idempotent kinds may meet the same value on every device
                carries[k] = together if k in ("sum", "prod") else either
        if kind == "prod":
            carries["sum"] = ((0,),)
        x = tuple(f.operand)
        return Rule(
            (x, tuple(f.indices), tuple(f.result)),
            (x,),
            f.sizes,
            f.kinds,
            carries.get("sum", ()),
            carries=carries,
        )

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        x, indices, updates = operands
        ix, kind = self.indexing, KINDS[self.kind.data]
        if updates.size == 0:
            return (x,)
        flat, inside = ix.flat_positions(indices, x.shape, updates.shape)
        flat = flat[inside]
        acc = np.array(wide(x)).reshape(-1)
        if kind is None:
            acc[flat] = wide(updates)[inside]
        else:
            UFUNCS[kind].at(acc, flat, wide(updates)[inside])
        return (acc.reshape(x.shape).astype(x.dtype, copy=False),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        b, ix, x, u = builder, self.indexing, self.x, self.updates
        kind, element = self.kind.data, types.element_of(self.x)

        def read(value: SSAValue) -> SSAValue:
            return gather_inside(b, ix, value, self.indices)

        def write(value: SSAValue, updates: SSAValue, how: str) -> SSAValue:
            return scatter_like(b, ix, value, self.indices, updates, how)

        if kind == "add":
            return [dy, None, read(dy)]
        if kind == "set":
            return [write(dy, b.full_like(u, 0), "set"), None, read(dy)]
        if kind in ("max", "min"):
            hits = b.convert(b.compare(x, self.result, "eq"), element)
            hits_u = b.convert(b.compare(u, read(self.result), "eq"), element)
            share = b.div(dy, write(hits, hits_u, "add"))
            return [b.mul(hits, share), None, b.mul(hits_u, read(share))]
        zero, one = b.full_like(x, 0), b.full_like(x, 1)
        zero_u, one_u = b.full_like(u, 0), b.full_like(u, 1)
        is_zero, is_zero_u = b.compare(x, zero, "eq"), b.compare(u, zero_u, "eq")
        zeros = write(b.convert(is_zero, element), b.convert(is_zero_u, element), "add")
        product = write(b.select(is_zero, one, x), b.select(is_zero_u, one_u, u), "mul")
        return [
            b.mul(dy, leave_one_out(b, x, zeros, product)),
            None,
            b.mul(read(dy), leave_one_out(b, u, read(zeros), read(product))),
        ]

    def flops(self) -> int:
        return (
            0 if KINDS[self.kind.data] is None else int(np.prod(types.shape_of(self.updates), dtype=np.int64))
        )

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        b, ix, kind = ctx.builder, self.indexing, KINDS[self.kind.data]
        x, indices, updates = operands
        axes: list[AxisRef] = []
        for at, d in zip(ix.batch_result, ix.batch_dims, strict=True):
            if d not in ix.indices_batch:
                axes += [digit.axis for digit in ctx.operands[2].dims[at]]
        if axes and kind in ("sum", "prod"):
            neutral = python_number(identity(kind, types.numpy_dtype(types.element_of(x))))
            if splat_of(x) != neutral:
                # The results are combined over these devices: only the first may count what was there before.
                here = ctx.coordinate(axes)
                first = b.compare(here, b.full_like(here, 0), "eq")
                x = b.select(b.broadcast_in_dim(first, types.shape_of(x), ()), x, b.full_like(x, neutral))
        indices = local_indices(ctx, ix, x, indices)
        return b.emit(type(self), [x, indices, updates], self.properties).results


def local_indices(ctx: Localizer, ix: Indexing, x: SSAValue, indices: SSAValue) -> SSAValue:
    """A scatter's indices on one device: those of elements that others hold point outside its shard `x`."""
    b = ctx.builder
    split = {d for d in ix.single() if ctx.operands[0].dims[d]}
    if not split:
        return indices
    parts = components(b, ix, indices)
    for i, d in enumerate(ix.index_map):
        if d in split:
            digits, extent = ctx.operands[0].dims[d], ix.operand[d]
            index = clamp(b, parts[i], extent - 1)
            mine = b.and_(in_bounds(b, parts[i], extent), owned(b, index, digits, ctx, extent))
            outside = b.full_like(index, types.shape_of(x)[d])
            parts[i] = b.select(mine, global_to_local(b, index, digits, extent), outside)
    return join(b, ix, parts)


def gather_like(b: Builder, ix: Indexing, x: SSAValue, indices: SSAValue) -> SSAValue:
    """Gather with the dimension numbers of `ix`."""
    return b.gather(
        x,
        indices,
        offset_dims=ix.offset,
        collapsed_slice_dims=ix.collapsed,
        operand_batching_dims=ix.operand_batch,
        start_indices_batching_dims=ix.indices_batch,
        start_index_map=ix.index_map,
        index_vector_dim=ix.vector_dim,
        slice_sizes=ix.sizes,
    )


def scatter_like(
    b: Builder, ix: Indexing, x: SSAValue, indices: SSAValue, updates: SSAValue, kind: str
) -> SSAValue:
    """Scatter with the dimension numbers of `ix`."""
    return b.scatter(
        x,
        indices,
        updates,
        kind,
        update_window_dims=ix.offset,
        inserted_window_dims=ix.collapsed,
        input_batching_dims=ix.operand_batch,
        scatter_indices_batching_dims=ix.indices_batch,
        scatter_dims_to_operand_dims=ix.index_map,
        index_vector_dim=ix.vector_dim,
    )


def gather_inside(b: Builder, ix: Indexing, x: SSAValue, indices: SSAValue) -> SSAValue:
    """Gather that reads zeros outside of `x` instead of clamping."""
    parts = components(b, ix, indices) if ix.index_map else []
    if all(ix.sizes[d] == 1 for d in ix.index_map):
        y = gather_like(b, ix, x, indices)
        for part, d in zip(parts, ix.index_map, strict=True):
            mask = b.broadcast_in_dim(in_bounds(b, part, ix.operand[d]), types.shape_of(y), ix.batch_result)
            y = b.select(mask, y, b.full_like(y, 0))
        return y
    # Slices may lie partly outside: a margin as wide as a slice makes clamping harmless.
    margin = [ix.sizes[d] if d in ix.index_map else 0 for d in range(len(ix.operand))]
    shifted = [b.add(p, b.full_like(p, margin[d])) for p, d in zip(parts, ix.index_map, strict=True)]
    return gather_like(b, ix, b.pad(x, 0, margin, margin), join(b, ix, shifted))


OPS: list[type[HloOp]] = [GatherOp, ScatterOp]
