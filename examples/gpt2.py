"""GPT-2, byte by byte, on the Python standard library's own sources: an ordinary single-device program.

    rhino run examples/gpt2.py --nproc 4 --steps 20

Nothing here knows about devices, ranks or sharding.
"""

from __future__ import annotations

import math
import os
import sysconfig
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rhino


@dataclass(frozen=True)
class Config:
    """The sizes of a GPT-2; the defaults train in well under a second per step on a laptop's CPU."""

    vocabulary: int = 256
    layers: int = 2
    heads: int = 4
    width: int = 128
    context: int = 64
    batch: int = 8


def from_environment() -> Config:
    """The default sizes, with those that the environment sets: GPT2_LAYERS=8 GPT2_WIDTH=256 ..."""
    given = {f.name: os.environ.get(f"GPT2_{f.name.upper()}") for f in fields(Config)}
    return Config(**{name: int(value) for name, value in given.items() if value is not None})


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.c_attn = nn.Linear(config.width, 3 * config.width)
        self.c_proj = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.c_attn(x).split(width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.c_fc = nn.Linear(config.width, 4 * config.width)
        self.c_proj = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Token and position embeddings, pre-norm blocks, and a head that shares the token embedding."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocabulary, config.width)
        self.wpe = nn.Embedding(config.context, config.width)
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width)
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = 1 / math.sqrt(2 * config.layers) if name.endswith("c_proj.weight") else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["tokens"])
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())


@cache
def text() -> Tensor:
    """The sources of the running Python's standard library, as bytes."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return torch.frombuffer(bytearray(b"\n".join(f.read_bytes() for f in files)), dtype=torch.uint8)


def batches(step: int, config: Config = Config()) -> dict[str, Tensor]:
    """The batch of a step: the same on every rank and in every run."""
    data = text()
    starts = torch.randint(
        len(data) - config.context - 1, (config.batch,), generator=torch.Generator().manual_seed(step)
    )
    rows = torch.stack([data[s : s + config.context + 1] for s in starts]).long()
    return {"tokens": rows[:, :-1].contiguous(), "targets": rows[:, 1:].contiguous()}


def program() -> rhino.Program:
    """What `rhino` asks a program file for."""
    config = from_environment()
    torch.manual_seed(0)
    return rhino.Program(
        model=GPT2(config),
        loss=loss,
        batch=batches(0, config),
        optimizer=rhino.AdamW(lr=1e-3),
        batches=lambda step: batches(step, config),
    )
