"""Unsigned integers: text, literals and arithmetic against numpy's own."""

from __future__ import annotations

import numpy as np
import pytest

from rhino.dialects.text import parse_module, print_module
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.evaluate import run_module


@pytest.mark.parametrize("name", ["ui8", "ui16", "ui32", "ui64"])
def test_text_and_arithmetic(name: str) -> None:
    dtype = types.numpy_dtype(types.element(name))
    top = np.iinfo(dtype).max
    text = f"""func.func @main(%x: tensor<4x{name}>, %y: tensor<4x{name}>) -> tensor<4x{name}> {{
  %c = hlo.constant dense<[0, 1, 7, {top}]> : tensor<4x{name}>
  %a = hlo.div %x, %y : tensor<4x{name}>
  %b = hlo.rem %x, %y : tensor<4x{name}>
  %d = hlo.mul %a, %c : tensor<4x{name}>
  %e = hlo.maximum %d, %b : tensor<4x{name}>
  func.return %e : tensor<4x{name}>
}}"""
    module = parse_module(text)
    printed = print_module(module)
    assert print_module(parse_module(printed)) == printed
    x = np.array([top, top - 1, 100, 3], dtype)
    y = np.array([2, 3, 7, 5], dtype)
    expected = np.maximum(x // y * np.array([0, 1, 7, top], dtype), x % y)
    np.testing.assert_array_equal(run_module(module, [x, y])[0], expected)


def test_division_by_zero_and_shifts() -> None:
    text = """func.func @main(%x: tensor<ui8>) -> (tensor<ui8>, tensor<ui8>, tensor<ui8>) {
  %z = hlo.constant dense<0> : tensor<ui8>
  %one = hlo.constant dense<1> : tensor<ui8>
  %a = hlo.div %x, %z : tensor<ui8>
  %b = hlo.shift_right_logical %x, %one : tensor<ui8>
  %c = hlo.shift_right_arithmetic %x, %one : tensor<ui8>
  func.return %a, %b, %c : tensor<ui8>, tensor<ui8>, tensor<ui8>
}"""
    found = [int(r) for r in run_module(parse_module(text), [np.array(200, np.uint8)])]
    assert found == [255, 100, 228]


def test_negative_literal_is_refused() -> None:
    text = "func.func @main() {\n %c = hlo.constant dense<-1> : tensor<ui8>\n func.return\n}"
    with pytest.raises(ProgramError, match="does not fit ui8"):
        parse_module(text)


def test_widening() -> None:
    assert types.widens(types.UI8, types.I16)
    assert types.widens(types.UI8, types.UI32)
    assert not types.widens(types.UI8, types.I8)
    assert not types.widens(types.I8, types.UI64)
