"""The reference: plain PyTorch on one device, autograd and `torch.optim`, on the same program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from rhino.ir.errors import ProgramError
from rhino.ir.optimizers import SGD, Adam, AdamW, Optimizer
from rhino.runtime.state import materialise

Loss = Callable[[Any, Any], torch.Tensor]


def torch_optimizer(optimizer: Optimizer, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The `torch.optim` optimizer that a Rhino optimizer stands for."""
    if isinstance(optimizer, SGD):
        return torch.optim.SGD(
            parameters,
            lr=optimizer.lr,
            momentum=optimizer.momentum,
            weight_decay=optimizer.weight_decay,
            nesterov=optimizer.nesterov,
        )
    cls = torch.optim.AdamW if isinstance(optimizer, AdamW) else torch.optim.Adam
    assert isinstance(optimizer, Adam | AdamW)
    return cls(
        parameters,
        lr=optimizer.lr,
        betas=optimizer.betas,
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
    )


class Reference:
    """A training loop in plain PyTorch, one step at a time."""

    def __init__(self, model: nn.Module, loss: Loss, optimizer: Optimizer, *, seed: int = 0) -> None:
        self.model = materialise(model, seed=seed)
        self.loss = loss
        trained = [p for p in self.model.parameters() if p.requires_grad]
        if not trained:
            raise ProgramError("the model has no parameter that needs a gradient")
        self.optimizer = torch_optimizer(optimizer, trained)

    def step(self, batch: Any) -> torch.Tensor:
        """Forward, backward, update. The loss before the update."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.model, batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
