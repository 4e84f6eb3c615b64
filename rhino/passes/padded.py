"""Values that are held with more elements than they have: what is known of the rest, and how it is masked.

The elements that the program means are the first ones of every dimension; behind them lies *padding*. What it holds
is known for arguments (zeros) and what follows from them and from constants, element by element; otherwise it may be
anything, NaN included. So it is never multiplied away but replaced, with a `select`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.common import identity, python_number
from rhino.dialects.hlo.constant import splat_of
from rhino.ir import types

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Held:
    """How the rewritten program holds a value.

    Attributes:
        value: it, with at least the extents of `true`.
        true: the shape that it has in the program as it was.
        uniform: what every element is, padding included, if they are all equal and that is known.
        pads: dimension -> what all elements behind the true extent of that dimension are, where known.
    """

    value: SSAValue
    true: Shape
    uniform: np.generic | None = None
    pads: Mapping[int, np.generic] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        return types.shape_of(self.value)

    @property
    def grown(self) -> list[int]:
        """Dimensions with padding."""
        return [d for d, (have, true) in enumerate(zip(self.shape, self.true, strict=True)) if have > true]

    def pad(self, dim: int) -> np.generic | None:
        """What the padding of a dimension holds, if it is known."""
        return self.uniform if self.uniform is not None else self.pads.get(dim)


class Padded:
    """Makes values of other extents, and masks; one of each."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._fitted: dict[tuple[SSAValue, Shape], Held] = {}
        self._masked: dict[tuple[SSAValue, Shape, tuple[int, ...], str], Held] = {}
        self._inside: dict[tuple[Shape, Shape, tuple[int, ...]], SSAValue] = {}

    def fit(self, held: Held, shape: Shape) -> Held:
        """The value with these extents: cut off, or with zeros behind it."""
        if held.shape == shape:
            return held
        key = held.value, shape
        if key not in self._fitted:
            self._fitted[key] = self._fit(held, shape)
        return self._fitted[key]

    def _fit(self, held: Held, shape: Shape) -> Held:
        b, x = self.builder, held.value
        constant = splat_of(x)
        if constant is not None:
            return replace(held, value=b.full(shape, types.element_of(x), constant))
        low = tuple(map(min, held.shape, shape))
        if low != held.shape:
            x = b.slice(x, [0] * len(low), low)
        uniform, pads = held.uniform, {d: c for d, c in held.pads.items() if shape[d] > held.true[d]}
        if low != shape:
            zero = types.numpy_dtype(types.element_of(x)).type(0)
            x = self._extend(x, shape)
            if uniform is not None:
                pads = {d: uniform for d in range(len(shape)) if low[d] > held.true[d]}
            uniform = uniform if uniform is not None and same(uniform, zero) else None
            # Where two dimensions are both beyond their extents there are zeros now.
            pads = {d: c for d, c in pads.items() if same(c, zero)}
            pads.update({d: zero for d in range(len(shape)) if shape[d] > low[d] == held.true[d]})
        return Held(x, held.true, uniform, pads)

    def _extend(self, x: SSAValue, shape: Shape) -> SSAValue:
        """Zeros behind `x` up to this shape."""
        b, have = self.builder, types.shape_of(x)
        if not types.is_complex(types.element_of(x)):
            return b.pad(x, 0, [0] * len(have), list(map(operator.sub, shape, have)))
        for d in range(len(shape)):  # a padding value is a real number
            now = types.shape_of(x)
            if now[d] < shape[d]:
                zeros = b.full((*now[:d], shape[d] - now[d], *now[d + 1 :]), types.element_of(x), 0)
                x = b.concatenate([x, zeros], d)
        return x

    def mask(self, held: Held, dims: Sequence[int], kind: str) -> Held:
        """The value with what is neutral to a reduction of `kind` in the padding of these dimensions."""
        neutral = identity(kind, types.numpy_dtype(types.element_of(held.value)))
        dims = [d for d in held.grown if d in dims and not is_neutral(held.pad(d), kind, neutral)]
        if not dims:
            return held
        key = held.value, held.true, tuple(dims), kind
        if key not in self._masked:
            number = python_number(neutral)
            other = self.builder.full_like(held.value, number)
            value = self.builder.select(self.inside(held.shape, held.true, dims), held.value, other)
            known = {d: held.pad(d) for d in held.grown if d not in dims}
            pads = {d: c for d, c in known.items() if c is not None and same(c, neutral)}
            pads.update({d: _scalar(neutral) for d in dims})
            self._masked[key] = Held(value, held.true, None, pads)
        return self._masked[key]

    def inside(self, shape: Shape, true: Shape, dims: Sequence[int]) -> SSAValue:
        """``i1[shape]``: which elements lie before the true extents of these dimensions."""
        key = shape, tuple(true[d] for d in dims), tuple(dims)
        if key not in self._inside:
            b, out = self.builder, None
            for d in dims:
                index = b.iota(types.tensor([shape[d]], types.I64), 0)
                here = b.broadcast_in_dim(b.compare(index, b.full_like(index, true[d]), "lt"), shape, [d])
                out = here if out is None else b.and_(out, here)
            assert out is not None
            self._inside[key] = out
        return self._inside[key]


def is_neutral(value: np.generic | None, kind: str, neutral: np.generic | bool | int | float) -> bool:
    """Whether padding of this value changes no reduction of `kind`. A sum takes zeros of either sign."""
    return value is not None and (bool(value == 0) if kind == "sum" else same(value, neutral))


def same(a: object, b: object) -> bool:
    """Equal to the bit."""
    x, y = np.asarray(a), np.asarray(b)
    return x.dtype == y.dtype and x.tobytes() == y.tobytes()


def _scalar(value: np.generic | bool | int | float) -> np.generic:
    return np.asarray(value)[()]  # type: ignore[return-value]
