"""Initial values of parameters and buffers, one tensor at a time, as the single-device model has them.

A model with real weights hands out its own. A model on the meta device has shapes only: its modules are made
real one after another, initialised by their own `reset_parameters` (or, as Hugging Face models do it, by the
root's `_init_weights`) under a seed that depends on the module's path alone, and dropped again. So no rank
ever holds more than one module of such a model, and all ranks, and a run on one device, see the same values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import nn

from rhino.ir.errors import ProgramError
from rhino.runtime.controller import Provider


def named_values(model: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers under every name they have (tied ones under several)."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def values_of(model: nn.Module, *, seed: int = 0, consume: bool = False) -> Provider:
    """A function from names to whole tensors. With `consume` each is freed when the next one is asked for.

    It raises ProgramError for a name that the model lacks, and for a tensor on the meta device that its
    module cannot initialise.
    """
    known = named_values(model)
    fresh = _Initialiser(model, seed)
    last: list[torch.Tensor] = []

    def provide(name: str) -> torch.Tensor:
        for tensor in last:
            tensor.data = tensor.new_empty(0)
        last.clear()
        if name not in known:
            raise ProgramError(f"the model has no parameter or buffer '{name}'")
        tensor = known[name]
        if tensor.device.type == "meta":
            return fresh.value(name)
        if consume:
            last.append(tensor)
        return tensor.detach()

    return provide


class _Initialiser:
    """Makes modules of a meta model real, one at a time."""

    def __init__(self, model: nn.Module, seed: int) -> None:
        self._model = model
        self._seed = seed
        self._path: str | None = None
        self._values: dict[str, torch.Tensor] = {}

    def value(self, name: str) -> torch.Tensor:
        path, _, leaf = name.rpartition(".")
        if path != self._path:
            self._values = self._initialise(path)
            self._path = path
        value = self._values[leaf]
        if _untouched(value):
            raise ProgramError(
                f"'{name}' is on the meta device and its module cannot initialise it",
                remedy="give the module a reset_parameters() that fills it, or build the model on the CPU",
            )
        return value

    def _initialise(self, path: str) -> dict[str, torch.Tensor]:
        """The values of one module's own parameters and buffers."""
        module = self._model.get_submodule(path)
        meta = dict(_own(module))
        # Only the device changes: the module is put back on it below, parameter objects included.
        parameters, buffers = dict(module._parameters), dict(module._buffers)
        try:
            for leaf, tensor in meta.items():
                real = _marked(tensor)
                if leaf in module._parameters:
                    module._parameters[leaf] = nn.Parameter(real, requires_grad=tensor.requires_grad)
                else:
                    module._buffers[leaf] = real
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(_seed_of(self._seed, path))
                with torch.no_grad():
                    self._fill(module)
            return {leaf: tensor.detach() for leaf, tensor in _own(module)}
        finally:
            module._parameters.update(parameters)
            module._buffers.update(buffers)

    def _fill(self, module: nn.Module) -> None:
        reset, init = getattr(module, "reset_parameters", None), getattr(self._model, "_init_weights", None)
        if callable(init):
            init(module)
        elif callable(reset):
            reset()


def _own(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(recurse=False, remove_duplicate=False)
    yield from module.named_buffers(recurse=False, remove_duplicate=False)


def _marked(tensor: torch.Tensor) -> torch.Tensor:
    """A real tensor like a meta one, filled with a value that no initialisation leaves."""
    real = torch.empty(tensor.shape, dtype=tensor.dtype)
    if tensor.dtype == torch.bool:
        return real.zero_()
    mark = float("nan") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min
    return real.fill_(mark)


def _untouched(tensor: torch.Tensor) -> bool:
    if tensor.dtype == torch.bool or tensor.numel() == 0:
        return False
    if tensor.is_floating_point():
        return bool(tensor.isnan().any())
    return bool((tensor == torch.iinfo(tensor.dtype).min).any())


def _seed_of(seed: int, path: str) -> int:
    """A seed for one module that does not depend on which others exist."""
    digest = hashlib.sha256(f"{seed}:{path}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def materialise(model: nn.Module, *, seed: int = 0) -> nn.Module:
    """A model without meta tensors, with the values that `values_of` gives; ties are kept. In place."""
    provide = values_of(model, seed=seed)
    done: dict[int, torch.Tensor] = {}
    for name, tensor in named_values(model).items():
        if tensor.device.type != "meta":
            continue
        if id(tensor) not in done:
            value = provide(name)
            is_parameter = isinstance(tensor, nn.Parameter)
            done[id(tensor)] = (
                nn.Parameter(value, requires_grad=tensor.requires_grad) if is_parameter else value
            )
        path, _, leaf = name.rpartition(".")
        module = model.get_submodule(path)
        target = module._parameters if leaf in module._parameters else module._buffers
        target[leaf] = done[id(tensor)]  # type: ignore[assignment]
    return model
