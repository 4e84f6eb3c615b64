"""Brute force: local arrays of every device under a layout, and reshard steps executed on them.

Nothing here uses the code under test for index arithmetic: ownership is read off the definition of a digit,
coordinates off the definition of a mesh, and steps are executed element by element group as documented.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.reshard import Step

COMBINE = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def coordinates(mesh: Mesh, device: int) -> dict[str, int]:
    """Row-major coordinates by axis name."""
    return dict(
        zip((n for n, _ in mesh.axes), np.unravel_index(device, [s for _, s in mesh.axes]), strict=True)
    )


def coordinate(mesh: Mesh, device: int, axis: AxisRef) -> int:
    """Coordinate of a device on a sub-axis: Shardy's meaning of ``(pre)size``."""
    whole = dict(mesh.axes)[axis.name]
    view = np.arange(whole).reshape(axis.pre, axis.size, whole // (axis.pre * axis.size))
    return int(np.argwhere(view == coordinates(mesh, device)[axis.name])[0][1])


def owned(extent: int, digits: Sequence[Digit], mesh: Mesh, device: int) -> list[int]:
    """Indices of one dimension that a device holds, by the definition of a digit."""
    out = []
    for i in range(extent):
        mine = [
            (i % d.period) // (d.period // d.axis.size) == coordinate(mesh, device, d.axis) for d in digits
        ]
        if all(mine):
            out.append(i)
    return out


def cut(value: np.ndarray, layout: Layout, mesh: Mesh, device: int) -> np.ndarray:
    """What a device holds of `value` as far as the digits go."""
    for dim, digits in enumerate(layout.dims):
        value = value.take(owned(value.shape[dim], digits, mesh, device), axis=dim)
    return value


def scatter(value: np.ndarray, layout: Layout, mesh: Mesh, seed: int = 0) -> list[np.ndarray]:
    """Local arrays of all devices; over partial axes random arrays that combine to the value."""
    rng = np.random.default_rng(seed)
    out: list[np.ndarray] = [np.empty(0)] * mesh.size
    axes = [axis for axis, _ in layout.partial]
    groups: dict[tuple[int, ...], list[int]] = {}
    for device in range(mesh.size):
        groups.setdefault(tuple(coordinate(mesh, device, a) for a in axes), []).append(device)
    shares = [value]
    if axes:
        kind = layout.partial[0][1]
        if kind == "sum":
            shares = [rng.integers(-50, 50, value.shape) for _ in range(len(groups) - 1)]
            shares.append(value - sum(shares))
        elif kind == "max":
            # One random share holds the value, the others are below.
            holder = rng.integers(0, len(groups), value.shape)
            shares = [
                np.where(holder == i, value, value - rng.integers(1, 9, value.shape))
                for i in range(len(groups))
            ]
        else:
            raise NotImplementedError(kind)
    for share, devices in zip(shares, groups.values(), strict=True):
        for device in devices:
            out[device] = cut(share, layout, mesh, device)
    return out


def check(arrays: Sequence[np.ndarray], value: np.ndarray, layout: Layout, mesh: Mesh) -> str | None:
    """Why the local arrays do not denote `value` under `layout`."""
    axes = [axis for axis, _ in layout.partial]
    digits = [d.axis for ds in layout.dims for d in ds]
    groups: dict[tuple[int, ...], dict[tuple[int, ...], list[int]]] = {}
    for device in range(mesh.size):
        piece = tuple(coordinate(mesh, device, a) for a in digits)
        share = tuple(coordinate(mesh, device, a) for a in axes)
        groups.setdefault(piece, {}).setdefault(share, []).append(device)
    for piece, shares in groups.items():
        total = None
        for devices in shares.values():
            for device in devices[1:]:
                if not np.array_equal(arrays[device], arrays[devices[0]]):
                    return f"devices {devices[0]} and {device} differ"
            first = arrays[devices[0]]
            total = first if total is None else COMBINE[layout.partial[0][1]](total, first)
        want = cut(value, layout, mesh, next(iter(shares.values()))[0])
        if total is None or not np.array_equal(total, want):
            return f"piece {piece} is wrong"
    return None


def groups(mesh: Mesh, axes: Sequence[AxisRef]) -> list[list[int]]:
    """Groups of devices along `axes`, ordered by their coordinate on them, outer first."""
    where: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = {}
    for device in range(mesh.size):
        mine = tuple(coordinate(mesh, device, a) for a in axes)
        rest = tuple(
            coordinate(mesh, device, a) for a in mesh.atoms if not any(_inside(a, axis) for axis in axes)
        )
        where.setdefault(rest, []).append((mine, device))
    return [[d for _, d in sorted(g)] for g in where.values()]


def _inside(atom: AxisRef, axis: AxisRef) -> bool:
    return (
        atom.name == axis.name
        and atom.pre % axis.pre == 0
        and (axis.pre * axis.size) % (atom.pre * atom.size) == 0
    )


def split(x: np.ndarray, dim: int, period: int, n: int) -> list[np.ndarray]:
    """Cut an array by a local digit, as a backend does: reshape to [e/P, n, P/n] and take the middle."""
    lead, tail, extent = x.shape[:dim], x.shape[dim + 1 :], x.shape[dim]
    assert period % n == 0 and extent % period == 0, (extent, period, n)
    view = x.reshape(*lead, extent // period, n, period // n, *tail)
    return [view.take(k, axis=dim + 1).reshape(*lead, extent // n, *tail) for k in range(n)]


def join(parts: Sequence[np.ndarray], dim: int, period: int) -> np.ndarray:
    """Inverse of `split`: period is counted in the joined array."""
    n = len(parts)
    lead, tail, extent = parts[0].shape[:dim], parts[0].shape[dim + 1 :], parts[0].shape[dim] * n
    assert period % n == 0 and extent % period == 0, (extent, period, n)
    pieces = [p.reshape(*lead, extent // period, period // n, *tail) for p in parts]
    return np.stack(pieces, axis=dim + 1).reshape(*lead, extent, *tail)


def execute(step: Step, arrays: Sequence[np.ndarray], mesh: Mesh) -> list[np.ndarray]:
    """Run one step on all devices' arrays."""
    out = list(arrays)
    if step.kind == "permute":
        assert sorted(s for s, _ in step.pairs) == sorted(t for _, t in step.pairs) == list(range(mesh.size))
        for source, target in step.pairs:
            out[target] = arrays[source]
        return out
    for group in groups(mesh, step.axes):
        n = len(group)
        mine = [arrays[d] for d in group]
        if step.kind in ("all_reduce", "reduce_scatter"):
            total = mine[0]
            for other in mine[1:]:
                total = COMBINE[step.reduction](total, other)
            new = [total] * n
            if step.kind == "reduce_scatter":
                new = split(total, step.dim, step.period, n)
        elif step.kind == "shard":
            new = [split(x, step.dim, step.period, n)[k] for k, x in enumerate(mine)]
        elif step.kind == "all_gather":
            new = [join(mine, step.dim, step.period)] * n
        elif step.kind == "all_to_all":
            sent = [split(x, step.to_dim, step.to_period, n) for x in mine]
            new = [join([sent[k][j] for k in range(n)], step.dim, step.period) for j in range(n)]
        else:
            raise AssertionError(step.kind)
        for device, x in zip(group, new, strict=True):
            out[device] = x
    return out


def layouts(
    shape: Sequence[int], mesh: Mesh, kinds: Sequence[str] = ("sum", "max"), partial: bool = True
) -> Iterator[Layout]:
    """All well-formed layouts of a tensor on a mesh."""
    options: list[list[object]] = []
    for atom in mesh.atoms:
        mine: list[object] = [None, *(kinds if partial else ())]
        for dim, extent in enumerate(shape):
            for period in range(1, extent + 1):
                if extent % period == 0 and period % atom.size == 0:
                    mine.append((dim, period))
        options.append(mine)
    for combo in itertools.product(*options):
        dims: list[list[Digit]] = [[] for _ in shape]
        parts = []
        for atom, status in zip(mesh.atoms, combo, strict=True):
            if isinstance(status, tuple):
                dims[status[0]].append(Digit(atom, status[1]))
            elif status is not None:
                parts.append((atom, status))
        layout = Layout.make(dims, parts)
        if layout.error(shape) is None:
            yield layout
