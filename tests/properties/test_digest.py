"""The digest of a program: what changes it and what does not."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from random_programs import Program, programs

from rhino.dialects.text import parse_module, print_module
from rhino.ir.digest import digest

TEXT = """
func.func @main(%x: tensor<4x8xf32>, %w: tensor<4x8xf32>) -> tensor<4xf32> {
  %y = hlo.sub %x, %w : tensor<4x8xf32>
  %z = hlo.reduce "sum" %y dims [1] : tensor<4x8xf32> -> tensor<4xf32>
  func.return %z : tensor<4xf32>
}
"""


def of(text: str) -> str:
    return digest(parse_module(text, "test.mlir"))


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs())
def test_printing_and_reading_keep_it(program: Program) -> None:
    text = print_module(program.module, debug=True)
    assert of(text) == digest(program.module)


def test_names_and_places_play_no_part() -> None:
    assert of(TEXT) == of(TEXT.replace("%y", "%other").replace("\n  %z", "\n\n\n  %z"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("hlo.sub %x, %w", "hlo.sub %w, %x"),
        ("hlo.sub", "hlo.add"),
        ('"sum"', '"max"'),
        ("f32", "f64"),
        ("@main", "@other"),
    ],
)
def test_everything_else_does(before: str, after: str) -> None:
    assert of(TEXT) != of(TEXT.replace(before, after))
