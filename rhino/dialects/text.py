"""Modules from text and files, with Rhino's dialects."""

from __future__ import annotations

import sys
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.ir import Dialect

from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.printing import print_module
from rhino.ir.text import parse_text
from rhino.ir.verify import verify_module


def context() -> Context:
    """A context that knows builtin, func, hlo, dist and kernel; the latter are loaded when first met."""
    ctx = Context()
    ctx.load_dialect(Builtin)
    ctx.load_dialect(Func)
    ctx.register_dialect("hlo", _hlo)
    ctx.register_dialect("dist", _dist)
    ctx.register_dialect("kernel", _kernel)
    return ctx


def _hlo() -> Dialect:
    from rhino.dialects.hlo import Hlo

    return Hlo


def _dist() -> Dialect:
    from rhino.dialects.dist import Dist

    return Dist


def _kernel() -> Dialect:
    from rhino.dialects.kernel import Kernel

    return Kernel


def parse_module(text: str, name: str = "<text>", *, verify: bool = True) -> ModuleOp:
    """Read a module. Raises ProgramError with ``file:line:column`` when it does not parse or verify."""
    module = parse_text(context(), text, name)
    if verify:
        try:
            verify_module(module)
        except ProgramError as error:  # of an op whose place the text says is unknown
            error.where = error.where or name
            raise
    return module


def read_file(path: str) -> str:
    """The text of a file, or of standard input for ``-``. Raises UsageError or ProgramError."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProgramError(f"not UTF-8 text (byte {error.start})", where=path) from error


def load_module(path: str) -> ModuleOp:
    """Read and verify a module from a file."""
    return parse_module(read_file(path), path)


__all__ = ["context", "load_module", "parse_module", "print_module", "read_file"]
