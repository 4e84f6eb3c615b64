"""The sharding rule of ops with regions: which dimensions every op of a region lets through.

Dimensions of operands, results and of all values inside are tied together wherever an op's rule has them share a
factor, and where a value goes in or out of a region. A group of tied dimensions may be split, as one, unless an op
needs one of them whole, would leave a partial result, or sees it as a part of a compound dimension.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.ir import Block, SSAValue

from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.composite import YieldOp
from rhino.dialects.hlo.constant import ConstantOp
from rhino.dialects.hlo.regions import End
from rhino.dialects.hlo.rng import RngBitGeneratorOp
from rhino.ir import types
from rhino.ir.dense import is_splat
from rhino.ir.layout import Digit, Layout
from rhino.ir.rule import Dims, Rule

Node = tuple[End, int]


class Ties:
    """Groups of dimensions that are split together or not at all."""

    def __init__(self) -> None:
        self._parent: dict[Node, Node] = {}
        self._whole: set[Node] = set()

    def root(self, node: Node) -> Node:
        """What stands for the group of a dimension."""
        while (up := self._parent.get(node, node)) != node:
            self._parent[node] = self._parent.get(up, up)
            node = up
        return node

    def tie(self, nodes: Sequence[Node]) -> None:
        """Put these dimensions into one group."""
        for node in nodes[1:]:
            a, b = self.root(nodes[0]), self.root(node)
            if a != b:
                self._parent[b] = a
                if b in self._whole:
                    self._whole.add(a)

    def keep_whole(self, nodes: Iterable[Node]) -> None:
        """Do not split the groups of these dimensions."""
        self._whole.update(self.root(n) for n in nodes)

    def is_whole(self, node: Node) -> bool:
        return self.root(node) in self._whole

    def one_per_tensor(self, end: End, rank: int) -> None:
        """Two dimensions of one tensor cannot be split by the same axis."""
        roots = [self.root((end, d)) for d in range(rank)]
        self.keep_whole(r for r in roots if roots.count(r) > 1)

    def layout(self, end: End, rank: int, digits: dict[Node, tuple[Digit, ...]]) -> Layout:
        """Layout of a value when the groups carry these digits."""
        return Layout.make([list(digits.get(self.root((end, d)), ())) for d in range(rank)], ())


def tie_regions(op: HloOp, links: Iterable[tuple[End, End, int]], blocks: Iterable[Block]) -> Ties:
    """Ties of an op's operands, results and the values in its blocks; `links` are (one end, other end, rank)."""
    ties = Ties()
    inside = list(blocks)
    for block in inside:
        for inner in block.ops:
            if not isinstance(inner, YieldOp):
                _tie_op(ties, inner)
    for a, b, rank in links:
        for d in range(rank):
            ties.tie([(a, d), (b, d)])
    ends: list[tuple[End, SSAValue]] = [(("operand", i), v) for i, v in enumerate(op.operands)]
    ends += [(("result", i), v) for i, v in enumerate(op.results)]
    for block in inside:
        ends += [(v, v) for inner in block.ops for v in inner.results]
        ends += [(a, a) for a in block.args]
    for end, value in ends:
        ties.one_per_tensor(end, len(types.shape_of(value)))
    return ties


def _tie_op(ties: Ties, op: object) -> None:
    assert isinstance(op, HloOp)
    rule = op.rule()
    values = [*zip(rule.operands, op.operands, strict=True), *zip(rule.results, op.results, strict=True)]
    at: dict[str, list[Node]] = {}
    for dims, value in values:
        for d, names in enumerate(dims):
            if len(names) != 1:
                ties.keep_whole([(value, d)])
            for name in names:
                at.setdefault(name, []).append((value, d))
                if len(names) != 1 or rule.kind(name) != "pass" or name in rule.halos:
                    ties.keep_whole([(value, d)])
    for nodes in at.values():
        if any(ties.is_whole(n) for n in nodes):
            ties.keep_whole(nodes)
        ties.tie(nodes)
    # Of these each device would need to cut its own part.
    if isinstance(op, RngBitGeneratorOp) or (isinstance(op, ConstantOp) and not is_splat(op.value)):
        ties.keep_whole((r, d) for r in op.results for d in range(len(types.shape_of(r))))


def rule_of(op: HloOp, ties: Ties) -> Rule:
    """The rule of an op whose dimensions are tied so."""
    names: dict[Node, str] = {}
    sizes: dict[str, int] = {}
    kinds: dict[str, str] = {}

    def dims(end: End, value: SSAValue) -> Dims:
        out = []
        for d, extent in enumerate(types.shape_of(value)):
            root = ties.root((end, d))
            name = names.setdefault(root, f"g{len(names)}")
            sizes[name] = extent
            if ties.is_whole(root):
                kinds[name] = "whole"
            out.append((name,))
        return tuple(out)

    operands = tuple(dims(("operand", i), v) for i, v in enumerate(op.operands))
    results = tuple(dims(("result", i), v) for i, v in enumerate(op.results))
    return Rule(operands, results, sizes, kinds)
