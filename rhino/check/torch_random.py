"""PyTorch's forward pass with the random numbers that Rhino draws.

Rhino's numbers depend on a seed and an element's index alone (see `rhino.ir.philox`), PyTorch's on the state of
a generator: two programs with dropout can be compared only if both use the same masks. `Draws` holds what the
captured program draws, in program order; while `feed` is active, every random op of PyTorch gets the next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from rhino.check.values import record
from rhino.dialects import signature
from rhino.ir import types
from rhino.ir.errors import UnsupportedError
from rhino.passes.inline_composites import inline_composites
from rhino.passes.widen_floats import widen_floats
from rhino.runtime.tensors import to_torch


@dataclass(frozen=True)
class Draw:
    """What one call site draws.

    Attributes:
        uniform: the numbers in [0, 1).
        kept: what they are compared with, where the program does that and nothing else.
    """

    uniform: np.ndarray
    kept: np.ndarray | None


def draws_of(forward: ModuleOp, arrays: Mapping[str, np.ndarray], *, widen: bool) -> list[Draw]:
    """The random numbers of a captured forward module for arguments by name, in program order.

    `widen` draws them as `widen_floats` makes a module draw them. The module is left as it was.
    """
    if not any(op.name == "hlo.random_uniform" for op in forward.walk()):
        return []
    module = forward.clone()
    inline_composites(module)
    if widen:
        widen_floats(module)
    func = signature.main_of(module)
    slots = zip(signature.arguments(func), func.args, strict=True)
    values = record(
        func, [arrays[slot.name].astype(types.numpy_dtype(types.element_of(arg))) for slot, arg in slots]
    )
    out = []
    for op in func.body.block.ops:
        if op.name == "hlo.random_uniform":
            compare = _only_compare(op)
            out.append(Draw(values[op.results[0]], values[compare.results[0]] if compare else None))
    return out


def _only_compare(op: Operation) -> Operation | None:
    users = [use.operation for use in op.results[0].uses]
    return users[0] if len(users) == 1 and users[0].name == "hlo.compare" else None


def _like(array: np.ndarray, out: torch.Tensor) -> torch.Tensor:
    """The numbers in the dtype that PyTorch wants, or in f64 where everything is widened."""
    drawn = to_torch(array)
    return drawn if drawn.dtype == torch.float64 else drawn.to(out.dtype)


@contextmanager
def feed(draws: Sequence[Draw]) -> Iterator[None]:
    """PyTorch's random ops give `draws`, one after the other, while the block runs.

    Raises UnsupportedError when PyTorch draws something else than the program did: an op that has no counterpart,
    another shape, more or fewer numbers.
    """
    mode = _Feed(draws)
    with mode:
        yield
    if mode.next != len(draws):
        raise UnsupportedError(f"PyTorch drew {mode.next} of the program's {len(draws)} random tensors")


class _Feed(TorchDispatchMode):
    """Overwrites what PyTorch's random ops give."""

    def __init__(self, draws: Sequence[Draw]) -> None:
        super().__init__()
        self.draws = draws
        self.next = 0

    def __torch_dispatch__(
        self, func: Any, classes: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            name = func.overloadpacket.__name__
            if name in ("bernoulli", "bernoulli_"):
                out.copy_(self._kept(out, func))
            elif name in ("rand", "rand_like"):
                return _like(self._take(out, func).uniform, out)
            elif name in ("randn", "randn_like"):
                u, v = (self._take(out, func).uniform for _ in range(2))
                # Box and Muller, as the importer writes it.
                return _like(np.sqrt(-2 * np.log(1 - u)) * np.cos(2 * math.pi * v), out)
            elif (
                name != "_scaled_dot_product_flash_attention_for_cpu"
            ):  # which is chosen without dropout only
                raise UnsupportedError(f"PyTorch draws with {func}")
        return out

    def _take(self, out: torch.Tensor, func: Any) -> Draw:
        if self.next == len(self.draws):
            raise UnsupportedError(f"PyTorch draws more than the program's {self.next} random tensors")
        draw = self.draws[self.next]
        self.next += 1
        if draw.uniform.shape != tuple(out.shape):
            raise UnsupportedError(
                f"random tensor {self.next} is {list(out.shape)} in PyTorch ({func}) "
                f"and {list(draw.uniform.shape)} in the program"
            )
        return draw

    def _kept(self, out: torch.Tensor, func: Any) -> torch.Tensor:
        kept = self._take(out, func).kept
        if kept is None:
            raise UnsupportedError(f"random tensor {self.next} is a mask in PyTorch and none in the program")
        return to_torch(kept)
