"""Compilation is told while it lasts, and what was being worked on comes back after it."""

from __future__ import annotations

from numba import njit

from rhino.cli.compiling import compiling_told


def test_compilation_is_told_once() -> None:
    @njit
    def inner(x: int) -> int:
        return x + 1

    @njit
    def outer(x: int) -> int:
        return 2 * inner(x)

    told: list[str] = []
    with compiling_told(told.append) as tell:
        assert tell is not None
        tell("mesh x=4")
        assert outer(3) == 8
        assert outer(4) == 10
    assert told == ["mesh x=4", "mesh x=4; compiling the search, which is kept for later runs", "mesh x=4"]
    outer(1.5)
    assert len(told) == 3


def test_nobody_to_tell() -> None:
    with compiling_told(None) as tell:
        assert tell is None
