"""The Python API: one call turns a model, its loss and an optimizer into a distributed training step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import nn
from xdsl.dialects.builtin import ModuleOp

from rhino.cli.planning import Request, local_program, make_plan
from rhino.cli.source import SEED
from rhino.dialects import signature
from rhino.dialects.text import parse_module, print_module
from rhino.frontend.capture import capture
from rhino.frontend.program import Program, named_inputs
from rhino.ir.errors import UsageError
from rhino.ir.evaluate import run_module
from rhino.ir.optimizers import AdamW, Optimizer
from rhino.passes.step import training_step
from rhino.planner import Plan
from rhino.runtime.controller import Controller
from rhino.runtime.launch import is_rank
from rhino.runtime.state import Provider, values_of
from rhino.runtime.tensors import to_numpy, to_torch
from rhino.runtime.world import join_world


class Parallel:
    """A distributed training step: call it with a (global) batch, get the loss.

    Under torchrun (or `rhino run`) every process is one rank and holds its shards only. In one process all
    devices are simulated by the reference interpreter: slow, exact, good for tests.

    Attributes:
        plan: what was decided and what it costs. On ranks other than 0 it is None.
        module: the program that every rank runs.
    """

    def __init__(self, engine: _Ranks | _Simulated, plan: Plan | None, module: ModuleOp) -> None:
        self._engine = engine
        self.plan = plan
        self.module = module

    def __call__(self, batch: Any) -> torch.Tensor:
        """One training step. Returns the loss before the update, a scalar."""
        return self._engine.step(dict(named_inputs(batch)))

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Whole parameters and buffers under the model's own names. All ranks must call it."""
        return self._engine.values()

    def close(self) -> None:
        """Leave the process group."""
        self._engine.close()


def parallelize(
    model: nn.Module,
    *,
    loss: Callable[[Any, Any], torch.Tensor],
    batch: Any,
    optimizer: Optimizer | None = None,
    cluster: str | None = None,
    mesh: str | None = None,
    plan: str = "auto",
    memory_limit: str | None = None,
    pins: Mapping[str, str] | Sequence[str] = (),
    forbid: Sequence[str] = (),
    objective: str = "time",
    pad: bool = True,
    micro_batches: int | str = "auto",
    accumulate_in: str = "f32",
    timeout: timedelta = timedelta(minutes=5),
) -> Parallel:
    """Plan and build the distributed training step of a single-device model.

    Args:
        model: any `torch.nn.Module`; it is read, not changed.
        loss: ``loss(model, batch)`` gives a scalar.
        batch: a sample of the global batch: a tensor, or a tuple or dict of tensors.
        optimizer: `rhino.SGD`, `rhino.Adam` or `rhino.AdamW` (the default); ``clip_norm=`` of each bounds the norm
            of all gradients together.
        cluster: ``2x8xH100``, ``8xH100`` or a number of devices; under torchrun the number of ranks is known.
        mesh: fixes the mesh, ``dp=2,tp=4``.
        plan: ``auto``, a template (``dp``, ``zero3``, ``megatron``, ``fsdp_tp``) or the file of a plan.
        memory_limit: per device, ``80GB``.
        pins: layouts by name pattern, ``{"h.*.c_fc.weight": '[{}, {"tp"}]'}``; see `rhino.planner.pins`.
        forbid: ``PATTERN:AXIS``, or a paradigm: ``data``, ``sequence``, ``tensor``, ``sharded-states``,
            ``strided``.
        objective: ``time``, or ``memory`` for the plan that needs least of it.
        pad: whether extents that the mesh does not divide may be padded; nobody sees the padding.
        micro_batches: so many parts of the batch one after another, their gradients added up; ``auto`` is one, unless
            nothing fits the memory then. The loss is that of the whole batch.
        accumulate_in: the type in which micro-batches add up gradients that are narrower than f32: ``f32``, or ``same``
            for their own, which takes half the memory and is less exact.

    Raises:
        RhinoError: of the kinds that capturing and planning raise; RunError when ranks do not come together.
    """
    program = Program(model, loss, batch, optimizer)
    given = [f"{k}={v}" for k, v in pins.items()] if isinstance(pins, Mapping) else pins
    request = Request(
        cluster,
        None,
        mesh,
        plan,
        memory_limit,
        tuple(given),
        tuple(forbid),
        objective,
        pad=pad,
        micro_batches=str(micro_batches),
        accumulate_in=accumulate_in,
    )
    if not is_rank():
        planned, local = _build(program, request)
        return Parallel(_Simulated(local, values_of(model, seed=SEED)), planned, local)
    stack = ExitStack()
    world = stack.enter_context(join_world(timeout))
    request = _for_ranks(request, world.size)
    result: Plan | None = None
    text: str | None = None
    if world.rank == 0:
        result, local = _build(program, request)
        text = print_module(local, debug=True)
    local = parse_module(world.share(text), "<plan of rank 0>", verify=False)
    controller = Controller(local, world)
    controller.load(values_of(model, seed=SEED))
    return Parallel(_Ranks(controller, stack), result, local)


def _for_ranks(request: Request, size: int) -> Request:
    """A request without a cluster is for the ranks that run."""
    if request.cluster is None:
        return replace(request, nproc=size)
    cluster, _ = request.resolve()
    if cluster.size != size:
        raise UsageError(
            f"cluster '{request.cluster}' has {cluster.size} devices, but {size} ranks run (WORLD_SIZE="
            f"{os.environ.get('WORLD_SIZE')})",
            remedy="leave out cluster=, or start as many processes",
        )
    return request


def _build(program: Program, request: Request) -> tuple[Plan, ModuleOp]:
    step = training_step(capture(program), program.optimizer or AdamW())
    plan = make_plan(step, request)
    return plan, local_program(plan.module)


class _Ranks:
    """One rank of a real run."""

    def __init__(self, controller: Controller, stack: ExitStack) -> None:
        self._controller = controller
        self._stack = stack

    def step(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        loss = self._controller.step(batch).loss
        assert loss is not None
        return loss

    def values(self) -> dict[str, torch.Tensor]:
        return self._controller.gather()

    def close(self) -> None:
        self._stack.close()


class _Simulated:
    """All ranks in this process, on the interpreter."""

    def __init__(self, module: ModuleOp, provide: Provider) -> None:
        self._module = module
        func = signature.main_of(module)
        self._arguments = signature.arguments(func)
        self._results = signature.results(func)
        self._state: dict[int, np.ndarray] = {}
        for i, (slot, attributes) in enumerate(zip(self._arguments, func.arg_attrs or (), strict=True)):
            if slot.role in ("parameter", "buffer"):
                self._state[i] = to_numpy(provide(slot.name)).copy()
            elif slot.role == "state":
                whole = attributes.data["dist.global_type"]
                self._state[i] = _zeros(whole)

    def step(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        arguments = []
        for i, slot in enumerate(self._arguments):
            if slot.role == "input" and slot.name not in batch:
                raise UsageError(f"the batch lacks '{slot.name}'")
            arguments.append(to_numpy(batch[slot.name]) if slot.role == "input" else self._state[i])
        loss: np.ndarray | None = None
        for slot, value in zip(self._results, run_module(self._module, arguments), strict=True):
            if slot.alias is not None:
                self._state[slot.alias] = value
            elif slot.role == "loss":
                loss = value
        assert loss is not None
        return to_torch(loss)

    def values(self) -> dict[str, torch.Tensor]:
        out = {}
        for i, slot in enumerate(self._arguments):
            if slot.role in ("parameter", "buffer"):
                for name in (slot.name, *slot.tied):
                    out[name] = to_torch(self._state[i])
        return out

    def close(self) -> None:
        """Nothing to leave."""


def _zeros(whole: Any) -> np.ndarray:
    from rhino.ir import types

    return np.zeros(whole.get_shape(), types.numpy_dtype(whole.element_type))
