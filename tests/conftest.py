"""Collects tests/filecheck/**/*.mlir: every `// RUN:` line is a test, run inside this process.

    // RUN: rhino-opt %s -p canonicalize | filecheck %s
    // RUN: not rhino-opt %s 2>&1 | filecheck %s --check-prefix=ERROR

The lines are lit's; a Python start for each of them would cost a second, this costs milliseconds.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_RUN = re.compile(r"^\s*//\s*RUN:\s*(.*)$", re.MULTILINE)


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".mlir" and "filecheck" in file_path.parts:
        return MlirFile.from_parent(parent, path=file_path)
    return None


class MlirFile(pytest.File):
    """One item per RUN line."""

    def collect(self) -> Iterator[pytest.Item]:
        lines = _RUN.findall(self.path.read_text())
        if not lines:
            raise self.CollectError(f"{self.path} has no RUN line")
        for i, line in enumerate(lines):
            yield RunLine.from_parent(self, name=f"RUN{i}", line=line)


class CheckFailed(Exception):
    """A command of a RUN line failed; the message says how."""


class RunLine(pytest.Item):
    """A pipeline of `rhino-opt` and `filecheck`."""

    def __init__(self, *, line: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.line = line

    def runtest(self) -> None:
        text = ""
        for stage in self.line.split(" | "):
            argv = [str(self.path) if a == "%s" else a for a in shlex.split(stage)]
            if argv[0] == "filecheck":
                self._check(argv[1:], text)
                continue
            negated = argv[0] == "not"
            argv = argv[negated:]
            if argv[0] != "rhino-opt":
                raise CheckFailed(f"unknown tool {argv[0]}")
            text = self._opt(argv[1:], text, negated)

    def _opt(self, argv: list[str], stdin: str, negated: bool) -> str:
        from rhino.cli.opt import main

        merge = "2>&1" in argv
        argv = [a for a in argv if a != "2>&1"]
        out, err = io.StringIO(), io.StringIO()
        saved = sys.stdin
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out if merge else err):
                code = main(argv)
        finally:
            sys.stdin = saved
        if (code != 0) != negated:
            raise CheckFailed(
                f"rhino-opt {shlex.join(argv)} returned {code}\n{err.getvalue()}{out.getvalue()}"
            )
        return out.getvalue()

    def _check(self, argv: list[str], text: str) -> None:
        from filecheck.finput import FInput
        from filecheck.matcher import Matcher
        from filecheck.options import Options
        from filecheck.parser import Parser

        flag = "--check-prefix="
        prefixes = [a.removeprefix(flag) for a in argv if a.startswith(flag)] or ["CHECK"]
        options = Options(match_filename=str(self.path), check_prefixes=prefixes)
        matcher = Matcher(options, FInput("stdin", text), Parser.from_opts(options))
        matcher.stderr = io.StringIO()
        if matcher.run() != 0:
            raise CheckFailed(f"{matcher.stderr.getvalue()}\nthe input was:\n{text}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        if isinstance(excinfo.value, CheckFailed):
            return f"{self.line}\n{excinfo.value}"
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}: {self.line}"
