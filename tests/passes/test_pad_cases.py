"""Cases of pad that random programs meet once in thousands."""

from __future__ import annotations

import numpy as np
import pytest

from rhino.dialects import signature
from rhino.dialects.text import parse_module
from rhino.ir.evaluate import run_module
from rhino.passes.extents import classes_of
from rhino.passes.pad import pad

SHIFT = """
func.func @main(%x: tensor<{n}x3xf64> {{rhino.name = "x", rhino.role = "input"}}) -> (tensor<{n}x3xf64> {{rhino.name = "y", rhino.role = "output"}}) {{
  %y = hlo.pad %x with 1.5 : f64 low [{low}, 0] high [{high}, 0] interior [0, 0] : tensor<{n}x3xf64> -> tensor<{n}x3xf64>
  func.return %y : tensor<{n}x3xf64>
}}
"""


@pytest.mark.parametrize("low", [-4, -2, 2, 4])
def test_a_dimension_shifted_by_all_it_holds_does_not_show_its_padding(low: int) -> None:
    module = parse_module(SHIFT.format(n=2, low=low, high=-low))
    x = np.arange(6.0).reshape(2, 3)
    classes, _ = classes_of(signature.main_of(module))
    pad(module, {i: each.extent + 1 for i, each in enumerate(classes)}, zeros=False)
    (arg,) = signature.main_of(module).args
    whole = np.full(arg.type.get_shape(), np.nan)
    whole[:2, :3] = x
    (y,) = run_module(module, [whole])
    np.testing.assert_array_equal(y, np.full((2, 3), 1.5))
