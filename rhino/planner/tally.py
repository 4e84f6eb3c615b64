"""The one measure of a plan: step time and peak memory of what a device does, item by item.

Time is the sum of all items (nothing overlaps yet). Memory is a liveness sweep: a buffer lives from the item that
makes it to the last one that reads it; views live in their operand's buffer; what the step replaces (parameters,
optimizer states) lives through the whole step, and its new value takes the same place when the old one is no longer
read. A device's piece of an argument, or of a tensor that is a broadcast anyway, is a view; of anything else a copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rhino.planner.combine import Item, combine
from rhino.planner.communication import Communication
from rhino.planner.cost import copy_time

#: Roles of arguments that are there before and after the step, whatever it reads of them.
KEPT = frozenset({"parameter", "buffer", "state"})


@dataclass(frozen=True)
class PlanCost:
    """Seconds of computation and of communication in a step, and the most bytes that a device holds at once."""

    compute_s: float
    comm_s: float
    peak_memory_bytes: int

    @property
    def step_time_s(self) -> float:
        return self.compute_s + self.comm_s


@dataclass(frozen=True)
class Work:
    """All that a device does in a step.

    Attributes:
        items: in program order, reshards step by step.
        arguments: ``(buffer, bytes, kept)``; kept ones live through the whole step.
        results: ``(buffer, argument position it replaces or None)``.
    """

    items: Sequence[Item]
    arguments: Sequence[tuple[int, int, bool]]
    results: Sequence[tuple[int, int | None]]

    def combined(self, communication: Communication) -> Work:
        """The same with the buckets that `fuse-collectives` makes."""
        hardware = communication.cluster.hardware
        items = combine(self.items, communication.price, partial(copy_time, hardware))
        return Work(items, self.arguments, self.results)


def measure(work: Work, communication: Communication) -> PlanCost:
    """Cost of what a device does, collectives combined: the final word on every plan."""
    found = work.combined(communication)
    return tally(found.items, found.arguments, found.results)


def tally(
    items: Sequence[Item],
    arguments: Sequence[tuple[int, int, bool]],
    results: Sequence[tuple[int, int | None]],
) -> PlanCost:
    """Cost of a list of items as it stands; arguments are those of `Work`."""
    compute = math.fsum(item.time for item in items if not item.communication)
    comm = math.fsum(item.time for item in items if item.communication)
    return PlanCost(compute, comm, peak_memory(items, arguments, results))


def peak_memory(
    items: Sequence[Item],
    arguments: Sequence[tuple[int, int, bool]],
    results: Sequence[tuple[int, int | None]],
) -> int:
    """The liveness sweep of `tally`, in bytes."""
    line = np.zeros(len(items) + 2, dtype=np.int64)
    for _, bytes_, first, last in lifetimes(items, arguments, results):
        line[first] += bytes_
        line[last + 1] -= bytes_
    return int(np.cumsum(line).max())


def lifetimes(
    items: Sequence[Item],
    arguments: Sequence[tuple[int, int, bool]],
    results: Sequence[tuple[int, int | None]],
) -> list[tuple[int, int, int, int]]:
    """``(buffer, bytes, first, last)``: what is held in memory of its own, and from which item to which."""
    end = len(items)
    stays = {buffer for buffer, _, _ in arguments}
    root: dict[int, int] = {}
    size: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for buffer, bytes_, kept in arguments:
        root[buffer], size[buffer], first[buffer] = buffer, bytes_, 0
        last[buffer] = end if kept else 0
    read: dict[int, int] = {}
    for at, item in enumerate(items):
        for buffer in item.reads:
            owner = root[buffer]
            last[owner] = max(last[owner], at)
            read[owner] = at
        for buffer, bytes_ in item.writes:
            if item.reads and (item.view or _slices(item)):
                whole = root[item.reads[0]]
                if item.view or whole in stays or size[whole] <= bytes_:
                    root[buffer] = whole
                    continue
            root[buffer], size[buffer], first[buffer], last[buffer] = buffer, bytes_, at, at
    for buffer, replaced in results:
        owner = root[buffer]
        last[owner] = end
        if replaced is None:
            continue
        old = arguments[replaced][0]
        if owner != old and read.get(old, -1) <= first[owner] and size[owner] == size[old]:
            size[owner] = 0
    return [(buffer, bytes_, first[buffer], last[buffer]) for buffer, bytes_ in size.items()]


def _slices(item: Item) -> bool:
    """Whether it takes a piece of a tensor: a view, unless that would keep alive more than the piece."""
    return item.collective is not None and item.collective.kind == "shard"


def describe(cost: PlanCost) -> Mapping[str, float | int]:
    """The cost under the names that the JSON report uses."""
    return {
        "step_time_s": cost.step_time_s,
        "compute_s": cost.compute_s,
        "comm_s": cost.comm_s,
        "peak_memory_bytes": cost.peak_memory_bytes,
    }
