"""The checker's random programs as hypothesis strategies, so that what fails is shrunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from rhino.check.random_ops import Program
from rhino.check.random_programs import ALL, LINEAR, MESHES, SMOOTH, add_loss, random_program
from rhino.ir.mesh import Mesh

__all__ = ["SMOOTH", "Drawn", "Program", "meshes", "programs", "with_loss"]


class Drawn:
    """Choices that hypothesis makes."""

    def __init__(self, draw: Callable) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flip(self) -> bool:
        return self.draw(st.booleans())

    def pick(self, options: Sequence) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def order(self, items: Iterable) -> list:
        return self.draw(st.permutations(list(items)))

    def subset(self, low: int, high: int) -> set[int]:
        return self.draw(st.sets(st.integers(low, high), min_size=1))


def meshes() -> st.SearchStrategy[Mesh]:
    """Meshes of up to 8 devices and 3 axes."""
    return st.sampled_from(MESHES).map(Mesh.parse)


@st.composite
def programs(draw: Callable, families: Sequence[Sequence[str]] = (ALL, LINEAR), max_ops: int = 12) -> Program:
    """Programs of about `max_ops` steps at most (a step may be more than one op) that return their last values."""
    return random_program(Drawn(draw), families, max_ops)


@st.composite
def with_loss(draw: Callable, base: st.SearchStrategy[Program]) -> Program:
    """Programs whose first result is the sum of all others, and whose floating-point arguments are parameters."""
    return add_loss(draw(base))
