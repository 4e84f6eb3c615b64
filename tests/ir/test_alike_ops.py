"""Ops that are alike are verified and put into words once; nothing that tells ops apart may be lost by that."""

from __future__ import annotations

from io import StringIO

import pytest
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import ints
from rhino.dialects.text import parse_module
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.kinds import kind_of
from rhino.ir.printing import RhinoPrinter, print_module
from rhino.ir.verify import verify_module

SQUARE = types.tensor((4, 4), types.F32)


def repeated(layers: int = 3) -> ModuleOp:
    """Layers that are alike, with ops that differ in one thing only: a property, a sign, an operand given twice."""
    func = FuncOp("main", ((SQUARE, SQUARE), (SQUARE,)))
    b = Builder(InsertPoint.at_end(func.body.block))
    x: SSAValue = func.args[0]
    y: SSAValue = func.args[1]
    for _ in range(layers):
        x = b.add(x, y)
        y = b.add(y, y)
        x = b.mul(x, b.broadcast_in_dim(b.reduce(x, [0], "sum"), (4, 4), [0]))
        x = b.sub(x, b.broadcast_in_dim(b.reduce(x, [1], "sum"), (4, 4), [1]))
        for zero in (0.0, -0.0, float("nan")):
            x = b.slice(b.pad(x, zero, [1, 0], [0, 1]), [0, 0], [4, 4])
        x = b.select(b.compare(x, y, "lt"), x, b.convert(b.compare(y, x, "ge"), types.F32))
    b.insert(ReturnOp(x))
    for i, op in enumerate(func.body.block.ops):
        op.location = FileLineColLoc(StringAttr("model.py"), IntAttr(i % 7 + 1), IntAttr(i + 1))
        if i % 5 == 0:
            op.attributes["note"] = StringAttr(f"{i % 3}\n")
    return ModuleOp([func])


class ForgetfulPrinter(RhinoPrinter):
    """Finds the words of every op anew."""

    def _form(self, op: Operation) -> None:
        self._texts.clear()


@pytest.mark.parametrize("debug", [False, True])
def test_text_is_that_of_every_op_on_its_own(debug: bool) -> None:
    module = repeated()
    stream = StringIO()
    ForgetfulPrinter(stream, debug=debug).print_op(module)
    text = print_module(module, debug)
    assert text == stream.getvalue() + "\n"
    assert print_module(parse_module(text), debug) == text
    assert "-0.0" in text and " 0.0" in text


def test_ops_that_differ_are_of_different_kinds() -> None:
    ops = list(repeated(1).walk())
    pads = [op for op in ops if op.name == "hlo.pad"]
    reduces = [op for op in ops if op.name == "hlo.reduce"]
    adds = [op for op in ops if op.name == "hlo.add"]
    assert len({kind_of(op) for op in pads}) == len(pads) == 3
    assert len({kind_of(op) for op in reduces}) == len(reduces) == 2
    del adds[0].attributes["note"]
    assert kind_of(adds[0]) == kind_of(adds[1])


@pytest.mark.parametrize("wrong", ["type", "property", "attribute name"])
def test_one_wrong_op_among_many_that_are_alike_is_found(wrong: str) -> None:
    module = repeated()
    verify_module(module)
    op = [op for op in module.walk() if op.name == "hlo.reduce"][-1]
    if wrong == "type":
        Rewriter.replace_value_with_new_type(op.results[0], types.tensor((5,), types.F32))
    elif wrong == "property":
        op.properties["dims"] = ints([2])
    else:
        op.properties["dim"] = op.properties.pop("dims")
    with pytest.raises(ProgramError, match=r"hlo\.reduce"):
        verify_module(module)


def test_a_block_without_its_return_is_found_though_its_last_op_is_like_others() -> None:
    module = repeated()
    function = module.body.block.first_op
    assert isinstance(function, FuncOp)
    block = function.body.block
    last = block.last_op
    assert isinstance(last, ReturnOp)
    block.erase_op(last)
    with pytest.raises(ProgramError, match="terminat"):
        verify_module(module)
