"""Where random programs get their choices from: a seed, or whatever a test library draws."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Choices(Protocol):
    """A source of choices. Where order matters to what is left when a failure is shrunk, simple options come first."""

    def integer(self, low: int, high: int) -> int:
        """A number in ``low..high``."""

    def flip(self) -> bool:
        """True or false."""

    def pick(self, options: Sequence[T]) -> T:
        """One of at least one options."""

    def order(self, items: Iterable[T]) -> list[T]:
        """The items in any order."""

    def subset(self, low: int, high: int) -> set[int]:
        """One or more numbers of ``low..high``."""


class Seeded:
    """Choices that follow from a seed alone."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def flip(self) -> bool:
        return self._random.random() < 0.5

    def pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def order(self, items: Iterable[T]) -> list[T]:
        out = list(items)
        self._random.shuffle(out)
        return out

    def subset(self, low: int, high: int) -> set[int]:
        numbers = range(low, high + 1)
        return {i for i in numbers if self.flip()} or {self._random.choice(numbers)}
