"""Texts of programs with random damage, and what a reader may make of them.

A reader gives a module, or an error of Rhino's that says where; never another exception, never seconds of work.
"""

from __future__ import annotations

import os
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from xdsl.dialects.builtin import ModuleOp

from rhino.check.choices import Choices, Seeded
from rhino.dialects.text import parse_module, print_module
from rhino.ir.errors import RhinoError

#: A damaged text has at most a few dozen ops on small tensors; more than this is a hang.
LIMIT_S = 20.0

_TOKEN = re.compile(r'"[^"\n]*"|[%^@#!]?[\w.$]+|->|\s+|.', re.DOTALL)
_NUMBERS = (
    "0", "1", "-1", "2", "3", "7", "-0.0", "1.5", "1e400", "1e-400", "0x0", "0xFFFFFFFF", "0xZ", "007", "?", "*",
    "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "1" + "0" * 40, "65536", "1000003", "true", "false", "-", "",
)  # fmt: skip
_JUNK = (
    *"%^@#!\"{}()<>[],:=-+?*/\\x1.e\n\t ~&;$'_é∞\x00\x7f\u2028\U0001f98f", "->", "//", "0x", '"\\', "loc(", "#loc",
    "dense<", "dense_resource<", "array<i64", "tensor<", "tensor<*xf32>", "tensor<4x", "tuple<", "complex<f32>",
    "index", "none", "f8E4M3FN", "f80", "i0", "i7", "ui32", "memref<2xf32>", "vector<2xf32>", "() -> ()", "^bb0:",
    "hlo.", "dist.", "kernel.", "stablehlo.", "builtin.module", "func.func @main() {", "return", "}) : () -> ()",
)  # fmt: skip
_ENDS = re.compile(r"(?<=\n)")


def damaged(choices: Choices, texts: Sequence[str]) -> str:
    """One of the texts with one to three pieces of damage."""
    text = choices.pick(texts)
    for _ in range(choices.integer(1, 3)):
        text = choices.pick(_DAMAGE)(choices, text, texts)
    return text


def _part(choices: Choices, pieces: Sequence[str], most: int) -> tuple[int, int]:
    """Where some of the pieces begin and end."""
    start = choices.integer(0, len(pieces))
    return start, min(len(pieces), start + choices.integer(1, most))


def _tokens(choices: Choices, text: str, texts: Sequence[str]) -> str:
    """Some tokens are lost, doubled, exchanged, or replaced by tokens of a program."""
    tokens = _TOKEN.findall(text)
    start, stop = _part(choices, tokens, 4)
    kind = choices.integer(0, 3)
    if kind == 0:
        new: list[str] = []
    elif kind == 1:
        new = tokens[start:stop] * 2
    else:
        others = tokens if kind == 2 else _TOKEN.findall(choices.pick(texts))
        words = [t for t in others if not t.isspace()]
        new = [choices.pick(words)] if words else []
    return "".join(tokens[:start] + new + tokens[stop:])


def _number(choices: Choices, text: str, texts: Sequence[str]) -> str:
    """A number becomes another."""
    found = list(re.finditer(r"-?\d+(\.\d+)?(e[-+]?\d+)?", text))
    if not found:
        return text
    at = choices.pick(found)
    return text[: at.start()] + choices.pick(_NUMBERS) + text[at.end() :]


def _junk(choices: Choices, text: str, texts: Sequence[str]) -> str:
    """A few characters become something else."""
    start = choices.integer(0, len(text))
    return text[:start] + choices.pick(_JUNK) + text[start + choices.integer(0, 4) :]


def _lines(choices: Choices, text: str, texts: Sequence[str]) -> str:
    """Some lines are lost, doubled, or moved."""
    lines = _ENDS.split(text)
    start, stop = _part(choices, lines, 3)
    part, rest = lines[start:stop], lines[:start] + lines[stop:]
    kind = choices.integer(0, 2)
    if kind == 1:
        part = part * 2
    at = start if kind == 1 else choices.integer(0, len(rest))
    return "".join(rest if kind == 0 else rest[:at] + part + rest[at:])


def _other(choices: Choices, text: str, texts: Sequence[str]) -> str:
    """The first lines of this text and the last of another; sometimes it just ends."""
    lines, others = _ENDS.split(text), _ENDS.split(choices.pick(texts))
    if choices.integer(0, 3) == 0:
        return text[: choices.integer(0, len(text))]
    return "".join(lines[: choices.integer(0, len(lines))] + others[choices.integer(0, len(others)) :])


_DAMAGE: tuple[Callable[[Choices, str, Sequence[str]], str], ...] = (
    _tokens,
    _tokens,
    _number,
    _junk,
    _lines,
    _other,
)


class Hang(Exception):
    """A reader did not come to an end."""


@contextmanager
def _limited() -> Iterator[None]:
    def stop(signum: int, frame: FrameType | None) -> None:
        raise Hang

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def outcome(read: Callable[[str], ModuleOp], text: str) -> str:
    """``module`` or ``error``; anything else that happens is raised, with the text.

    What is read must print, and its text must read back to the same text, in both forms.
    """
    try:
        with _limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                module = read(text)
            except RhinoError as error:
                assert error.message and error.where, f"an error without a message or a place: {error!r}"
                return "error"
            printed = print_module(module)
            for generic in (False, True):
                again = print_module(parse_module(print_module(module, generic=generic)))
                assert again == printed, f"the text does not read back:\n{printed}\nis\n{again}"
            return "module"
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\nof the text\n{text}") from error


def run(
    read: Callable[[str], ModuleOp], texts: Sequence[str], seed: str, *, seconds: float, most: int
) -> dict[str, int]:
    """Damage and read texts for so long, or so many times: how often there was a module, how often an error."""
    counts = {"module": 0, "error": 0}
    began = time.monotonic()
    for number in range(most):
        if time.monotonic() - began > seconds:
            break
        try:
            counts[outcome(read, damaged(Seeded(f"{seed}/{number}"), texts))] += 1
        except AssertionError as error:
            raise AssertionError(f"text {seed}/{number}: {error}") from error
    return counts


def run_long(read: Callable[[str], ModuleOp], texts: Sequence[str]) -> None:
    """`run` for RHINO_SECONDS seconds (600) with the seed RHINO_SEED (1); prints the counts."""
    seconds, seed = float(os.environ.get("RHINO_SECONDS", "600")), os.environ.get("RHINO_SEED", "1")
    print(run(read, texts, seed, seconds=seconds, most=10**9))
