"""What micro-batches buy: the memory that the batch as one would take under a plan's layouts.

A plan in micro-batches is unrolled, so what one of them keeps between forward and backward is plain to see: values
that are made inside of it from the batch, except terms of gradients and their sums, whose sizes have nothing to do with
the batch. Of the batch as one these would be K times as large, and held at the same moments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist import ReshardOp
from rhino.passes.microbatch import micro_number


@dataclass(frozen=True)
class MicroReport:
    """Micro-batches of a plan, with bytes per device.

    Attributes:
        count: how many there are.
        held: what one micro-batch holds of its own at the peak of the step; 0 where the peak is elsewhere.
        sums: of that peak, gradients that are being added up.
        whole_peak: about what the step would need with the batch as one.
    """

    count: int
    held: int
    sums: int
    whole_peak: int


def values_of_micro_batches(module: ModuleOp) -> tuple[set[Operation], set[Operation]]:
    """Ops of a placed module whose results grow with the micro-batch, and ops that make terms or sums over them."""
    func = signature.main_of(module)
    slots = signature.arguments(func)
    batch = {a for a, slot in zip(func.args, slots, strict=True) if (slot.role or "input") == "input"}
    ops = list(func.body.block.ops)
    terms: set[SSAValue] = set()
    for op in reversed(ops):
        found = micro_number(op)
        if found is not None and (".sum" in found[1] or ".wide" in found[1]):
            terms.update((*op.operands, *op.results))
        elif isinstance(op, ReshardOp) and op.result in terms:
            terms.add(op.x)
    grows: set[SSAValue] = set()
    growing: set[Operation] = set()
    for op in ops:
        inside = micro_number(op) is not None and any(v in grows or v in batch for v in op.operands)
        if inside or (isinstance(op, ReshardOp) and op.x in grows):
            made = [r for r in op.results if r not in terms]
            grows.update(made)
            if made:
                growing.add(op)
    adding = {v.owner for v in terms if isinstance(v.owner, Operation)}
    return growing, adding


def micro_report(
    count: int,
    lives: Iterable[tuple[int, int, int, int]],
    growing: Collection[int],
    adding: Collection[int],
) -> MicroReport:
    """Sweep over lifetimes ``(buffer, bytes, first, last)``, given the buffers of `values_of_micro_batches`."""
    change: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
    for buffer, size, first, last in lives:
        for at, sign in ((first, 1), (last + 1, -1)):
            change[at][0] += sign * size
            change[at][1] += sign * size * (buffer in growing)
            change[at][2] += sign * size * (buffer in adding)
    total = held = sums = 0
    peak, whole = (-1, 0, 0), 0
    for at in sorted(change):
        total, held, sums = (a + b for a, b in zip((total, held, sums), change[at], strict=True))
        peak = max(peak, (total, held, sums), key=lambda each: each[0])
        whole = max(whole, total + (count - 1) * held)
    return MicroReport(count, peak[1], peak[2], whole)
