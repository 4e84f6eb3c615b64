"""propagate: what a few pins make of a program."""

import pytest

from rhino.dialects.dist import ReshardOp
from rhino.dialects.text import parse_module
from rhino.dialects.verify import verify
from rhino.ir.errors import LayoutError, ProgramError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.passes.follow import follow_pins
from rhino.passes.place import place
from rhino.passes.propagate import PropagatePass

MESH = Mesh.parse("a=2,b=2")
A, B = MESH.axis("a"), MESH.axis("b")


def decide(text, backward=True):
    module = parse_module(f'dist.mesh @mesh = <["a"=2, "b"=2]>\n{text}')
    decided = follow_pins(module, MESH, backward=backward)
    ops = {op.results[0].name_hint: p for op, p in decided.placements.items()}
    place(module, MESH, decided.placements, decided.arguments, decided.results)
    verify(module)
    return decided, ops, sum(isinstance(op, ReshardOp) for op in module.walk())


def pin(text):
    return f"dist.layout = #dist.layout<{text}>"


def rows(rank, *axes):
    return Layout.block((8,) * rank, [(0, axis) for axis in axes])


CHAIN = """
func.func @main(%x: tensor<8x8xf32> {{{x}}}) -> (tensor<8x8xf32> {{{y}}}) {{
  %e = hlo.exp %x : tensor<8x8xf32>
  %t = hlo.transpose %e perm [1, 0] : tensor<8x8xf32> -> tensor<8x8xf32>
  %y = hlo.negate %t : tensor<8x8xf32>
  func.return %y : tensor<8x8xf32>
}}
"""


def test_forward_and_backward_meet():
    decided, ops, reshards = decide(CHAIN.format(x=pin('[{"a"}, {}]'), y=pin('[{"b"}, {}]')))
    both = Layout.block((8, 8), [(0, B), (1, A)])
    # a travels forward from the argument, b backward from the result as far as the closed argument.
    assert ops["y"].results == (both,)
    assert ops["e"].results == (Layout.block((8, 8), [(0, A), (1, B)]),)
    assert decided.arguments == (rows(2, A),)
    assert reshards == 2


def test_place_travels_forward_only():
    decided, ops, reshards = decide(CHAIN.format(x="", y=pin('[{"b"}, {}]')), backward=False)
    assert ops["y"].results == decided.arguments == (Layout.replicated(2),)
    assert reshards == 1


def test_the_split_that_keeps_more_bytes_wins():
    text = f"""
func.func @main(%x: tensor<64x8xf32> {{{pin('[{"a"}, {}]')}}}, %w: tensor<8x8xf32> {{{pin('[{"a"}, {}]')}}}) -> tensor<64x8xf32> {{
  %y = hlo.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<64x8xf32>, tensor<8x8xf32>) -> tensor<64x8xf32>
  func.return %y : tensor<64x8xf32>
}}"""
    _, ops, _ = decide(text)
    assert ops["y"].results == (Layout.block((64, 8), [(0, A)]),)
    _, ops, _ = decide(text.replace("64x8", "2x8"))
    assert ops["y"].results == (Layout.make([[], []], [(A, "sum")]),)


PARTIALS = f"""
func.func @main(%x: tensor<8x8xf32> {{{pin('[{}, {"a"}]')}}}, %z: tensor<8xf32>) -> (tensor<8xf32>, tensor<8x8xf32>) {{
  %s = hlo.reduce "sum" %x dims [1] : tensor<8x8xf32> -> tensor<8xf32>
  %r = hlo.reduce "sum" %x dims [1] : tensor<8x8xf32> -> tensor<8xf32>
  %t = hlo.add %s, %r : tensor<8xf32>
  %y = hlo.add %t, %z : tensor<8xf32>
  %w = hlo.broadcast_in_dim %t dims [0] : tensor<8xf32> -> tensor<8x8xf32>
  func.return %y, %w : tensor<8xf32>, tensor<8x8xf32>
}}"""


def test_partials_pass_where_it_pays():
    decided, ops, reshards = decide(PARTIALS)
    partial, whole = Layout.make([[]], [(A, "sum")]), Layout.replicated(1)
    # Two partial terms make one partial sum. A whole term and a broadcast ask for the sum itself: one reshard.
    assert ops["t"].operands == (partial, partial)
    assert ops["y"].operands == (whole, whole)
    assert ops["w"].operands == (whole,)
    assert decided.results[0] == whole
    assert reshards == 1


def test_pins_on_ops_are_what_the_op_yields():
    text = CHAIN.format(x="", y="").replace(
        "%e = hlo.exp %x", '%e = hlo.exp %x {dist.layout = [#dist.layout<[{}, {"a":4}]>]}'
    )
    decided, ops, _ = decide(text)
    strided = Layout.make([[], [(A, 4)]])
    assert ops["e"].results == decided.arguments == (strided,)
    assert ops["y"].results == (Layout.make([[(A, 4)], []]),)


def test_a_pinned_partial_splits_what_is_reduced():
    text = PARTIALS.replace(pin('[{}, {"a"}]'), "").replace(
        "dims [1] :", 'dims [1] {dist.layout = [#dist.layout<[{}] partial {"b": sum}>]} :', 1
    )
    _, ops, _ = decide(text)
    assert ops["s"].operands == (Layout.block((8, 8), [(1, B)]),)


def test_a_result_takes_the_layout_of_the_argument_it_replaces():
    decided, _, reshards = decide(f"""
func.func @main(%w: tensor<8x8xf32> {{{pin('[{"a"}, {}]')}}}) -> (tensor<8x8xf32> {{rhino.alias = 0}}) {{
  %t = hlo.transpose %w perm [1, 0] : tensor<8x8xf32> -> tensor<8x8xf32>
  func.return %t : tensor<8x8xf32>
}}""")
    assert decided.results == decided.arguments == (rows(2, A),)
    assert reshards == 1


def test_errors():
    with pytest.raises(LayoutError, match=r"hlo.exp: cannot yield its pinned layout"):
        decide(CHAIN.format(x="", y="").replace(
            "exp %x", 'exp %x {dist.layout = [#dist.layout<[{}, {}] partial {"a": sum}>]}'
        ))  # fmt: skip
    module = parse_module(CHAIN.format(x="", y=""))
    PropagatePass("a=2").apply(None, module)
    PropagatePass().apply(None, module)  # all pins now, nothing to change
    verify(module)
    with pytest.raises(ProgramError, match=r"already placed"):
        decide(CHAIN.format(x="", y="").replace(
            "hlo.negate %t", "dist.reshard %t to #dist.layout<[{}, {}]>"
        ))  # fmt: skip


def test_a_pinned_partial_finds_room_beside_a_strided_split():
    decided, ops, _ = decide(
        f"""
func.func @main(%x: tensor<8x4xf32> {{{pin('[{}, {"a":2}]')}}}) -> tensor<8xf32> {{
  %s = hlo.reduce "max" %x dims [1] {{dist.layout = [#dist.layout<[{{}}] partial {{"a": max, "b": max}}>]}}
      : tensor<8x4xf32> -> tensor<8xf32>
  func.return %s : tensor<8xf32>
}}"""
    )
    assert ops["s"].operands == (Layout.make([[], [(B, 4), (A, 2)]]),)
    assert decided.results == (Layout.replicated(1),)
