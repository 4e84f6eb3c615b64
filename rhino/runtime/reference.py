"""The reference: plain PyTorch on one device, autograd and `torch.optim`, on the same program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from rhino.ir.errors import ProgramError
from rhino.ir.optimizers import SGD, Adam, AdamW, Optimizer
from rhino.runtime.state import materialise
from rhino.runtime.tensors import to_numpy, to_torch

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


def clip(optimizer: Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    """Clip the gradients as the optimizer says, in place, by torch's own function."""
    if optimizer.clip_norm is not None:
        nn.utils.clip_grad_norm_(parameters, optimizer.clip_norm)


class Reference:
    """A training loop in plain PyTorch, one step at a time."""

    def __init__(self, model: nn.Module, loss: Loss, optimizer: Optimizer, *, seed: int = 0) -> None:
        self.model = materialise(model, seed=seed)
        self.loss = loss
        trained = [p for p in self.model.parameters() if p.requires_grad]
        if not trained:
            raise ProgramError("the model has no parameter that needs a gradient")
        self._trained = trained
        self._chosen = optimizer
        self.optimizer = torch_optimizer(optimizer, trained)

    def step(self, batch: Any) -> torch.Tensor:
        """Forward, backward, clipping, update. The loss before the update."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.model, batch)
        loss.backward()
        clip(self._chosen, self._trained)
        self.optimizer.step()
        return loss.detach()


#: What torch.optim calls the states of a Rhino optimizer.
_SLOTS = {"m": "exp_avg", "v": "exp_avg_sq", "momentum": "momentum_buffer"}


def first_step(
    model: nn.Module,
    loss: Loss,
    batch: Any,
    optimizer: Optimizer,
    states: Mapping[str, np.ndarray],
    *,
    mode: AbstractContextManager[Any] | None = None,
) -> dict[tuple[str, str], np.ndarray]:
    """One step of plain PyTorch, by ``(role, name)``. The model is changed.

    Holds the loss, the gradient (before clipping) of every parameter that the loss depends on, the parameters and
    states after the optimizer, and the buffers after the forward pass.

    Args:
        states: the optimizer's states before the step, named ``parameter.slot``; its step count is 0.
        mode: what the forward and backward pass run in.
    """
    with mode or nullcontext():
        value = loss(model, batch)
        value.backward()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    out = {("loss", "loss"): to_numpy(value)}
    out.update(
        {("gradient", name): to_numpy(p.grad).copy() for name, p in trained.items() if p.grad is not None}
    )
    clip(optimizer, trained.values())
    torch_step = torch_optimizer(optimizer, trained.values())
    for name, parameter in trained.items():
        slots = {key: states[f"{name}.{slot}"] for slot, key in _SLOTS.items() if f"{name}.{slot}" in states}
        if slots:
            torch_step.state[parameter] = {
                "step": torch.zeros(()),
                **{key: to_torch(array).to(parameter.dtype) for key, array in slots.items()},
            }
    torch_step.step()
    for name, parameter in trained.items():
        out["parameter", name] = to_numpy(parameter)
        for slot, key in _SLOTS.items():
            if isinstance(state := torch_step.state[parameter].get(key), torch.Tensor):
                out["state", f"{name}.{slot}"] = to_numpy(state)
    out.update({("buffer", name): to_numpy(b) for name, b in model.named_buffers()})
    return out
