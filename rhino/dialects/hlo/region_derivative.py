"""Reverse mode on a list of ops, and through loops and branches.

A branch's derivative is a branch whose regions run the same region again and then backward. A loop's derivative is two
loops: one that keeps what every turn begins with, and one that goes through the turns from the last to the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from xdsl.ir import Block, SSAValue

from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.common import Cotangents
from rhino.dialects.hlo.composite import YieldOp
from rhino.dialects.hlo.constant import ConstantOp
from rhino.dialects.hlo.regions import RegionOp, yielded
from rhino.dialects.hlo.trips import LIMIT, trip_count
from rhino.ir import types
from rhino.ir.dense import to_numpy
from rhino.ir.errors import ProgramError, UnsupportedError

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


def reached_from(ops: Sequence[HloOp], sources: Sequence[SSAValue]) -> set[SSAValue]:
    """Values through which gradients flow and that depend on any of `sources`."""
    active = set(sources)
    for op in ops:
        if any(o in active for o in op.operands):
            active.update(r for r in op.results if types.is_differentiable(types.element_of(r)))
    return active


def pull_back(
    builder: Builder,
    ops: Sequence[HloOp],
    seeds: Mapping[SSAValue, SSAValue],
    wanted: Sequence[SSAValue],
) -> list[SSAValue | None]:
    """Emit what carries the cotangents of some values back through `ops` to those of `wanted`; None: nothing comes.

    Raises ProgramError when an op's derivative has the wrong type (a mistake in its definition).
    """
    active = reached_from(ops, wanted)
    cotangents = dict(seeds)
    for op in reversed(ops):
        outs = [cotangents.get(r) for r in op.results]
        if not any(o is not None for o in outs) or not any(o in active for o in op.operands):
            continue
        with builder.at(op.location):
            for operand, cotangent in zip(op.operands, op.derivative(builder, outs), strict=True):
                if cotangent is None or operand not in active:
                    continue
                if cotangent.type != operand.type:
                    raise ProgramError(
                        f"{op.name}: derivative of type {types.show(cotangent.type)} "
                        f"for an operand of type {types.show(operand.type)}",
                        remedy="this is a mistake in the op's definition; please report it",
                    )
                known = cotangents.get(operand)
                cotangents[operand] = cotangent if known is None else builder.add(known, cotangent)
    return [cotangents.get(v) for v in wanted]


def replay(
    builder: Builder, block: Block, arguments: Sequence[SSAValue]
) -> tuple[list[HloOp], list[SSAValue]]:
    """Emit the ops of a block on other arguments: the new ops, and what the block yields."""
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, arguments, strict=True))
    ops: list[HloOp] = []
    for op in block.ops:
        if isinstance(op, YieldOp):
            return ops, [values[v] for v in op.operands]
        new = op.clone(values)
        assert isinstance(new, HloOp)
        ops.append(builder.insert(new))
        values.update(zip(op.results, new.results, strict=True))
    raise ProgramError("a region does not end in hlo.yield")


def spread(
    builder: Builder, block: Block, arguments: Sequence[SSAValue]
) -> tuple[list[HloOp], list[SSAValue]]:
    """`replay` of a block of elementwise ops on scalars, on whole tensors: the new ops, and what it yields."""
    shape = types.shape_of(arguments[0])
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, arguments, strict=True))
    ops: list[HloOp] = []
    for op in block.ops:
        if isinstance(op, YieldOp):
            return ops, [values[v] for v in op.operands]
        assert isinstance(op, HloOp)
        if isinstance(op, ConstantOp):
            value = to_numpy(op.value).item()
            new = builder.full(shape, types.element_of(op.result), value).owner
        else:
            new = builder.emit(type(op), [values[o] for o in op.operands], op.properties)
        assert isinstance(new, HloOp)
        ops.append(new)
        values.update(zip(op.results, new.results, strict=True))
    raise ProgramError("a region does not end in hlo.yield")


def pull_back_block(
    builder: Builder,
    block: Block,
    arguments: Sequence[SSAValue],
    seeds: Sequence[SSAValue | None],
    wanted: Sequence[int],
) -> list[SSAValue]:
    """Replay a block, then the cotangents of the `wanted` arguments from those of what it yields; zeros where none."""
    ops, results = replay(builder, block, arguments)
    given: dict[SSAValue, SSAValue] = {}
    for result, seed in zip(results, seeds, strict=True):
        if seed is not None:
            given[result] = seed if result not in given else builder.add(given[result], seed)
    found = pull_back(builder, ops, given, [arguments[i] for i in wanted])
    return [
        builder.full_like(arguments[i], 0) if value is None else value
        for i, value in zip(wanted, found, strict=True)
    ]


def _differentiable(values: Sequence[SSAValue]) -> list[int]:
    return [i for i, v in enumerate(values) if types.is_differentiable(types.element_of(v))]


def branch_derivative(op: RegionOp, builder: Builder, cotangents: Cotangents) -> Cotangents:
    """See the module. The regions take the operands and the cotangents that are known."""
    operands = list(op.operands[1:])
    known = [i for i, dy in enumerate(cotangents) if dy is not None]
    wanted = _differentiable(operands)
    if not known or not wanted:
        return [None] * len(op.operands)

    def branch(block: Block):  # type: ignore[no-untyped-def]
        def body(b: Builder, *arguments: SSAValue) -> Sequence[SSAValue]:
            seeds: list[SSAValue | None] = [None] * len(cotangents)
            for i, dy in zip(known, arguments[len(operands) :], strict=True):
                seeds[i] = dy
            return pull_back_block(b, block, arguments[: len(operands)], seeds, wanted)

        return body

    given = [*operands, *(dy for dy in cotangents if dy is not None)]
    found = builder.branch(type(op), op.operands[0], given, [branch(r.block) for r in op.regions])
    out: list[SSAValue | None] = [None] * len(op.operands)
    for i, dx in zip(wanted, found, strict=True):
        out[1 + i] = dx
    return out


def while_derivative(op: RegionOp, builder: Builder, cotangents: Cotangents) -> Cotangents:
    """See the module. Raises UnsupportedError if the number of turns does not follow from constants."""
    b, operands, count = builder, list(op.operands), len(op.results)
    turns = trip_count(op)
    if turns is None:
        raise UnsupportedError(
            "hlo.while has no derivative here: its number of turns does not follow from constants "
            f"(or is more than {LIMIT})",
            remedy="count the turns with a constant bound",
        )
    carried, body = operands[:count], op.regions[1].block
    floats = _differentiable(carried)
    fixed = [i + count for i in _differentiable(operands[count:])]
    last = [b.full_like(carried[i], 0) if (dy := cotangents[i]) is None else dy for i in floats]
    sums = [b.full_like(operands[i], 0) for i in fixed]
    if turns:
        kept = [i for i in range(count) if yielded(body)[i] is not body.args[i]]
        stacks = _record(op, b, turns, kept)
        last, sums = _backward(op, b, turns, kept, stacks, floats, fixed, last, sums)
    out: list[SSAValue | None] = [None] * len(operands)
    for i, dx in zip([*floats, *fixed], [*last, *sums], strict=True):
        out[i] = dx
    return out


def _at(b: Builder, turn: SSAValue, rank: int) -> list[SSAValue]:
    zero = b.full((), types.I64, 0)
    return [turn, *[zero] * rank]


def _record(op: RegionOp, b: Builder, turns: int, kept: Sequence[int]) -> list[SSAValue]:
    """Run the loop again and stack the values `kept`, as they are when a turn begins."""
    operands, count = list(op.operands), len(op.results)
    cond, body = (r.block for r in op.regions)
    stacks = [b.full((turns, *types.shape_of(operands[i])), types.element_of(operands[i]), 0) for i in kept]
    n = len(stacks)

    def parts(arguments: Sequence[SSAValue]) -> tuple[list[SSAValue], list[SSAValue], SSAValue]:
        mine = list(arguments[:count]) + list(arguments[count + n + 1 :])
        return mine, list(arguments[count : count + n]), arguments[count + n]

    def test(c: Builder, *arguments: SSAValue) -> Sequence[SSAValue]:
        return replay(c, cond, parts(arguments)[0])[1]

    def turn(c: Builder, *arguments: SSAValue) -> Sequence[SSAValue]:
        mine, here, index = parts(arguments)
        stored = []
        for stack, i in zip(here, kept, strict=True):
            value = c.reshape(mine[i], (1, *types.shape_of(mine[i])))
            stored.append(c.dynamic_update_slice(stack, value, _at(c, index, len(types.shape_of(mine[i])))))
        return [*replay(c, body, mine)[1], *stored, c.add(index, c.full_like(index, 1))]

    initial = [*operands[:count], *stacks, b.full((), types.I64, 0)]
    results = b.while_(initial, operands[count:], test, turn)
    return list(results[count : count + n])


def _backward(
    op: RegionOp,
    b: Builder,
    turns: int,
    kept: Sequence[int],
    stacks: Sequence[SSAValue],
    floats: Sequence[int],
    fixed: Sequence[int],
    last: Sequence[SSAValue],
    sums: Sequence[SSAValue],
) -> tuple[list[SSAValue], list[SSAValue]]:
    """The loop over the turns from the last to the first: cotangents of the initial and of the fixed values."""
    operands, count = list(op.operands), len(op.results)
    body = op.regions[1].block
    n, m = len(floats), len(fixed)

    def test(c: Builder, *arguments: SSAValue) -> Sequence[SSAValue]:
        return [c.compare(arguments[0], c.full_like(arguments[0], 0), "ge")]

    def turn(c: Builder, *arguments: SSAValue) -> Sequence[SSAValue]:
        index, above, total = arguments[0], arguments[1 : 1 + n], arguments[1 + n : 1 + n + m]
        stored, mine = arguments[1 + n + m : 1 + n + m + len(kept)], list(arguments[1 + n + m + len(kept) :])
        for stack, i in zip(stored, kept, strict=True):
            shape = types.shape_of(operands[i])
            part = c.dynamic_slice(stack, _at(c, index, len(shape)), (1, *shape))
            mine[i] = c.reshape(part, shape)
        seeds: list[SSAValue | None] = [None] * count
        for i, dy in zip(floats, above, strict=True):
            seeds[i] = dy
        found = pull_back_block(c, body, mine, seeds, [*floats, *fixed])
        added = [c.add(old, new) for old, new in zip(total, found[n:], strict=True)]
        return [c.sub(index, c.full_like(index, 1)), *found[:n], *added]

    initial = [b.full((), types.I64, turns - 1), *last, *sums]
    results = b.while_(initial, [*stacks, *operands], test, turn)
    return list(results[1 : 1 + n]), list(results[1 + n :])
