"""Builder methods of map, reduce, sort and scatter with any body, given as functions of scalars."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from rhino.dialects.build.control import Body, ControlBuilder
from rhino.dialects.hlo.base import integer, ints
from rhino.dialects.hlo.common import positive_dims
from rhino.dialects.hlo.generic import GenericReduceOp, GenericReduceWindowOp, GenericSortOp, MapOp
from rhino.dialects.hlo.generic_scatter import GenericScatterOp, GenericSelectAndScatterOp
from rhino.dialects.hlo.regions import scalars
from rhino.ir import types


class GenericBuilder(ControlBuilder):
    """See the ops of `rhino.dialects.hlo.generic` and `.generic_scatter`.

    ``body(builder, *scalars)`` returns scalars.
    """

    def map(self, xs: Sequence[SSAValue], body: Body) -> tuple[SSAValue, ...]:
        """The body applied to every element."""
        return self.emit_regions(MapOp, xs, {}, [self.region(_scalars(xs), body)])

    def generic_reduce(
        self, xs: Sequence[SSAValue], initial: Sequence[SSAValue], dims: Sequence[int], body: Body
    ) -> tuple[SSAValue, ...]:
        """Dimensions combined; the body takes what was combined so far, then one element of each tensor."""
        properties: dict[str, Attribute] = {"dims": ints(sorted(positive_dims(xs[0], dims)))}
        region = self.region(_scalars(xs) * 2, body)
        return self.emit_regions(GenericReduceOp, [*xs, *initial], properties, [region])

    def generic_reduce_window(
        self,
        xs: Sequence[SSAValue],
        initial: Sequence[SSAValue],
        window: Sequence[int],
        strides: Sequence[int] | None,
        padding: Sequence[tuple[int, int]] | None,
        body: Body,
        base_dilation: Sequence[int] | None = None,
        window_dilation: Sequence[int] | None = None,
    ) -> tuple[SSAValue, ...]:
        """Every window combined; None means strides and dilations of 1, padding of 0."""
        properties = _window(window, strides, padding, base_dilation, window_dilation)
        region = self.region(_scalars(xs) * 2, body)
        return self.emit_regions(GenericReduceWindowOp, [*xs, *initial], properties, [region])

    def generic_sort(self, xs: Sequence[SSAValue], dim: int, body: Body) -> tuple[SSAValue, ...]:
        """Reordered along `dim`; the body takes two elements of each tensor: does the first come first?"""
        pairs = [kind for kind in _scalars(xs) for _ in range(2)]
        properties: dict[str, Attribute] = {"dim": integer(positive_dims(xs[0], [dim])[0])}
        return self.emit_regions(GenericSortOp, xs, properties, [self.region(pairs, body)])

    def generic_scatter(
        self,
        xs: Sequence[SSAValue],
        indices: SSAValue,
        updates: Sequence[SSAValue],
        body: Body,
        *,
        update_window_dims: Sequence[int],
        inserted_window_dims: Sequence[int],
        scatter_dims_to_operand_dims: Sequence[int],
        index_vector_dim: int,
        input_batching_dims: Sequence[int] = (),
        scatter_indices_batching_dims: Sequence[int] = (),
    ) -> tuple[SSAValue, ...]:
        """StableHLO's scatter; the body takes what is there, then the updates."""
        properties: dict[str, Attribute] = {
            "update_window_dims": ints(update_window_dims),
            "inserted_window_dims": ints(inserted_window_dims),
            "input_batching_dims": ints(input_batching_dims),
            "scatter_indices_batching_dims": ints(scatter_indices_batching_dims),
            "scatter_dims_to_operand_dims": ints(scatter_dims_to_operand_dims),
            "index_vector_dim": integer(index_vector_dim),
        }
        region = self.region(_scalars(xs) * 2, body)
        return self.emit_regions(GenericScatterOp, [*xs, indices, *updates], properties, [region])

    def generic_select_and_scatter(
        self,
        x: SSAValue,
        source: SSAValue,
        initial: SSAValue,
        window: Sequence[int],
        strides: Sequence[int] | None,
        padding: Sequence[tuple[int, int]] | None,
        select: Body,
        scatter: Body,
    ) -> SSAValue:
        """Elements of `source` combined into the places that `select` picks in the windows of `x`."""
        pair = _scalars([x, x])
        regions = [self.region(pair, select), self.region(pair, scatter)]
        properties = _window(window, strides, padding, None, None)
        (out,) = self.emit_regions(GenericSelectAndScatterOp, [x, source, initial], properties, regions)
        return out


def _scalars(xs: Sequence[SSAValue]) -> list[types.Type]:
    return scalars([types.element_of(x) for x in xs])


def _window(
    window: Sequence[int],
    strides: Sequence[int] | None,
    padding: Sequence[tuple[int, int]] | None,
    base_dilation: Sequence[int] | None,
    window_dilation: Sequence[int] | None,
) -> dict[str, Attribute]:
    ones = [1] * len(window)
    pads = [(0, 0)] * len(window) if padding is None else padding
    return {
        "window": ints(window),
        "strides": ints(ones if strides is None else strides),
        "low": ints([low for low, _ in pads]),
        "high": ints([high for _, high in pads]),
        "base_dilation": ints(ones if base_dilation is None else base_dilation),
        "window_dilation": ints(ones if window_dilation is None else window_dilation),
    }
