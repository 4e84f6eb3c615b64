"""StableHLO text to tokens, in one pass of one regular expression."""

from __future__ import annotations

import re
from typing import NamedTuple

from rhino.ir.errors import ProgramError

#: ``tensor<...>`` is one token: nothing else in the language reads ``20x20xf32`` as three things.
_TOKEN = re.compile(
    r"""
      (?P<skip>(?:[ \t\r\n]+|//[^\n]*)+)
    | (?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
    | (?P<tensor>tensor<(?:(?:\d+|\?)x)*(?:complex<\w+>|[A-Za-z]\w*)>)
    | (?P<value>%[\w$.\-]+(?:\#\d+)?)
    | (?P<symbol>@(?:[A-Za-z_][\w$.\-]*|"[^"\\]*+(?:\\.[^"\\]*+)*+"))
    | (?P<label>\^[\w$.\-]+)
    | (?P<hash>\#[A-Za-z_][\w$.]*)
    | (?P<type>![A-Za-z_][\w$.]*)
    | (?P<number>-?(?:0x[0-9A-Fa-f]+|\d+\.\d*(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?))
    | (?P<word>[A-Za-z_][\w$.]*)
    | (?P<punct>->|::|\{-\#|\#-\}|[()\[\]{}<>=,:?*+\-/|])
    """,
    re.VERBOSE | re.ASCII,
)


class Token(NamedTuple):
    """``kind`` is a group of the pattern above, or ``end``."""

    kind: str
    text: str
    at: int


def tokenize(text: str, name: str) -> list[Token]:
    """All tokens, an ``end`` after the last. Raises ProgramError at a character that begins none."""
    tokens: list[Token] = []
    at, end = 0, len(text)
    match = _TOKEN.match
    while at < end:
        found = match(text, at)
        if found is None:
            raise ProgramError(f"unexpected character {text[at]!r}", where=place(text, name, at))
        kind = found.lastgroup or ""
        if kind != "skip":
            tokens.append(Token(kind, found[0], at))
        at = found.end()
    tokens.append(Token("end", "", end))
    return tokens


def place(text: str, name: str, at: int) -> str:
    """``name:line:column`` of a position."""
    line = text.count("\n", 0, at) + 1
    return f"{name}:{line}:{at - text.rfind(chr(10), 0, at)}"
