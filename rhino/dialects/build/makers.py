"""Builder methods of the makers ops."""

from __future__ import annotations

from rhino.dialects.build.core import BuilderCore


class MakersBuilder(BuilderCore):
    """Methods take and return SSA values; see the ops of `rhino.dialects.hlo`."""
