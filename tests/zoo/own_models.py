"""Families beside those of `models`: convolutional ones with skips, recommenders, recurrent and mixture-of-expert ones.

Float64, extents that meshes of four devices divide, batch statistics in training mode where there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import transformers
from models import BATCH, LABELS, SEQUENCE, VOCABULARY, _images, _labels, _next_token_loss, _program, _tokens
from torch import Tensor, nn
from torch.nn import functional as F

from rhino.frontend.program import Program
from rhino.ir.optimizers import Optimizer

Batch = Mapping[str, Tensor]


def _classification(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch["pixel_values"]), batch["labels"])


def _normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class _Twice(nn.Sequential):
    """Two convolutions with group normalization."""

    def __init__(self, channels: int, out: int) -> None:
        layers: list[nn.Module] = []
        for c in (channels, out):
            layers += [nn.Conv2d(c, out, 3, padding=1), nn.GroupNorm(2, out), nn.SiLU()]
        super().__init__(*layers)


class UNet(nn.Module):
    """Two levels down and up; every level of the way up reads the one of the way down beside it."""

    def __init__(self, channels: int = 3, width: int = 8, classes: int = 4) -> None:
        super().__init__()
        self.down = nn.ModuleList([_Twice(channels, width), _Twice(width, 2 * width)])
        self.bottom = _Twice(2 * width, 4 * width)
        self.rise = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)]
        )
        self.up = nn.ModuleList([_Twice(4 * width, 2 * width), _Twice(2 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for rise, block in zip(self.rise, self.up, strict=True):
            x = block(torch.cat([rise(x), skips.pop()], dim=1))
        return self.head(x)


def unet(optimizer: Optimizer | None = None) -> Program:
    pixels = torch.arange(BATCH * 16 * 16).reshape(BATCH, 16, 16) % 4
    batch = {"pixel_values": _images(16)["pixel_values"], "labels": pixels}
    return _program(UNet, batch, optimizer, _classification)


def _vgg(widths: tuple[int | str, ...], classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width in widths:
        if isinstance(width, str):
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
        channels = width
    head = [nn.Flatten(), nn.Linear(channels, 32), nn.ReLU(inplace=True), nn.Linear(32, classes)]
    return nn.Sequential(*layers, *head)


def vgg19(optimizer: Optimizer | None = None) -> Program:
    """Sixteen convolutions in five blocks, channels an eighth and a sixteenth of the original's."""
    blocks = ((4, 2), (8, 2), (16, 4), (16, 4), (16, 4))
    widths = tuple(w for width, count in blocks for w in (*[width] * count, "pool"))
    return _program(lambda: _vgg(widths, LABELS), _images(32), optimizer, _classification)


class _WideBlock(nn.Module):
    """Normalization first; the shortcut is a 1 x 1 convolution where shapes change."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(out)
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        same = channels == out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(x))
        skip = x if isinstance(self.shortcut, nn.Identity) else self.shortcut(y)
        return skip + self.conv2(F.relu(self.norm2(self.conv1(y))))


def wide_resnet(optimizer: Optimizer | None = None) -> Program:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, 1, 1, bias=False),
            _WideBlock(4, 16, 1),
            _WideBlock(16, 32, 2),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, LABELS),
        )

    return _program(make, _images(16), optimizer, _classification)


class Dlrm(nn.Module):
    """Naumov et al. (arXiv 1906.00091): tables of embeddings, pairwise products of all features, two MLPs."""

    def __init__(self, rows: int = 64, tables: int = 4, width: int = 8, dense: int = 4) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(dense, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("upper", torch.triu_indices(tables + 1, tables + 1, 1), persistent=False)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        found = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        features = torch.stack([bottom, *found], dim=1)
        products = features @ features.transpose(1, 2)
        return self.top(torch.cat([bottom, products[:, self.upper[0], self.upper[1]]], dim=1))[:, 0]


def dlrm(optimizer: Optimizer | None = None) -> Program:
    g = torch.Generator().manual_seed(1)
    batch = {
        "dense": _normal(BATCH, 4),
        "sparse": torch.randint(0, 64, (BATCH, 4, 3), generator=g),
        "clicks": torch.randint(0, 2, (BATCH,), generator=g).double(),
    }

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return F.binary_cross_entropy_with_logits(model(batch["dense"], batch["sparse"]), batch["clicks"])

    return _program(Dlrm, batch, optimizer, loss)


class TwoTowers(nn.Module):
    """A tower per modality, normalized products of all pairs, a learned temperature (Radford et al. 2021)."""

    def __init__(self, query: int = 16, item: int = 12, width: int = 16) -> None:
        super().__init__()
        self.query = nn.Sequential(nn.Linear(query, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, width))
        self.item = nn.Sequential(nn.Linear(item, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, width))
        self.temperature = nn.Parameter(torch.zeros(()))

    def forward(self, query: Tensor, item: Tensor) -> Tensor:
        q, i = F.normalize(self.query(query), dim=-1), F.normalize(self.item(item), dim=-1)
        return (q @ i.t()) * self.temperature.exp()


def two_tower(optimizer: Optimizer | None = None) -> Program:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        scores = model(batch["query"], batch["item"])
        right = torch.arange(scores.shape[0])
        return (F.cross_entropy(scores, right) + F.cross_entropy(scores.t(), right)) / 2

    batch = {"query": _normal(BATCH, 16), "item": _normal(BATCH, 12, seed=2)}
    return _program(TwoTowers, batch, optimizer, loss)


class LstmLm(nn.Module):
    """Two layers; the output weights are the embedding's."""

    def __init__(self, vocabulary: int, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0])


def lstm_lm(optimizer: Optimizer | None = None) -> Program:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        logits = model(batch["tokens"])[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), batch["tokens"][:, 1:].flatten())

    return _program(lambda: LstmLm(VOCABULARY), {"tokens": _tokens(BATCH, 6)}, optimizer, loss)


_EXPERTS = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": SEQUENCE,
    "num_experts_per_tok": 2,
    "experts_implementation": "batched_mm",  # PyTorch's grouped matmul takes no doubles
    "use_cache": False,
    "output_router_logits": False,
}


def _mixture(make: Callable[[], nn.Module], optimizer: Optimizer | None) -> Program:
    tokens = _tokens(BATCH, SEQUENCE)
    return _program(make, {"input_ids": tokens, "labels": _labels(tokens)}, optimizer, _next_token_loss)


def mixtral(optimizer: Optimizer | None = None) -> Program:
    config = transformers.MixtralConfig(**_EXPERTS, intermediate_size=32, num_local_experts=4)
    return _mixture(lambda: transformers.MixtralForCausalLM(config), optimizer)


def qwen_moe(optimizer: Optimizer | None = None) -> Program:
    config = transformers.Qwen3MoeConfig(
        **_EXPERTS, intermediate_size=32, moe_intermediate_size=16, num_experts=4, head_dim=8
    )
    return _mixture(lambda: transformers.Qwen3MoeForCausalLM(config), optimizer)


OWN: dict[str, Callable[..., Program]] = {
    "unet": unet,
    "vgg19": vgg19,
    "wide_resnet": wide_resnet,
    "dlrm": dlrm,
    "two_tower": two_tower,
    "lstm_lm": lstm_lm,
    "mixtral": mixtral,
    "qwen_moe": qwen_moe,
}
