"""Before writing: ops that StableHLO has no counterpart of become others that it has."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.random import RandomUniformOp
from rhino.ir import types
from rhino.ir.philox import SIGNIFICANT_BITS

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def expand(module: ModuleOp) -> None:
    """Rewrite in place: random numbers into the integer arithmetic of Philox, bit for bit."""
    for op in list(module.walk()):
        if isinstance(op, RandomUniformOp):
            builder = Builder(InsertPoint.before(op))
            with builder.at(op.location):
                value = _uniform(builder, op)
            op.result.replace_all_uses_with(value)
            op.detach()
            op.erase()


def _uniform(b: Builder, op: RandomUniformOp) -> SSAValue:
    """See `rhino.ir.philox`: 32-bit words in 64-bit integers, so that a product's high word is a shift."""
    shape = types.shape_of(op.index)

    def number(value: int) -> SSAValue:
        return b.constant(np.asarray(value, np.uint64), types.tensor(shape, types.UI64))

    low, half = number(0xFFFFFFFF), number(32)

    def high_word(x: SSAValue) -> SSAValue:
        return b.shift_right_logical(x, half)

    at = b.convert(op.index, types.UI64)
    seed = b.broadcast_in_dim(b.convert(op.seed, types.UI64), shape, ())
    c0, c1, c2, c3 = b.and_(at, low), high_word(at), number(0), number(0)
    keys = [b.and_(seed, low), high_word(seed)]
    for _ in range(_ROUNDS):
        p0, p1 = b.mul(number(_MULTIPLIERS[0]), c0), b.mul(number(_MULTIPLIERS[1]), c2)
        c0, c1, c2, c3 = (
            b.xor(b.xor(high_word(p1), c1), keys[0]),
            b.and_(p1, low),
            b.xor(b.xor(high_word(p0), c3), keys[1]),
            b.and_(p0, low),
        )
        keys = [b.and_(b.add(key, number(step)), low) for key, step in zip(keys, _STEPS, strict=True)]
    bits = SIGNIFICANT_BITS[types.numpy_dtype(op.element_type)]
    top = b.shift_right_logical(b.or_(b.shift_left(c0, half), c1), number(64 - bits))
    wide = b.convert(top, types.F64)
    scaled = b.mul(wide, b.full_like(wide, 2.0**-bits))
    return scaled if op.element_type == types.F64 else b.convert(scaled, op.element_type)
