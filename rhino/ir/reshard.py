"""Resharding: the cheapest chain of communication steps from one layout of a tensor to another.

A step acts on groups of devices (those that differ on `axes` only, ordered by their coordinate on them). On a
dimension it adds or removes one digit of the *local* array: with n members and local period P, index l of
the array that lacks the digit belongs to member ``(l mod P) // (P / n)``; a backend reshapes the dimension
to ``[e / P, n, P / n]`` and works on the middle part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rhino.ir._reshard_search import Item, Move, Problem, State, items_of
from rhino.ir.errors import LayoutError
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh, merge_refs


@dataclass(frozen=True)
class Step:
    """One local slice or collective; see the module's docstring.

    Attributes:
        kind: ``shard`` (local slice), ``all_gather``, ``all_reduce``, ``reduce_scatter``, ``all_to_all`` or
            ``permute``.
        axes: the merged sub-axes whose groups take part, outer first.
        before, after: the layouts before and after the step.
        reduction: what all_reduce and reduce_scatter combine with.
        dim, period: dimension and local period of the digit that shard and reduce_scatter add (counted in the
            array before), or that all_gather and all_to_all remove (counted in the array after).
        to_dim, to_period: the digit that all_to_all adds, counted in the array before. The array is first cut
            by it, the pieces exchanged, then joined along `dim`.
        pairs: ``(source, target)`` devices of a permute, for every device once as source and once as target.
    """

    kind: str
    axes: tuple[AxisRef, ...]
    before: Layout
    after: Layout
    reduction: str | None = None
    dim: int | None = None
    period: int | None = None
    to_dim: int | None = None
    to_period: int | None = None
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def group_size(self) -> int:
        """Devices per group."""
        return math.prod(axis.size for axis in self.axes)

    def wire_bytes(self, shape: Sequence[int], itemsize: int) -> int:
        """Bytes that each device sends (ring or pairwise algorithm); `shape` is the global shape."""
        n = self.group_size
        operand = math.prod(self.before.local_shape(shape)) * itemsize
        match self.kind:
            case "shard":
                return 0
            case "all_gather":
                return operand * (n - 1)
            case "all_reduce":
                return -(-2 * operand * (n - 1) // n)
            case "permute":
                return operand if any(s != t for s, t in self.pairs) else 0
            case _:
                return operand * (n - 1) // n


@lru_cache(maxsize=1 << 18)
def reshard_steps(shape: tuple[int, ...], a: Layout, b: Layout, mesh: Mesh) -> tuple[Step, ...]:
    """The steps that take a tensor of global `shape` from layout `a` to `b`; fewest bytes, then fewest steps.

    Empty when the layouts are equal. Raises LayoutError when a layout is ill-formed for `shape`, or when no
    step leads to `b`: nothing becomes partial, and a partial kind does not change.
    """
    if a == b:
        return ()
    a.check(shape)
    b.check(shape)
    items = items_of(a, b, mesh)
    for item in items:
        if isinstance(item.goal, str):
            now = (
                "replicated"
                if item.start is None
                else "split"
                if isinstance(item.start, tuple)
                else item.start
            )
            raise LayoutError(
                f"axis '{item.atoms[0].name}': a tensor that is {now} cannot become partial {item.goal}",
                remedy="partial layouts only come out of ops; ask for a replicated or split one",
            )
    problem = Problem(shape, a, items, mesh)
    moves, best = problem.direct()
    steps = _emit(problem, moves, a, mesh)
    if best:
        return steps
    found = problem.search(problem.total(moves))
    if found is not None:
        moves = found
        steps = min(steps, _emit(problem, found, a, mesh), key=lambda s: _cost(s, shape, mesh))
    # Atoms that move alike may have to part: when the whole group has no direct way, or is blocked where a
    # part of it is not. Only exchanges are cheaper together.
    loose = [
        sum(i in move.items for move in moves) > 1
        or not (isinstance(item.start, tuple) and isinstance(item.goal, tuple))
        for i, item in enumerate(items)
    ]
    parted = [
        one for item, part in zip(items, loose, strict=True) for one in (item.part() if part else [item])
    ]
    if len(parted) > len(items):
        problem = Problem(shape, a, parted, mesh)
        moves, best = problem.direct()
        if not best:
            moves = problem.search(problem.total(moves)) or moves
        steps = min(steps, _emit(problem, moves, a, mesh), key=lambda s: _cost(s, shape, mesh))
    return steps


def wire_bytes(steps: Sequence[Step], shape: Sequence[int], itemsize: int) -> int:
    """Bytes that each device sends in all `steps`."""
    return sum(step.wire_bytes(shape, itemsize) for step in steps)


def _cost(steps: Sequence[Step], shape: Sequence[int], mesh: Mesh) -> tuple[int, int]:
    # Every group size divides the mesh's, so with this item size nothing is rounded.
    return wire_bytes(steps, shape, mesh.size), len(steps)


def _emit(problem: Problem, moves: Sequence[Move], a: Layout, mesh: Mesh) -> tuple[Step, ...]:
    """Turn moves into steps, joining moves of one kind that add or remove one contiguous digit."""
    steps: list[Step] = []
    kept = a.without([x for item in problem.items for x in item.atoms])
    state, layout = problem.start, a
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
            to_layout = _layout(problem.items, kept, after)
            steps.append(_step(problem, kind, group, layout, to_layout, (state, after), mesh))
            state, layout = after, to_layout
    return tuple(steps)


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


def _layout(items: Sequence[Item], kept: Layout, state: State) -> Layout:
    dims: list[list[Digit]] = [list(digits) for digits in kept.dims]
    partial = list(kept.partial)
    for item, status in zip(items, state, strict=True):
        if isinstance(status, tuple):
            period = status[1]
            for atom in item.atoms:
                dims[status[0]].append(Digit(atom, period))
                period //= atom.size
        elif isinstance(status, str):
            partial += [(atom, status) for atom in item.atoms]
    # All axes are atoms here, so this is what `Layout.make` would do, without looking for their factors.
    return Layout(
        tuple(
            tuple(sorted(digits, key=_descending)) if len(digits) > 1 else tuple(digits) for digits in dims
        ),
        tuple(sorted(partial)),
    )


def _descending(digit: Digit) -> int:
    return -digit.period


def _step(
    problem: Problem,
    kind: str,
    group: Sequence[int],
    before: Layout,
    after: Layout,
    ends: tuple[State, State],
    mesh: Mesh,
) -> Step:
    items = problem.items
    atoms = [atom for i in group for atom in items[i].atoms]
    if kind in ("permute", "all_reduce"):
        atoms.sort(key=mesh.order)
    axes = merge_refs(atoms)
    if kind == "permute":
        return Step(kind, axes, before, after, pairs=_pairs(before, after, mesh))
    now, to = ends[0][group[0]], ends[1][group[0]]
    # On one dimension an exchange cuts while its own digit is still there, and joins when the new one is.
    without = set() if kind == "all_to_all" else set(group)
    reduction = now if isinstance(now, str) else None
    dim = period = to_dim = to_period = None
    if isinstance(now, tuple):
        dim = now[0]
        period = now[1] // _minor(problem, ends[1], dim, now[1], without)
    if isinstance(to, tuple):
        to_dim = to[0]
        to_period = to[1] // _minor(problem, ends[0], to_dim, to[1], without)
        if kind != "all_to_all":
            dim, period, to_dim, to_period = to_dim, to_period, None, None
    return Step(kind, axes, before, after, reduction, dim, period, to_dim, to_period)


def _pairs(before: Layout, after: Layout, mesh: Mesh) -> tuple[tuple[int, int], ...]:
    """Who sends to whom, so that every device gets the piece `after` wants; as many as can keep theirs."""
    spare: dict[object, list[int]] = {}
    for device in mesh.devices():
        spare.setdefault(_piece(before, mesh, device), []).append(device)
    pairs = []
    waiting = []
    for device in mesh.devices():
        piece = _piece(after, mesh, device)
        if device in spare[piece]:
            spare[piece].remove(device)
            pairs.append((device, device))
        else:
            waiting.append((device, piece))
    pairs += [(spare[piece].pop(0), device) for device, piece in waiting]
    return tuple(sorted(pairs))


def _piece(layout: Layout, mesh: Mesh, device: int) -> tuple[object, ...]:
    """The piece of the tensor that a device holds, named alike in all layouts that cut it alike."""
    out: list[object] = []
    for digits in layout.dims:
        runs: list[list[int]] = []  # period, chunk, value
        for digit in digits:
            value = mesh.coordinate(device, (digit.axis,))
            if runs and runs[-1][1] == digit.period:
                runs[-1][1], runs[-1][2] = digit.chunk, runs[-1][2] * digit.axis.size + value
            else:
                runs.append([digit.period, digit.chunk, value])
        out.append(tuple(tuple(run) for run in runs))
    out.append(mesh.coordinate(device, [atom for atom, _ in layout.partial]))
    return tuple(out)
