"""Faults of the programs that other partitioners made: lost reasons, layouts left for run time, sums in another type,
data moved for nothing, heads cut in two."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

import rhino
from rhino.cli.planning import local_program
from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.dist import AllReduceOp, CollectiveOp, ReduceScatterOp, ReshardOp
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import LAYOUT, with_attribute
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.hlo.base import HloOp
from rhino.dialects.signature import Slot
from rhino.frontend.capture import capture
from rhino.ir import types
from rhino.ir.evaluate import compile_ranks, run_module
from rhino.ir.layout_text import parse_layout
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.ir.shards import shard
from rhino.passes.propagate import PropagatePass
from rhino.passes.spmd import SpmdPass
from rhino.passes.step import training_step
from rhino.planner import Plan, plan
from rhino.planner.cluster import Cluster


class Block(nn.Module):
    """Embedding, norm, attention, a feed-forward layer, tied logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(32, 16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x @ self.embed.weight.T


def loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


@pytest.fixture(scope="module")
def step() -> ModuleOp:
    program = rhino.Program(Block(), loss, torch.zeros(8, 5, dtype=torch.long))
    return training_step(capture(program), AdamW(clip_norm=1.0))


@pytest.fixture(scope="module", params=["dp", "zero3", "megatron"])
def planned(step: ModuleOp, request: pytest.FixtureRequest) -> Plan:
    mesh = Mesh.parse("dp=2,tp=2" if request.param == "megatron" else "dp=4")
    return plan(step, Cluster.parse("4"), mesh=mesh, template=request.param)


def body(module: ModuleOp) -> list[Any]:
    return list(signature.main_of(module).body.block.ops)


def test_every_collective_names_its_reason_and_its_place(planned: Plan) -> None:
    """The change of layout, the op that asked for it, and a line of the user's, a parameter or a result."""
    func = signature.main_of(planned.module)
    places = {f" for result {s.name}" for s in signature.results(func)} | {f"{__file__}:", " at clip_norm"}
    for prefix in ("optimizer of", "clip_norm of"):
        places |= {f" at {prefix} {s.name}" for s in signature.arguments(func) if s.role == "parameter"}
    found = [op for op in body(local_program(planned.module)) if isinstance(op, CollectiveOp)]
    assert found
    for op in found:
        reason = op.reason or ""
        parts = re.sub("^combines [0-9]+: ", "", reason).split("; ")
        for part in parts[:-1] if re.fullmatch("and [0-9]+ more", parts[-1]) else parts:
            assert re.match(r"reshard \[.*\].* -> \[.*\].* for (hlo\.\w+|result)", part), reason
            assert any(place in part for place in places), reason


def test_no_layout_is_left_for_run_time(planned: Plan) -> None:
    """Ops of the local program carry none, and running it asks none of the modules that know them."""
    local = local_program(planned.module)
    for op in body(local):
        assert LAYOUT not in op.attributes and LAYOUT not in op.properties, str(op)
        assert not isinstance(op, ReshardOp)
    func, mesh = signature.main_of(local), mesh_of(local)
    rng = np.random.default_rng(0)
    pieces = []
    for slot, arg in zip(signature.arguments(func), func.args, strict=True):
        whole: Any = dict(slot.other)["dist.global_type"]
        array = rng.integers(0, 8, whole.get_shape()).astype(types.numpy_dtype(types.element_of(arg)))
        attr = dict(slot.other)[LAYOUT]
        assert isinstance(attr, LayoutAttr)
        layout = attr.resolve(array.shape, mesh)
        pieces.append([shard(array, layout, mesh, device) for device in mesh.devices()])
    compiled = compile_ranks(func, mesh)
    seen: set[str] = set()

    def watch(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            seen.add(frame.f_code.co_filename.rpartition("rhino/")[2])

    sys.setprofile(watch)
    try:
        compiled(pieces)
    finally:
        sys.setprofile(None)
    assert "ir/evaluate.py" in seen
    assert not seen & {"ir/layout.py", "ir/rule.py", "ir/reshape.py", "ir/reshard.py", "ir/_reshard_chain.py"}


def built(shape: Sequence[int], element: types.Type, make: Any, layout: str) -> tuple[ModuleOp, ModuleOp]:
    """A program of one argument, and its local program with the argument in a layout on two axes of two."""
    func = FuncOp("main", ([types.tensor(shape, element)], []))
    b = Builder(InsertPoint.at_end(func.body.block))
    result: SSAValue = make(b, func.args[0])
    b.insert(ReturnOp(result))
    func.function_type = FunctionType.from_lists([func.args[0].type], [result.type])
    mesh = Mesh.parse("a=2,b=2")
    attr = LayoutAttr.of(parse_layout(layout, shape, mesh), tuple(shape), mesh)
    signature.set_arguments(func, [with_attribute(Slot(name="x", role="input"), LAYOUT, attr)])
    signature.set_results(func, [Slot(name="y")])
    whole = ModuleOp([func])
    local = whole.clone()
    for each in (PropagatePass(mesh="a=2,b=2"), SpmdPass()):
        each.apply(Context(), local)
    return whole, local


VIEWS: dict[str, tuple[tuple[int, ...], str, list[tuple[int, ...]]]] = {
    "a dimension of one is put in and taken out": (
        (8, 4), '[{"a"}, {"b"}]', [(8, 1, 4), (1, 8, 4), (8, 4, 1, 1), (8, 4)],
    ),
    "both axes on the dimension beside it": ((1, 8), '[{}, {"a", "b"}]', [(8,), (8, 1), (1, 1, 8), (1, 8)]),
    "four shards become two by two": ((16, 3), '[{"a", "b"}, {}]', [(2, 8, 3), (2, 2, 12), (2, 2, 4, 3)]),
    "batch and heads are merged": ((4, 6, 5), '[{"a", "b"}, {}, {}]', [(24, 5), (4, 30), (120,), (4, 6, 5)]),
}  # fmt: skip


@pytest.mark.parametrize("case", VIEWS)
def test_views_move_no_data_and_stay_divided(case: str) -> None:
    shape, layout, views = VIEWS[case]

    def make(b: Builder, x: SSAValue) -> SSAValue:
        for view in views:
            x = b.reshape(b.negate(x), view)
        return x

    whole, local = built(shape, types.F64, make, layout)
    count = int(np.prod(shape))
    for op in body(local)[:-1]:
        assert isinstance(op, HloOp), f"{op} moves data"
        assert np.prod(types.shape_of(op.results[0])) == count / 4, f"{op} is not divided by 4"
    given = np.arange(count, dtype=float).reshape(shape)
    (got,) = run_module(local, [given])
    np.testing.assert_array_equal(got, (given * (-1) ** len(views)).reshape(views[-1]))
    assert len(views) == sum(op.name == "hlo.reshape" for op in body(whole))


@pytest.mark.parametrize("devices", [4, 8])
def test_heads_that_do_not_divide_are_not_cut_behind_their_product(devices: int) -> None:
    """240 is divisible by 4 and by 8, but it is 30 heads of 8: pieces of 60 or 30 would end inside a head."""
    mesh = Mesh.parse(f"a={devices}")
    func = FuncOp("main", ([types.tensor((2, 240), types.F64)], [types.tensor((2, 30), types.F64)]))
    b = Builder(InsertPoint.at_end(func.body.block))
    heads = b.reshape(func.args[0], (2, 30, 8))
    b.insert(ReturnOp(b.reduce(b.mul(heads, heads), [2], "sum")))
    attr = LayoutAttr.of(parse_layout('[{}, {"a"}]', (2, 240), mesh), (2, 240), mesh)
    signature.set_arguments(func, [with_attribute(Slot(name="x", role="input"), LAYOUT, attr)])
    signature.set_results(func, [Slot(name="y")])
    whole = ModuleOp([func])
    reshape = next(iter(func.body.block.ops))
    assert isinstance(reshape, HloOp)
    refused = reshape.rule().forward([parse_layout('[{}, {"a"}]', (2, 240), mesh)])
    assert isinstance(refused, str) and "falls between two factors" in refused
    local = whole.clone()
    for each in (PropagatePass(mesh=f"a={devices}"), SpmdPass()):
        each.apply(Context(), local)
    given = np.random.default_rng(0).standard_normal((2, 240))
    (got,) = run_module(local, [given])
    np.testing.assert_allclose(got, np.square(given.reshape(2, 30, 8)).sum(2), rtol=1e-12)


@pytest.mark.parametrize(("element", "summed"), [(types.BF16, types.F32), (types.F32, types.BF16)])
def test_sums_over_ranks_are_in_the_type_of_the_program(element: types.Type, summed: types.Type) -> None:
    """A conversion before a sum stays before it: no narrower type is sent because the operand has it."""

    def make(b: Builder, x: SSAValue) -> SSAValue:
        return b.convert(b.reduce(b.convert(x, summed), [0], "sum"), element)

    _, local = built((8, 4), element, make, '[{"a", "b"}, {}]')
    sums = [op for op in body(local) if isinstance(op, AllReduceOp | ReduceScatterOp)]
    assert [types.element_of(op.results[0]) for op in sums] == [summed]
