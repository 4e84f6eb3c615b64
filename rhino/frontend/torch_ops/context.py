"""What a handler of an ATen op works with: the builder, the node's result types, torch's promotions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from xdsl.ir import Attribute, SSAValue

from rhino.dialects.builder import Builder
from rhino.ir import types
from rhino.ir.errors import UnsupportedError

Number = bool | int | float
#: What stands for an ATen value: an SSA value, or a list of them for ops with several results.
Value = Any
Handler = Callable[..., Value]

_ELEMENTS: Mapping[torch.dtype, Attribute] = {
    torch.float64: types.F64,
    torch.float32: types.F32,
    torch.float16: types.F16,
    torch.bfloat16: types.BF16,
    torch.bool: types.I1,
    torch.int8: types.I8,
    torch.int16: types.I16,
    torch.int32: types.I32,
    torch.int64: types.I64,
    torch.uint8: types.UI8,
    torch.uint16: types.UI16,
    torch.uint32: types.UI32,
    torch.uint64: types.UI64,
    torch.complex64: types.C64,
    torch.complex128: types.C128,
    torch.float8_e4m3fn: types.F8E4M3FN,
    torch.float8_e4m3fnuz: types.F8E4M3FNUZ,
    torch.float8_e5m2: types.F8E5M2,
    torch.float8_e5m2fnuz: types.F8E5M2FNUZ,
}
_DTYPES = {element: dtype for dtype, element in _ELEMENTS.items()}


def element_type(dtype: torch.dtype) -> Attribute:
    """The element type of a torch dtype. Raises UnsupportedError for the ones Rhino does not compute with."""
    if dtype not in _ELEMENTS:
        known = ", ".join(str(d).removeprefix("torch.") for d in _ELEMENTS)
        raise UnsupportedError(f"dtype {dtype} is not supported", remedy=f"use one of {known}")
    return _ELEMENTS[dtype]


@dataclass
class RandomState:
    """The counter behind random numbers: one seed argument for the program, one number per call site."""

    make: Callable[[], SSAValue]
    seed: SSAValue | None = None
    sites: int = 0

    def next(self) -> tuple[SSAValue, int]:
        """The seed of this step and the number of the call site asking."""
        if self.seed is None:
            self.seed = self.make()
        self.sites += 1
        return self.seed, self.sites


@dataclass
class OpContext:
    """The node being lowered.

    Attributes:
        b: the builder; it already has the node's location.
        node: the FX node.
        random: the program's random state.
    """

    b: Builder
    node: fx.Node
    random: RandomState

    @property
    def _result(self) -> torch.Tensor:
        value = self.node.meta.get("val")
        first = value[0] if isinstance(value, tuple | list) else value
        assert isinstance(first, torch.Tensor)
        return first

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the (first) result."""
        return tuple(int(e) for e in self._result.shape)

    @property
    def element(self) -> Attribute:
        """Element type of the (first) result."""
        return element_type(self._result.dtype)

    def reads(self, k: int) -> bool:
        """Whether anything reads result `k` of an op with several."""
        return any(u.target is operator.getitem and u.args[1] == k for u in self.node.users)

    def unsupported(self, message: str, remedy: str | None = None) -> UnsupportedError:
        """An error about this node; the importer adds where it stands in the user's program."""
        return UnsupportedError(f"{self.node.target}: {message}", remedy=remedy)

    def convert(self, x: SSAValue, element: Attribute) -> SSAValue:
        return cast(self.b, x, element)

    def broadcast(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        """`x` broadcast numpy-style; `x` itself when it has that shape already."""
        return x if types.shape_of(x) == tuple(shape) else self.b.broadcast_to(x, list(shape))

    def full(self, value: Number, like: SSAValue) -> SSAValue:
        return self.b.full_like(like, value)

    def operand(self, x: SSAValue | Number, element: Attribute, shape: Sequence[int]) -> SSAValue:
        """A tensor or a Python number as a tensor of this element type and shape."""
        if isinstance(x, SSAValue):
            return self.broadcast(self.convert(x, element), shape)
        return self.b.full(list(shape), element, x)

    def promoted(self, *operands: SSAValue | Number, element: Attribute | None = None) -> list[SSAValue]:
        """Operands converted to their common type (or to `element`) and broadcast to their common shape."""
        if element is None:
            element = promote(*operands)
        tensors = [o for o in operands if isinstance(o, SSAValue)]
        shape = torch.broadcast_shapes(*[types.shape_of(t) for t in tensors])
        return [self.operand(o, element, shape) for o in operands]

    def widened(self, x: SSAValue) -> SSAValue:
        """`x` in the precision that torch accumulates in: f32 for half types, its own otherwise."""
        return self.convert(x, wide(types.element_of(x)))


def cast(b: Builder, x: SSAValue, element: Attribute) -> SSAValue:
    """`x` with another element type; `x` itself when it has that type already."""
    return x if types.element_of(x) == element else b.convert(x, element)


def spread(b: Builder, reduced: SSAValue, shape: Sequence[int], dims: Sequence[int]) -> SSAValue:
    """What a reduction over `dims` gave, broadcast back to `shape`."""
    return b.broadcast_in_dim(reduced, list(shape), [d for d in range(len(shape)) if d not in dims])


def wide(element: Attribute) -> Attribute:
    """The accumulation type of a floating-point type."""
    return types.F32 if element in (types.F16, types.BF16, *types.FLOAT8) else element


def promote(*operands: SSAValue | Number) -> Attribute:
    """torch's result type of tensors and Python numbers: category first, then dimensions, then width."""
    stands: list[Any] = []
    for operand in operands:
        if isinstance(operand, SSAValue):
            shape = (1,) * min(len(types.shape_of(operand)), 1)
            stands.append(torch.empty(shape, dtype=_DTYPES[types.element_of(operand)], device="meta"))
        else:
            stands.append(operand)
    result = stands[0]
    for other in stands[1:]:
        dtype = torch.result_type(result, other)
        ranked = any(isinstance(t, torch.Tensor) and t.dim() for t in (result, other))
        result = torch.empty((1,) if ranked else (), dtype=dtype, device="meta")
    if not isinstance(result, torch.Tensor):
        result = torch.scalar_tensor(result)
    return element_type(result.dtype)


def axis(dim: int, rank: int) -> int:
    """A dimension counted from the front; a scalar counts as one-dimensional, as in torch."""
    return dim % max(rank, 1)


def axes(dims: int | Sequence[int] | None, rank: int) -> list[int]:
    """Dimensions counted from the front, sorted; all of them for None or an empty list."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return list(range(rank))
    if isinstance(dims, int):
        dims = [dims]
    return sorted({axis(d, rank) for d in dims} if rank else set())


def keep_dims(shape: Sequence[int], dims: Sequence[int]) -> list[int]:
    """`shape` with extent 1 on `dims`."""
    return [1 if d in dims else int(e) for d, e in enumerate(shape)]
