"""autodiff and optimizer against torch, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.signature import Slot
from rhino.ir import types
from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.evaluate import run_module
from rhino.ir.optimizers import SGD, Adam, AdamW
from rhino.passes.autodiff import differentiate
from rhino.passes.optimizer import OptimizerPass, add_optimizer
from rhino.passes.step import training_step

RNG = np.random.default_rng(0)
X, W1, W2, UNUSED = (RNG.standard_normal(s) for s in ((6, 5), (5, 4), (4, 4), (3,)))


def f64(*shape: int) -> types.Type:
    return types.tensor(shape, types.F64)


def forward() -> ModuleOp:
    """loss = mean((tanh(x w1) w2 w2)^2): w2 is used twice, `unused` not at all."""
    inputs = [f64(5, 4), f64(4, 4), f64(3), f64(6, 5)]
    func = FuncOp("main", (inputs, [f64()]))
    b = Builder(InsertPoint.at_end(func.body.block))
    w1, w2, _, x = func.args
    h = b.tanh(b.matmul(x, w1))
    y = b.matmul(b.matmul(h, w2), w2)
    loss = b.mul(b.reduce(b.mul(y, y), [0, 1], "sum"), b.full((), types.F64, 1 / 24))
    b.insert(ReturnOp(loss))
    parameters = [Slot(name=n, role="parameter") for n in ("w1", "w2", "unused")]
    signature.set_arguments(func, [*parameters, Slot(name="x", role="input")])
    signature.set_results(func, [Slot(name="loss", role="loss")])
    module = ModuleOp([func])
    module.verify()
    return module


def torch_loss(w1: torch.Tensor, w2: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (torch.tanh(x @ w1) @ w2 @ w2).pow(2).mean()


def test_gradients_equal_torch() -> None:
    module = forward()
    differentiate(module)
    module.verify()
    loss, *gradients = run_module(module, [W1, W2, UNUSED, X])
    w1, w2 = (torch.tensor(w, requires_grad=True) for w in (W1, W2))
    want = torch_loss(w1, w2, torch.tensor(X))
    want.backward()
    np.testing.assert_allclose(loss, want.item(), rtol=1e-14)
    for got, expected in zip(gradients, (w1.grad, w2.grad), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    slots = signature.results(signature.main_of(module))
    assert [(s.role, s.of) for s in slots[1:]] == [("gradient", n) for n in ("w1", "w2")]


def test_zeros_where_the_loss_depends_on_a_parameter_but_is_flat_in_it() -> None:
    """As torch.floor: its gradient is zeros, not none, and so an optimizer decays the weight."""
    func = FuncOp("main", ([f64(3), f64(3), f64(3)], [f64()]))
    b = Builder(InsertPoint.at_end(func.body.block))
    flat, stopped, straight = func.args
    b.insert(ReturnOp(b.reduce(b.add(b.add(b.floor(flat), b.stop_gradient(stopped)), straight), [0], "sum")))
    names = ("flat", "stopped", "straight")
    signature.set_arguments(func, [Slot(name=n, role="parameter") for n in names])
    signature.set_results(func, [Slot(name="loss", role="loss")])
    module = ModuleOp([func])
    differentiate(module)
    tensors = [torch.arange(3.0, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    (torch.floor(tensors[0]) + tensors[1].detach() + tensors[2]).sum().backward()
    want = {n: t.grad.numpy() for n, t in zip(names, tensors, strict=True) if t.grad is not None}
    got = run_module(module, [np.arange(3.0)] * 3)[1:]
    slots = signature.results(func)[1:]
    assert [s.of for s in slots] == list(want)
    np.testing.assert_array_equal(got, list(want.values()))


OPTIMIZERS = [
    (SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    (SGD(0.1, momentum=0.9, weight_decay=0.01), lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01)),
    (SGD(0.1, momentum=0.9, nesterov=True), lambda p: torch.optim.SGD(p, 0.1, 0.9, nesterov=True)),
    (Adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
    (Adam(0.01, (0.8, 0.95), 1e-6, 0.1), lambda p: torch.optim.Adam(p, 0.01, (0.8, 0.95), 1e-6, 0.1)),
    (AdamW(0.01), lambda p: torch.optim.AdamW(p, 0.01)),
    (AdamW(0.01, weight_decay=0.0), lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.0)),
]


@pytest.mark.parametrize(("optimizer", "make"), OPTIMIZERS, ids=[str(o) for o, _ in OPTIMIZERS])
def test_three_steps_equal_torch_optim(optimizer, make) -> None:
    module = training_step(forward(), optimizer)
    func = signature.main_of(module)
    slots, results = signature.arguments(func), signature.results(func)
    values: list[np.ndarray] = [W1, W2, UNUSED, X] + [np.zeros(a.type.get_shape()) for a in func.args[4:]]
    assert all(s.role == "state" for s in slots[4:])

    tensors = [torch.tensor(w, requires_grad=True) for w in (W1, W2, UNUSED)]
    reference = make(tensors)
    for _ in range(3):
        loss, *rest = run_module(module, values)
        reference.zero_grad()
        want = torch_loss(tensors[0], tensors[1], torch.tensor(X))
        want.backward()
        reference.step()
        np.testing.assert_allclose(loss, want.item(), rtol=1e-12)
        for value, slot in zip(rest, results[1:], strict=True):
            assert slot.alias is not None
            values[slot.alias] = value
    for got, expected in zip(values[:3], tensors, strict=True):
        np.testing.assert_allclose(got, expected.detach(), rtol=1e-10, atol=1e-14)


def test_aliases_pair_every_state_and_parameter_with_its_new_value() -> None:
    module = training_step(forward(), AdamW())
    func = signature.main_of(module)
    arguments, results = signature.arguments(func), signature.results(func)
    carried = [i for i, s in enumerate(arguments) if s.role in ("parameter", "state") and s.name != "unused"]
    assert sorted(s.alias for s in results if s.alias is not None) == carried
    for slot, type in zip(results, func.function_type.outputs, strict=True):
        if slot.alias is not None:
            assert slot.name == arguments[slot.alias].name
            assert type == func.args[slot.alias].type


def test_optimizer_pass_options_and_order() -> None:
    with pytest.raises(ProgramError, match="autodiff"):
        add_optimizer(forward(), SGD())
    with pytest.raises(UsageError, match="lion"):
        OptimizerPass(kind="lion").optimizer()
    module = forward()
    differentiate(module)
    OptimizerPass(kind="sgd", lr=0.5, keep_gradients=True).apply(Context(), module)
    roles = [s.role for s in signature.results(signature.main_of(module))]
    assert roles == ["loss", *["gradient"] * 2, *["parameter"] * 2]


def test_a_loss_that_is_no_scalar_is_refused() -> None:
    module = forward()
    func = signature.main_of(module)
    signature.return_of(func).operands = [func.args[3]]
    func.function_type = FunctionType.from_lists([a.type for a in func.args], [func.args[3].type])
    with pytest.raises(ProgramError, match=r"f64\[6, 5\].*scalar"):
        differentiate(module)


def test_a_program_without_parameters_is_refused() -> None:
    module = forward()
    func = signature.main_of(module)
    slots = [Slot(name=f"a{i}", role="input") for i in range(4)]
    signature.set_arguments(func, slots)
    with pytest.raises(ProgramError, match="no floating-point parameter to"):
        differentiate(module)
    slots[2] = Slot(name="unused", role="parameter")
    signature.set_arguments(func, slots)
    with pytest.raises(ProgramError, match="depends on no floating-point parameter"):
        differentiate(module)
