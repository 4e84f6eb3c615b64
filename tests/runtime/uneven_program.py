"""A tiny GPT-2 of which little divides: a vocabulary of 257 in a tied embedding, 10 heads, batches of 6."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import rhino

VOCABULARY, HEADS, WIDTH, CONTEXT, BATCH = 257, 10, 20, 6, 6


class Model(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.wte, self.norm = nn.Embedding(VOCABULARY, WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        b, t = tokens.shape
        x = self.wte(tokens)
        h = self.norm(x)
        q, k, v = (f(h).view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.proj(y.transpose(1, 2).reshape(b, t, WIDTH)))
        return x @ self.wte.weight.T


def make_model(dropout: float = 0.0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Model(dropout)


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    data = torch.randint(0, VOCABULARY, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(step))
    return data[:, :-1].contiguous(), data[:, 1:].contiguous()


def optimizer() -> rhino.SGD:
    """With a state that is padded as its parameter is. (Adam would make steps of the noise of vanishing gradients.)"""
    return rhino.SGD(lr=0.1, momentum=0.9)
