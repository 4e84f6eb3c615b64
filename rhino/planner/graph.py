"""A program as the planner sees it: flat lists of ops, values and function arguments, read from `@main` once.

Ops of one *kind* (same op, properties and types) share their sharding rule and everything worked out from it,
so that equal layers cost one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation, SSAValue

from rhino.dialects.hlo.base import HloOp
from rhino.dialects.signature import Slot, arguments, main_of, results, return_of
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.printing import print_module
from rhino.ir.rule import Rule
from rhino.passes.buckets import BUCKET_BYTES, COMPUTE

#: Ops without operands whose value does not depend on where they run; a device makes whatever piece it needs.
MAKERS = frozenset({"hlo.constant", "hlo.iota", "hlo.full"})


@dataclass(frozen=True)
class Kind:
    """What ops with the same name, properties and types have in common."""

    name: str
    rule: Rule
    flops: int
    operands: tuple[types.Type, ...]
    results: tuple[types.Type, ...]

    @cached_property
    def element(self) -> str:
        """Name of the first result's element type."""
        return types.element_name(self.results[0].element_type)

    @cached_property
    def operand_tensors(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Shape and item size of every operand."""
        return tuple((tuple(t.get_shape()), types.itemsize(t.element_type)) for t in self.operands)

    @cached_property
    def result_tensors(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Shape and item size of every result."""
        return tuple((tuple(t.get_shape()), types.itemsize(t.element_type)) for t in self.results)


@dataclass
class Value:
    """An argument of `@main` or a result of an op.

    Attributes:
        producer: index of the op, or None for an argument.
        port: index among the results of the producer, or of the argument.
        uses: ``(op index, operand index)`` of ops that read it.
        returns: indices of the results of `@main` that it is.
    """

    ssa: SSAValue
    shape: tuple[int, ...]
    itemsize: int
    producer: int | None
    port: int
    uses: list[tuple[int, int]] = field(default_factory=list)
    returns: list[int] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        size = self.itemsize
        for extent in self.shape:
            size *= extent
        return size


@dataclass
class Node:
    """One op: its kind, and the indices of the values it reads and makes."""

    op: HloOp
    kind: Kind
    operands: tuple[int, ...]
    results: tuple[int, ...]
    free: bool = False
    """Whether it is a maker, or a broadcast of a scalar one: it follows whatever layout its users want."""


@dataclass
class Graph:
    """Ops in program order; values with the arguments first; what the arguments and results of `@main` are."""

    nodes: list[Node]
    values: list[Value]
    arguments: list[Slot]
    results: list[Slot]
    returned: list[int]
    memo: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    """What was worked out from the graph and is wanted again, by what it is."""

    def follows(self, value: int) -> bool:
        """Whether a value is made by an op that follows its users: it ties no two of them together."""
        producer = self.values[value].producer
        return producer is not None and self.nodes[producer].free

    def argument_of(self, name: str) -> int | None:
        """Index of the argument called `name`."""
        for i, slot in enumerate(self.arguments):
            if slot.name == name and slot.role in ("parameter", "buffer"):
                return i
        return None


def read(module: ModuleOp) -> Graph:
    """Read the global-stage `@main`. Raises ProgramError when an op is not of the `hlo` dialect."""
    func = main_of(module)
    terminator = return_of(func)
    values: list[Value] = []
    index: dict[SSAValue, int] = {}

    def add(ssa: SSAValue, producer: int | None, port: int) -> int:
        type = types.type_of(ssa)
        index[ssa] = len(values)
        shape = tuple(type.get_shape())
        values.append(Value(ssa, shape, types.itemsize(type.element_type), producer, port))
        return index[ssa]

    for i, argument in enumerate(func.args):
        add(argument, None, i)
    nodes: list[Node] = []
    kinds: dict[Hashable, Kind] = {}
    for op in func.body.block.ops:
        if isinstance(op, ReturnOp):
            break
        if not isinstance(op, HloOp) or (op.regions and not op.STAYS):
            raise ProgramError(
                f"{op.name} cannot be planned",
                where=str(op.location),
                remedy="plan a module of the global stage, with its composites inlined (inline-composites)",
            )
        at = len(nodes)
        operands = tuple(index[o] for o in op.operands)
        made = tuple(add(r, at, i) for i, r in enumerate(op.results))
        node = Node(op, kind_of(op, kinds), operands, made)
        node.free = node.kind.name in MAKERS or (
            node.kind.name == "hlo.broadcast_in_dim"
            and not values[operands[0]].shape
            and _made(values[operands[0]], nodes)
        )
        nodes.append(node)
        for position, value in enumerate(operands):
            values[value].uses.append((at, position))
    returned = [index[o] for o in terminator.operands]
    for slot, value in enumerate(returned):
        values[value].returns.append(slot)
    return Graph(nodes, values, arguments(func), results(func), returned)


def weight(graph: Graph) -> int:
    """Bytes of all parameters."""
    slots = zip(graph.values, graph.arguments, strict=False)
    return sum(value.bytes for value, slot in slots if slot.role == "parameter")


def buckets(graph: Graph) -> list[int]:
    """Per value the bytes of the buckets in which its reshards can be, 0 where they cannot.

    Collectives of arguments and of what no matrix product is computed from (gradients, the loss) can wait for each
    other and share buckets, which all gradients together fill at most; those of activations stand in each other's way.
    Worked out once.
    """
    if "buckets" not in graph.memo:
        graph.memo["buckets"] = _buckets(graph)
    found: list[int] = graph.memo["buckets"]
    return found


def _buckets(graph: Graph) -> list[int]:
    size = weight(graph)
    size = min(size or BUCKET_BYTES, BUCKET_BYTES)
    ahead = [False] * len(graph.values)
    for node in reversed(graph.nodes):
        if node.kind.name in COMPUTE or any(ahead[v] for v in node.results):
            for value in node.operands:
                ahead[value] = True
    return [size if v.producer is None or not ahead[i] else 0 for i, v in enumerate(graph.values)]


def result_argument(graph: Graph, result: int) -> int | None:
    """The argument whose layout a result of `@main` must have, or None when it must be replicated."""
    slot = graph.results[result]
    if slot.alias is not None:
        return slot.alias
    if slot.role == "gradient" and slot.of is not None:
        return graph.argument_of(slot.of)
    return None


def _made(value: Value, nodes: list[Node]) -> bool:
    return value.producer is not None and nodes[value.producer].free


def kind_of(op: HloOp, kinds: dict[Hashable, Kind]) -> Kind:
    """The kind of an op, remembered in `kinds`."""
    operands = tuple(types.type_of(o) for o in op.operands)
    results = tuple(types.type_of(r) for r in op.results)
    # The value of a constant is large and says nothing about how it may be split.
    own = () if op.name == "hlo.constant" else tuple(sorted(op.properties.items()))
    # Ops with regions are of one kind only if these are equal, too.
    regions = tuple(print_module(inner) for r in op.regions for b in r.blocks for inner in b.ops)
    key = (op.name, own, operands, results, regions)
    if key not in kinds:
        kinds[key] = Kind(op.name, op.rule(), op.flops(), operands, results)
    return kinds[key]


def location(op: Operation) -> str:
    """Where an op came from, for messages."""
    return str(op.location)
