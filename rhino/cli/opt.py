"""rhino-opt: run passes on a module's text, and check it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rhino.cli.guard import guarded
from rhino.ir.errors import ProgramError, RhinoError, UsageError

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass

_EXAMPLE = """\
example:
  rhino-opt step.mlir -p 'autodiff,optimizer{kind=sgd lr=1e-2},canonicalize,cse,dce' --verify-equivalence
  rhino-opt --import stablehlo jax.mlir -p canonicalize,cse,dce -o step.mlir

Passes are separated by commas; `rhino-opt --list-passes` shows them and their options.
Errors are printed with file:line:column; the exit code is 1 for a bad program and 2 for a bad command line.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit code: 0, 1 (bad program) or 2 (bad usage)."""
    options = _arguments().parse_args(argv)
    return guarded(lambda: _run(options))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rhino-opt",
        description="Reads a module, runs passes on it, verifies it, prints it.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("file", nargs="?", default="-", help="MLIR text, - for standard input (the default)")
    add("-p", "--passes", action="append", default=[], metavar="PIPELINE", help="passes to run, in order")
    add(
        "-o", "--output", default="-", metavar="FILE", help="where the result goes (default: standard output)"
    )
    add("--list-passes", action="store_true", help="show all passes and their options")
    add(
        "--import",
        dest="import_",
        choices=["stablehlo"],
        help="read the text that `jax.jit(f).lower(...).as_text()` gives",
    )
    add("--export", choices=["stablehlo"], help="write text that JAX and XLA run")
    add(
        "--function",
        metavar="NAME",
        help="with --import: the entry function (default: main, or the only one)",
    )
    add(
        "--parameters",
        type=int,
        metavar="N",
        help="with --import: the first N arguments are parameters (donated ones always are)",
    )
    add(
        "--run",
        action="store_true",
        help="run the module on the interpreter and print its results, or whether its checks hold",
    )
    add(
        "--verify-each",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="verify the module after every pass",
    )
    add(
        "--verify-equivalence",
        action="store_true",
        help="run the interpreter on random inputs before and after every pass and compare",
    )
    add("--seed", type=int, default=0, help="of the random inputs")
    add(
        "--split-input-file", action="store_true", help="treat the pieces between '// -----' lines one by one"
    )
    add(
        "--verify-diagnostics",
        action="store_true",
        help="check that errors are those that // expected-error {{..}} comments announce; print nothing",
    )
    add(
        "--print-after-each", action="store_true", help="print the module after every pass, to standard error"
    )
    add("--debug-info", action="store_true", help="print locations")
    add("--generic", action="store_true", help="print MLIR's generic form")
    return parser


def known_passes() -> dict[str, Callable[[], type[ModulePass]]]:
    """All passes by name; `plan` stands above the others and is therefore not in their table."""
    from rhino.passes import PASSES

    def load_plan() -> type[ModulePass]:
        from rhino.planner.plan_pass import PlanPass

        return PlanPass

    return {**PASSES, "plan": load_plan}


def _run(options: argparse.Namespace) -> int:
    if options.list_passes:
        from rhino.cli.pipeline import describe

        print(describe(known_passes()))
        return 0
    from rhino.cli.pipeline import build_pipeline
    from rhino.dialects.text import print_module, read_file

    passes = build_pipeline(",".join(options.passes), known_passes())
    text = read_file(options.file)
    name = "<stdin>" if options.file == "-" else options.file
    chunks = list(split_chunks(text)) if options.split_input_file else [text]
    if options.verify_diagnostics:
        for chunk in chunks:
            _check_diagnostics(chunk, name, passes, options)
        return 0
    if options.run:
        from rhino.cli.foreign import run_chunks

        run_chunks(chunks, name, options, lambda text, more: _process(text, name, passes, more))
        return 0
    modules = [_process(chunk, name, passes, options) for chunk in chunks]
    if options.export is not None:
        from rhino.frontend.stablehlo import write_stablehlo

        printed = [write_stablehlo(m) for m in modules]
    else:
        printed = [print_module(m, options.debug_info, generic=options.generic) for m in modules]
    _write(options.output, "// -----\n".join(printed))
    return 0


def split_chunks(text: str) -> Iterator[str]:
    """The pieces between ``// -----`` lines, each behind enough empty lines to keep its line numbers."""
    at = 0
    for piece in re.split(r"^// -----.*\n?", text, flags=re.MULTILINE):
        yield "\n" * at + piece
        at += piece.count("\n") + 1


def _process(text: str, name: str, passes: Sequence[ModulePass], options: argparse.Namespace) -> ModuleOp:
    from rhino.dialects.text import context, parse_module, print_module
    from rhino.dialects.verify import verify

    if options.import_ is not None:
        from rhino.frontend.stablehlo import read_stablehlo

        module = read_stablehlo(text, name, function=options.function, parameters=options.parameters)
    else:
        module = parse_module(text, name)
    ctx = context()
    inputs, before = None, None
    if options.verify_equivalence:
        from rhino.cli.equivalence import Inputs, compare

        inputs = Inputs(options.seed)
        before = inputs.run(module)
    for each in passes:
        _apply(each, ctx, module)
        if options.print_after_each:
            print(
                f"// ----- after {each.name} -----\n{print_module(module, options.debug_info)}",
                file=sys.stderr,
            )
        if options.verify_each:
            try:
                verify(module)
            except RhinoError as error:
                raise ProgramError(
                    f"after pass {each.name}: {error.message}", where=error.where, remedy=error.remedy
                ) from error
        if inputs is not None and before is not None:
            after = inputs.run(module)
            print(f"// equivalence: {compare(before, after, each.name)}", file=sys.stderr)
            before = after
    return module


def _apply(each: ModulePass, ctx: object, module: ModuleOp) -> None:
    """Run one pass; what xDSL's own machinery raises becomes a ProgramError that names the pass."""
    from xdsl.utils.exceptions import DiagnosticException

    try:
        each.apply(ctx, module)  # type: ignore[arg-type]
    except DiagnosticException as error:
        raise ProgramError(f"pass {each.name}: {error}") from error
    except RhinoError as error:
        if error.where is None:
            error.where = f"pass {each.name}"
        raise


_EXPECTED = re.compile(r"//\s*expected-error\s*(?:@(above|below|[+-]\d+))?\s*\{\{(.*?)\}\}")


def _check_diagnostics(
    text: str, name: str, passes: Sequence[ModulePass], options: argparse.Namespace
) -> None:
    """Raise ProgramError unless the first error of a piece is the one that its comment announces."""
    expected = []
    for number, line in enumerate(text.split("\n"), 1):
        for match in _EXPECTED.finditer(line):
            offset = {"above": "-1", "below": "+1"}.get(match[1] or "+0", match[1] or "+0")
            expected.append((number + int(offset), match[2]))
    try:
        _process(text, name, passes, options)
    except RhinoError as error:
        place = re.match(rf"{re.escape(name)}:(\d+)", error.where or "")
        failed_at = int(place[1]) if place else None
        if any(want in error.message and failed_at in (None, at) for at, want in expected):
            return
        raise ProgramError(
            f"unexpected error: {error.message}",
            where=error.where,
            remedy="; ".join(f"line {at} announces '{want}'" for at, want in expected) or None,
        ) from error
    if expected:
        at, want = expected[0]
        raise ProgramError(f"expected the error '{want}', but there was none", where=f"{name}:{at}")


def _write(path: str, text: str) -> None:
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
