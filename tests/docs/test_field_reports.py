"""docs/field-reports.md: every kind of fault has tests, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "field-reports.md").read_text()
BODY, _, OTHERS = PAGE.partition("\n## Does not apply\n")
#: The kinds that were collected; the numbers between them are free.
KINDS = {
    1, 2, 4, 5, 6, 7, 9, 10, 11, 12, 14, 15, 16, 17, 19, 20, 21, 22, 24, 25, 26, 27, 29, 30, 31, 32, 34, 35, 36, 37, 39,
    40, 41, 42, 44, 45, 46, 47, 49, 50, 51, 52, 54, 55, 56, 57, 59, 60, 61, 62, 64, 65, 66, 67, 69, 70, 71, 72, 74, 75,
    76, 77, 79, 80, 81, 82, 84, 85, 86, 87, 89, 90, 91, 92, 94,
}  # fmt: skip
TEST = re.compile(r'`(tests/[\w/]+\.py)::(\w+)`(?: \("([^"]+)"\))?')


def rows(text: str) -> list[list[str]]:
    """The cells of all rows that begin with a number."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if re.match(r"\| \d", line)
    ]


APPLY = rows(BODY)


@cache
def parsed(path: str) -> tuple[set[str], set[str]]:
    """Names of the functions of a file at its top level, and its strings."""
    tree = ast.parse((ROOT / path).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    strings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return functions, strings


def test_every_kind_is_there_once() -> None:
    numbers = [int(row[0]) for row in APPLY + rows(OTHERS)]
    assert sorted(numbers) == sorted(KINDS)


@pytest.mark.parametrize("row", APPLY, ids=[row[0] for row in APPLY])
def test_named_tests_exist(row: list[str]) -> None:
    _, fault, reports, answer, tests = row
    assert fault and answer
    found = TEST.findall(tests)
    assert found and TEST.sub("", tests).strip(", ") == ""
    for path, name, case in found:
        functions, strings = parsed(path)
        assert name.startswith("test_") and name in functions, f"{path} has no {name}"
        assert not case or case in strings, f"{path} has no case {case!r}"
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", each) for each in reports.split(", "))


@pytest.mark.parametrize("row", rows(OTHERS), ids=[row[0] for row in rows(OTHERS)])
def test_what_does_not_apply_says_why(row: list[str]) -> None:
    _, fault, reports, why = row
    assert fault and reports and why


def test_the_readme_leads_there() -> None:
    assert "(docs/field-reports.md)" in (ROOT / "README.md").read_text()
