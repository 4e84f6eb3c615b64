"""The search behind `reshard_steps`: which atoms move where, in which order.

Atoms that do the same in both layouts are grouped into *items*; an item is replicated (None), partial (its
kind) or at a *place* ``(dim, period)``. A *move* takes one item (an all-reduce takes several) to another
state. Places in between are those that the two layouts use and their neighbours, plus one free place on
another dimension for items that cannot change their period directly.

Costs are in elements sent per device, times the size of all items to stay in integers. Nothing here depends on what
the atoms are called or on the mesh around them, so one search serves all reshards that look alike.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

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
        self._ahead: dict[tuple[int, Status], tuple[int, int, int]] = {}
        self._hard: set[tuple[int, Status]] = set()

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
        options = self._options()
        counter = itertools.count()
        came: dict[State, tuple[Cost, Move | None]] = {self.start: ((0, 0), None)}
        heap: list[tuple[int, int, int, State]] = [(self._left(self.start), 0, next(counter), self.start)]
        closed: set[State] = set()
        tried = 0
        while heap and tried < EFFORT:
            *_, state = heapq.heappop(heap)
            if state == self.goal:
                return self._path(came, state)
            if state in closed:
                continue
            closed.add(state)
            (sent, steps), _ = came[state]
            for kind, group, after in self._next(state, options):
                tried += 1
                n = math.prod(self.items[i].n for i in group)
                cost = (sent + self.cost(kind, state, n), steps + 1)
                estimate = (cost[0] + self._left(after), cost[1] + (after != self.goal))
                if estimate >= bound or (after in came and came[after][0] <= cost):
                    continue
                came[after] = cost, Move(kind, group, state, after)
                heapq.heappush(heap, (*estimate, next(counter), after))
        return None

    @staticmethod
    def _path(came: dict[State, tuple[Cost, Move | None]], state: State) -> list[Move]:
        out = []
        while (move := came[state][1]) is not None:
            out.append(move)
            state = move.before
        return out[::-1]

    def _left(self, state: State) -> int:
        """Scaled elements that a device still has to send, at least.

        Digits that end replicated are gathered; those that end elsewhere take an exchange each (two, if their
        period cannot change directly), or one permutation for all; and arrays are never smaller than after
        all slices.
        """
        size = self.local(state)
        gathered, exchanged = 1, 0
        for i, status in enumerate(state):
            key = i, status
            if (ahead := self._ahead.get(key)) is None:
                ahead = self._ahead[key] = self._item_ahead(i, status)
            size //= ahead[0]
            gathered *= ahead[1]
            exchanged += ahead[2]
        return size * (gathered - 1) + min(size, size * exchanged // self.scale)

    def _item_ahead(self, i: int, status: Status) -> tuple[int, int, int]:
        """What `_left` counts for one item: pieces it is still cut into, and gathered from, and what it exchanges."""
        item = self.items[i]
        if status == item.goal:
            return 1, 1, 0
        if not isinstance(status, tuple):
            return item.n if isinstance(item.goal, tuple) else 1, 1, 0
        if item.goal is None:
            return 1, item.n, 0
        hard = (i, status) in self._hard
        return 1, 1, (2 if hard else 1) * (self.scale - self.scale // item.n)

    def _options(self) -> list[list[Place]]:
        """For each item the places it may take on the way: those in use at the ends, and their neighbours."""
        used = [
            (status[0], status[1], item.n)
            for item in self.items
            for status in (item.start, item.goal)
            if isinstance(status, tuple)
        ]
        out = []
        for i, item in enumerate(self.items):
            mine: dict[Place, None] = {}
            goal = item.goal
            for dim, period, n in used:
                for near in (period, period // n, period * item.n):
                    fits = self.shape[dim] % near == 0 and near % item.n == 0
                    if fits and self._alone(dim, (near, item.n)):
                        mine[dim, near] = None
            if isinstance(goal, tuple):
                for dim, near in [*mine, item.start] if isinstance(item.start, tuple) else mine:
                    if dim == goal[0] and not self._alone(dim, (near, item.n), (goal[1], item.n)):
                        self._hard.add((i, (dim, near)))
            if (
                isinstance(item.start, tuple)
                and isinstance(item.goal, tuple)
                and item.start[0] == item.goal[0]
            ):
                mine.update((place, None) for place in self._free_places(i))
            out.append(list(mine))
        return out

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

    def _next(self, state: State, options: list[list[Place]]) -> Iterator[tuple[str, tuple[int, ...], State]]:
        """Moves worth trying: a free way to the goal is taken, and alternatives only where there is none."""
        partial = [i for i, status in enumerate(state) if isinstance(status, str)]
        straight: list[tuple[str, tuple[int, ...], State]] = []
        blocked: list[int] = []
        for i, item in enumerate(self.items):
            if state[i] == item.goal or (item.goal is None and isinstance(state[i], str)):
                continue
            step = self.moves_to(state, i, item.goal)
            if step is None:
                blocked.append(i)
            elif step[0] == "shard":  # free, and everything after it gets cheaper
                yield step[0], (i,), step[1]
                return
            else:
                straight.append((step[0], (i,), step[1]))
        scatters = [move for move in straight if move[0] == "reduce_scatter"]
        if scatters and all(state[i] is not None for i in blocked):
            yield scatters[0]
            return
        yield from straight
        if partial:
            whole = tuple(i for i in partial if not isinstance(self.items[i].goal, tuple))
            for group in dict.fromkeys((whole, tuple(partial))):
                if group:
                    yield "all_reduce", group, tuple(None if i in group else s for i, s in enumerate(state))
        for i in blocked:
            if isinstance(state[i], tuple):
                yield "all_gather", (i,), (*state[:i], None, *state[i + 1 :])
            for to in options[i]:
                if to != state[i] and (step := self.moves_to(state, i, to)) is not None:
                    yield step[0], (i,), step[1]
        if partial:
            return
        after = [self.goal]
        if self.places(state) != self._goal_places:
            after = [s for s in dict.fromkeys((self._exchange(state), self._reorder(state))) if s != state]
        for to_state in after:
            yield "permute", tuple(i for i, s in enumerate(state) if s != to_state[i]), to_state

    def places(self, state: State) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The digits per dimension whoever holds them, neighbours merged; equal: a permutation will do."""
        return tuple(merge_digits(dim) for dim in self.digits(state))

    @cached_property
    def _goal_places(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        return self.places(self.goal)

    def _exchange(self, state: State) -> State:
        """The state after a device permutation that gives items the places they want and others hold."""
        after = list(state)
        for i, item in enumerate(self.items):
            if isinstance(item.goal, tuple) and after[i] != item.goal:
                for j, other in enumerate(self.items):
                    if after[j] == item.goal and other.n == item.n:
                        after[i], after[j] = after[j], after[i]
                        break
        return tuple(after)

    @staticmethod
    def _on(status: Status, dim: int) -> bool:
        return isinstance(status, tuple) and status[0] == dim

    def _reorder(self, state: State) -> State:
        """The state after a device permutation within each run of neighbouring digits, to fit the goal."""
        after = list(state)
        for dim in range(len(self.shape)):
            held = [(s[1], i) for i, s in enumerate(state) if isinstance(s, tuple) and s[0] == dim]
            held.sort(reverse=True)
            runs: list[list[int]] = []
            end = 0
            for period, i in held:
                if period != end:
                    runs.append([])
                runs[-1].append(i)
                end = period // self.items[i].n
            for run in runs:
                at: int = state[run[0]][1]  # type: ignore[index,assignment]
                wanted = {self.items[i].goal: i for i in run}
                others = {i for i in run if not self._on(self.items[i].goal, dim)}
                left = list(run)
                while left:
                    i = wanted.get((dim, at), -1)
                    if i not in left:
                        i = next((j for j in left if j in others), left[0])
                    left.remove(i)
                    after[i] = (dim, at)
                    at //= self.items[i].n
        return tuple(after)


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
