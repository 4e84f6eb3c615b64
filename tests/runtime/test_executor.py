"""The executor: programs as a whole against the interpreter, when values go, and whose memory is reused."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.func import FuncOp

from rhino.dialects import signature
from rhino.dialects.text import parse_module
from rhino.ir.errors import UnsupportedError
from rhino.ir.evaluate import run_module
from rhino.runtime.executor import compile_function
from rhino.runtime.reuse import reusable_operand
from rhino.runtime.tensors import to_numpy, to_torch
from rhino.runtime.torch_ops import TABLE, Context

sys.path.insert(0, str(Path(__file__).parents[1] / "properties"))
from random_programs import programs

CPU = Context(torch.device("cpu"))


def main(text: str, result: str = "tensor<4xf32>") -> FuncOp:
    header = f"func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> ({result}) {{\n"
    return signature.main_of(parse_module(f"{header}{text}\n}}"))


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(st.data())
def test_programs_equal_the_interpreter(data: st.DataObject) -> None:
    program = data.draw(programs())
    arrays = program.data(0)
    want = run_module(program.module, arrays)
    tensors = [to_torch(a) for a in arrays]
    kept = [t.clone() for t in tensors]
    got = compile_function(signature.main_of(program.module), CPU)(list(tensors))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(to_numpy(g), w)
    for tensor, before in zip(tensors, kept, strict=True):
        assert torch.equal(tensor, before), "an argument was changed"


def test_values_go_after_their_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    func = main(
        "%a = hlo.exp %x : tensor<4xf32>\n%b = hlo.add %a, %y : tensor<4xf32>\nfunc.return %b : tensor<4xf32>"
    )
    seen: list[weakref.ref[torch.Tensor]] = []

    def watched(op: object, context: object) -> object:
        def add(a: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            gc.collect()
            assert seen[0]() is None, "x is still there though nobody reads it any more"
            return a + y

        return add

    monkeypatch.setitem(TABLE, "hlo.add", watched)  # type: ignore[arg-type]
    monkeypatch.setattr("rhino.runtime.executor.reusable_operand", lambda op, dying: None)
    x = torch.ones(4)
    seen.append(weakref.ref(x))
    arguments = [x, torch.ones(4)]
    del x
    compile_function(func, CPU)(arguments)
    assert arguments == []


@pytest.mark.parametrize(
    ("text", "reused"),
    [
        # its own memory, read for the last time
        ("%a = hlo.exp %x : tensor<4xf32>\n%b = hlo.mul %a, %a : tensor<4xf32>", True),
        ("%a = hlo.exp %x : tensor<4xf32>\n%b = hlo.mul %y, %a : tensor<4xf32>", True),
        # arguments belong to the caller
        ("%b = hlo.mul %x, %y : tensor<4xf32>", False),
        # a view of it lives on
        (
            "%a = hlo.exp %x : tensor<4xf32>\n%v = hlo.reshape %a : tensor<4xf32> -> tensor<2x2xf32>\n"
            "%b = hlo.mul %a, %a : tensor<4xf32>",
            False,
        ),
        # it is a view itself
        (
            "%a = hlo.exp %x : tensor<4xf32>\n%v = hlo.reverse %a dims [0] : tensor<4xf32> -> tensor<4xf32>\n"
            "%b = hlo.mul %v, %v : tensor<4xf32>",
            False,
        ),
        # constants stay
        ("%a = hlo.constant dense<2.0> : tensor<4xf32>\n%b = hlo.mul %a, %x : tensor<4xf32>", False),
    ],
)
def test_only_memory_of_its_own_is_reused(text: str, reused: bool) -> None:
    func = main(f"{text}\nfunc.return %b : tensor<4xf32>")
    last = list(func.body.block.ops)[-2]
    assert (reusable_operand(last, set(last.operands)) is not None) == reused


def test_results_that_are_read_again_are_not_overwritten() -> None:
    func = main(
        "%a = hlo.exp %x : tensor<4xf32>\n%b = hlo.mul %a, %y : tensor<4xf32>\n"
        "func.return %a, %b : tensor<4xf32>, tensor<4xf32>",
        "tensor<4xf32>, tensor<4xf32>",
    )
    x, y = torch.ones(4), torch.full((4,), 2.0)
    a, b = compile_function(func, CPU)([x, y])
    assert torch.equal(a, torch.exp(torch.ones(4))) and torch.equal(b, 2 * a)


def test_an_op_without_a_lowering_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TABLE, "hlo.exp")  # type: ignore[arg-type]
    func = main("%a = hlo.exp %x : tensor<4xf32>\nfunc.return %a : tensor<4xf32>")
    with pytest.raises(UnsupportedError, match=r"no lowering for hlo\.exp"):
        compile_function(func, CPU)
