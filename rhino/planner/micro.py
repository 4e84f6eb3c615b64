"""How many micro-batches: one, unless nothing fits the memory; then as few as make it fit, or the next number if that
is faster.

More micro-batches need less memory for what is kept between forward and backward, and take longer: weights are read
(and gathered) again for each, and matrix products are smaller. From one number to the next the batch of a micro-batch
at least halves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from xdsl.dialects.builtin import ModuleOp

from rhino.dialects import signature
from rhino.ir import types
from rhino.ir.errors import PlanError, ProgramError, UsageError
from rhino.ir.quantity import size
from rhino.passes.micro_split import batch_extent
from rhino.planner.tally import KEPT

P = TypeVar("P")

#: What lets the planner choose.
AUTO = "auto"


class TooLarge(PlanError):
    """No plan was found that fits the memory; `needs` is what the smallest found takes, in bytes per device."""

    def __init__(self, error: PlanError, needs: float, limit: float) -> None:
        super().__init__(error.message, where=error.where, remedy=error.remedy)
        self.needs = needs
        self.limit = limit


@dataclass(frozen=True)
class Tried:
    """A number of micro-batches that was planned.

    Attributes:
        peak_memory_bytes: per device, of the plan, or of the smallest one found where none fits.
        step_time_s: None where none fits.
    """

    count: int
    peak_memory_bytes: float
    step_time_s: float | None


@dataclass(frozen=True)
class Chosen(Generic[P]):
    """The plan for the number of micro-batches that was chosen, and all numbers that were planned, in this order."""

    plan: P
    count: int
    tried: tuple[Tried, ...]


def parse_count(text: str) -> int | str:
    """A number of micro-batches as written: ``4``, or ``auto``. Raises UsageError."""
    if text == AUTO:
        return AUTO
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{text} micro-batches", remedy="give a number, 1 or more, or auto")
    return int(text)


def counts_of(batch: int) -> list[int]:
    """The numbers that are tried: 1, and divisors of the batch each at least twice the one before."""
    out = [1]
    for n in range(2, batch + 1):
        if batch % n == 0 and n >= 2 * out[-1]:
            out.append(n)
    return out


def choose(
    program: ModuleOp,
    devices: int,
    attempt: Callable[[int], P],
    measured: Callable[[P], tuple[float, float]],
    tell: Callable[[str], None],
) -> Chosen[P]:
    """Plan for 1, 2, 4, ... micro-batches until something fits, and for the next number; the faster of these two.

    Where parameters and states alone do not fit, in as many pieces as there are devices, none is tried.

    Args:
        attempt: plans for a number of micro-batches; raises TooLarge when nothing fits.
        measured: seconds of a plan's step, and its peak memory.

    Raises what `attempt` raised for one micro-batch, with why there cannot be more, when nothing helps.
    """
    tried: list[Tried] = []
    try:
        found = attempt(1)
    except TooLarge as error:
        first = error
    else:
        return Chosen(found, 1, (Tried(1, measured(found)[1], measured(found)[0]),))
    tried.append(Tried(1, first.needs, None))
    if kept_bytes(program) / devices > first.limit:
        raise _hopeless(
            first, "parameters and states alone need more, so micro-batches are no way out", tried
        )
    fits: list[tuple[float, int, P]] = []
    try:
        for count in counts_of(batch_extent(signature.main_of(program)))[1:]:
            tell(f"{count} micro-batches")
            try:
                found = attempt(count)
            except TooLarge as error:
                tried.append(Tried(count, error.needs, None))
                if fits:
                    break
                continue
            seconds, peak = measured(found)
            tried.append(Tried(count, peak, seconds))
            fits.append((seconds, count, found))
            if len(fits) == 2:
                break
    except (ProgramError, UsageError) as error:
        if not fits:
            raise _hopeless(first, f"micro-batches are no way out: {error.message}", tried) from error
    if not fits:
        raise _hopeless(first, "micro-batches are no way out: the batch has no more parts", tried)
    _, count, found = min(fits, key=lambda each: each[:2])
    return Chosen(found, count, tuple(tried))


def kept_bytes(program: ModuleOp) -> int:
    """Bytes of what a step keeps for the next one: parameters, buffers and optimizer states."""
    func = signature.main_of(program)
    slots = zip(signature.arguments(func), func.args, strict=True)
    return sum(types.bytes_of(types.type_of(arg)) for slot, arg in slots if slot.role in KEPT)


def _hopeless(error: TooLarge, why: str, tried: Sequence[Tried]) -> TooLarge:
    more = ", ".join(f"{size(t.peak_memory_bytes)} in {t.count}" for t in tried[1:])
    text = f"{error.message} with the batch in one piece, {more}" if more else error.message
    remedy = f"{error.remedy}; {why}" if error.remedy else why
    return TooLarge(PlanError(text, where=error.where, remedy=remedy), error.needs, error.limit)
