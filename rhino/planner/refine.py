"""Three mesh axes: improve known plans one axis at a time.

A plan on a coarser mesh is a plan on a finer one (an axis of 4 read as 2 x 2), so the best plans found so far are
carried over; then one axis after another chooses anew, with the choices of the others held, until a round brings
nothing. Each step is a network as small as that of a single axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rhino.ir.mesh import Mesh
from rhino.planner.candidates import REPLICATED, Choice, Mark, marks_for
from rhino.planner.network import Decision
from rhino.planner.space import Restriction

if TYPE_CHECKING:
    from rhino.planner.found import Found
    from rhino.planner.search import Search

#: Rounds over all axes.
ROUNDS = 3

Choices = dict[int, tuple[Choice, ...]]
Marks = dict[int, tuple[Mark | None, ...]]


def refine(
    search: Search,
    mesh: Mesh,
    known: Sequence[Found],
    limit: float | None = None,
    ceiling: float = math.inf,
) -> Found:
    """The best plan on `mesh` grown from the best of `known` that is a plan on it, or from the replicated one.

    `limit`, `ceiling`: as in `Search.solve`.
    """
    starts = [found for found in known if embedding(found.mesh, mesh) is not None]
    out: list[Found] = []
    if starts:
        best = search.best(starts)
        where = embedding(best.mesh, mesh)
        assert where is not None
        choices, marks = _read(search, best, where)
    else:
        axes = len(mesh.axes)
        choices = dict.fromkeys(search.folding.nodes, (REPLICATED,) * axes)
        marks = dict.fromkeys(search.folding.arguments, (None,) * axes)
    time = float("inf")
    for _ in range(ROUNDS):
        before = time
        for axis in range(len(mesh.axes)):
            found = search.solve("search", mesh, _hold(choices, marks, axis), limit=limit, ceiling=ceiling)
            out.append(_without_bound(found))
            choices, marks = _read(search, found, tuple(range(len(mesh.axes))))
            time = search.time(found)
        if not time < before * (1 - 1e-6):
            break
    return search.best(out)


def embedding(coarse: Mesh, fine: Mesh) -> tuple[int, ...] | None:
    """For every axis of the fine mesh the axis of the coarse one that it is part of, or None if they do not match."""
    out: list[int] = []
    position, left = 0, coarse.axes[0][1] if coarse.axes else 1
    for _, size in fine.axes:
        while left == 1 and position + 1 < len(coarse.axes):
            position += 1
            left = coarse.axes[position][1]
        if left % size:
            return None
        out.append(position)
        left //= size
    return tuple(out) if left == 1 and position == len(coarse.axes) - 1 else None


def _read(search: Search, found: Found, where: tuple[int, ...]) -> tuple[Choices, Marks]:
    """The choices and marks of a plan, for every axis of the finer mesh those of the axis it is part of."""
    decision: Decision = found.decision
    choices: Choices = {}
    for index in set(search.folding.nodes):
        candidate = decision.nodes[index]
        own = candidate.choices if candidate is not None else (REPLICATED,) * len(found.mesh.axes)
        choices[index] = tuple(own[i] for i in where)
    marks: Marks = {}
    for i in set(search.folding.arguments):
        options = tuple(marks_for(search.options.arguments[i], axis) for axis in found.shop.axes)
        own_marks = found.shop.argument(search.graph.values[i].shape, options)[decision.arguments[i]]
        marks[i] = tuple(own_marks[j] for j in where)
    return choices, marks


def _hold(choices: Choices, marks: Marks, free: int) -> Restriction:
    """Every axis but `free` keeps its choice."""

    def hold_choice(index: int, axis: int, known: tuple[Choice, ...]) -> tuple[Choice, ...]:
        return known if axis == free else (choices[index][axis],)

    def hold_mark(index: int, axis: int, known: tuple[Mark | None, ...]) -> tuple[Mark | None, ...]:
        return known if axis == free else (marks[index][axis],)

    return Restriction(hold_choice, hold_mark)


def _without_bound(found: Found) -> Found:
    """The bound of a step holds for the held choices only."""
    return replace(found, lower_bound=0.0)
