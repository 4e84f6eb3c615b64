"""Where rounding and order show: our interpreter against StableHLO's own, on sums that cancel and on equal keys.

`chlo` ops are decomposed by StableHLO's own pass for its interpreter; ours reads them as they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jaxlib.mlir.dialects.stablehlo")

from hlo_reference import context, run_reference
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

from rhino.dialects.text import parse_module, print_module
from rhino.frontend.stablehlo import read_stablehlo
from rhino.frontend.stablehlo.checks import steps
from rhino.ir.evaluate import run_module

PARTS = {"complex<f32>": "f32", "complex<f64>": "f64"}
REAL = ("f16", "bf16", "f32", "f64")


@cache
def _registered() -> None:
    stablehlo.register_stablehlo_passes()


def decomposed(text: str) -> str:
    _registered()
    with context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
        return str(module)


def most_units(text: str) -> int:
    """Units in the last place by which any result differs."""
    got, want = run_module(read_stablehlo(text), []), run_reference(decomposed(text))
    most = 0
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        same = np.asarray((g == w) | (np.isnan(g) & np.isnan(w)))
        assert np.array_equal(np.isfinite(g), np.isfinite(w))
        most = max(most, int(np.where(same, 0, steps(g, w)).max(initial=0)))
    return most


def constant(name: str, values: np.ndarray, element: str) -> str:
    """A constant of `values`, rounded to the element type by the reader."""
    type = f"tensor<{'x'.join(map(str, values.shape))}x{element}>"
    if element in PARTS:
        body = ", ".join(f"({v.real:.9e}, {v.imag:.9e})" for v in values.reshape(-1))
    else:
        body = ", ".join(f"{v:.9e}" for v in values.reshape(-1))
    flat = f"tensor<{values.size}x{element}>"
    return f"  {name}.0 = stablehlo.constant dense<[{body}]> : {flat}\n  {name} = stablehlo.reshape {name}.0 : ({flat}) -> {type}\n"


def program(lines: str, result: str, type: str, element: str) -> str:
    """A module whose `@main` returns a value, a complex one by its parts."""
    if element not in PARTS:
        return f"func.func @main() -> {type} {{\n{lines}  return {result} : {type}\n}}"
    part = type.replace(element, PARTS[element])
    for name in ("real", "imag"):
        lines += f"  %{name} = stablehlo.{name} {result} : ({type}) -> {part}\n"
    return f"func.func @main() -> ({part}, {part}) {{\n{lines}  return %real, %imag : {part}, {part}\n}}"


def of(op: str, values: np.ndarray, element: str) -> str:
    type = f"tensor<{values.size}x{element}>"
    lines = constant("%x", values, element) + f"  %y = chlo.{op} %x : {type} -> {type}\n"
    return program(lines, "%y", type, element)


RANDOM = np.random.default_rng(5)
SPREAD = np.concatenate([RANDOM.normal(size=200) * 3, RANDOM.uniform(-9, 9, 60), [0.5, 1.0, 8.0, 30.0, -0.5]])
UNIT = RANDOM.uniform(-1, 1, 200)
PLANE = RANDOM.normal(size=200) * 3 + 1j * RANDOM.normal(size=200) * 3

#: Values and how many units may differ. The reference takes functions of f64 from libm. So does NumPy, except on
#: processors with AVX-512, where it has its own, a unit off; a few of them add up here.
FUNCTIONS = {
    "acosh": (1 + np.abs(SPREAD), 2),
    "asin": (UNIT, 2),
    "asinh": (SPREAD, 2),
    "atanh": (UNIT, 2),
    "bessel_i1e": (SPREAD, 1),
    "cosh": (SPREAD, 2),
    "digamma": (SPREAD, 2),
    "erfc": (SPREAD, 1),
    "lgamma": (SPREAD, 2),
    "sinh": (SPREAD, 3),
}


@pytest.mark.parametrize("element", REAL)
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_functions(name: str, element: str) -> None:
    values, limit = FUNCTIONS[name]
    assert most_units(of(name, values, element)) <= limit


#: Prints the units of every function of f64, in the order of `FUNCTIONS`.
UNITS_OF_F64 = """
import test_reference_rounding as t
for name, (values, _) in t.FUNCTIONS.items():
    print(t.most_units(t.of(name, values, "f64")))
"""


def test_functions_of_f64_without_those_of_avx512() -> None:
    """With libm on both sides nothing differs but acosh, which Rhino computes more exactly near 1."""
    disabled = "X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL"
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", UNITS_OF_F64],
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": disabled, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    units = dict(zip(FUNCTIONS, map(int, run.stdout.split()), strict=True))
    assert units.pop("acosh") <= 2
    assert set(units.values()) == {0}, units


@pytest.mark.parametrize("element", ["complex<f32>", "complex<f64>"])
@pytest.mark.parametrize("name", ["atan", "atanh", "cosh", "sinh", "square"])
def test_complex_functions(name: str, element: str) -> None:
    assert most_units(of(name, PLANE, element)) <= 3


def windows(element: str, op: str, init: float, window: str, padding: str, result: str) -> str:
    values = RANDOM.normal(size=(6, 9)) + 0.1
    first = f"({init}, 0.0)" if element in PARTS else f"{init}"
    scalar = f"tensor<{element}>"
    lines = constant("%x", values, element) + (
        f"  %i = stablehlo.constant dense<{first}> : {scalar}\n"
        f'  %y = "stablehlo.reduce_window"(%x, %i) <{{window_dimensions = array<i64: {window}>, '
        f"padding = dense<{padding}> : tensor<2x2xi64>}}> ({{\n"
        f"  ^bb0(%a: {scalar}, %b: {scalar}):\n    %c = stablehlo.{op} %a, %b : {scalar}\n"
        f"    stablehlo.return %c : {scalar}\n"
        f"  }}) : (tensor<6x9x{element}>, {scalar}) -> tensor<{result}x{element}>\n"
    )
    return program(lines, "%y", f"tensor<{result}x{element}>", element)


RUNNING = {
    "running": ("6, 1", "[[5, 0], [0, 0]]", "6x9"),
    "from the end": ("1, 9", "[[0, 0], [0, 8]]", "6x9"),
    "pooling": ("3, 3", "[[0, 0], [1, 1]]", "4x9"),
}


@pytest.mark.parametrize("element", [*REAL, "complex<f32>", "complex<f64>"])
@pytest.mark.parametrize("name", list(RUNNING))
def test_every_step_of_a_window_is_rounded(name: str, element: str) -> None:
    for op, neutral, other in (("add", 0.0, 1.0), ("multiply", 1.0, 2.0)):
        for init in (neutral, other):
            assert most_units(windows(element, op, init, *RUNNING[name])) == 0, (op, init)


@pytest.mark.parametrize("element", ["f32", "f64", "complex<f32>", "complex<f64>"])
def test_products_are_added_in_order(element: str) -> None:
    x, y = RANDOM.normal(size=(3, 5, 7)), RANDOM.normal(size=(3, 7, 4))
    type = f"tensor<3x5x4x{element}>"
    lines = constant("%x", x, element) + constant("%y", y, element)
    lines += (
        f"  %z = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1] : "
        f"(tensor<3x5x7x{element}>, tensor<3x7x4x{element}>) -> {type}\n"
    )
    assert most_units(program(lines, "%z", type, element)) == 0
    kernel = RANDOM.normal(size=(3, 3, 2, 4))
    type = f"tensor<1x4x6x4x{element}>"
    lines = constant("%x", RANDOM.normal(size=(1, 5, 6, 2)), element) + constant("%w", kernel, element)
    lines += (
        "  %z = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        "window = {pad = [[1, 0], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
        f"(tensor<1x5x6x2x{element}>, tensor<3x3x2x4x{element}>) -> {type}\n"
    )
    assert most_units(program(lines, "%z", type, element)) == 0


def unstable(extent: int, keys: int, distinct: int) -> str:
    """A sort of rows by one or two keys with many equal ones, beside a counter."""
    columns = [RANDOM.integers(0, distinct, (2, extent)) for _ in range(keys)]
    columns.append(np.arange(2 * extent).reshape(2, extent))
    type = f"tensor<2x{extent}xi32>"
    lines = "".join(
        f"  %x{i} = stablehlo.constant dense<{c.tolist()}> : {type}\n" for i, c in enumerate(columns)
    )
    names = [f"%x{i}" for i in range(len(columns))]
    arguments = ", ".join(f"%a{i}: tensor<i32>, %b{i}: tensor<i32>" for i in range(len(columns)))
    body = "    %p = stablehlo.compare LT, %a0, %b0 : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
    if keys == 2:
        body += (
            "    %e = stablehlo.compare EQ, %a0, %b0 : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            "    %q = stablehlo.compare LT, %a1, %b1 : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            "    %both = stablehlo.and %e, %q : tensor<i1>\n    %less = stablehlo.or %p, %both : tensor<i1>\n"
        )
    kinds = ", ".join([type] * len(columns))
    lines += (
        f'  %y:{len(columns)} = "stablehlo.sort"({", ".join(names)}) <{{dimension = 1 : i64, is_stable = false}}> ({{\n'
        f"  ^bb0({arguments}):\n{body}    stablehlo.return {'%less' if keys == 2 else '%p'} : tensor<i1>\n"
        f"  }}) : ({kinds}) -> ({kinds})\n"
    )
    results = ", ".join(f"%y#{i}" for i in range(len(columns)))
    return f"func.func @main() -> ({kinds}) {{\n{lines}  return {results} : {kinds}\n}}"


@pytest.mark.parametrize("keys", [1, 2])
@pytest.mark.parametrize("extent", [2, 16, 17, 40, 100, 700])
def test_equal_keys_of_unstable_sorts(extent: int, keys: int) -> None:
    for distinct in (2, 7, 1000):
        text = unstable(extent, keys, distinct)
        module = read_stablehlo(text)
        for got, again, want in zip(
            run_module(module, []),
            run_module(parse_module(print_module(module)), []),
            run_reference(text),
            strict=True,
        ):
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(again, want)
