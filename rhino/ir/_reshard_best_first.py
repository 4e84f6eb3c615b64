"""The best-first search of `rhino.ir._reshard_search` on plain numbers, compiled.

An item's status is a code: 0 replicated, 1 partial, ``2 + k`` at place k of a table of places ``(dim, period)``, which
grows when a permutation leads to a new one. States are told apart by the codes of all items in one number, in which
every item has the same bits; moves to a place whose code has no room in them are left out. All arrays are int64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

REPLICATED, PARTIAL, PLACED = 0, 1, 2
KINDS = ("shard", "reduce_scatter", "all_to_all", "all_reduce", "all_gather", "permute")
SHARD, REDUCE_SCATTER, ALL_TO_ALL, ALL_REDUCE, ALL_GATHER, PERMUTE = range(6)

#: What is called from compiled code alone. Nothing is divided by zero here: checking for it takes long to compile.
part = njit(error_model="numpy")

#: Bits of a state.
WIDTH = 62


def rooms(items: int) -> int:
    """Places that a state of so many items can name."""
    return min((1 << WIDTH // items) - PLACED, 1 << 10)


@njit(cache=True, error_model="numpy")
def best_first(  # type: ignore[no-untyped-def]
    shape, whole, fixed, sizes, starts, goals, places, room, options, hard, bound, effort
):
    """The cheapest chain below `bound`, as ``(steps, table of places)``.

    Args:
        shape: ``[dims]``.
        whole: elements of the array with all items replicated, times the size of all items.
        fixed: ``[digits, 3]``: dim, period and size of the digits that stay.
        sizes, starts, goals: ``[items]``: members, and codes.
        places: ``[places, 2]``: dim and period of the codes from 2 on.
        room: the most places that there may be.
        options: ``[choices, 2]``: an item, and the code of a place that it may take on the way, item by item.
        hard: ``[choices, 2]``: an item, and the code of a place from which it cannot go to its goal directly.
        bound: ``[2]``: elements sent (scaled) and steps.
        effort: moves that are looked at before the search gives up.

    Steps are rows of kind, items (a bit for each), and the codes of all items after it; no row where nothing below the
    bound was found.
    """
    count = len(sizes)
    bits = WIDTH // count
    table = np.zeros((room, 2), dtype=np.int64)
    _copy(places.ravel(), table.ravel())
    known = len(places)
    scale = 1
    for n in sizes:
        scale *= n
    is_hard = np.zeros((count, PLACED + room), dtype=np.bool_)
    for k in range(len(hard)):
        is_hard[hard[k, 0], hard[k, 1]] = True
    end = _merged(_digits(goals, sizes, fixed, table))
    moves = np.zeros((2 * count + 4 + len(options), 2 + count), dtype=np.int64)

    # Per state met: its codes, and as one number; what it cost, in how many steps; the state before, the kind of step
    # and its items. A few hundred are found and ordered soonest by looking at all.
    capacity = effort + len(moves) + 1
    codes = np.zeros((capacity, count), dtype=np.int64)
    names = np.zeros(capacity, dtype=np.int64)
    record = np.zeros((capacity, 5), dtype=np.int64)
    closed = np.zeros(capacity, dtype=np.bool_)
    _copy(starts, codes[0])
    names[0] = _packed(starts, bits)
    met = 1
    # What is still to be looked at: least cost and least steps of a chain through it; a state.
    waiting = np.zeros((capacity, 3), dtype=np.int64)
    waiting[0, 0] = _left(starts, goals, sizes, whole, scale, is_hard)
    made, tried, found = 1, 0, 0
    gone = np.zeros(capacity, dtype=np.bool_)
    while tried < effort:
        first = -1
        for k in range(made):  # of equals the one that came first
            if not gone[k] and (
                first < 0
                or waiting[k, 0] < waiting[first, 0]
                or (waiting[k, 0] == waiting[first, 0] and waiting[k, 1] < waiting[first, 1])
            ):
                first = k
        if first < 0:
            break
        gone[first] = True
        at = waiting[first, 2]
        state = codes[at]
        if _same(state, goals):
            found = at
            break
        if closed[at]:
            continue
        closed[at] = True
        ways, known = _moves(moves, state, goals, sizes, shape, fixed, table, known, options, end)
        size = _local(state, sizes, whole)
        for m in range(ways):
            tried += 1
            after = moves[m, 2:]
            n = 1
            for i in range(count):
                if moves[m, 1] >> i & 1:
                    n *= sizes[i]
            sent, length = record[at, 0] + _cost(moves[m, 0], size, n), record[at, 1] + 1
            estimate = sent + _left(after, goals, sizes, whole, scale, is_hard)
            least = length if _same(after, goals) else length + 1
            if estimate > bound[0] or (estimate == bound[0] and least >= bound[1]):
                continue
            name = _packed(after, bits)
            other = 0
            while other < met and names[other] != name:
                other += 1
            if other == met:
                met += 1
                names[other] = name
                _copy(after, codes[other])
            elif record[other, 0] < sent or (record[other, 0] == sent and record[other, 1] <= length):
                continue
            record[other, 0], record[other, 1], record[other, 2] = sent, length, at
            record[other, 3], record[other, 4] = moves[m, 0], moves[m, 1]
            waiting[made, 0], waiting[made, 1], waiting[made, 2] = estimate, least, other
            made += 1
    rows = 0
    at = found
    while at > 0:
        rows += 1
        at = record[at, 2]
    steps = np.zeros((rows, 2 + count), dtype=np.int64)
    at = found
    for row in range(rows - 1, -1, -1):
        steps[row, 0], steps[row, 1] = record[at, 3], record[at, 4]
        _copy(codes[at], steps[row, 2:])
        at = record[at, 2]
    return steps, table[:known]


@part
def _copy(source, target):  # type: ignore[no-untyped-def]
    """What an assignment to a slice does, without the texts of its errors, which take long to compile."""
    for i in range(len(source)):
        target[i] = source[i]


@part
def _same(a, b):  # type: ignore[no-untyped-def]
    different = 0
    for i in range(len(a)):
        different += a[i] != b[i]
    return different == 0


@part
def _packed(state, bits):  # type: ignore[no-untyped-def]
    out = np.int64(0)
    for code in state:
        out = out << bits | code
    return out


@part
def _local(state, sizes, whole):  # type: ignore[no-untyped-def]
    """Elements of the local array, scaled."""
    out = whole
    for i in range(len(state)):
        if state[i] >= PLACED:
            out //= sizes[i]
    return out


@part
def _cost(kind, size, n):  # type: ignore[no-untyped-def]
    """Scaled elements that a device sends in a step over a group of n, from an array of `size`."""
    if kind == SHARD:
        return 0
    if kind == ALL_GATHER:
        return size * (n - 1)
    if kind == PERMUTE:
        return size
    sent = size * (n - 1) // n
    return 2 * sent if kind == ALL_REDUCE else sent


@part
def _left(state, goals, sizes, whole, scale, is_hard):  # type: ignore[no-untyped-def]
    """Scaled elements that a device still has to send, at least.

    Digits that end replicated are gathered; those that end elsewhere take an exchange each (two, if their period cannot
    change directly), or one permutation for all; and arrays are never smaller than after all slices.
    """
    size = _local(state, sizes, whole)
    gathered, exchanged = 1, 0
    for i in range(len(state)):
        if state[i] == goals[i]:
            continue
        if state[i] < PLACED:
            if goals[i] >= PLACED:
                size //= sizes[i]
        elif goals[i] == REPLICATED:
            gathered *= sizes[i]
        else:
            exchanged += (2 if is_hard[i, state[i]] else 1) * (scale - scale // sizes[i])
    return size * (gathered - 1) + min(size, size * exchanged // scale)


@part
def _digit(k, state, sizes, fixed, table):  # type: ignore[no-untyped-def]
    """Dim, period and size of digit k, those that stay first; dim -1 for an item that is at no place."""
    if k < len(fixed):
        return fixed[k, 0], fixed[k, 1], fixed[k, 2]
    i = k - len(fixed)
    if state[i] < PLACED:
        return -1, 0, 1
    return table[state[i] - PLACED, 0], table[state[i] - PLACED, 1], sizes[i]


@part
def _admits(state, sizes, shape, fixed, table, dim, period, n):  # type: ignore[no-untyped-def]
    """Whether a further digit fits between those that `dim` has in a well-formed state."""
    if period % n:
        return False
    # The next digits on either side of it.
    major, below, size = 0, 0, 1
    for k in range(len(fixed) + len(state)):
        on, other, members = _digit(k, state, sizes, fixed, table)
        if on != dim:
            continue
        if other <= period:
            below = max(below, other)
        elif major == 0 or other < major:
            major, size = other, members
    limit = major // size if major else shape[dim]
    return limit % period == 0 and (below == 0 or (below < period and period // n % below == 0))


@part
def _step(state, i, to, sizes, shape, fixed, table):  # type: ignore[no-untyped-def]
    """Kind of the step that takes item i to `to`; -1 if there is none."""
    if to < PLACED:
        return ALL_GATHER if state[i] >= PLACED else ALL_REDUCE
    # On one dimension the array is first cut and then joined: the digit must fit beside the one it replaces.
    if not _admits(state, sizes, shape, fixed, table, table[to - PLACED, 0], table[to - PLACED, 1], sizes[i]):
        return -1
    if state[i] == REPLICATED:
        return SHARD
    return REDUCE_SCATTER if state[i] == PARTIAL else ALL_TO_ALL


@part
def _digits(state, sizes, fixed, table):  # type: ignore[no-untyped-def]
    """All digits as rows of dim, period and size: dimension by dimension, major to minor."""
    out = np.zeros((len(fixed) + len(state), 3), dtype=np.int64)
    made = 0
    for k in range(len(out)):
        dim, period, n = _digit(k, state, sizes, fixed, table)
        if dim < 0:
            continue
        at = made
        while at > 0 and (
            out[at - 1, 0] > dim
            or (out[at - 1, 0] == dim and (out[at - 1, 1] < period))
            or (out[at - 1, 0] == dim and out[at - 1, 1] == period and out[at - 1, 2] < n)
        ):
            _copy(out[at - 1], out[at])
            at -= 1
        out[at, 0], out[at, 1], out[at, 2] = dim, period, n
        made += 1
    return out[:made]


@part
def _merged(digits):  # type: ignore[no-untyped-def]
    """Digits with those that continue one another joined."""
    out = np.zeros_like(digits)
    made = 0
    for k in range(len(digits)):
        dim, period, n = digits[k, 0], digits[k, 1], digits[k, 2]
        if made and out[made - 1, 0] == dim and out[made - 1, 1] // out[made - 1, 2] == period:
            out[made - 1, 2] *= n
        else:
            out[made, 0], out[made, 1], out[made, 2] = dim, period, n
            made += 1
    return out[:made]


@part
def _moves(moves, state, goals, sizes, shape, fixed, table, known, options, end):  # type: ignore[no-untyped-def]
    """Write the moves worth trying to `moves`: a free way to the goal is taken, and alternatives only where there is
    none. Returns how many they are, and how many places are known.
    """
    count = len(state)
    made = 0
    blocked = np.zeros(count, dtype=np.bool_)
    scatter, filled, any_partial = -1, True, False
    for i in range(count):
        any_partial |= state[i] == PARTIAL
        if state[i] == goals[i] or (goals[i] == REPLICATED and state[i] == PARTIAL):
            continue
        kind = _step(state, i, goals[i], sizes, shape, fixed, table)
        if kind < 0:
            blocked[i] = True
            filled &= state[i] != REPLICATED
            continue
        if kind == SHARD:  # free, and everything after it gets cheaper
            return _put(moves, 0, kind, 1 << i, state, i, goals[i]), known
        if kind == REDUCE_SCATTER and scatter < 0:
            scatter = i
        made = _put(moves, made, kind, 1 << i, state, i, goals[i])
    if scatter >= 0 and filled:
        return _put(moves, 0, REDUCE_SCATTER, 1 << scatter, state, scatter, goals[scatter]), known
    if any_partial:
        before = 0
        for every in (False, True):
            group = 0
            for i in range(count):
                if state[i] == PARTIAL and (every or goals[i] < PLACED):
                    group |= 1 << i
            if group and group != before:
                made = _put(moves, made, ALL_REDUCE, group, state, 0, state[0])
                for i in range(count):
                    if group >> i & 1:
                        moves[made - 1, 2 + i] = REPLICATED
            before = group
    k = 0
    for i in range(count):
        if blocked[i] and state[i] >= PLACED:
            made = _put(moves, made, ALL_GATHER, 1 << i, state, i, REPLICATED)
        while k < len(options) and options[k, 0] == i:
            to = options[k, 1]
            k += 1
            if blocked[i] and to != state[i]:
                kind = _step(state, i, to, sizes, shape, fixed, table)
                if kind >= 0:
                    made = _put(moves, made, kind, 1 << i, state, i, to)
    if any_partial:
        return made, known
    here = _merged(_digits(state, sizes, fixed, table))
    if len(here) == len(end) and _same(here.ravel(), end.ravel()):
        return _put_state(moves, made, state, goals), known
    first = _exchanged(state, goals, sizes)
    if not _same(first, state):
        made = _put_state(moves, made, state, first)
    second, known = _reordered(state, goals, sizes, len(shape), table, known)
    if len(second) and not _same(second, state) and not _same(second, first):
        made = _put_state(moves, made, state, second)
    return made, known


@part
def _put(moves, at, kind, group, state, i, to):  # type: ignore[no-untyped-def]
    moves[at, 0], moves[at, 1] = kind, group
    _copy(state, moves[at, 2:])
    moves[at, 2 + i] = to
    return at + 1


@part
def _put_state(moves, at, state, after):  # type: ignore[no-untyped-def]
    group = 0
    for i in range(len(state)):
        if state[i] != after[i]:
            group |= 1 << i
    moves[at, 0], moves[at, 1] = PERMUTE, group
    _copy(after, moves[at, 2:])
    return at + 1


@part
def _exchanged(state, goals, sizes):  # type: ignore[no-untyped-def]
    """The state after a device permutation that gives items the places they want and others hold."""
    after = state.copy()
    for i in range(len(state)):
        if goals[i] >= PLACED and after[i] != goals[i]:
            for j in range(len(state)):
                if after[j] == goals[i] and sizes[j] == sizes[i]:
                    after[i], after[j] = after[j], after[i]
                    break
    return after


@part
def _reordered(state, goals, sizes, dims, table, known):  # type: ignore[no-untyped-def]
    """The state after a device permutation within each run of neighbouring digits, to fit the goal; empty where a new
    place has no room. And how many places are known.
    """
    after = state.copy()
    count = len(state)
    held = np.zeros(count, dtype=np.int64)
    for dim in range(dims):
        # Items on this dimension, major to minor.
        holds = 0
        for i in range(count - 1, -1, -1):
            if state[i] < PLACED or table[state[i] - PLACED, 0] != dim:
                continue
            at = holds
            while at > 0 and table[state[held[at - 1]] - PLACED, 1] < table[state[i] - PLACED, 1]:
                held[at] = held[at - 1]
                at -= 1
            held[at] = i
            holds += 1
        begin = 0
        while begin < holds:
            period = table[state[held[begin]] - PLACED, 1]
            stop, end = begin, period
            while stop < holds and table[state[held[stop]] - PLACED, 1] == end:
                end //= sizes[held[stop]]
                stop += 1
            left = stop - begin
            while left:
                chosen = -1
                for k in range(begin, begin + left):  # the last of those that want to be here
                    goal = goals[held[k]]
                    if (
                        goal >= PLACED
                        and table[goal - PLACED, 0] == dim
                        and table[goal - PLACED, 1] == period
                    ):
                        chosen = k
                if chosen < 0:
                    for k in range(begin, begin + left):  # one that is only passing through
                        goal = goals[held[k]]
                        if goal < PLACED or table[goal - PLACED, 0] != dim:
                            chosen = k
                            break
                if chosen < 0:
                    chosen = begin
                i = held[chosen]
                for k in range(chosen, begin + left - 1):
                    held[k] = held[k + 1]
                left -= 1
                place = -1
                for k in range(known):
                    if table[k, 0] == dim and table[k, 1] == period:
                        place = k
                        break
                if place < 0:
                    if known == len(table):
                        return after[:0], known
                    place = known
                    table[place, 0], table[place, 1] = dim, period
                    known += 1
                after[i] = PLACED + place
                period //= sizes[i]
            begin = stop
    return after, known
