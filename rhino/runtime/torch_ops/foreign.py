"""Element types that torch stores but hardly computes with: unsigned integers, and floats of one byte.

Unsigned integers run as signed ones of the same bits, on which most ops (all that wrap or move) do the same.
Where the order matters the highest bit is flipped first, which maps the one order to the other. One-byte floats are
widened to f32, and results rounded once, as `evaluate` does it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from xdsl.ir import Attribute, Block, Operation

from rhino.ir import types
from rhino.runtime.tensors import torch_dtype
from rhino.runtime.torch_ops.base import Context, Lowering, TensorFunction
from rhino.runtime.torch_ops.numbers import SIGNED

#: Ops that deal with any element type by themselves.
NATIVE = frozenset(
    {"hlo.constant", "hlo.iota", "hlo.convert", "hlo.bitcast_convert", "hlo.rng_bit_generator", "dist.shard"}
)

#: Ops whose outcome depends on the order of numbers; those with a kind, if it is max or min.
_ORDERED = frozenset(
    {
        "hlo.compare",
        "hlo.maximum",
        "hlo.minimum",
        "hlo.clamp",
        "hlo.sort",
        "hlo.top_k",
        "hlo.argmax",
        "hlo.argmin",
    }
)
_BY_KIND = (
    "hlo.reduce",
    "hlo.cumulative",
    "hlo.reduce_window",
    "hlo.scatter",
    "dist.all_reduce",
    "dist.reduce_scatter",
    "dist.halo",
)

#: Number of data operands of the ops that take indices after them.
_DATA = {
    "hlo.gather": (0,),
    "hlo.scatter": (0, 2),
    "hlo.dynamic_slice": (0,),
    "hlo.dynamic_update_slice": (0, 1),
}


_TWIN: dict[Attribute, Attribute] = {
    types.UI8: types.I8,
    types.UI16: types.I16,
    types.UI32: types.I32,
    types.UI64: types.I64,
}


def adapt(op: Operation, lowering: Lowering, ctx: Context) -> TensorFunction:
    """`lowering` of an op, wrapped if it has operands or results of such a type."""
    values = [*op.operands, *op.results]
    elements = {types.element_of(v) for v in values if isinstance(v.type, types.TensorType)}
    if op.regions or op.name in NATIVE:
        return lowering(op, ctx)
    if any(e in types.FLOAT8 for e in elements):
        return _widened(op, lowering(op, ctx))
    if not any(map(types.is_unsigned, elements)):
        return lowering(op, ctx)
    if op.name in _OWN:
        return _as_signed(op, _OWN[op.name], ordered=False)
    return _as_signed(op, lowering(_signed_twin(op), ctx), ordered=_is_ordered(op))


def _signed_twin(op: Operation) -> Operation:
    """The same op on signed types of the same width: what a lowering is to look at."""

    def twin(type: types.Type) -> types.Type:
        return types.tensor(type.get_shape(), _TWIN.get(type.element_type, type.element_type))

    operands = Block(arg_types=[twin(types.type_of(o)) for o in op.operands]).args
    results = [twin(types.type_of(r)) for r in op.results]
    return type(op).create(operands=operands, result_types=results, properties=op.properties)


def _is_ordered(op: Operation) -> bool:
    if op.name in _BY_KIND:
        kind = op.properties.get("kind")
        return kind is not None and any(k in str(kind) for k in ("max", "min"))
    return op.name in _ORDERED


def _widened(op: Operation, function: TensorFunction) -> TensorFunction:
    narrow = [types.element_of(v) in types.FLOAT8 for v in op.operands]
    dtypes = [torch_dtype(types.element_of(r)) for r in op.results]

    def run(*xs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        out = function(*(x.float() if n else x for x, n in zip(xs, narrow, strict=True)))
        if isinstance(out, tuple):
            return tuple(y.to(d) for y, d in zip(out, dtypes, strict=True))
        return out.to(dtypes[0])

    return run


def signed(x: torch.Tensor) -> torch.Tensor:
    """The bits as signed integers; scalars and views too."""
    return x.contiguous().view(SIGNED[x.element_size()])


def _flip(x: torch.Tensor) -> torch.Tensor:
    return x ^ torch.iinfo(x.dtype).min


def _index(x: torch.Tensor) -> torch.Tensor:
    """Indices as int64; those beyond its range as its largest."""
    index = signed(x).long() & (-1 if x.element_size() == 8 else (1 << (8 * x.element_size())) - 1)
    return torch.where(index < 0, torch.iinfo(torch.int64).max, index)


def _as_signed(op: Operation, function: TensorFunction, ordered: bool) -> TensorFunction:
    data = _DATA.get(op.name)
    into: list[Callable[[torch.Tensor], torch.Tensor] | None] = []
    for i, value in enumerate(op.operands):
        if not types.is_unsigned(types.element_of(value)):
            into.append(None)
        elif data is not None and i not in data:
            into.append(_index)
        else:
            into.append((lambda x: _flip(signed(x))) if ordered else signed)
    back = [torch_dtype(e) if types.is_unsigned(e) else None for e in map(types.element_of, op.results)]

    def restore(y: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
        return y if dtype is None else (_flip(y) if ordered else y).contiguous().view(dtype)

    def run(*xs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        out = function(*(x if f is None else f(x) for x, f in zip(xs, into, strict=True)))
        if isinstance(out, tuple):
            return tuple(restore(y, d) for y, d in zip(out, back, strict=True))
        return restore(out, back[0])

    return run


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Bits of up to 32 as the number they stand for unsigned, in int64."""
    return x.long() & ((1 << (8 * x.element_size())) - 1)


def _below(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _flip(x) < _flip(y)


def _quotient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Unsigned x / y for y > 0, on bits of int64."""
    safe = torch.where(y <= 0, torch.ones_like(y), y)
    half = (x >> 1) & torch.iinfo(torch.int64).max
    q = torch.div(half, safe, rounding_mode="floor") << 1
    q = q + (~_below(x - q * safe, safe)).long()
    return torch.where(y < 0, (~_below(x, y)).long(), q)


def _div(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """All bits set for x / 0, as in XLA."""
    q = _quotient(x, y) if x.dtype == torch.int64 else _quotient(_wide(x), _wide(y)).to(x.dtype)
    return torch.where(y == 0, torch.full_like(x, -1), q)


def _rem(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(y == 0, x, x - _div(x, y) * y)


def _pow(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.ones_like(x)
    for bit in range(8 * x.element_size()):
        out = torch.where(((y >> bit) & 1) == 1, out * x, out)
        x = x * x
    return out


_OWN: dict[str, TensorFunction] = {
    "hlo.div": _div,
    "hlo.rem": _rem,
    "hlo.pow": _pow,
    "hlo.abs": lambda x: x,
    "hlo.sign": lambda x: (x != 0).to(x.dtype),
}
