"""Programs for the tests of the checker, as text of Python files and as batches of plain modules."""

from __future__ import annotations

from pathlib import Path

_HEAD = """
import torch
import torch.nn.functional as F
from torch import nn

import rhino

"""

#: Dropout in all the places where models have it: embeddings, attention, whole channels, noise.
RANDOM = (
    _HEAD
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)
        self.conv = nn.Conv1d(8, 8, 1)

    def forward(self, tokens):
        x = F.dropout(self.embed(tokens), 0.1)
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, is_causal=True)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), 0.25)
        x = x + F.dropout1d(self.conv(x.transpose(1, 2)), 0.5).transpose(1, 2)
        x = x * torch.bernoulli(torch.sigmoid(x.detach())) + 0.1 * torch.randn_like(x) * torch.rand(x.shape)
        return x @ self.embed.weight.T


def loss(model, batch):
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def batches(step):
    data = torch.randint(0, 16, (4, 5), generator=torch.Generator().manual_seed(step))
    return data[:, :-1].contiguous(), data[:, 1:].contiguous()


def program():
    return rhino.Program(Model(), loss, batches(0), rhino.AdamW(lr=1e-2), batches)
"""
)

#: Everything a dyadic fraction: every order of additions gives the same bits.
EXACT = (
    _HEAD
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        for name, shape in {"first": (8, 16), "second": (16, 8)}.items():
            weight = torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(len(name)))
            setattr(self, name, nn.Parameter(weight.double()))

    def forward(self, x):
        x = F.relu(F.dropout(x @ self.first, 0.5))
        return F.dropout(x @ self.second, 0.75)


def batches(step):
    return torch.randint(-2, 3, (8, 8), generator=torch.Generator().manual_seed(step)).double()


def program():
    return rhino.Program(Model(), lambda model, x: model(x).square().sum(), batches(0), rhino.SGD(lr=2.0**-12), batches)
"""
)

#: PyTorch draws twice where the program draws once: the second forward pass of a checkpoint.
RECOMPUTED = (
    _HEAD
    + """
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return checkpoint(lambda y: F.dropout(self.linear(y), 0.5), x, use_reentrant=False)


def program():
    return Model(), lambda model, x: model(x).sum(), torch.ones(4, 8)
"""
)


def write(folder: Path, name: str, text: str) -> str:
    """The path of a file with this text."""
    path = folder / name
    path.write_text(text)
    return str(path)
