"""Scatter and select-and-scatter with any body. What `scatter` and `select_and_scatter` know is theirs to do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import Region, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, region_def, var_operand_def, var_result_def

from rhino.dialects.hlo.base import TENSOR, Localizer, Properties
from rhino.dialects.hlo.common import Cotangents, check_element, integer_def, ints_def
from rhino.dialects.hlo.generic import check_same_shapes, no_derivative
from rhino.dialects.hlo.index import ScatterOp, local_indices
from rhino.dialects.hlo.indexing import Indexing
from rhino.dialects.hlo.regions import (
    Evaluate,
    RegionOp,
    check_region,
    elements_of,
    elementwise,
    region_flops,
    scalars,
)
from rhino.dialects.hlo.window import WindowDim, WindowOp, pad_for, windows_of
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


def combine_at(
    body: Evaluate, arrays: Sequence[np.ndarray], places: np.ndarray, updates: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """Flat `arrays` with `updates` combined in at `places`, one after the other where a place occurs again."""
    out = [np.array(a) for a in arrays]
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    # Which occurrence of its place an update is: first all first ones go in, then all second ones, and so on.
    first = np.searchsorted(ordered, ordered, side="left")
    turn = np.arange(len(ordered)) - first
    for i in range(int(turn.max(initial=-1)) + 1):
        now = order[turn == i]
        at = places[now]
        for array, value in zip(out, body(*(a[at] for a in out), *(u[now] for u in updates)), strict=True):
            array[at] = value
    return tuple(out)


@irdl_op_definition
class GenericScatterOp(RegionOp):
    """`scatter` of several tensors together, updates combined by the body; elements outside are dropped.

    Example::

        %y = hlo.generic_scatter(%x, %i, %u) {update_window_dims = array<i64: 1>, inserted_window_dims = array<i64: 0>,
          input_batching_dims = array<i64>, scatter_indices_batching_dims = array<i64>,
          scatter_dims_to_operand_dims = array<i64: 0>, index_vector_dim = 1 : i64}
          : (tensor<16x8xf32>, tensor<4xi64>, tensor<4x8xf32>) -> tensor<16x8xf32> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = hlo.sub %a, %b : tensor<f32>
          hlo.yield %c : tensor<f32>
        })

    Operands: the tensors, the indices, the updates. The body takes what is there, then the updates. Several updates of
    one place go in one after the other, in row-major order. Dimensions as in `scatter`, but updates stay whole.
    """

    name = "hlo.generic_scatter"
    arguments = var_operand_def(TENSOR)
    update_window_dims = ints_def()
    inserted_window_dims = ints_def()
    input_batching_dims = ints_def()
    scatter_indices_batching_dims = ints_def()
    scatter_dims_to_operand_dims = ints_def()
    index_vector_dim = integer_def()
    body = region_def("single_block")
    ys = var_result_def(TENSOR)

    @classmethod
    def infer_with(
        cls, operands: Sequence[types.Type], properties: Properties, regions: Sequence[Region]
    ) -> Sequence[types.Type]:
        if len(operands) < 3 or len(operands) % 2 == 0:
            raise ProgramError(f"{len(operands)} operands are not tensors, indices and as many updates")
        half = len(operands) // 2
        xs, indices, updates = operands[:half], operands[half], operands[half + 1 :]
        check_same_shapes(xs)
        check_same_shapes(updates)
        for i, (x, u) in enumerate(zip(xs, updates, strict=True)):
            check_element(half + 1 + i, u, x)
        ix = ScatterOp.indexing_of([xs[0], indices, updates[0]], properties)
        ix.check(xs[0], indices)
        if updates[0].get_shape() != ix.result:
            raise ProgramError(
                f"operand {half + 1} is {types.show(updates[0])}, but operand 0 {types.show(xs[0])} and the "
                f"indices {types.show(indices)} with these dimension numbers need {list(ix.result)}"
            )
        kinds = scalars(elements_of(xs))
        if check_region("body", regions[0], [*kinds, *kinds]) != kinds:
            raise ProgramError("the body must yield scalars of the types that it combines")
        return list(xs)

    @property
    def indexing(self) -> Indexing:
        half = len(self.ys)
        parts = [self.arguments[0], self.arguments[half], self.arguments[half + 1]]
        return ScatterOp.indexing_of([types.type_of(p) for p in parts], self.properties)

    def rule(self) -> Rule:
        f = self.indexing.factors("pass", "whole", clamps=False)
        count = len(self.ys)
        x, indices, updates = tuple(f.operand), tuple(f.indices), tuple(f.result)
        return Rule((x,) * count + (indices,) + (updates,) * count, (x,) * count, f.sizes, f.kinds)

    def prepared(self) -> Evaluate:
        body, ix, count = elementwise(self.body.block), self.indexing, len(self.ys)

        def run(*operands: np.ndarray) -> tuple[np.ndarray, ...]:
            xs, indices, updates = operands[:count], operands[count], operands[count + 1 :]
            if updates[0].size == 0:
                return tuple(xs)
            flat, inside = ix.flat_positions(indices, xs[0].shape, updates[0].shape)
            out = combine_at(body, [x.reshape(-1) for x in xs], flat[inside], [u[inside] for u in updates])
            return tuple(y.reshape(x.shape) for x, y in zip(xs, out, strict=True))

        return run

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        raise no_derivative(self, "hlo.scatter has one, of every kind")

    def flops(self) -> int:
        return math.prod(types.shape_of(self.arguments[-1])) * region_flops(self.body)

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        at = len(self.ys)
        indices = local_indices(ctx, self.indexing, operands[0], operands[at])
        return super().localize(ctx, [*operands[:at], indices, *operands[at + 1 :]])


@irdl_op_definition
class GenericSelectAndScatterOp(RegionOp):
    """For every window of `x` an element of `source` is combined into the place that `select` picks.

    Example::

        %z = hlo.generic_select_and_scatter(%x, %s, %zero) {window = array<i64: 2>, strides = array<i64: 2>,
          low = array<i64: 0>, high = array<i64: 0>, base_dilation = array<i64: 1>, window_dilation = array<i64: 1>}
          : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %p = hlo.compare "le", %a, %b : tensor<f32> -> tensor<i1>
          hlo.yield %p : tensor<i1>
        }, {
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = hlo.add %a, %b : tensor<f32>
          hlo.yield %c : tensor<f32>
        })

    Within a window, in order, the element picked so far stays as long as `select` holds of it and the next. Every place
    begins with the third operand. Padding is never picked.
    """

    name = "hlo.generic_select_and_scatter"
    x = operand_def(TENSOR)
    source = operand_def(TENSOR)
    initial = operand_def(TENSOR)
    window = ints_def()
    strides = ints_def()
    low = ints_def()
    high = ints_def()
    base_dilation = ints_def()
    window_dilation = ints_def()
    select = region_def("single_block")
    scatter = region_def("single_block")
    ys = var_result_def(TENSOR)

    @classmethod
    def infer_with(
        cls, operands: Sequence[types.Type], properties: Properties, regions: Sequence[Region]
    ) -> Sequence[types.Type]:
        x, source, initial = operands
        check_element(1, source, x)
        check_element(2, initial, x)
        want = [d.out for d in WindowOp.window_dims(x, properties)]
        if want != list(source.get_shape()) or initial.get_shape():
            raise ProgramError(
                f"operands 1 and 2 are {types.show(source)} and {types.show(initial)}, but the windows of operand 0 "
                f"{types.show(x)} give {want}, and the initial value is a scalar"
            )
        pair = scalars([x.element_type] * 2)
        if check_region("selection", regions[0], pair) != [types.tensor((), types.I1)]:
            raise ProgramError("the selection must yield one i1[]")
        if check_region("scatter body", regions[1], pair) != pair[:1]:
            raise ProgramError("the scatter body must yield a scalar of the type that it combines")
        return [x]

    @property
    def window_dims(self) -> list[WindowDim]:
        return WindowOp.window_dims(types.type_of(self.x), self.properties)

    def rule(self) -> Rule:
        sizes: dict[str, int] = {}
        kinds: dict[str, str] = {}
        factors = [d.factors(str(i), sizes, kinds) for i, d in enumerate(self.window_dims)]
        x, y = tuple(f[0] for f in factors), tuple(f[2] for f in factors)
        return Rule((x, y, ()), (x,), sizes, kinds)

    def prepared(self) -> Evaluate:
        select, scatter = elementwise(self.select.block), elementwise(self.scatter.block)
        dims = self.window_dims

        def run(*operands: np.ndarray) -> tuple[np.ndarray, ...]:
            x, source, initial = operands
            places = windows_of(pad_for(np.arange(x.size).reshape(x.shape), dims, -1), dims)
            taps = math.prod(places.shape[x.ndim :])
            places = places.reshape(*places.shape[: x.ndim], taps)
            values = windows_of(pad_for(x, dims, 0), dims).reshape(places.shape)
            picked = np.full(places.shape[:-1], -1)
            best = np.zeros(picked.shape, x.dtype)
            for i in range(taps):
                value, place = values[..., i], places[..., i]
                (stays,) = select(best, value)
                take = (place >= 0) & ((picked < 0) | ~stays)
                picked, best = np.where(take, place, picked), np.where(take, value, best)
            some = picked >= 0
            start = np.full(x.size, initial[()], x.dtype)
            (out,) = combine_at(scatter, [start], picked[some], [source[some]])
            return (out.reshape(x.shape),)

        return run

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        raise no_derivative(self, "max pooling can be differentiated once, by hlo.reduce_window")

    def flops(self) -> int:
        positions = math.prod(types.shape_of(self.source)) * math.prod(d.size for d in self.window_dims)
        return positions * region_flops(self.select)


OPS: list[type[RegionOp]] = [GenericScatterOp, GenericSelectAndScatterOp]
