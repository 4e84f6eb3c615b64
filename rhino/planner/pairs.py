"""Which reshards look alike, for all pairs of two lists of layouts at once.

A table of reshard times has thousands of entries and far fewer different questions: a dimension that no digit cuts
only makes every piece larger, so does a common divisor of a dimension's extent, periods and chunks, and the order of
the dimensions does not matter. What a pair asks is written down dimension by dimension as small numbers, with numpy
and without a walk over pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from rhino.ir.layout import Digit, Layout

T = TypeVar("T")

Digits = tuple[Digit, ...]

#: Of one dimension: its extent, the digits before and the digits after.
Part = tuple[int, Digits, Digits]


@dataclass(frozen=True)
class Question:
    """The smallest tensor that is resharded in the same way."""

    shape: tuple[int, ...]
    before: Layout
    after: Layout


@dataclass(frozen=True)
class Pairs:
    """Pair ``(i, j)`` asks ``questions[which[i, j]]`` of a tensor with ``scale[which[i, j]]`` times the elements."""

    questions: tuple[Question, ...]
    scale: tuple[int, ...]
    which: np.ndarray


class Catalogue:
    """Numbers for what dimensions and partial axes can ask; one for all tables of a mesh."""

    def __init__(self) -> None:
        self._parts: dict[Part, int] = {}
        self._partial: dict[tuple[object, object], int] = {}
        self._known: dict[tuple[int, ...], Question] = {}
        self._names: list[Part] = []

    def pairs(self, shape: Sequence[int], a: Sequence[Layout], b: Sequence[Layout]) -> Pairs:
        """What every pair of a layout of `a` and one of `b` asks."""
        rows, columns = len(a), len(b)
        columns_of: list[np.ndarray] = []
        scale = np.ones((rows, columns), dtype=np.int64)
        for dim, extent in enumerate(shape):
            number, grown = self._dimension(extent, [x.dims[dim] for x in a], [x.dims[dim] for x in b])
            columns_of.append(number)
            scale = scale * grown
        parts = (
            np.sort(np.stack(columns_of), axis=0)
            if columns_of
            else np.zeros((0, rows, columns), dtype=np.int64)
        )
        ends = self._ends(a, b)
        table = np.concatenate([parts, ends[None], scale[None]]).reshape(len(columns_of) + 2, -1).T
        unique, which = np.unique(table, axis=0, return_inverse=True)
        questions = tuple(self._question(tuple(row[:-1].tolist()), a, b, ends) for row in unique)
        return Pairs(questions, tuple(unique[:, -1].tolist()), which.reshape(rows, columns))

    def _dimension(
        self, extent: int, before: Sequence[Digits], after: Sequence[Digits]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Per pair the number of what it asks of a dimension (0: nothing), and the elements that stand for one."""
        xs, rows = _distinct(before)
        ys, columns = _distinct(after)
        number = np.zeros((len(xs), len(ys)), dtype=np.int64)
        grown = np.full((len(xs), len(ys)), extent, dtype=np.int64)
        for i, x in enumerate(xs):
            for j, y in enumerate(ys):
                if x or y:
                    part, grown[i, j] = _reduced(extent, x, y)
                    number[i, j] = self._number(part)
        at = np.ix_(rows, columns)
        return number[at], grown[at]

    def _number(self, part: Part) -> int:
        if part not in self._parts:
            self._names.append(part)
            self._parts[part] = len(self._names)
        return self._parts[part]

    def _ends(self, a: Sequence[Layout], b: Sequence[Layout]) -> np.ndarray:
        """Per pair a number for the axes along which it is partial before and after."""
        xs, rows = _distinct([x.partial for x in a])
        ys, columns = _distinct([y.partial for y in b])
        number = np.array(
            [[self._partial.setdefault((x, y), len(self._partial)) for y in ys] for x in xs], dtype=np.int64
        )
        return number[np.ix_(rows, columns)]

    def _question(
        self, row: tuple[int, ...], a: Sequence[Layout], b: Sequence[Layout], ends: np.ndarray
    ) -> Question:
        if row not in self._known:
            parts = sorted((self._names[n - 1] for n in row[:-1] if n), key=_order)
            i, j = np.argwhere(ends == row[-1])[0]
            self._known[row] = Question(
                tuple(extent for extent, _, _ in parts),
                Layout(tuple(x for _, x, _ in parts), a[i].partial),
                Layout(tuple(y for _, _, y in parts), b[j].partial),
            )
        return self._known[row]


def question_of(shape: Sequence[int], a: Layout, b: Layout) -> tuple[Question, int]:
    """What one pair asks, and how many elements stand for one of the question's."""
    scale, parts = 1, []
    for extent, x, y in zip(shape, a.dims, b.dims, strict=True):
        if not x and not y:
            scale *= extent
            continue
        part, grown = _reduced(extent, x, y)
        scale *= grown
        parts.append(part)
    parts.sort(key=_order)
    before = Layout(tuple(x for _, x, _ in parts), a.partial)
    after = Layout(tuple(y for _, _, y in parts), b.partial)
    return Question(tuple(extent for extent, _, _ in parts), before, after), scale


def _reduced(extent: int, x: Digits, y: Digits) -> tuple[Part, int]:
    """A dimension counted in the largest unit that divides everything, and that unit."""
    unit = math.gcd(extent, *(period // axis.size for axis, period in (*x, *y))) or 1

    def shrink(digits: Digits) -> Digits:
        return tuple(Digit(axis, period // unit) for axis, period in digits)

    return (extent // unit, shrink(x), shrink(y)), unit


def _order(part: Part) -> tuple[object, ...]:
    """Sizes before names, so that meshes that differ in names alone ask in the same order."""
    extent, x, y = part
    return extent, _sizes(x), _sizes(y), x, y


def _sizes(digits: Digits) -> tuple[tuple[int, int], ...]:
    return tuple((period, axis.size) for axis, period in digits)


def _distinct(values: Sequence[T]) -> tuple[list[T], np.ndarray]:
    """The different values in order of appearance, and for every value which one it is."""
    place: dict[T, int] = {}
    index = np.array([place.setdefault(value, len(place)) for value in values], dtype=np.int64)
    return list(place), index
