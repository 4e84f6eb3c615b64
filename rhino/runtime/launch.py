"""Starts one process per rank on this machine, watches them, and says which one died and why.

The environment of a rank is torchrun's (RANK, WORLD_SIZE, MASTER_ADDR, ...), so the same command runs under
plain torchrun too. No torch is imported here: the parent stays small.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rhino.ir import errors
from rhino.ir.errors import RhinoError, RunError

POLL_S = 0.05
# How long after the first death the others may still report: a rank that loses its peer dies after its cause.
SETTLE_S = 1.0
# How long a rank may take to stop when asked, before it is killed.
STOP_S = 3.0
_KEPT_LINES = 20

#: A rank writes its error here as JSON instead of to its stderr, where the parent would have to guess.
ERROR_FILE = "RHINO_ERROR_FILE"
#: The listening socket of the rendezvous, opened by the parent so that no other process can take the port.
LISTEN_FD = "RHINO_LISTEN_FD"
#: When the run started (seconds since the epoch).
STARTED = "RHINO_STARTED"


class LostContactError(RunError):
    """A collective failed because another rank did not answer; seldom the first cause of a failed run."""


@dataclass
class Worker:
    """One rank's process and what is known of its end."""

    rank: int
    process: subprocess.Popen[str]
    error_file: Path
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    reader: threading.Thread | None = None

    def failure(self) -> RhinoError | None:
        """Why the rank failed, or None while it runs or when it ended well."""
        code = self.process.poll()
        if not code:
            return None
        if self.reader is not None:
            self.reader.join(timeout=1.0)
        if self.error_file.exists():
            return read_error(self.error_file)
        how = _signal_name(-code) if code < 0 else f"exited with code {code}"
        tail = "".join(f"\n    {line}" for line in self.lines)
        return RunError(
            f"rank {self.rank} died: {how}" + (f"; the last lines it wrote:{tail}" if tail else ""),
            remedy="set RHINO_DEBUG=1 to see everything that the ranks write",
        )


def launch(
    command: Sequence[str],
    nproc: int,
    environment: Mapping[str, str] | None = None,
    started: float | None = None,
) -> None:
    """Run `command` once per rank and wait. Standard output is the parent's, standard error of rank 0 too.

    `started`: when the user's command began, in seconds since the epoch, for the ranks to count from.

    Raises the RhinoError of the rank that failed first (RunError naming the rank if it died without a word),
    after all other ranks have been stopped. KeyboardInterrupt stops all ranks too.
    """
    env = environment or os.environ
    started = time.time() if started is None else started
    workers: list[Worker] = []
    with (
        tempfile.TemporaryDirectory(prefix="rhino-run-") as folder,
        _rendezvous() as (listener, port),
        _terminating_signals(),
    ):
        try:
            for rank in range(nproc):
                workers.append(_start(command, rank, nproc, listener, port, Path(folder), env, started))
            failed = _watch(workers)
        finally:
            stop([w.process for w in workers])
    if failed is not None:
        raise failed


def _start(
    command: Sequence[str],
    rank: int,
    nproc: int,
    listener: socket.socket,
    port: int,
    folder: Path,
    environment: Mapping[str, str],
    started: float,
) -> Worker:
    error_file = folder / f"rank{rank}.json"
    env = {
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // nproc)),
        STARTED: repr(started),
        **_loopback(),
        **environment,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(nproc),
        "LOCAL_WORLD_SIZE": str(nproc),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        LISTEN_FD: str(listener.fileno()),
        ERROR_FILE: str(error_file),
    }
    process = subprocess.Popen(
        list(command),
        env=env,
        # A pipe that nothing is written to: its end tells the rank that the parent is gone.
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        pass_fds=[listener.fileno()] if rank == 0 else [],
        start_new_session=True,
    )
    worker = Worker(rank, process, error_file)
    assert process.stderr is not None
    worker.reader = threading.Thread(target=_read, args=(worker, process.stderr), daemon=True)
    worker.reader.start()
    return worker


def _read(worker: Worker, stream: IO[str]) -> None:
    """Keep a rank's last lines; show rank 0's as they come, and everyone's when debugging."""
    everything = debugging()
    for line in stream:
        worker.lines.append(line.rstrip("\n"))
        if everything:
            sys.stderr.write(f"[rank {worker.rank}] {line}")
        elif worker.rank == 0:
            sys.stderr.write(line)


def _watch(workers: Sequence[Worker]) -> RhinoError | None:
    """Wait until all ranks have ended well (None) or one has failed (its error)."""
    while True:
        codes = [w.process.poll() for w in workers]
        if any(codes):
            break
        if all(code == 0 for code in codes):
            return None
        time.sleep(POLL_S)
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline and any(w.process.poll() is None for w in workers):
        time.sleep(POLL_S)
    return first_cause([f for f in (w.failure() for w in workers) if f is not None])


def first_cause(failures: Sequence[RhinoError]) -> RhinoError:
    """The failure that explains the others: any other than a rank that lost contact with its peers."""
    return min(failures, key=lambda f: isinstance(f, LostContactError))


def stop(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Stop processes and all their children: ask, wait STOP_S, kill."""
    for process in processes:
        _signal_group(process, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    for process in processes:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal_group(process, signal.SIGKILL)
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _signal_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    if process.poll() is None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return  # It ended between the poll and the signal.


@contextmanager
def _rendezvous() -> Iterator[tuple[socket.socket, int]]:
    """A listening socket on the loopback address, for rank 0 to inherit."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener, listener.getsockname()[1]


@contextmanager
def _terminating_signals() -> Iterator[None]:
    """Let SIGTERM unwind the stack like Ctrl-C, so that the ranks are stopped."""

    def handler(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _loopback() -> dict[str, str]:
    """Keep gloo on the loopback interface: the host's name may resolve to nothing on a fresh machine."""
    names = {name for _, name in socket.if_nameindex()}
    found = next((name for name in ("lo", "lo0") if name in names), None)
    return {"GLOO_SOCKET_IFNAME": found} if found else {}


def _signal_name(number: int) -> str:
    try:
        return f"killed by signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"killed by signal {number}"


# The rank's side.


def debugging() -> bool:
    """Whether the user wants tracebacks and all output (RHINO_DEBUG=1)."""
    return os.environ.get("RHINO_DEBUG", "") not in ("", "0")


def is_rank() -> bool:
    """Whether this process is one rank of a run that `launch` or torchrun started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def watch_parent() -> None:
    """End this process when the parent that launched it is gone. For ranks started by `launch` only."""
    if ERROR_FILE not in os.environ:
        return

    def wait() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def write_error(error: RhinoError) -> bool:
    """Hand an error to the parent. False when there is none to hand it to."""
    path = os.environ.get(ERROR_FILE)
    if path is None:
        return False
    fields = {
        "type": type(error).__name__,
        "message": error.message,
        "where": error.where,
        "remedy": error.remedy,
    }
    # Written beside and renamed, so that the parent never reads half of it.
    part = Path(path + ".part")
    part.write_text(json.dumps(fields))
    part.rename(path)
    return True


def read_error(path: Path) -> RhinoError:
    """The error that a rank wrote, of the same class where that is one of `rhino.ir.errors`."""
    fields = json.loads(path.read_text())
    cls = _ERRORS.get(fields["type"], RunError)
    return cls(fields["message"], where=fields["where"], remedy=fields["remedy"])


_ERRORS: dict[str, type[RhinoError]] = {
    cls.__name__: cls
    for cls in (*vars(errors).values(), LostContactError)
    if isinstance(cls, type) and issubclass(cls, RhinoError)
}
