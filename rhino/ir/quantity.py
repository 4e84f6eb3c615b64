"""Quantities in the words that people read."""

from __future__ import annotations


def size(value: float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"
