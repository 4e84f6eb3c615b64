"""Two halves of a search at once: the second by a process that starts as a copy of this one.

Each half is the same wherever it is worked on, and neither sees what the other finds until both are done: what comes
out does not depend on whether there is a second processor. The copy lives as long as its `Lanes`, so that it keeps
what it has worked out from one task to the next.
"""

from __future__ import annotations

import contextlib
import gc
import io
import multiprocessing
import os
import pickle
import signal
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from rhino.ir.errors import RhinoWarning

Task = TypeVar("Task")
Answer = TypeVar("Answer")

Progress = Callable[[str], None]

#: Seconds that the second process has to end in.
GRACE = 5.0


class Lanes(Generic[Task, Answer]):
    """Works on tasks, two at a time where that is possible; a context manager."""

    def __init__(
        self,
        work: Callable[[Task, Progress], Answer],
        progress: Progress,
        *,
        shared: Callable[[object], object | None] = lambda item: None,
        resolve: Callable[[object], object] = lambda name: name,
    ) -> None:
        """`work` answers a task and says how far it is. What goes from one process to the other is copied, but not
        what `shared` gives a name (else None): that is what `resolve` makes of the name on the other side.
        """
        self.work = work
        self.progress = progress
        self.shared = shared
        self.resolve = resolve
        self._second: tuple[multiprocessing.process.BaseProcess, Connection] | None = None

    def __enter__(self) -> Lanes[Task, Answer]:
        return self

    def __exit__(self, *error: object) -> None:
        if self._second is not None:
            process, pipe = self._second
            self._second = None
            pipe.close()
            process.terminate()
            process.join(GRACE)
            if process.is_alive():
                process.kill()
                process.join()

    def start(self) -> None:
        """Begin the second process, if there is a processor for it; what this one knows, it knows too."""
        if self._second is not None or processors() < 2:
            return
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(
            target=self._serve, args=(here, there), daemon=True
        )
        frozen = gc.get_freeze_count()
        gc.freeze()  # a collection in the second process would copy every page
        try:
            with warnings.catch_warnings():
                # Threads of other libraries are not copied; the second process calls none that has any.
                warnings.simplefilter("ignore")
                process.start()
        except OSError as error:  # no memory or no number for another process
            here.close()
            warnings.warn(
                f"the search has no second process ({error}): the first searches all",
                RhinoWarning,
                stacklevel=2,
            )
            return
        finally:
            there.close()
            if not frozen:
                gc.unfreeze()
        self._second = process, here

    def both(self, first: Task, second: Task) -> tuple[Answer, Answer]:
        """The answers of two tasks. When the second process fails, its task is done here, with a warning."""
        if self._second is None:
            return self.work(first, self.progress), self.work(second, self.progress)
        pipe = self._second[1]
        with contextlib.suppress(OSError):  # it has ended: so says what is read
            pipe.send_bytes(self._dump(second))
        own = self.work(first, self.progress)
        try:
            kind, answer = self._load(pipe.recv_bytes())
            while kind == "progress":
                self.progress(answer)
                kind, answer = self._load(pipe.recv_bytes())
        except (EOFError, OSError):
            kind, answer = "failed", "it ended"
        if kind == "done":
            return own, answer
        self.__exit__()
        warnings.warn(
            f"the second process of the search failed ({answer}): its part is searched by the first",
            RhinoWarning,
            stacklevel=2,
        )
        return own, self.work(second, self.progress)

    def _serve(self, other: Connection, pipe: Connection) -> None:
        """The second process: answer tasks until there are no more."""
        other.close()  # or it would never see that the first one is gone
        signal.signal(signal.SIGINT, signal.SIG_IGN)

        def progress(message: str) -> None:
            pipe.send_bytes(self._dump(("progress", message)))

        with contextlib.suppress(EOFError, OSError):
            while True:
                task = self._load(pipe.recv_bytes())
                try:
                    reply: tuple[str, Any] = "done", self.work(task, progress)
                except (
                    Exception
                ) as error:  # the first process does the task again and meets it, if it is lasting
                    reply = "failed", f"{type(error).__name__}: {error}"
                pipe.send_bytes(self._dump(reply))

    def _dump(self, item: object) -> bytes:
        out = io.BytesIO()
        pickler = _Pickler(out, pickle.HIGHEST_PROTOCOL)
        pickler.shared = self.shared
        pickler.dump(item)
        return out.getvalue()

    def _load(self, data: bytes) -> Any:
        unpickler = _Unpickler(io.BytesIO(data))
        unpickler.resolve = self.resolve
        return unpickler.load()


class _Pickler(pickle.Pickler):
    shared: Callable[[object], object | None]

    def persistent_id(self, obj: object) -> object | None:
        return self.shared(obj)


class _Unpickler(pickle.Unpickler):
    resolve: Callable[[object], object]

    def persistent_load(self, pid: object) -> object:
        return self.resolve(pid)


def processors() -> int:
    """How many processors this process may use; 1 where processes cannot be copied or, as the workers of a pool, may
    have no others.
    """
    if "fork" not in multiprocessing.get_all_start_methods() or multiprocessing.current_process().daemon:
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
