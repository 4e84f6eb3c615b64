"""What a device really communicates: every reshard as its collectives, small ones in buckets as the pass makes them.

`fuse-collectives` turns several small collectives of one sort into one over a flat buffer, and which of them share a
buffer is decided by `rhino.passes.buckets.group`. The measure asks the same function about its own items, so that
thirty small gradients cost one launch, and what a bucket makes wait lives as long as it will.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from rhino.ir.mesh import AxisRef
from rhino.passes.buckets import BUCKET_BYTES, Element, group

#: Kinds that the pass collects.
BUCKETED = frozenset({"all_reduce", "all_gather", "reduce_scatter"})


@dataclass(frozen=True)
class Collective:
    """One step of a reshard.

    Attributes:
        kind: as in `rhino.ir.reshard.Step`.
        members, nodes: of its groups, per node, and how many nodes one group touches.
        operand, result: bytes per device before and after.
        element: element type; only equal ones share a bucket.
    """

    kind: str
    members: int
    nodes: int
    axes: tuple[AxisRef, ...]
    reduction: str | None
    operand: float
    result: float
    element: str

    @property
    def sort(self) -> Hashable:
        """Collectives of one sort may share a bucket."""
        return self.kind, self.reduction, self.axes, self.element

    @property
    def size(self) -> int:
        """Bytes of the larger side, by which a bucket fills."""
        return int(max(self.operand, self.result))


@dataclass(frozen=True)
class Item:
    """One thing a device does.

    Attributes:
        time: seconds.
        communication: whether it is part of a reshard.
        reads: buffers it reads.
        writes: ``(buffer, bytes)`` it makes.
        view: its results are views of its first operand.
        collective: the step of a reshard that it is.
        heavy: whether it is a matrix product or convolution.
        source: what it is in the program, for reports: an op's index, or the value that is resharded.
    """

    time: float
    communication: bool
    reads: tuple[int, ...]
    writes: tuple[tuple[int, int], ...]
    view: bool = False
    collective: Collective | None = None
    heavy: bool = False
    source: Hashable = None


def combine(
    items: Sequence[Item],
    price: Callable[[Collective], float],
    copy: Callable[[float, int], float],
    limit: int = BUCKET_BYTES,
) -> list[Item]:
    """The items with buckets in place of the collectives that share one.

    Args:
        items: in program order, buffers numbered from 0.
        price: seconds of a collective.
        copy: seconds of copying so many bytes by so many kernels.
        limit: bytes of a bucket.
    """
    found = Counter(
        item.collective.sort
        for item in items
        if item.collective is not None
        and item.collective.kind in BUCKETED
        and 0 < item.collective.size <= limit
    )
    out = list(items)
    fresh = 1 + max((b for item in items for b in (*item.reads, *(w for w, _ in item.writes))), default=0)
    for sort, count in found.items():
        if count < 2:
            continue
        own = [item.collective is not None and item.collective.sort == sort for item in out]
        groups = group((_element(item, mine) for item, mine in zip(out, own, strict=True)), limit)
        if not groups:
            continue
        rebuilt: list[Item] = []
        at = 0
        for members, stand, late in groups:
            moved = {*members, *late}
            rebuilt += [out[i] for i in range(at, stand) if i not in moved]
            rebuilt += _bucket([out[i] for i in members], fresh, price, copy)
            rebuilt += [out[i] for i in late]
            at = members[-1] + 1
            rebuilt += [out[i] for i in range(stand, at) if i not in moved]
            fresh += 2
        out = rebuilt + out[at:]
    return out


def _element(item: Item, mine: bool) -> Element:
    size = item.collective.size if mine and item.collective is not None else None
    return Element(item.reads, [buffer for buffer, _ in item.writes], size, item.heavy)


def _bucket(
    members: Iterable[Item],
    fresh: int,
    price: Callable[[Collective], float],
    copy: Callable[[float, int], float],
) -> list[Item]:
    """The operands into a flat buffer, one collective, the results out of it (views, but for what was gathered)."""
    members = list(members)
    steps = [item.collective for item in members if item.collective is not None]
    operand, result = math.fsum(s.operand for s in steps), math.fsum(s.result for s in steps)
    whole = replace(steps[0], operand=operand, result=result)
    source = tuple(item.source for item in members)
    flat, joined = fresh, fresh + 1
    reads = tuple(buffer for item in members for buffer in item.reads)
    writes = tuple(write for item in members for write in item.writes)
    gathered = whole.kind == "all_gather"
    return [
        Item(copy(operand, 1), True, reads, ((flat, int(operand)),), source=source),
        Item(price(whole), True, (flat,), ((joined, int(result)),), collective=whole, source=source),
        Item(
            copy(result, len(members)) if gathered else 0.0,
            True,
            (joined,),
            writes,
            view=not gathered,
            source=source,
        ),
    ]


def edge_items(
    steps: Sequence[Collective],
    price: Callable[[Collective], float],
    reads: tuple[int, ...],
    numbers: Sequence[int],
    source: Hashable,
) -> tuple[list[Item], tuple[int, ...]]:
    """The exchanges of edges of an op's first operand (see `Communication.edges`), and what the op then reads; step i
    makes the buffer ``numbers[i]``.
    """
    if not steps:
        return [], reads
    return reshard_items(steps, price, reads[0], numbers, source), (numbers[-1], *reads[1:])


def reshard_items(
    steps: Sequence[Collective],
    price: Callable[[Collective], float],
    start: int,
    numbers: Sequence[int],
    source: Hashable,
) -> list[Item]:
    """A reshard of buffer `start`, step by step; step i makes the buffer ``numbers[i]``."""
    out = []
    for step, number in zip(steps, numbers, strict=True):
        out.append(
            Item(
                price(step),
                True,
                (start,),
                ((number, int(step.result)),),
                collective=step,
                source=source,
            )
        )
        start = number
    return out
