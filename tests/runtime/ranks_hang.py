"""Run on every rank by test_collectives.py: rank 1 does not come to the all_reduce in time."""

from __future__ import annotations

import time
from datetime import timedelta

import torch

from rhino.cli.guard import guarded
from rhino.ir.mesh import Mesh
from rhino.runtime.collectives import Communicator
from rhino.runtime.world import join_world


def main() -> None:
    mesh = Mesh.parse("a=2")
    axes = (mesh.axis("a"),)
    with join_world(timedelta(seconds=2)) as world:
        comm = Communicator(mesh, world.rank, world.device, world.timeout)
        comm.open([axes])
        comm.all_reduce(torch.ones(2), axes, "sum")
        if world.rank == 1:
            time.sleep(30)
        comm.all_reduce(torch.ones(2), axes, "sum")


if __name__ == "__main__":
    raise SystemExit(guarded(main))
