"""Where in the user's program an exported node came from: module path and source line."""

from __future__ import annotations

import inspect
import re
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import (
    FileLineColLoc,
    IntAttr,
    LocationAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_RHINO = str(Path(__file__).parents[1])
_STANDARD = sysconfig.get_paths()["stdlib"]
_TORCH = "/site-packages/torch/"


def is_library(filename: str) -> bool:
    """Whether a source file is not the user's: generated, of an installed package, Python's or Rhino's."""
    return filename.startswith(("<", _RHINO, _STANDARD)) or "site-packages" in filename


def _is_machinery(filename: str) -> bool:
    """Whether a frame says nothing about the model: torch's own, Rhino's wrapper, generated code."""
    return filename.startswith(("<", _RHINO)) or _TORCH in filename


@lru_cache(maxsize=4096)
def source_line(stack_trace: str) -> tuple[str, int] | None:
    """File and line of the innermost frame of a stack trace that belongs to the model's own source."""
    found = None
    for match in _FRAME.finditer(stack_trace):
        if not _is_machinery(match["file"]):
            found = (_short(match["file"]), int(match["line"]))
    return found


def _short(filename: str) -> str:
    """Files of installed packages are named from the package on, the same on every machine."""
    return filename.rpartition("site-packages/")[2]


def module_path(meta: Mapping[str, Any], prefix: str) -> str:
    """The path of the innermost `nn.Module` that a node belongs to, without the wrapper's `prefix`."""
    stack = meta.get("nn_module_stack")
    if not stack:
        return ""
    path = str(next(reversed(stack.values()))[0])
    path = path.removeprefix("L['self'].")
    return "" if path == prefix else path.removeprefix(prefix + ".")


@dataclass(frozen=True)
class Origins:
    """Tells where nodes came from.

    Attributes:
        prefix: name of the model inside the exported wrapper.
        loss: file and line at which the loss function begins. torch records the frames of `forward` methods
            only, so this stands for all that the loss computes by itself.
    """

    prefix: str
    loss: tuple[str, int] | None = None

    def place(self, meta: Mapping[str, Any]) -> tuple[str, tuple[str, int] | None]:
        """Module path and source line."""
        line = source_line(meta.get("stack_trace") or "")
        return module_path(meta, self.prefix), line or self.loss

    def describe(self, meta: Mapping[str, Any]) -> str | None:
        """The place of a node for messages: ``transformer.h.0.attn (model.py:12)``."""
        path, line = self.place(meta)
        text = f"{line[0]}:{line[1]}" if line else ""
        return (f"{path} ({text})" if path and text else path or text) or None

    def location(self, meta: Mapping[str, Any]) -> LocationAttr:
        """The location of a node: its module path, and under it the source line."""
        return _location(*self.place(meta))


def origins(prefix: str, loss: Any) -> Origins:
    """Origins of a program whose loss is this function (or callable)."""
    code = getattr(
        inspect.unwrap(loss) if inspect.isfunction(loss) else type(loss).__call__, "__code__", None
    )
    return Origins(prefix, (_short(code.co_filename), code.co_firstlineno) if code else None)


@lru_cache(maxsize=4096)
def _location(path: str, line: tuple[str, int] | None) -> LocationAttr:
    at: LocationAttr | None = None
    if line is not None:
        at = FileLineColLoc(StringAttr(line[0]), IntAttr(line[1]), IntAttr(0))
    if path:
        return NameLoc(StringAttr(path), at or NoneAttr())
    return at or UnknownLoc()
