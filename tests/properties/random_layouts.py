"""The checker's random placements as hypothesis strategies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from random_programs import Drawn

from rhino.check.random_layouts import Placed, random_layout, random_placement, random_splits
from rhino.check.random_ops import Program
from rhino.ir.layout import Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.rule import Rule, Split

__all__ = ["Placed", "layouts", "placed", "splits"]


@st.composite
def layouts(draw: Callable, shape: Sequence[int], mesh: Mesh, partial: Sequence[str] = ()) -> Layout:
    """Well-formed layouts of a tensor; partial with one of the kinds given, or not at all."""
    return random_layout(Drawn(draw), shape, mesh, partial)


@st.composite
def splits(draw: Callable, rule: Rule, atoms: Sequence[AxisRef]) -> list[Split]:
    """Splits of a rule's factors by some of the atoms, under which all layouts are well-formed."""
    return random_splits(Drawn(draw), rule, atoms)


@st.composite
def placed(draw: Callable, program: Program, mesh: Mesh) -> Placed:
    """A random legal placement of a whole program."""
    return random_placement(Drawn(draw), program, mesh)
