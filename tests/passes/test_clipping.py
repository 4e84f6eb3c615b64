"""Clipping by global norm: torch's clip_grad_norm_ on one device, and one device's result under every plan."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

import rhino
from rhino.cli.check import check_source
from rhino.cli.planning import Request
from rhino.cli.source import Source
from rhino.dialects import signature
from rhino.dialects.dist import AllReduceOp
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import LAYOUT, with_attribute
from rhino.frontend.capture import capture
from rhino.ir import types
from rhino.ir.errors import UsageError
from rhino.ir.evaluate import run_module
from rhino.ir.layout import Layout
from rhino.ir.layout_text import parse_layout
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import SGD, Adam, AdamW, Optimizer
from rhino.passes.autodiff import differentiate
from rhino.passes.optimizer import OptimizerPass
from rhino.passes.propagate import PropagatePass
from rhino.passes.spmd import SpmdPass
from rhino.passes.step import training_step
from rhino.runtime.reference import Reference

WIDTH, VOCABULARY = 8, 16


class Model(nn.Module):
    """Tied embeddings, a norm (replicated by every plan), a scalar gain, and a parameter that nothing depends on."""

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.embed = nn.Embedding(VOCABULARY, WIDTH, dtype=dtype)
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False, dtype=dtype)
            self.head.weight = self.embed.weight
            self.norm = nn.LayerNorm(WIDTH, dtype=dtype)
            self.up = nn.Linear(WIDTH, 4 * WIDTH, dtype=dtype)
            self.down = nn.Linear(4 * WIDTH, WIDTH, dtype=dtype)
            self.gain = nn.Parameter(torch.tensor(1.5, dtype=dtype))
            self.unused = nn.Parameter(torch.full((3,), 1e6, dtype=dtype))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        x = x + self.down(torch.tanh(self.up(self.norm(x))))
        return self.head(x) * self.gain


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(batch)[:, :-1].flatten(0, 1), batch[:, 1:].flatten())


TOKENS = torch.randint(0, VOCABULARY, (8, 5), generator=torch.Generator().manual_seed(1))


def program(optimizer: Optimizer | None, dtype: torch.dtype = torch.float64) -> rhino.Program:
    return rhino.Program(Model(dtype), loss, TOKENS, optimizer)


def arguments(module: ModuleOp, dtype: torch.dtype = torch.float64) -> list[np.ndarray]:
    """The model's own weights, the tokens, and states of zeros."""
    known = {name: p.detach() for name, p in Model(dtype).named_parameters()} | {"batch": TOKENS}
    func = signature.main_of(module)
    return [
        (known[slot.name].to(torch.float64) if known[slot.name].is_floating_point() else known[slot.name])
        .numpy()
        .astype(types.numpy_dtype(types.element_of(arg)))
        if slot.name in known
        else np.zeros(types.shape_of(arg), types.numpy_dtype(types.element_of(arg)))
        for slot, arg in zip(signature.arguments(func), func.args, strict=True)
    ]


def step(module: ModuleOp, values: list[np.ndarray]) -> None:
    """One step; what it gives takes the place of what it replaces."""
    for slot, value in zip(
        signature.results(signature.main_of(module)), run_module(module, values), strict=True
    ):
        if slot.alias is not None:
            values[slot.alias] = value


def by_name(module: ModuleOp, values: list[np.ndarray]) -> dict[str, np.ndarray]:
    slots = signature.arguments(signature.main_of(module))
    return {s.name: v for s, v in zip(slots, values, strict=True) if s.role == "parameter"}


CASES: list[tuple[Optimizer, type[torch.optim.Optimizer], dict[str, object]]] = [
    (SGD(0.5, clip_norm=0.05), torch.optim.SGD, {"lr": 0.5}),
    (
        SGD(0.5, momentum=0.9, weight_decay=0.1, clip_norm=0.05),
        torch.optim.SGD,
        {"lr": 0.5, "momentum": 0.9, "weight_decay": 0.1},
    ),
    (SGD(0.5, clip_norm=100.0), torch.optim.SGD, {"lr": 0.5}),
    (Adam(0.1, weight_decay=0.1, clip_norm=0.05), torch.optim.Adam, {"lr": 0.1, "weight_decay": 0.1}),
    (AdamW(0.1, eps=1e-2, clip_norm=0.05), torch.optim.AdamW, {"lr": 0.1, "eps": 1e-2}),
]


@pytest.mark.parametrize(("optimizer", "cls", "options"), CASES, ids=[str(case[0]) for case in CASES])
def test_three_steps_equal_torch(optimizer, cls, options) -> None:
    module = training_step(capture(program(None)), optimizer)
    values = arguments(module)
    model = Model()
    trained = cls(model.parameters(), **options)
    norms = []
    for _ in range(3):
        trained.zero_grad()
        loss(model, TOKENS).backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), optimizer.clip_norm)))
        trained.step()
        step(module, values)
    # Either every step clips by a lot, or none does.
    assert all(n > 3 * optimizer.clip_norm for n in norms) or all(n < optimizer.clip_norm for n in norms)
    got = by_name(module, values)
    assert set(got) == {name for name, _ in model.named_parameters()}
    for name, want in model.named_parameters():
        np.testing.assert_allclose(got[name], want.detach(), rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_bfloat16_gradients_are_normed_in_float32(factor: float) -> None:
    """One step of SGD on weights and gradients in bf16; the norm is of the rounded gradients, in f64 here."""
    forward = capture(program(None, torch.bfloat16))
    raw = forward.clone()
    differentiate(raw)
    gradients = run_module(raw, arguments(raw, torch.bfloat16))[1:]
    slots = signature.results(signature.main_of(raw))[1:]
    flat = np.concatenate([np.asarray(g, np.float64).ravel() for g in gradients])
    # Sums in bf16 stop growing where a square is under 1/256 of them, and are far from this.
    clip = factor * float(np.sqrt(np.square(flat).sum()))
    module = training_step(forward, SGD(1.0, clip_norm=clip))
    values = arguments(module, torch.bfloat16)
    before = by_name(module, values)
    step(module, values)
    after = by_name(module, values)
    for slot, gradient in zip(slots, gradients, strict=True):
        assert slot.of is not None
        scaled = (np.asarray(gradient, np.float32) * np.float32(min(1.0, factor))).astype(gradient.dtype)
        want = (before[slot.of] - scaled).astype(np.float64)
        np.testing.assert_allclose(after[slot.of].astype(np.float64), want, rtol=2**-7, err_msg=slot.of)


def test_gradients_that_are_not_finite_are_as_in_torch() -> None:
    for value in (np.inf, np.nan):
        module = training_step(capture(program(None)), SGD(0.5, clip_norm=0.05))
        values = arguments(module)
        names = [s.name for s in signature.arguments(signature.main_of(module))]
        values[names.index("gain")] = np.array(value)
        step(module, values)
        model = Model()
        with torch.no_grad():
            model.gain.fill_(value)
        loss(model, TOKENS).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        torch.optim.SGD(model.parameters(), 0.5).step()
        for name, want in model.named_parameters():
            np.testing.assert_array_equal(by_name(module, values)[name], want.detach(), err_msg=name)


PLANS = {
    "dp": Request(mesh="dp=4", plan="dp"),
    "zero3": Request(mesh="dp=4", plan="zero3"),
    "megatron": Request(mesh="dp=2,tp=2", plan="megatron"),
    # Without a limit the fastest plan of so small a program has all devices do the same.
    "auto": Request(mesh="a=2,b=2", memory_limit="36kB", level="O1"),
    "auto, pinned": Request(
        mesh="a=2,b=2", pins=('batch=[{"a"}, {}]', 'up.weight=[{"b"}, {"a"}]', "norm.*=replicated")
    ),
}


@pytest.mark.parametrize("plan", PLANS)
def test_plans_equal_one_device_and_torch(plan: str) -> None:
    """A norm of shards only, or one that counts replicas, gives other weights: every gradient is clipped."""
    report = check_source(Source("model.py", program(SGD(0.5, clip_norm=0.05))), PLANS[plan])
    assert report.equal, report.failures
    assert report.collectives > 0
    assert report.compared == {"distributed": 9, "pytorch": 17}


SHARDED = {
    # As ZeRO: every parameter in shards over all ranks, what is too small for that in none.
    "zero": {"batch": '[{"a", "b"}, {}]'},
    # Every parameter in another way.
    "mixed": {
        "batch": '[{"a"}, {}]',
        "embed.weight": '[{"a"}, {"b"}]',
        "up.weight": '[{"b"}, {}]',
        "up.bias": '[{"b"}]',
        "down.weight": '[{}, {"b", "a"}]',
        "norm.weight": '[{"a"}]',
    },
}


def sharded(module: ModuleOp, how: str) -> ModuleOp:
    """The local program of a step whose arguments lie as `SHARDED` says, and everything else as follows."""
    module = module.clone()
    func, mesh = signature.main_of(module), Mesh.parse("a=2,b=2")
    slots = signature.arguments(func)
    for i, (slot, arg) in enumerate(zip(slots, func.args, strict=True)):
        shape = types.shape_of(arg)
        text = SHARDED[how].get(slot.of or slot.name)
        if how == "zero" and text is None and any(n % 4 == 0 for n in shape):
            dim = next(d for d, n in enumerate(shape) if n % 4 == 0)
            text = "[" + ", ".join('{"a", "b"}' if d == dim else "{}" for d in range(len(shape))) + "]"
        layout = parse_layout(text, shape, mesh) if text else Layout.replicated(len(shape))
        slots[i] = with_attribute(slot, LAYOUT, LayoutAttr.of(layout, shape, mesh))
    signature.set_arguments(func, slots)
    for each in (PropagatePass(mesh="a=2,b=2"), SpmdPass()):
        each.apply(Context(), module)
    return module


@pytest.mark.parametrize("how", SHARDED)
def test_each_sum_of_the_norm_over_ranks_is_made_once(how: str) -> None:
    """Without one, or with one twice, the weights are others: the comparison sees it."""
    whole = training_step(capture(program(None)), AdamW(0.1, eps=1e-2, clip_norm=0.05))
    values = arguments(whole)
    want = run_module(whole, values)
    local = sharded(whole, how)
    assert _equal(local, values, want)
    sums = [op for op in signature.main_of(local).body.block.ops if sums_the_norm(op)]
    assert sums
    for index in range(len(sums)):
        assert not _equal(_altered(local, index, times=0), values, want), f"{sums[index]} is not needed"
        assert not _equal(_altered(local, index, times=2), values, want), f"{sums[index]} may be done twice"


def sums_the_norm(op: Operation) -> bool:
    """Whether an all-reduce adds up squares: its result reaches the square root through additions."""
    if not isinstance(op, AllReduceOp):
        return False
    stack: list[Operation] = [op]
    while stack:
        for result in stack.pop().results:
            for use in result.uses:
                if use.operation.name == "hlo.sqrt":
                    return True
                if use.operation.name in ("hlo.add", "hlo.slice", "hlo.reshape"):
                    stack.append(use.operation)
    return False


def _altered(local: ModuleOp, index: int, *, times: int) -> ModuleOp:
    """A copy in which the sum of that index is left out, or done twice."""
    copy = local.clone()
    op = [o for o in signature.main_of(copy).body.block.ops if sums_the_norm(o)][index]
    if times == 0:
        op.results[0].replace_all_uses_with(op.operands[0])
        return copy
    again = op.clone()
    block = op.parent_block()
    assert block is not None
    block.insert_op_after(again, op)
    op.results[0].replace_all_uses_with(again.results[0])
    again.operands = [op.results[0]]
    return copy


def _equal(module: ModuleOp, values: list[np.ndarray], want: list[np.ndarray]) -> bool:
    try:
        got = run_module(module, values)
    except rhino.RhinoError:
        return False  # replicas disagree
    return all(np.allclose(g, w, rtol=1e-9, atol=1e-12) for g, w in zip(got, want, strict=True))


def test_parallelize_trains_as_torch_does() -> None:
    optimizer = SGD(0.5, momentum=0.9, clip_norm=0.05)
    reference = Reference(Model(torch.float32), loss, optimizer)
    trained = rhino.parallelize(
        Model(torch.float32), loss=loss, batch=TOKENS, optimizer=optimizer, mesh="dp=2,tp=2"
    )
    for _ in range(3):
        assert float(trained(TOKENS)) == pytest.approx(float(reference.step(TOKENS)), rel=1e-5)
    want = reference.model.state_dict()
    for name, tensor in trained.state_dict().items():
        torch.testing.assert_close(tensor, want[name], rtol=1e-4, atol=1e-6)


def test_a_norm_adds_one_root_and_one_minimum() -> None:
    forward = capture(program(None))
    for optimizer in (SGD(0.5), AdamW(0.5)):
        plain, clipped = (
            [op.name for op in training_step(forward, each).walk()]
            for each in (optimizer, type(optimizer)(0.5, clip_norm=1.0))
        )
        for name in ("hlo.minimum", "hlo.sqrt"):
            assert clipped.count(name) == plain.count(name) + 1


def test_the_option_of_the_pass() -> None:
    for kind, cls in (("sgd", SGD), ("adam", Adam), ("adamw", AdamW)):
        assert OptimizerPass(kind=kind, clip_norm=2.0).optimizer() == cls(clip_norm=2.0)
        assert OptimizerPass(kind=kind).optimizer().clip_norm is None
    module = capture(program(None))
    differentiate(module)
    OptimizerPass(kind="sgd", clip_norm=2.0, keep_gradients=True).apply(Context(), module)
    raw = capture(program(None))
    differentiate(raw)
    kept = [s.name for s in signature.results(signature.main_of(module)) if s.role == "gradient"]
    values = arguments(module)
    count = 1 + len(kept)
    for got, want in zip(run_module(module, values)[:count], run_module(raw, values), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan"), float("inf")])
def test_a_norm_that_is_no_length_is_refused(norm: float) -> None:
    for cls in (SGD, Adam, AdamW):
        with pytest.raises(UsageError, match="clip_norm"):
            cls(clip_norm=norm)
