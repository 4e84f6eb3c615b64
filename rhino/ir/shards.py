"""Cut global arrays into the pieces that devices hold, and put the pieces together again (numpy)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from rhino.ir.errors import LayoutError, RunError
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import Mesh

_COMBINE: dict[str, Callable[..., np.ndarray]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}
_NEUTRAL = {"sum": 0, "prod": 1}


def shard(array: np.ndarray, layout: Layout, mesh: Mesh, device: int) -> np.ndarray:
    """The piece of a global array that `device` holds.

    Under a partial layout device 0 of each group gets the array and the others the neutral element of a sum
    or product; the idempotent kinds give everyone the array. Raises LayoutError if the layout does not fit.
    """
    layout.check(array.shape)
    piece = array[_index(layout, array.shape, mesh, device)]
    for kind in {kind for _, kind in layout.partial if kind in _NEUTRAL}:
        if mesh.coordinate(device, [atom for atom, _ in layout.partial]) != 0:
            piece = np.full_like(piece, _NEUTRAL[kind])
    return np.ascontiguousarray(piece) if piece.ndim else piece


def unshard(arrays: Sequence[np.ndarray], layout: Layout, shape: Sequence[int], mesh: Mesh) -> np.ndarray:
    """The global array of `shape` from every device's piece, in order of device.

    Pieces over partial axes are combined in order of device. Raises RunError when a piece has the wrong
    shape or two devices that must hold equal pieces do not.
    """
    shape = tuple(shape)
    if (why := layout.error(shape)) is not None:
        raise LayoutError(why)
    want = layout.local_shape(shape)
    split = [d.axis for digits in layout.dims for d in digits]
    partial = [atom for atom, _ in layout.partial]
    owners: dict[int, dict[int, int]] = {}  # coordinate on the split axes -> on the partial axes -> device
    for device, piece in enumerate(arrays):
        if piece.shape != want:
            raise RunError(
                f"device {device} holds a piece of shape {list(piece.shape)} instead of {list(want)}"
                f" of a tensor of shape {list(shape)}"
            )
        parts = owners.setdefault(mesh.coordinate(device, split), {})
        first = parts.setdefault(mesh.coordinate(device, partial), device)
        if first != device:
            _check_equal(arrays[first], piece, first, device)
    out = np.empty(shape, arrays[0].dtype)
    for parts in owners.values():
        total = arrays[next(iter(parts.values()))]
        if layout.partial:
            kind = layout.partial[0][1]
            total = combine(kind, [arrays[device] for _, device in sorted(parts.items())])
        out[_index(layout, shape, mesh, next(iter(parts.values())))] = total
    return out


def combine(kind: str, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Reduce arrays with a partial kind in the order given, in their own precision."""
    dtype = parts[0].dtype
    if dtype == np.bool_:
        kind = {"max": "or", "min": "and"}.get(kind, kind)
    return np.asarray(functools.reduce(_COMBINE[kind], parts)).astype(dtype, copy=False)


def _check_equal(a: np.ndarray, b: np.ndarray, device_a: int, device_b: int) -> None:
    if a is b or np.array_equal(a, b):
        return
    different = (a != b) & ~((a != a) & (b != b))  # two NaNs count as equal
    if not different.any():
        return
    at = tuple(int(i) for i in np.argwhere(different)[0])
    raise RunError(
        f"devices {device_a} and {device_b} must hold equal pieces, but {int(different.sum())} of "
        f"{different.size} elements differ, the first at {list(at)}: {a[at]} and {b[at]}"
    )


def _index(layout: Layout, shape: Sequence[int], mesh: Mesh, device: int) -> tuple[slice | np.ndarray, ...]:
    """An index expression for the elements that `device` holds."""
    where = [_where(extent, digits, mesh, device) for extent, digits in zip(shape, layout.dims, strict=True)]
    if all(isinstance(w, slice) for w in where):
        return tuple(where)
    ranges = [
        np.arange(extent)[w] if isinstance(w, slice) else w for w, extent in zip(where, shape, strict=True)
    ]
    return np.ix_(*ranges)


def _where(extent: int, digits: Sequence[Digit], mesh: Mesh, device: int) -> slice | np.ndarray:
    """The indices of one dimension: a slice when they are contiguous."""
    start, length = 0, extent
    for digit in digits:
        if digit.period != length:
            break
        start += mesh.coordinate(device, (digit.axis,)) * digit.chunk
        length = digit.chunk
    else:
        return slice(start, start + length)
    index = np.arange(extent)
    keep = np.ones(extent, np.bool_)
    for digit in digits:
        keep &= (index % digit.period) // digit.chunk == mesh.coordinate(device, (digit.axis,))
    return index[keep]
