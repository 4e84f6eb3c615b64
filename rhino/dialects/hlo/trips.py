"""How often a loop turns, where that follows from constants alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from xdsl.ir import Block, SSAValue

from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.constant import constant_of
from rhino.dialects.hlo.regions import RegionOp, yielded
from rhino.ir import types

#: A loop of more turns counts as one of an unknown number.
LIMIT = 100_000

#: Counters are scalars or little more: larger values are not followed.
_ELEMENTS = 16

Known = dict[SSAValue, np.ndarray]


def trip_count(loop: RegionOp) -> int | None:
    """The number of turns of a `hlo.while`, or None if it cannot be told (or is too large to count)."""
    cond, body = loop.regions[0].block, loop.regions[1].block
    carried = yielded(body)
    start = {
        i: c for i, v in enumerate(loop.operands) if (c := constant_of(v)) is not None and c.size <= _ELEMENTS
    }
    # A carried value is followed as long as what it becomes depends on followed values only.
    followed = set(start)
    while True:
        lost = {i for i in followed if i < len(carried) and not _follows_from(carried[i], body, followed)}
        if not lost:
            break
        followed -= lost
    (condition,) = yielded(cond)
    if not _follows_from(condition, cond, followed):
        return None
    test = _evaluator([condition], cond)
    changing = [i for i in sorted(followed) if i < len(carried)]
    step = _evaluator([carried[i] for i in changing], body)
    now = {i: start[i] for i in followed}
    with np.errstate(all="ignore"):
        for turn in range(LIMIT + 1):
            if not bool(test({cond.args[i]: v for i, v in now.items()})[0]):
                return turn
            values = step({body.args[i]: v for i, v in now.items()})
            now.update(zip(changing, values, strict=True))
    return None


def _follows_from(value: SSAValue, block: Block, followed: set[int]) -> bool:
    """Whether a value of a block depends on the followed arguments only, through ops that are cheap to run."""
    known: set[SSAValue] = {block.args[i] for i in followed}
    for op in block.ops:
        if isinstance(op, HloOp) and not op.regions and all(o in known for o in op.operands):
            known.update(r for r in op.results if math.prod(types.shape_of(r)) <= _ELEMENTS)
    return value in known


def _evaluator(wanted: list[SSAValue], block: Block) -> Callable[[Known], list[np.ndarray]]:
    """A function from the arguments of a block to some of its values, which runs only what they need."""
    needed = set(wanted)
    ops: list[HloOp] = []
    for op in reversed(list(block.ops)):
        if isinstance(op, HloOp) and any(r in needed for r in op.results):
            ops.insert(0, op)
            needed.update(op.operands)

    def run(known: Known) -> list[np.ndarray]:
        values = dict(known)
        for op in ops:
            results = op.evaluate(*(values[o] for o in op.operands))
            values.update(zip(op.results, map(np.asarray, results), strict=True))
        return [values[v] for v in wanted]

    return run
