"""Linear algebra on the last two dimensions: Cholesky's factor, triangular systems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    VarConstraint,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)

from rhino.dialects.hlo.base import TENSOR, HloOp, Properties, get_text
from rhino.dialects.hlo.common import Cotangents, check_element, wide
from rhino.dialects.hlo.pointwise import need
from rhino.ir import types
from rhino.ir.errors import ProgramError, UnsupportedError
from rhino.ir.rule import Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder

TRANSPOSES = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def _swapped(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def check_square(x: types.Type) -> None:
    """Raise ProgramError unless the last two dimensions hold square matrices of numbers."""
    need("it", [x], floats=True, integers=False, booleans=False, complexes=True)
    shape = x.get_shape()
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ProgramError(f"operand 0 is {types.show(x)}, not square matrices in the last two dimensions")


def transposed(b: Builder, x: SSAValue) -> SSAValue:
    """The last two dimensions exchanged."""
    rank = len(types.shape_of(x))
    return b.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def triangle(b: Builder, x: SSAValue, lower: bool, diagonal: bool) -> SSAValue:
    """Zeros outside of a triangle of the last two dimensions, and on the diagonal unless `diagonal`."""
    shape = types.shape_of(x)
    kind = types.tensor(shape, types.I64)
    rows, columns = b.iota(kind, len(shape) - 2), b.iota(kind, len(shape) - 1)
    direction = ("ge" if diagonal else "gt") if lower else ("le" if diagonal else "lt")
    return b.select(b.compare(rows, columns, direction), x, b.full_like(x, 0))


@irdl_op_definition
class CholeskyOp(HloOp):
    """The triangular L with positive diagonal and a = L L^H, or with `upper` U and a = U^H U.

    ``%l = hlo.cholesky %a : tensor<5x3x3xf32>``
    ``%u = hlo.cholesky %a upper : tensor<5x3x3xf32>``

    Only that triangle of `a` is read; the other one of the result is zero. NaN where `a` is not positive definite. The
    gradient is that of the triangle that is read.
    """

    name = "hlo.cholesky"
    T: ClassVar = VarConstraint("T", TENSOR)
    a = operand_def(T)
    upper = opt_prop_def(UnitAttr)
    result = result_def(T)
    assembly_format = "$a (`upper` $upper^)? attr-dict `:` type($result)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        check_square(operands[0])
        return [operands[0]]

    def rule(self) -> Rule:
        shape = types.shape_of(self.a)
        dims = tuple((f"d{i}",) for i in range(len(shape)))
        sizes = {f"d{i}": n for i, n in enumerate(shape)}
        return Rule((dims,), (dims,), sizes, {f[0]: "whole" for f in dims[-2:]})

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        (a,) = operands
        matrix = wide(a)
        lower = np.conj(_swapped(np.triu(matrix))) if self.upper is not None else np.tril(matrix)
        flat = lower.reshape(math.prod(a.shape[:-2]), *a.shape[-2:])
        out = np.empty_like(flat)
        for i, one in enumerate(flat):
            try:
                out[i] = np.linalg.cholesky(one)
            except np.linalg.LinAlgError:
                out[i] = np.tril(np.full_like(one, np.nan))
        out = out.reshape(a.shape)
        return ((np.conj(_swapped(out)) if self.upper is not None else out).astype(a.dtype, copy=False),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        """S = L^-T phi(L^T dL) L^-1, phi the lower triangle with half of the diagonal; then S + S^T on the triangle.

        Source: Iain Murray, "Differentiation of the Cholesky decomposition" (2016), the blocked form unblocked.
        """
        (dy,) = cotangents
        assert dy is not None
        b = builder
        if types.is_complex(types.element_of(self.a)):
            raise UnsupportedError("hlo.cholesky of complex matrices has no derivative")
        upper = self.upper is not None
        factor = transposed(b, self.result) if upper else self.result
        dl = triangle(b, transposed(b, dy) if upper else dy, lower=True, diagonal=True)
        half = b.full_like(dl, 0.5)

        def phi(x: SSAValue) -> SSAValue:
            below, on = triangle(b, x, True, False), triangle(b, x, True, True)
            return b.add(below, b.mul(half, b.sub(on, below)))

        inner = phi(b.matmul(transposed(b, factor), dl))
        right = b.triangular_solve(factor, inner, left_side=False, lower=True)
        s = b.triangular_solve(factor, right, left_side=True, lower=True, transpose_a="TRANSPOSE")
        # An element beside the diagonal stands for two.
        both = b.mul(b.full_like(s, 2), phi(b.mul(half, b.add(s, transposed(b, s)))))
        return [transposed(b, both) if upper else both]

    def flops(self) -> int:
        shape = types.shape_of(self.a)
        return math.prod(shape[:-2]) * shape[-1] ** 3 // 3


def substitute(a: np.ndarray, b: np.ndarray, lower: bool, unit: bool) -> np.ndarray:
    """x with a x = b for triangular `a`, row by row; a zero on the diagonal gives infinities or NaN."""
    n = a.shape[-1]
    x = np.zeros(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + b.shape[-2:], b.dtype)
    for i in range(n) if lower else reversed(range(n)):
        known = slice(0, i) if lower else slice(i + 1, n)
        row = b[..., i, :] - np.matmul(a[..., i : i + 1, known], x[..., known, :])[..., 0, :]
        x[..., i, :] = row if unit else row / a[..., i, i][..., None]
    return x


@irdl_op_definition
class TriangularSolveOp(HloOp):
    """x with op(a) x = b, or with `right` x op(a) = b, where op(a) is `a`, its transpose or its adjoint.

    ``%x = hlo.triangular_solve %a, %b "NO_TRANSPOSE" lower
      : (tensor<5x3x3xf32>, tensor<5x3x2xf32>) -> tensor<5x3x2xf32>``
    ``%x = hlo.triangular_solve %a, %b "TRANSPOSE" right unit : (tensor<3x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>``

    Only the lower (or else upper) triangle of `a` is read; with `unit` its diagonal counts as ones.
    """

    name = "hlo.triangular_solve"
    a = operand_def(TENSOR)
    b = operand_def(TENSOR)
    transpose_a = prop_def(StringAttr)
    right = opt_prop_def(UnitAttr)
    lower = opt_prop_def(UnitAttr)
    unit_diagonal = opt_prop_def(UnitAttr)
    result = result_def(TENSOR)
    assembly_format = (
        "$a `,` $b $transpose_a (`right` $right^)? (`lower` $lower^)? (`unit` $unit_diagonal^)? attr-dict `:` "
        "functional-type(operands, results)"
    )

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        a, b = operands
        check_square(a)
        check_element(1, b, a)
        if get_text(properties, "transpose_a") not in TRANSPOSES:
            raise ProgramError(f"transpose_a is none of {', '.join(TRANSPOSES)}")
        side = -1 if "right" in properties else -2
        fits = len(a.get_shape()) == len(b.get_shape()) and a.get_shape()[:-2] == b.get_shape()[:-2]
        if not fits or a.get_shape()[-1] != b.get_shape()[side]:
            raise ProgramError(
                f"operand 0 is {types.show(a)} and operand 1 is {types.show(b)}: they do not fit"
            )
        return [b]

    def rule(self) -> Rule:
        """Batch dimensions pass, and the columns (with `right` the rows) of `b`, each of which is a system."""
        a, b = types.shape_of(self.a), types.shape_of(self.b)
        batch = tuple((f"d{i}",) for i in range(len(a) - 2))
        sizes = {f"d{i}": n for i, n in enumerate(a[:-2])}
        right = self.right is not None
        sizes.update({"m": a[-2], "n": a[-1], "k": a[-1], "s": b[-2] if right else b[-1]})
        rhs = (*batch, ("s",), ("k",)) if right else (*batch, ("k",), ("s",))
        kinds = dict.fromkeys(("m", "n", "k"), "whole")
        return Rule(((*batch, ("m",), ("n",)), rhs), (rhs,), sizes, kinds, linear=((1,),))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        a, b = map(wide, operands)
        lower = self.lower is not None
        if self.transpose_a.data != "NO_TRANSPOSE":
            a, lower = _swapped(a), not lower
        if self.transpose_a.data == "ADJOINT":
            a = np.conj(a)
        if self.right is not None:  # x a = b is a^T x^T = b^T
            x = _swapped(substitute(_swapped(a), _swapped(b), not lower, self.unit_diagonal is not None))
        else:
            x = substitute(a, b, lower, self.unit_diagonal is not None)
        return (np.ascontiguousarray(x).astype(operands[1].dtype, copy=False),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        """The other system for `b`; for `a` the product of that with the solution, on its triangle."""
        (dy,) = cotangents
        assert dy is not None
        bd, how = builder, self.transpose_a.data
        right, lower, unit = (p is not None for p in (self.right, self.lower, self.unit_diagonal))
        # The adjoint is the transpose of the conjugate, which is where the gradient is conjugated, too.
        conjugate = how == "ADJOINT" and types.is_complex(types.element_of(self.a))
        a = bd.conj(self.a) if conjugate else self.a
        plain = how == "NO_TRANSPOSE"
        db = bd.triangular_solve(
            a, dy, not right, lower, unit, transpose_a="TRANSPOSE" if plain else "NO_TRANSPOSE"
        )
        x = self.result
        if right:
            da = bd.matmul(transposed(bd, x), db) if plain else bd.matmul(transposed(bd, db), x)
        else:
            da = bd.matmul(db, transposed(bd, x)) if plain else bd.matmul(x, transposed(bd, db))
        da = triangle(bd, bd.negate(da), lower, not unit)
        return [bd.conj(da) if conjugate else da, db]

    def flops(self) -> int:
        return math.prod(types.shape_of(self.b)) * types.shape_of(self.a)[-1]


OPS: list[type[HloOp]] = [CholeskyOp, TriangularSolveOp]
