"""What a random program is made of: choices, and values with a bound on their magnitude.

An op that would leave the integers a double can hold is not made, so every order of evaluation gives the same bits.
Data types are f64, i64 and i1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from xdsl.ir import Attribute, Block, SSAValue

from rhino.dialects.builder import Builder
from rhino.ir import types

LIMIT = 2.0**44
EXTENTS = (2, 1, 3, 4, 6, 8, 12, 4, 8)
MAX_ELEMENTS = 144


@dataclass(frozen=True)
class Argument:
    """Type of an argument and the range of its values."""

    type: types.Type
    low: int
    high: int


@dataclass
class Values:
    """A program under construction; `draw` is hypothesis'."""

    draw: Callable
    block: Block
    builder: Builder
    arguments: list[Argument] = field(default_factory=list)
    bounds: dict[SSAValue, float] = field(default_factory=dict)

    def pick(self, options: Sequence) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flip(self) -> bool:
        return self.draw(st.booleans())

    def value(self, *names: str, rank: int = 0, ranks: int = 9) -> SSAValue:
        """A known value of one of the element types and of at least so many dimensions, or a new argument."""
        fits = [
            v
            for v in self.bounds
            if types.element_name(types.element_of(v)) in names and rank <= len(types.shape_of(v)) <= ranks
        ]
        if not fits or (len(fits) < 3 and self.integer(0, 3) == 3):
            return self.argument(self.shape(rank, min(3, ranks)), types.element(names[0]))
        # Mostly the latest, so that programs become deep rather than wide.
        return fits[-1] if self.flip() else self.pick(fits[::-1])

    def shape(self, low: int = 0, high: int = 3) -> tuple[int, ...]:
        out: list[int] = []
        if low == 0 and self.integer(0, 5):
            low = min(1, high)  # scalars have nothing to split
        for _ in range(self.integer(low, max(low, high))):
            out.append(self.pick([e for e in EXTENTS if e * math.prod(out) <= MAX_ELEMENTS] or [1]))
        return tuple(out)

    def argument(self, shape: Sequence[int], element: Attribute, low: int = -3, high: int = 3) -> SSAValue:
        if element == types.I1:
            low, high = 0, 1
        type = types.tensor(shape, element)
        self.arguments.append(Argument(type, low, high))
        value = self.block.insert_arg(type, len(self.block.args))
        value.name_hint = f"a{len(self.arguments) - 1}"
        self.bounds[value] = max(abs(low), abs(high))
        return value

    def know(self, value: SSAValue, bound: float) -> SSAValue:
        self.bounds[value] = bound
        return value

    def like(self, x: SSAValue) -> SSAValue:
        """A value of the type of `x`: a known one (maybe `x` itself) or a new argument."""
        fits = [v for v in self.bounds if v.type == x.type]
        if self.integer(0, 3) == 0:
            return self.argument(types.shape_of(x), types.element_of(x))
        return self.pick(fits[::-1])
