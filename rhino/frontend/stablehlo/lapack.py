"""Custom calls of LAPACK, which JAX lowers to on CPUs, that `hlo` has an op for.

The attribute ``mhlo.backend_config`` holds LAPACK's own letters as numbers: 76 is ``L``, 85 is ``U``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from xdsl.ir import SSAValue

from rhino.frontend.stablehlo.importer import Importer, Values
from rhino.frontend.stablehlo.syntax import OpSyntax
from rhino.ir import types

_NAME = re.compile(r"lapack_[sdcz](\w+)_ffi")
_TRANSPOSES = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}

Call = Callable[[Importer, OpSyntax, list[SSAValue]], Values]


def known(target: str) -> Call | None:
    """What reads a custom call of this name, if it is one of LAPACK's that Rhino has."""
    found = _NAME.fullmatch(target)
    return _CALLS.get(found[1]) if found else None


def _letter(ctx: Importer, op: OpSyntax, name: str) -> str:
    config = op.attributes.get("mhlo.backend_config", op.attributes.get("backend_config"))
    value = config.get(name) if isinstance(config, dict) else None
    if not isinstance(value, int) or not 0 < value < 128:
        ctx.fail(op, f"needs {name} in its backend_config")
    return chr(value)


def _potrf(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """Cholesky's factor over one triangle of the operand; per matrix 0, or 1 where it is not positive definite."""
    (a,) = operands
    b, shape = ctx.b, types.shape_of(a)
    lower = _letter(ctx, op, "uplo") == "L"
    factor = b.cholesky(a, lower)
    odd = b.compare(factor, factor, "ne")
    rank = len(shape)
    info = b.convert(b.reduce(odd, [rank - 2, rank - 1], "or"), ctx.result(op, 1).element_type)
    rows, columns = (b.iota(types.tensor(shape, types.I64), d) for d in (rank - 2, rank - 1))
    return [b.select(b.compare(rows, columns, "ge" if lower else "le"), factor, a), info]


def _trsm(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    side, uplo, diagonal, how = (_letter(ctx, op, n) for n in ("side", "uplo", "diag", "trans_x"))
    if how not in _TRANSPOSES:
        ctx.fail(op, f"trans_x is '{how}', none of {', '.join(_TRANSPOSES)}")
    a, y = operands
    return [ctx.b.triangular_solve(a, y, side == "L", uplo == "L", diagonal == "U", _TRANSPOSES[how])]


_CALLS: dict[str, Call] = {"potrf": _potrf, "trsm": _trsm}
