"""From exceptions to one message and an exit code: no traceback unless asked for (RHINO_DEBUG=1)."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import TextIO

from rhino.ir.errors import RhinoError, RhinoWarning, UsageError
from rhino.runtime.launch import debugging, is_rank, write_error

_INTERRUPTED = 130


def guarded(run: Callable[[], int | None]) -> int:
    """Run a command. Returns its exit code: 0, or 1 or 2 after an error has been reported."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return run() or 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has gone; there is nobody to tell. Python would complain again on exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except RhinoError as error:
        return report(error)
    except RecursionError as error:
        return report(_unexpected(error, "the program is nested too deeply"))
    except MemoryError as error:
        return report(_unexpected(error, "out of memory"))
    except Exception as error:  # the last handler of the process: whatever it is becomes one message
        return report(_unexpected(error, f"{type(error).__name__}: {_first_line(error)}"))


def usage(invoke: Callable[[], object]) -> int | None:
    """Run a command of typer's; its complaints about the command line become UsageErrors."""
    import typer

    # typer may carry click inside or use the installed one: its own exceptions lead to the right classes.
    complaint: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    try:
        code = invoke()
    except typer.Exit as error:
        return int(error.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except complaint as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "rhino"
        raise UsageError(error.format_message(), remedy=f"see `{command} --help`") from None  # type: ignore[attr-defined]
    return code if isinstance(code, int) else None


def report(error: RhinoError) -> int:
    """Print an error, or hand it to the parent of a run. Returns the exit code."""
    if debugging():
        traceback.print_exception(error)
    if not (is_rank() and write_error(error)):
        print(f"error: {error}", file=sys.stderr)
    return error.exit_code


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """As `warnings.showwarning`, but Rhino's own say where in the user's program, not where in Rhino."""
    if issubclass(category, RhinoWarning):
        text = f"warning: {message}\n"
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
    print(text, end="", file=file or sys.stderr)


def _unexpected(error: BaseException, message: str) -> RhinoError:
    """An error that nobody foresaw, with the innermost place it came from."""
    if is_rank():
        message = f"rank {os.environ['RANK']}: {message}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
    unforeseen = RhinoError(
        message,
        where=where,
        remedy="set RHINO_DEBUG=1 for the traceback; if it is Rhino's fault, please report it",
    )
    unforeseen.__cause__ = error
    return unforeseen


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""
