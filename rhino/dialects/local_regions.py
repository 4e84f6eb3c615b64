"""The regions of loops and branches on one device's shards."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp, Localizer
from rhino.dialects.hlo.composite import YieldOp
from rhino.dialects.hlo.region_rule import Node, Ties
from rhino.dialects.hlo.regions import End, RegionOp
from rhino.ir import types
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh


class Coordinates:
    """This device's coordinates, made outside of the regions and handed to all of them as further arguments."""

    def __init__(self, ctx: Localizer, blocks: Sequence[Block]) -> None:
        self._ctx = ctx
        self._blocks = blocks
        self._found: dict[tuple[AxisRef, ...], int] = {}
        #: What the op has to take as further operands.
        self.outside: list[SSAValue] = []

    def inside(self, axes: Sequence[AxisRef], block: Block) -> SSAValue:
        """The coordinate on `axes` as an argument of `block`."""
        key = tuple(axes)
        if key not in self._found:
            self._found[key] = len(self._blocks[0].args)
            self.outside.append(self._ctx.coordinate(axes))
            for other in self._blocks:
                other.insert_arg(types.tensor((), types.I64), len(other.args))
        return block.args[self._found[key]]


class RegionBuilder(Builder):
    """Builds inside a region, where a coordinate is an argument."""

    def __init__(self, block: Block, coordinates: Coordinates) -> None:
        super().__init__(InsertPoint.at_end(block))
        self._coordinates = coordinates

    def axis_index(self, axes: Sequence[AxisRef], mesh: Mesh | None = None) -> SSAValue:
        return self._coordinates.inside(axes, self.point.block)


def localize_regions(
    op: RegionOp, ties: Ties, ctx: Localizer, operands: Sequence[SSAValue]
) -> Sequence[SSAValue]:
    """Emit `op` on one device's shards, every op in its regions localized under the layout that the ties give."""
    digits: dict[Node, tuple[Digit, ...]] = {}
    for what, layouts in (("operand", ctx.operands), ("result", ctx.results)):
        for i, layout in enumerate(layouts):
            for d, here in enumerate(layout.dims):
                if here:
                    digits[ties.root(((what, i), d))] = tuple(here)

    def layout_of(end: End, value: SSAValue) -> Layout:
        return ties.layout(end, len(types.shape_of(value)), digits)

    def local_type(value: SSAValue) -> types.Type:
        shape = layout_of(value, value).local_shape(types.shape_of(value))
        return types.tensor(shape, types.element_of(value))

    old = [region.block for region in op.regions]
    new = [Block(arg_types=[local_type(a) for a in block.args]) for block in old]
    coordinates = Coordinates(ctx, new)
    for source, target in zip(old, new, strict=True):
        builder = RegionBuilder(target, coordinates)
        values: dict[SSAValue, SSAValue] = dict(zip(source.args, target.args, strict=False))
        for inner in source.ops:
            with builder.at(inner.location):
                if isinstance(inner, YieldOp):
                    builder.insert(YieldOp.create(operands=[values[v] for v in inner.operands]))
                    continue
                assert isinstance(inner, HloOp)
                context = Localizer(
                    builder,
                    ctx.mesh,
                    tuple(layout_of(v, v) for v in inner.operands),
                    tuple(layout_of(v, v) for v in inner.results),
                    tuple(local_type(v) for v in inner.results),
                )
                outs = inner.localize(context, [values[v] for v in inner.operands])
            values.update(zip(inner.results, outs, strict=True))
    local = type(op).create(
        operands=[*operands, *coordinates.outside],
        result_types=list(ctx.result_types),
        properties=dict(op.properties),
        regions=[Region(block) for block in new],
    )
    return ctx.builder.insert(local).results
