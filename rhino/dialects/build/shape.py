"""Builder methods of the shape ops."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from rhino.dialects.build.core import BuilderCore
from rhino.dialects.hlo import dynamic
from rhino.dialects.hlo import shape as ops
from rhino.dialects.hlo.base import integer, ints
from rhino.dialects.hlo.common import positive_dims
from rhino.dialects.hlo.complex_numbers import ComplexOp, ImagOp, RealOp
from rhino.ir import types
from rhino.ir.dense import Scalar


class ShapeBuilder(BuilderCore):
    """Methods take and return SSA values; see the ops of `rhino.dialects.hlo.shape`.

    A method that would change nothing returns its operand. Negative dimensions count from the end.
    """

    def broadcast_in_dim(self, x: SSAValue, shape: Sequence[int], dims: Sequence[int]) -> SSAValue:
        """Operand dimension i becomes result dimension ``dims[i]``."""
        if tuple(shape) == types.shape_of(x) and list(dims) == list(range(len(shape))):
            return x
        return self.emit1(ops.BroadcastInDimOp, [x], {"shape": ints(shape), "dims": ints(dims)})

    def broadcast_to(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        """numpy's broadcast: dimensions are matched from the last."""
        rank = len(types.shape_of(x))
        return self.broadcast_in_dim(x, shape, range(len(shape) - rank, len(shape)))

    def reshape(self, x: SSAValue, shape: Sequence[int]) -> SSAValue:
        if tuple(shape) == types.shape_of(x):
            return x
        return self.emit1(ops.ReshapeOp, [x], {"shape": ints(shape)})

    def transpose(self, x: SSAValue, perm: Sequence[int]) -> SSAValue:
        """Result dimension i is operand dimension ``perm[i]``."""
        if list(perm) == list(range(len(types.shape_of(x)))):
            return x
        return self.emit1(ops.TransposeOp, [x], {"perm": ints(positive_dims(x, perm))})

    def slice(
        self, x: SSAValue, start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None = None
    ) -> SSAValue:
        """``x[start:limit:strides]`` in every dimension; bounds are absolute, not negative."""
        strides = [1] * len(start) if strides is None else strides
        shape = types.shape_of(x)
        if not any(start) and tuple(limit) == shape and all(s == 1 for s in strides):
            return x
        properties = {"start": ints(start), "limit": ints(limit), "strides": ints(strides)}
        return self.emit1(ops.SliceOp, [x], properties)

    def pad(
        self,
        x: SSAValue,
        value: Scalar,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] | None = None,
    ) -> SSAValue:
        """Pad with a constant; negative `low` and `high` crop, `interior` goes between each two elements."""
        interior = [0] * len(low) if interior is None else interior
        if not (any(low) or any(high) or any(interior)):
            return x
        if types.is_complex(types.element_of(x)):
            parts = complex(value)
            re, im = (self.emit1(part, [x]) for part in (RealOp, ImagOp))
            re = self.pad(re, parts.real, low, high, interior)
            return self.emit1(ComplexOp, [re, self.pad(im, parts.imag, low, high, interior)])
        properties = {
            "value": ops.number_attr(value, types.element_of(x)),
            "low": ints(low),
            "high": ints(high),
            "interior": ints(interior),
        }
        return self.emit1(ops.PadOp, [x], properties)

    def concatenate(self, xs: Sequence[SSAValue], dim: int) -> SSAValue:
        if len(xs) == 1:
            return xs[0]
        dim = positive_dims(xs[0], [dim])[0] if xs else dim
        return self.emit1(ops.ConcatenateOp, xs, {"dim": integer(dim)})

    def reverse(self, x: SSAValue, dims: Sequence[int]) -> SSAValue:
        shape = types.shape_of(x)
        dims = [d for d in positive_dims(x, dims) if d not in range(len(shape)) or shape[d] != 1]
        if not dims:
            return x
        return self.emit1(ops.ReverseOp, [x], {"dims": ints(dims)})

    def dynamic_slice(self, x: SSAValue, starts: Sequence[SSAValue], sizes: Sequence[int]) -> SSAValue:
        """A block of `sizes` that begins at scalars, clamped so that it fits."""
        return self.emit1(dynamic.DynamicSliceOp, [x, *starts], {"sizes": ints(sizes)})

    def dynamic_update_slice(self, x: SSAValue, update: SSAValue, starts: Sequence[SSAValue]) -> SSAValue:
        """`x` with the block that begins at scalars (clamped) replaced by `update`."""
        return self.emit1(dynamic.DynamicUpdateSliceOp, [x, update, *starts])
