"""Special functions of `chlo` against scipy, over all of their range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from rhino.frontend.stablehlo import read_stablehlo
from rhino.ir.evaluate import run_module

NEAR_ONE = 1 - 10.0 ** -np.arange(1, 15.5, 0.25)
POINTS: dict[str, tuple[Callable[..., Any], np.ndarray, float]] = {
    "acos": (np.arccos, np.linspace(-1, 1, 201), 8),
    "acosh": (
        np.arccosh,
        np.concatenate([1 + 10.0 ** -np.arange(0, 15), np.linspace(1, 99, 200), [1e30]]),
        8,
    ),
    "asin": (np.arcsin, np.linspace(-1, 1, 201), 8),
    "asinh": (np.arcsinh, np.concatenate([np.linspace(-9, 9, 201), [1e-10, -1e-10, 1e30, -1e30]]), 8),
    "atan": (np.arctan, np.concatenate([np.linspace(-9, 9, 201), [np.inf, -np.inf]]), 8),
    "atanh": (np.arctanh, np.concatenate([np.linspace(-0.9, 0.9, 201), [1, -1]]), 8),
    "bessel_i1e": (special.i1e, np.concatenate([np.linspace(-50, 50, 401), [0, 1e-10, 1e6]]), 500),
    "cosh": (np.cosh, np.linspace(-80, 80, 201), 200),
    "sinh": (np.sinh, np.concatenate([np.linspace(-80, 80, 201), [1e-10, -1e-10]]), 200),
    "erfc": (special.erfc, np.linspace(-6, 9, 401), 60),
    "erf_inv": (special.erfinv, np.concatenate([np.linspace(-0.999, 0.999, 201), NEAR_ONE, [0, 1, -1]]), 8),
    "lgamma": (special.gammaln, np.concatenate([np.linspace(0.1, 50, 400), [1e10, 0, -3, np.inf]]), 400),
    "digamma": (special.digamma, np.concatenate([np.linspace(0.1, 50, 400), [1e10, np.inf]]), 400),
}


def applied(name: str, *arguments: np.ndarray) -> np.ndarray:
    type = f"tensor<{arguments[0].size}x{'f32' if arguments[0].dtype == np.float32 else 'f64'}>"
    names = ["%x", "%y"][: len(arguments)]
    given = ", ".join(f"{n}: {type}" for n in names)
    text = (
        f"func.func @main({given}) -> {type} {{\n"
        f"  %0 = chlo.{name} {', '.join(names)} : {', '.join([type] * len(names))} -> {type}\n"
        f"  return %0 : {type}\n}}"
    )
    return run_module(read_stablehlo(text), list(arguments))[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", list(POINTS))
def test_within_few_units_in_the_last_place(name: str, dtype: Any) -> None:
    function, points, limit = POINTS[name]
    x = points.astype(dtype)
    got = applied(name, x).astype(np.float64)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float64))
        # Next to a zero of lgamma and digamma only the absolute error can be small.
        scale = np.maximum(np.abs(want), 0.02 if name in ("lgamma", "digamma") else 0)
        error = np.abs(got - want) / scale / np.finfo(dtype).eps
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    assert np.all(same | (error <= limit)), (x[~same][np.nanargmax(error[~same])], np.nanmax(error[~same]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_next_after(dtype: Any) -> None:
    x = np.array([0, -0.0, 1, -1, 1e-45, -1e-45, np.inf, -np.inf, 5, np.nan, 3, np.inf], dtype)
    y = np.array([1, -1, 2, 5, -1, 1, 0, 0, 5, 1, np.nan, np.inf], dtype)
    np.testing.assert_array_equal(applied("next_after", x, y), np.nextafter(x, y))
