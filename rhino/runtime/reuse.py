"""Which elementwise ops may write their result over an operand that nobody reads again.

It saves an allocation, and a third of the memory traffic of what large programs spend their time on beside matrix
products. An operand qualifies when its memory is its own: it was made by an op that always makes new memory, and
read by such ops only (a reshape, say, would have given out another name for it).
"""

from __future__ import annotations

from collections.abc import Collection

from xdsl.ir import Operation, OpResult, SSAValue

from rhino.ir import types
from rhino.runtime.torch_ops.base import TensorFunction
from rhino.runtime.torch_ops.elementwise import INTO

#: Ops whose torch functions never return an operand, nor a view of one.
MAKES_NEW = frozenset({*INTO, "hlo.dot_general", "hlo.compare", "hlo.select", "hlo.gather"})


def reusable_operand(op: Operation, dying: Collection[SSAValue]) -> int | None:
    """Position of an operand, one of those that die with `op`, that the result may overwrite; None if there is none."""
    element = types.element_of(op.results[0])
    if op.name not in INTO or not types.is_float(element) or element in types.FLOAT8:
        return None
    for i, value in enumerate(op.operands):
        if value in dying and value.type == op.results[0].type and _is_its_own(value):
            return i
    return None


def _is_its_own(value: SSAValue) -> bool:
    return (
        isinstance(value, OpResult)
        and value.op.name in MAKES_NEW
        and all(use.operation.name in MAKES_NEW for use in value.uses)
    )


def into(op: Operation, place: int) -> TensorFunction:
    """The function of `op` that writes into operand `place`."""
    function = INTO[op.name]
    return lambda *operands: function(*operands, out=operands[place])
