"""Candidate placements: what every op may do with every mesh axis.

A *choice* of an op for one axis is one of

* nothing (`REPLICATED`): every device along the axis does the same work;
* `Cut`: the axis takes a digit of one iteration factor. The period is the factor's size (a contiguous block), or one
  that *follows* from a neighbour: a digit that a reshape, slice or concatenation can pass lands inside a dimension
  of the ops around it (heads in a fused QKV projection, tokens in merged batch and sequence), and travels through
  the program as a mark on values until nothing new appears;
* `Through`: operands that are partial along the axis pass through a linear op, and the result is partial.

An op's candidates are the combinations of its choices over all axes. Axes that share a factor nest in mesh order: a
dimension that is stored in more pieces than it is computed in can put the further axis on its minor side, or on
another dimension, so other orders would only add symmetric plans.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.rule import REDUCTIONS, Dims, Placement, Rule, Split
from rhino.planner.graph import COMPUTE, Graph, Kind, Node

#: Different periods that one factor of one op may be cut with, the largest first.
PERIODS = 4


class Cut(NamedTuple):
    """An axis takes a digit of `factor`; `period` is that of the first (major) axis that does so."""

    factor: str
    period: int


class Through(NamedTuple):
    """Operands `group` are partial of `kind`, and so is the result."""

    kind: str
    group: tuple[int, ...]


Choice = Cut | Through | None
REPLICATED: Choice = None

#: A digit of a tensor: dimension and period of the first axis that takes it.
Mark = tuple[int, int]


@dataclass(frozen=True)
class Candidate:
    """One placement of an op, the number of pieces its work is cut into, and its choice for every axis."""

    placement: Placement
    shards: int
    choices: tuple[Choice, ...]


@dataclass
class Options:
    """Per op its choices, per argument of `@main` the digits it may be cut by; both without regard to a mesh."""

    nodes: list[tuple[Choice, ...]]
    arguments: list[tuple[Mark, ...]]
    marks: list[set[Mark]]
    """Per value the digits that are not contiguous blocks."""


def discover(graph: Graph) -> Options:
    """Work out the choices of every op: its own factors, what follows from its neighbours, partials it can carry."""
    marks: list[set[Mark]] = [set() for _ in graph.values]
    cuts: list[dict[Cut, None]] = [{} for _ in graph.nodes]
    todo: list[tuple[int, Cut]] = []
    for index, node in enumerate(graph.nodes):
        if not node.free:
            todo += [(index, Cut(f, node.kind.rule.sizes[f])) for f in node.kind.rule.factors]
    todo.reverse()
    while todo:
        index, cut = todo.pop()
        node = graph.nodes[index]
        if cut in cuts[index] or _full(cuts[index], cut, node.kind.rule):
            continue
        cuts[index][cut] = None
        for value, mark in _images(node, cut):
            extent = graph.values[value].shape[mark[0]]
            if mark[1] == extent or mark in marks[value] or graph.follows(value):
                continue
            marks[value].add(mark)
            todo += _followers(graph, value, mark)
    partial = _partials(graph)
    nodes = [
        (
            REPLICATED,
            *sorted(cuts[i], key=lambda c: (node.kind.rule.factors.index(c.factor), -c.period)),
            *partial[i],
        )
        for i, node in enumerate(graph.nodes)
    ]
    arguments = [
        tuple(
            sorted(
                {*((d, extent) for d, extent in enumerate(value.shape) if extent > 1), *found},
                key=lambda m: (m[0], -m[1]),
            )
        )
        for value, found in zip(graph.values[: len(graph.arguments)], marks, strict=False)
    ]
    return Options(nodes, arguments, marks)


def _full(known: Iterable[Cut], cut: Cut, rule: Rule) -> bool:
    return cut.period != rule.sizes[cut.factor] and sum(c.factor == cut.factor for c in known) >= PERIODS


def _images(node: Node, cut: Cut) -> list[tuple[int, Mark]]:
    """The digits that a cut of an op gives its operands and results."""
    rule = node.kind.rule
    out = []
    for values, sides in ((node.operands, rule.operands), (node.results, rule.results)):
        for value, dims in zip(values, sides, strict=True):
            if (at := rule.locate(dims, cut.factor)) is not None:
                out.append((value, (at[0], cut.period * at[1])))
    return out


def _followers(graph: Graph, value: int, mark: Mark) -> list[tuple[int, Cut]]:
    """The cuts of the ops around a value that agree with a digit of it."""
    out = []
    at = graph.values[value]
    if at.producer is not None:
        rule = graph.nodes[at.producer].kind.rule
        out += [(at.producer, cut) for cut in cut_of(rule, rule.results[at.port], mark)]
    for user, position in at.uses:
        if not graph.nodes[user].free:
            rule = graph.nodes[user].kind.rule
            out += [(user, cut) for cut in cut_of(rule, rule.operands[position], mark)]
    return out


def cut_of(rule: Rule, dims: Dims, mark: Mark) -> list[Cut]:
    """The factor that a digit of a dimension falls in, as a list of one or none."""
    dim, period = mark
    minor = 1
    for factor in reversed(dims[dim]):
        size = rule.sizes[factor]
        if period % minor == 0:
            inside = period // minor
            if inside > 1 and size % inside == 0:
                barred = rule.kind(factor) == "whole" or (factor in rule.halos and inside != size)
                return [] if barred else [Cut(factor, inside)]
        minor *= size
    return []


def _partials(graph: Graph) -> list[tuple[Through, ...]]:
    """Per op the partial operands it can let through, given what ops before it can make partial."""
    can: list[set[str]] = [set() for _ in graph.values]
    out: list[tuple[Through, ...]] = []
    for node in graph.nodes:
        rule = node.kind.rule
        found = [t for t in _groups(graph, node) if all(t.kind in can[node.operands[i]] for i in t.group)]
        out.append(tuple(dict.fromkeys(found)))
        kinds = {t.kind for t in found}
        for value, dims in zip(node.results, rule.results, strict=True):
            lost = {rule.kind(f) for f in rule.factors if rule.locate(dims, f) is None}
            can[value] = kinds | (lost & set(REDUCTIONS))
    return out


def _groups(graph: Graph, node: Node) -> list[Through]:
    """The partial operands that an op's rule admits and that are worth carrying."""
    rule = node.kind.rule
    if node.free or node.kind.name in COMPUTE:  # a partial operand is resolved before arithmetic
        return []
    out = [Through(kind, tuple(group)) for kind, groups in rule.carries.items() for group in groups]
    for group in rule.linear:
        # A partial times a tensor is as large as the partial and keeps the tensor alive; only scaling is worth it.
        others = [o for i, o in enumerate(node.operands) if i not in group]
        if all(_scalar(graph, o) for o in others):
            out.append(Through("sum", tuple(group)))
    if rule.structural and node.operands:
        out += [Through(kind, tuple(range(len(node.operands)))) for kind in REDUCTIONS]
    return out


def _scalar(graph: Graph, value: int) -> bool:
    return not graph.values[value].shape or graph.follows(value)


def candidates(
    rule: Rule,
    choices: Sequence[Sequence[Choice]],
    axes: Sequence[AxisRef],
    together: Sequence[Sequence[int]] = (),
) -> tuple[Candidate, ...]:
    """All placements of an op whose choices for ``axes[i]`` are ``choices[i]``, but for those that do not divide.

    Axes whose positions stand `together` make the same choice.
    """
    found: dict[Placement, Candidate] = {}
    for combination in itertools.product(*choices):
        if any(len({combination[i] for i in group}) > 1 for group in together):
            continue
        splits = _splits(rule, combination, axes)
        if splits is None:
            continue
        placement = _with_partials(rule, rule.place(splits), combination, axes)
        if placement is not None and placement not in found:
            found[placement] = Candidate(placement, math.prod(s.axis.size for s in splits), combination)
    return tuple(found.values())


def _splits(rule: Rule, combination: Sequence[Choice], axes: Sequence[AxisRef]) -> tuple[Split, ...] | None:
    """The splits of one choice per axis, None when they do not divide; on one factor the first axis is major."""
    per_factor: dict[str, list[tuple[AxisRef, int]]] = {}
    for choice, axis in zip(combination, axes, strict=True):
        if isinstance(choice, Cut):
            per_factor.setdefault(choice.factor, []).append((axis, choice.period))
    out = []
    for factor, digits in per_factor.items():
        nested = _nest(digits)
        if nested is None:
            return None
        out += [Split(axis, factor, period) for axis, period in nested]
    return tuple(out) if rule.halo_error(out) is None else None


def _nest(digits: Sequence[tuple[AxisRef, int]]) -> list[tuple[AxisRef, int]] | None:
    """Digits with their periods: a mark taken again continues inside the chunk, two different ones must nest."""
    out: list[tuple[AxisRef, int]] = []
    left: dict[int, int] = {}
    for axis, mark in digits:
        period = left.get(mark, mark)
        if period % axis.size:
            return None
        out.append((axis, period))
        left[mark] = period // axis.size
    major = sorted(out, key=lambda digit: -digit[1])
    for (axis, period), (_, minor) in itertools.pairwise(major):
        if period // axis.size % minor:
            return None
    return out


def _with_partials(
    rule: Rule, placement: Placement, combination: Sequence[Choice], axes: Sequence[AxisRef]
) -> Placement | None:
    """Add the partials that pass through; None when kinds clash."""
    operands, results = list(placement.operands), list(placement.results)
    through = False
    for choice, axis in zip(combination, axes, strict=True):
        if isinstance(choice, Through):
            through = True
            for atom in Mesh.atoms_of(axis):
                for i in choice.group:
                    operands[i] = operands[i].with_partial(atom, choice.kind)
                results = [r.with_partial(atom, choice.kind) for r in results]
    if any(len({kind for _, kind in layout.partial}) > 1 for layout in (*operands, *results)):
        return None
    return Placement(tuple(operands), tuple(results)) if through else placement


def argument_layouts(
    shape: Sequence[int], marks: Sequence[Sequence[Mark | None]], axes: Sequence[AxisRef]
) -> dict[Layout, tuple[Mark | None, ...]]:
    """All layouts of an argument whose digits for ``axes[i]`` are among ``marks[i]``, each with its digits."""
    found: dict[Layout, tuple[Mark | None, ...]] = {}
    for combination in itertools.product(*marks):
        per_dim: dict[int, list[tuple[AxisRef, int]]] = {}
        for mark, axis in zip(combination, axes, strict=True):
            if mark is not None:
                per_dim.setdefault(mark[0], []).append((axis, mark[1]))
        dims: list[list[Digit]] = [[] for _ in shape]
        for dim, digits in per_dim.items():
            nested = _nest(digits)
            if nested is None:
                break
            dims[dim] = [Digit(axis, period) for axis, period in nested]
        else:
            found.setdefault(Layout.make(dims), combination)
    return found


def divides(period: int, axis: AxisRef) -> bool:
    """Whether a digit of this period can be taken by an axis at all."""
    return period % axis.size == 0


def choices_for(options: Sequence[Choice], axis: AxisRef) -> tuple[Choice, ...]:
    """The choices of an op that are open to one axis."""
    return tuple(c for c in options if not isinstance(c, Cut) or divides(c.period, axis))


def marks_for(marks: Sequence[Mark], axis: AxisRef) -> tuple[Mark | None, ...]:
    """The digits of an argument that are open to one axis."""
    return (None, *(m for m in marks if divides(m[1], axis)))


__all__ = [
    "COMPUTE",
    "REPLICATED",
    "Candidate",
    "Choice",
    "Cut",
    "Kind",
    "Mark",
    "Options",
    "Through",
    "argument_layouts",
    "candidates",
    "choices_for",
    "cut_of",
    "discover",
    "marks_for",
]
