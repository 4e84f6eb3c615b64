"""The search behind `reshard_steps`: which atoms move where, in which order.

Atoms that do the same in both layouts are grouped into *items*; an item is replicated (None), partial (its
kind) or at a *place* ``(dim, period)``. A *move* takes one item (an all-reduce takes several) to another
state. Places in between are those that the two layouts use and their neighbours, plus one free place on
another dimension for items that cannot change their period directly.

Costs are in elements sent per device, times the size of all items to stay in integers. Nothing here depends on what
the atoms are called or on the mesh around them, so one search serves all reshards that look alike.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rhino.ir.layout import Layout
from rhino.ir.mesh import AxisRef, Mesh

Place = tuple[int, int]
Status = Place | str | None
State = tuple[Status, ...]
Cost = tuple[int, int]  # elements sent (scaled), number of moves
EFFORT = 500  # moves that a search looks at before it settles for the chain it was given


@dataclass(frozen=True)
class Item:
    """Atoms (outer first) that move together, `n` coordinates in all."""

    atoms: tuple[AxisRef, ...]
    n: int
    start: Status
    goal: Status

    def nameless(self) -> Item:
        """The item with its atoms' sizes alone, which are all that a search needs."""
        return Item(tuple(AxisRef("", 1, atom.size) for atom in self.atoms), self.n, self.start, self.goal)

    def part(self) -> list[Item]:
        """The atoms as items of their own."""
        out, done = [], 1
        for atom in self.atoms:
            start, goal = (
                (status[0], status[1] // done) if isinstance(status, tuple) else status
                for status in (self.start, self.goal)
            )
            out.append(Item((atom,), atom.size, start, goal))
            done *= atom.size
        return out


@dataclass(frozen=True)
class Move:
    """`items` change from `before` to `after`, which are states of all items."""

    kind: str
    items: tuple[int, ...]
    before: State
    after: State


Fixed = tuple[tuple[tuple[int, int], ...], ...]


def fixed_of(a: Layout, items: Sequence[Item]) -> Fixed:
    """Per dimension ``(period, n)`` of the digits that no item owns."""
    moved = {atom for item in items for atom in item.atoms}
    return tuple(tuple((d.period, d.axis.size) for d in digits if d.axis not in moved) for digits in a.dims)


def items_of(a: Layout, b: Layout, mesh: Mesh) -> list[Item]:
    """The atoms that differ between the layouts; neighbours that move alike are one item."""
    single = [Item((x,), x.size, a.find(x), b.find(x)) for x in mesh.atoms]
    single = [item for item in single if item.start != item.goal]
    if len(single) < 2:
        return single
    out: list[Item] = []
    # Major to minor, so that an item can only be continued by the ones that follow.
    for item in sorted(single, key=lambda i: (_order(i.start), _order(i.goal))):
        for at, head in enumerate(out):
            if _continues(head.n, head.start, item.start) and _continues(head.n, head.goal, item.goal):
                out[at] = Item(head.atoms + item.atoms, head.n * item.n, head.start, head.goal)
                break
        else:
            out.append(item)
    return out


def _order(status: Status) -> tuple[int, int]:
    return (status[0], -status[1]) if isinstance(status, tuple) else (-1, 0)


def _continues(n: int, head: Status, item: Status) -> bool:
    """Whether `item` takes the places right after `head`, whose size is n."""
    if not (isinstance(head, tuple) and isinstance(item, tuple)):
        return head == item
    return head[0] == item[0] and head[1] == item[1] * n


class Problem:
    """One reshard over given items; see the module's docstring."""

    def __init__(self, shape: tuple[int, ...], fixed: Fixed, items: Sequence[Item]) -> None:
        """`fixed` are the digits that stay; see `fixed_of`."""
        self.items = items
        self.shape = shape
        self.scale = math.prod(item.n for item in items)
        self.fixed = fixed
        shards = math.prod(n for digits in self.fixed for _, n in digits)
        self.whole = math.prod(shape) // shards if shards else 0
        self.start: State = tuple(item.start for item in items)
        self.goal: State = tuple(item.goal for item in items)
        self._local: dict[State, int] = {}
        self._digits: dict[State, tuple[tuple[tuple[int, int], ...], ...]] = {}

    def local(self, state: State) -> int:
        """Elements of the local array, scaled."""
        if (known := self._local.get(state)) is not None:
            return known
        out = self.whole * self.scale
        for item, status in zip(self.items, state, strict=True):
            if isinstance(status, tuple):
                out //= item.n
        self._local[state] = out
        return out

    def digits(self, state: State) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per dimension all its digits ``(period, n)``, major to minor."""
        if (known := self._digits.get(state)) is not None:
            return known
        dims = [list(fixed) for fixed in self.fixed]
        for item, status in zip(self.items, state, strict=True):
            if isinstance(status, tuple):
                dims[status[0]].append((status[1], item.n))
        out = tuple(tuple(sorted(dim, reverse=True)) for dim in dims)
        self._digits[state] = out
        return out

    def admits(self, state: State, dim: int, period: int, n: int) -> bool:
        """Whether a further digit fits between those that `dim` has in a well-formed state."""
        if period % n:
            return False
        limit = self.shape[dim]
        for other, size in self.digits(state)[dim]:
            if other <= period:
                return other < period and limit % period == 0 and period // n % other == 0
            limit = other // size
        return limit % period == 0

    def moves_to(self, state: State, i: int, to: Status) -> tuple[str, State] | None:
        """Kind of the step that takes item i to `to`, and the state after; None if there is no such step."""
        now = state[i]
        after = (*state[:i], to, *state[i + 1 :])
        if not isinstance(to, tuple):
            kind = "all_gather" if isinstance(now, tuple) else "all_reduce"
            return kind, after
        # On one dimension the array is first cut and then joined: the digit must fit beside the one it replaces.
        if not self.admits(state, *to, self.items[i].n):
            return None
        kind = "shard" if now is None else "reduce_scatter" if isinstance(now, str) else "all_to_all"
        return kind, after

    def cost(self, kind: str, before: State, n: int) -> int:
        """Scaled elements that a device sends in a step over a group of n."""
        if kind == "shard":
            return 0
        size = self.local(before)
        if kind == "all_gather":
            return size * (n - 1)
        if kind == "permute":
            return size
        sent = size * (n - 1) // n
        return 2 * sent if kind == "all_reduce" else sent

    def total(self, moves: list[Move]) -> Cost:
        sent = sum(self.cost(m.kind, m.before, math.prod(self.items[i].n for i in m.items)) for m in moves)
        return sent, len(moves)

    # -- the direct way ------------------------------------------------------------------------------------

    def direct(self) -> tuple[list[Move], bool]:
        """Every item straight to its goal, slices first, gathers last; and whether nothing can be cheaper.

        With all slices done first and all gathers last, every device receives just what it lacks, apart from
        data that two all-to-alls forward.
        """
        moves: list[Move] = []
        state = self.start
        best = True
        rank = {"shard": 0, "reduce_scatter": 1, "all_to_all": 2, "all_reduce": 3, "all_gather": 4}
        while state != self.goal:
            choice: tuple[tuple[int, int, int], Move] | None = None
            blocked = False
            for i, item in enumerate(self.items):
                if state[i] == item.goal:
                    continue
                step = self.moves_to(state, i, item.goal)
                if step is None:
                    blocked = True
                    if isinstance(state[i], tuple):
                        # The last resort: gather, and slice once the place is free.
                        step = ("all_gather", (*state[:i], None, *state[i + 1 :]))
                        key = (5, item.n, i)
                    else:
                        continue
                else:
                    key = (rank[step[0]], item.n, i)
                if choice is None or key < choice[0]:
                    choice = key, Move(step[0], (i,), state, step[1])
            assert choice is not None, "a blocked item waits for a place that some other item must leave"
            key, move = choice
            best = best and not (blocked and key[0] > 0) and key[0] < 5
            if move.kind == "all_reduce":
                move = self._reduce_all(state)
            moves.append(move)
            state = move.after
        return self._as_permute(moves), best

    def _as_permute(self, moves: list[Move]) -> list[Move]:
        """Several all-to-alls that only change who holds which digit are one permutation, if cheaper."""
        run = [m for m in moves if m.kind == "all_to_all"]
        if len(run) < 2 or any(isinstance(status, str) for status in run[0].before):
            return moves
        before, after = run[0].before, run[-1].after
        at = moves.index(run[0])
        if moves[at : at + len(run)] != run or self.places(before) != self.places(after):
            return moves
        group = tuple(i for i in range(len(before)) if before[i] != after[i])
        if self.cost("permute", before, 1) > self.total(run)[0]:
            return moves
        return [*moves[:at], Move("permute", group, before, after), *moves[at + len(run) :]]

    def _reduce_all(self, state: State) -> Move:
        group = tuple(
            i
            for i, item in enumerate(self.items)
            if isinstance(state[i], str) and not isinstance(item.goal, tuple)
        )
        return Move("all_reduce", group, state, tuple(None if i in group else s for i, s in enumerate(state)))

    # -- the search ----------------------------------------------------------------------------------------

    def search(self, bound: Cost) -> list[Move] | None:
        """The cheapest chain that beats `bound`, by uniform-cost search with an admissible estimate."""
        from rhino.ir import _reshard_best_first as numbers

        options, hard = self._options()
        codes: dict[Status, int] = {None: numbers.REPLICATED}
        met = [*self.start, *self.goal, *itertools.chain.from_iterable(options)]
        places = list(dict.fromkeys(status for status in met if isinstance(status, tuple)))
        codes.update((place, numbers.PLACED + k) for k, place in enumerate(places))
        room = numbers.rooms(len(self.items))
        if len(places) > room:
            return None
        # All costs grow with the array: the smallest one for which they are whole numbers stands for all.
        sent, steps = bound
        whole = self.scale**2 if self.whole else 0
        limit = sent * self.scale // self.whole if self.whole else 0

        def of(state: State) -> list[int]:
            return [numbers.PARTIAL if isinstance(status, str) else codes[status] for status in state]

        rows, table = numbers.best_first(
            _array(self.shape),
            whole,
            _array([(dim, *digit) for dim, digits in enumerate(self.fixed) for digit in digits], 3),
            _array([item.n for item in self.items]),
            _array(of(self.start)),
            _array(of(self.goal)),
            _array(places, 2),
            room,
            _array([(i, codes[place]) for i, mine in enumerate(options) for place in mine], 2),
            _array([(i, codes[place]) for i, place in hard], 2),
            _array((limit, steps)),
            EFFORT,
        )
        return self._moves(rows.tolist(), [None, "", *map(tuple, table.tolist())]) or None

    def _moves(self, rows: Sequence[Sequence[int]], meaning: Sequence[Status]) -> list[Move]:
        """The moves that the rows of a search stand for; `meaning`: of every code."""
        from rhino.ir._reshard_best_first import KINDS, PARTIAL

        out: list[Move] = []
        state = self.start
        for kind, group, *codes in rows:
            # What is partial is so from the start.
            after = tuple(
                first if code == PARTIAL else meaning[code]
                for first, code in zip(self.start, codes, strict=True)
            )
            taking = tuple(i for i in range(len(self.items)) if group >> i & 1)
            out.append(Move(KINDS[kind], taking, state, after))
            state = after
        return out

    def _options(self) -> tuple[list[list[Place]], list[tuple[int, Place]]]:
        """For each item the places it may take on the way: those in use at the ends, and their neighbours. And the
        items at places from which their period cannot change directly to what they want.
        """
        near = {n: self._near(n) for n in {item.n for item in self.items}}
        out: list[list[Place]] = []
        hard: list[tuple[int, Place]] = []
        for i, item in enumerate(self.items):
            mine = dict.fromkeys(near[item.n])
            goal = item.goal
            if isinstance(goal, tuple):
                for dim, period in [*mine, item.start] if isinstance(item.start, tuple) else mine:
                    if dim == goal[0] and not self._alone(dim, (period, item.n), (goal[1], item.n)):
                        hard.append((i, (dim, period)))
            if (
                isinstance(item.start, tuple)
                and isinstance(item.goal, tuple)
                and item.start[0] == item.goal[0]
            ):
                mine.update((place, None) for place in self._free_places(i))
            out.append(list(mine))
        return out, hard

    def _near(self, n: int) -> list[Place]:
        """The places in use at the ends and their neighbours, as far as n members fit there."""
        out: dict[Place, None] = {}
        for item in self.items:
            for status in (item.start, item.goal):
                if not isinstance(status, tuple):
                    continue
                dim, period = status
                for place in ((dim, period), (dim, period // item.n), (dim, period * n)):
                    fits = self.shape[dim] % place[1] == 0 and place[1] % n == 0
                    if fits and place not in out and self._alone(dim, (place[1], n)):
                        out[place] = None
        return list(out)

    def _alone(self, dim: int, *digits: tuple[int, int]) -> bool:
        """Whether digits fit on `dim` beside those that stay."""
        limit = self.shape[dim]
        for period, n in sorted([*self.fixed[dim], *digits], reverse=True):
            if limit % period:
                return False
            limit = period // n
        return True

    def _free_places(self, i: int) -> Iterator[Place]:
        """The minor-most place of every other dimension, out of the way of all places in use."""
        item = self.items[i]
        for dim in range(len(self.shape)):
            if dim == item.start[0]:  # type: ignore[index]
                continue
            chunks = [period // n for period, n in self.fixed[dim]]
            for other in self.items:
                for status in (other.start, other.goal):
                    if isinstance(status, tuple) and status[0] == dim:
                        chunks.append(status[1] // other.n)
            limit = min(chunks, default=self.shape[dim])
            if limit and limit % item.n == 0 and self.admits(self.start, dim, limit, item.n):
                yield dim, limit

    def places(self, state: State) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The digits per dimension whoever holds them, neighbours merged; equal: a permutation will do."""
        return tuple(merge_digits(dim) for dim in self.digits(state))


def merge_digits(digits: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """``(period, n)`` major to minor, those that continue one another joined."""
    if len(digits) < 2:
        return tuple(digits)
    out: list[tuple[int, int]] = []
    for period, n in digits:
        if out and out[-1][0] // out[-1][1] == period:
            out[-1] = (out[-1][0], out[-1][1] * n)
        else:
            out.append((period, n))
    return tuple(out)


def _array(values: Sequence[object], columns: int = 0) -> np.ndarray:
    """Whole numbers, in rows where columns are given."""
    return np.array(values, dtype=np.int64).reshape((-1, columns) if columns else -1)
