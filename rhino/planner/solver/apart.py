"""toulbar2 in a process of its own, with a limit on its memory.

With knapsack constraints the library's memory was seen to grow without bound on some networks and not on others of
the same size; a process of its own can fail without harm. `python -m rhino.planner.solver.apart` reads the arguments
of `minimise`, pickled, from its input and writes the outcome to its output.
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from .toulbar import Outcome, minimise

#: Bytes of address space that the process may take.
ROOM = 4 << 30

#: Seconds beyond a time limit after which it is stopped.
GRACE = 1.0


def minimise_apart(*arrays: Any, time_limit: float | None, **options: Any) -> Outcome:
    """`minimise` with the same arguments; nothing is found or shown when the process fails or takes too much."""
    task = pickle.dumps((arrays, {**options, "time_limit": time_limit}))
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name],
            input=task,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": path},
            timeout=None if time_limit is None else time_limit + GRACE,
            check=True,
        )
        outcome: Outcome = pickle.loads(done.stdout)
    except (subprocess.SubprocessError, pickle.UnpicklingError, EOFError):
        return Outcome(None, -float("inf"), False)
    return outcome


def main() -> None:
    """The other process."""
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    arrays, options = pickle.load(sys.stdin.buffer)
    outcome = minimise(*arrays, **options)
    sys.stdout.buffer.write(pickle.dumps(outcome))


if __name__ == "__main__":
    main()
