"""Eigenvalues of symmetric matrices and singular values, by Jacobi's rotations: a loop over pairs of columns.

Values come from the loop, which derivatives do not enter. What they see is the first order of perturbation theory
around the values found, so that gradients are exact however the loop went. Real numbers only; batch dimensions can be
split.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.frontend.torch_ops import factorization as f
from rhino.frontend.torch_ops.context import Handler, Number, OpContext
from rhino.frontend.torch_ops.linalg import symmetric
from rhino.ir import types

#: Turns over all pairs. Jacobi's method converges quadratically: 6 to 10 are what double precision needs.
SWEEPS = 15

#: Sine and cosine of the rotation of columns p and q, from the matrix and what picks the two columns.
Angle = Callable[[Builder, SSAValue, SSAValue, SSAValue], tuple[SSAValue, SSAValue]]


def _rotations(b: Builder, a: SSAValue, angle: Angle, both_sides: bool) -> tuple[SSAValue, SSAValue]:
    """`a` times all rotations (for `both_sides` between their transposes too), and their product."""
    *batch, _, n = types.shape_of(a)
    element = types.element_of(a)
    vectors = f.identity(b, a, n, n)
    pairs = np.array([(p, q) for p in range(n) for q in range(p + 1, n)], np.int64).reshape(-1, 2)
    if not len(pairs):
        return a, vectors
    table = b.constant(pairs, types.tensor(pairs.shape, types.I64))

    def more(b: Builder, k: SSAValue, *_: SSAValue) -> list[SSAValue]:
        return [b.compare(k, b.full_like(k, SWEEPS * len(pairs)), "lt")]

    def turn(b: Builder, k: SSAValue, a: SSAValue, vectors: SSAValue, table: SSAValue) -> list[SSAValue]:
        at = b.rem(k, b.full_like(k, len(pairs)))
        picks: list[SSAValue] = []
        for side in range(2):
            number = b.reshape(b.dynamic_slice(table, [at, b.full_like(at, side)], [1, 1]), [])
            count = b.iota(types.tensor([n], types.I64), 0)
            here = b.compare(count, b.broadcast_in_dim(number, [n], []), "eq")
            picks.append(b.broadcast_in_dim(b.convert(here, element), [*batch, n], [len(batch)]))
        p, q = picks
        sine, cosine = angle(b, a, p, q)
        turned = _rotation(b, p, q, sine, cosine)
        a = f.product(b, a, turned)
        if both_sides:
            a = f.product(b, f.flipped(b, turned), a)
        return [b.add(k, b.full_like(k, 1)), a, f.product(b, vectors, turned)]

    start = b.full([], types.I64, 0)
    _, a, vectors = b.while_([start, a, vectors], [table], more, turn)
    return a, vectors


def _rotation(b: Builder, p: SSAValue, q: SSAValue, sine: SSAValue, cosine: SSAValue) -> SSAValue:
    """The identity but for cosines at (p, p) and (q, q), the sine at (p, q), and minus it at (q, p)."""
    n = types.shape_of(p)[-1]
    less = b.sub(cosine, b.full_like(cosine, 1))
    on = b.add(f.outer(b, f.scaled(b, p, less), p), f.outer(b, f.scaled(b, q, less), q))
    off = f.outer(b, f.scaled(b, p, sine), q)
    off = b.sub(off, f.flipped(b, off))
    return b.add(f.identity(b, on, n, n), b.add(on, off))


def _apart(b: Builder, alpha: SSAValue, beta: SSAValue, gamma: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Sine and cosine that make the matrix (alpha gamma, gamma beta) diagonal (Golub and Van Loan, 8.5.2)."""
    zero, one = b.full_like(gamma, 0), b.full_like(gamma, 1)
    none = b.compare(gamma, zero, "eq")
    ratio = b.div(b.sub(beta, alpha), b.select(none, one, b.add(gamma, gamma)))
    root = b.sqrt(b.add(one, b.mul(ratio, ratio)))
    sign = b.select(b.compare(ratio, zero, "lt"), b.negate(one), one)
    tangent = b.select(none, zero, b.div(sign, b.add(b.abs(ratio), root)))
    cosine = b.rsqrt(b.add(one, b.mul(tangent, tangent)))
    return b.mul(tangent, cosine), cosine


def _inner(b: Builder, x: SSAValue, y: SSAValue) -> SSAValue:
    return b.reduce(b.mul(x, y), [len(types.shape_of(x)) - 1], "sum")


def _applied(b: Builder, a: SSAValue, x: SSAValue) -> SSAValue:
    """Matrices times vectors."""
    lead = list(range(len(types.shape_of(x)) - 1))
    return b.dot_general(a, x, batch=(lead, lead), contract=((-1,), (-1,)))


def _symmetric_angle(b: Builder, a: SSAValue, p: SSAValue, q: SSAValue) -> tuple[SSAValue, SSAValue]:
    ap, aq = _applied(b, a, p), _applied(b, a, q)
    return _apart(b, _inner(b, p, ap), _inner(b, q, aq), _inner(b, p, aq))


def _column_angle(b: Builder, a: SSAValue, p: SSAValue, q: SSAValue) -> tuple[SSAValue, SSAValue]:
    """What makes two columns orthogonal (Hestenes 1958)."""
    x, y = _applied(b, a, p), _applied(b, a, q)
    return _apart(b, _inner(b, x, x), _inner(b, y, y), _inner(b, x, y))


def _sorted(b: Builder, values: SSAValue, descending: bool, *matrices: SSAValue) -> list[SSAValue]:
    """Values in order, and the columns of matrices with them."""
    rank = len(types.shape_of(values))
    values, order = b.sort([values, f.counter(b, values, -1)], rank - 1, descending)
    out = [values]
    for x in matrices:
        index = b.broadcast_in_dim(order, list(types.shape_of(x)), [*range(rank - 1), rank])
        out.append(b.take_along(x, index, -1))
    return out


def _differences(b: Builder, values: SSAValue) -> SSAValue:
    """``1 / (values[j] - values[i])``; zero where they are equal."""
    *batch, n = types.shape_of(values)
    lead = list(range(len(batch)))
    columns = b.broadcast_in_dim(values, [*batch, n, n], [*lead, len(batch) + 1])
    rows = b.broadcast_in_dim(values, [*batch, n, n], [*lead, len(batch)])
    gap = b.sub(columns, rows)
    zero = b.full_like(gap, 0)
    same = b.compare(gap, zero, "eq")
    return b.select(same, zero, b.div(b.full_like(gap, 1), b.select(same, b.full_like(gap, 1), gap)))


def _change(b: Builder, a: SSAValue) -> SSAValue:
    """Zero, with the derivative of `a`."""
    return b.sub(a, b.stop_gradient(a))


def symmetric_eigen(b: Builder, a: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Eigenvalues in ascending order and eigenvectors of symmetric matrices."""
    f.check_real("eigenvalues", a)
    rotated, vectors = _rotations(b, b.stop_gradient(a), _symmetric_angle, True)
    values, vectors = _sorted(b, f.diagonal_of(b, rotated), False, vectors)
    inner = f.product(b, f.flipped(b, vectors), f.product(b, _change(b, a), vectors))
    mixed = b.mul(b.stop_gradient(_differences(b, values)), inner)
    return b.add(values, f.diagonal_of(b, inner)), b.add(vectors, f.product(b, vectors, mixed))


def singular(b: Builder, a: SSAValue, orthonormal: bool = True) -> tuple[SSAValue, SSAValue, SSAValue]:
    """U, singular values in descending order, V of matrices with no fewer rows than columns: a = U diag(s) V^T.

    Columns of U that belong to the singular value zero are zero unless U is to be `orthonormal`; then they are those
    of the identity for a matrix of zeros, as LAPACK has it.
    """
    f.check_real("singular values", a)
    fixed = b.stop_gradient(a)
    rotated, v = _rotations(b, fixed, _column_angle, False)
    squares = b.reduce(b.mul(rotated, rotated), [len(types.shape_of(a)) - 2], "sum")
    s, rotated, v = _sorted(b, b.sqrt(squares), True, rotated, v)
    inverse = b.select(b.compare(s, b.full_like(s, 0), "gt"), b.div(b.full_like(s, 1), s), b.full_like(s, 0))
    u = _columns_scaled(b, rotated, inverse)
    u = _filled(b, u, s) if orthonormal else u
    change = _change(b, a)
    inner = f.product(b, f.flipped(b, u), f.product(b, change, v))
    gaps = b.stop_gradient(_differences(b, b.mul(s, s)))
    turned = f.flipped(b, inner)
    left = b.mul(gaps, b.add(_columns_scaled(b, inner, s), _rows_scaled(b, turned, s)))
    right = b.mul(gaps, b.add(_rows_scaled(b, inner, s), _columns_scaled(b, turned, s)))
    du, dv = f.product(b, u, left), f.product(b, v, right)
    out = _columns_scaled(b, f.product(b, change, v), inverse)
    out = b.sub(out, f.product(b, u, f.product(b, f.flipped(b, u), out)))
    return b.add(u, b.add(du, out)), b.add(s, f.diagonal_of(b, inner)), b.add(v, dv)


def _filled(b: Builder, u: SSAValue, s: SSAValue) -> SSAValue:
    """`u` with orthonormal columns in place of those that belong to singular values of zero, up to rounding."""
    shape = list(types.shape_of(u))
    *batch, m, n = shape
    eps = float(np.finfo(types.numpy_dtype(types.element_of(s))).eps) * max(m, n)
    largest = f.along(b, b.mul(b.reduce(s, [len(batch)], "max"), b.full(batch, types.element_of(s), eps)), s)
    real = b.broadcast_in_dim(b.compare(s, largest, "gt"), shape, [*range(len(batch)), len(batch) + 1])
    known = b.select(real, u, b.full_like(u, 0))
    whole = f.householder(b, known).apply(b, f.identity(b, u, m, n))
    return b.select(real, u, whole)


def _columns_scaled(b: Builder, x: SSAValue, factor: SSAValue) -> SSAValue:
    shape = list(types.shape_of(x))
    return b.mul(x, b.broadcast_in_dim(factor, shape, [*range(len(shape) - 2), len(shape) - 1]))


def _rows_scaled(b: Builder, x: SSAValue, factor: SSAValue) -> SSAValue:
    shape = list(types.shape_of(x))
    return b.mul(x, b.broadcast_in_dim(factor, shape, list(range(len(shape) - 1))))


def eigh(c: OpContext, a: SSAValue, uplo: str = "L", compute_v: bool = True) -> list[SSAValue]:
    """Values and vectors; gradients are symmetric, as torch's are."""
    b = c.b
    if math.prod(types.shape_of(a)) == 0:
        return [b.full(types.shape_of(a)[:-1], c.element, 0), a]
    values, vectors = symmetric_eigen(b, symmetric(c, a, uplo.upper() == "U"))
    return [values, vectors if compute_v else b.full([0], c.element, 0)]


def svd(
    c: OpContext,
    a: SSAValue,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> list[SSAValue]:
    """U, S, V^T"""
    b = c.b
    *batch, m, n = types.shape_of(a)
    if math.prod(types.shape_of(a)) == 0:
        rows, columns = (n, m) if full_matrices else (min(m, n),) * 2
        u, vh = f.identity(b, a, m, columns), f.identity(b, a, rows, n)
        s = b.full([*batch, min(m, n)], c.element, 0)
    else:
        u, s, v = singular(b, a if m >= n else f.flipped(b, a))
        if full_matrices:
            u = _completed(b, u)
        u, v = (u, v) if m >= n else (v, u)
        vh = f.flipped(b, v)
    if not compute_uv:
        u = vh = b.full([0], c.element, 0)
    return [u, s, vh]


def _completed(b: Builder, u: SSAValue) -> SSAValue:
    """Orthonormal columns with those that are missing for a square matrix."""
    *batch, m, n = types.shape_of(u)
    if m == n:
        return u
    whole = f.householder(b, b.stop_gradient(u)).apply(b, f.identity(b, u, m, m))
    rank = len(batch) + 2
    low = [0] * (rank - 1) + [n]
    return b.concatenate([u, b.slice(whole, low, [*batch, m, m])], rank - 1)


def pinv(
    c: OpContext,
    a: SSAValue,
    *,
    atol: SSAValue | Number | None = None,
    rtol: SSAValue | Number | None = None,
    hermitian: bool = False,
) -> SSAValue:
    """The pseudo-inverse: singular values up to max(atol, rtol times the largest) count as zero.

    Its derivative is that of Golub and Pereyra (1973), which holds where the rank does not change. For `hermitian`
    values come from the lower triangle, and the derivative, as torch's, from all elements: it holds where `a` is
    symmetric.
    """
    b = c.b
    *batch, m, n = types.shape_of(a)
    element = types.element_of(a)
    if math.prod(types.shape_of(a)) == 0:
        return b.full(list(c.shape), c.element, 0)
    fixed = b.stop_gradient(a)
    read = symmetric(c, fixed, False) if hermitian else fixed
    u, s, v = singular(b, read if m >= n else f.flipped(b, read), orthonormal=False)
    u, v = (u, v) if m >= n else (v, u)

    def bound(value: SSAValue | Number | None, default: float) -> SSAValue:
        return c.operand(default if value is None else value, element, batch)

    eps = float(np.finfo(types.numpy_dtype(element)).eps) * max(m, n)
    largest = b.reduce(s, [len(batch)], "max")
    absolute = bound(atol, 0.0)
    relative = bound(rtol, eps if atol is None else 0.0)
    if atol is not None and rtol is None:  # the default holds where no absolute bound is given
        none = b.compare(absolute, b.full_like(absolute, 0), "gt")
        relative = b.select(none, b.full_like(relative, 0), b.full_like(relative, eps))
    limit = f.along(b, b.maximum(absolute, b.mul(relative, largest)), s)
    kept = b.compare(s, limit, "gt")
    inverse = b.select(
        kept, b.div(b.full_like(s, 1), b.select(kept, s, b.full_like(s, 1))), b.full_like(s, 0)
    )
    p = b.stop_gradient(f.product(b, _columns_scaled(b, v, inverse), f.flipped(b, u)))
    change = _change(b, a)
    pt, ct = f.flipped(b, p), f.flipped(b, change)
    first = f.product(b, p, f.product(b, change, p))
    second = f.product(b, f.product(b, p, pt), ct)
    second = b.sub(second, f.product(b, second, f.product(b, fixed, p)))
    third = f.product(b, ct, f.product(b, pt, p))
    third = b.sub(third, f.product(b, f.product(b, p, fixed), third))
    return b.add(p, b.add(b.sub(second, first), third))


ATEN: dict[str, Handler] = {
    "aten._linalg_eigh.default": eigh,
    "aten._linalg_svd.default": svd,
    "aten.linalg_pinv.atol_rtol_tensor": pinv,
}
