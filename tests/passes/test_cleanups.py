"""Clean-up passes: what they rewrite, what they must leave alone, and that results stay the same bits."""

import numpy as np
import pytest
from xdsl.context import Context

from rhino.dialects.text import parse_module, print_module
from rhino.ir.evaluate import run_module
from rhino.passes import PASSES


def apply(text: str, name: str, **options):
    module = parse_module(text)
    PASSES[name]()(**options).apply(Context(), module)
    module.verify()
    return module


def ops(module) -> list[str]:
    return [op.name.removeprefix("hlo.") for op in module.walk() if op.name.startswith("hlo.")]


def function(arguments: str, body: str, result: str) -> str:
    return f"func.func @main({arguments}) -> {result} {{\n{body}\n}}"


F, G = "tensor<4xf32>", "tensor<4xi32>"

VANISHING = {
    "x * 1": (F, f"%c = hlo.constant dense<1.0> : {F}\n%r = hlo.mul %c, %x : {F}"),
    "x / 1": (F, f"%c = hlo.constant dense<1.0> : {F}\n%r = hlo.div %x, %c : {F}"),
    "x - 0": (F, f"%c = hlo.constant dense<0.0> : {F}\n%r = hlo.sub %x, %c : {F}"),
    "x + -0.0": (F, f"%c = hlo.constant dense<-0.0> : {F}\n%r = hlo.add %c, %x : {F}"),
    "x + 0": (G, f"%c = hlo.constant dense<0> : {G}\n%r = hlo.add %x, %c : {G}"),
    "pow 1": (F, f"%c = hlo.constant dense<1.0> : {F}\n%r = hlo.pow %x, %c : {F}"),
    "negate": (F, f"%a = hlo.negate %x : {F}\n%r = hlo.negate %a : {F}"),
    "not": (G, f"%a = hlo.not %x : {G}\n%r = hlo.not %a : {G}"),
    "max": (F, f"%r = hlo.maximum %x, %x : {F}"),
    "select": (
        F,
        f"%p = hlo.constant dense<true> : tensor<i1>\n%n = hlo.negate %x : {F}\n"
        f"%r = hlo.select %p, %x, %n : tensor<i1>, {F}",
    ),
    "convert": (
        F,
        f"%a = hlo.convert %x to f64 : {F} -> tensor<4xf64>\n"
        f"%r = hlo.convert %a to f32 : tensor<4xf64> -> {F}",
    ),
    "transpose": (
        "tensor<2x3xf32>",
        "%a = hlo.transpose %x perm [1, 0] : tensor<2x3xf32> -> tensor<3x2xf32>\n"
        "%r = hlo.transpose %a perm [1, 0] : tensor<3x2xf32> -> tensor<2x3xf32>",
    ),
    "reshape": (
        "tensor<2x3xf32>",
        "%a = hlo.reshape %x : tensor<2x3xf32> -> tensor<6xf32>\n"
        "%r = hlo.reshape %a : tensor<6xf32> -> tensor<2x3xf32>",
    ),
    "slice": (F, f"%r = hlo.slice %x start [0] limit [4] strides [1] : {F} -> {F}"),
    "broadcast": (F, f"%r = hlo.broadcast_in_dim %x dims [0] : {F} -> {F}"),
}


@pytest.mark.parametrize("case", VANISHING)
def test_canonicalize_removes(case):
    type, body = VANISHING[case]
    module = apply(function(f"%x: {type}", f"{body}\nfunc.return %r : {type}", type), "canonicalize")
    assert ops(module) == []


STAYING = {
    "x + 0.0": f"%c = hlo.constant dense<0.0> : {F}\n%r = hlo.add %x, %c : {F}",
    "x * 0": f"%c = hlo.constant dense<0.0> : {F}\n%r = hlo.mul %x, %c : {F}",
    "narrowing": f"%a = hlo.convert %x to bf16 : {F} -> tensor<4xbf16>\n"
    f"%r = hlo.convert %a to f32 : tensor<4xbf16> -> {F}",
    "exp exp": f"%a = hlo.exp %x : {F}\n%r = hlo.exp %a : {F}",
}


@pytest.mark.parametrize("case", STAYING)
def test_canonicalize_leaves(case):
    text = function(f"%x: {F}", f"{STAYING[case]}\nfunc.return %r : {F}", F)
    assert print_module(apply(text, "canonicalize")) == print_module(parse_module(text))


def test_chains_become_one_op():
    body = """
    %a = hlo.transpose %x perm [2, 0, 1] : tensor<2x3x4xf32> -> tensor<4x2x3xf32>
    %b = hlo.transpose %a perm [0, 2, 1] : tensor<4x2x3xf32> -> tensor<4x3x2xf32>
    %c = hlo.broadcast_in_dim %b dims [0, 2, 3] : tensor<4x3x2xf32> -> tensor<4x5x3x2xf32>
    %d = hlo.broadcast_in_dim %c dims [1, 2, 3, 4] : tensor<4x5x3x2xf32> -> tensor<6x4x5x3x2xf32>
    %e = hlo.reshape %d : tensor<6x4x5x3x2xf32> -> tensor<24x30xf32>
    %f = hlo.reshape %e : tensor<24x30xf32> -> tensor<720xf32>
    func.return %f : tensor<720xf32>"""
    text = function("%x: tensor<2x3x4xf32>", body, "tensor<720xf32>")
    module = apply(text, "canonicalize")
    assert ops(module) == ["transpose", "broadcast_in_dim", "reshape"]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert np.array_equal(run_module(module, [x])[0], run_module(parse_module(text), [x])[0])


def test_canonicalize_keeps_locations_and_tags():
    text = function(
        f"%x: {F}",
        f"%c = hlo.constant dense<2.0> : {F}\n"
        f'%r = hlo.pow %x, %c {{rhino.composite = "norm#0"}} : {F} loc("model.py":7:3)\nfunc.return %r : {F}',
        F,
    )
    (line,) = [t for t in print_module(apply(text, "canonicalize"), debug=True).split("\n") if "hlo." in t]
    assert "hlo.mul" in line and 'rhino.composite = "norm#0"' in line and 'loc("model.py":7:3)' in line


def test_fold_constants_keeps_splats_of_any_size():
    big = "tensor<65536x65536xf32>"
    body = f"""
    %a = hlo.constant dense<3.0> : tensor<f32>
    %b = hlo.broadcast_in_dim %a dims [] : tensor<f32> -> {big}
    %c = hlo.mul %b, %b : {big}
    %d = hlo.add %c, %x : {big}
    func.return %d : {big}"""
    module = apply(function(f"%x: {big}", body, big), "fold-constants")
    assert f"dense<9.0> : {big}" in print_module(module)


def test_fold_constants_respects_its_limit():
    body = """
    %a = hlo.constant dense<[1, 2, 3]> : tensor<3xi32>
    %b = hlo.mul %a, %a : tensor<3xi32>
    func.return %b : tensor<3xi32>"""
    text = function("", body, "tensor<3xi32>")
    assert "dense<[1, 4, 9]>" in print_module(apply(text, "fold-constants"))
    assert "hlo.mul" in print_module(apply(text, "fold-constants", limit=2))


def test_fold_constants_matches_evaluation_of_infinities():
    body = """
    %a = hlo.constant dense<[0xFF800000, 1.0]> : tensor<2xf32>
    %b = hlo.constant dense<0.0> : tensor<2xf32>
    %c = hlo.div %a, %b : tensor<2xf32>
    func.return %c : tensor<2xf32>"""
    module = apply(function("", body, "tensor<2xf32>"), "fold-constants")
    assert ops(module) == ["constant"] * 3  # the operands are dead now
    assert run_module(module, [])[0].tolist() == [-np.inf, np.inf]


def test_dce_removes_chains_and_keeps_arguments():
    body = f"%a = hlo.exp %x : {F}\n%b = hlo.exp %a : {F}\nfunc.return %x : {F}"
    module = apply(function(f"%x: {F}, %y: {F}", body, F), "dce")
    assert ops(module) == [] and len(module.body.block.first_op.args) == 2


def test_cse_merges_equal_ops_only():
    body = f"%a = hlo.exp %x : {F}\n%b = hlo.exp %x : {F}\n%c = hlo.log %x : {F}\n%d = hlo.add %a, %b : {F}\n"
    body += f"%e = hlo.add %d, %c : {F}\nfunc.return %e : {F}"
    assert sorted(ops(apply(function(f"%x: {F}", body, F), "cse"))) == ["add", "add", "exp", "log"]


COMPOSITE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = hlo.composite "outer"(%x) {axis = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %one = hlo.constant dense<1.0> : tensor<4xf32>
    %1 = hlo.composite "inner"(%a) : (tensor<4xf32>) -> tensor<4xf32> {
    ^bb0(%b: tensor<4xf32>):
      %2 = hlo.exp %b : tensor<4xf32>
      hlo.yield %2 : tensor<4xf32>
    }
    %3 = hlo.add %1, %one : tensor<4xf32>
    hlo.yield %3 : tensor<4xf32>
  }
  %4 = hlo.composite "inner"(%0) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%b: tensor<4xf32>):
    hlo.yield %b : tensor<4xf32>
  }
  func.return %4 : tensor<4xf32>
}"""


def test_inline_composites_names_the_outermost():
    module = apply(COMPOSITE, "inline-composites")
    assert ops(module) == ["constant", "exp", "add"]
    text = print_module(module)
    assert text.count('rhino.composite = "outer#0"') == 2
    x = np.arange(4, dtype=np.float32)
    want = np.exp(x.astype(np.float64)).astype(np.float32) + 1
    assert np.array_equal(run_module(module, [x])[0], want)
    assert np.array_equal(run_module(parse_module(COMPOSITE), [x])[0], want)


def test_widen_floats_reaches_types_constants_and_properties():
    text = """
func.func @main(%x: tensor<4xbf16> {rhino.name = "x"}) -> tensor<6xbf16> {
  %c = hlo.constant dense<[0.1, 0.2, 0.3, 0.4]> : tensor<4xbf16>
  %i = hlo.iota 0 : tensor<4xf16>
  %j = hlo.convert %i to bf16 : tensor<4xf16> -> tensor<4xbf16>
  %0 = hlo.add %x, %c : tensor<4xbf16>
  %1 = hlo.add %0, %j : tensor<4xbf16>
  %2 = hlo.pad %1 with 0.1 : bf16 low [1] high [1] interior [0] : tensor<4xbf16> -> tensor<6xbf16>
  func.return %2 : tensor<6xbf16>
}"""
    module = apply(text, "widen-floats")
    printed = print_module(module)
    assert "f16" not in printed.replace("bf16", "f16").replace("f64", "")
    assert parse_module(printed)
    (got,) = run_module(module, [np.zeros(4)])
    rounded = [0.10009765625, 0.2001953125, 0.30078125, 0.400390625]  # the bf16 neighbours of 0.1 .. 0.4
    assert got.tolist() == [rounded[0], *[r + i for i, r in enumerate(rounded)], rounded[0]]


def test_every_pass_in_the_table_loads_under_its_name():
    for name, load in PASSES.items():
        assert load().name == name
