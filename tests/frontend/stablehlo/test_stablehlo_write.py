"""The writer: what it writes runs on XLA with the interpreter's results, and reads back as the same program."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import xla
from jaxcheck import difference, lowered
from lax_cases import GENERATORS, Draw
from test_jax_programs import programs

from rhino.dialects.text import parse_module, print_module
from rhino.frontend.stablehlo import read_stablehlo, write_stablehlo
from rhino.ir.errors import UnsupportedError, UsageError
from rhino.ir.evaluate import run_module

#: One of each kind of op that is written in its own way; all others are in the long test.
CHOSEN = (
    "add", "lt", "convert", "bitcast", "select", "clamp", "iota", "pad", "slice", "dynamic_slice",
    "dynamic_update_slice", "reduce", "argminmax", "cumulative", "dot_general", "convolution", "reduce_window",
    "max_pool_gradient", "gather", "scatter", "sort", "top_k", "reduce_precision", "erf", "concatenate", "rev",
)  # fmt: skip


def check(name: str, seed: int) -> None:
    """Read a case, write it, run it on XLA; read it back, run it again."""
    case = GENERATORS[name](Draw(seed))
    with jax.enable_x64(True):
        text = lowered(case.function, case.arguments)
        arguments = [np.asarray(a) for a in jax.tree.leaves(case.arguments)]
    try:
        module = read_stablehlo(text)
    except UnsupportedError:
        return
    want = run_module(module, arguments)
    written = write_stablehlo(module)
    for got, expected in zip(xla.run(written, arguments), want, strict=True):
        assert got.dtype == expected.dtype
        assert difference(got, expected, case.slack) is None, case.name
    again = read_stablehlo(written)
    for got, expected in zip(run_module(again, arguments), want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", CHOSEN)
def test_on_xla(name: str) -> None:
    check(name, 1)


@pytest.mark.parametrize("name", ["loop", "until", "cond", "switch", "normal"])
def test_control_flow_on_xla(name: str) -> None:
    function, tree = programs()[name]
    with jax.enable_x64(False):
        text = lowered(function, tree)
    arguments = [np.asarray(a) for a in jax.tree.leaves(tree)]
    module = read_stablehlo(text)
    want = run_module(module, arguments)
    written = write_stablehlo(module)
    for got, expected in zip(xla.run(written, arguments), want, strict=True):
        assert difference(got, expected, 10) is None
    for got, expected in zip(run_module(read_stablehlo(written), arguments), want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.long
@pytest.mark.parametrize("name", list(GENERATORS))
def test_all_on_xla(name: str) -> None:
    for seed in range(2, 6):
        check(name, seed)


def test_random_numbers_are_the_same_bits() -> None:
    text = """func.func @main(%s: tensor<i64>) -> (tensor<5x3xf32>, tensor<4xf64>, tensor<3xbf16>) {
  %i = hlo.iota 0 : tensor<5x3xi64>
  %a = hlo.random_uniform %s, %i to f32 : tensor<i64>, tensor<5x3xi64> -> tensor<5x3xf32>
  %j = hlo.iota 0 : tensor<4xi64>
  %b = hlo.random_uniform %s, %j to f64 : tensor<i64>, tensor<4xi64> -> tensor<4xf64>
  %k = hlo.constant dense<[-1, 4294967296, 77]> : tensor<3xi64>
  %c = hlo.random_uniform %s, %k to bf16 : tensor<i64>, tensor<3xi64> -> tensor<3xbf16>
  func.return %a, %b, %c : tensor<5x3xf32>, tensor<4xf64>, tensor<3xbf16>
}"""
    module = parse_module(text)
    seed = np.array(-(2**40) + 12345, np.int64)
    for got, want in zip(xla.run(write_stablehlo(module), [seed]), run_module(module, [seed]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_names_donation_and_shardings() -> None:
    text = """dist.mesh @mesh = <["dp"=2, "tp"=2]>
func.func @main(%w: tensor<4x4xf32> {rhino.name = "net.w", rhino.role = "parameter", dist.layout = #dist.layout<[{}, {"tp"}]>}, %x: tensor<8x4xf32> {rhino.name = "x", rhino.role = "input"}) -> (tensor<4x4xf32> {rhino.name = "net.w", rhino.role = "parameter", rhino.alias = 0 : i64}, tensor<8x4xf32> {rhino.name = "y", rhino.role = "output"}) {
  %0 = hlo.negate %w : tensor<4x4xf32>
  %1 = hlo.exp %x {dist.layout = [#dist.layout<[{"dp"}, {}]>]} : tensor<8x4xf32>
  func.return %0, %1 : tensor<4x4xf32>, tensor<8x4xf32>
}"""
    module = parse_module(text)
    written = write_stablehlo(module)
    xla.verifies(written)
    assert "tf.aliasing_output = 0" in written and 'loc("net.w")' in written
    assert 'sdy.mesh @mesh = <["dp"=2, "tp"=2]>' in written and "sdy.sharding_constraint" in written
    back = print_module(read_stablehlo(written))
    assert back.count("#dist.layout") == 2
    assert 'rhino.name = "net.w", rhino.role = "parameter"' in back and "rhino.alias = 0" in back


def test_what_cannot_be_written() -> None:
    text = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = hlo.select_and_scatter %x, %x window [1] strides [1] low [0] high [0] base_dilation [1] window_dilation [2]
    : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}"""
    with pytest.raises(UnsupportedError, match="no dilations"):
        write_stablehlo(parse_module(text))
    local = """dist.mesh @mesh = <["dp"=2]>
func.func @main(%x: tensor<2xf32> {dist.layout = #dist.layout<[{"dp"}]>, dist.global_type = tensor<4xf32>}) -> (tensor<2xf32> {dist.layout = #dist.layout<[{"dp"}]>, dist.global_type = tensor<4xf32>}) {
  func.return %x : tensor<2xf32>
}"""
    with pytest.raises(UsageError, match="local program"):
        write_stablehlo(parse_module(local))
