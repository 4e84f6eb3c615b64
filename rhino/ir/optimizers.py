"""Optimizers as plain values; torch's names and defaults. The pass `optimizer` turns one into ops.

Every optimizer takes `clip_norm`: the greatest norm that the gradients may have, all of them taken as one vector.
What is longer is scaled down to it before the update, as by `torch.nn.utils.clip_grad_norm_`; None leaves the
gradients as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rhino.ir.errors import UsageError


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with classical or Nesterov momentum."""

    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        _check_rates(self.lr, self.weight_decay)
        _check_clip(self.clip_norm)
        if self.nesterov and self.momentum <= 0:
            raise UsageError("Nesterov momentum needs a momentum above 0", remedy="SGD(momentum=0.9, ...)")


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba, arXiv 1412.6980); weight decay is added to the gradient, as in torch.optim.Adam."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        _check_rates(self.lr, self.weight_decay)
        _check_clip(self.clip_norm)
        _check_betas(self.betas)


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov & Hutter, arXiv 1711.05101), as in torch.optim.AdamW."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        _check_rates(self.lr, self.weight_decay)
        _check_clip(self.clip_norm)
        _check_betas(self.betas)


Optimizer = SGD | Adam | AdamW


def _check_rates(lr: float, weight_decay: float) -> None:
    if lr < 0 or weight_decay < 0:
        raise UsageError(f"lr={lr} and weight_decay={weight_decay} must not be negative")


def _check_betas(betas: tuple[float, float]) -> None:
    if not all(0 <= b < 1 for b in betas):
        raise UsageError(f"betas={betas} must lie in [0, 1)")


def _check_clip(clip_norm: float | None) -> None:
    if clip_norm is not None and not 0 < clip_norm < math.inf:
        raise UsageError(
            f"clip_norm={clip_norm} must be a finite number above 0",
            remedy="clip_norm=None does not clip",
        )
