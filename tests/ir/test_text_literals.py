"""Tensor literals and whole modules survive printing and reading, bit for bit; broken text gives a RhinoError."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino.dialects.text import context, parse_module, print_module
from rhino.ir import dense, types
from rhino.ir.errors import ProgramError, RhinoError
from rhino.ir.text import parse_text

DTYPES = [
    np.float64,
    np.float32,
    np.float16,
    ml_dtypes.bfloat16,
    np.bool_,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
]


@st.composite
def arrays(draw):
    """Arrays of every element type with arbitrary bits, sometimes all the same."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    count = int(np.prod(shape))
    if draw(st.booleans()):
        raw = draw(st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize)) * count
    else:
        raw = draw(st.binary(min_size=dtype.itemsize * count, max_size=dtype.itemsize * count))
    if dtype == np.bool_:
        return (np.frombuffer(raw, np.uint8) % 2 == 1).reshape(shape)
    return np.frombuffer(raw, dtype).reshape(shape)


def constant_text(array: np.ndarray) -> str:
    type = types.tensor(array.shape, types.from_numpy(array.dtype))
    literal = dense.show(dense.dense(array, type))
    return f"func.func @main() -> {type} {{\n  %0 = hlo.constant {literal} : {type}\n  func.return %0 : {type}\n}}"


@settings(max_examples=150, deadline=None)
@given(arrays())
def test_literals_keep_every_bit(array):
    module = parse_module(constant_text(array))
    (constant,) = [op for op in module.walk() if op.name == "hlo.constant"]
    got = dense.to_numpy(constant.value)
    assert got.dtype == array.dtype and got.shape == array.shape
    assert got.tobytes() == array.tobytes()
    # Equal tensors have equal attributes, however they were made.
    assert constant.value == dense.dense(array, constant.value.type)
    printed = print_module(module)
    assert print_module(parse_module(printed)) == printed
    generic = print_module(module, generic=True)
    assert print_module(parse_module(generic)) == printed


def literal(text: str) -> np.ndarray:
    module = parse_module(f"func.func @main() {{\n  %0 = hlo.constant dense{text}\n  func.return\n}}")
    return dense.to_numpy(next(op for op in module.walk() if op.name == "hlo.constant").value)


def test_bit_patterns_are_not_numbers():
    assert literal("<0xFF800000> : tensor<2xf32>").tolist() == [-np.inf, -np.inf]
    assert np.isnan(literal("<0x7FC00000> : tensor<f32>"))
    assert literal("<[0x3C00, 2.0]> : tensor<2xf16>").tolist() == [1, 2]
    assert literal("<0x10> : tensor<i32>") == 16
    assert literal('<"0x0000803F000000C0"> : tensor<2xf32>').tolist() == [1, -2]
    assert literal('<"0x0000803F"> : tensor<1000xf32>').strides == (0,)


def test_booleans_in_all_spellings():
    assert literal("<[true, 0, -1, 1]> : tensor<4xi1>").tolist() == [True, False, True, True]
    assert literal('<"0x05"> : tensor<3xi1>').tolist() == [True, False, True]
    assert literal('<"0x01"> : tensor<3xi1>').tolist() == [True, False, False]
    assert literal('<"0x010001"> : tensor<3xi1>').tolist() == [True, False, True]


@pytest.mark.parametrize(
    "text, why",
    [
        ("<1.0e39> : tensor<f32>", "1.0e39 does not fit f32"),
        ("<65520.0> : tensor<f16>", "does not fit f16"),
        ("<300> : tensor<i8>", "300 does not fit i8"),
        ("<-129> : tensor<i8>", "-129 does not fit i8"),
        ("<2> : tensor<i1>", "2 does not fit i1"),
        ("<1.5> : tensor<i32>", "1.5 is no element of type i32"),
        ("<true> : tensor<f32>", "true is no element of type f32"),
        ("<0x1FFFF> : tensor<f16>", "no bit pattern of type f16"),
        ("<[[1, 2], [3]]> : tensor<2x2xi32>", "differ in length"),
        ("<[1, 2]> : tensor<3xi32>", "a literal of shape [2] for the type i32[3]"),
        ('<"0x00"> : tensor<2xf32>', "a literal of 1 bytes for f32[2]"),
        ('<"zz"> : tensor<2xf32>', "hexadecimal"),
        ("<> : tensor<2xf32>", "a literal of shape [0]"),
        ("<1.0> : tensor<2xindex>", "Expected integer value"),
    ],
)
def test_wrong_literals_say_why_and_where(text, why):
    with pytest.raises(ProgramError) as caught:
        literal(text)
    assert why in caught.value.message
    assert caught.value.where is not None and caught.value.where.startswith("<text>:2:")


def test_splats_are_never_expanded():
    module = parse_module(
        "func.func @main() {\n  %0 = hlo.constant dense<0.0> : tensor<1000000x1000000xf32>\n  func.return\n}"
    )
    (constant,) = [op for op in module.walk() if op.name == "hlo.constant"]
    assert len(constant.value.data.data) == 4
    assert "dense<0.0>" in print_module(module)


def test_dense_refuses_what_does_not_fit():
    with pytest.raises(ProgramError, match=r"shape \[3\] for type f32\[2\]"):
        dense.dense(np.zeros(3), types.tensor([2], types.F32))
    with pytest.raises(ProgramError, match="fraction"):
        dense.dense(1.5, types.tensor([2], types.I32))
    with pytest.raises(ProgramError, match="does not fit"):
        dense.dense(128, types.tensor([2], types.I8))


PROGRAM = """
#loc = loc("model.py":12:3)
func.func @main(%x: tensor<2x8xf32> {rhino.role = "input"}, %w: tensor<8x4xf32>) -> tensor<f32> {
  %c = hlo.constant dense<[0xFF800000, 1.0, 2.0, -0.0]> : tensor<4xf32>
  %0 = hlo.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<2x4xf32>
  %1 = hlo.broadcast_in_dim %c dims [1] : tensor<4xf32> -> tensor<2x4xf32>
  %2 = hlo.maximum %0, %1 : tensor<2x4xf32> loc(#loc)
  %3 = hlo.composite "norm"(%2) {eps = 1.0e-05 : f32} : (tensor<2x4xf32>) -> tensor<2x4xf32> {
  ^bb0(%a: tensor<2x4xf32>):
    %b = hlo.tanh %a : tensor<2x4xf32>
    hlo.yield %b : tensor<2x4xf32>
  }
  %4 = hlo.reduce "sum" %3 dims [0, 1] : tensor<2x4xf32> -> tensor<f32>
  func.return %4 : tensor<f32>
}
"""


def test_printing_is_a_fixed_point_in_all_forms():
    module = parse_module(PROGRAM)
    for debug in (False, True):
        for generic in (False, True):
            text = print_module(module, debug, generic=generic)
            again = parse_module(text)
            assert print_module(again, debug, generic=generic) == text
            assert module.is_structurally_equivalent(again)


def test_strings_beyond_ascii_read_back():
    text = PROGRAM.replace("model.py", "mod\u00e8le \U0001f98f.py").replace('"norm"', '"n\u00f6rm \\22"')
    module = parse_module(text)
    for generic in (False, True):
        printed = print_module(module, True, generic=generic)
        again = parse_module(printed)
        assert print_module(again, True, generic=generic) == printed
        assert module.is_structurally_equivalent(again)


@pytest.mark.parametrize(
    "op, why, column",
    [
        (
            '%0 = dist.all_gather %x dim 0 over ["c"] {period = 8 : i64} : tensor<1xf32> -> tensor<2xf32>',
            "'period' of dist.all_gather is not written among the attributes",
            45,
        ),
        ("%0 = hlo.constant dense<1> : tensor<i99999999999>", "at most 16777215 bits", 39),
        (
            "%0 = hlo.broadcast_in_dim %x dims [18446744073709551616] : tensor<1xf32> -> tensor<1x1xf32>",
            "range",
            60,
        ),
    ],
)
def test_what_no_op_can_hold_is_refused_where_it_stands(op, why, column):
    text = f'dist.mesh @mesh = <["c"=2]>\nfunc.func @main(%x: tensor<1xf32>) {{\n  {op}\n  func.return\n}}'
    with pytest.raises(ProgramError, match=why) as caught:
        parse_module(text)
    assert caught.value.where == f"<text>:3:{column}"


def test_a_second_function_of_the_same_name_is_shown():
    with pytest.raises(ProgramError, match='Redefinition of symbol "main"') as caught:
        parse_module("func.func @main() {\n  func.return\n}\nfunc.func @main() {\n  func.return\n}")
    assert caught.value.where == "<text>:4:1"


def test_an_op_of_an_unknown_place_is_in_its_text():
    with pytest.raises(ProgramError, match=r"hlo\.add") as caught:
        parse_module(
            "func.func @main(%x: tensor<1xf32>) -> tensor<1xf64> {\n"
            '  %0 = "hlo.add"(%x, %x) : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf64> loc(unknown)\n'
            "  func.return %0 : tensor<1xf64>\n}",
            "file.mlir",
        )
    assert caught.value.where == "file.mlir"


_PIECES = [
    "%",
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    ",",
    '"',
    ":",
    "tensor<4xf32>",
    "dense<",
    "0x",
    "loc(",
    "#loc",
    "hlo.",
    "-",
]


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_mutated_text_gives_a_rhino_error_or_a_module(data):
    text = PROGRAM
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 8))
        text = text[:at] + data.draw(st.sampled_from(["", *_PIECES]) | st.text(max_size=3)) + text[at + cut :]
    try:
        module = parse_module(text)
    except RhinoError as error:
        assert error.message and error.where
    else:
        print_module(module)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | st.text(alphabet=list('%^@#!"{}()<>[],:=-?0x1.e\n abtensorfc/'), max_size=60))
def test_arbitrary_text_gives_a_rhino_error_or_a_module(text):
    try:
        parse_text(context(), text)
    except RhinoError as error:
        assert error.where is not None and error.where.startswith("<text>:")


def test_deep_nesting_is_one_error():
    with pytest.raises(ProgramError, match="nested too deeply"):
        parse_module("builtin.module {" * 3000)
    with pytest.raises(ProgramError):
        parse_module("func.func @main() { %0 = hlo.constant dense<" + "[" * 5000 + "> : tensor<1xf32> }")


def test_an_unclosed_string_is_found_at_once():
    with pytest.raises(ProgramError, match="before closing string literal"):
        parse_module('func.func @main(%x: "' + "tensor<8x4xf32>, " * 1000)


def test_location_of_every_op():
    module = parse_module(PROGRAM, "prog.mlir")
    locations = {op.name: str(op.location) for op in module.walk()}
    assert locations["hlo.maximum"] == 'loc("model.py":12:3)'
    assert locations["hlo.reduce"] == 'loc("prog.mlir":13:3)'
    assert locations["hlo.tanh"] == 'loc("prog.mlir":10:5)'


def test_cyclic_location_aliases_are_refused():
    with pytest.raises(ProgramError, match="#a is no location"):
        parse_module("func.func @main() {\n  func.return loc(#a)\n}\n#a = loc(#b)\n#b = loc(#a)")
