"""Builder methods of the matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from rhino.dialects.build.shape import ShapeBuilder
from rhino.dialects.hlo import dot as ops
from rhino.dialects.hlo.base import ints
from rhino.dialects.hlo.common import positive_dims
from rhino.ir import types
from rhino.ir.errors import ProgramError

Pair = tuple[Sequence[int], Sequence[int]]


class DotBuilder(ShapeBuilder):
    """Methods take and return SSA values; see `rhino.dialects.hlo.dot`."""

    def dot_general(
        self, x: SSAValue, y: SSAValue, batch: Pair = ((), ()), contract: Pair = ((), ())
    ) -> SSAValue:
        """Result dimensions: batch, free of `x`, free of `y`. Negative dimensions count from the end."""
        properties = {
            "lhs_batch": ints(positive_dims(x, batch[0])),
            "rhs_batch": ints(positive_dims(y, batch[1])),
            "lhs_contract": ints(positive_dims(x, contract[0])),
            "rhs_contract": ints(positive_dims(y, contract[1])),
        }
        return self.emit1(ops.DotGeneralOp, [x, y], properties)

    def matmul(self, x: SSAValue, y: SSAValue) -> SSAValue:
        """numpy's ``x @ y``: vectors, matrices, and stacks of matrices whose leading dimensions broadcast."""
        shape_x, shape_y = types.shape_of(x), types.shape_of(y)
        if not shape_x or not shape_y:
            raise ProgramError(
                f"matmul of {types.show(x.type)} and {types.show(y.type)}: scalars have no rows and columns",
                remedy="use mul",
            )
        if len(shape_y) <= 2:
            return self.dot_general(x, y, contract=((-1,), (0 if len(shape_y) == 1 else -2,)))
        if len(shape_x) == 1:
            return self.dot_general(y, x, contract=((-2,), (0,)))
        if len(shape_x) == 2:
            out = self.dot_general(y, x, contract=((-2,), (-1,)))
            rank = len(shape_y)
            return self.transpose(out, [*range(rank - 2), rank - 1, rank - 2])
        try:
            batch = np.broadcast_shapes(shape_x[:-2], shape_y[:-2])
        except ValueError:
            raise ProgramError(
                f"matmul: leading dimensions of {types.show(x.type)} and {types.show(y.type)} differ"
            ) from None
        x = self.broadcast_to(x, (*batch, *shape_x[-2:]))
        y = self.broadcast_to(y, (*batch, *shape_y[-2:]))
        dims = tuple(range(len(batch)))
        return self.dot_general(x, y, batch=(dims, dims), contract=((-1,), (-2,)))
