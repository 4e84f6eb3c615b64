"""Runs entries in a process of their own: one that takes too long, or brings the process down, costs only itself."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Row = dict[str, Any]

#: Entries after which a worker is replaced by a fresh one, so that memory does not pile up.
LIFETIME = 40

#: Seconds that a worker may take to import torch and its op database.
STARTUP = 900.0

SLOW = "slow"
WRONG = "wrong"


class Worker:
    """A process that reads names of entries and writes their rows, a line of JSON for each."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._left = b""
        self.done = 0
        if not self._wait_for_line(STARTUP):
            self.close()
            raise TimeoutError(f"a worker did not start within {STARTUP:g} s")

    def run(self, name: str, limit: float) -> Row:
        """The entry's row; slow after `limit` seconds, wrong where the process ended. Afterwards see `alive`."""
        start = time.perf_counter()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(name.encode() + b"\n")
            self._process.stdin.flush()
        line = self._wait_for_line(limit)
        self.done += 1
        if line:
            return dict(json.loads(line))
        seconds = round(time.perf_counter() - start, 2)
        ended = line is not None
        self.close()
        if ended:
            code = self._process.returncode
            return {"kind": WRONG, "reasons": {WRONG: f"the process ended ({code})"}, "seconds": seconds}
        return {"kind": SLOW, "reasons": {SLOW: f"longer than {limit:g} s"}, "seconds": seconds}

    def _wait_for_line(self, limit: float) -> bytes | None:
        """A line of output; nothing where the process ended; None where time is up."""
        stream = self._process.stdout
        assert stream is not None
        until = time.perf_counter() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._left:
                if not selector.select(max(until - time.perf_counter(), 0.0)):
                    return None
                chunk = os.read(stream.fileno(), 1 << 16)
                if not chunk:
                    self._process.wait()
                    return b""
                self._left += chunk
        line, _, self._left = self._left.partition(b"\n")
        return line

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        if self.alive:
            self._process.kill()
        self._process.wait()


def run_all(
    names: Sequence[str], command: Sequence[str], limit: float, report: Callable[[str, Row], None]
) -> None:
    """Run the entries in order and report each as it is done."""
    worker: Worker | None = None
    try:
        for name in names:
            if worker is None or not worker.alive or worker.done >= LIFETIME:
                if worker is not None:
                    worker.close()
                worker = Worker(command)
            report(name, worker.run(name, limit))
    finally:
        if worker is not None:
            worker.close()


def serve(run: Callable[[str], Row]) -> None:
    """The worker's side. What entries print goes nowhere: standard output carries rows only."""
    own = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with os.fdopen(own, "w") as out:
        print("ready", file=out, flush=True)
        for name in sys.stdin:
            print(json.dumps(run(name.strip())), file=out, flush=True)


def load(path: Path) -> dict[str, Row]:
    """The results of earlier runs; none where there is no such file."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(path: Path, rows: dict[str, Row]) -> None:
    """Replace the results in one step, so that a run that is stopped leaves the file whole."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(json.dumps(rows, indent=1, sort_keys=True))
    draft.replace(path)


def waiting(names: Sequence[str], rows: dict[str, Row], again: Sequence[str]) -> Iterator[str]:
    """The entries that have no result yet, or one of a kind that is to be run again."""
    return (n for n in names if n not in rows or rows[n]["kind"] in again)
