"""From exceptions to one message and an exit code: the user never sees a traceback unless asked for (RHINO_DEBUG=1)."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from rhino.ir.errors import RhinoError
from rhino.runtime.launch import debugging, is_rank, write_error

_INTERRUPTED = 130


def guarded(run: Callable[[], int | None]) -> int:
    """Run a command. Returns its exit code: 0, or 1 or 2 after an error has been reported."""
    try:
        return run() or 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except RhinoError as error:
        return report(error)
    except RecursionError as error:
        return report(_unexpected(error, "the program is nested too deeply"))
    except MemoryError as error:
        return report(_unexpected(error, "out of memory"))
    except Exception as error:  # noqa: BLE001 - the last handler of the process: whatever it is becomes one message
        return report(_unexpected(error, f"{type(error).__name__}: {_first_line(error)}"))


def report(error: RhinoError) -> int:
    """Print an error, or hand it to the parent of a run. Returns the exit code."""
    if debugging():
        traceback.print_exception(error)
    if not (is_rank() and write_error(error)):
        print(f"error: {error}", file=sys.stderr)
    return error.exit_code


def _unexpected(error: BaseException, message: str) -> RhinoError:
    """An error that nobody foresaw, with the innermost place it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
    unforeseen = RhinoError(
        message, where=where, remedy="set RHINO_DEBUG=1 for the traceback; if it is Rhino's fault, please report it"
    )
    unforeseen.__cause__ = error
    return unforeseen


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""
