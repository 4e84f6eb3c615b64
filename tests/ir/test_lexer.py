"""The lexer's short way gives the tokens of xDSL's."""

from __future__ import annotations

import random
from pathlib import Path

from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from rhino.ir.text import RhinoLexer

TEXTS = [p.read_text() for p in sorted((Path(__file__).parents[1] / "filecheck").rglob("*.mlir"))]
LETTERS = 'ab_Z09 \n\t\r\x0b\x0c\x1c\u00a0\u2003é²%#!^@"\\:,()[]{}<>=+-*?|/.$&~;'


class LongWay(RhinoLexer):
    lex = MLIRLexer.lex


def tokens(lexer: type[RhinoLexer], text: str) -> list[tuple[object, ...]]:
    reader = lexer(Input(text, "test"))
    found: list[tuple[object, ...]] = []
    try:
        while not found or found[-1][0] is not MLIRTokenKind.EOF:
            token = reader.lex()
            found.append((token.kind, token.span.start, token.span.end))
    except ParseError as error:
        found.append((error.msg, error.span.start))
    return found


def test_same_tokens() -> None:
    draw = random.Random(0)
    cases = list(TEXTS)
    for _ in range(5000):
        cases.append("".join(draw.choices(LETTERS, k=draw.randint(1, 14))))
    for _ in range(500):
        text = draw.choice(TEXTS)
        start = draw.randrange(len(text))
        piece = list(text[start : start + 200])
        piece[draw.randrange(len(piece))] = draw.choice(LETTERS)
        cases.append("".join(piece))
    for text in cases:
        assert tokens(RhinoLexer, text) == tokens(LongWay, text), repr(text)
