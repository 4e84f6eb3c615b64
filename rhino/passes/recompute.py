"""recompute: make the insides of composites again for the backward pass, instead of keeping them.

    %s = hlo.exp %q {rhino.composite = "attention#0"}          // forward
    ...
    %d = hlo.mul %g, %s                                        // backward, much later
becomes
    %s = hlo.exp %q {rhino.composite = "attention#0"}
    ...
    %s1 = hlo.exp %q {rhino.composite = "attention#0"}
    %d = hlo.mul %g, %s1

What a composite is computed from is kept; what it computes on the way lives for as long as the composite runs. For
attention that is the difference between a matrix of the sequence length squared for every layer and one at a time
("selective recomputation", Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022).
The ops are the same and so are the results, to the bit; `cse` would undo it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from rhino.dialects import signature
from rhino.ir.errors import ProgramError
from rhino.passes.inline_composites import TAG


@dataclass(frozen=True)
class RecomputePass(ModulePass):
    """Options: `composites`, names of composites, separated by ``+``; ``attention`` when left out.

    Raises ProgramError when `@main` has no loss: there is no backward pass to make anything for.
    """

    name = "recompute"
    composites: str = "attention"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        recompute(op, self.composites.split("+"))


def recompute(module: ModuleOp, composites: Sequence[str] = ("attention",)) -> int:
    """Clone the ops of the named composites for their users behind the loss, in place; how many ops were cloned.

    A training step with composites inlined is wanted. Every composite is cloned in front of the first op behind the
    loss that uses something of it, and only what is used there. Constants are no part of a composite.
    """
    func = signature.main_of(module)
    order: dict[Operation, int] = {op: i for i, op in enumerate(func.body.block.ops)}
    forward = _end_of_forward(module, order)
    groups: dict[str, list[Operation]] = {}
    for op in order:
        tag = op.attributes.get(TAG)
        if isinstance(tag, StringAttr) and tag.data.split("#")[0] in composites and order[op] <= forward:
            groups.setdefault(tag.data, []).append(op)
    return sum(_again(ops, order, forward) for ops in groups.values())


def _end_of_forward(module: ModuleOp, order: dict[Operation, int]) -> int:
    """Place of the op that makes the loss."""
    slots = signature.results(signature.main_of(module))
    for slot, value in zip(slots, signature.return_of(signature.main_of(module)).operands, strict=True):
        if slot.role == "loss" and isinstance(value.owner, Operation):
            return order[value.owner]
    raise ProgramError(
        "the program has no loss, so there is nothing to recompute for",
        remedy="run `autodiff` (and `optimizer`) first",
    )


def _again(ops: Sequence[Operation], order: dict[Operation, int], forward: int) -> int:
    """Clone what is used behind the forward pass of one composite's ops (in program order)."""
    late = [
        use for op in ops for result in op.results for use in result.uses if order[use.operation] > forward
    ]
    if not late:
        return 0
    wanted = {op for op in ops if any(order[u.operation] > forward for r in op.results for u in r.uses)}
    for op in reversed(ops):
        if op in wanted:
            wanted.update(o for v in op.operands if isinstance(o := v.owner, Operation) and o in ops)
    first = min((use.operation for use in late), key=lambda op: order[op])
    block = first.parent
    assert block is not None
    copies: dict[SSAValue, SSAValue] = {}
    for op in ops:
        if op in wanted:
            clone = op.clone(copies)
            clone.location = op.location
            block.insert_op_before(clone, first)
            for result, copy in zip(op.results, clone.results, strict=True):
                copy.name_hint = result.name_hint
    for use in late:
        use.operation.operands[use.index] = copies[use.operation.operands[use.index]]
    return len(wanted)
