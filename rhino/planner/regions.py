"""Pointwise regions: elementwise ops of one shape that work on each other's results and therefore share a layout.

A reshard between two elementwise ops of one shape could as well stand before or after both of them, so the planner
lets a connected set of them (the inside of an activation and its derivative, of a normalisation, of one parameter's
optimizer update) decide once. Ops that can carry a partial operand decide on their own.
"""

from __future__ import annotations

from rhino.ir.disjoint import DisjointSets
from rhino.planner.candidates import Options, Through
from rhino.planner.graph import Graph, Node


def pointwise(node: Node) -> bool:
    """Whether an op has one result and every operand is either a scalar or has exactly the result's dimensions."""
    rule = node.kind.rule
    return (
        not node.free
        and len(rule.results) == 1
        and bool(rule.results[0])
        and len(node.kind.operands) > 0
        and all(not dims or dims == rule.results[0] for dims in rule.operands)
        and any(rule.operands)
        and set(rule.factors) <= {f for dim in rule.results[0] for f in dim}
        and all(rule.kind(f) == "pass" for f in rule.factors)
    )


def regions(graph: Graph, options: Options) -> list[int]:
    """For every op the index of the first op of its region (its own index when it is alone)."""
    sets = DisjointSets(len(graph.nodes))
    able = [
        pointwise(node) and not any(isinstance(c, Through) for c in choices)
        for node, choices in zip(graph.nodes, options.nodes, strict=True)
    ]
    for index, value in enumerate(graph.values):
        if graph.follows(index):
            continue
        members = [user for user, _ in value.uses if able[user]]
        if value.producer is not None and able[value.producer]:
            members.append(value.producer)
        first: dict[object, int] = {}
        for i in members:
            if graph.values[graph.nodes[i].results[0]].shape == value.shape:
                other = first.setdefault((options.nodes[i], value.shape), i)
                sets.join(i, other)
    return [sets.find(i) for i in range(len(graph.nodes))]
