"""Parameters and buffers that share memory without being one tensor.

Export gives every parameter and buffer a value of its own, so what is written to one of them does not reach another
that lies in the same memory. In PyTorch it does. Where something is written, such programs are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor

from rhino.ir.errors import UnsupportedError

#: Elements of a tensor with strides that interleave whose places are listed one by one.
_MOST_PLACES = 1_000_000
#: Where memory begins that does not exist; numpy knows no address 0.
_NO_MEMORY = 1 << 20


@dataclass(frozen=True)
class _Extent:
    """The bytes of a tensor. Addresses count from 0 in each `space`: a device's memory, or a storage without any."""

    name: str
    space: tuple[Any, ...]
    start: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end(self) -> int:
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return self.start + last + self.itemsize

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """numpy's view of it, for arithmetic on addresses only: nothing may be read there."""
        return {
            "version": 3,
            "typestr": f"|V{self.itemsize}",
            "shape": self.shape,
            "strides": self.strides,
            "data": (self.start, True),
        }

    def meets(self, other: _Extent) -> bool:
        """Whether some byte belongs to both; exact."""
        return np.shares_memory(np.asarray(self), np.asarray(other))

    def meets_itself(self) -> bool:
        """Whether two indices lead to one element, as after `expand`; true where that is too hard to find out."""
        reach = 0
        for stride, n in sorted((s, n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1):
            if stride <= reach:  # 0 included
                break
            reach += stride * (n - 1)
        else:
            return False
        if np.prod(self.shape, dtype=float) > _MOST_PLACES:
            return True
        places = np.zeros((1,) * len(self.shape), np.int64)
        for dim, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            along = [-1 if d == dim else 1 for d in range(len(self.shape))]
            places = places + stride * np.arange(n).reshape(along)
        return len(np.unique(places)) < places.size


def _extent(name: str, tensor: torch.Tensor) -> _Extent | None:
    """None for a tensor without elements or strides."""
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return None
    storage, size = tensor.untyped_storage(), tensor.element_size()
    real = not isinstance(tensor, FakeTensor) and tensor.device.type != "meta"
    base = storage.data_ptr() if real else 0
    space = (tensor.device,) if base else ("no memory", storage._cdata)
    start = (base or _NO_MEMORY) + size * int(tensor.storage_offset())
    return _Extent(name, space, start, size, tuple(tensor.shape), tuple(size * s for s in tensor.stride()))


def _overlaps(extents: list[_Extent]) -> Iterator[tuple[_Extent, _Extent]]:
    """All pairs in one space that share a byte."""
    spaces: dict[tuple[Any, ...], list[_Extent]] = defaultdict(list)
    for extent in extents:
        spaces[extent.space].append(extent)
    for members in spaces.values():
        active: list[_Extent] = []
        for extent in sorted(members, key=lambda e: e.start):
            active = [other for other in active if other.end > extent.start]
            yield from ((other, extent) for other in active if other.meets(extent))
            active.append(extent)


def require_separate(tensors: Mapping[str, torch.Tensor], written: Collection[str]) -> None:
    """Refuse tensors that share memory, if one of them is written.

    Args:
        tensors: every parameter and buffer once, by the name to call it in a message. Meta and fake tensors count
            as views of one another where they have one storage.
        written: the names of those that training changes.

    Raises:
        UnsupportedError: names both tensors and the remedy.
    """
    order = {name: i for i, name in enumerate(tensors)}
    extents = [e for name, tensor in tensors.items() if (e := _extent(name, tensor)) is not None]
    for extent in extents:
        if extent.name in written and extent.meets_itself():
            raise UnsupportedError(
                f"several elements of '{extent.name}' {list(extent.shape)} lie in one place of memory, and training "
                "changes them",
                remedy="keep the smaller tensor as the parameter and expand it inside forward",
            )
    for pair in _overlaps(extents):
        first, second = sorted((e.name for e in pair), key=order.__getitem__)
        if first in written or second in written:
            raise UnsupportedError(
                f"'{first}' {list(tensors[first].shape)} and '{second}' {list(tensors[second].shape)} share memory "
                "without being one tensor: what training writes to one would have to show in the other",
                remedy=f"tie them fully (assign the object '{first}' to '{second}'), compute '{second}' from "
                f"'{first}' inside forward, or give it memory of its own (clone)",
            )
