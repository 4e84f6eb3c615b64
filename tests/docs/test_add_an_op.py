"""docs/add-an-op.md, followed to the letter: its op does what every op must do."""

import types as python_types

import generate
import ml_dtypes
import numpy as np
import pytest
import reference
import torch
from rulecheck import check_rule
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.rewriter import InsertPoint

from rhino.dialects import text
from rhino.dialects.builder import Builder
from rhino.dialects.signature import Slot, main_of, set_arguments, set_results
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.evaluate import run_module
from rhino.ir.text import parse_text
from rhino.passes.autodiff import differentiate
from rhino.passes.place import PlacePass
from rhino.passes.spmd import spmd
from rhino.runtime.executor import compile_function
from rhino.runtime.torch_ops import TABLE, Context

VALUES = [0.0, -0.0, 1.0, -1.0, 2.5, -30.0, 1e-8, float("inf"), float("-inf"), float("nan")]


@pytest.fixture(scope="module")
def page():
    """What the code on the page defines."""
    names = {"__name__": "example"}
    for block in generate.blocks((generate.DOCS / "add-an-op.md").read_text()):
        if block.runs:
            generate.run_python(block.text, names)
    return python_types.SimpleNamespace(**names)


def program(page, type, loss=False):
    """asinh(x), or the sum of it with x as a parameter."""
    func = FuncOp("main", ([type], []))
    func.args[0].name_hint = "x"
    b = Builder(InsertPoint.at_end(func.body.block))
    y = page.asinh(b, func.args[0])
    if loss:
        y = b.reduce(y, range(len(type.get_shape())), "sum")
    b.insert(ReturnOp(y))
    func.update_function_type()
    set_arguments(func, [Slot("x", "parameter" if loss else "input")])
    set_results(func, [Slot("y", "loss" if loss else "output")])
    return ModuleOp([func])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_values(page, dtype):
    x = np.array(VALUES).astype(dtype)
    (got,) = run_module(program(page, types.tensor(x.shape, types.from_numpy(x.dtype))), [x])
    want = torch.asinh(torch.from_numpy(x.astype(np.float64))).numpy()
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=float(ml_dtypes.finfo(dtype).eps) * 2)


def test_gradient(page):
    x = np.random.default_rng(0).normal(size=(3, 4)) * 5
    module = program(page, types.tensor(x.shape, types.F64), loss=True)
    differentiate(module)
    _, got = run_module(module, [x])
    tensor = torch.tensor(x, requires_grad=True)
    torch.asinh(tensor).sum().backward()
    np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-14)


def test_rule(page):
    op = page.AsinhOp.create(
        operands=[page.AsinhOp.create(result_types=[types.tensor((4, 6), types.F64)]).results[0]],
        result_types=[types.tensor((4, 6), types.F64)],
    )
    x = np.random.default_rng(0).integers(-9, 9, (4, 6)).astype(np.float64)
    assert not check_rule(op.rule(), op.evaluate, [x])
    assert reference.rule_text(op.rule()) == "`d0 d1 -> d0 d1`"


def test_text(page):
    module = program(page, types.tensor((4,), types.F32))
    printed = text.print_module(module)
    assert "hlo.asinh %x : tensor<4xf32>" in printed
    ctx = text.context()
    ctx.load_op(page.AsinhOp)
    assert text.print_module(parse_text(ctx, printed, "page")) == printed


def test_it_takes_floats_only(page):
    with pytest.raises(ProgramError, match=r"hlo\.asinh.*float"):
        program(page, types.tensor((4,), types.I64))


def test_on_devices(page):
    x = np.random.default_rng(0).normal(size=(4, 6))
    module = program(page, types.tensor(x.shape, types.F64))
    (want,) = run_module(module, [x])
    placed = text.print_module(module).replace(
        'rhino.role = "input"', 'rhino.role = "input", dist.layout = #dist.layout<[{"dp"}, {"tp"}]>'
    )
    ctx = text.context()
    ctx.load_op(page.AsinhOp)
    module = parse_text(ctx, placed, "page")
    PlacePass("dp=2,tp=3").apply(ctx, module)
    spmd(module)
    assert types.shape_of(main_of(module).args[0]) == (2, 2)
    (got,) = run_module(module, [x])
    assert np.array_equal(got, want)


def test_on_torch(page, monkeypatch):
    for name, lowering in page.TABLE.items():
        monkeypatch.setitem(TABLE, name, lowering)
    x = torch.linspace(-3, 3, 5, dtype=torch.float64)
    func = main_of(program(page, types.tensor((5,), types.F64)))
    (got,) = compile_function(func, Context(torch.device("cpu")))([x])
    assert torch.equal(got, torch.asinh(x))


def test_the_reference_would_list_it(page, monkeypatch):
    monkeypatch.setitem(TABLE, "hlo.asinh", page.TABLE["hlo.asinh"])
    assert reference.has_derivative(page.AsinhOp)
    assert reference.examples(page.AsinhOp) == ["%y = hlo.asinh %x : tensor<4xf32>"]
