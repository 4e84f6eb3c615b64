"""inline-composites: replace every composite by its region.

    %y = hlo.composite "softmax"(%x) : ... { ^bb0(%a): %e = hlo.exp %a ... hlo.yield %s }
becomes
    %e = hlo.exp %x {rhino.composite = "softmax#0"} ...

The attribute lets a kernel find the ops of one composite again; of nested composites the outermost is named.
Constants and counters carry none, so that they may be shared.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, UnknownLoc
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from rhino.dialects.hlo.composite import CompositeOp, YieldOp

TAG = "rhino.composite"


@dataclass(frozen=True)
class InlineCompositesPass(ModulePass):
    """Options: none."""

    name = "inline-composites"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        inline_composites(op)


def inline_composites(module: ModuleOp) -> None:
    """Inline all composites of a module, in place."""
    number = 0
    while composites := [op for op in module.walk() if isinstance(op, CompositeOp) and not _nested(op)]:
        for op in composites:
            tag: Attribute | None = op.attributes.get(TAG)
            if tag is None:
                tag = StringAttr(f"{op.composite_name.data}#{number}")
                number += 1
            _inline(op, tag)


def _nested(op: CompositeOp) -> bool:
    return isinstance(op.parent_op(), CompositeOp)


def _inline(composite: CompositeOp, tag: Attribute) -> None:
    body: Block = composite.body.block
    values: dict[SSAValue, SSAValue] = dict(zip(body.args, composite.operands, strict=True))
    last = body.last_op
    assert isinstance(last, YieldOp)
    for op in list(body.ops):
        if op is last:
            continue
        new = op.clone(values)
        if new.operands:
            new.attributes[TAG] = tag
        if isinstance(new.location, UnknownLoc):
            new.location = composite.location
        assert composite.parent is not None
        composite.parent.insert_op_before(new, composite)
    Rewriter.replace_op(composite, [], [values[v] for v in last.operands])
