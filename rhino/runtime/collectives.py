"""Collectives over mesh axes on `torch.distributed`: gloo and NCCL by one code path.

What a backend's library lacks is written down in `CAPABILITIES` and done by a named composition of what it
has; nothing is tried and caught. Moves (gather, exchange, permute) carry bytes, so every dtype moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from rhino.ir.errors import UnsupportedError
from rhino.ir.mesh import AxisRef, Mesh
from rhino.runtime.launch import LostContactError

Axes = tuple[AxisRef, ...]


@dataclass(frozen=True)
class Capability:
    """What a backend's library does by itself.

    Attributes:
        reduce_as: dtypes that it cannot reduce, and a wider one that it can.
        bitwise: whether it reduces integers with and/or.
        reduce_scatter: ``native``, or ``exchange``: an all-to-all, then a local reduction in member order
            (gloo's own sends the whole array to every member in turn; this one sends each byte once).
    """

    reduce_as: dict[torch.dtype, torch.dtype]
    bitwise: bool
    reduce_scatter: str


CAPABILITIES = {
    "gloo": Capability({torch.bool: torch.uint8, torch.int16: torch.int32}, True, "exchange"),
    "nccl": Capability({torch.bool: torch.uint8, torch.int16: torch.int32}, False, "native"),
}

# torch 2.13 gave these two new names.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

_NATIVE = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "prod": dist.ReduceOp.PRODUCT,
}
_BITWISE = {"and": dist.ReduceOp.BAND, "or": dist.ReduceOp.BOR}
# On 0 and 1 the logical reductions are minimum and maximum.
_BOOLEAN = {"and": "min", "or": "max", "min": "min", "max": "max", "prod": "min"}


@dataclass(frozen=True)
class Group:
    """The devices that differ from this one on some axes only, in the order of their coordinate on them.

    Attributes:
        members: device ids by coordinate.
        index: this device's coordinate.
        handle: the process group, whose own order is by device id; None for a group of one.
        order: for every coordinate the position in the process group, or None where the two orders agree.
    """

    members: tuple[int, ...]
    index: int
    handle: dist.ProcessGroup | None = None
    order: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        return len(self.members)


def backend_for(device: torch.device) -> str:
    """NCCL where the data is on a GPU, gloo otherwise."""
    return "nccl" if device.type == "cuda" else "gloo"


#: Process groups by the members of all of them; None where this rank is alone. A group costs threads and
#: connections, so the programs of one world share them.
Handles = dict[tuple[tuple[int, ...], ...], "dist.ProcessGroup | None"]


@dataclass
class Communicator:
    """The process groups of one mesh, as this device sees them.

    All devices must call `open` with the same axes in the same order, once, before any collective.
    """

    mesh: Mesh
    rank: int
    device: torch.device
    timeout: timedelta = timedelta(minutes=5)
    groups: dict[Axes, Group] = field(default_factory=dict)
    handles: Handles = field(default_factory=dict)

    @property
    def capability(self) -> Capability:
        return CAPABILITIES[backend_for(self.device)]

    def open(self, axes_sets: Iterable[Axes]) -> None:
        """Create the process groups for every set of axes, in the order given; equal groups are shared."""
        for axes in dict.fromkeys(axes_sets):
            if axes in self.groups:
                continue
            groups = self.mesh.groups(axes)
            mine = next(members for members in groups if self.rank in members)
            handle = None
            if len(mine) > 1:
                key = tuple(sorted(tuple(sorted(members)) for members in groups))
                if key not in self.handles:
                    self.handles[key] = self._create(key)
                handle = self.handles[key]
            by_id = sorted(mine)
            order = tuple(by_id.index(member) for member in mine)
            self.groups[axes] = Group(
                mine, mine.index(self.rank), handle, None if list(mine) == by_id else order
            )

    def _create(self, groups: Sequence[tuple[int, ...]]) -> dist.ProcessGroup | None:
        """Every rank takes part in creating every group, in the same order; the handle of its own is kept."""
        handle = None
        for members in groups:
            created = dist.new_group(list(members), timeout=self.timeout)
            if self.rank in members:
                handle = created
        return handle

    # Collectives. The meaning of dim and period is that of `rhino.ir.reshard.Step`.

    def all_reduce(self, x: torch.Tensor, axes: Axes, reduction: str) -> torch.Tensor:
        """The reduction of all members' arrays, on every member."""
        group = self.groups[axes]
        if group.size == 1 or x.numel() == 0:
            return x
        with self._naming("all_reduce", group):
            return self._all_reduce(x, group, reduction)

    def all_gather(self, x: torch.Tensor, axes: Axes, dim: int, period: int) -> torch.Tensor:
        """Join the members' pieces along `dim`, whose digit has local `period` in the result."""
        group = self.groups[axes]
        if group.size == 1:
            return x
        with self._naming("all_gather", group):
            return join(self._gather(x, group), dim, period)

    def reduce_scatter(
        self, x: torch.Tensor, axes: Axes, reduction: str, dim: int, period: int
    ) -> torch.Tensor:
        """Reduce, and keep this member's piece along `dim`, whose digit has local `period` in `x`."""
        group = self.groups[axes]
        if group.size == 1:
            return x
        with self._naming("reduce_scatter", group):
            return self._reduce_scatter(split(x, group.size, dim, period), group, reduction)

    def all_to_all(
        self, x: torch.Tensor, axes: Axes, dim: int, period: int, to_dim: int, to_period: int
    ) -> torch.Tensor:
        """Cut along `to_dim`, send piece i to member i, and join what came along `dim`."""
        group = self.groups[axes]
        if group.size == 1:
            return x
        with self._naming("all_to_all", group):
            return join(self._exchange(split(x, group.size, to_dim, to_period), group), dim, period)

    def shard(self, x: torch.Tensor, axes: Axes, dim: int, period: int) -> torch.Tensor:
        """This member's piece along `dim`; no communication."""
        group = self.groups[axes]
        return x if group.size == 1 else split(x, group.size, dim, period)[group.index]

    def permute(self, x: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> torch.Tensor:
        """Send `x` along ``(source, target)`` device pairs; every device is once a source, once a target."""
        target = next(t for s, t in pairs if s == self.rank)
        source = next(s for s, t in pairs if t == self.rank)
        if target == source == self.rank or x.numel() == 0:
            return x
        sent = as_bytes(x)
        out = torch.empty_like(sent)
        with self._naming("permute", None):
            ops = [dist.P2POp(dist.isend, sent, target), dist.P2POp(dist.irecv, out, source)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
        return from_bytes(out, x.dtype, x.shape)

    def halo(
        self, x: torch.Tensor, axes: Axes, dim: int, edges: tuple[int, int], fill: bool | int | float
    ) -> torch.Tensor:
        """`x` with the last ``edges[0]`` elements along `dim` of the member before it in front, and the first
        ``edges[1]`` of the one behind it behind; `fill` stands there where there is no such member.
        """
        group, (low, high) = self.groups[axes], edges
        extent = x.shape[dim]
        shapes = [(*x.shape[:dim], count, *x.shape[dim + 1 :]) for count in edges]
        before, behind = (x.new_full(shape, fill) for shape in shapes)
        if math.prod(x.shape):
            # What goes to the member behind is what it wants from before, and the other way round.
            sides = ((-1, high, 0, before), (1, low, extent - low, behind))
            ops = []
            for step, count, start, edge in sides:
                other = group.index + step
                if not 0 <= other < group.size:
                    continue
                if count:
                    sent = as_bytes(x.narrow(dim, start, count))
                    ops.append(dist.P2POp(dist.isend, sent, group.members[other]))
                if edge.numel():
                    # A view of a contiguous array: the bytes arrive in it.
                    ops.append(dist.P2POp(dist.irecv, as_bytes(edge), group.members[other]))
            if ops:
                with self._naming("halo", group):
                    for work in dist.batch_isend_irecv(ops):
                        work.wait()
        return torch.cat((before, x, behind), dim)

    def coordinate(self, axes: Axes) -> int:
        """This device's coordinate on `axes`, outer first."""
        return self.mesh.coordinate(self.rank, axes)

    # How they are done.

    def _all_reduce(self, x: torch.Tensor, group: Group, reduction: str) -> torch.Tensor:
        op, wide = self._reduction(x.dtype, reduction)
        if op is None:
            return reduce_members(self._gather(x, group), reduction)
        # A copy of its own: the array given may be wanted again.
        out = x.to(wide) if wide != x.dtype else x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(out, op, group.handle)
        return out.to(x.dtype)

    def _reduce_scatter(self, pieces: torch.Tensor, group: Group, reduction: str) -> torch.Tensor:
        op, wide = self._reduction(pieces.dtype, reduction)
        if pieces.numel() == 0:
            return pieces[0].clone()
        if self.capability.reduce_scatter == "exchange" or op is None:
            return reduce_members(self._exchange(pieces, group), reduction)
        sent = _by_position(pieces, group).to(wide).contiguous()
        out = torch.empty(sent.shape[1:], dtype=wide, device=sent.device)
        _reduce_scatter(out, sent, op, group.handle)
        return out.to(pieces.dtype)

    def _reduction(
        self, dtype: torch.dtype, reduction: str
    ) -> tuple[dist.ReduceOp.RedOpType | None, torch.dtype]:
        """The library's reduction and the dtype to reduce in; no reduction where the library has none."""
        wide = self.capability.reduce_as.get(dtype, dtype)
        if dtype == torch.bool:
            if reduction not in _BOOLEAN:
                raise UnsupportedError(f"reduction '{reduction}' of i1 values across devices")
            return _NATIVE[_BOOLEAN[reduction]], wide
        if reduction in _BITWISE:
            return (_BITWISE[reduction] if self.capability.bitwise else None), wide
        return _NATIVE[reduction], wide

    def _gather(self, x: torch.Tensor, group: Group) -> torch.Tensor:
        """Every member's array, stacked by coordinate: ``[n, *x.shape]``."""
        sent = as_bytes(x)
        out = torch.empty(group.size * sent.numel(), dtype=torch.uint8, device=x.device)
        if sent.numel():
            _all_gather(out, sent, group.handle)
        return _by_coordinate(from_bytes(out, x.dtype, (group.size, *x.shape)), group)

    def _exchange(self, pieces: torch.Tensor, group: Group) -> torch.Tensor:
        """Piece i of ``[n, ...]`` goes to member i; what came, stacked by coordinate of its sender."""
        sent = as_bytes(_by_position(pieces, group))
        out = torch.empty_like(sent)
        if sent.numel():
            dist.all_to_all_single(out, sent, group=group.handle)
        return _by_coordinate(from_bytes(out, pieces.dtype, pieces.shape), group)

    @contextmanager
    def _naming(self, kind: str, group: Group | None) -> Iterator[None]:
        """Turn the library's errors into one that says which collective failed and with whom."""
        try:
            yield
        except RuntimeError as error:
            raise lost_contact(kind, self.rank, group.members if group else None, error) from error


def lost_contact(
    kind: str, rank: int, members: Sequence[int] | None, error: RuntimeError
) -> LostContactError:
    """The error of a rank whose collective did not come to an end."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # gloo goes on with advice about the other rank's logs.
    first_line = lines[0].partition(". This is")[0]
    with_whom = f" with ranks {', '.join(map(str, members))}" if members else ""
    return LostContactError(f"rank {rank}: {kind}{with_whom} failed: {first_line}")


def split(x: torch.Tensor, n: int, dim: int, period: int) -> torch.Tensor:
    """Cut `x` by a digit of `n` with local `period` on `dim`: ``[n, ...]``, a view where strides allow."""
    shape = (*x.shape[:dim], x.shape[dim] // period, n, period // n, *x.shape[dim + 1 :])
    pieces = x.reshape(shape).movedim(dim + 1, 0)
    return pieces.reshape(n, *x.shape[:dim], x.shape[dim] // n, *x.shape[dim + 1 :])


def join(pieces: torch.Tensor, dim: int, period: int) -> torch.Tensor:
    """The inverse of `split`; `period` is counted in the result."""
    n, shape = pieces.shape[0], pieces.shape[1:]
    chunk = period // n
    apart = pieces.reshape(n, *shape[:dim], shape[dim] // chunk, chunk, *shape[dim + 1 :])
    return apart.movedim(0, dim + 1).reshape(*shape[:dim], shape[dim] * n, *shape[dim + 1 :])


def reduce_members(stacked: torch.Tensor, reduction: str) -> torch.Tensor:
    """Reduce dimension 0 of ``[n, ...]`` in member order, so that every device rounds alike."""
    match reduction:
        case "sum":
            return stacked.sum(0, dtype=stacked.dtype)
        case "prod":
            return stacked.prod(0, dtype=stacked.dtype)
        case "max":
            return stacked.amax(0)
        case "min":
            return stacked.amin(0)
    out = stacked[0]
    for other in stacked[1:]:
        out = out & other if reduction == "and" else out | other
    return out


def as_bytes(x: torch.Tensor) -> torch.Tensor:
    """The array's bytes, flat; a view of a contiguous array."""
    flat = x.contiguous().reshape(-1)
    # The one element of a sliced array may keep the stride it had there.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def from_bytes(flat: torch.Tensor, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """The inverse of `as_bytes`."""
    return flat.view(dtype).reshape(tuple(shape)) if math.prod(shape) else flat.new_empty(shape, dtype=dtype)


def _by_position(pieces: torch.Tensor, group: Group) -> torch.Tensor:
    """From coordinate order to the process group's order."""
    if group.order is None:
        return pieces
    coordinates = sorted(range(group.size), key=group.order.__getitem__)
    return pieces[torch.tensor(coordinates, device=pieces.device)]


def _by_coordinate(pieces: torch.Tensor, group: Group) -> torch.Tensor:
    """From the process group's order to coordinate order."""
    return pieces if group.order is None else pieces[torch.tensor(group.order, device=pieces.device)]
