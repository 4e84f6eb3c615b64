"""`rhino-opt --import stablehlo --run`: what programs compute, said by the programs themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rhino.cli.opt import main

TOTAL_ORDER = """
func.func @main() {
  %x = stablehlo.constant dense<[0.0, -0.0, 0x7FC00000, 0xFFC00000, -1.0, 2.0]> : tensor<6xf32>
  %r = "stablehlo.sort"(%x) <{dimension = -1 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<6xf32>) -> tensor<6xf32>
  %i = stablehlo.bitcast_convert %r : (tensor<6xf32>) -> tensor<6xui32>
  check.expect_eq_const %i, dense<[0xFFC00000, 0xBF800000, 0x80000000, 0, 0x40000000, 0x7FC00000]> : tensor<6xui32>
  func.return
}"""

MAP = """
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %r = "stablehlo.map"(%x, %x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %two = stablehlo.constant dense<2> : tensor<i32>
    %m = stablehlo.multiply %a, %b : tensor<i32>
    %p = stablehlo.multiply %m, %two : tensor<i32>
    stablehlo.return %p : tensor<i32>
  }) {dimensions = array<i64: 0>} : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
  check.expect_eq_const %r, dense<[2, 8, 18]> : tensor<3xi32>
  func.return
}"""

REDUCE = """
func.func @main() {
  %x = stablehlo.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
  %o = stablehlo.constant dense<1> : tensor<i32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = "stablehlo.reduce"(%x, %x, %o, %z) <{dimensions = array<i64: 1>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<i32>, %d: tensor<i32>):
    %p = stablehlo.multiply %a, %c : tensor<i32>
    %q = stablehlo.xor %b, %d : tensor<i32>
    stablehlo.return %p, %q : tensor<i32>, tensor<i32>
  }) : (tensor<2x3xi32>, tensor<2x3xi32>, tensor<i32>, tensor<i32>) -> (tensor<2xi32>, tensor<2xi32>)
  check.expect_eq_const %r#0, dense<[6, 120]> : tensor<2xi32>
  check.expect_eq_const %r#1, dense<[0, 7]> : tensor<2xi32>
  func.return
}"""

PADDED_WINDOWS = """
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %i = stablehlo.constant dense<10> : tensor<i32>
  %r = "stablehlo.reduce_window"(%x, %i) <{window_dimensions = array<i64: 2>, padding = dense<[[1, 0]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %c = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %c : tensor<i32>
  }) : (tensor<3xi32>, tensor<i32>) -> tensor<3xi32>
  check.expect_eq_const %r, dense<[21, 13, 15]> : tensor<3xi32>
  func.return
}"""

LAST_MAXIMUM = """
func.func @main() {
  %x = stablehlo.constant dense<[1, 3, 3, 2]> : tensor<4xi32>
  %s = stablehlo.constant dense<[10, 20]> : tensor<2xi32>
  %z = stablehlo.constant dense<5> : tensor<i32>
  %r = "stablehlo.select_and_scatter"(%x, %s, %z) <{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %p = stablehlo.compare LE, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }, {
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %p = stablehlo.multiply %a, %b : tensor<i32>
    stablehlo.return %p : tensor<i32>
  }) : (tensor<4xi32>, tensor<2xi32>, tensor<i32>) -> tensor<4xi32>
  check.expect_eq_const %r, dense<[50, 5, 5, 100]> : tensor<4xi32>
  func.return
}"""

SCATTER = """
func.func @main() {
  %x = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>
  %i = stablehlo.constant dense<[[1], [1], [3], [9]]> : tensor<4x1xi32>
  %u = stablehlo.constant dense<[10, 20, 30, 40]> : tensor<4xi32>
  %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %p = stablehlo.subtract %a, %b : tensor<i32>
    stablehlo.return %p : tensor<i32>
  }) : (tensor<4xi32>, tensor<4x1xi32>, tensor<4xi32>) -> tensor<4xi32>
  check.expect_eq_const %r, dense<[1, -28, 3, -26]> : tensor<4xi32>
  func.return
}"""

BRANCHES = """
func.func @main() {
  %x = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %i = stablehlo.constant dense<-5> : tensor<i32>
  %p = stablehlo.constant dense<true> : tensor<i1>
  %0 = "stablehlo.case"(%i) ({
    stablehlo.return %x : tensor<2xf32>
  }, {
    %n = stablehlo.negate %x : tensor<2xf32>
    stablehlo.return %n : tensor<2xf32>
  }) : (tensor<i32>) -> tensor<2xf32>
  check.expect_eq_const %0, dense<[-1.0, -2.0]> : tensor<2xf32>
  %1:2 = "stablehlo.if"(%p) ({
    stablehlo.return %x, %i : tensor<2xf32>, tensor<i32>
  }, {
    stablehlo.return %0, %i : tensor<2xf32>, tensor<i32>
  }) : (tensor<i1>) -> (tensor<2xf32>, tensor<i32>)
  check.expect_eq_const %1#0, dense<[1.0, 2.0]> : tensor<2xf32>
  func.return
}"""

COLLECTIVES = """
module @m {
  func.func @f(%x: tensor<2xi32>) -> (tensor<2xi32>, tensor<1xi32>, tensor<4xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<ui32>) {
    %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %c = stablehlo.maximum %a, %b : tensor<i32>
      stablehlo.return %c : tensor<i32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xi32>) -> tensor<2xi32>
    %1 = "stablehlo.reduce_scatter"(%x) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %c = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %c : tensor<i32>
    }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xi32>) -> tensor<1xi32>
    %2 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>} : (tensor<2xi32>) -> tensor<4xi32>
    %3 = "stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xi32>) -> tensor<2xi32>
    %4 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xi32>) -> tensor<2xi32>
    %5 = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>} : (tensor<2xi32>) -> tensor<2xi32>
    %6 = stablehlo.replica_id : tensor<ui32>
    return %0, %1, %2, %3, %4, %5, %6 : tensor<2xi32>, tensor<1xi32>, tensor<4xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<ui32>
  }
  func.func @main() {
    %a = stablehlo.constant dense<[1, 8]> : tensor<2xi32>
    %b = stablehlo.constant dense<[3, 4]> : tensor<2xi32>
    %r:14 = "interpreter.run_parallel"(%a, %b) {programs = [[@f], [@f]]} : (tensor<2xi32>, tensor<2xi32>) -> (tensor<2xi32>, tensor<1xi32>, tensor<4xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<ui32>, tensor<2xi32>, tensor<1xi32>, tensor<4xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<ui32>)
    check.expect_eq_const %r#0, dense<[3, 8]> : tensor<2xi32>
    check.expect_eq_const %r#7, dense<[3, 8]> : tensor<2xi32>
    check.expect_eq_const %r#1, dense<[4]> : tensor<1xi32>
    check.expect_eq_const %r#8, dense<[12]> : tensor<1xi32>
    check.expect_eq_const %r#2, dense<[3, 4, 1, 8]> : tensor<4xi32>
    check.expect_eq_const %r#9, dense<[3, 4, 1, 8]> : tensor<4xi32>
    check.expect_eq_const %r#3, dense<[1, 3]> : tensor<2xi32>
    check.expect_eq_const %r#10, dense<[8, 4]> : tensor<2xi32>
    check.expect_eq_const %r#4, dense<[0, 0]> : tensor<2xi32>
    check.expect_eq_const %r#11, dense<[1, 8]> : tensor<2xi32>
    check.expect_eq_const %r#5, dense<[3, 4]> : tensor<2xi32>
    check.expect_eq_const %r#12, dense<[3, 4]> : tensor<2xi32>
    check.expect_eq_const %r#6, dense<0> : tensor<ui32>
    check.expect_eq_const %r#13, dense<1> : tensor<ui32>
    func.return
  }
}"""

MESH_GROUPS = """
module @m {
  func.func @f(%x: tensor<i32>) -> tensor<i32> {
    %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %c = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %c : tensor<i32>
    }) {replica_groups = #stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes = [#stablehlo.mesh_axis<name = "a", size = 4>]>, axes = [#stablehlo.axis_ref<name = "a", sub_axis_info = (2)2>]>} : (tensor<i32>) -> tensor<i32>
    return %0 : tensor<i32>
  }
  func.func @main() {
    %a = stablehlo.constant dense<1> : tensor<i32>
    %b = stablehlo.constant dense<20> : tensor<i32>
    %c = stablehlo.constant dense<300> : tensor<i32>
    %d = stablehlo.constant dense<4000> : tensor<i32>
    %r:4 = "interpreter.run_parallel"(%a, %b, %c, %d) {programs = [[@f, @f], [@f, @f]]} : (tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>)
    check.expect_eq_const %r#0, dense<21> : tensor<i32>
    check.expect_eq_const %r#1, dense<21> : tensor<i32>
    check.expect_eq_const %r#3, dense<4300> : tensor<i32>
    func.return
  }
}"""

PROBE = """
func.func @main() {
  %0 = stablehlo.constant dense<[true, false]> : tensor<2xi1>
  %1 = stablehlo.add %0, %0 : tensor<2xi1>
  %2 = interpreter.probe %1, probe_id = "sum" : tensor<2xi1>
  check.expect_serialized_eq %0, probe_id = "sum" : tensor<2xi1>
  %3 = stablehlo.composite "twice" %0 {decomposition = @impl} : (tensor<2xi1>) -> tensor<2xi1>
  check.expect_eq %3, %0 : tensor<2xi1>
  func.return
}
func.func private @impl(%x: tensor<2xi1>) -> tensor<2xi1> {
  %0 = stablehlo.not %x : tensor<2xi1>
  %1 = stablehlo.not %0 : tensor<2xi1>
  return %1 : tensor<2xi1>
}"""

ALL = {
    "total order": TOTAL_ORDER,
    "map": MAP,
    "reduce": REDUCE,
    "padded windows": PADDED_WINDOWS,
    "last maximum": LAST_MAXIMUM,
    "scatter": SCATTER,
    "branches": BRANCHES,
    "collectives": COLLECTIVES,
    "mesh groups": MESH_GROUPS,
    "probe": PROBE,
}


@pytest.mark.parametrize("name", list(ALL))
def test_checks_hold(name: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "f.mlir"
    path.write_text(ALL[name])
    assert main(["--import", "stablehlo", "--run", str(path), "-p", "canonicalize,cse,dce"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("check.") == 0 and printed.count(" holds") == ALL[name].count("check.expect_")


def test_a_check_that_fails(tmp_path: Path, capsys: Any) -> None:
    text = "\n// -----\n".join(["", PROBE, MAP.replace("18]", "17]"), REDUCE])
    path = tmp_path / "f.mlir"
    path.write_text(text)
    assert main(["--import", "stablehlo", "--run", "--split-input-file", str(path)]) == 1
    captured = capsys.readouterr()
    assert "at [2]: 18 instead of 17" in captured.out
    assert captured.out.count(" holds") == 4
    assert "1 check does not hold" in captured.err


def test_results_are_printed_where_there_are_no_checks(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "f.mlir"
    path.write_text(
        "func.func @main() -> tensor<2xi32> {\n %0 = hlo.constant dense<[3, 4]> : tensor<2xi32>\n func.return %0 : tensor<2xi32>\n}"
    )
    assert main(["--run", str(path)]) == 0
    assert "[3 4]" in capsys.readouterr().out


def test_arguments_are_nobodys(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "f.mlir"
    path.write_text("func.func @main(%x: tensor<2xi32>) -> tensor<2xi32> {\n return %x : tensor<2xi32>\n}")
    assert main(["--import", "stablehlo", "--run", str(path)]) == 2
    assert "takes 1 arguments" in capsys.readouterr().err


def test_export(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "f.mlir"
    path.write_text(
        "func.func @main(%x: tensor<2xi32>) -> tensor<2xi32> {\n %0 = stablehlo.add %x, %x : tensor<2xi32>\n return %0 : tensor<2xi32>\n}"
    )
    assert main(["--import", "stablehlo", "--export", "stablehlo", str(path)]) == 0
    assert "stablehlo.add %arg0, %arg0" in capsys.readouterr().out
