"""Map, reductions and sort with any body, on one or several tensors. What `reduce` and `sort` know is theirs to do.

A body takes and yields scalars. That of a reduction must be associative, with the initial values as neutral elements
(as StableHLO asks): the order of combination is kept, how it is bracketed is not fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Region, SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, region_def, var_operand_def, var_result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties, get_integer, get_ints
from rhino.dialects.hlo.common import Cotangents, check_dims, integer_def, ints_def
from rhino.dialects.hlo.introsort import MOST, SMALL, introsort
from rhino.dialects.hlo.pointwise import elementwise_rule
from rhino.dialects.hlo.regions import (
    Evaluate,
    RegionOp,
    check_region,
    elements_of,
    elementwise,
    fold,
    is_elementwise,
    region_flops,
    scalars,
)
from rhino.dialects.hlo.window import WindowDim, WindowOp, pad_for, windows_of
from rhino.ir import types
from rhino.ir.errors import ProgramError, UnsupportedError
from rhino.ir.rule import Dims, Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


def no_derivative(op: HloOp, remedy: str) -> UnsupportedError:
    """What ops say whose body could do anything."""
    return UnsupportedError(f"{op.name} has no derivative", remedy=remedy)


def check_same_shapes(operands: Sequence[types.Type]) -> tuple[int, ...]:
    """The shape of all operands. Raises ProgramError if they differ."""
    if not operands:
        raise ProgramError("there are no operands")
    for i, x in enumerate(operands):
        if x.get_shape() != operands[0].get_shape():
            raise ProgramError(f"operand {i} is {types.show(x)} but operand 0 is {types.show(operands[0])}")
    return tuple(operands[0].get_shape())


def check_combiner(
    operands: Sequence[types.Type], body: Region
) -> tuple[Sequence[types.Type], Sequence[types.Type]]:
    """Inputs and initial values of a reduction. Raises ProgramError if the body does not combine them."""
    if not operands or len(operands) % 2:
        raise ProgramError(f"{len(operands)} operands, but every tensor needs an initial value")
    half = len(operands) // 2
    xs, initial = operands[:half], operands[half:]
    check_same_shapes(xs)
    for i, (x, v) in enumerate(zip(xs, initial, strict=True)):
        if v != types.tensor((), x.element_type):
            raise ProgramError(
                f"operand {half + i} is {types.show(v)}, but the initial value for {types.show(x)} is a scalar of it"
            )
    kinds = scalars(elements_of(xs))
    if check_region("body", body, [*kinds, *kinds]) != kinds:
        raise ProgramError("the body must yield scalars of the types that it combines")
    return xs, initial


@irdl_op_definition
class MapOp(RegionOp):
    """The body applied to every element of the operands.

    Example::

        %z = hlo.map(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = hlo.maximum %a, %b : tensor<f32>
          hlo.yield %c : tensor<f32>
        })

    A body of elementwise ops runs on whole tensors at once, and has a derivative.
    """

    name = "hlo.map"
    xs = var_operand_def(TENSOR)
    body = region_def("single_block")
    ys = var_result_def(TENSOR)

    @classmethod
    def infer_with(
        cls, operands: Sequence[types.Type], properties: Properties, regions: Sequence[Region]
    ) -> Sequence[types.Type]:
        shape = check_same_shapes(operands)
        found = check_region("body", regions[0], scalars(elements_of(operands)))
        if any(f.get_shape() for f in found):
            raise ProgramError("the body must yield scalars")
        return [types.tensor(shape, f.element_type) for f in found]

    def rule(self) -> Rule:
        shape = types.shape_of(self.xs[0])
        rule = elementwise_rule([shape] * len(self.xs), shape)
        return Rule(rule.operands, rule.results * len(self.ys), rule.sizes)

    def prepared(self) -> Evaluate:
        return elementwise(self.body.block)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        from rhino.dialects.hlo.region_derivative import pull_back, spread

        if not is_elementwise(self.body.block):
            raise no_derivative(self, "a body of elementwise ops has one")
        ops, results = spread(builder, self.body.block, list(self.xs))
        seeds: dict[SSAValue, SSAValue] = {}
        for y, dy in zip(results, cotangents, strict=True):
            if dy is not None:
                seeds[y] = dy if y not in seeds else builder.add(seeds[y], dy)
        return pull_back(builder, ops, seeds, list(self.xs))

    def flops(self) -> int:
        return math.prod(types.shape_of(self.xs[0])) * region_flops(self.body)


@irdl_op_definition
class GenericReduceOp(RegionOp):
    """Dimensions combined by the body and removed, in several tensors together.

    Example::

        %v, %k = hlo.generic_reduce(%x, %i, %low, %none) {dims = array<i64: 1>}
          : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>) ({
        ^bb0(%a: tensor<f32>, %m: tensor<i32>, %b: tensor<f32>, %n: tensor<i32>):
          %p = hlo.compare "ge", %a, %b : tensor<f32> -> tensor<i1>
          %c = hlo.select %p, %a, %b : tensor<i1>, tensor<f32>
          %o = hlo.select %p, %m, %n : tensor<i1>, tensor<i32>
          hlo.yield %c, %o : tensor<f32>, tensor<i32>
        })

    Operands: the tensors, then an initial value for each; the body takes what was combined so far, then elements.
    Reduced dimensions stay whole.
    """

    name = "hlo.generic_reduce"
    arguments = var_operand_def(TENSOR)
    dims = ints_def()
    body = region_def("single_block")
    ys = var_result_def(TENSOR)

    @classmethod
    def infer_with(
        cls, operands: Sequence[types.Type], properties: Properties, regions: Sequence[Region]
    ) -> Sequence[types.Type]:
        xs, _ = check_combiner(operands, regions[0])
        dims = get_ints(properties, "dims")
        check_dims("dims", dims, xs[0])
        shape = [n for d, n in enumerate(xs[0].get_shape()) if d not in dims]
        return [types.tensor(shape, x.element_type) for x in xs]

    def rule(self) -> Rule:
        shape, gone = types.shape_of(self.arguments[0]), get_ints(self.properties, "dims")
        dims = tuple((f"i{d}",) for d in range(len(shape)))
        result = tuple(f for d, f in enumerate(dims) if d not in gone)
        count = len(self.ys)
        scalar: Dims = ()
        return Rule(
            (dims,) * count + (scalar,) * count,
            (result,) * count,
            {f"i{d}": n for d, n in enumerate(shape)},
            {f"i{d}": "whole" for d in gone},
        )

    def prepared(self) -> Evaluate:
        body, gone = elementwise(self.body.block), get_ints(self.properties, "dims")
        count = len(self.ys)

        def run(*operands: np.ndarray) -> tuple[np.ndarray, ...]:
            xs, initial = operands[:count], operands[count:]
            kept = [d for d in range(xs[0].ndim) if d not in gone]
            order = [*kept, *sorted(gone)]
            shape = [xs[0].shape[d] for d in kept]
            taps = math.prod(xs[0].shape[d] for d in gone)
            return fold(body, initial, [x.transpose(order).reshape(*shape, taps) for x in xs])

        return run

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        raise no_derivative(self, "hlo.reduce has one, of every kind")

    def flops(self) -> int:
        return math.prod(types.shape_of(self.arguments[0])) * region_flops(self.body)


@irdl_op_definition
class GenericReduceWindowOp(RegionOp):
    """Every window of the dilated and padded tensors combined by the body; padding holds the initial values.

    Example::

        %y = hlo.generic_reduce_window(%x, %one) {window = array<i64: 2>, strides = array<i64: 2>, low = array<i64: 0>,
          high = array<i64: 0>, base_dilation = array<i64: 1>, window_dilation = array<i64: 1>}
          : (tensor<4xf32>, tensor<f32>) -> tensor<2xf32> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = hlo.mul %a, %b : tensor<f32>
          hlo.yield %c : tensor<f32>
        })

    Operands: the tensors, then an initial value for each. Dimensions that windows cut into blocks may be split.
    """

    name = "hlo.generic_reduce_window"
    arguments = var_operand_def(TENSOR)
    window = ints_def()
    strides = ints_def()
    low = ints_def()
    high = ints_def()
    base_dilation = ints_def()
    window_dilation = ints_def()
    body = region_def("single_block")
    ys = var_result_def(TENSOR)

    @classmethod
    def infer_with(
        cls, operands: Sequence[types.Type], properties: Properties, regions: Sequence[Region]
    ) -> Sequence[types.Type]:
        xs, _ = check_combiner(operands, regions[0])
        shape = [d.out for d in WindowOp.window_dims(xs[0], properties)]
        return [types.tensor(shape, x.element_type) for x in xs]

    @property
    def window_dims(self) -> list[WindowDim]:
        return WindowOp.window_dims(types.type_of(self.arguments[0]), self.properties)

    def rule(self) -> Rule:
        sizes: dict[str, int] = {}
        kinds: dict[str, str] = {}
        factors = [d.factors(str(i), sizes, kinds) for i, d in enumerate(self.window_dims)]
        x, y, count = tuple(f[0] for f in factors), tuple(f[2] for f in factors), len(self.ys)
        scalar: Dims = ()
        return Rule((x,) * count + (scalar,) * count, (y,) * count, sizes, kinds)

    def prepared(self) -> Evaluate:
        body, dims, count = elementwise(self.body.block), self.window_dims, len(self.ys)

        def run(*operands: np.ndarray) -> tuple[np.ndarray, ...]:
            xs, initial = operands[:count], operands[count:]
            parts = []
            for x, v in zip(xs, initial, strict=True):
                view = windows_of(pad_for(x, dims, v.item()), dims)
                parts.append(view.reshape(*view.shape[: x.ndim], math.prod(view.shape[x.ndim :])))
            return fold(body, initial, parts)

        return run

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        raise no_derivative(self, "hlo.reduce_window has one, of every kind")

    def flops(self) -> int:
        positions = math.prod(types.shape_of(self.ys[0])) * math.prod(get_ints(self.properties, "window"))
        return positions * region_flops(self.body)


def merge_sort(less: Evaluate, xs: Sequence[np.ndarray]) -> np.ndarray:
    """The stable permutation of the last axis that sorts ``[lanes, n]`` arrays by a comparison of all of them.

    `less` takes an element of the left and one of the right side of every array in turn. Blocks of 1, 2, 4, ... are
    merged: where an element goes is found by a binary search in the other block, for all elements at once.
    """
    lanes, n = xs[0].shape
    at = np.arange(n)
    order = np.broadcast_to(at, (lanes, n)).copy()
    width = 1
    while width < n:
        start = at // (2 * width) * (2 * width)
        left = at - start < width
        other = np.where(left, np.minimum(start + width, n), start)
        length = np.where(left, np.minimum(start + 2 * width, n), np.minimum(start + width, n)) - other
        low = np.zeros((lanes, n), np.int64)
        high = np.broadcast_to(length, (lanes, n)).copy()
        here = [np.take_along_axis(x, order, 1) for x in xs]
        for _ in range(width.bit_length()):
            middle = (low + high) // 2
            where = np.minimum(other + middle, n - 1)
            there = [np.take_along_axis(x, where, 1) for x in here]
            sides: list[np.ndarray] = []
            for mine, theirs in zip(here, there, strict=True):
                sides += [np.where(left, theirs, mine), np.where(left, mine, theirs)]
            # A right element goes after those of the left block that it is not less than.
            (before,) = less(*sides)
            goes_after = np.where(left, before, ~before)
            searching = low < high
            low = np.where(searching & goes_after, middle + 1, low)
            high = np.where(searching & ~goes_after, middle, high)
        target = np.where(left, at, at - width) + low
        merged = np.empty_like(order)
        np.put_along_axis(merged, target, order, 1)
        order, width = merged, 2 * width
    return order


def _reordered(less: Evaluate, xs: Sequence[np.ndarray], order: np.ndarray) -> np.ndarray:
    """The permutation of `introsort`, found on the ranks of the elements, of which `order` is the stable one."""
    sides: list[np.ndarray] = []
    for x in xs:
        ordered = np.take_along_axis(x, order, 1)
        sides += [ordered[:, :-1], ordered[:, 1:]]
    (greater,) = less(*sides)
    rank = np.zeros_like(order)
    np.put_along_axis(rank, order[:, 1:], np.cumsum(greater, 1, dtype=rank.dtype), 1)
    return np.stack([introsort(row) for row in rank])


@irdl_op_definition
class GenericSortOp(RegionOp):
    """All operands reordered along `dim` so that the body holds between neighbours; equal elements keep their order.

    Example::

        %a, %b = hlo.generic_sort(%x, %y) {dim = 0 : i64}
          : (tensor<4xf32>, tensor<4xi32>) -> (tensor<4xf32>, tensor<4xi32>) ({
        ^bb0(%p: tensor<f32>, %q: tensor<f32>, %m: tensor<i32>, %n: tensor<i32>):
          %less = hlo.compare "lt", %m, %n : tensor<i32> -> tensor<i1>
          hlo.yield %less : tensor<i1>
        })

    The body takes two elements of every operand and says whether the first of each comes before the second. With
    `unstable` up to 4096 elements come in the order of C++'s `std::sort`, in which equal ones do not keep theirs.
    """

    name = "hlo.generic_sort"
    xs = var_operand_def(TENSOR)
    dim = integer_def()
    unstable = opt_prop_def(UnitAttr)
    body = region_def("single_block")
    ys = var_result_def(TENSOR)

    @classmethod
    def infer_with(
        cls, operands: Sequence[types.Type], properties: Properties, regions: Sequence[Region]
    ) -> Sequence[types.Type]:
        check_same_shapes(operands)
        check_dims("dim", [get_integer(properties, "dim")], operands[0])
        pairs = [e for element in elements_of(operands) for e in (element, element)]
        if check_region("body", regions[0], scalars(pairs)) != [types.tensor((), types.I1)]:
            raise ProgramError("the body must yield one i1[]")
        return list(operands)

    def rule(self) -> Rule:
        shape, dim = types.shape_of(self.xs[0]), get_integer(self.properties, "dim")
        dims = tuple((f"i{d}",) for d in range(len(shape)))
        sizes = {f"i{d}": n for d, n in enumerate(shape)}
        return Rule((dims,) * len(self.xs), (dims,) * len(self.xs), sizes, {f"i{dim}": "whole"})

    def prepared(self) -> Evaluate:
        less, dim = elementwise(self.body.block), get_integer(self.properties, "dim")
        unstable = self.unstable is not None

        def run(*operands: np.ndarray) -> tuple[np.ndarray, ...]:
            moved = [np.moveaxis(x, dim, -1) for x in operands]
            shape = moved[0].shape
            if 0 in shape:
                return operands
            rows = [np.ascontiguousarray(x).reshape(-1, shape[-1]) for x in moved]
            order = merge_sort(less, rows)
            if unstable and SMALL < shape[-1] <= MOST:
                order = _reordered(less, rows, order)
            return tuple(np.moveaxis(np.take_along_axis(x, order, 1).reshape(shape), -1, dim) for x in rows)

        return run

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        """Cotangents go back along the permutation, which a sort of counters finds."""
        b, dim = builder, get_integer(self.properties, "dim")
        counter = b.iota(types.tensor(types.shape_of(self.xs[0]), types.I64), dim)
        region = self.body.clone()
        for _ in range(2):
            region.block.insert_arg(types.tensor((), types.I64), len(region.block.args))
        *_, order = b.emit_regions(GenericSortOp, [*self.xs, counter], dict(self.properties), [region])
        return [
            None if dy is None else b.scatter_along(b.full_like(x, 0), order, dy, dim, "add")
            for x, dy in zip(self.xs, cotangents, strict=True)
        ]

    def flops(self) -> int:
        shape = types.shape_of(self.xs[0])
        extent = shape[get_integer(self.properties, "dim")]
        return math.prod(shape) * max(1, math.ceil(math.log2(max(2, extent)))) * region_flops(self.body)


OPS: list[type[RegionOp]] = [MapOp, GenericReduceOp, GenericReduceWindowOp, GenericSortOp]
