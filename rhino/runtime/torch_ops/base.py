"""What a torch lowering is: from an op, once, to a function of tensors, called every step.

Lowerings compute what the op's numpy `evaluate` computes. They never write into an operand. Results may be
views of operands (a broadcast is an `expand`), so that functions must take tensors of any strides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from xdsl.ir import Block, Operation

if TYPE_CHECKING:
    from rhino.runtime.collectives import Communicator

#: Takes the op's operands, returns its result, or a tuple of them where the op has several.
TensorFunction = Callable[..., "torch.Tensor | tuple[torch.Tensor, ...]"]


@dataclass(frozen=True)
class Context:
    """Where a program runs.

    Attributes:
        device: where its tensors live.
        communicator: the process groups for collectives; None for programs without any.
        compile_block: turns the block of a composite op into a function of tensors.
    """

    device: torch.device
    communicator: Communicator | None = None
    compile_block: Callable[[Block, Context], TensorFunction] | None = None


Lowering = Callable[[Operation, Context], TensorFunction]
Table = Mapping[str, Lowering]


def plain(function: TensorFunction) -> Lowering:
    """The lowering of an op without properties that is one torch function."""
    return lambda op, ctx: function
