"""This process as one rank: its number, its device, and the default process group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from rhino.ir.errors import RunError
from rhino.ir.mesh import Mesh
from rhino.runtime.collectives import Handles, backend_for, lost_contact
from rhino.runtime.launch import LISTEN_FD

#: How long ranks wait for rank 0 to plan.
PLANNING = timedelta(hours=2)


@dataclass(frozen=True)
class World:
    """Where this process stands among all of them."""

    rank: int
    size: int
    device: torch.device
    timeout: timedelta
    store: dist.Store | None = None
    handles: Handles = field(default_factory=dict)

    def share(self, text: str | None, what: str = "program") -> str:
        """Rank 0's text, on every rank; `text` is None on all ranks but 0. `what` names it, once in a run.

        The others wait as long as planning may take.
        """
        key = f"rhino/{what}"
        if self.store is None:
            assert text is not None
            return text
        if text is not None:
            self.store.set(key, text)
            return text
        try:
            self.store.wait([key], PLANNING)
        except RuntimeError as error:
            raise lost_contact("waiting for the plan of rank 0", self.rank, None, error) from error
        return self.store.get(key).decode()

    def check(self, mesh: Mesh) -> None:
        """Raise RunError unless there is one rank per device of the mesh."""
        if mesh.size != self.size:
            raise RunError(
                f"the plan is for {mesh.size} devices (mesh {mesh}), but {self.size} ranks run",
                remedy=f"start it with --nproc {mesh.size}, or plan for {self.size} devices",
            )

    def barrier(self) -> None:
        """Wait for all ranks. Raises LostContactError when one is gone."""
        if self.size > 1:
            try:
                dist.barrier()
            except RuntimeError as error:
                raise lost_contact("barrier", self.rank, None, error) from error


def local_device() -> torch.device:
    """This rank's GPU where every local rank can have one of its own, else the CPU."""
    local, count = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if torch.cuda.is_available() and torch.cuda.device_count() >= count:
        return torch.device("cuda", local)
    return torch.device("cpu")


@contextmanager
def join_world(timeout: timedelta = timedelta(minutes=5)) -> Iterator[World]:
    """Take part in the run that the environment (torchrun's variables) describes; alone where there is none.

    Raises RunError when the other ranks cannot be reached within `timeout`.
    """
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = local_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size == 1:
        yield World(rank, size, device, timeout)
        return
    try:
        store = _store(rank, size, timeout)
        dist.init_process_group(
            backend_for(device),
            store=dist.PrefixStore("groups", store),
            rank=rank,
            world_size=size,
            timeout=timeout,
        )
    except (RuntimeError, ValueError) as error:
        raise RunError(
            f"rank {rank} of {size} could not reach the others: {str(error).splitlines()[0]}",
            remedy="start it with `rhino run --nproc N` or torchrun, which set MASTER_ADDR and MASTER_PORT",
        ) from error
    try:
        yield World(rank, size, device, timeout, store)
    finally:
        dist.destroy_process_group()


def _store(rank: int, size: int, timeout: timedelta) -> dist.Store:
    """The rendezvous: torchrun's, or that of a run which `launch` started (rank 0 inherited its listening
    socket).
    """
    if LISTEN_FD not in os.environ:
        store, _, _ = next(iter(dist.rendezvous("env://", timeout=timeout)))
        return store
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        fd = int(os.environ[LISTEN_FD])
        return dist.TCPStore(
            host, port, size, True, timeout, wait_for_workers=False, master_listen_fd=fd, use_libuv=False
        )
    return dist.TCPStore(host, port, size, False, timeout, wait_for_workers=False)
