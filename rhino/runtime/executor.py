"""A function of the IR as a list of torch calls over numbered slots; values go after their last use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from rhino.ir.errors import RhinoError, UnsupportedError
from rhino.ir.text import show_location
from rhino.runtime.reuse import into, reusable_operand
from rhino.runtime.torch_ops import TABLE, Context, TensorFunction
from rhino.runtime.torch_ops.foreign import adapt


@dataclass(frozen=True)
class Call:
    """One op: a function, the slots it reads, the slots it fills, and those that nobody reads after it."""

    function: TensorFunction
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dead: tuple[int, ...]


@dataclass(frozen=True)
class Executable:
    """A compiled function. Calling it takes ownership of the arguments: the list given is emptied."""

    calls: tuple[Call, ...]
    slots: int
    unused: tuple[int, ...]
    results: tuple[int, ...]

    def __call__(self, arguments: list[torch.Tensor]) -> list[torch.Tensor]:
        values: list[torch.Tensor | None] = [None] * self.slots
        values[: len(arguments)] = arguments
        # Old parameters and states can be freed as soon as the program is done with them.
        arguments.clear()
        for slot in self.unused:
            values[slot] = None
        with torch.no_grad():
            for call in self.calls:
                out = call.function(*[values[i] for i in call.inputs])
                if len(call.outputs) == 1:
                    values[call.outputs[0]] = out  # type: ignore[assignment]
                else:
                    for slot, value in zip(call.outputs, out, strict=True):
                        values[slot] = value
                for slot in call.dead:
                    values[slot] = None
        return [values[i] for i in self.results]  # type: ignore[misc]


def compile_function(func: FuncOp, context: Context) -> Executable:
    """Compile a function of one block. Raises UnsupportedError naming an op without a lowering."""
    return _compile(func.body.block, replace(context, compile_block=compile_block))


def compile_block(block: Block, context: Context) -> TensorFunction:
    """The block of a composite op as a function of its arguments."""
    executable = _compile(block, context)
    single = len(executable.results) == 1

    def call(*arguments: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        results = executable(list(arguments))
        return results[0] if single else tuple(results)

    return call


def _compile(block: Block, context: Context) -> Executable:
    ops = list(block.ops)
    body, last = ops[:-1], ops[-1]
    number: dict[SSAValue, int] = {arg: i for i, arg in enumerate(block.args)}
    for op in body:
        for result in op.results:
            number[result] = len(number)
    last_use = _last_uses(body, last, number)
    calls = []
    for i, op in enumerate(body):
        dying = {v for v in op.operands if number[v] in last_use.get(i, ())}
        place = reusable_operand(op, dying)
        calls.append(
            Call(
                _lower(op, context) if place is None else into(op, place),
                tuple(number[o] for o in op.operands),
                tuple(number[r] for r in op.results),
                last_use.get(i, ()),
            )
        )
    return Executable(
        tuple(calls), len(number), last_use.get(-1, ()), tuple(number[o] for o in last.operands)
    )


def _last_uses(
    body: Sequence[Operation], last: Operation, number: dict[SSAValue, int]
) -> dict[int, tuple[int, ...]]:
    """For every op the slots that are dead after it; under -1 the arguments that nobody reads."""
    at = {slot: -1 for slot in number.values()}
    for i, op in enumerate(body):
        for value in (*op.operands, *op.results):
            at[number[value]] = i
    kept = {number[o] for o in last.operands}
    out: dict[int, list[int]] = {}
    for slot, i in at.items():
        if slot not in kept:
            out.setdefault(i, []).append(slot)
    return {i: tuple(slots) for i, slots in out.items()}


def _lower(op: Operation, context: Context) -> Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]:
    lowering = TABLE.get(op.name)
    if lowering is None:
        raise UnsupportedError(
            f"the torch backend has no lowering for {op.name}",
            where=show_location(op.location),
            remedy="add one to rhino/runtime/torch_ops, or run it on the interpreter with `rhino check`",
        )
    try:
        return adapt(op, lowering, context)
    except RhinoError as error:
        error.where = error.where or show_location(op.location)
        raise
