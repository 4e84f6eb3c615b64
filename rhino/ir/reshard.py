"""Resharding: the cheapest chain of communication steps from one layout of a tensor to another.

A step acts on groups of devices (those that differ on `axes` only, ordered by their coordinate on them). On a
dimension it adds or removes one digit of the *local* array: with n members and local period P, index l of
the array that lacks the digit belongs to member ``(l mod P) // (P / n)``; a backend reshapes the dimension
to ``[e / P, n, P / n]`` and works on the middle part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rhino.ir._reshard_chain import Chain, chain_of
from rhino.ir._reshard_search import Item, State, fixed_of, items_of
from rhino.ir.errors import LayoutError
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh, merge_refs


@dataclass(frozen=True)
class Step:
    """One local slice or collective; see the module's docstring.

    Attributes:
        kind: ``shard`` (local slice), ``all_gather``, ``all_reduce``, ``reduce_scatter``, ``all_to_all`` or
            ``permute``.
        axes: the merged sub-axes whose groups take part, outer first.
        before, after: the layouts before and after the step.
        reduction: what all_reduce and reduce_scatter combine with.
        dim, period: dimension and local period of the digit that shard and reduce_scatter add (counted in the
            array before), or that all_gather and all_to_all remove (counted in the array after).
        to_dim, to_period: the digit that all_to_all adds, counted in the array before. The array is first cut
            by it, the pieces exchanged, then joined along `dim`.
        pairs: ``(source, target)`` devices of a permute, for every device once as source and once as target.
    """

    kind: str
    axes: tuple[AxisRef, ...]
    before: Layout
    after: Layout
    reduction: str | None = None
    dim: int | None = None
    period: int | None = None
    to_dim: int | None = None
    to_period: int | None = None
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def group_size(self) -> int:
        """Devices per group."""
        return math.prod(axis.size for axis in self.axes)

    def wire_bytes(self, shape: Sequence[int], itemsize: int) -> int:
        """Bytes that each device sends (ring or pairwise algorithm); `shape` is the global shape."""
        n = self.group_size
        operand = math.prod(self.before.local_shape(shape)) * itemsize
        match self.kind:
            case "shard":
                return 0
            case "all_gather":
                return operand * (n - 1)
            case "all_reduce":
                return -(-2 * operand * (n - 1) // n)
            case "permute":
                return operand if any(s != t for s, t in self.pairs) else 0
            case _:
                return operand * (n - 1) // n


@lru_cache(maxsize=1 << 18)
def reshard_steps(shape: tuple[int, ...], a: Layout, b: Layout, mesh: Mesh) -> tuple[Step, ...]:
    """The steps that take a tensor of global `shape` from layout `a` to `b`; fewest bytes, then fewest steps.

    Empty when the layouts are equal. Raises LayoutError when a layout is ill-formed for `shape`, or when no
    step leads to `b`: nothing becomes partial, and a partial kind does not change.
    """
    if a == b:
        return ()
    a.check(shape)
    b.check(shape)
    items = items_of(a, b, mesh)
    for item in items:
        if isinstance(item.goal, str):
            now = (
                "replicated"
                if item.start is None
                else "split"
                if isinstance(item.start, tuple)
                else item.start
            )
            raise LayoutError(
                f"axis '{item.atoms[0].name}': a tensor that is {now} cannot become partial {item.goal}",
                remedy="partial layouts only come out of ops; ask for a replicated or split one",
            )
    chain = chain_of(shape, fixed_of(a, items), tuple(item.nameless() for item in items))
    return _named(chain, items, a, mesh)


def wire_bytes(steps: Sequence[Step], shape: Sequence[int], itemsize: int) -> int:
    """Bytes that each device sends in all `steps`."""
    return sum(step.wire_bytes(shape, itemsize) for step in steps)


def _named(chain: Chain, items: Sequence[Item], a: Layout, mesh: Mesh) -> tuple[Step, ...]:
    """The steps of a chain on the axes that its items are."""
    kept = a.without([atom for item in items for atom in item.atoms])
    items = chain.part(items)
    steps: list[Step] = []
    before = a
    for phase in chain.phases:
        atoms = [atom for i in phase.group for atom in items[i].atoms]
        if phase.kind in ("permute", "all_reduce"):
            atoms.sort(key=mesh.order)
        after = _layout(items, kept, phase.after)
        pairs = _pairs(before, after, mesh) if phase.kind == "permute" else ()
        steps.append(
            Step(
                phase.kind,
                merge_refs(atoms),
                before,
                after,
                phase.reduction,
                phase.dim,
                phase.period,
                phase.to_dim,
                phase.to_period,
                pairs,
            )
        )
        before = after
    return tuple(steps)


def _layout(items: Sequence[Item], kept: Layout, state: State) -> Layout:
    dims: list[list[Digit]] = [list(digits) for digits in kept.dims]
    partial = list(kept.partial)
    for item, status in zip(items, state, strict=True):
        if isinstance(status, tuple):
            period = status[1]
            for atom in item.atoms:
                dims[status[0]].append(Digit(atom, period))
                period //= atom.size
        elif isinstance(status, str):
            partial += [(atom, status) for atom in item.atoms]
    # All axes are atoms here, so this is what `Layout.make` would do, without looking for their factors.
    return Layout(
        tuple(
            tuple(sorted(digits, key=_descending)) if len(digits) > 1 else tuple(digits) for digits in dims
        ),
        tuple(sorted(partial)),
    )


def _descending(digit: Digit) -> int:
    return -digit.period


def _pairs(before: Layout, after: Layout, mesh: Mesh) -> tuple[tuple[int, int], ...]:
    """Who sends to whom, so that every device gets the piece `after` wants; as many as can keep theirs.

    Devices in ascending order take what is asked for in ascending order.
    """
    has, wants = _pieces(before, mesh), _pieces(after, mesh)
    devices = np.arange(mesh.size)
    moving = devices[has != wants]
    source = devices.copy()
    takers = moving[np.argsort(wants[moving], kind="stable")]
    source[takers] = moving[np.argsort(has[moving], kind="stable")]
    order = np.argsort(source, kind="stable")
    return tuple(zip(source[order].tolist(), order.tolist(), strict=True))


def _pieces(layout: Layout, mesh: Mesh) -> np.ndarray:
    """Per device a number for the piece of the tensor that it holds: the same in all layouts that cut it alike.

    Digits that continue one another, major to minor, count as one; `before` and `after` of a permutation have the same
    ones, whoever holds them.
    """
    out = np.zeros(mesh.size, dtype=np.int64)
    for atom in layout.axes():
        out = out * atom.size + _coordinates(atom, mesh)
    return out


@lru_cache(maxsize=1 << 10)
def _coordinates(atom: AxisRef, mesh: Mesh) -> np.ndarray:
    """`Mesh.coordinate` of all devices."""
    names = [name for name, _ in mesh.axes]
    minor = math.prod(size for _, size in mesh.axes[names.index(atom.name) + 1 :])
    within = mesh.sizes[atom.name] // (atom.pre * atom.size)
    return np.arange(mesh.size) // (minor * within) % atom.size
