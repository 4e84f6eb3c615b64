"""Disjoint sets of indices: what belongs together, joined pair by pair."""

from __future__ import annotations


class DisjointSets:
    """Sets of the indices 0, 1, ...; a set is named by its least member."""

    def __init__(self, size: int = 0) -> None:
        self._parent = list(range(size))

    def new(self) -> int:
        """One more index, alone in its set."""
        self._parent.append(len(self._parent))
        return len(self._parent) - 1

    def find(self, i: int) -> int:
        """The name of the set of `i`."""
        parent = self._parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def join(self, i: int, j: int) -> int:
        """Make one set of two; its name."""
        a, b = sorted((self.find(i), self.find(j)))
        self._parent[b] = a
        return a
