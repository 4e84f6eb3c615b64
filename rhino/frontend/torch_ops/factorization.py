"""Dense factorizations: LU as a loop, QR unrolled; every step is elementwise arithmetic on whole matrices.

What is unrolled is for matrices of up to `LARGEST` rows, so that the graph stays small. Rows below a pivot are chosen
by masks and never cut out; batch dimensions can be split. Real numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.ir import types
from rhino.ir.errors import UnsupportedError

#: Rows or columns of the largest matrix that is factorized.
LARGEST = 64


def check_size(name: str, *extents: int) -> None:
    """Raises UnsupportedError where unrolling would give too large a program."""
    if max(extents, default=0) > LARGEST:
        raise UnsupportedError(
            f"{name} of a matrix with {max(extents)} rows or columns",
            remedy=f"matrices of up to {LARGEST} can be factorized",
        )


def check_real(name: str, x: SSAValue) -> None:
    if not types.is_float(types.element_of(x)):
        raise UnsupportedError(f"{name} of {types.show(x.type)}", remedy="use real floating-point numbers")


def flipped(b: Builder, x: SSAValue) -> SSAValue:
    """The transposed matrices."""
    rank = len(types.shape_of(x))
    return b.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def column(b: Builder, x: SSAValue, k: int) -> SSAValue:
    """Column k: ``[..., m, n] -> [..., m]``."""
    return _cut(b, x, len(types.shape_of(x)) - 1, k)


def row(b: Builder, x: SSAValue, k: int) -> SSAValue:
    """Row k: ``[..., m, n] -> [..., n]``."""
    return _cut(b, x, len(types.shape_of(x)) - 2, k)


def entry(b: Builder, x: SSAValue, i: int, j: int) -> SSAValue:
    return _cut(b, row(b, x, i), len(types.shape_of(x)) - 2, j)


def _cut(b: Builder, x: SSAValue, dim: int, k: int) -> SSAValue:
    shape = types.shape_of(x)
    low, high = [0] * len(shape), list(shape)
    low[dim], high[dim] = k, k + 1
    return b.reshape(b.slice(x, low, high), [n for d, n in enumerate(shape) if d != dim])


def stacked(b: Builder, xs: Sequence[SSAValue], dim: int) -> SSAValue:
    """Values side by side along a new dimension."""
    shape = list(types.shape_of(xs[0]))
    dim = dim % (len(shape) + 1)
    pieces = [b.reshape(x, [*shape[:dim], 1, *shape[dim:]]) for x in xs]
    return pieces[0] if len(pieces) == 1 else b.concatenate(pieces, dim)


def outer(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
    """``[..., m], [..., n] -> [..., m, n]``"""
    *batch, m = types.shape_of(x)
    n = types.shape_of(y)[-1]
    lead = list(range(len(batch)))
    left = b.broadcast_in_dim(x, [*batch, m, n], [*lead, len(batch)])
    return b.mul(left, b.broadcast_in_dim(y, [*batch, m, n], [*lead, len(batch) + 1]))


def scaled(b: Builder, x: SSAValue, factor: SSAValue) -> SSAValue:
    """Vectors ``[..., n]`` times numbers ``[...]``."""
    return b.mul(x, along(b, factor, x))


def along(b: Builder, value: SSAValue, like: SSAValue) -> SSAValue:
    """``[...]`` spread over the further dimensions of `like`."""
    shape = types.shape_of(like)
    return b.broadcast_in_dim(value, list(shape), list(range(len(types.shape_of(value)))))


def counter(b: Builder, x: SSAValue, dim: int) -> SSAValue:
    """Positions along a dimension, in the shape of `x`."""
    shape = types.shape_of(x)
    return b.iota(types.tensor(shape, types.I64), dim % len(shape))


def where_count(b: Builder, x: SSAValue, dim: int, direction: str, k: int) -> SSAValue:
    """Where the position along a dimension is at, above, below (...) k."""
    at = counter(b, x, dim)
    return b.compare(at, b.full_like(at, k), direction)


def triangle(b: Builder, x: SSAValue, upper: bool, diagonal: bool = True) -> SSAValue:
    """The upper or lower triangle, with or without its diagonal; zeros elsewhere."""
    i, j = counter(b, x, -2), counter(b, x, -1)
    direction = ("le" if diagonal else "lt") if upper else ("ge" if diagonal else "gt")
    return b.select(b.compare(i, j, direction), x, b.full_like(x, 0))


def identity(b: Builder, like: SSAValue, rows: int, columns: int) -> SSAValue:
    """Identity matrices with the batch dimensions and element type of `like`."""
    shape = [*types.shape_of(like)[:-2], rows, columns]
    type = types.tensor(shape, types.I64)
    rank = len(shape)
    return b.convert(b.compare(b.iota(type, rank - 2), b.iota(type, rank - 1), "eq"), types.element_of(like))


def product(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
    """Matrix product over equal batch dimensions."""
    lead = list(range(len(types.shape_of(x)) - 2))
    return b.dot_general(x, y, batch=(lead, lead), contract=((-1,), (-2,)))


def diagonal_of(b: Builder, x: SSAValue) -> SSAValue:
    """``[..., m, n] -> [..., min(m, n)]``"""
    *_, m, n = types.shape_of(x)
    kept = triangle(b, triangle(b, x, True), False)
    rank = len(types.shape_of(x))
    return b.reduce(kept, [rank - 2 if n <= m else rank - 1], "sum")


def substitute(b: Builder, a: SSAValue, y: SSAValue, upper: bool, unit: bool) -> SSAValue:
    """x of ``a x = y`` for a triangular `a`, of which only that triangle is read."""
    return b.triangular_solve(a, y, lower=not upper, unit_diagonal=unit)


def pivots_of(b: Builder, a: SSAValue) -> SSAValue:
    """The numbers ``[..., n]`` of which Cholesky's factorization takes roots, in order."""
    n = types.shape_of(a)[-1]
    check_real("cholesky", a)
    check_size("the state of a Cholesky factorization", n)
    pivots = []
    for k in range(n):
        pivot = entry(b, a, k, k)
        pivots.append(pivot)
        whole = column(b, a, k)
        values = b.div(whole, along(b, b.sqrt(pivot), whole))
        values = b.select(where_count(b, values, -1, "ge", k), values, b.full_like(values, 0))
        a = b.sub(a, outer(b, values, values))
    return stacked(b, pivots, -1)


def first_failure(b: Builder, good: SSAValue) -> SSAValue:
    """Number (i32, from one) of the first False along the last dimension; zero where there is none."""
    rank = len(types.shape_of(good))
    first = b.add(
        b.argmin(b.convert(good, types.I32), rank - 1), b.full(types.shape_of(good)[:-1], types.I64, 1)
    )
    none = b.reduce(good, [rank - 1], "and")
    return b.convert(b.select(none, b.full_like(first, 0), first), types.I32)


@dataclass(frozen=True)
class Lu:
    """Rows of a matrix, reordered by `order`, as L U.

    Attributes:
        packed: U in the upper triangle, L (with ones on its diagonal) below it.
        pivots: i32 ``[..., k]``: the row, counted from one, that step k exchanged with row k.
        order: i64 ``[..., m]``: the original number of each row.
        parity: ``[...]``: 1 or -1, the sign of the exchanges.
    """

    packed: SSAValue
    pivots: SSAValue
    order: SSAValue
    parity: SSAValue


def lu(b: Builder, a: SSAValue, pivot: bool = True) -> Lu:
    """Gaussian elimination with partial pivoting, as LAPACK's getrf orders it: a loop over the pivots."""
    *batch, m, n = types.shape_of(a)
    steps = min(m, n)
    check_real("the LU factorization", a)
    order = b.iota(types.tensor([*batch, m], types.I64), len(batch))
    parity = b.full(batch, types.element_of(a), 1)
    pivots = b.full([*batch, steps], types.I64, 0)

    def more(b: Builder, k: SSAValue, *_: SSAValue) -> list[SSAValue]:
        return [b.compare(k, b.full_like(k, steps), "lt")]

    def turn(
        b: Builder, k: SSAValue, a: SSAValue, order: SSAValue, parity: SSAValue, pivots: SSAValue
    ) -> list[SSAValue]:
        at = b.broadcast_in_dim(k, batch, [])
        if pivot:
            size = b.abs(b.stop_gradient(_cut_at(b, a, -1, k)))
            size = b.select(_where_at(b, size, -1, "ge", k), size, b.full_like(size, -1))
            at = b.argmax(size, len(batch))
            swap = _exchange(b, order, k, at)
            rows = b.broadcast_in_dim(swap, [*batch, m, n], list(range(len(batch) + 1)))
            a, order = b.take_along(a, rows, -2), b.take_along(order, swap, -1)
            same = b.compare(at, b.broadcast_in_dim(k, batch, []), "eq")
            parity = b.select(same, parity, b.negate(parity))
        found = along(b, b.add(at, b.full_like(at, 1)), pivots)
        pivots = b.select(_where_at(b, pivots, -1, "eq", k), found, pivots)
        values, right = _cut_at(b, a, -1, k), _cut_at(b, a, -2, k)
        head = _cut_at(b, right, -1, k)
        head = b.select(b.compare(head, b.full_like(head, 0), "eq"), b.full_like(head, 1), head)
        below = _where_at(b, values, -1, "gt", k)
        factors = b.select(below, b.div(values, along(b, head, values)), b.full_like(values, 0))
        right = b.select(_where_at(b, right, -1, "gt", k), right, b.full_like(right, 0))
        a = b.sub(a, outer(b, factors, right))
        here = b.and_(_where_at(b, a, -1, "eq", k), _where_at(b, a, -2, "gt", k))
        a = b.select(here, along(b, factors, a), a)
        return [b.add(k, b.full_like(k, 1)), a, order, parity, pivots]

    if steps:
        start = b.full([], types.I64, 0)
        _, a, order, parity, pivots = b.while_([start, a, order, parity, pivots], [], more, turn)
    return Lu(a, b.convert(pivots, types.I32), order, parity)


def _cut_at(b: Builder, x: SSAValue, dim: int, k: SSAValue) -> SSAValue:
    """`x` at position k, an i64 scalar, of a dimension, which is removed."""
    sizes = list(types.shape_of(x))
    dim = dim % len(sizes)
    zero = b.full_like(k, 0)
    starts = [k if d == dim else zero for d in range(len(sizes))]
    part = b.dynamic_slice(x, starts, [1 if d == dim else n for d, n in enumerate(sizes)])
    return b.reshape(part, [n for d, n in enumerate(sizes) if d != dim])


def _where_at(b: Builder, x: SSAValue, dim: int, direction: str, k: SSAValue) -> SSAValue:
    """Where the position along a dimension is at, above, below (...) k, an i64 scalar."""
    at = counter(b, x, dim)
    return b.compare(at, b.broadcast_in_dim(k, list(types.shape_of(x)), []), direction)


def _exchange(b: Builder, order: SSAValue, k: SSAValue, at: SSAValue) -> SSAValue:
    """Positions with k, an i64 scalar, and `at` exchanged."""
    count = counter(b, order, -1)
    here, other = b.broadcast_in_dim(k, list(types.shape_of(order)), []), along(b, at, count)
    swap = b.select(b.compare(count, other, "eq"), here, count)
    return b.select(b.compare(count, here, "eq"), other, swap)


def order_of(b: Builder, pivots: SSAValue, m: int) -> SSAValue:
    """The `order` that belongs to pivots of m rows."""
    *batch, k = types.shape_of(pivots)
    order = b.iota(types.tensor([*batch, m], types.I64), len(batch))
    pivots = b.convert(pivots, types.I64)
    for step in range(k if math.prod(batch) else 0):
        at = _cut(b, pivots, len(batch), step)
        here = b.full([], types.I64, step)
        order = b.take_along(order, _exchange(b, order, here, b.sub(at, b.full_like(at, 1))), -1)
    return order


def reordered(b: Builder, x: SSAValue, order: SSAValue) -> SSAValue:
    """Rows of ``x[..., m, n]`` in another order."""
    shape = types.shape_of(x)
    index = b.broadcast_in_dim(order, list(shape), list(range(len(shape) - 1)))
    return b.take_along(x, index, -2)


def permutation(b: Builder, order: SSAValue, element: object) -> SSAValue:
    """P with P L U the original matrix: row r of column i is one where `order[i]` is r."""
    *batch, m = types.shape_of(order)
    spread = b.broadcast_in_dim(order, [*batch, m, m], [*range(len(batch)), len(batch) + 1])
    return b.convert(b.compare(counter(b, spread, -2), spread, "eq"), element)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Reflections:
    """Householder's reflections H_k = 1 - tau_k v_k v_k^T of a matrix: H_1 ... H_k R is the matrix."""

    vectors: tuple[SSAValue, ...]
    taus: tuple[SSAValue, ...]
    r: SSAValue

    def apply(self, b: Builder, x: SSAValue, transposed: bool = False) -> SSAValue:
        """Q x, or Q^T x."""
        pairs = list(zip(self.vectors, self.taus, strict=True))
        for v, tau in pairs if transposed else pairs[::-1]:
            x = _reflected(b, x, v, tau)
        return x


def _reflected(b: Builder, x: SSAValue, v: SSAValue, tau: SSAValue) -> SSAValue:
    lead = list(range(len(types.shape_of(v)) - 1))
    inner = b.dot_general(v, x, batch=(lead, lead), contract=((-1,), (-2,)))
    return b.sub(x, outer(b, scaled(b, v, tau), inner))


def householder(b: Builder, a: SSAValue) -> Reflections:
    """Reflections as LAPACK's geqrf makes them, signs included."""
    *_, m, n = types.shape_of(a)
    check_real("the QR factorization", a)
    check_size("the QR factorization", m, n)
    vectors, taus = [], []
    for k in range(min(m, n)):
        whole, alpha = column(b, a, k), entry(b, a, k, k)
        zero, one = b.full_like(alpha, 0), b.full_like(alpha, 1)
        below = where_count(b, whole, -1, "gt", k)
        tail = b.select(below, whole, b.full_like(whole, 0))
        square = b.reduce(b.mul(tail, tail), [len(types.shape_of(tail)) - 1], "sum")
        done = b.compare(square, zero, "eq")
        norm = b.sqrt(b.add(b.mul(alpha, alpha), b.select(done, one, square)))
        beta = b.select(b.compare(alpha, zero, "lt"), norm, b.negate(norm))
        tau = b.select(done, zero, b.div(b.sub(beta, alpha), beta))
        v = b.div(tail, along(b, b.select(done, one, b.sub(alpha, beta)), tail))
        v = b.select(where_count(b, v, -1, "eq", k), b.full_like(v, 1), v)
        a = _reflected(b, a, v, tau)
        vectors.append(v)
        taus.append(tau)
    return Reflections(tuple(vectors), tuple(taus), a)


def unpacked(b: Builder, packed: SSAValue, taus: SSAValue) -> Reflections:
    """Reflections from what geqrf gives out."""
    check_size("a product of reflections", *types.shape_of(packed)[-2:])
    vectors, numbers = [], []
    for k in range(types.shape_of(taus)[-1]):
        v = column(b, packed, k)
        v = b.select(where_count(b, v, -1, "gt", k), v, b.full_like(v, 0))
        vectors.append(b.select(where_count(b, v, -1, "eq", k), b.full_like(v, 1), v))
        numbers.append(_cut(b, taus, len(types.shape_of(taus)) - 1, k))
    return Reflections(tuple(vectors), tuple(numbers), triangle(b, packed, True))
