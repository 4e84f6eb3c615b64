"""Language models at their published sizes, by name, on the meta device: plain PyTorch, and not a byte of weights."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rhino


@dataclass(frozen=True)
class Config:
    """Sizes of a decoder-only transformer.

    Attributes:
        key_heads: heads of keys and values; fewer than `heads` is grouped-query attention.
        hidden: width of the feed-forward layer.
        gated: SwiGLU, RMS norms and rotary positions (Llama); else GELU, layer norms, learned positions (GPT).
        batch: sequences in a step, over all devices.
    """

    vocabulary: int
    layers: int
    width: int
    heads: int
    key_heads: int
    hidden: int
    context: int
    batch: int
    gated: bool = True


#: Llama 3: The Llama 3 Herd of Models (arXiv 2407.21783), table 3; GPT-3: Brown et al. (arXiv 2005.14165), table 2.1.
MODELS = {
    "llama3-8b": Config(128256, 32, 4096, 32, 8, 14336, 8192, 16),
    "llama3-70b": Config(128256, 80, 8192, 64, 8, 28672, 8192, 16),
    "llama3-405b": Config(128256, 126, 16384, 128, 8, 53248, 8192, 16),
    "gpt3-175b": Config(50304, 96, 12288, 96, 96, 49152, 2048, 64, gated=False),
}


class RMSNorm(nn.Module):
    """Root-mean-square norm in f32, as in Llama."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (wide * scale).type_as(x) * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: the two halves of every head turn by the position's angles."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.key_heads, self.size = config.heads, config.key_heads, config.width // config.heads
        self.rotary = config.gated
        bias = not config.gated
        self.wq = nn.Linear(config.width, self.heads * self.size, bias=bias)
        self.wk = nn.Linear(config.width, self.key_heads * self.size, bias=bias)
        self.wv = nn.Linear(config.width, self.key_heads * self.size, bias=bias)
        self.wo = nn.Linear(self.heads * self.size, config.width, bias=bias)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = self.wq(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.wk(x).view(batch, length, self.key_heads, self.size).transpose(1, 2)
        v = self.wv(x).view(batch, length, self.key_heads, self.size).transpose(1, 2)
        if self.rotary:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = self._repeated(k), self._repeated(v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(batch, length, self.heads * self.size))

    def _repeated(self, x: Tensor) -> Tensor:
        if self.heads == self.key_heads:
            return x
        batch, heads, length, size = x.shape
        group = self.heads // self.key_heads
        return (
            x[:, :, None].expand(batch, heads, group, length, size).reshape(batch, self.heads, length, size)
        )


class FeedForward(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        bias = not config.gated
        self.w1 = nn.Linear(config.width, config.hidden, bias=bias)
        self.w2 = nn.Linear(config.hidden, config.width, bias=bias)
        self.w3 = nn.Linear(config.width, config.hidden, bias=False) if config.gated else None

    def forward(self, x: Tensor) -> Tensor:
        if self.w3 is None:
            return self.w2(F.gelu(self.w1(x), approximate="tanh"))
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


def norm(config: Config) -> nn.Module:
    return RMSNorm(config.width) if config.gated else nn.LayerNorm(config.width)


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm, self.attention = norm(config), Attention(config)
        self.ffn_norm, self.feed_forward = norm(config), FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """Embedding, pre-norm blocks, norm and an output projection of its own."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocabulary, config.width)
        self.positions = None if config.gated else nn.Embedding(config.context, config.width)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = norm(config)
        self.output = nn.Linear(config.width, config.vocabulary, bias=False)
        size = config.width // config.heads
        self.register_buffer("cos", torch.ones(config.context, size), persistent=False)
        self.register_buffer("sin", torch.ones(config.context, size), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embeddings(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.output(self.norm(x))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Mean cross entropy of the next token."""
    logits = model(batch["tokens"])
    return F.cross_entropy(logits.flatten(0, 1).float(), batch["targets"].flatten())


def configuration(name: str, layers: int | None = None, batch: int | None = None) -> Config:
    """The sizes of a model by name, with another depth or batch if given. Raises KeyError for an unknown name."""
    config = MODELS[name]
    return replace(config, layers=layers or config.layers, batch=batch or config.batch)


def program(config: Config) -> rhino.Program:
    """One AdamW step in bf16 on the meta device."""
    with torch.device("meta"):
        model = Transformer(config).to(torch.bfloat16)
        tokens = torch.zeros(config.batch, config.context, dtype=torch.long)
    return rhino.Program(
        model=model,
        loss=loss,
        batch={"tokens": tokens, "targets": tokens},
        optimizer=rhino.AdamW(lr=3e-4),
    )
