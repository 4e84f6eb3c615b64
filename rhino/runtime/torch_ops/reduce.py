"""Reductions in torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from xdsl.ir import Attribute, Operation

from rhino.dialects.hlo.base import get_integer, get_ints, get_text
from rhino.dialects.hlo.common import identity, python_number
from rhino.ir import types
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction

Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_BITWISE: dict[str, Binary] = {"and": torch.bitwise_and, "or": torch.bitwise_or}
_BOOLEAN: dict[str, Callable[..., torch.Tensor]] = {
    "and": torch.all,
    "min": torch.all,
    "or": torch.any,
    "max": torch.any,
}
_NARROW = (torch.float16, torch.bfloat16)


def _wide(x: torch.Tensor) -> torch.Tensor:
    """16-bit floats are accumulated in f32, i1 in i8 (torch orders no booleans)."""
    if x.dtype in _NARROW:
        return x.float()
    return x.to(torch.int8) if x.dtype == torch.bool else x


def _fold(x: torch.Tensor, dim: int, combine: Binary) -> torch.Tensor:
    """Reduce one dimension by halves, for operations that torch has no reduction of."""
    while x.shape[dim] > 1:
        half = x.shape[dim] // 2
        joined = combine(x.narrow(dim, 0, half), x.narrow(dim, half, half))
        rest = x.narrow(dim, 2 * half, x.shape[dim] - 2 * half)
        x = torch.cat([joined, rest], dim) if rest.shape[dim] else joined
    return x.squeeze(dim)


def _prod(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    out = _wide(x)
    for dim in sorted(dims, reverse=True):
        out = out.prod(dim, dtype=out.dtype)
    return out.to(x.dtype)


def _bitwise(x: torch.Tensor, dims: Sequence[int], combine: Binary) -> torch.Tensor:
    for dim in sorted(dims, reverse=True):
        x = _fold(x, dim, combine)
    return x


def reducer(kind: str, element: Attribute, dims: Sequence[int]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that reduces the (non-empty) dimensions `dims` of tensors of an element type."""
    dims = tuple(dims)
    if element == types.I1:
        over = _BOOLEAN[kind]
        return lambda x: over(x, dim=dims)
    if kind == "sum":
        return lambda x: x.sum(dims, dtype=x.dtype)
    if kind == "max":
        return lambda x: x.amax(dims)
    if kind == "min":
        return lambda x: x.amin(dims)
    if kind == "prod":
        return lambda x: _prod(x, dims)
    combine = _BITWISE[kind]
    return lambda x: _bitwise(x, dims, combine)


def _reduce(op: Operation, ctx: Context) -> TensorFunction:
    kind, dims = get_text(op.properties, "kind"), get_ints(op.properties, "dims")
    operand = types.type_of(op.operands[0])
    if not dims:
        return lambda x: x
    if math.prod(operand.get_shape()[d] for d in dims) == 0:
        value = python_number(identity(kind, types.numpy_dtype(operand.element_type)))
        shape = types.shape_of(op.results[0])
        return lambda x: x.new_full(shape, value)
    return reducer(kind, operand.element_type, dims)


def _arg(function: Callable[..., torch.Tensor]) -> Lowering:
    """torch, too, takes the first of equals and counts NaN as the extremum."""

    def lower(op: Operation, ctx: Context) -> TensorFunction:
        dim = get_integer(op.properties, "dim")
        return lambda x: function(_wide(x), dim)

    return lower


def _scan(x: torch.Tensor, dim: int, combine: Binary) -> torch.Tensor:
    """Running combination by doubling: after step k every element has combined 2^k of them."""
    reach = 1
    while reach < x.shape[dim]:
        rest = x.shape[dim] - reach
        later = combine(x.narrow(dim, reach, rest), x.narrow(dim, 0, rest))
        x = torch.cat([x.narrow(dim, 0, reach), later], dim)
        reach *= 2
    return x


_RUNNING: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda x, dim: x.cumsum(dim, dtype=x.dtype),
    "prod": lambda x, dim: x.cumprod(dim, dtype=x.dtype),
    "max": lambda x, dim: x.cummax(dim).values,
    "min": lambda x, dim: x.cummin(dim).values,
    "and": lambda x, dim: _scan(x, dim, torch.bitwise_and),
    "or": lambda x, dim: _scan(x, dim, torch.bitwise_or),
}


def _cumulative(op: Operation, ctx: Context) -> TensorFunction:
    dim, running = get_integer(op.properties, "dim"), _RUNNING[get_text(op.properties, "kind")]
    if "reverse" in op.properties:
        return lambda x: running(_wide(x).flip(dim), dim).flip(dim).to(x.dtype)
    return lambda x: running(_wide(x), dim).to(x.dtype)


TABLE: dict[str, Lowering] = {
    "hlo.reduce": _reduce,
    "hlo.argmax": _arg(torch.argmax),
    "hlo.argmin": _arg(torch.argmin),
    "hlo.cumulative": _cumulative,
}
