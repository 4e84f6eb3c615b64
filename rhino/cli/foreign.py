"""`rhino-opt --run`: a module's results or checks on the interpreter, for StableHLO's test files among others."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import ModuleOp

from rhino.dialects import signature
from rhino.ir.errors import ProgramError, RunError, UsageError
from rhino.ir.evaluate import run_module

_COMMENTS = re.compile(r"//[^\n]*")

Process = Callable[[str, argparse.Namespace], ModuleOp]


def run_chunks(chunks: Sequence[str], name: str, options: argparse.Namespace, process: Process) -> None:
    """Read (and pass through the passes) every function that takes no arguments, and run it.

    Prints one line for every check, or every result where there are no checks. Raises RunError when a check
    does not hold, UsageError when there is nothing that can be run without arguments.
    """
    failed = 0
    for text in chunks:
        for function in _functions(text, name, options):
            chosen = argparse.Namespace(**{**vars(options), "function": function})
            failed += _run(process(text, chosen), function or "main")
    if failed:
        raise RunError(f"{failed} {'check does' if failed == 1 else 'checks do'} not hold", where=name)


def _functions(text: str, name: str, options: argparse.Namespace) -> list[str | None]:
    if options.import_ is None or options.function is not None:
        return [options.function]
    from rhino.frontend.stablehlo import runnable_functions

    if not _COMMENTS.sub("", text).strip():
        return []  # an empty piece of a file
    found = runnable_functions(text, name)
    if not found:
        raise UsageError(f"{name} has no function that can be run without arguments")
    return [*found]


def _run(module: ModuleOp, function: str) -> int:
    """How many checks do not hold."""
    from rhino.frontend.stablehlo import run_checks

    func = signature.main_of(module)
    if func.args:
        raise UsageError(
            f"@{function} takes {len(func.args)} arguments, and --run gives none",
            remedy="use `rhino check` or `rhino run`, which make them",
        )
    slots = signature.results(func)
    checked = run_checks(module)
    for check in checked:
        state = "holds" if not check.wrong else "FAILS"
        print(f"@{function} {check.name} {check.kind} {state}: {check.message}")
    if not checked:
        values = run_module(module, [])
        if len(values) != len(slots):
            raise ProgramError("the program's results do not fit its signature")
        for slot, value in zip(slots, values, strict=True):
            print(f"@{function} {slot.name or 'result'} = {value.dtype}{list(value.shape)}\n{value}")
    return sum(check.wrong > 0 for check in checked)
