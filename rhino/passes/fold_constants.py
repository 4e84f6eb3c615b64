"""fold-constants: evaluate ops whose operands are all constant.

    %c = hlo.mul %two, %three        becomes        %c = hlo.constant dense<6.0>

Splats stay splats: elementwise and data-moving ops on them fold whatever their size. Other results are
folded up to `limit` elements, since a constant that is not a splat exists whole on every device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.constant import ConstantOp, constant_of, splat_of
from rhino.dialects.hlo.elementwise import ConvertOp, PointwiseOp, SelectOp
from rhino.dialects.hlo.random import RandomUniformOp
from rhino.dialects.hlo.shape import BroadcastInDimOp, ReshapeOp, ReverseOp, SliceOp, TransposeOp
from rhino.ir import types

ELEMENTWISE = (PointwiseOp, SelectOp, ConvertOp, RandomUniformOp)
MOVES = (BroadcastInDimOp, ReshapeOp, TransposeOp, SliceOp, ReverseOp)


@dataclass(frozen=True)
class FoldConstantsPass(ModulePass):
    """Options: `limit`, the largest number of elements of a folded result that is not a splat."""

    name = "fold-constants"
    limit: int = 1024

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        fold_constants(op, self.limit)


def fold_constants(module: ModuleOp, limit: int = 1024) -> None:
    """Fold in place, in one forward walk. Ops that carry a layout (placed modules) are left alone."""
    with np.errstate(all="ignore"):
        _regions(module, limit)


def _regions(op: Operation, limit: int) -> None:
    for region in op.regions:
        for block in region.blocks:
            for nested in list(block.ops):
                folded = _fold(nested, limit) if isinstance(nested, HloOp) else None
                if folded is None:
                    _regions(nested, limit)
                else:
                    _replace(nested, folded)


def _replace(op: Operation, arrays: Sequence[np.ndarray]) -> None:
    builder = Builder(InsertPoint.before(op))
    builder.location = op.location
    results = zip(op.results, arrays, strict=True)
    constants = [builder.constant(array, types.type_of(result)) for result, array in results]
    Rewriter.replace_op(op, [], constants)


def _fold(op: HloOp, limit: int) -> Sequence[np.ndarray] | None:
    """The results as arrays (0-d for splats), or None if they cannot or should not be folded."""
    if not op.operands or "dist.layout" in op.attributes or op.STAYS:  # a loop may never end
        return None
    if not all(isinstance(o.owner, ConstantOp) for o in op.operands):
        return None
    splats = [_splat(o) for o in op.operands]
    known = [s for s in splats if s is not None]
    if len(known) == len(splats):
        if isinstance(op, MOVES):
            return known
        if isinstance(op, ELEMENTWISE):
            return op.evaluate(*known)
    if any(math.prod(types.shape_of(r)) > limit for r in op.results):
        return None
    arrays = [constant_of(o) for o in op.operands]
    return op.evaluate(*(a for a in arrays if a is not None))


def _splat(value: SSAValue) -> np.ndarray | None:
    """The one element of a splat constant as a 0-d array of its type."""
    if splat_of(value) is None:
        return None
    array = constant_of(value)
    assert array is not None
    return np.asarray(array.reshape(-1)[0])
