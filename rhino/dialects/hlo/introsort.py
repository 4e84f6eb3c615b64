"""Sorting that is not stable: in which order equal elements come that may come in any.

XLA on CPUs and StableHLO's interpreter leave it to `std::sort`. In GNU's library that is Musser's introsort: the
median of three as pivot down to 16 elements, then one pass of insertions. Up to 16 elements it is stable.
"""

from __future__ import annotations

import numpy as np

#: Sections of so many elements are left to the last pass.
SMALL = 16

#: Of more elements equal ones keep their order, which is allowed too, and faster.
MOST = 4096


def introsort(keys: np.ndarray) -> np.ndarray:
    """The permutation that sorts a vector of integers."""
    key = [int(k) for k in keys]
    at = list(range(len(key)))
    sections = [(0, len(at), 2 * (len(at).bit_length() - 1))] if at else []
    while sections:
        first, last, depth = sections.pop()
        while last - first > SMALL:
            if depth == 0:
                at[first:last] = sorted(at[first:last], key=key.__getitem__)
                break
            depth -= 1
            _median_first(key, at, first, first + 1, first + (last - first) // 2, last - 1)
            cut = _partition(key, at, first + 1, last, first)
            sections.append((cut, last, depth))
            last = cut
    for i in range(1, len(at)):
        moved, j = at[i], i
        while j and key[moved] < key[at[j - 1]]:
            at[j] = at[j - 1]
            j -= 1
        at[j] = moved
    return np.array(at, np.int64)


def _median_first(key: list[int], at: list[int], to: int, i: int, j: int, k: int) -> None:
    """Exchange the median of places `i`, `j` and `k` with the element at `to`."""
    a, b, c = key[at[i]], key[at[j]], key[at[k]]
    if a < b:
        chosen = j if b < c else k if a < c else i
    else:
        chosen = i if a < c else k if b < c else j
    at[to], at[chosen] = at[chosen], at[to]


def _partition(key: list[int], at: list[int], first: int, last: int, pivot: int) -> int:
    """Where the second part begins, after smaller elements were exchanged to the left."""
    middle = key[at[pivot]]
    while True:
        while key[at[first]] < middle:
            first += 1
        last -= 1
        while middle < key[at[last]]:
            last -= 1
        if first >= last:
            return first
        at[first], at[last] = at[last], at[first]
        first += 1
