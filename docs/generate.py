"""Writes what the documentation can take from the code: the tutorial's outputs, the IR reference, the table of
ops, the pass list.

    python docs/generate.py            # rewrite what is stale
    python docs/generate.py --check    # name what is stale, exit code 1

In `tutorial.md` every ```sh and ```python block is run, in order, in one empty folder that has `examples/` in it,
unless `<!-- not run -->` (or the marker of one of the README's two commands) stands before it. A block after
`<!-- output -->` is replaced by what the block above it printed, after `<!-- output of FILE -->` by a file that it
wrote.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent


@dataclass(frozen=True)
class Block:
    """A fenced block of Markdown.

    Attributes:
        language: the word after the fence.
        text: what it holds.
        runs: whether it is to be run.
        output: where its output is shown: None (nowhere), an empty string (what it prints), or a file.
        span: of the block that shows the output, in the document.
    """

    language: str
    text: str
    runs: bool
    output: str | None
    span: tuple[int, int] = (0, 0)


_BLOCK = re.compile(
    r"(?P<skip><!-- (?:not run|run|test) -->\n)?^```(?P<language>sh|python)\n(?P<text>.*?)^```\n"
    r"(?:\n?<!-- output(?: of (?P<file>\S+))? -->\n```\w*\n(?P<shown>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def blocks(document: str) -> Iterator[Block]:
    """The ```sh and ```python blocks of a document, in order."""
    for match in _BLOCK.finditer(document):
        shown = match["shown"] is not None
        yield Block(
            match["language"],
            match["text"],
            match["skip"] is None,
            (match["file"] or "") if shown else None,
            match.span("shown") if shown else (0, 0),
        )


def run_commands(text: str) -> str:
    """Run the lines of an ```sh block, `rhino` and `rhino-opt` in this process; returns what they print.

    Lines continued with a backslash are joined. Raises RuntimeError when a command fails.
    """
    from rhino.cli import main as rhino
    from rhino.cli import opt

    out = io.StringIO()
    for line in text.replace("\\\n", " ").splitlines():
        command = shlex.split(line, comments=True)
        if not command:
            continue
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            if command[0] == "rhino-opt":
                code: object = opt.main(command[1:])
            elif command[0] == "rhino":
                try:
                    rhino.main(command[1:])
                except SystemExit as exit:
                    code = exit.code
            else:
                raise RuntimeError(f"'{command[0]}' is neither rhino nor rhino-opt")
        if code:
            raise RuntimeError(f"{line}\nreturned {code}\n{out.getvalue()}")
    return out.getvalue()


def run_python(text: str, names: dict[str, object]) -> str:
    """Run a ```python block in the scope of those before it; returns what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, "<example>", "exec", dont_inherit=True), names)
    return out.getvalue()


@contextlib.contextmanager
def playground() -> Iterator[Path]:
    """A new folder with the examples in it, as the current one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "examples").symlink_to(ROOT / "examples")
        with contextlib.chdir(path):
            yield path


def with_outputs(document: str) -> str:
    """The document with every shown output made anew."""
    pieces, at = [], 0
    names: dict[str, object] = {"__name__": "example"}
    with playground() as folder:
        for block in blocks(document):
            if not block.runs:
                continue
            printed = run_commands(block.text) if block.language == "sh" else run_python(block.text, names)
            if block.output is None:
                continue
            text = (folder / block.output).read_text() if block.output else printed
            start, end = block.span
            pieces += [document[at:start], readable(text)]
            at = end
    return "".join([*pieces, document[at:]])


def readable(text: str) -> str:
    """Modules without their outer line, with one argument of `@main` per line; other text as it is."""
    lines = text.rstrip().split("\n")
    if not lines[0].startswith("builtin.module"):
        return text.rstrip() + "\n"
    body = [line.removeprefix("  ") for line in lines[1:-1]]
    return "\n".join(part for line in body for part in _wrapped(line)) + "\n"


def _wrapped(line: str) -> list[str]:
    if not line.startswith("func.func @main(") or len(line) < 100:
        return [line]
    head, arguments, results = re.fullmatch(r"(func\.func @main)\((.*?)\) -> (.*) \{", line).groups()  # type: ignore[union-attr]
    results = results[1:-1] if results.startswith("(") else results
    return [
        f"{head}(",
        *_one_per_line(arguments, ","),
        "  ) -> (",
        *_one_per_line(results, ","),
        "  ) {",
    ]


def _one_per_line(text: str, separator: str) -> list[str]:
    """The parts between separators that stand in no bracket and no quotes, indented."""
    parts, depth, quoted = [""], 0, False
    for c in text:
        quoted ^= c == '"'
        depth += (c in "([{<") - (c in ")]}>") if not quoted else 0
        if c == separator and depth == 0 and not quoted:
            parts[-1] += c
            parts.append("")
        else:
            parts[-1] += c
    return [f"    {part.strip()}" for part in parts]


def tutorial() -> str:
    """`tutorial.md` with its outputs."""
    return with_outputs((DOCS / "tutorial.md").read_text())


def pass_list() -> str:
    """`passes.md`."""
    import reference

    return reference.passes()


def ir_reference() -> str:
    """`ir-reference.md`."""
    import reference

    return reference.operations()


def op_table() -> str:
    """`ops.md`."""
    import optable

    return optable.page()


GENERATED: dict[str, Callable[[], str]] = {
    "tutorial.md": tutorial,
    "passes.md": pass_list,
    "ir-reference.md": ir_reference,
    "ops.md": op_table,
}


def main(check: bool) -> int:
    """Rewrite the stale files, or name them. Returns the exit code."""
    stale = []
    for name, make in GENERATED.items():
        path, text = DOCS / name, make()
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not check:
                path.write_text(text)
    if stale:
        print(("stale: " if check else "written: ") + ", ".join(stale))
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
