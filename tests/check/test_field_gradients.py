"""Layouts under which other systems gave wrong gradients: every parameter's update against PyTorch's.

Each case is a model, a mesh and pins that force the layout in question; `check_source` compares what the ranks compute
with one device, and that with PyTorch, after a step of SGD, so that every new parameter shows its gradient.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from check_programs import write

from rhino.cli.check import check_source
from rhino.cli.planning import Request
from rhino.cli.source import load

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn

import rhino


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


class Model(nn.Module):
"""

TAIL = """

def program():
    torch.manual_seed(0)
    return rhino.Program(Model(), lambda model, x: model(x).square().mean(), BATCH, rhino.SGD(lr=0.5))
"""

#: The gate sees every token, the experts are divided: its gradient comes through all of them.
ROUTER = """
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 4)
        self.up = nn.Parameter(numbers(4, 4, 6))
        self.down = nn.Parameter(numbers(4, 6, 4))

    def forward(self, x):
        scores = torch.softmax(self.gate(x), -1)
        best = scores.topk(2, -1)
        share = torch.zeros_like(scores).scatter(-1, best.indices, best.values)
        hidden = torch.relu(torch.einsum("bd,edh->ebh", x, self.up))
        return torch.einsum("ebh,ehd,be->bd", hidden, self.down, share)
BATCH = numbers(8, 4)
"""

#: A norm whose gain and bias every token uses, and attention, with the tokens divided.
SEQUENCE = """
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.qkv = nn.Linear(4, 12)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
BATCH = numbers(2, 4, 4)
"""

#: Convolutions whose images are divided along a side: windows reach over the cut, forwards and backwards.
IMAGES = """
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, padding=1)
        self.second = nn.Conv2d(3, 2, 3, stride=2, padding=1)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))
BATCH = numbers(2, 2, 8, 4)
"""

#: In-place ops on a sum that is still in parts on the ranks, through a view of it, and on a copy of the input.
IN_PLACE = """
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8, bias=False)
        self.second = nn.Linear(8, 4, bias=False)

    def forward(self, x):
        y = self.second(self.first(x))
        y.view(-1)[::2].add_(1.0)
        y.mul_(2.0).add_(x).relu_()
        twin = x.clone()
        twin[1:].add_(y[:-1])
        return y + twin
BATCH = numbers(4, 4)
"""

#: A linear layer on three dimensions, the last one divided.
LAST_DIMENSION = """
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 6)

    def forward(self, x):
        return self.linear(x).unflatten(-1, (2, 3)).flatten(1)
BATCH = numbers(2, 3, 8)
"""

#: A norm over all parameters at once, which lie on the ranks in different ways.
GLOBAL_NORM = """
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 4)

    def forward(self, x):
        norm = torch.sqrt(sum(p.square().sum() for p in self.parameters()))
        return self.second(torch.relu(self.first(x))) * torch.clamp(1.0 / norm, max=1.0)
BATCH = numbers(4, 4)
"""

#: Fewer tokens than ranks, a parameter that nothing depends on, an output that is an input.
LITTLE = """
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.unused = nn.Parameter(numbers(5))

    def forward(self, x):
        return self.linear(x[:, :0].sum(1, keepdim=True) + x)
BATCH = numbers(2, 3)
"""

#: One weight at both ends of the model, its rows divided at one end's wish and its columns at the other's; a buffer
#: that is an alias of nothing else and changes while it is read, and an input that comes out as it is.
TIED = """
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.middle = nn.Linear(4, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, tokens):
        x = self.embed(tokens)
        before = self.seen.clone()
        self.seen.add_(x.detach().mean((0, 1)))
        y = self.head(torch.tanh(self.middle(x + before - self.seen)))
        return torch.cat([y, F.one_hot(tokens, 8).to(y.dtype)])
BATCH = torch.arange(12).reshape(4, 3) % 8
"""

CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "router": (ROUTER, "tp=2", ('up=[{"tp"}, {}, {}]', 'down=[{"tp"}, {}, {}]', "batch=replicated")),
    "router, batch and experts": (
        ROUTER,
        "dp=2,ep=2",
        ('up=[{"ep"}, {}, {}]', 'down=[{"ep"}, {}, {}]', 'batch=[{"dp", "ep"}, {}]'),
    ),
    "router, experts and their widths": (
        ROUTER,
        "ep=2,tp=2",
        ('up=[{"ep"}, {}, {"tp"}]', 'down=[{"ep"}, {"tp"}, {}]', 'batch=[{"ep"}, {}]'),
    ),
    "router, three axes": (
        ROUTER,
        "dp=2,ep=2,tp=2",
        ('up=[{"ep"}, {"dp"}, {"tp"}]', 'down=[{"ep"}, {"tp"}, {"dp"}]', 'batch=[{"dp", "ep"}, {}]'),
    ),
    "tied": (TIED, "dp=2,tp=2", ('embed.weight=[{"tp"}, {"dp"}]', 'batch=[{"dp"}, {}]')),
    "sequence": (SEQUENCE, "dp=2,sp=2", ('batch=[{"dp"}, {"sp"}, {}]',)),
    "images": (IMAGES, "sp=4", ('batch=[{}, {}, {"sp"}, {}]',)),
    "in place": (IN_PLACE, "tp=2", ('first.weight=[{"tp"}, {}]', 'second.weight=[{}, {"tp"}]')),
    "last dimension": (LAST_DIMENSION, "tp=4", ('batch=[{}, {}, {"tp"}]', 'linear.weight=[{}, {"tp"}]')),
    "global norm": (
        GLOBAL_NORM,
        "dp=2,tp=2",
        ('first.weight=[{"tp"}, {"dp"}]', 'second.weight=[{}, {"tp"}]', "first.bias=replicated"),
    ),
    "little": (LITTLE, "dp=4", ()),
}


@pytest.mark.parametrize("case", CASES)
def test_every_gradient(tmp_path: Path, case: str) -> None:
    text, mesh, pins = CASES[case]
    source = load(write(tmp_path, "model.py", HEAD + text + TAIL))
    report = check_source(source, Request(mesh=mesh, pins=pins, level="O1"))
    assert report.equal, report.failures
    assert report.compared["distributed"] >= 3 and report.compared["pytorch"] >= 3
    assert report.collectives > 0 or case == "little"
