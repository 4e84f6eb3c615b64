"""Small programs for the tests of the command line, written to files."""

from __future__ import annotations

from pathlib import Path

TINY = """
import torch
import torch.nn.functional as F
from torch import nn

import rhino


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.second(F.gelu(self.first(self.norm(x))))
        return x @ self.embed.weight.T


def loss(model, batch):
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def batches(step):
    data = torch.randint(0, 32, (BATCH, 9), generator=torch.Generator().manual_seed(step))
    return data[:, :-1].contiguous(), data[:, 1:].contiguous()


def program():
    return rhino.Program(Model(), loss, batches(0), rhino.AdamW(lr=1e-2), batches)
"""

DYNAMIC = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8))

    def forward(self, x):
        return (x * self.w)[x[:, 0] > 0]


def program():
    return Model(), lambda model, x: model(x).sum(), torch.randn(4, 8)
"""

UNSUPPORTED = """
import torch
from torch import nn


class Inner(nn.Module):
    def forward(self, x):
        return torch.linalg.ldl_factor(x @ x.mT).LD


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 8))
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x @ self.w)


def program():
    return Model(), lambda model, x: model(x).sum(), torch.randn(4, 8)
"""

#: A forward pass in MLIR: loss = sum((x w)^2).
FORWARD = """
func.func @main(
    %w: tensor<8x4xf32> {rhino.name = "w", rhino.role = "parameter"},
    %x: tensor<8x8xf32> {rhino.name = "x", rhino.role = "input"}
) -> (tensor<f32> {rhino.name = "loss", rhino.role = "loss"}) {
  %h = hlo.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<8x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %s = hlo.mul %h, %h : tensor<8x4xf32>
  %l = hlo.reduce "sum" %s dims [0, 1] : tensor<8x4xf32> -> tensor<f32>
  func.return %l : tensor<f32>
}
"""


def tiny(folder: Path, batch: int = 8) -> str:
    """A small language model with tied embeddings; the path of its file."""
    return write(folder, "tiny.py", TINY.replace("BATCH", str(batch)))


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)
