"""Correct distributed programs to plant faults in: small models under many plans, and random programs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.check.choices import Seeded
from rhino.check.names import name_values
from rhino.check.random_layouts import random_placement
from rhino.check.random_ops import LIMIT, MAX_ELEMENTS, Maker, Program
from rhino.check.random_programs import finish
from rhino.check.reference import Reference
from rhino.check.trace import Finding, first_difference
from rhino.cli.batches import random_arrays
from rhino.cli.source import step_of
from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import LAYOUT, with_attribute
from rhino.frontend import program as frontend
from rhino.frontend.capture import capture
from rhino.ir import types
from rhino.ir.layout_text import LayoutSpec
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import SGD, AdamW
from rhino.passes.fuse_collectives import fuse_collectives
from rhino.passes.pad import PadPass
from rhino.passes.place import place
from rhino.passes.propagate import PropagatePass
from rhino.passes.spmd import spmd
from rhino.planner import plan
from rhino.planner.cluster import Cluster

MESHES = ("a=2,b=2", "a=4", "a=2,b=2,c=2", "a=3,b=2", "a=3")
#: Greatest magnitude of the integers.
SIZE = 900
#: One draw of integers may hide a fault (the greatest of many numbers is often the same).
DRAWS = 2


@dataclass(frozen=True)
class Base:
    """A correct local program and what it must compute, for several draws of its arguments."""

    name: str
    mesh: Mesh
    local: ModuleOp
    references: tuple[Reference, ...]
    limit: float

    def check(self, local: ModuleOp) -> Finding | None:
        """What the checker says of a program."""
        for reference in self.references:
            if (finding := first_difference(local, reference, self.limit)) is not None:
                return finding
        return None


def base_of(
    name: str, placed: ModuleOp, mesh: Mesh, draws: Sequence[Sequence[np.ndarray]], exact: bool, fused: bool
) -> Base:
    names = name_values(placed)
    references = tuple(Reference.of(placed, names, arrays, widen=not exact) for arrays in draws)
    local = placed.clone()
    spmd(local)
    if fused:
        fuse_collectives(local)
    base = Base(name, mesh, local, references, 0.0 if exact else 1e-10)
    finding = base.check(local)
    assert finding is None, f"{name}: {finding.text()}"
    return base


# Models.


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.gelu(self.first(x)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(q @ k.transpose(-1, -2) / 2, -1)
        return x + self.out((scores @ v).transpose(1, 2).flatten(2))


class Experts(nn.Module):
    """Every token goes through its two best of four experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.up = nn.Parameter(torch.randn(4, 8, 6) / 3)
        self.down = nn.Parameter(torch.randn(4, 6, 8) / 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.softmax(self.gate(x), -1)
        best = scores.topk(2, -1)
        share = torch.zeros_like(scores).scatter(-1, best.indices, best.values)
        hidden = torch.relu(torch.einsum("bd,edh->ebh", x, self.up))
        return torch.einsum("ebh,ehd,be->bd", hidden, self.down, share)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


class Tied(nn.Module):
    """A language model whose embedding is its last layer, too, with dropout."""

    def __init__(self, words: int = 16, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, 8)
        self.linear = nn.Linear(8, 8)
        self.dropout = dropout

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = F.dropout(self.embed(tokens), self.dropout)
        x = x + F.dropout(torch.tanh(self.linear(x)), self.dropout)
        return x @ self.embed.weight.T


def squares(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def next_word(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def words(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    data = torch.randint(0, count, (4, 5), generator=torch.Generator().manual_seed(seed))
    targets = data[:, 1:].clone()
    targets[0, 1] = -100  # one that is ignored: a mean over ranks that all hold equally many hides much
    return data[:, :-1].contiguous(), targets


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Model:
    """A model and one way to distribute it: a template of the planner, or pinned layouts that spread."""

    make: Callable[[], nn.Module]
    loss: Callable
    batch: object
    mesh: str
    template: str | None = None
    pins: Mapping[str, str] | None = None
    pad: int | None = None
    optimizer: object = SGD(lr=0.1, momentum=0.9)


#: Words of a vocabulary that the mesh does not divide, and into how many pieces it is to be cut.
PADDED = (
    (13, "tp=4", 4),
    (7, "dp=2,tp=2", 2),
    (5, "tp=2", 2),
    (11, "tp=3", 3),
    (10, "tp=4", 4),
    (6, "tp=4", 4),
)


def padded(count: int, mesh: str, pieces: int) -> Model:
    split = {"embed.weight": '[{"tp"}, {}]'}
    return Model(lambda: Tied(count), next_word, words(count), mesh, pins=split, pad=pieces)


MODELS: dict[str, Model] = {
    "mlp, dp": Model(Mlp, squares, numbers(8, 8), "dp=4", "dp"),
    "mlp, megatron": Model(Mlp, squares, numbers(8, 8), "dp=2,tp=2", "megatron"),
    "mlp, zero3": Model(Mlp, squares, numbers(8, 8), "dp=2,fs=2", "zero3", optimizer=AdamW(lr=1e-2)),
    "attention": Model(Attention, squares, numbers(4, 4, 8), "dp=2,tp=2", "megatron"),
    "experts": Model(
        Experts,
        squares,
        numbers(8, 8),
        "dp=2,ep=2",
        pins={"up": '[{"ep"}, {}, {}]', "down": '[{"ep"}, {}, {}]', "batch": '[{"dp", "ep"}, {}]'},
    ),
    "convolutions": Model(
        Images, squares, numbers(4, 3, 8, 4), "dp=2,sp=2", pins={"batch": '[{"dp"}, {}, {"sp"}, {}]'}
    ),
    "vocabulary": Model(
        Tied,
        next_word,
        words(16),
        "dp=2,tp=2",
        pins={"embed.weight": '[{"tp"}, {}]', "batch.0": '[{"dp"}, {}]', "batch.1": '[{"dp"}, {}]'},
    ),
    "dropout": Model(lambda: Tied(16, 0.4), next_word, words(16), "dp=2,tp=2", "dp"),
    "dropout, megatron": Model(lambda: Tied(16, 0.25), next_word, words(16), "dp=2,tp=2", "megatron"),
    **{f"padded {n}": padded(n, mesh, pieces) for n, mesh, pieces in PADDED},
    "padded sequence": Model(
        Attention, squares, numbers(4, 5, 8), "dp=2,sp=2", pins={"batch": '[{"dp"}, {"sp"}, {}]'}, pad=2
    ),
}


@cache
def model_base(name: str) -> Base:
    """One of MODELS, ready."""
    model = MODELS[name]
    torch.manual_seed(0)
    program = frontend.Program(model.make(), model.loss, model.batch)
    step = step_of(capture(program), model.optimizer)
    known = _arrays(step, program)
    mesh = Mesh.parse(model.mesh)
    if model.pad is not None:
        PadPass(multiple=model.pad).apply(Context(), step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        placed = _placed(step, model, mesh)
    func = signature.main_of(placed)
    arrays = []
    for slot, arg in zip(signature.arguments(func), func.args, strict=True):
        array, shape = known[slot.name], types.shape_of(arg)
        if array.shape != shape:
            array = np.pad(array, [(0, n - e) for n, e in zip(shape, array.shape, strict=True)])
        arrays.append(array)
    return base_of(name, placed, mesh, [arrays], exact=False, fused=True)


def _placed(step: ModuleOp, model: Model, mesh: Mesh) -> ModuleOp:
    if model.template is not None:
        return plan(step, Cluster.parse(str(mesh.size)), mesh=mesh, template=model.template).module
    func = signature.main_of(step)
    slots = signature.arguments(func)
    pins = dict(model.pins or {})
    for i, slot in enumerate(slots):
        text = pins.pop(slot.name, None) or pins.get(slot.of or "")
        if text is not None:
            slots[i] = with_attribute(slot, LAYOUT, LayoutAttr(LayoutSpec.parse(text)))
    signature.set_arguments(func, slots)
    PropagatePass(str(mesh)).apply(Context(), step)
    return step


def _arrays(step: ModuleOp, program: frontend.Program) -> dict[str, np.ndarray]:
    known = random_arrays(step, ("parameter", "buffer", "input", "state"), 0)
    for name, tensor in frontend.named_inputs(program.batch):
        known[name] = tensor.numpy()
    for name, tensor in [*program.model.named_parameters(), *program.model.named_buffers()]:
        known[name] = tensor.detach().numpy()
    return known


# Random programs.


class Generic(Maker):
    """Programs in which no element is like another, so that no fault can hide behind equal numbers."""

    def argument(
        self, shape: Sequence[int], element: Attribute, low: int = -SIZE, high: int = SIZE
    ) -> SSAValue:
        return super().argument(shape, element, low, high)

    def new(self, shape: Sequence[int]) -> SSAValue:
        return self.argument(shape, types.F64)

    def arithmetic(self) -> None:
        x = self.value("f64")
        y = self.new(types.shape_of(x))
        make, bound = self.pick(
            [(self.builder.add, self.bounds[x] + SIZE), (self.builder.mul, self.bounds[x] * SIZE)]
        )
        if bound < LIMIT:
            self.know(make(x, y), bound)

    def joined(self) -> None:
        x = self.value("f64", rank=1)
        shape = types.shape_of(x)
        dim = self.integer(0, len(shape) - 1)
        if math.prod(shape) <= MAX_ELEMENTS:
            self.know(self.builder.concatenate([x, self.new(shape)], dim), max(SIZE, self.bounds[x]))

    def top(self) -> None:
        x = self.value("f64", rank=2)
        dim = self.integer(0, len(types.shape_of(x)) - 1)
        self.know(self.builder.reduce(x, [dim], "max"), self.bounds[x])

    def drawn(self) -> None:
        x = self.value("f64", rank=1)
        b, shape = self.builder, types.shape_of(x)
        seed = b.full((), types.I64, self.integer(0, 3))
        drawn = b.random_uniform(seed, b.linear_index(shape), types.F64)
        for _ in range(6):  # times 64, without constants
            drawn = b.add(drawn, drawn)
        self.know(b.add(x, b.floor(drawn)), self.bounds[x] + 64)


GENERIC = (
    "arithmetic", "joined", "top", "reduce_sum", "reduce_sum", "dot", "dot", "reshape", "transpose", "reverse",
    "drawn",
)  # fmt: skip


def generic_program(choices: Seeded) -> Program:
    block = Block()
    maker = Generic(choices, block, Builder(InsertPoint.at_end(block)))
    maker.new(choices.pick([(8, 4), (4, 12), (6, 8), (8, 3, 4), (12, 6)]))
    for _ in range(8):
        getattr(maker, choices.pick(GENERIC))()
    unused = [v for v in maker.bounds if v.first_use is None]
    return finish(maker, unused[-3:])


@cache
def random_base(seed: int) -> Base:
    """A random program under a random placement, exact on integers."""
    choices = Seeded(f"base {seed}")
    mesh = Mesh.parse(choices.pick(MESHES))
    program = generic_program(choices)
    chosen = random_placement(choices, program, mesh)
    module = program.module
    ops = [op for op in signature.main_of(module).body.block.ops if op.results]
    place(module, mesh, chosen.of(ops), chosen.arguments, chosen.results)
    draws = [program.data(draw) for draw in range(DRAWS)]
    return base_of(f"random program {seed}", module, mesh, draws, exact=True, fused=choices.flip())
