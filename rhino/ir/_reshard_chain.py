"""The answer of `reshard_steps` without names: which groups of items step how, and where that leaves them.

It depends on sizes, places and periods alone, so it is worked out once for all reshards that look alike, on whatever
axes and meshes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rhino.ir._reshard_search import Fixed, Item, Move, Problem, State


@dataclass(frozen=True)
class Phase:
    """A step without the names of its axes: `group` are the items that take part; otherwise as in `Step`."""

    kind: str
    group: tuple[int, ...]
    after: State
    reduction: str | None = None
    dim: int | None = None
    period: int | None = None
    to_dim: int | None = None
    to_period: int | None = None


@dataclass(frozen=True)
class Chain:
    """Per given item whether it moves atom by atom, then the steps of what that makes of the items.

    `cost` is ``(elements sent per device, times the size of all items; number of steps)``.
    """

    parted: tuple[bool, ...]
    cost: tuple[int, int]
    phases: tuple[Phase, ...]

    def part(self, items: Sequence[Item]) -> list[Item]:
        """The items that the steps are about."""
        return _part(items, self.parted)


@lru_cache(maxsize=1 << 18)
def chain_of(shape: tuple[int, ...], fixed: Fixed, items: tuple[Item, ...]) -> Chain:
    """The cheapest chain for `items` (nameless ones, so that equal questions are recognised)."""
    whole = (False,) * len(items)
    problem = Problem(shape, fixed, items)
    moves, best = problem.direct()
    chain = _emit(problem, moves, whole)
    if best:
        return chain
    found = problem.search(problem.total(moves))
    if found is not None:
        moves = found
        chain = min(chain, _emit(problem, found, whole), key=_cost)
    # Atoms that move alike may have to part: when the whole group has no direct way, or is blocked where a
    # part of it is not. Only exchanges are cheaper together.
    loose = tuple(
        sum(i in move.items for move in moves) > 1
        or not (isinstance(item.start, tuple) and isinstance(item.goal, tuple))
        for i, item in enumerate(items)
    )
    parted = _part(items, loose)
    if len(parted) > len(items):
        problem = Problem(shape, fixed, parted)
        moves, best = problem.direct()
        if not best:
            moves = problem.search(problem.total(moves)) or moves
        chain = min(chain, _emit(problem, moves, loose), key=_cost)
    return chain


def _part(items: Sequence[Item], loose: Sequence[bool]) -> list[Item]:
    return [one for item, part in zip(items, loose, strict=True) for one in (item.part() if part else [item])]


def _cost(chain: Chain) -> tuple[int, int]:
    return chain.cost


def _emit(problem: Problem, moves: Sequence[Move], parted: tuple[bool, ...]) -> Chain:
    """Turn moves into steps, joining moves of one kind that add or remove one contiguous digit."""
    phases: list[Phase] = []
    state = problem.start
    sent = 0
    for kind, run in itertools.groupby(moves, key=lambda m: m.kind):
        many = list(run)
        if kind in ("permute", "all_reduce"):
            groups = [move.items for move in many]
        elif kind == "all_to_all":
            groups = _join_exchanges(problem, many)
        else:
            groups = _join(problem, many, state)
        final = many[-1].after
        for group in groups:
            after = final if kind == "permute" and len(many) == 1 else _advance(state, group, many)
            phases.append(_phase(problem, kind, tuple(group), state, after))
            sent += problem.cost(kind, state, math.prod(problem.items[i].n for i in group))
            state = after
    return Chain(parted, (sent, len(phases)), tuple(phases))


def _phase(problem: Problem, kind: str, group: tuple[int, ...], before: State, after: State) -> Phase:
    if kind == "permute":
        return Phase(kind, group, after)
    now, to = before[group[0]], after[group[0]]
    # On one dimension an exchange cuts while its own digit is still there, and joins when the new one is.
    without = set() if kind == "all_to_all" else set(group)
    reduction = now if isinstance(now, str) else None
    dim = period = to_dim = to_period = None
    if isinstance(now, tuple):
        dim = now[0]
        period = now[1] // _minor(problem, after, dim, now[1], without)
    if isinstance(to, tuple):
        to_dim = to[0]
        to_period = to[1] // _minor(problem, before, to_dim, to[1], without)
        if kind != "all_to_all":
            dim, period, to_dim, to_period = to_dim, to_period, None, None
    return Phase(kind, group, after, reduction, dim, period, to_dim, to_period)


def _advance(state: State, group: Sequence[int], moves: Sequence[Move]) -> State:
    """`state` with the items of `group` where the move that takes them leaves them."""
    out = list(state)
    for i in group:
        for move in moves:
            if i in move.items and move.before[i] == state[i]:
                out[i] = move.after[i]
                break
    return tuple(out)


def _place(kind: str, move: Move) -> tuple[int, int]:
    status = move.before[move.items[0]] if kind == "all_gather" else move.after[move.items[0]]
    assert isinstance(status, tuple)
    return status


def _join(problem: Problem, moves: Sequence[Move], state: State) -> list[tuple[int, ...]]:
    """Groups of items that slice, gather or reduce-scatter as one digit; such moves may change order."""
    kind = moves[0].kind
    order = sorted(moves, key=lambda m: (_place(kind, m)[0], -_place(kind, m)[1], m.items))
    busy = {m.items[0] for m in moves}
    groups: list[list[int]] = []
    tail: tuple[int, int, int] | None = None  # dim, local period and size of the last one in the group
    for move in order:
        i = move.items[0]
        dim, period = _place(kind, move)
        n = problem.items[i].n
        local = period // _minor(problem, state, dim, period, busy)
        if tail is not None and tail[0] == dim and tail[1] == local * tail[2]:
            groups[-1].append(i)
        else:
            groups.append([i])
        tail = dim, local, n
    return [tuple(group) for group in groups]


def _join_exchanges(problem: Problem, moves: Sequence[Move]) -> list[tuple[int, ...]]:
    """Groups of consecutive all-to-alls that move one contiguous digit from one dimension to another."""
    if len({m.items[0] for m in moves}) < len(moves):  # an item that passes through an intermediate place
        return [m.items for m in moves]
    groups: list[tuple[int, ...]] = []
    last: tuple[tuple[int, int], tuple[int, int], Move] | None = None
    for move in moves:
        (i,) = move.items
        now, to = move.before[i], move.after[i]
        assert isinstance(now, tuple) and isinstance(to, tuple)
        if last is not None and now[0] != to[0] and (last[0][0], last[1][0]) == (now[0], to[0]):
            group = (*groups[-1], i) if now[1] < last[0][1] else (i, *groups[-1])
            if _contiguous(problem, group, moves):
                groups[-1] = group
                last = now, to, move
                continue
        groups.append((i,))
        last = now, to, move
    return groups


def _contiguous(problem: Problem, group: Sequence[int], moves: Sequence[Move]) -> bool:
    first = {m.items[0]: m for m in moves}
    for side in ("before", "after"):
        tail: tuple[int, int] | None = None
        for i in group:
            state = getattr(first[i], side)
            dim, period = state[i]
            local = period // _minor(problem, state, dim, period, set(group))
            if tail is not None and tail[0] != local * tail[1]:
                return False
            tail = local, problem.items[i].n
    return True


def _minor(problem: Problem, state: State, dim: int, period: int, without: set[int]) -> int:
    """Product of the digits minor to `period` on `dim`, those of the items `without` left out."""
    out = math.prod(n for p, n in problem.fixed[dim] if p < period)
    for j, (item, status) in enumerate(zip(problem.items, state, strict=True)):
        if j not in without and isinstance(status, tuple) and status[0] == dim and status[1] < period:
            out *= item.n
    return out
