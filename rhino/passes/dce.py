"""dce: remove ops whose results nobody uses."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation
from xdsl.passes import ModulePass
from xdsl.traits import Pure


@dataclass(frozen=True)
class DcePass(ModulePass):
    """Options: none."""

    name = "dce"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        eliminate_dead_ops(op)


def eliminate_dead_ops(module: ModuleOp) -> None:
    """Remove dead pure ops, in place: one backward walk, in which users go before what they use."""
    for op in module.ops:
        _regions(op)


def _regions(op: Operation) -> None:
    for region in op.regions:
        for block in region.blocks:
            _block(block)


def _block(block: Block) -> None:
    op = block.last_op
    while op is not None:
        before = op.prev_op
        if op.has_trait(Pure) and op.results and all(r.first_use is None for r in op.results):
            block.erase_op(op)
        else:
            _regions(op)
        op = before
