"""A kernel as plain values: what it loads, computes and stores, with the shape of its loops. No xDSL, no Triton.

The loop shape is split in rows (leading dims) and columns (the last `cols` dims; 0 means one flat loop). A value
is *full* (one element per loop point) or a *row* value (one per row, what a reduction leaves).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Buffer:
    """A tensor argument of the kernel: contiguous, row-major."""

    name: str
    shape: tuple[int, ...]
    element: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Load:
    """``result = buffer[sum(strides[d] * index[d])]`` over all loop dims; stride 0 is a broadcast."""

    result: str
    buffer: Buffer
    strides: tuple[int, ...]
    row: bool


@dataclass(frozen=True)
class Compute:
    """``result = text.format(*arguments)``, an elementwise expression of computed values."""

    result: str
    text: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Reduce:
    """``result = kind over the columns of argument``; the result is a row value."""

    result: str
    kind: str
    argument: str


@dataclass(frozen=True)
class Store:
    """Write a value to a buffer of the loop shape (or of the row shape)."""

    buffer: Buffer
    value: str
    row: bool


Statement = Load | Compute | Reduce | Store


@dataclass(frozen=True)
class Dot:
    """Strides (in elements) of a batched matmul's operands over its loop dims and contracted dims.

    `lhs` is indexed by batch and row dims plus the contracted dims, `rhs` by batch and column dims plus them.
    The loop shape is ``batch + rows + columns``.
    """

    result: str
    lhs: Buffer
    rhs: Buffer
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    contracted: tuple[int, ...]
    lhs_strides: tuple[int, ...]
    rhs_strides: tuple[int, ...]


@dataclass(frozen=True)
class KernelSpec:
    """One kernel. `dot` is set for matmuls, whose statements are the epilogue.

    Attributes:
        loop: extents of the loop dims.
        cols: how many trailing loop dims are columns.
        buffers: all tensor arguments in order, inputs then outputs.
    """

    kind: str
    loop: tuple[int, ...]
    cols: int
    buffers: tuple[Buffer, ...]
    statements: tuple[Statement, ...]
    dot: Dot | None = None

    @property
    def points(self) -> int:
        return math.prod(self.loop)

    @property
    def row_count(self) -> int:
        return math.prod(self.loop[: len(self.loop) - self.cols])

    @property
    def column_count(self) -> int:
        return math.prod(self.loop[len(self.loop) - self.cols :])

    @property
    def flops(self) -> int:
        if self.dot is None:
            return self.points * sum(isinstance(s, Compute | Reduce) for s in self.statements)
        return 2 * self.points * math.prod(self.dot.contracted)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of a shape, in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def offset(extents: tuple[int, ...], strides: tuple[int, ...], variable: str) -> str:
    """The expression ``sum(stride * index)`` where the indices are the mixed-radix digits of `variable`.

    Neighbouring dims whose strides continue one another are read as one, so a contiguous tensor costs no division.
    """
    runs: list[tuple[int, int]] = []  # (extent, stride), major to minor
    for extent, stride in zip(extents, strides, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == stride * extent:
            runs[-1] = (runs[-1][0] * extent, stride)
        else:
            runs.append((extent, stride))
    terms, minor = [], 1
    for position, (extent, stride) in enumerate(reversed(runs)):
        outermost = position == len(runs) - 1
        if stride:
            index = variable if minor == 1 else f"({variable} // {minor})"
            if not outermost:
                index = f"({index} % {extent})"
            terms.append(index if stride == 1 else f"{index} * {stride}")
        minor *= extent
    return " + ".join(reversed(terms))
