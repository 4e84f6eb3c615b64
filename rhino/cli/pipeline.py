"""Pass pipelines as text: ``autodiff,optimizer{kind=sgd lr=1e-3},place{mesh=dp=2,tp=4}``.

    pipeline ::= pass (`,` pass)*
    pass     ::= name (`{` option ((`,` | space) option)* `}`)?
    option   ::= name (`=` value)?          value: bare text, "quoted text" or comma-separated values

A piece between commas that does not begin with the name of an option belongs to the value before it, so that
meshes need no quotes. A bare name of a flag switches it on. Dashes and underscores in names are the same.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rhino.ir.errors import UsageError

if TYPE_CHECKING:
    from xdsl.passes import ModulePass

Table = dict[str, "Callable[[], type[ModulePass]]"]

_NAME = re.compile(r"\s*([A-Za-z_][\w-]*)\s*")


@dataclass(frozen=True)
class PassText:
    """A pass as written: its name and the raw text between its braces."""

    name: str
    options: str


def parse_pipeline(text: str) -> list[PassText]:
    """Split a pipeline into passes. Raises UsageError that shows where the text goes wrong."""
    out: list[PassText] = []
    at = 0
    while at < len(text.rstrip()):
        match = _NAME.match(text, at)
        if match is None:
            raise _bad(text, at, "expected the name of a pass")
        at = match.end()
        options = ""
        if text[at : at + 1] == "{":
            end = _closing(text, at)
            options, at = text[at + 1 : end], end + 1
        out.append(PassText(match[1], options))
        at += len(text[at:]) - len(text[at:].lstrip())
        if at < len(text):
            if text[at] != ",":
                raise _bad(text, at, "expected a comma between passes")
            at += 1
            if not text[at:].strip():
                raise _bad(text, at, "expected a pass after the comma")
    return out


def _closing(text: str, start: int) -> int:
    """Index of the brace that closes the one at `start`, minding quotes and nested brackets."""
    depth, quoted = 0, False
    for i in range(start, len(text)):
        c = text[i]
        if c == '"':
            quoted = not quoted
        elif not quoted and c in "{[(":
            depth += 1
        elif not quoted and c in "}])":
            depth -= 1
            if depth == 0:
                return i
    raise _bad(text, start, "the options are not closed")


def _bad(text: str, at: int, message: str) -> UsageError:
    return UsageError(
        f"{message}\n    {text}\n    {' ' * at}^",
        where="pipeline",
        remedy="write it like canonicalize,optimizer{kind=sgd lr=1e-3}",
    )


def build_pipeline(text: str, table: Table) -> list[ModulePass]:
    """The passes of a pipeline. Raises UsageError for unknown passes and options and for wrong values."""
    return [build_pass(item, table) for item in parse_pipeline(text)]


def build_pass(item: PassText, table: Table) -> ModulePass:
    """One pass with its options."""
    if item.name not in table:
        close = difflib.get_close_matches(item.name, table, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"no pass '{item.name}'", remedy=f"{hint}the passes are: {', '.join(sorted(table))}")
    cls = table[item.name]()
    hints = typing.get_type_hints(cls)
    fields = {f.name: hints[f.name] for f in dataclasses.fields(cls) if f.init}
    values: dict[str, Any] = {}
    for name, value in split_options(item.options, list(fields)):
        if name not in fields:
            known = ", ".join(fields) or "none"
            raise UsageError(f"pass {item.name} has no option '{name}'", remedy=f"its options are: {known}")
        if name in values:
            raise UsageError(f"pass {item.name}: option '{name}' is given twice")
        try:
            values[name] = convert(value, fields[name])
        except ValueError:
            shown = "nothing" if value is None else f"'{value}'"
            raise UsageError(
                f"pass {item.name}: option '{name}' is {shown} where {type_name(fields[name])} is expected"
            ) from None
    missing = [
        f.name
        for f in dataclasses.fields(cls)
        if f.init
        and f.name not in values
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UsageError(
            f"pass {item.name} needs the option '{missing[0]}'",
            remedy=f"write {item.name}{{{missing[0]}=...}}",
        )
    return cls(**values)


def split_options(text: str, names: Sequence[str]) -> list[tuple[str, str | None]]:
    """``(name, raw value)`` of every option; None for a bare name. The module's docstring has the rule."""
    out: list[tuple[str, str | None]] = []
    for piece in _pieces(text):
        head, equals, value = piece.partition("=")
        name = head.strip().replace("-", "_")
        if name in names or not out:
            out.append((name, _unquote(value.strip()) if equals else None))
        elif out[-1][1] is not None:
            last, before = out[-1]
            out[-1] = (last, f"{before},{_unquote(piece)}")
        else:
            out.append((name, value if equals else None))
    return out


def _pieces(text: str) -> list[str]:
    """Split at commas and spaces outside of quotes and brackets."""
    out, current, depth, quoted = [], "", 0, False
    for c in text:
        if c == '"':
            quoted = not quoted
        elif not quoted:
            depth += (c in "{[(") - (c in "}])")
        if not quoted and depth == 0 and (c == "," or c.isspace()):
            if current:
                out.append(current)
            current = ""
        else:
            current += c
    return [*out, current] if current else out


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def convert(text: str | None, hint: Any) -> Any:
    """The value of an option of type `hint` (bool, int, float, str, a tuple or union of them) from its text.

    Raises ValueError when the text is no such value.
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        members = typing.get_args(hint)
        if type(None) in members and text is not None and text.lower() == "none":
            return None
        for member in members:
            if member is type(None):
                continue
            try:
                return convert(text, member)
            except ValueError:
                continue
        raise ValueError(text)
    if origin is typing.Literal:
        if text in typing.get_args(hint):
            return text
        raise ValueError(text)
    if hint is bool:
        known = {None: True, "true": True, "1": True, "false": False, "0": False}
        if (lower := text.lower() if text is not None else None) in known:
            return known[lower]
        raise ValueError(text)
    if text is None:
        raise ValueError(text)
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        return tuple(convert(part.strip(), inner) for part in text.strip("[]()").split(",") if part.strip())
    if hint in (int, float, str):
        return hint(text)
    raise ValueError(text)


def type_name(hint: Any) -> str:
    """How help and messages name the type of an option."""
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(typing.get_args(hint))
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def describe(table: Table) -> str:
    """One paragraph per pass: its name, what it does, and its options with types and defaults."""
    lines: list[str] = []
    for name in sorted(table):
        cls = table[name]()
        module = __import__(cls.__module__, fromlist=["__doc__"])
        summary = (module.__doc__ or "").strip().split("\n")[0].partition(": ")[2]
        lines.append(f"{name}: {summary}" if summary else name)
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
            lines.append(f"    {field.name}: {type_name(hints[field.name])}{default}")
    return "\n".join(lines)
