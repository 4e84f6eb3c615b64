"""Says when the search is being compiled: on the first use after an installation that takes longer than the search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numba.core import event


class _Teller(event.Listener):
    """Adds to what is being worked on, while numba compiles, that it does."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._doing = ""
        self._depth = 0

    def tell(self, doing: str) -> None:
        """Say what is being worked on."""
        self._doing = doing
        self._show()

    def on_start(self, event: event.Event) -> None:
        self._depth += 1
        if self._depth == 1:
            self._show()

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._show()

    def _show(self) -> None:
        parts = [self._doing, "compiling the search, which is kept for later runs" if self._depth else ""]
        self._tell("; ".join(filter(None, parts)))


@contextmanager
def compiling_told(tell: Callable[[str], None] | None) -> Iterator[Callable[[str], None] | None]:
    """Inside the block the yielded function stands for `tell`, and `tell` hears of compilation too."""
    if tell is None:
        yield None
        return
    teller = _Teller(tell)
    with event.install_listener("numba:compile", teller):
        yield teller.tell
