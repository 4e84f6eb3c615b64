"""Reading and writing the layouts of placed modules."""

import time

import pytest
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.dist.layouts import (
    argument_layouts,
    layout_of,
    layouts_of,
    read_layouts,
    result_layouts,
    set_layouts,
)
from rhino.dialects.text import parse_module
from rhino.dialects.verify import stage_of, verify
from rhino.ir.errors import LayoutError, ProgramError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh

MESH = Mesh.parse("dp=2,tp=2")
PLACED = """
dist.mesh @mesh = <["dp"=2, "tp"=2]>
func.func @main(%x: tensor<4x8xf32> {dist.layout = #dist.layout<[{"dp"}, {}]>})
    -> (tensor<4x8xf32> {dist.layout = #dist.layout<[{}, {"tp":4}]>}) {
  %0 = hlo.exp %x {dist.layout = [#dist.layout<[{"dp"}, {}]>]} : tensor<4x8xf32>
  %1 = dist.reshard %0 to #dist.layout<[{}, {"tp":4}]> : tensor<4x8xf32>
  func.return %1 : tensor<4x8xf32>
}
"""
ROWS = Layout.block((4, 8), [(0, MESH.axis("dp"))])
COLUMNS = Layout.make([[], [(MESH.axis("tp"), 4)]])


def test_layouts_of_arguments_ops_reshards_and_results():
    module = parse_module(PLACED)
    func = signature.main_of(module)
    exp, reshard, _ = func.body.block.ops
    assert layout_of(func.args[0]) == layout_of(exp.results[0]) == ROWS
    assert layout_of(reshard.results[0]) == COLUMNS
    assert argument_layouts(func, MESH) == [ROWS]
    assert result_layouts(func, MESH) == [COLUMNS]
    assert list(read_layouts(func, MESH).values()) == [ROWS, ROWS, COLUMNS]
    assert stage_of(module) == "placed"
    verify(module)


def test_what_is_missing_is_named():
    module = parse_module(PLACED)
    func = signature.main_of(module)
    exp = func.body.block.first_op
    assert exp is not None
    del exp.attributes["dist.layout"]
    assert layouts_of(exp, MESH) is None
    with pytest.raises(ProgramError, match=r"hlo.exp has no dist.layout"):
        layout_of(exp.results[0])
    with pytest.raises(ProgramError, match=r"hlo.exp has no dist.layout"):
        read_layouts(func, MESH)
    set_layouts(exp, [COLUMNS], MESH)
    with pytest.raises(ProgramError, match=r"does not have the layout that follows from the operands"):
        verify(module)


def test_a_layout_that_does_not_fit_its_tensor():
    module = parse_module(PLACED.replace('{"tp":4}]>}) {', '{"tp":3}]>}) {'))
    with pytest.raises(LayoutError, match=r"does not divide"):
        result_layouts(signature.main_of(module), MESH)


def test_ten_thousand_ops_in_less_than_a_second():
    module = parse_module(PLACED)
    func = signature.main_of(module)
    ret = signature.return_of(func)
    builder = Builder(InsertPoint.before(ret))
    value = func.args[0]
    for _ in range(10_000):
        value = builder.exp(value)
    ops = [op for op in func.body.block.ops if op.name == "hlo.exp"]
    start = time.process_time()
    for op in ops:
        set_layouts(op, [ROWS], MESH)
    layouts = read_layouts(func, MESH)
    assert len(layouts) == 10_003
    assert time.process_time() - start < 1
