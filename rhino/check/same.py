"""Is a placed program, read without its layouts, the program that was planned? Decided without running anything.

Values get numbers: equal ops on values of equal numbers make values of equal numbers. A reshard hands its operand on,
so copies of constants, and ops in another order, change nothing.
"""

from __future__ import annotations

from collections.abc import Hashable

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Attribute, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist import ReshardOp
from rhino.dialects.hlo.composite import CompositeOp
from rhino.ir.printing import print_module
from rhino.passes.inline_composites import inline_composites
from rhino.passes.microbatch import accumulated_in, microbatch
from rhino.passes.pad import PadPass


class Numbering:
    """Numbers for values, shared by the programs that are compared."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._attributes: dict[int, tuple[Attribute, int]] = {}

    def results(self, module: ModuleOp) -> list[int]:
        """The numbers of what `@main` returns."""
        func = signature.main_of(module)
        known: dict[SSAValue, int] = {
            arg: self._number(("argument", i, self._of(arg.type))) for i, arg in enumerate(func.args)
        }
        for op in func.body.block.ops:
            if isinstance(op, ReturnOp):
                break
            operands = tuple(known[v] for v in op.operands)
            if isinstance(op, ReshardOp):
                known[op.result] = operands[0]
                continue
            own = tuple((key, self._of(attr)) for key, attr in sorted(op.properties.items()))
            inside = tuple(print_module(inner) for r in op.regions for b in r.blocks for inner in b.ops)
            for i, result in enumerate(op.results):
                known[result] = self._number((op.name, own, inside, operands, i, self._of(result.type)))
        return [known[v] for v in signature.return_of(func).operands]

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _of(self, attribute: Attribute) -> int:
        """By identity first: most attributes are shared, and hashing a large one takes long."""
        found = self._attributes.get(id(attribute))
        if found is None:
            found = attribute, self._number(attribute)
            self._attributes[id(attribute)] = found
        return found[1]


def first_other(program: ModuleOp, placed: ModuleOp, padding: str, micro_batches: int = 1) -> str | None:
    """The first result of a placed module that is not computed as in the program; None if all are.

    Args:
        padding: the option `extents` of the pass `pad` with which the program was planned; empty for none.
        micro_batches: the option `count` of the pass `microbatch` with which it was planned.
    """
    if (
        padding
        or micro_batches > 1
        or any(isinstance(op, CompositeOp) for op in signature.main_of(program).body.block.ops)
    ):
        program = program.clone()
        inline_composites(program)
    microbatch(program, micro_batches, accumulate_in=accumulated_in(placed))
    if padding:
        PadPass(extents=padding).apply(Context(), program)
    numbers = Numbering()
    want, got = numbers.results(program), numbers.results(placed)
    slots = signature.results(signature.main_of(placed))
    for i, (a, b) in enumerate(zip(want, got, strict=True)):
        if a != b:
            return slots[i].name or f"result {i}"
    return None
