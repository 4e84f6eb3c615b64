"""Which dimensions must grow together: the classes of dimensions that the sharding rules tie to each other.

A factor of an op's rule that is the major one wherever it stands ties its dimensions: if one of them gets more
elements at its end, so must the others, and the elements that were there keep their indices. ``[b, h d]`` reshaped to
``[b, h, d]`` ties the two dimensions with h: 40 = 5 * 8 grows to 64 = 8 * 8 as 5 grows to 8. A factor that is minor
somewhere, or ``whole``, ties nothing: the op then sees those dimensions with the extents that they had.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from rhino.dialects import signature
from rhino.dialects.hlo.base import HloOp, get_text
from rhino.dialects.hlo.constant import ConstantOp, IotaOp, splat_of
from rhino.dialects.hlo.conv import ConvolutionOp
from rhino.dialects.hlo.dot import DotGeneralOp
from rhino.dialects.hlo.dynamic import DynamicSliceOp, DynamicUpdateSliceOp
from rhino.dialects.hlo.elementwise import ConvertOp, SelectOp
from rhino.dialects.hlo.index import GatherOp, ScatterOp
from rhino.dialects.hlo.pointwise import PointwiseOp
from rhino.dialects.hlo.random import RandomUniformOp
from rhino.dialects.hlo.reduce import ArgOp, CumulativeOp, ReduceOp
from rhino.dialects.hlo.shape import (
    BroadcastInDimOp,
    ConcatenateOp,
    PadOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TransposeOp,
)
from rhino.dialects.hlo.sort import SortOp, TopKOp
from rhino.dialects.hlo.window import ReduceWindowOp, SelectAndScatterOp
from rhino.ir import types
from rhino.ir.disjoint import DisjointSets
from rhino.ir.rule import Rule

Node = tuple[SSAValue, int]

#: Ops that know how to work on grown operands. Any other op gets and gives what it had.
KNOWN = (
    PointwiseOp, SelectOp, ConvertOp, RandomUniformOp, BroadcastInDimOp, ReshapeOp, TransposeOp, SliceOp, PadOp,
    ConcatenateOp, ReverseOp, IotaOp, ConstantOp, ReduceOp, ArgOp, CumulativeOp,
    DotGeneralOp, ConvolutionOp, ReduceWindowOp, SelectAndScatterOp, GatherOp, ScatterOp, SortOp, TopKOp,
    DynamicSliceOp, DynamicUpdateSliceOp,
)  # fmt: skip

#: Ops whose work a mesh should divide.
HEAVY = (DotGeneralOp, ConvolutionOp, GatherOp, ScatterOp)

#: Ops that combine over a factor and know what a grown one needs.
COMBINE = (ReduceOp, *HEAVY)


@dataclass(frozen=True)
class DimClass:
    """Dimensions that grow together.

    Attributes:
        extent: what grows; every member's extent is a multiple of it, and grows in proportion.
        members: ``(value, dimension)`` in program order.
        heavy: whether an op with much work has one of them in an operand or its result.
    """

    extent: int
    members: tuple[Node, ...]
    heavy: bool


@dataclass(frozen=True)
class OpFactors:
    """An op's rule, and the class of every factor that may grow."""

    rule: Rule
    classes: Mapping[str, int]


@dataclass(frozen=True)
class _Tie:
    """A factor that may grow, its extent, and the dimensions it ties: ``(operand or result index, dimension)``, results
    counted after the operands.
    """

    factor: str
    size: int
    places: tuple[tuple[int, int], ...]


class _Dims:
    """Numbers for the dimensions of values, in order of appearance."""

    def __init__(self) -> None:
        self.sets = DisjointSets()
        self.nodes: list[Node] = []
        self._first: dict[SSAValue, dict[int, int]] = {}

    def number(self, value: SSAValue, dim: int) -> int:
        known = self._first.setdefault(value, {})
        if dim not in known:
            known[dim] = self.sets.new()
            self.nodes.append((value, dim))
        return known[dim]

    def join(self, numbers: list[int]) -> None:
        for number in numbers[1:]:
            self.sets.join(numbers[0], number)


def classes_of(func: FuncOp) -> tuple[list[DimClass], dict[Operation, OpFactors]]:
    """The classes of a function of the global stage, in program order, and for every op that can grow its factors."""
    dims = _Dims()
    sizes: dict[int, list[int]] = defaultdict(list)
    heavy: set[int] = set()
    rules: dict[Operation, tuple[Rule, dict[str, int]]] = {}
    known: dict[Hashable, tuple[Rule, tuple[_Tie, ...]]] = {}
    for op in func.body.block.ops:
        if not isinstance(op, HloOp) or op.regions or not isinstance(op, KNOWN):
            continue
        values = (*op.operands, *op.results)
        splats = tuple(splat_of(value) is not None for value in values)
        # The value of a constant is large, and whether it is one value is all that matters of it.
        own = () if isinstance(op, ConstantOp) else tuple(op.properties.items())
        key = op.name, own, tuple(value.type for value in values), splats
        if key not in known:
            rule = op.rule()
            known[key] = rule, tuple(_ties(op, rule, splats))
        rule, ties = known[key]
        at = {}
        for tie in ties:
            numbers = [dims.number(values[i], d) for i, d in tie.places]
            dims.join(numbers)
            sizes[numbers[0]].append(tie.size)
            at[tie.factor] = numbers[0]
            if isinstance(op, HEAVY):
                heavy.add(numbers[0])
        rules[op] = rule, at
    # What replaces an argument in the next step must have its shape.
    for slot, value in zip(signature.results(func), signature.return_of(func).operands, strict=True):
        if slot.alias is not None:
            for d, extent in enumerate(types.shape_of(value)):
                if extent > 1:
                    numbers = [dims.number(func.args[slot.alias], d), dims.number(value, d)]
                    dims.join(numbers)
                    sizes[numbers[0]].append(extent)
    return _classes(dims, sizes, heavy, rules)


def _classes(
    dims: _Dims,
    sizes: Mapping[int, list[int]],
    heavy: set[int],
    rules: Mapping[Operation, tuple[Rule, Mapping[str, int]]],
) -> tuple[list[DimClass], dict[Operation, OpFactors]]:
    find = dims.sets.find
    members: dict[int, list[Node]] = {}
    for number, node in enumerate(dims.nodes):
        members.setdefault(find(number), []).append(node)
    extents: dict[int, int] = defaultdict(int)
    for number, found in sizes.items():
        extents[find(number)] = math.gcd(extents[find(number)], *found)
    busy = {find(number) for number in heavy}
    place = {root: i for i, root in enumerate(members)}
    classes = [DimClass(extents[root], tuple(nodes), root in busy) for root, nodes in members.items()]
    factors = {
        op: OpFactors(rule, {f: place[find(number)] for f, number in at.items()})
        for op, (rule, at) in rules.items()
    }
    return classes, factors


def _ties(op: HloOp, rule: Rule, splats: tuple[bool, ...]) -> Iterator[_Tie]:
    """Every factor of an op that may grow, with the dimensions that it ties; `splats`: the values that are constants
    of one value, which are made anew in any shape and tie nothing.
    """
    places: dict[str, list[tuple[int, int]]] = {}
    fixed = {f for f in rule.sizes if rule.sizes[f] <= 1 or rule.kind(f) == "whole"} | _fixed(op, rule)
    for i, dims in enumerate((*rule.operands, *rule.results)):
        for d, dim in enumerate(dims):
            many = [f for f in dim if rule.sizes[f] > 1]
            fixed.update(many[1:])
            if many and not splats[i]:
                places.setdefault(many[0], []).append((i, d))
    if not isinstance(op, COMBINE):
        fixed.update(f for f in rule.sizes if rule.kind(f) != "pass")
    for factor, found in places.items():
        if factor not in fixed:
            yield _Tie(factor, rule.sizes[factor], tuple(found))


def _fixed(op: HloOp, rule: Rule) -> set[str]:
    """Factors that may be split but not grown: groups, updates of which a scatter can drop none, dimensions over which
    windows slide, and dimensions that `hlo.pad` shifts by as much as they hold (the padding would come into view)."""
    if isinstance(op, PadOp):
        return {f for dim, low in zip(rule.results[0], op.amounts[0], strict=True) if low for f in dim}
    if isinstance(op, ConvolutionOp):
        return {"g", *rule.halos}
    if rule.halos:
        return set(rule.halos)
    if isinstance(op, ScatterOp) and (not op.indexing.index_map or get_text(op.properties, "kind") == "set"):
        return {f"i{d}" for d in op.indexing.batch_dims}
    return set()
