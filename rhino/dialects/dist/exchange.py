"""What the collectives do, in numpy: digits cut from and joined into arrays, and groups combined.

On a dimension of extent e a digit of n members and local period P reads it as ``[e / P, n, P / n]``: index
l belongs to member ``(l mod P) // (P / n)``. Cutting takes one member out of the middle part, joining puts
all members back. All ranks are passed at once: ``values[rank]`` is the array of that rank.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.shards import combine

Arrays = Sequence[np.ndarray]


def cut(x: np.ndarray, dim: int, members: int, period: int, member: int) -> np.ndarray:
    """The part of `x` that belongs to `member` of a digit with local `period` on `dim`."""
    *before, extent = x.shape[: dim + 1]
    rest = x.shape[dim + 1 :]
    grouped = x.reshape(*before, extent // period, members, period // members, *rest)
    part = grouped[(slice(None),) * (dim + 1) + (member,)]
    return part.reshape(*before, extent // members, *rest)


def join(parts: Arrays, dim: int, period: int) -> np.ndarray:
    """The array whose members under a digit with local `period` on `dim` are `parts`; inverse of `cut`."""
    members, (*before, extent), rest = len(parts), parts[0].shape[: dim + 1], parts[0].shape[dim + 1 :]
    chunk = period // members
    grouped = np.stack([p.reshape(*before, extent // chunk, chunk, *rest) for p in parts], axis=dim + 1)
    return grouped.reshape(*before, extent * members, *rest)


@functools.lru_cache(maxsize=4096)
def groups(mesh: Mesh, axes: tuple[AxisRef, ...]) -> tuple[tuple[int, ...], ...]:
    """Groups of ranks that differ on `axes` only, each in order of its coordinate there."""
    return mesh.groups(axes)


def all_reduce(mesh: Mesh, axes: tuple[AxisRef, ...], values: Arrays, kind: str) -> list[np.ndarray]:
    """Every rank gets the combination of its group."""
    return _per_group(mesh, axes, values, lambda parts: [combine(kind, parts)] * len(parts))


def all_gather(
    mesh: Mesh, axes: tuple[AxisRef, ...], values: Arrays, dim: int, period: int
) -> list[np.ndarray]:
    """Every rank gets the arrays of its group joined."""
    return _per_group(mesh, axes, values, lambda parts: [join(parts, dim, period)] * len(parts))


def reduce_scatter(
    mesh: Mesh, axes: tuple[AxisRef, ...], values: Arrays, kind: str, dim: int, period: int
) -> list[np.ndarray]:
    """Every rank gets its part of the combination of its group."""

    def one(parts: Arrays) -> list[np.ndarray]:
        total = combine(kind, parts)
        return [cut(total, dim, len(parts), period, i) for i in range(len(parts))]

    return _per_group(mesh, axes, values, one)


def all_to_all(
    mesh: Mesh,
    axes: tuple[AxisRef, ...],
    values: Arrays,
    dim: int,
    period: int,
    to_dim: int,
    to_period: int,
) -> list[np.ndarray]:
    """Every rank cuts its array along `to_dim`, sends piece i to member i, joins what it gets along `dim`."""

    def one(parts: Arrays) -> list[np.ndarray]:
        n = len(parts)
        return [join([cut(p, to_dim, n, to_period, i) for p in parts], dim, period) for i in range(n)]

    return _per_group(mesh, axes, values, one)


def halo(
    mesh: Mesh,
    axes: tuple[AxisRef, ...],
    values: Arrays,
    dim: int,
    edges: tuple[int, int],
    fill: np.generic | bool | int | float,
) -> list[np.ndarray]:
    """Every rank gets the last elements along `dim` of the one before it and the first of the one behind it put to its
    own array, ``edges`` of them; at the ends of the group `fill`.
    """
    low, high = edges

    def one(parts: Arrays) -> list[np.ndarray]:
        shape, extent = list(parts[0].shape), parts[0].shape[dim]

        def outside(count: int) -> np.ndarray:
            return np.full([*shape[:dim], count, *shape[dim + 1 :]], fill, parts[0].dtype)

        first, last = outside(low), outside(high)
        before = [first, *(np.take(p, range(extent - low, extent), dim) for p in parts[:-1])]
        behind = [*(np.take(p, range(high), dim) for p in parts[1:]), last]
        return [np.concatenate(trio, axis=dim) for trio in zip(before, parts, behind, strict=True)]

    return _per_group(mesh, axes, values, one)


def shard(mesh: Mesh, axes: tuple[AxisRef, ...], values: Arrays, dim: int, period: int) -> list[np.ndarray]:
    """Every rank keeps its part of its own array."""

    def one(parts: Arrays) -> list[np.ndarray]:
        return [cut(p, dim, len(parts), period, i) for i, p in enumerate(parts)]

    return _per_group(mesh, axes, values, one)


def _per_group(
    mesh: Mesh, axes: tuple[AxisRef, ...], values: Arrays, one: Callable[[Arrays], list[np.ndarray]]
) -> list[np.ndarray]:
    out: list[np.ndarray] = list(values)
    for group in groups(mesh, axes):
        for rank, result in zip(group, one([values[r] for r in group]), strict=True):
            out[rank] = result
    return out
