"""Which dimensions must grow together: the classes of dimensions that the sharding rules tie to each other.

A factor of an op's rule that is the major one wherever it stands ties its dimensions: if one of them gets more
elements at its end, so must the others, and the elements that were there keep their indices. ``[b, h d]`` reshaped to
``[b, h, d]`` ties the two dimensions with h: 40 = 5 * 8 grows to 64 = 8 * 8 as 5 grows to 8. A factor that is minor
somewhere, or ``whole``, ties nothing: the op then sees those dimensions with the extents that they had.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

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


@dataclass
class _Sets:
    """Union-find over dimensions; `sizes` holds the extents of the factors of a set."""

    parent: dict[Node, Node] = field(default_factory=dict)
    sizes: dict[Node, list[int]] = field(default_factory=dict)
    heavy: set[Node] = field(default_factory=set)

    def find(self, node: Node) -> Node:
        self.parent.setdefault(node, node)
        root = node
        while self.parent[root] != root:
            root = self.parent[root]
        while self.parent[node] != root:
            self.parent[node], node = root, self.parent[node]
        return root

    def join(self, nodes: list[Node], size: int) -> None:
        first = self.find(nodes[0])
        self.sizes.setdefault(first, []).append(size)
        for node in nodes[1:]:
            other = self.find(node)
            if other != first:
                self.parent[other] = first
                self.sizes[first] += self.sizes.pop(other, [])


def classes_of(func: FuncOp) -> tuple[list[DimClass], dict[Operation, OpFactors]]:
    """The classes of a function of the global stage, in program order, and for every op that can grow its factors."""
    sets = _Sets()
    rules: dict[Operation, tuple[Rule, dict[str, Node]]] = {}
    for op in func.body.block.ops:
        if not isinstance(op, HloOp) or op.regions or not isinstance(op, KNOWN):
            continue
        rule, at = op.rule(), {}
        for factor, nodes in _ties(op, rule):
            sets.join(nodes, rule.sizes[factor])
            at[factor] = nodes[0]
            if isinstance(op, HEAVY):
                sets.heavy.add(nodes[0])
        rules[op] = rule, at
    # What replaces an argument in the next step must have its shape.
    for slot, value in zip(signature.results(func), signature.return_of(func).operands, strict=True):
        if slot.alias is not None:
            for d, extent in enumerate(types.shape_of(value)):
                if extent > 1:
                    sets.join([(func.args[slot.alias], d), (value, d)], extent)
    return _number(sets, rules)


def _number(
    sets: _Sets, rules: Mapping[Operation, tuple[Rule, Mapping[str, Node]]]
) -> tuple[list[DimClass], dict[Operation, OpFactors]]:
    members: dict[Node, list[Node]] = {}
    for node in sets.parent:
        members.setdefault(sets.find(node), []).append(node)
    heavy = {sets.find(node) for node in sets.heavy}
    classes: list[DimClass] = []
    number: dict[Node, int] = {}
    for root, nodes in members.items():
        number[root] = len(classes)
        classes.append(DimClass(math.gcd(*sets.sizes[root]), tuple(nodes), root in heavy))
    factors = {
        op: OpFactors(rule, {f: number[sets.find(node)] for f, node in at.items()})
        for op, (rule, at) in rules.items()
    }
    return classes, factors


def _ties(op: HloOp, rule: Rule) -> Iterator[tuple[str, list[Node]]]:
    """Every factor of an op that may grow, with the dimensions that it ties."""
    nodes: dict[str, list[Node]] = {}
    fixed = {f for f in rule.sizes if rule.sizes[f] <= 1 or rule.kind(f) == "whole"} | _fixed(op, rule)
    for values, tensors in ((op.operands, rule.operands), (op.results, rule.results)):
        for value, dims in zip(values, tensors, strict=True):
            for d, dim in enumerate(dims):
                many = [f for f in dim if rule.sizes[f] > 1]
                fixed.update(many[1:])
                # A constant of one value is made anew in any shape, so it ties nothing.
                if many and splat_of(value) is None:
                    nodes.setdefault(many[0], []).append((value, d))
    if not isinstance(op, COMBINE):
        fixed.update(f for f in rule.sizes if rule.kind(f) != "pass")
    for factor, found in nodes.items():
        if factor not in fixed:
            yield factor, found


def _fixed(op: HloOp, rule: Rule) -> set[str]:
    """Factors that may be split but not grown: groups, updates of which a scatter can drop none, and dimensions that
    `hlo.pad` shifts by as much as they hold (the padding would come into view)."""
    if isinstance(op, PadOp):
        return {f for dim, low in zip(rule.results[0], op.amounts[0], strict=True) if low for f in dim}
    if isinstance(op, ConvolutionOp):
        return {"g"}
    if isinstance(op, ScatterOp) and (not op.indexing.index_map or get_text(op.properties, "kind") == "set"):
        return {f"i{d}" for d in op.indexing.batch_dims}
    return set()
