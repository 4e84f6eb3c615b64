"""The reader: both forms, literals, functions, roles, checks, shardings, and errors with positions."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest

from rhino.dialects import signature
from rhino.dialects.text import parse_module, print_module
from rhino.frontend.stablehlo import read_stablehlo, run_checks, runnable_functions
from rhino.ir.errors import ProgramError, RhinoError, RhinoWarning, UnsupportedError, UsageError
from rhino.ir.evaluate import run_module

PRETTY = """
module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<2x3xf32> loc("x"), %arg1: tensor<3x4xf32>) -> (tensor<2xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32> loc(#loc2)
    %1 = call @half(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<2x4xf32>, tensor<f32>) -> tensor<2xf32>
    return %2 : tensor<2xf32>
  }
  func.func private @half(%arg0: tensor<2x4xf32>) -> tensor<2x4xf32> {
    %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<2x4xf32>
    return %1 : tensor<2x4xf32>
  }
}
#loc1 = loc("model.py":7:3)
#loc2 = loc("jit(f)/dot"(#loc1))
"""

GENERIC = """
"builtin.module"() <{sym_name = "jit_f"}> ({
  "func.func"() <{function_type = (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2xf32>, sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg0: tensor<2x3xf32>, %arg1: tensor<3x4xf32>):
    %0 = "stablehlo.dot_general"(%arg0, %arg1) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>, precision_config = [#stablehlo<precision DEFAULT>]}> : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    %1 = "func.call"(%0) <{callee = @half}> : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %2 = "stablehlo.constant"() <{value = dense<0xFF800000> : tensor<f32>}> : () -> tensor<f32>
    %3 = "stablehlo.reduce"(%1, %2) <{dimensions = array<i64: 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = "stablehlo.maximum"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%c) : (tensor<f32>) -> ()
    }) : (tensor<2x4xf32>, tensor<f32>) -> tensor<2xf32>
    "func.return"(%3) : (tensor<2xf32>) -> ()
  }) : () -> ()
  "func.func"() <{function_type = (tensor<2x4xf32>) -> tensor<2x4xf32>, sym_name = "half", sym_visibility = "private"}> ({
  ^bb0(%arg0: tensor<2x4xf32>):
    %0 = "stablehlo.constant"() <{value = dense<5.000000e-01> : tensor<f32>}> : () -> tensor<f32>
    %1 = "stablehlo.broadcast_in_dim"(%0) <{broadcast_dimensions = array<i64>}> : (tensor<f32>) -> tensor<2x4xf32>
    %2 = "stablehlo.multiply"(%arg0, %1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    "func.return"(%2) : (tensor<2x4xf32>) -> ()
  }) : () -> ()
}) : () -> ()
"""


def one(body: str, result: str) -> np.ndarray:
    """The value of a function without arguments."""
    text = f"func.func @main() -> {result} {{\n{body}\n}}"
    return run_module(read_stablehlo(text), [])[0]


@pytest.mark.parametrize("text", [PRETTY, GENERIC])
def test_both_forms(text: str) -> None:
    module = read_stablehlo(text, "f.mlir")
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 3)).astype(np.float32), random.normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(run_module(module, [x, y])[0], (x @ y / 2).max(1), rtol=1e-6)
    printed = print_module(module)
    assert print_module(parse_module(printed)) == printed


def test_locations_and_names() -> None:
    module = read_stablehlo(PRETTY, "f.mlir")
    printed = print_module(module, debug=True)
    assert 'loc("jit(f)/dot"("model.py":7:3))' in printed
    assert '"f.mlir":11:' in printed  # the body of @half, where it stands in the text
    func = signature.main_of(module)
    assert [s.name for s in signature.arguments(func)] == ["x", "arg1"]
    assert [s.name for s in signature.results(func)] == ["result"]


@pytest.mark.parametrize(
    ("literal", "type", "expected"),
    [
        ("dense<[1.5, 0x7FC00000, 0xFF800000]>", "3xf32", np.array([1.5, np.nan, -np.inf], np.float32)),
        ('dense<"0x0000803F000000C0">', "2xf32", np.array([1, -2], np.float32)),
        ("dense<0x3F80>", "2xbf16", np.ones(2, ml_dtypes.bfloat16)),
        ("dense<[[1, 2], [3, -4]]>", "2x2xi8", np.array([[1, 2], [3, -4]], np.int8)),
        ("dense<[255, 0xFF]>", "2xi8", np.array([-1, -1], np.int8)),
        ("dense<[255, 0]>", "2xui8", np.array([255, 0], np.uint8)),
        ("dense<18446744073709551615>", "1xui64", np.array([2**64 - 1], np.uint64)),
        ("dense<[true, false]>", "2xi1", np.array([True, False])),
        ('dense<"0x05">', "3xi1", np.array([True, False, True])),
        ("dense<[(1.0, -2.0), (0.0, 3.0)]>", "2xcomplex<f32>", np.array([1 - 2j, 3j], np.complex64)),
        ("dense<(1.0, 2.0)>", "2xcomplex<f64>", np.array([1 + 2j] * 2)),
        ("dense<>", "0x4xf32", np.zeros((0, 4), np.float32)),
        ("dense<1.0>", "f8E4M3FN", np.ones((), ml_dtypes.float8_e4m3fn)),
    ],
)
def test_literals(literal: str, type: str, expected: np.ndarray) -> None:
    found = one(
        f"%0 = stablehlo.constant {literal} : tensor<{type}>\nreturn %0 : tensor<{type}>", f"tensor<{type}>"
    )
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_resources() -> None:
    text = """func.func @main() -> tensor<2xi32> {
  %0 = stablehlo.constant dense_resource<weights> : tensor<2xi32>
  return %0 : tensor<2xi32>
}
{-#
  dialect_resources: {
    builtin: {
      weights: "0x040000000700000009000000"
    }
  }
#-}
"""
    np.testing.assert_array_equal(run_module(read_stablehlo(text), [])[0], [7, 9])


def test_several_results_and_argmax() -> None:
    text = """func.func @main(%x: tensor<2x3xf32>) -> (tensor<2xf32>, tensor<2xi32>) {
  %i = stablehlo.iota dim = 1 : tensor<2x3xi32>
  %a = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %b = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.reduce(%x init: %a), (%i init: %b) across dimensions = [1] : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
   reducer(%p: tensor<f32>, %q: tensor<f32>) (%r: tensor<i32>, %s: tensor<i32>)  {
    %1 = stablehlo.compare GT, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %2 = stablehlo.compare NE, %p, %p, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %3 = stablehlo.or %1, %2 : tensor<i1>
    %4 = stablehlo.compare EQ, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %5 = stablehlo.compare LT, %r, %s, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %6 = stablehlo.and %4, %5 : tensor<i1>
    %7 = stablehlo.or %3, %6 : tensor<i1>
    %8 = stablehlo.select %3, %p, %q : tensor<i1>, tensor<f32>
    %9 = stablehlo.select %7, %r, %s : tensor<i1>, tensor<i32>
    stablehlo.return %8, %9 : tensor<f32>, tensor<i32>
  }
  return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32>
}"""
    module = read_stablehlo(text)
    assert "hlo.argmax" in print_module(module)
    value, index = run_module(module, [np.array([[1, 3, 3], [np.nan, 2, np.nan]], np.float32)])
    np.testing.assert_array_equal(value, np.array([3, np.nan], np.float32))
    np.testing.assert_array_equal(index, np.array([1, 0], np.int32))


def test_donated_arguments_are_parameters() -> None:
    text = """func.func @main(%w: tensor<2xf32> {tf.aliasing_output = 1 : i32}, %x: tensor<2xf32>) -> (tensor<f32>, tensor<2xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.multiply %w, %x : tensor<2xf32>
  %l = stablehlo.reduce(%p init: %z) applies stablehlo.add across dimensions = [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
  %n = stablehlo.subtract %w, %x : tensor<2xf32>
  return %l, %n : tensor<f32>, tensor<2xf32>
}"""
    func = signature.main_of(read_stablehlo(text))
    assert [s.role for s in signature.arguments(func)] == ["parameter", "input"]
    assert [(s.role, s.alias) for s in signature.results(func)] == [("loss", None), ("parameter", 0)]
    plain = text.replace(" {tf.aliasing_output = 1 : i32}", "")
    assert [s.role for s in signature.arguments(signature.main_of(read_stablehlo(plain)))] == [
        "input",
        "input",
    ]
    func = signature.main_of(read_stablehlo(plain, parameters=1))
    assert [(s.role, s.alias) for s in signature.results(func)] == [("loss", None), ("parameter", 0)]
    with pytest.raises(UsageError, match="3 parameters"):
        read_stablehlo(plain, parameters=3)


CHECKED = """
func.func @first() {
  %0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %1 = stablehlo.negate %0 : tensor<2xf32>
  check.expect_eq_const %1, dense<[-1.0, -2.0]> : tensor<2xf32>
  check.expect_almost_eq %0, %1, tolerance = 0.1 : tensor<2xf32>
  check.expect_almost_eq_const %0, dense<1.5> : tensor<2xf32> {tolerance = 0.6 : f64}
  check.expect_close %0, %0, max_ulp_difference = 3 : tensor<2xf32>, tensor<2xf32>
  stablehlo.custom_call @check.expect_close(%0, %1) {has_side_effect = true} : (tensor<2xf32>, tensor<2xf32>) -> ()
  func.return
}
func.func @second() {
  %0 = stablehlo.constant dense<(1.0, 2.0)> : tensor<complex<f32>>
  check.expect_eq_const %0, dense<(1.0, 3.0)> : tensor<complex<f32>>
  func.return
}
func.func private @third(%x: tensor<2xf32>) {
  func.return
}
"""


def test_checks() -> None:
    assert runnable_functions(CHECKED) == ["first", "second"]
    first = run_checks(read_stablehlo(CHECKED, function="first"))
    assert [(c.kind, c.wrong) for c in first] == [
        ("eq", 0),
        ("almost_eq", 2),
        ("almost_eq", 0),
        ("close", 0),
        ("close", 2),
    ]
    assert [c.wrong for c in run_checks(read_stablehlo(CHECKED, function="second"))] == [1]
    with pytest.raises(UsageError, match="no function @fourth"):
        read_stablehlo(CHECKED, function="fourth")


def test_close_counts_representable_numbers() -> None:
    one_, near = np.float32(1), np.nextafter(np.nextafter(np.float32(1), np.float32(2)), np.float32(2))
    text = """func.func @main() {{
  %0 = stablehlo.constant dense<{0!r}> : tensor<f32>
  %1 = stablehlo.constant dense<{1!r}> : tensor<f32>
  check.expect_close %0, %1, max_ulp_difference = {2} : tensor<f32>, tensor<f32>
  func.return
}}"""
    for limit, wrong in ((1, 1), (2, 0)):
        module = read_stablehlo(text.format(float(one_), float(near), limit))
        assert [c.wrong for c in run_checks(module)] == [wrong]


def test_shardings_become_pins() -> None:
    text = """module {
  sdy.mesh @mesh = <["dp"=2, "tp"=2]>
  func.func public @main(%x: tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {}]>}, %w: tensor<6x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {?}]>}) -> (tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {"tp"}]>}) {
    %0 = stablehlo.dot %x, %w : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"dp"}, {"tp", ?}]> : tensor<4x8xf32>
    return %1 : tensor<4x8xf32>
  }
}"""
    printed = print_module(read_stablehlo(text))
    assert 'dist.mesh @mesh = <["dp"=2, "tp"=2]>' in printed
    assert printed.count('#dist.layout<[{"dp"}, {"tp"}]>') == 2
    assert printed.count("dist.layout = ") == 3  # none on %w, whose dimensions are open
    assert print_module(parse_module(printed)) == printed


def test_a_sharding_that_fits_nothing_is_named() -> None:
    text = """module {
  func.func public @main(%x: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}"}) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}"""
    with pytest.warns(RhinoWarning, match=r"devices=\[2\]<=\[2\].*argument 0 is dropped"):
        read_stablehlo(text)


def body(op: str) -> str:
    return f"func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{\n  {op}\n  return %0 : tensor<2xf32>\n}}"


@pytest.mark.parametrize(
    ("op", "error", "message", "where"),
    [
        ("%0 = stablehlo.foo %x : tensor<2xf32>", UnsupportedError, "stablehlo.foo", "f:2:8"),
        ("%0 = tosa.add %x : tensor<2xf32>", UnsupportedError, "no op 'tosa.add'", "f:2:8"),
        ("%0 = stablehlo.add %x, %y : tensor<2xf32>", ProgramError, "%y is used but not defined", "f:2:8"),
        ("%0 = stablehlo.add %x, : tensor<2xf32>", ProgramError, "expected a word", "f:2:26"),
        ("%0 = stablehlo.add %x, %x : tensor<3xf32>", ProgramError, "declared as f32[3]", "f:2:8"),
        ("%0 = stablehlo.add %x, %x : tensor<2xf32", ProgramError, "closes nothing", "f:4:1"),
        (
            "%0 = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2xf4E2M1FN>",
            UnsupportedError,
            "element type f4E2M1FN",
            "f:2:8",
        ),
        ("%0 = stablehlo.abs %x : tensor<?xf32>", UnsupportedError, "dynamic extent", "f:2:8"),
        (
            "%0 = stablehlo.iota dim = 1180591620717411303424 : tensor<2xf32>",
            ProgramError,
            "do not fit it",
            "f:2:8",
        ),
        (
            "%0 = stablehlo.get_tuple_element %x[] : (tuple<tensor<2xf32>>) -> tensor<2xf32>",
            ProgramError,
            "expected an integer",
            "f:2:",
        ),
        (
            '%0 = stablehlo.create_token : !stablehlo.token "stablehlo.outfeed"(%x, %0) : '
            "(tensor<2xf32>, !stablehlo.token) -> !stablehlo.token",
            UnsupportedError,
            "stablehlo.outfeed",
            "f:2:",
        ),
        (
            "%0 = stablehlo.tuple %x : tuple<tensor<2xf32>> %1 = stablehlo.negate %0 : tensor<2xf32>",
            UnsupportedError,
            "tuple %0",
            "f:2:",
        ),
        (
            "%0 = stablehlo.custom_call @mystery(%x) : (tensor<2xf32>) -> tensor<2xf32>",
            UnsupportedError,
            "@mystery",
            "f:2:8",
        ),
        (
            "%0 = stablehlo.abs %x : tensor<2x!quant.uniform<i8:f32, 1.0>>",
            UnsupportedError,
            "quantised",
            "f:2:27",
        ),
        (
            "%0 = call @nobody(%x) : (tensor<2xf32>) -> tensor<2xf32>",
            ProgramError,
            "no function @nobody",
            "f:2:8",
        ),
        (
            "%0 = call @main(%x) : (tensor<2xf32>) -> tensor<2xf32>",
            UnsupportedError,
            "@main calls itself",
            "f:2:8",
        ),
        (
            "%0 = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<2xf32>",
            ProgramError,
            "shape [3]",
            "f:2:27",
        ),
        (
            "%0 = stablehlo.constant dense<[1, x]> : tensor<2xf32>",
            ProgramError,
            "expected a number",
            "f:2:37",
        ),
        ("%0 = ~", ProgramError, "unexpected character", "f:2:8"),
        (
            "%1 = stablehlo.constant dense<(1.0, 2.0)> : tensor<complex<f32>> %0 = stablehlo.pad %x, %1, low = [0], "
            "high = [1], interior = [0] : (tensor<2xf32>, tensor<complex<f32>>) -> tensor<3xf32>",
            ProgramError,
            "f32[2] is padded with complex<f32>",
            "f:2:",
        ),
    ],
)
def test_errors_say_where(op: str, error: type[RhinoError], message: str, where: str) -> None:
    with pytest.raises(error) as caught:
        read_stablehlo(body(op), "f")
    assert message in caught.value.message
    assert (caught.value.where or "").startswith(where), caught.value.where


def test_constants_of_one_element_take_no_room() -> None:
    text = """func.func @main() -> tensor<f32> {
  %0 = stablehlo.constant dense<1.0> : tensor<1000000x1000000xf32>
  %1 = stablehlo.constant dense<2.0> : tensor<f32>
  return %1 : tensor<f32>
}"""
    assert "dense<1.0> : tensor<1000000x1000000xf32>" in print_module(read_stablehlo(text))


def test_two_modules_are_an_error_of_the_text() -> None:
    with pytest.raises(UsageError, match="2 modules") as caught:
        read_stablehlo("module {\n}\nmodule {\n}", "two.mlir")
    assert caught.value.where == "two.mlir"


def test_no_text_breaks_the_reader() -> None:
    """Cut and damaged programs give errors of ours and nothing else."""
    random = np.random.default_rng(0)
    for text in (PRETTY, GENERIC, CHECKED):
        for _ in range(150):
            at = int(random.integers(0, len(text)))
            kind = int(random.integers(0, 3))
            junk = "".join(random.choice(list('{}()<>[]%@#",:=x1 ')) for _ in range(3))
            damaged = text[:at] + ("" if kind == 0 else junk) + ("" if kind == 2 else text[at + kind * 3 :])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    read_stablehlo(damaged, "f")
                except RhinoError as error:
                    assert error.message


def test_deep_nesting_is_an_error() -> None:
    deep = "func.func @main() {\n %0 = stablehlo.constant {a = " + "[" * 5000 + "}\n}"
    with pytest.raises(ProgramError, match="nested too deeply"):
        read_stablehlo(deep)
