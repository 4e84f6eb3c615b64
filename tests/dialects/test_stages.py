"""What the verifiers of the stages demand, and what their messages say."""

import pytest

from rhino.dialects import signature
from rhino.dialects.text import parse_module
from rhino.dialects.verify import stage_of, verify
from rhino.ir.errors import ProgramError, RhinoError
from rhino.ir.verify import check_global

GLOBAL = """
func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x8xf32>) -> tensor<4x8xf32> {
  %0 = hlo.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}
"""

PLACED = """
dist.mesh @mesh = <["dp"=2, "tp"=2]>
func.func @main(%x: tensor<4x6xf32> {{dist.layout = #dist.layout<[{{"dp"}}, {{}}]>}},
                %w: tensor<6x8xf32> {{dist.layout = #dist.layout<[{{}}, {{"tp"}}]>}})
    -> (tensor<4x8xf32> {{dist.layout = #dist.layout<[{{"dp"}}, {{"tp"}}]>}}) {{
  %0 = hlo.dot_general %x, %w batch [] x [] contract [1] x [0] {{dist.layout = [{layout}]}} :
      (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  func.return %0 : tensor<4x8xf32>
}}
"""
GOOD = '#dist.layout<[{"dp"}, {"tp"}]>'


def test_stages_are_recognised():
    assert stage_of(parse_module(GLOBAL)) == "global"
    placed = PLACED.format(layout=GOOD)
    assert stage_of(parse_module(placed)) == "placed"
    assert stage_of(parse_module(placed.replace(f" {{dist.layout = [{GOOD}]}}", ""))) == "global"  # only pins
    verify(parse_module(GLOBAL))
    verify(parse_module(placed))
    check_global(parse_module(GLOBAL))


def test_a_layout_against_the_rule_is_refused_with_all_layouts():
    text = PLACED.format(layout='#dist.layout<[{"tp"}, {"dp"}]>')
    with pytest.raises(RhinoError) as caught:
        verify(parse_module(text, "bad.mlir"))
    error = caught.value
    assert error.where == "bad.mlir:6:3"
    assert error.message.startswith("hlo.dot_general: ")
    assert 'operands [{"dp"}, {}], [{}, {"tp"}], results [{"tp"}, {"dp"}]' in error.message
    assert error.remedy is not None and "dist.reshard" in error.remedy


@pytest.mark.parametrize(
    "old, new, why",
    [
        (f"[{GOOD}]}} :", '[#dist.layout<[{"dp"}]>]} :', "has 1 dimensions"),
        (f"[{GOOD}]}} :", '[#dist.layout<[{"pp"}, {}]>]} :', "pp"),
        (f"[{GOOD}]}} :", f"[{GOOD}, {GOOD}]}} :", "needs one dist.layout for each of its 1 results"),
        (f" {{dist.layout = {GOOD}}})", ")", "result 0 of @main has no dist.layout"),
        (f"{GOOD}}}) {{", "#dist.layout<[{}, {}]>}) {", "but @main promises [{}, {}]"),
        ('<["dp"=2, "tp"=2]>', '<["dp"=3, "tp"=2]>', "3"),
    ],
)
def test_what_is_missing_or_clashes(old, new, why):
    text = PLACED.format(layout=GOOD)
    assert old in text
    with pytest.raises(RhinoError) as caught:
        verify(parse_module(text.replace(old, new)))
    assert why in str(caught.value)


@pytest.mark.parametrize("number", [1, -1])
def test_a_result_replaces_an_argument_that_there_is(number):
    module = parse_module(
        "func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32> {rhino.alias = 0 : i64}) {\n"
        "  func.return %x : tensor<2xf32>\n}".replace("= 0", f"= {number}")
    )
    with pytest.raises(RhinoError, match=f"result 0 of @main replaces argument {number}, but there are 1"):
        signature.results(signature.main_of(module))


def test_a_program_has_ops():
    module = parse_module('dist.mesh @mesh = <["a"=2]>\nfunc.func private @main() -> tensor<f32>')
    with pytest.raises(ProgramError, match="@main has 0 blocks") as caught:
        verify(module)
    assert caught.value.where == "<text>:2:1"


def test_a_mesh_of_any_size_is_no_mesh_of_two_targets():
    with pytest.raises(ProgramError, match="are no permutation of the mesh's 9223372036854775808 ranks"):
        parse_module(
            'dist.mesh @mesh = <["a"=9223372036854775808]>\nfunc.func @main(%x: tensor<2xf32>) {\n'
            '  %0 = dist.permute %x over ["a"] to [1, 0] : tensor<2xf32>\n  func.return\n}'
        )


def test_the_global_stage_has_no_layouts():
    text = PLACED.format(layout=GOOD)
    with pytest.raises(ProgramError, match=r"dist.mesh: has no place in a global program"):
        check_global(parse_module(text))
    attribute = GLOBAL.replace("[1] x [0] :", "[1] x [0] {dist.layout = []} :")
    with pytest.raises(ProgramError, match=r"hlo.dot_general: carries dist.layout in a global program"):
        check_global(parse_module(attribute))


LOCAL = """
dist.mesh @mesh = <["x"=2]>
func.func @main(%x: tensor<2xf32> {dist.layout = #dist.layout<[{"x"}]>, dist.global_type = tensor<4xf32>})
    -> (tensor<2xf32> {dist.layout = #dist.layout<[{"x"}]>, dist.global_type = tensor<4xf32>}) {
  %0 = hlo.exp %x : tensor<2xf32>
  func.return %0 : tensor<2xf32>
}
"""


def test_local_programs():
    module = parse_module(LOCAL)
    assert stage_of(module) == "local"
    verify(module)
    wrong = LOCAL.replace("(%x: tensor<2xf32> {dist.layout", "(%x: tensor<2xf32> {dist.other").replace(
        'dist.other = #dist.layout<[{"x"}]>', "dist.layout = #dist.layout<[{}]>"
    )
    with pytest.raises(
        ProgramError, match=r"argument 0 of @main is f32\[2\], but f32\[4\] in layout \[\{\}\] is f32\[4\]"
    ):
        verify(parse_module(wrong))
    resharded = LOCAL.replace("hlo.exp %x", "dist.reshard %x to #dist.layout<[{}]>")
    with pytest.raises(ProgramError, match=r"dist.reshard: has no place in a local program"):
        verify(parse_module(resharded))
    with pytest.raises(ProgramError, match=r"lacks dist.layout or dist.global_type"):
        verify(parse_module(LOCAL.replace(", dist.global_type = tensor<4xf32>})\n", "})\n")))


def test_dominance_in_regions():
    text = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = hlo.composite "id"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %b = hlo.exp %c : tensor<4xf32>
    %c = hlo.exp %a : tensor<4xf32>
    hlo.yield %b : tensor<4xf32>
  }
  func.return %0 : tensor<4xf32>
}
"""
    with pytest.raises(ProgramError, match=r"operand 0 \(%c\) is used before its definition") as caught:
        parse_module(text, "f.mlir")
    assert caught.value.where == "f.mlir:5:5"
