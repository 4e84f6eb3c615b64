"""How hard a search tries."""

from __future__ import annotations

from dataclasses import dataclass

from rhino.ir.errors import UsageError

LEVELS = ("O1", "O2")


@dataclass(frozen=True)
class Effort:
    """What is searched, and how thoroughly.

    Attributes:
        level: ``O1`` decides one mesh axis after another; ``O2`` also all axes at once, never dearer than ``O1``, with
            a bound on every plan of the meshes that it decides so.
        mesh_axes: the most axes of the meshes that are searched, 1 to 3.
        folded: equal layers decide alike, so that the search takes as long for many as for a few; False lets every
            layer decide for itself.
    """

    level: str = "O2"
    mesh_axes: int = 3
    folded: bool = True

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise UsageError(f"there is no level '{self.level}'", remedy=f"levels are {' and '.join(LEVELS)}")
        if not 1 <= self.mesh_axes <= 3:
            raise UsageError(f"meshes of {self.mesh_axes} axes are not searched", remedy="give 1, 2 or 3")
