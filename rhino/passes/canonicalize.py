"""canonicalize: rewrites that make a program smaller and never change a bit of its results.

    convert(convert(x to f32) to bf16), x bf16   ->  x
    transpose(transpose(x))                      ->  one transpose, or x
    reshape(reshape(x))                          ->  one reshape, or x
    broadcast(broadcast(x))                      ->  one broadcast
    negate(negate(x)), not(not(x)), x * 1, x / 1, x - 0, x + 0 (integers, or -0.0)   ->  x
    select with a constant or no choice, maximum(x, x), pow(x, 1), pow(x, 2), ops that move nothing

For the global and the local stage: ops that carry a layout are left alone. Adding +0.0 stays, since it turns
-0.0 into 0.0. A square is the one rewrite that may round differently, if numpy's power is not exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.hlo import elementwise as e
from rhino.dialects.hlo import shape as s
from rhino.dialects.hlo.base import get_ints
from rhino.dialects.hlo.constant import splat_of
from rhino.dialects.hlo.reduce import ReduceOp
from rhino.ir import types
from rhino.passes.dce import eliminate_dead_ops

Rule = Callable[[Operation, Builder], "SSAValue | None"]


@dataclass(frozen=True)
class CanonicalizePass(ModulePass):
    """Options: none."""

    name = "canonicalize"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        canonicalize(op)


def canonicalize(module: ModuleOp) -> None:
    """Rewrite in place until nothing changes, then remove what became dead."""
    PatternRewriteWalker(_Simplify()).rewrite_module(module)
    eliminate_dead_ops(module)


class _Simplify(RewritePattern):
    """One dispatch by the op's class; the rules below return what replaces the op's result."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        rule = RULES.get(type(op))
        if rule is None or "dist.layout" in op.attributes:
            return
        builder = Builder(InsertPoint.before(op))
        builder.location = op.location
        value = rule(op, builder)
        if value is None:
            return
        if op.attributes and isinstance(value.owner, Operation) and value.owner is op.prev_op:
            value.owner.attributes.update(op.attributes)
        rewriter.replace(op, [], [value])


def _is_splat(value: SSAValue, number: float) -> bool:
    """Whether all elements are `number`, a real one; for zeros the sign counts."""
    found = splat_of(value)
    if found is None or isinstance(found, complex):
        return False
    return found == number and math.copysign(1, found) == math.copysign(1, number)


def _add(op: Operation, b: Builder) -> SSAValue | None:
    x, y = op.operands
    zero = -0.0 if types.is_float(types.element_of(x)) else 0
    if _is_splat(y, zero):
        return x
    return y if _is_splat(x, zero) else None


def _sub(op: Operation, b: Builder) -> SSAValue | None:
    return op.operands[0] if _is_splat(op.operands[1], 0) else None


def _mul(op: Operation, b: Builder) -> SSAValue | None:
    x, y = op.operands
    if _is_splat(y, 1):
        return x
    return y if _is_splat(x, 1) else None


def _div(op: Operation, b: Builder) -> SSAValue | None:
    return op.operands[0] if _is_splat(op.operands[1], 1) else None


def _pow(op: Operation, b: Builder) -> SSAValue | None:
    x, y = op.operands
    if _is_splat(y, 1):
        return x
    return b.mul(x, x) if _is_splat(y, 2) else None


def _involution(op: Operation, b: Builder) -> SSAValue | None:
    """f(f(x)) = x."""
    inner = op.operands[0].owner
    return inner.operands[0] if type(inner) is type(op) else None


def _idempotent(op: Operation, b: Builder) -> SSAValue | None:
    """f(x, x) = x."""
    return op.operands[0] if op.operands[0] is op.operands[1] else None


def _select(op: Operation, b: Builder) -> SSAValue | None:
    predicate, x, y = op.operands
    if x is y:
        return x
    choice = splat_of(predicate)
    return None if choice is None else (x if choice else y)


def _convert(op: Operation, b: Builder) -> SSAValue | None:
    x = op.operands[0]
    target = types.element_of(op.results[0])
    if types.element_of(x) == target:
        return x
    if isinstance(x.owner, e.ConvertOp) and types.widens(types.element_of(x.owner.x), types.element_of(x)):
        return b.convert(x.owner.x, target)
    return None


def _transpose(op: Operation, b: Builder) -> SSAValue | None:
    x, perm = op.operands[0], get_ints(op.properties, "perm")
    if perm == tuple(range(len(perm))):
        return x
    if isinstance(x.owner, s.TransposeOp):
        inner = get_ints(x.owner.properties, "perm")
        return b.transpose(x.owner.x, [inner[p] for p in perm])
    return None


def _reshape(op: Operation, b: Builder) -> SSAValue | None:
    x = op.operands[0]
    if x.type == op.results[0].type:
        return x
    if isinstance(x.owner, s.ReshapeOp):
        return b.reshape(x.owner.x, types.shape_of(op.results[0]))
    return None


def _broadcast(op: Operation, b: Builder) -> SSAValue | None:
    x, dims = op.operands[0], get_ints(op.properties, "dims")
    if x.type == op.results[0].type and dims == tuple(range(len(dims))):
        return x
    if isinstance(x.owner, s.BroadcastInDimOp):
        inner = get_ints(x.owner.properties, "dims")
        return b.broadcast_in_dim(x.owner.x, types.shape_of(op.results[0]), [dims[d] for d in inner])
    return None


def _slice(op: Operation, b: Builder) -> SSAValue | None:
    # Equal shapes leave no room for a start, a limit or a stride.
    return op.operands[0] if op.operands[0].type == op.results[0].type else None


def _pad(op: Operation, b: Builder) -> SSAValue | None:
    amounts = [*get_ints(op.properties, "low"), *get_ints(op.properties, "high")]
    return op.operands[0] if not any([*amounts, *get_ints(op.properties, "interior")]) else None


def _concatenate(op: Operation, b: Builder) -> SSAValue | None:
    return op.operands[0] if len(op.operands) == 1 else None


def _reverse(op: Operation, b: Builder) -> SSAValue | None:
    x, shape = op.operands[0], types.shape_of(op.operands[0])
    return x if all(shape[d] <= 1 for d in get_ints(op.properties, "dims")) else None


def _reduce(op: Operation, b: Builder) -> SSAValue | None:
    x = op.operands[0]
    return x if not get_ints(op.properties, "dims") else None


RULES: dict[type[Operation], Rule] = {
    e.AddOp: _add,
    e.SubOp: _sub,
    e.MulOp: _mul,
    e.DivOp: _div,
    e.PowOp: _pow,
    e.NegateOp: _involution,
    e.NotOp: _involution,
    e.MaximumOp: _idempotent,
    e.MinimumOp: _idempotent,
    e.AndOp: _idempotent,
    e.OrOp: _idempotent,
    e.SelectOp: _select,
    e.ConvertOp: _convert,
    s.TransposeOp: _transpose,
    s.ReshapeOp: _reshape,
    s.BroadcastInDimOp: _broadcast,
    s.SliceOp: _slice,
    s.PadOp: _pad,
    s.ConcatenateOp: _concatenate,
    s.ReverseOp: _reverse,
    ReduceOp: _reduce,
}
