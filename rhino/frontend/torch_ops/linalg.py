"""Linear algebra: solutions, determinants, inverses and factors, from `factorization`."""

from __future__ import annotations

import math
import operator

import torch
from xdsl.ir import SSAValue

from rhino.frontend.torch_ops import factorization as f
from rhino.frontend.torch_ops.context import Handler, Number, OpContext
from rhino.ir import types


def symmetric(c: OpContext, a: SSAValue, upper: bool) -> SSAValue:
    """The symmetric matrix of which one triangle is read; gradients are symmetric, as torch's are."""
    b = c.b
    part = f.triangle(b, a, upper)
    mirrored = b.add(part, f.flipped(b, f.triangle(b, a, upper, diagonal=False)))
    mean = b.mul(b.add(a, f.flipped(b, a)), c.full(0.5, a))
    return b.add(mean, b.stop_gradient(b.sub(mirrored, mean)))


def _empty(x: SSAValue) -> bool:
    return math.prod(types.shape_of(x)) == 0


def _info(c: OpContext, x: SSAValue) -> SSAValue:
    return c.b.full(types.shape_of(x)[:-2], types.I32, 0)


def cholesky_ex(
    c: OpContext, a: SSAValue, *, upper: bool = False, check_errors: bool = False
) -> list[SSAValue]:
    if _empty(a):
        return [a, _info(c, a)]
    whole = symmetric(c, a, upper)
    info = _info(c, a)
    if _reads_info(c, 1):
        pivots = f.pivots_of(c.b, c.b.stop_gradient(whole))
        info = f.first_failure(c.b, c.b.compare(pivots, c.full(0, pivots), "gt"))
    factor = c.b.cholesky(whole)
    return [f.flipped(c.b, factor) if upper else factor, info]


def _reads_info(c: OpContext, k: int) -> bool:
    """Whether the program does more with result `k`, LAPACK's state, than to raise an error about it."""
    parts = [u for u in c.node.users if u.target is operator.getitem and u.args[1] == k]
    return any("_linalg_check_errors" not in str(user.target) for part in parts for user in part.users)


def cholesky(c: OpContext, a: SSAValue, upper: bool = False) -> SSAValue:
    return cholesky_ex(c, a, upper=upper)[0]


def _solve_with_factor(c: OpContext, y: SSAValue, factor: SSAValue, upper: bool) -> SSAValue:
    """x of ``L L^T x = y``.

    Values come from the triangle alone. The gradient is torch's, that of L L^T for any square L: the solution is
    linear in the residual of what it was found to be.
    """
    b = c.b
    low = f.flipped(b, factor) if upper else factor
    read = b.stop_gradient(f.triangle(b, low, upper=False))
    whole = b.add(read, b.sub(low, b.stop_gradient(low)))

    def solved(y: SSAValue) -> SSAValue:
        half = f.substitute(b, read, y, upper=False, unit=False)
        return b.triangular_solve(read, half, lower=True, transpose_a="TRANSPOSE")

    found = b.stop_gradient(solved(b.stop_gradient(y)))
    rest = b.sub(y, f.product(b, whole, f.product(b, f.flipped(b, whole), found)))
    return b.add(found, solved(b.sub(rest, b.stop_gradient(rest))))


def cholesky_solve(c: OpContext, y: SSAValue, factor: SSAValue, upper: bool = False) -> SSAValue:
    y, factor = _batched(c, y, factor)
    return y if _empty(y) else _solve_with_factor(c, y, factor, upper)


def cholesky_inverse(c: OpContext, factor: SSAValue, upper: bool = False) -> SSAValue:
    if _empty(factor):
        return factor
    n = types.shape_of(factor)[-1]
    return _solve_with_factor(c, f.identity(c.b, factor, n, n), factor, upper)


def _batched(c: OpContext, *xs: SSAValue) -> list[SSAValue]:
    """Matrices with their batch dimensions broadcast."""
    batch = torch.broadcast_shapes(*[types.shape_of(x)[:-2] for x in xs])
    return [c.broadcast(x, [*batch, *types.shape_of(x)[-2:]]) for x in xs]


def solve_triangular(
    c: OpContext, a: SSAValue, y: SSAValue, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> SSAValue:
    a, y = _batched(c, a, y)
    if _empty(y):
        return y
    if left:
        return f.substitute(c.b, a, y, upper, unitriangular)
    flipped = f.substitute(c.b, f.flipped(c.b, a), f.flipped(c.b, y), not upper, unitriangular)
    return f.flipped(c.b, flipped)


def triangular_solve(
    c: OpContext,
    y: SSAValue,
    a: SSAValue,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> list[SSAValue]:
    a, y = _batched(c, a, y)
    if _empty(y):
        return [y, a]
    system = f.flipped(c.b, a) if transpose else a
    return [f.substitute(c.b, system, y, upper != transpose, unitriangular), a]


def _solved(c: OpContext, factors: f.Lu, y: SSAValue) -> SSAValue:
    half = f.substitute(c.b, factors.packed, f.reordered(c.b, y, factors.order), upper=False, unit=True)
    return f.substitute(c.b, factors.packed, half, upper=True, unit=False)


def _singular(c: OpContext, packed: SSAValue) -> SSAValue:
    """Number of the first zero on the diagonal, or 0."""
    diagonal = f.diagonal_of(c.b, packed)
    return f.first_failure(c.b, c.b.compare(diagonal, c.full(0, diagonal), "ne"))


def inverse_ex(c: OpContext, a: SSAValue, *, check_errors: bool = False) -> list[SSAValue]:
    if _empty(a):
        return [a, _info(c, a)]
    n = types.shape_of(a)[-1]
    factors = f.lu(c.b, a)
    return [_solved(c, factors, f.identity(c.b, a, n, n)), _singular(c, factors.packed)]


def solve_ex(
    c: OpContext, a: SSAValue, y: SSAValue, *, left: bool = True, check_errors: bool = False
) -> list[SSAValue]:
    """Result, LU, pivots, info. A right side with one dimension less is a vector per matrix."""
    b = c.b
    shape_a, shape_y = types.shape_of(a), types.shape_of(y)
    vector = len(shape_y) == 1 or (len(shape_a) - 1 == len(shape_y) and shape_y == shape_a[:-1])
    if vector:
        y = b.reshape(y, [*shape_y, 1])
    if not left:
        a, y = f.flipped(b, a), f.flipped(b, y)
    whole, y = _batched(c, a, y)
    factors = f.lu(b, a) if not _empty(a) else None
    if factors is None or _empty(y):
        empty = b.full(list(c.shape), c.element, 0)
        return [empty, a, b.full(shape_a[:-1], types.I32, 1), _info(c, a)]
    spread = f.Lu(
        _batched(c, factors.packed, y)[0],
        factors.pivots,
        c.broadcast(factors.order, types.shape_of(whole)[:-1]),
        factors.parity,
    )
    x = _solved(c, spread, y)
    x = x if left else f.flipped(b, x)
    return [b.reshape(x, list(c.shape)), factors.packed, factors.pivots, _singular(c, factors.packed)]


def determinant(c: OpContext, a: SSAValue) -> list[SSAValue]:
    """Determinant, LU, pivots."""
    if _empty(a):
        return [c.b.full(list(c.shape), c.element, 1), a, c.b.full(types.shape_of(a)[:-1], types.I32, 1)]
    factors = f.lu(c.b, a)
    diagonal = f.diagonal_of(c.b, factors.packed)
    whole = c.b.reduce(diagonal, [len(c.shape)], "prod")
    return [c.b.mul(factors.parity, whole), factors.packed, factors.pivots]


def log_determinant(c: OpContext, a: SSAValue) -> list[SSAValue]:
    """Sign, log of the absolute value, LU, pivots."""
    b = c.b
    if _empty(a):
        one = b.full(list(c.shape), c.element, 1)
        return [one, c.full(0, one), a, b.full(types.shape_of(a)[:-1], types.I32, 1)]
    factors = f.lu(b, a)
    diagonal = f.diagonal_of(b, factors.packed)
    last = [len(c.shape)]
    sign = b.mul(factors.parity, b.reduce(b.sign(diagonal), last, "prod"))
    logs = b.reduce(b.log(b.abs(diagonal)), last, "sum")
    return [sign, logs, factors.packed, factors.pivots]


def lu_factor_ex(
    c: OpContext, a: SSAValue, *, pivot: bool = True, check_errors: bool = False
) -> list[SSAValue]:
    if _empty(a):
        k = min(types.shape_of(a)[-2:])
        return [a, c.b.full([*types.shape_of(a)[:-2], k], types.I32, 1), _info(c, a)]
    factors = f.lu(c.b, a, pivot)
    return [factors.packed, factors.pivots, _singular(c, factors.packed)]


def _triangles(c: OpContext, packed: SSAValue) -> tuple[SSAValue, SSAValue]:
    b = c.b
    shape = types.shape_of(packed)
    *batch, m, n = shape
    k = min(m, n)
    zeros = [0] * len(shape)
    low = b.slice(packed, zeros, [*batch, m, k])
    low = b.add(f.triangle(b, low, False, diagonal=False), f.identity(b, packed, m, k))
    return low, f.triangle(b, b.slice(packed, zeros, [*batch, k, n]), True)


def lu(c: OpContext, a: SSAValue, *, pivot: bool = True) -> list[SSAValue]:
    """P, L, U"""
    if _empty(a):
        *_, m, n = types.shape_of(a)
        k = min(m, n)
        return [f.identity(c.b, a, m, m), f.identity(c.b, a, m, k), f.identity(c.b, a, k, n)]
    factors = f.lu(c.b, a, pivot)
    order = f.permutation(c.b, factors.order, c.element)
    if not pivot:
        order = c.b.full([0], c.element, 0)
    return [order, *_triangles(c, factors.packed)]


def lu_unpack(
    c: OpContext, packed: SSAValue, pivots: SSAValue, unpack_data: bool = True, unpack_pivots: bool = True
) -> list[SSAValue]:
    b = c.b
    nothing = b.full([0], types.element_of(packed), 0)
    order = nothing
    if unpack_pivots:
        order = f.permutation(b, f.order_of(b, pivots, types.shape_of(packed)[-2]), types.element_of(packed))
    low, up = _triangles(c, packed) if unpack_data else (nothing, nothing)
    return [order, low, up]


def lu_solve(
    c: OpContext, packed: SSAValue, pivots: SSAValue, y: SSAValue, *, left: bool = True, adjoint: bool = False
) -> SSAValue:
    b = c.b
    if math.prod(c.shape) == 0:
        return b.full(list(c.shape), c.element, 0)
    if not left:  # x a = y is a^T x^T = y^T
        y, adjoint = f.flipped(b, y), not adjoint
    order = f.order_of(b, pivots, types.shape_of(packed)[-2])
    batch = types.shape_of(_batched(c, packed, y)[0])[:-2]
    packed, y = _batched(c, packed, y)
    order = c.broadcast(order, [*batch, types.shape_of(order)[-1]])
    if not adjoint:
        x = _solved(c, f.Lu(packed, pivots, order, order), y)
    else:  # U^T L^T P^T x = y
        turned = f.flipped(b, packed)
        half = f.substitute(b, turned, y, upper=False, unit=False)
        half = f.substitute(b, turned, half, upper=True, unit=True)
        x = f.product(b, f.permutation(b, order, c.element), half)
    return x if left else f.flipped(b, x)


def lu_solve_old(c: OpContext, y: SSAValue, packed: SSAValue, pivots: SSAValue) -> SSAValue:
    return lu_solve(c, packed, pivots, y)


def qr(c: OpContext, a: SSAValue, mode: str = "reduced") -> list[SSAValue]:
    """Q and R; Q is empty for mode "r"."""
    b = c.b
    shape = types.shape_of(a)
    *batch, m, n = shape
    k = m if mode == "complete" else min(m, n)
    reflections = f.householder(b, a)
    zeros = [0] * len(shape)
    r = f.triangle(b, b.slice(reflections.r, zeros, [*batch, k, n]), True)
    q = b.full([0], c.element, 0) if mode == "r" else reflections.apply(b, f.identity(b, a, m, k))
    return [q, r]


def geqrf(c: OpContext, a: SSAValue) -> list[SSAValue]:
    """R in the upper triangle with the reflections below it, and their factors."""
    b = c.b
    reflections = f.householder(b, a)
    packed = f.triangle(b, reflections.r, True)
    for k, v in enumerate(reflections.vectors):
        here = b.and_(f.where_count(b, packed, -1, "eq", k), f.where_count(b, packed, -2, "gt", k))
        packed = b.select(here, f.along(b, v, packed), packed)
    if not reflections.taus:
        return [packed, b.full([*types.shape_of(a)[:-2], 0], c.element, 0)]
    return [packed, f.stacked(b, reflections.taus, -1)]


def householder_product(c: OpContext, a: SSAValue, taus: SSAValue) -> SSAValue:
    *_, m, n = types.shape_of(a)
    return a if _empty(a) else f.unpacked(c.b, a, taus).apply(c.b, f.identity(c.b, a, m, n))


def ormqr(
    c: OpContext, a: SSAValue, taus: SSAValue, x: SSAValue, left: bool = True, transpose: bool = False
) -> SSAValue:
    reflections = f.unpacked(c.b, a, taus)
    if left:
        return reflections.apply(c.b, x, transpose)
    return f.flipped(c.b, reflections.apply(c.b, f.flipped(c.b, x), not transpose))


def matrix_exp(c: OpContext, a: SSAValue) -> SSAValue:
    """A Taylor series of the matrix divided by a power of two, squared as often as that asks for."""
    b = c.b
    shape = types.shape_of(a)
    if _empty(a):
        return a
    n, rank = shape[-1], len(shape)
    size = b.stop_gradient(b.reduce(b.reduce(b.abs(a), [rank - 2], "sum"), [rank - 2], "max"))
    halved, scale = c.full(0, size), c.full(1, size)
    for _ in range(12):  # up to a norm of 1024: larger ones overflow
        large = b.compare(b.mul(size, scale), c.full(0.25, size), "gt")
        halved = b.select(large, b.add(halved, c.full(1, size)), halved)
        scale = b.select(large, b.mul(scale, c.full(0.5, size)), scale)
    x = b.mul(a, f.along(b, scale, a))
    one = f.identity(b, a, n, n)
    out = one
    for k in range(12, 0, -1):
        out = b.add(one, b.mul(f.product(b, x, out), c.full(1 / k, x)))
    for step in range(12):
        more = b.compare(halved, c.full(step, halved), "gt")
        out = b.select(f.along(b, more, out), f.product(b, out, out), out)
    return out


def addbmm(
    c: OpContext, x: SSAValue, y: SSAValue, z: SSAValue, *, beta: Number = 1, alpha: Number = 1
) -> SSAValue:
    product = c.b.dot_general(y, z, contract=((0, 2), (0, 1)))
    product = product if alpha == 1 else c.b.mul(product, c.full(alpha, product))
    if beta == 0:
        return product
    x = c.broadcast(x, c.shape)
    return c.b.add(x if beta == 1 else c.b.mul(x, c.full(beta, x)), product)


ATEN: dict[str, Handler] = {
    "aten.cholesky.default": cholesky,
    "aten.linalg_cholesky_ex.default": cholesky_ex,
    "aten.cholesky_solve.default": cholesky_solve,
    "aten.cholesky_inverse.default": cholesky_inverse,
    "aten.linalg_solve_triangular.default": solve_triangular,
    "aten.triangular_solve.default": triangular_solve,
    "aten.linalg_inv_ex.default": inverse_ex,
    "aten._linalg_solve_ex.default": solve_ex,
    "aten._linalg_det.default": determinant,
    "aten._linalg_slogdet.default": log_determinant,
    "aten.linalg_lu_factor_ex.default": lu_factor_ex,
    "aten.linalg_lu.default": lu,
    "aten.lu_unpack.default": lu_unpack,
    "aten.linalg_lu_solve.default": lu_solve,
    "aten.lu_solve.default": lu_solve_old,
    "aten.linalg_qr.default": qr,
    "aten.geqrf.default": geqrf,
    "aten.linalg_householder_product.default": householder_product,
    "aten.ormqr.default": ormqr,
    "aten.linalg_matrix_exp.default": matrix_exp,
    "aten.addbmm.default": addbmm,
}
