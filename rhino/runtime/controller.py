"""One rank of a training run: its shards of the state, and the step that replaces them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from xdsl.dialects.builtin import ModuleOp

from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.layout import Layout
from rhino.ir.reshard import Step, reshard_steps
from rhino.runtime.collectives import Communicator
from rhino.runtime.program import Port, RankProgram, compile_module
from rhino.runtime.tensors import piece_of
from rhino.runtime.world import World

#: Gives the whole value of a parameter or buffer by its name.
Provider = Callable[[str], torch.Tensor]

_KEPT = ("parameter", "buffer", "state")


@dataclass(frozen=True)
class StepResult:
    """What a step returns beside the new state.

    Attributes:
        loss: a scalar, the same on every rank; None for programs without a loss.
        outputs: this rank's pieces of the other results, by name.
    """

    loss: torch.Tensor | None
    outputs: Mapping[str, torch.Tensor]


class Controller:
    """Runs one rank's program step by step; holds its shards of parameters, buffers and optimizer state."""

    def __init__(self, module: ModuleOp, world: World) -> None:
        """Compile the local `module`. All ranks do so together: see `compile_module` for what it raises."""
        self.program: RankProgram = compile_module(module, world)
        self.rank = world.rank
        self.device = world.device
        self._state: dict[int, torch.Tensor] = {}
        self._alias = {
            port.slot.alias: i for i, port in enumerate(self.program.results) if port.slot.alias is not None
        }

    def load(self, provide: Provider) -> None:
        """Take this rank's shard of every parameter and buffer from `provide`; optimizer state starts at
        zero. What the program holds beyond the shapes that the model has is zero, too.

        `provide` is asked for one tensor after another, in the order of the arguments, so that it can make
        each when it is asked for it and keep none. Raises ProgramError when a shape or dtype differs from the
        program's.
        """
        for i, port in enumerate(self.program.arguments):
            if port.slot.role == "state":
                self._state[i] = torch.zeros(port.local_shape, dtype=port.dtype, device=self.device)
            elif port.slot.role in _KEPT:
                whole = provide(port.slot.name)
                _check(whole, port, ProgramError)
                self._state[i] = self._piece(whole, port)

    def step(self, batch: Mapping[str, torch.Tensor]) -> StepResult:
        """Run one step on a whole (global) batch, of which this rank takes its part.

        Raises UsageError when the batch does not fit the program.
        """
        arguments = []
        for i, port in enumerate(self.program.arguments):
            if port.slot.role in _KEPT:
                # Handed over, not shared: the old value is freed as soon as the program has done with it.
                arguments.append(self._state.pop(i) if i in self._alias else self._state[i])
            else:
                arguments.append(self._input(port, batch))
        results = self.program.executable(arguments)
        loss: torch.Tensor | None = None
        outputs: dict[str, torch.Tensor] = {}
        for port, value in zip(self.program.results, results, strict=True):
            if port.slot.alias is not None:
                self._state[port.slot.alias] = value
            elif port.slot.role == "loss":
                loss = whole_value(value, port, self.program.communicator)
            else:
                outputs[port.slot.name] = value
        return StepResult(loss, outputs)

    def gather(self, roles: tuple[str, ...] = ("parameter", "buffer")) -> dict[str, torch.Tensor]:
        """Whole values of the kept tensors of some roles, by name, on every rank. All ranks must call it."""
        out = {}
        for i, port in enumerate(self.program.arguments):
            if port.slot.role in roles:
                value = whole_value(self._state[i], port, self.program.communicator)
                value = value[tuple(map(slice, port.true_shape))]
                for name in (port.slot.name, *port.slot.tied):
                    out[name] = value
        return out

    def _input(self, port: Port, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if port.slot.name not in batch:
            given = ", ".join(batch) or "nothing"
            raise UsageError(f"the batch lacks '{port.slot.name}': it has {given}")
        value = batch[port.slot.name]
        _check(value, port, UsageError)
        return self._piece(value, port)

    def _piece(self, whole: torch.Tensor, port: Port) -> torch.Tensor:
        """This rank's part of a tensor, and of the padding behind it."""
        piece = piece_of(whole.detach(), port.shape, port.layout, self.program.mesh, self.rank)
        return piece.to(self.device)


def _check(value: torch.Tensor, port: Port, error: type[ProgramError] | type[UsageError]) -> None:
    if tuple(value.shape) != port.true_shape or value.dtype != port.dtype:
        raise error(
            f"'{port.slot.name}' is {value.dtype} {list(value.shape)}, "
            f"but the program was made for {port.dtype} {list(port.true_shape)}",
            remedy="shapes and dtypes are fixed when a program is captured; use batches of one shape",
        )


def whole_value(value: torch.Tensor, port: Port, communicator: Communicator) -> torch.Tensor:
    """The global tensor of which `value` is this rank's piece, on every rank. A collective: all ranks call
    it.
    """
    target = Layout.replicated(len(port.shape))
    steps = reshard_steps(port.shape, port.layout, target, communicator.mesh)
    for step in steps:
        communicator.open([step.axes])
        value = _take(step, value, communicator)
    return value


def _take(step: Step, x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """One step of a reshard."""
    if step.kind == "all_reduce":
        assert step.reduction is not None
        return comm.all_reduce(x, step.axes, step.reduction)
    if step.kind == "permute":
        return comm.permute(x, step.pairs)
    assert step.dim is not None and step.period is not None
    if step.kind == "all_gather":
        return comm.all_gather(x, step.axes, step.dim, step.period)
    if step.kind == "reduce_scatter":
        assert step.reduction is not None
        return comm.reduce_scatter(x, step.axes, step.reduction, step.dim, step.period)
    if step.kind == "shard":
        return comm.shard(x, step.axes, step.dim, step.period)
    assert step.to_dim is not None and step.to_period is not None
    return comm.all_to_all(x, step.axes, step.dim, step.period, step.to_dim, step.to_period)
