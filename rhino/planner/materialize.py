"""Write a schedule into the module it was made for: layouts, reshards, copies of makers."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist.reshard import ReshardOp
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.rule import Placement
from rhino.passes.place import place
from rhino.planner.graph import Graph
from rhino.planner.schedule import Schedule, Transfer, following, is_star


def materialize(module: ModuleOp, plan: Schedule, mesh: Mesh) -> None:
    """Turn the global module that the schedule's graph was read from into the placed one, in place."""
    graph = plan.graph
    terminator = signature.return_of(signature.main_of(module))
    users: list[Operation] = [*(node.op for node in graph.nodes), terminator]
    placements: dict[Operation, Placement] = {}
    for index, node in enumerate(graph.nodes):
        candidate = plan.decision.nodes[index]
        if candidate is not None:
            placements[node.op] = candidate.placement
            continue
        (value,) = node.results
        whole = Layout.replicated(len(graph.values[value].shape))
        wanted = plan.makers.get(value) or {whole: []}
        for op, layout in zip(_copies(node.op, list(wanted.values()), users), wanted, strict=True):
            placements[op] = following(node.operands, graph, layout)
    place(module, mesh, placements, plan.decision.arguments, plan.results)
    for value, transfers in plan.transfers.items():
        if not is_star(transfers):
            _rewire(graph, value, transfers, users, mesh)


def _copies(op: Operation, groups: list[list[tuple[int, int]]], users: list[Operation]) -> list[Operation]:
    """One copy of a maker per group of users; the first is the op itself."""
    out = [op]
    for group in groups[1:]:
        copy = op.clone()
        copy.location = op.location
        block = op.parent
        assert block is not None
        block.insert_op_after(copy, out[-1])
        for user, position in group:
            users[user].operands[position] = copy.results[0]
        out.append(copy)
    return out


def _rewire(graph: Graph, value: int, transfers: list[Transfer], users: list[Operation], mesh: Mesh) -> None:
    """Replace the reshards of one value by those of the schedule."""
    ssa = graph.values[value].ssa
    old = [use.operation for use in ssa.uses if isinstance(use.operation, ReshardOp)]
    made: dict[int, SSAValue] = {}
    for transfer in transfers:
        start = ssa if transfer.parent is None else made[id(transfer.parent)]
        reshard = ReshardOp.make(start, transfer.target, mesh)
        first = users[transfer.users[0][0]] if transfer.users else users[transfer.at]
        reshard.location = first.location
        reshard.result.name_hint = ssa.name_hint
        _insert(reshard, ssa, transfer, users)
        made[id(transfer)] = reshard.result
        for user, position in transfer.users:
            users[user].operands[position] = reshard.result
    for op in old:
        op.detach()
        op.erase()


def _insert(reshard: ReshardOp, ssa: SSAValue, transfer: Transfer, users: list[Operation]) -> None:
    if transfer.at >= 0:
        block = users[transfer.at].parent
        assert block is not None
        block.insert_op_before(reshard, users[transfer.at])
    elif isinstance(ssa.owner, Operation):
        block = ssa.owner.parent
        assert block is not None
        block.insert_op_after(reshard, ssa.owner)
    else:
        first = ssa.owner.first_op
        assert first is not None
        ssa.owner.insert_op_before(reshard, first)
