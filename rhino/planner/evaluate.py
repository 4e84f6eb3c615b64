"""Cost of a placed module: the final word on every plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist.layouts import read_layouts
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.dist.reshard import ReshardOp
from rhino.dialects.hlo.base import HloOp
from rhino.ir import types
from rhino.ir.layout import Layout
from rhino.ir.rule import Placement
from rhino.planner.cluster import Cluster
from rhino.planner.combine import Item, edge_items, reshard_items
from rhino.planner.communication import Communication
from rhino.planner.cost import VIEWS, held, op_time, shards_of
from rhino.planner.graph import COMPUTE, Kind, kind_of
from rhino.planner.tally import KEPT, PlanCost, Work, measure


def evaluate_plan(module: ModuleOp, cluster: Cluster) -> PlanCost:
    """Cost of a placed module on a cluster, every reshard op counted once. The final word on every plan."""
    communication = Communication(cluster, mesh_of(module))
    return measure(work_of(module, communication), communication)


def work_of(
    module: ModuleOp, communication: Communication, wanted: Callable[[Operation], bool] | None = None
) -> Work:
    """What a device does in the step of a placed module, or of it the ops that are wanted; every item's source is its
    op.
    """
    mesh, hardware = communication.mesh, communication.cluster.hardware
    func = signature.main_of(module)
    layouts = read_layouts(func, mesh)
    number: dict[SSAValue, int] = {value: i for i, value in enumerate(layouts)}
    kept = {slot.alias for slot in signature.results(func)}
    arguments = [
        (number[argument], local_size(argument, layouts[argument]), i in kept or slot.role in KEPT)
        for i, (argument, slot) in enumerate(zip(func.args, signature.arguments(func), strict=True))
    ]
    fresh = len(number)
    kinds: dict[Hashable, Kind] = {}
    items: list[Item] = []
    for op in func.body.block.ops:
        if wanted is not None and not wanted(op):
            continue
        reads = tuple(number[o] for o in op.operands if o in number)
        writes = tuple((number[r], held(op, local_size(r, layouts[r]))) for r in op.results)
        if isinstance(op, ReshardOp):
            type, before = types.type_of(op.operands[0]), layouts[op.operands[0]]
            shape, size = tuple(type.get_shape()), types.itemsize(type.element_type)
            element = types.element_name(type.element_type)
            steps = communication.collectives(shape, size, element, before, layouts[op.results[0]])
            made = [fresh + i for i in range(len(steps) - 1)] + [number[op.results[0]]]
            fresh += len(steps)
            items += reshard_items(steps, communication.price, reads[0], made, op)
        elif isinstance(op, HloOp):
            placement = Placement(
                tuple(layouts[o] for o in op.operands), tuple(layouts[r] for r in op.results)
            )
            kind = kind_of(op, kinds)
            edges = communication.edges(kind, placement)
            made = [fresh + i for i in range(len(edges))]
            fresh += len(edges)
            exchanged, reads = edge_items(edges, communication.price, reads, made, op)
            items += exchanged
            seconds = op_time(hardware, kind, placement, shards_of(placement))
            view, heavy = kind.name in VIEWS, kind.name in COMPUTE
            items.append(Item(seconds, False, reads, writes, view, heavy=heavy, source=op))
    returned = signature.return_of(func).operands
    ends = [(number[v], s.alias) for v, s in zip(returned, signature.results(func), strict=True)]
    return Work(items, arguments, ends)


def local_size(value: SSAValue, layout: Layout) -> int:
    """Bytes of a value on one device."""
    return types.itemsize(types.element_of(value)) * math.prod(layout.local_shape(types.shape_of(value)))
