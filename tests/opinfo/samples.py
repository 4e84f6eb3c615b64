"""PyTorch's own sample inputs (`op_db`), and several samples of an op as one program.

One capture of a group of samples is several times quicker than a capture of each: `torch.export` costs most.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from rhino.frontend.program import Program


@cache
def entries() -> dict[str, OpInfo]:
    """Entries that have float32 samples, by name (``sum``, ``std.unbiased``, ...)."""
    with_float = [op for op in op_db if torch.float32 in op.dtypes]
    return {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in with_float}


#: Ops that find vectors of which any multiple is as good.
FREE_SIGNS = frozenset({"linalg.eigh", "linalg.svd", "svd"})


@dataclass(frozen=True)
class Sample:
    """A call of an op with tensors of float64, so that a comparison can be strict.

    Attributes:
        name: the op's name.
        index: which of the entry's samples it is.
        function: what to call with the leaves' tree.
        leaves: input, arguments and keyword arguments, flattened.
        tree: their structure.
        differentiable: positions of the leaves that torch differentiates.
        for_gradient: what the op's authors apply to a result before they differentiate it.
    """

    name: str
    index: int
    function: Callable[..., Any]
    leaves: tuple[Any, ...]
    tree: pytree.TreeSpec
    differentiable: frozenset[int]
    for_gradient: Callable[[Any], Any]

    def call(self, leaves: Sequence[Any]) -> tuple[Any, dict[int, torch.Tensor]]:
        """The result, and the tensors that the call wrote to, by position. The leaves themselves are copied first."""
        own = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        value, args, kwargs = pytree.tree_unflatten(own, self.tree)
        result = self.function(value, *args, **kwargs)
        written = {k: t for k, t in enumerate(own) if isinstance(t, torch.Tensor) and t._version}
        return result, written

    def compared(self, value: Any) -> Any:
        """The result, or for vectors whose sign is free what the op's authors make of it before they compare."""
        return self.for_gradient(value) if self.name in FREE_SIGNS else value

    def results(self, value: Any) -> list[torch.Tensor]:
        """The tensors of a result."""
        return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy in double precision where it is floating-point or complex."""
    tensor = tensor.detach().resolve_conj().resolve_neg().clone().contiguous()
    if tensor.dtype == torch.float32:
        return tensor.double()
    return tensor.to(torch.complex128) if tensor.dtype == torch.complex64 else tensor


def widened(leaf: Any) -> Any:
    """A leaf of a sample: tensors and dtypes of single precision become double."""
    if isinstance(leaf, torch.Tensor):
        return wide(leaf)
    if isinstance(leaf, torch.dtype):
        return {torch.float32: torch.float64, torch.complex64: torch.complex128}.get(leaf, leaf)
    return leaf


def samples(op: OpInfo, limit: int | None = None) -> list[Sample]:
    """`limit` samples of an entry, spread evenly over those that it has (all of them for None)."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # What a sample holds is taken before the next one is made: some entries make them from one tensor.
        every = [
            _sample(op, i, s)
            for i, s in enumerate(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd))
        ]
    if limit is None or limit >= len(every):
        return every
    return [every[i * len(every) // limit] for i in range(limit)]


def _sample(op: OpInfo, index: int, s: SampleInput) -> Sample:
    flat, tree = pytree.tree_flatten((s.input, tuple(s.args), dict(s.kwargs)))
    grads = frozenset(k for k, t in enumerate(flat) if isinstance(t, torch.Tensor) and t.requires_grad)
    leaves = tuple(widened(leaf) for leaf in flat)
    return Sample(op.name, index, op.op, leaves, tree, grads, s.output_process_fn_grad)


class Calls(nn.Module):
    """A group of samples as a model: differentiable tensors are parameters, results go to buffers.

    The loss is a weighted sum of all results, so that the gradient of a parameter tests its own sample alone.
    """

    def __init__(self, calls: Sequence[Sample]) -> None:
        super().__init__()
        self.calls = tuple(calls)
        self.batch: dict[str, torch.Tensor] = {"none": torch.zeros(())}
        self.written: dict[int, tuple[int, ...]] = {}
        for s in self.calls:
            for k, leaf in enumerate(s.leaves):
                if not isinstance(leaf, torch.Tensor):
                    continue
                if k in s.differentiable:
                    self.register_parameter(f"s{s.index}_in{k}", nn.Parameter(leaf.clone()))
                else:
                    self.batch[f"s{s.index}_in{k}"] = leaf.clone()
            torch.manual_seed(0)
            value, written = s.call([self._leaf(s, k, self.batch) for k in range(len(s.leaves))])
            self.written[s.index] = tuple(written)
            for k, result in enumerate([*s.results(s.compared(value)), *written.values()]):
                empty = torch.zeros(result.shape, dtype=result.dtype)
                self.register_buffer(f"s{s.index}_out{k}", empty)
            for k, result in enumerate(s.results(s.for_gradient(value))):
                if result.requires_grad:
                    w = torch.linspace(0.3, 1.7, max(result.numel(), 1), dtype=torch.float64)
                    self.batch[f"s{s.index}_w{k}"] = w[: result.numel()].reshape(result.shape)

    def _leaf(self, s: Sample, k: int, batch: dict[str, torch.Tensor]) -> Any:
        if not isinstance(s.leaves[k], torch.Tensor):
            return s.leaves[k]
        name = f"s{s.index}_in{k}"
        return getattr(self, name) if k in s.differentiable else batch[name]

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        total = batch["none"].double().sum()
        for s in self.calls:
            value, written = s.call([self._leaf(s, k, batch) for k in range(len(s.leaves))])
            own = [written[k] for k in self.written[s.index]]
            for k, result in enumerate([*s.results(s.compared(value)), *own]):
                getattr(self, f"s{s.index}_out{k}").copy_(result.detach())
            for k, result in enumerate(s.results(s.for_gradient(value))):
                weight = batch.get(f"s{s.index}_w{k}")
                if weight is None:
                    continue
                if result.is_complex():
                    total = total + (result.real * weight + result.imag * (2 - weight)).sum()
                else:
                    total = total + (result * weight).sum().double()
        return total


def program(model: Calls) -> Program:
    return Program(model, lambda m, batch: m(batch), model.batch)
