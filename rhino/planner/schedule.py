"""From a decision to the order in which a device works: which reshards there are, between which layouts, and where.

A value is brought into the layouts that its users want by a tree of reshards: each layout is reached from the
cheapest one that is already there (a slice of a gathered tensor rather than a second gather). A reshard that makes
the value smaller stands right after the value's definition, any other right before its first user. With *regather*,
a layout that is larger than the value itself is made anew for every cluster of users rather than kept from the
forward to the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from rhino.ir import types
from rhino.ir.layout import Layout
from rhino.ir.rule import Placement
from rhino.planner.combine import Item, edge_items, reshard_items
from rhino.planner.cost import VIEWS, elements, held, shards_of
from rhino.planner.graph import COMPUTE, Graph, result_argument
from rhino.planner.network import Decision
from rhino.planner.space import Workshop
from rhino.planner.tally import KEPT, PlanCost, Work, measure

#: With regather, users further apart than this many ops get a copy of their own.
CLUSTER = 64


@dataclass
class Transfer:
    """One reshard of a value.

    Attributes:
        parent: the transfer it starts from, or None for the value itself.
        target: the layout it makes.
        at: index of the op it stands before; -1: right after the value's definition.
        users: ``(op index, operand index)`` that read it; op index ``len(nodes)`` is the return.
    """

    parent: Transfer | None
    target: Layout
    at: int
    seconds: float
    users: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Schedule:
    """Layouts that every value has, and the transfers that bring it into others; makers have copies per layout."""

    graph: Graph
    decision: Decision
    results: tuple[Layout, ...]
    transfers: dict[int, list[Transfer]]
    makers: dict[int, dict[Layout, list[tuple[int, int]]]]
    """Per value of an op that follows its users: the layouts wanted of it, and by whom."""


def result_layouts(graph: Graph, decision: Decision) -> tuple[Layout, ...]:
    """Layouts of the results of `@main`."""
    out = []
    for result, value in enumerate(graph.returned):
        argument = result_argument(graph, result)
        whole = Layout.replicated(len(graph.values[value].shape))
        out.append(whole if argument is None else decision.arguments[argument])
    return tuple(out)


def source_layout(graph: Graph, decision: Decision, value: int) -> Layout | None:
    """The layout in which a value is made, or None if it follows its users."""
    at = graph.values[value]
    if at.producer is None:
        return decision.arguments[value]
    candidate = decision.nodes[at.producer]
    return None if candidate is None else candidate.placement.results[at.port]


def wants(
    graph: Graph, decision: Decision, results: Sequence[Layout], value: int
) -> list[tuple[tuple[int, int], Layout]]:
    """Users of a value in program order, with the layout that each wants."""
    at = graph.values[value]
    out = []
    for user, position in at.uses:
        candidate = decision.nodes[user]
        whole = Layout.replicated(len(at.shape))
        out.append(((user, position), whole if candidate is None else candidate.placement.operands[position]))
    out += [((len(graph.nodes), r), results[r]) for r in at.returns]
    return out


def schedule(graph: Graph, decision: Decision, shop: Workshop, *, regather: bool = False) -> Schedule:
    """Work out the transfers of a decision."""
    results = result_layouts(graph, decision)
    transfers: dict[int, list[Transfer]] = {}
    makers: dict[int, dict[Layout, list[tuple[int, int]]]] = {}
    for value in range(len(graph.values)):
        wanted = wants(graph, decision, results, value)
        source = source_layout(graph, decision, value)
        if source is None:
            places = makers.setdefault(value, {})
            for user, layout in wanted:
                places.setdefault(layout, []).append(user)
            continue
        moved = [(user, layout) for user, layout in wanted if layout != source]
        if moved:
            anew = regather or value in decision.again
            transfers[value] = _tree(graph, shop, value, source, moved, decision.hubs.get(value), anew)
    return Schedule(graph, decision, results, transfers, makers)


def _tree(
    graph: Graph,
    shop: Workshop,
    value: int,
    source: Layout,
    wanted: Sequence[tuple[tuple[int, int], Layout]],
    hub: Layout | None,
    regather: bool,
) -> list[Transfer]:
    """The transfers of one value: a cheapest tree over the wanted layouts, with or without the hub's on the way."""
    layouts = list(dict.fromkeys(layout for _, layout in wanted))
    ways = [_span(graph, shop, value, source, layouts)]
    if hub is not None and hub != source and hub not in layouts:
        ways.append(_span(graph, shop, value, source, [hub, *layouts]))
    edges = min(ways, key=lambda tree: math.fsum(seconds for *_, seconds in tree))
    if regather:
        return _regathered(graph, value, source, wanted, edges)
    made: dict[Layout, Transfer] = {}
    for start, target, seconds in edges:
        made[target] = Transfer(made.get(start), target, len(graph.nodes) + 1, seconds)
    for user, layout in wanted:
        made[layout].users.append(user)
    return _positioned(graph, value, source, list(made.values()))


def _span(
    graph: Graph, shop: Workshop, value: int, source: Layout, layouts: Sequence[Layout]
) -> list[tuple[Layout, Layout, float]]:
    """Edges of a tree from `source` that reaches all layouts, each from the cheapest that is there (Prim)."""
    at, time = graph.values[value], shop.communication.reshard_time
    there, rest, edges = [source], list(layouts), []
    while rest:
        seconds, start, target = min(
            ((time(at.shape, at.itemsize, a, b), a, b) for b in rest for a in there), key=lambda edge: edge[0]
        )
        edges.append((start, target, seconds))
        there.append(target)
        rest.remove(target)
    return edges


def _regathered(
    graph: Graph,
    value: int,
    source: Layout,
    wanted: Sequence[tuple[tuple[int, int], Layout]],
    edges: Sequence[tuple[Layout, Layout, float]],
) -> list[Transfer]:
    """One chain of transfers per cluster of users, for layouts that are larger than the source's."""
    up = {target: (start, seconds) for start, target, seconds in edges}
    small = _local(graph, value, source)
    shared: dict[Layout, Transfer] = {}
    out: list[Transfer] = []
    copies: dict[Layout, tuple[Transfer, int]] = {}

    def make(layout: Layout, user: int) -> Transfer | None:
        if layout == source:
            return None
        start, seconds = up[layout]
        if _local(graph, value, layout) <= small and start == source:
            if layout not in shared:
                shared[layout] = Transfer(None, layout, user, seconds)
                out.append(shared[layout])
            return shared[layout]
        if layout in copies and user - copies[layout][1] <= CLUSTER:
            copy = copies[layout][0]
        else:
            copy = Transfer(make(start, user), layout, user, seconds)
            out.append(copy)
        copies[layout] = copy, user
        return copy

    for (user, position), layout in wanted:
        transfer = make(layout, user)
        assert transfer is not None
        transfer.users.append((user, position))
    return _positioned(graph, value, source, out)


def _positioned(graph: Graph, value: int, source: Layout, transfers: list[Transfer]) -> list[Transfer]:
    """Set where every transfer stands: before its first reader, or after the definition when it makes less."""
    for transfer in reversed(transfers):  # children come after their parents
        if transfer.users:
            transfer.at = min(transfer.at, transfer.users[0][0])
        parent = transfer.parent
        if parent is not None:
            parent.at = min(parent.at, transfer.at)
    small = _local(graph, value, source)
    for transfer in transfers:
        if transfer.parent is None and _local(graph, value, transfer.target) < small:
            transfer.at = -1
    return transfers


def _local(graph: Graph, value: int, layout: Layout) -> int:
    return elements(graph.values[value].shape, layout)


def is_star(transfers: Sequence[Transfer]) -> bool:
    """Whether the transfers are simply one reshard of the value per layout, as `place` makes them."""
    targets = {t.target for t in transfers}
    return len(targets) == len(transfers) and all(t.parent is None for t in transfers)


Standing = dict[int, list[tuple[int, Transfer]]]


def _standing(plan: Schedule) -> tuple[Standing, Standing]:
    """Transfers with their values, in the order in which they stand in the placed module: behind the op that makes
    the value (-1: in front of all ops), and in front of the op that reads it.
    """
    graph = plan.graph
    stars = [(v, t) for v, ts in plan.transfers.items() if is_star(ts) for t in ts]
    stars.sort(key=lambda item: item[1].users[0])  # `place` goes from user to user
    others = [(v, t) for v, ts in plan.transfers.items() if not is_star(ts) for t in ts]
    early: Standing = {}
    late: Standing = {}
    for rewired, moves in ((False, stars), (True, others)):
        for value, transfer in moves:
            producer = graph.values[value].producer
            if transfer.at >= 0:
                late.setdefault(transfer.at, []).append((value, transfer))
            elif producer is not None or rewired:  # each is inserted at the very front
                early.setdefault(-1 if producer is None else producer, []).insert(0, (value, transfer))
            else:
                early.setdefault(-1, []).append((value, transfer))
    return early, late


def cost_of(plan: Schedule, shop: Workshop) -> PlanCost:
    """The cost that `evaluate_plan` finds for the placed module of this schedule, without making the module."""
    return measure(work_of(plan, shop), shop.communication)


def work_of(plan: Schedule, shop: Workshop) -> Work:
    """What a device does; sources are indices of ops, and of values for reshards: ``("value", index)``."""
    graph, decision = plan.graph, plan.decision
    communication = shop.communication
    numbers: dict[object, int] = {}

    def number(key: object) -> int:
        return numbers.setdefault(key, len(numbers))

    def size(value: int, layout: Layout) -> int:
        return graph.values[value].itemsize * _local(graph, value, layout)

    reads: dict[tuple[int, int], int] = {}
    for transfers in plan.transfers.values():
        for transfer in transfers:
            reads.update((user, number(id(transfer))) for user in transfer.users)
    early, late = _standing(plan)
    for value, places in plan.makers.items():
        for layout, users in places.items():
            reads.update((user, number((value, layout))) for user in users)

    items: list[Item] = []

    def move(moves: Sequence[tuple[int, Transfer]]) -> None:
        for value, transfer in moves:
            at, parent = graph.values[value], transfer.parent
            source = source_layout(graph, decision, value) if parent is None else parent.target
            assert source is not None
            element = types.element_name(types.element_of(at.ssa))
            steps = communication.collectives(at.shape, at.itemsize, element, source, transfer.target)
            made = [number((id(transfer), i)) for i in range(len(steps) - 1)] + [number(id(transfer))]
            start = number(value) if parent is None else number(id(parent))
            items.extend(reshard_items(steps, communication.price, start, made, ("value", value)))

    move(early.get(-1, ()))
    for index, node in enumerate(graph.nodes):
        move(late.get(index, ()))
        inputs = tuple(
            reads[index, i] if (index, i) in reads else number(v) for i, v in enumerate(node.operands)
        )
        candidate = decision.nodes[index]
        if candidate is None:
            value = node.results[0]
            for layout in plan.makers.get(value) or {Layout.replicated(len(graph.values[value].shape)): []}:
                placement = following(node.operands, graph, layout)
                seconds = shop.op_seconds(node.kind, placement, shards_of(placement))
                write = (number((value, layout)), held(node.op, size(value, layout)))
                items.append(Item(seconds, False, inputs, (write,), node.kind.name in VIEWS, source=index))
            continue
        placement = candidate.placement
        writes = tuple(
            (number(v), size(v, layout)) for v, layout in zip(node.results, placement.results, strict=True)
        )
        edges = communication.edges(node.kind, placement)
        made = [number((index, "edges", i)) for i in range(len(edges))]
        exchanged, inputs = edge_items(edges, communication.price, inputs, made, index)
        items += exchanged
        seconds = shop.op_seconds(node.kind, placement, candidate.shards)
        heavy = node.kind.name in COMPUTE
        items.append(Item(seconds, False, inputs, writes, node.kind.name in VIEWS, heavy=heavy, source=index))
        move(early.get(index, ()))
    move(late.get(len(graph.nodes), ()))
    replaced = {slot.alias for slot in graph.results}
    arguments = [
        (number(i), size(i, layout), i in replaced or graph.arguments[i].role in KEPT)
        for i, layout in enumerate(decision.arguments)
    ]
    ends = []
    for result, value in enumerate(graph.returned):
        buffer = reads.get((len(graph.nodes), result))
        ends.append((number(value) if buffer is None else buffer, graph.results[result].alias))
    return Work(items, arguments, ends)


def following(operands: Sequence[int], graph: Graph, layout: Layout) -> Placement:
    """The placement of an op that follows its users: its operands, if any, are replicated scalars."""
    return Placement(tuple(Layout.replicated(len(graph.values[o].shape)) for o in operands), (layout,))
