"""Shows what takes long: a bar on a terminal, a plain line elsewhere, nothing for what is done within two
seconds.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

#: What takes less is not worth a word.
PATIENCE_S = 2.0


class Phase:
    """One thing that is under way; `advance` moves its bar."""

    def __init__(self, title: str, total: int | None, stream: TextIO | None) -> None:
        self.title = title
        self.total = total
        self.done = 0
        self.detail = ""
        self.stream = stream

    def advance(self, count: int = 1) -> None:
        self.done += count

    def tell(self, detail: str) -> None:
        """Say what is being worked on."""
        self.detail = detail

    @property
    def text(self) -> str:
        """The title, and what is being worked on."""
        return f"{self.title}: {self.detail}" if self.detail else self.title


def terminal() -> TextIO | None:
    """Where a bar can be drawn: standard error, or standard output, if it is a terminal."""
    return next((s for s in (sys.stderr, sys.stdout) if s.isatty()), None)


@contextmanager
def phase(title: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Phase]:
    """Show `title` while the block runs, once it has taken PATIENCE_S; if `quiet`, never."""
    stream = terminal()
    current = Phase(title, total, stream)
    if quiet:
        yield current
        return
    started = time.monotonic()
    stop = threading.Event()
    watch = threading.Thread(target=_draw if stream else _say, args=(current, stop), daemon=True)
    watch.start()
    try:
        yield current
    finally:
        stop.set()
        watch.join()
    took = time.monotonic() - started
    if took > PATIENCE_S:
        print(f"{title}: {took:.1f} s", file=sys.stderr, flush=True)


def _say(current: Phase, stop: threading.Event) -> None:
    """Without a terminal: one line when it takes long, and one every ten seconds after that."""
    if stop.wait(PATIENCE_S):
        return
    while True:
        share = f" {current.done}/{current.total}" if current.total else ""
        print(f"{current.text} ...{share}", file=sys.stderr, flush=True)
        if stop.wait(10.0):
            return


def _draw(current: Phase, stop: threading.Event) -> None:
    if stop.wait(PATIENCE_S):
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    if current.total:
        columns.insert(2, MofNCompleteColumn())
    # What is printed meanwhile goes above the bar, unless it goes to a file.
    with Progress(
        *columns,
        console=Console(file=current.stream),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task(current.title, total=current.total)
        while not stop.wait(0.1):
            bar.update(task, completed=current.done, description=current.text)
