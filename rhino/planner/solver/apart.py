"""toulbar2 in a process of its own, with a limit on its memory.

With knapsack constraints the library's memory was seen to grow without bound on some networks and not on others of
the same size; a process of its own can fail without harm. It runs the file of `rhino.planner.solver.toulbar`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

from . import toulbar
from .toulbar import Outcome

#: Bytes of address space that the process may take.
ROOM = 4 << 30

#: Seconds beyond a time limit after which it is stopped.
GRACE = 1.0


def minimise_apart(*arrays: Any, time_limit: float | None, room: int = ROOM, **options: Any) -> Outcome:
    """`minimise` with the same arguments; nothing is found or shown when the process fails, takes too long, or takes
    more than `room` bytes.
    """
    try:
        done = subprocess.run(
            [sys.executable, toulbar.__file__],
            input=pickle.dumps((room, arrays, {**options, "time_limit": time_limit})),
            capture_output=True,
            # A pool of threads for every core would take more address space than the search.
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            timeout=None if time_limit is None else time_limit + GRACE,
            check=True,
        )
        return Outcome(*pickle.loads(done.stdout))
    except (subprocess.SubprocessError, pickle.UnpicklingError, EOFError):
        return Outcome(None, -float("inf"), False)
