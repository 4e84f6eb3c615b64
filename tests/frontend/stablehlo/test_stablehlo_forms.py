"""Forms of StableHLO text that test programs are written in: each says itself what holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rhino.cli.opt import main

SMALL_INTEGERS = """
func.func @signed() {
  %0 = stablehlo.constant dense<[0, 7, 2, -3, -8]> : tensor<5xi4>
  %1 = stablehlo.constant dense<[-8, 1, 2, -6, -1]> : tensor<5xi4>
  %2 = stablehlo.add %0, %1 : tensor<5xi4>
  check.expect_eq_const %2, dense<[-8, -8, 4, 7, 7]> : tensor<5xi4>
  %3 = stablehlo.count_leading_zeros %0 : tensor<5xi4>
  check.expect_eq_const %3, dense<[4, 1, 2, 0, 0]> : tensor<5xi4>
  %4 = stablehlo.popcnt %0 : tensor<5xi4>
  check.expect_eq_const %4, dense<[0, 3, 1, 3, 1]> : tensor<5xi4>
  func.return
}
// -----
func.func @unsigned() {
  %0 = stablehlo.constant dense<[0, 3, 2]> : tensor<3xui2>
  %1 = stablehlo.not %0 : tensor<3xui2>
  check.expect_eq_const %1, dense<[3, 0, 1]> : tensor<3xui2>
  %2 = stablehlo.shift_right_arithmetic %0, %1 : tensor<3xui2>
  check.expect_eq_const %2, dense<[0, 3, 3]> : tensor<3xui2>
  %3 = stablehlo.convert %0 : (tensor<3xui2>) -> tensor<3xf32>
  check.expect_eq_const %3, dense<[0.0, 3.0, 2.0]> : tensor<3xf32>
  func.return
}"""

TUPLES_AND_TOKENS = """
func.func @t() {
  %a = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %b = stablehlo.constant dense<3> : tensor<i32>
  %t = stablehlo.tuple %a, %b : tuple<tensor<2xf32>, tensor<i32>>
  %0 = stablehlo.get_tuple_element %t[0] : (tuple<tensor<2xf32>, tensor<i32>>) -> tensor<2xf32>
  %1 = "stablehlo.get_tuple_element"(%t) {index = 1 : i32} : (tuple<tensor<2xf32>, tensor<i32>>) -> tensor<i32>
  check.expect_eq_const %0, dense<[1.0, 2.0]> : tensor<2xf32>
  check.expect_eq_const %1, dense<3> : tensor<i32>
  %2 = stablehlo.create_token : !stablehlo.token
  %3 = stablehlo.after_all %2, %2 : !stablehlo.token
  func.return
}"""

SHAPES_AS_OPERANDS = """
func.func @d() {
  %x = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %four = stablehlo.constant dense<[4]> : tensor<1xi64>
  %0 = stablehlo.dynamic_reshape %x, %four : (tensor<2x2xi64>, tensor<1xi64>) -> tensor<4xi64>
  check.expect_eq_const %0, dense<[1, 2, 3, 4]> : tensor<4xi64>
  %s = stablehlo.constant dense<2> : tensor<3xi64>
  %1 = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [2, 1] : (tensor<2x2xi64>, tensor<3xi64>) -> tensor<2x2x2xi64>
  check.expect_eq_const %1, dense<[[[1, 3], [2, 4]], [[1, 3], [2, 4]]]> : tensor<2x2x2xi64>
  %2 = stablehlo.dynamic_iota %four, dim = 0 : (tensor<1xi64>) -> tensor<4xi64>
  check.expect_eq_const %2, dense<[0, 1, 2, 3]> : tensor<4xi64>
  %low = stablehlo.constant dense<[-1, 1]> : tensor<2xi64>
  %high = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
  %inner = stablehlo.constant dense<[0, 1]> : tensor<2xi64>
  %3 = stablehlo.dynamic_pad %x, %zero, %low, %high, %inner : (tensor<2x2xi64>, tensor<i64>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<2x4xi64>
  check.expect_eq_const %3, dense<[[0, 3, 0, 4], [0, 0, 0, 0]]> : tensor<2x4xi64>
  %start = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
  %limit = stablehlo.constant dense<2> : tensor<2xi64>
  %ones = stablehlo.constant dense<1> : tensor<2xi64>
  %4 = stablehlo.real_dynamic_slice %x, %start, %limit, %ones : (tensor<2x2xi64>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<1x2xi64>
  check.expect_eq_const %4, dense<[[3, 4]]> : tensor<1x2xi64>
  %5 = "stablehlo.dynamic_gather"(%x, %four, %sizes) <{dimension_numbers = #stablehlo.gather<offset_dims = [0], collapsed_slice_dims = [0], start_index_map = [0]>}> : (tensor<2x2xi64>, tensor<1xi64>, tensor<2xi64>) -> tensor<2xi64>
  check.expect_eq_const %5, dense<[3, 4]> : tensor<2xi64>
  %p = stablehlo.constant dense<[[1, 0]]> : tensor<1x2xi64>
  %w = stablehlo.constant dense<[[[1]], [[10]]]> : tensor<2x1x1xi64>
  %y = stablehlo.constant dense<[[[1], [2]]]> : tensor<1x2x1xi64>
  %6 = "stablehlo.dynamic_conv"(%y, %w, %p) <{dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64}> : (tensor<1x2x1xi64>, tensor<2x1x1xi64>, tensor<1x2xi64>) -> tensor<1x2x1xi64>
  check.expect_eq_const %6, dense<[[[10], [21]]]> : tensor<1x2x1xi64>
  %7 = stablehlo.get_dimension_size %x, dim = 1 : (tensor<2x2xi64>) -> tensor<i32>
  %8 = stablehlo.set_dimension_size %x, %7, dim = 0 : (tensor<2x2xi64>, tensor<i32>) -> tensor<2x2xi64>
  check.expect_eq %8, %x : tensor<2x2xi64>
  func.return
}""".replace("  %5 =", "  %sizes = stablehlo.constant dense<[1, 2]> : tensor<2xi64>\n  %5 =")

ORDER_OF_COMPLEX = """
func.func @c() {
  %x = stablehlo.constant dense<[(1.0, 2.0), (1.0, -2.0), (3.0, 0.0)]> : tensor<3xcomplex<f32>>
  %y = stablehlo.constant dense<[(1.0, 1.0), (2.0, -5.0), (3.0, 1.0)]> : tensor<3xcomplex<f32>>
  %0 = stablehlo.maximum %x, %y : tensor<3xcomplex<f32>>
  check.expect_eq_const %0, dense<[(1.0, 2.0), (2.0, -5.0), (3.0, 1.0)]> : tensor<3xcomplex<f32>>
  %1 = stablehlo.minimum %x, %y : tensor<3xcomplex<f32>>
  check.expect_eq_const %1, dense<[(1.0, 1.0), (1.0, -2.0), (3.0, 0.0)]> : tensor<3xcomplex<f32>>
  %2 = stablehlo.clamp %1, %x, %1 : tensor<3xcomplex<f32>>
  check.expect_eq %2, %1 : tensor<3xcomplex<f32>>
  func.return
}"""

ALGORITHM = """
func.func @a() {
  %x = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT], algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  check.expect_close %0, %1, max_ulp_difference = 1 : tensor<2x2xf32>, tensor<2x2xf32>
  check.expect_almost_eq %0, %1, tolerance = 0.1 : tensor<2x2xf32>
  func.return
}""".replace(
    "  check", "  %1 = stablehlo.constant dense<[[7.0, 10.0], [15.0, 22.0]]> : tensor<2x2xf32>\n  check", 1
)

UPPER_HALVES = """
func.func @m() {
  %0 = stablehlo.constant dense<[100, -100]> : tensor<2xi8>
  %1 = chlo.mulhi %0, %0 : tensor<2xi8>, tensor<2xi8> -> tensor<2xi8>
  check.expect_eq_const %1, dense<[39, 39]> : tensor<2xi8>
  %2 = stablehlo.constant dense<[-9223372036854775808, 4294967296]> : tensor<2xi64>
  %3 = chlo.mulhi %2, %2 : tensor<2xi64>, tensor<2xi64> -> tensor<2xi64>
  check.expect_eq_const %3, dense<[4611686018427387904, 1]> : tensor<2xi64>
  %4 = stablehlo.constant dense<[18446744073709551615]> : tensor<1xui64>
  %5 = chlo.mulhi %4, %4 : tensor<1xui64>, tensor<1xui64> -> tensor<1xui64>
  check.expect_eq_const %5, dense<[18446744073709551614]> : tensor<1xui64>
  func.return
}"""

TOTAL_ORDER = """
func.func @t() {
  %0 = stablehlo.constant dense<[-0.0, 0.0, 0xFFC00000, 0x7FC00000, 0xFF800000, 1.0, 0.0]> : tensor<7xf32>
  %1, %2 = chlo.top_k(%0, k = 7) : tensor<7xf32> -> (tensor<7xf32>, tensor<7xi32>)
  check.expect_eq_const %2, dense<[3, 5, 1, 6, 0, 4, 2]> : tensor<7xi32>
  func.return
}"""

DIFFERENT_PROGRAMS = """
module @m {
  func.func @p(%x: tensor<i32>) -> tensor<ui32> {
    %0 = stablehlo.partition_id : tensor<ui32>
    return %0 : tensor<ui32>
  }
  func.func @q() -> (tensor<i32>, tensor<ui32>) {
    %0 = stablehlo.constant dense<7> : tensor<i32>
    %1 = "stablehlo.replica_id"() : () -> tensor<ui32>
    return %0, %1 : tensor<i32>, tensor<ui32>
  }
  func.func @main() {
    %x = stablehlo.constant dense<1> : tensor<i32>
    %r:3 = "interpreter.run_parallel"(%x) {programs = [[@q, @p]]} : (tensor<i32>) -> (tensor<i32>, tensor<ui32>, tensor<ui32>)
    check.expect_eq_const %r#0, dense<7> : tensor<i32>
    check.expect_eq_const %r#1, dense<0> : tensor<ui32>
    check.expect_eq_const %r#2, dense<1> : tensor<ui32>
    func.return
  }
}"""

SCAN = """
func.func @running() {
  %x = stablehlo.constant dense<[[1, 2, 3], [10, 20, 30]]> : tensor<2x3xi32>
  %c = stablehlo.constant dense<100> : tensor<2xi32>
  %two = stablehlo.constant dense<2> : tensor<2xi32>
  %0:2 = chlo.scan(%x) inits(%c) dimension=1 attributes {is_reverse = true} {
  ^bb0(%a: tensor<2xi32>, %b: tensor<2xi32>):
    %1 = stablehlo.add %a, %b : tensor<2xi32>
    %2 = stablehlo.multiply %1, %two : tensor<2xi32>
    stablehlo.return %2, %1 : tensor<2xi32>, tensor<2xi32>
  } : (tensor<2x3xi32>, tensor<2xi32>) -> (tensor<2x3xi32>, tensor<2xi32>)
  check.expect_eq_const %0#0, dense<[[212, 210, 206], [320, 300, 260]]> : tensor<2x3xi32>
  check.expect_eq_const %0#1, dense<[106, 160]> : tensor<2xi32>
  func.return
}
// -----
func.func @generic() {
  %x = stablehlo.constant dense<[1.0, 4.0, 2.0]> : tensor<3xf32>
  %y = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi64>
  %c = stablehlo.constant dense<0.5> : tensor<f32>
  %0:3 = "chlo.scan"(%x, %y, %c) <{dimension = 0 : i64, is_reverse = false, operandSegmentSizes = array<i32: 2, 1>}> ({
  ^bb0(%a: tensor<f32>, %i: tensor<i64>, %b: tensor<f32>):
    %1 = stablehlo.maximum %a, %b : tensor<f32>
    %2 = stablehlo.add %i, %i : tensor<i64>
    stablehlo.return %b, %2, %1 : tensor<f32>, tensor<i64>, tensor<f32>
  }) : (tensor<3xf32>, tensor<3xi64>, tensor<f32>) -> (tensor<3xf32>, tensor<3xi64>, tensor<f32>)
  check.expect_eq_const %0#0, dense<[0.5, 1.0, 4.0]> : tensor<3xf32>
  check.expect_eq_const %0#1, dense<[2, 4, 6]> : tensor<3xi64>
  check.expect_eq_const %0#2, dense<4.0> : tensor<f32>
  func.return
}
// -----
func.func @nothing() {
  %x = stablehlo.constant dense<> : tensor<0x2xf32>
  %c = stablehlo.constant dense<[3.0, 4.0]> : tensor<2xf32>
  %0:2 = chlo.scan(%x) inits(%c) dimension=0 {
  ^bb0(%a: tensor<2xf32>, %b: tensor<2xf32>):
    stablehlo.return %a, %a : tensor<2xf32>, tensor<2xf32>
  } : (tensor<0x2xf32>, tensor<2xf32>) -> (tensor<0x2xf32>, tensor<2xf32>)
  check.expect_eq_const %0#1, dense<[3.0, 4.0]> : tensor<2xf32>
  func.return
}"""

SQUARES = """
func.func @s() {
  %0 = stablehlo.constant dense<[(3.0, 1.0), (1.0e+200, -1.0e+200), (1.0e+200, 2.0e+200)]> : tensor<3xcomplex<f64>>
  %1 = chlo.square %0 : tensor<3xcomplex<f64>> -> tensor<3xcomplex<f64>>
  check.expect_eq_const %1, dense<[(8.0, 6.0), (0.0, 0xFFF0000000000000), (0xFFF0000000000000, 0x7FF0000000000000)]> : tensor<3xcomplex<f64>>
  %2 = stablehlo.square %0 : tensor<3xcomplex<f64>>
  check.expect_eq %1, %2 : tensor<3xcomplex<f64>>
  func.return
}"""

PADDED_AS_TOLD = """
func.func @c() {
  %x = stablehlo.constant dense<[[[1], [2], [3]]]> : tensor<1x3x1xi64>
  %w = stablehlo.constant dense<[[[1]], [[10]]]> : tensor<2x1x1xi64>
  %p = stablehlo.constant dense<[[1, 0]]> : tensor<1x2xi64>
  %0 = stablehlo.dynamic_conv(%x, %w, %p) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {stride = [2], rhs_dilate = [1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x3x1xi64>, tensor<2x1x1xi64>, tensor<1x2xi64>) -> tensor<1x2x1xi64>
  check.expect_eq_const %0, dense<[[[10], [32]]]> : tensor<1x2x1xi64>
  func.return
}"""

TO_THE_FIRST = """
module @m {
  func.func @f(%x: tensor<2xi32>) -> tensor<2xi32> {
    %0 = "stablehlo.collective_reduce"(%x) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %c = stablehlo.multiply %a, %b : tensor<i32>
      stablehlo.return %c : tensor<i32>
    }) {replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>} : (tensor<2xi32>) -> tensor<2xi32>
    return %0 : tensor<2xi32>
  }
  func.func @main() {
    %a = stablehlo.constant dense<[2, 3]> : tensor<2xi32>
    %b = stablehlo.constant dense<[5, 7]> : tensor<2xi32>
    %r:2 = "interpreter.run_parallel"(%a, %b) {programs = [[@f], [@f]]} : (tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<2xi32>)
    check.expect_eq_const %r#0, dense<0> : tensor<2xi32>
    check.expect_eq_const %r#1, dense<[10, 21]> : tensor<2xi32>
    func.return
  }
}"""

ALL = {
    "scan": SCAN,
    "squares": SQUARES,
    "padded as told": PADDED_AS_TOLD,
    "to the first": TO_THE_FIRST,
    "small integers": SMALL_INTEGERS,
    "tuples and tokens": TUPLES_AND_TOKENS,
    "shapes as operands": SHAPES_AS_OPERANDS,
    "order of complex numbers": ORDER_OF_COMPLEX,
    "algorithm": ALGORITHM,
    "upper halves": UPPER_HALVES,
    "total order": TOTAL_ORDER,
    "different programs": DIFFERENT_PROGRAMS,
}


@pytest.mark.parametrize("name", list(ALL))
def test_checks_hold(name: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "f.mlir"
    path.write_text(ALL[name])
    status = main(["--import", "stablehlo", "--run", "--split-input-file", str(path)])
    captured = capsys.readouterr()
    assert status == 0, captured
    assert captured.out.count(" holds") == ALL[name].count("check.expect_")


REFUSED = {
    "bits of small integers": (
        '%0 = stablehlo.constant dense<[1, 2]> : tensor<2xui4>\n  %1 = "stablehlo.bitcast_convert"(%0) : (tensor<2xui4>) -> tensor<i8>',
        "less than a byte",
    ),
    "computed paddings": (
        '%0 = stablehlo.constant dense<[1]> : tensor<1xi64>\n  %1 = stablehlo.add %0, %0 : tensor<1xi64>\n  %2 = stablehlo.constant dense<0> : tensor<i64>\n  %3 = "stablehlo.dynamic_pad"(%0, %2, %1, %1, %1) : (tensor<1xi64>, tensor<i64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<5xi64>',
        "paddings that are computed",
    ),
    "a tuple from nowhere": (
        "%0 = stablehlo.constant dense<[1]> : tensor<1xi64>\n  %1 = stablehlo.get_tuple_element %0[0] : (tuple<tensor<1xi64>>) -> tensor<1xi64>",
        "no stablehlo.tuple makes",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_refused(name: str, tmp_path: Path, capsys: Any) -> None:
    body, message = REFUSED[name]
    path = tmp_path / "f.mlir"
    path.write_text(f"func.func @f() {{\n  {body}\n  func.return\n}}")
    assert main(["--import", "stablehlo", "--run", str(path)]) != 0
    assert message in capsys.readouterr().err


ELEMENTS = {
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "ui16": np.dtype(np.uint16),
    "i64": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "complex<f32>": np.dtype(np.complex64),
    "complex<f64>": np.dtype(np.complex128),
}


def whole_file(element: str, x: np.ndarray, y: np.ndarray, packed: bool = False) -> str:
    """A file as tests generated by JAX are written: what goes in and what should come out stand in functions."""
    type = f"tensor<{x.shape[0]}x{x.shape[1]}x{element}>"
    turned = f"tensor<{x.shape[1]}x{x.shape[0]}x{element}>"
    hexes = [(np.packbits(v, bitorder="little") if packed else v).tobytes().hex().upper() for v in (x, y)]
    check = "expect_close" if "f" in element and "f8" not in element else "expect_eq"
    return f"""// RUN: stablehlo-opt -inline %s | stablehlo-translate --interpret
// RUN-DISABLED(inaccurate) stablehlo-opt %s > %t.1

module @jit_main attributes {{jax.uses_shape_polymorphism = true, mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32}} {{
  func.func public @main() -> ({turned} {{jax.result_info = "", mhlo.layout_mode = "default"}}) {{
    %0:2 = call @inputs() : () -> ({type}, {type})
    %1 = call @expected() : () -> {turned}
    %2 = call @turned(%0#1) : ({type}) -> {turned}
    stablehlo.custom_call @check.{check}(%2, %1) {{has_side_effect = true}} : ({turned}, {turned}) -> ()
    %3 = stablehlo.custom_call @check.eq(%2, %1) : ({turned}, {turned}) -> tensor<i1>
    return %2 : {turned}
  }}
  func.func private @inputs() -> ({type} {{mhlo.layout_mode = "default"}}, {type} {{mhlo.layout_mode = "default"}}) {{
    %cst = stablehlo.constant dense<"0x{hexes[0]}"> : {type}
    return %cst, %cst : {type}, {type}
  }}
  func.func private @expected() -> ({turned} {{mhlo.layout_mode = "default"}}) {{
    %cst = stablehlo.constant dense<"0x{hexes[1]}"> : {turned}
    return %cst : {turned}
  }}
  func.func private @turned(%arg0: {type} {{mhlo.layout_mode = "default"}}) -> ({turned} {{mhlo.layout_mode = "default"}}) {{
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : ({type}) -> {turned}
    return %0 : {turned}
  }}
}}
"""


@pytest.mark.parametrize("element", list(ELEMENTS))
def test_whole_files(element: str, tmp_path: Path, capsys: Any) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(3, 7)) * 20
    x = (x > 0 if element == "i1" else x).astype(ELEMENTS[element])
    for packed in (False, True) if element == "i1" else (False,):
        for expected, status in ((x.T.copy(), 0), (x.reshape(7, 3), 1)):
            path = tmp_path / "f.mlir"
            path.write_text(whole_file(element, x, expected, packed))
            assert main(["--import", "stablehlo", "--run", str(path)]) == status
            assert capsys.readouterr().out.count(" holds") == (0 if status else 2)
