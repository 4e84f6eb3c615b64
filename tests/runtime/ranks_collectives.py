"""Run on every rank by test_collectives.py: each collective on random arrays against the numpy definition."""

from __future__ import annotations

import itertools
import sys
from datetime import timedelta

import numpy as np
import torch

from rhino.dialects.dist import exchange
from rhino.ir.mesh import AxisRef, Mesh
from rhino.runtime.collectives import Communicator
from rhino.runtime.tensors import to_numpy, to_torch
from rhino.runtime.world import join_world

DTYPES = ("float64", "float32", "float16", "bfloat16", "bool", "int8", "int16", "int32", "int64")


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small integers: exact in every dtype, whatever the order of reduction."""
    values = rng.integers(0, 2, shape) if dtype == "bool" else rng.integers(-2, 3, shape)
    return to_numpy(torch.tensor(values).to(getattr(torch, dtype)))


def main(mesh_text: str) -> None:
    torch.set_num_threads(1)
    mesh = Mesh.parse(mesh_text)
    sets: list[tuple[AxisRef, ...]] = [(mesh.axis(name),) for name, _ in mesh.axes]
    sets += [tuple(order) for order in itertools.permutations(mesh.axis(name) for name, _ in mesh.axes)]
    sets += [(atom,) for atom in mesh.atoms]
    with join_world(timedelta(seconds=60)) as world:
        comm = Communicator(mesh, world.rank, world.device, world.timeout)
        comm.open(sets)
        rng = np.random.default_rng(0)
        for axes, dtype in itertools.product(dict.fromkeys(sets), DTYPES):
            check(comm, mesh, world.rank, axes, dtype, rng)
        check_permute(comm, mesh, world.rank, rng)
        world.barrier()


def check(
    comm: Communicator, mesh: Mesh, rank: int, axes: tuple[AxisRef, ...], dtype: str, rng: np.random.Generator
) -> None:
    n = int(np.prod([axis.size for axis in axes]))
    values = [draw(rng, (2 * n, 3, 4 * n), dtype) for _ in range(mesh.size)]
    mine = to_torch(values[rank])

    def same(what: str, got: torch.Tensor, want: list[np.ndarray]) -> None:
        np.testing.assert_array_equal(to_numpy(got), want[rank], err_msg=f"{what} {axes} {dtype} rank {rank}")

    if dtype == "bool":
        kinds = ["max", "min", "and", "or"]
    else:
        kinds = ["sum", "max", "min", "prod"] + (["and", "or"] if dtype.startswith("int") else [])
    for kind in kinds:
        same(kind, comm.all_reduce(mine, axes, kind), exchange.all_reduce(mesh, axes, values, kind))
        for period in (4 * n, 2 * n, n):
            same(
                f"reduce_scatter {kind}",
                comm.reduce_scatter(mine, axes, kind, 2, period),
                exchange.reduce_scatter(mesh, axes, values, kind, 2, period),
            )
    for period in (2 * n * n, n * n, n):
        same(
            "gather",
            comm.all_gather(mine, axes, 0, period),
            exchange.all_gather(mesh, axes, values, 0, period),
        )
    for period, to_period in itertools.product((2 * n * n, n), (4 * n, n)):
        same(
            "all_to_all",
            comm.all_to_all(mine, axes, 0, period, 2, to_period),
            exchange.all_to_all(mesh, axes, values, 0, period, 2, to_period),
        )
        same(
            "all_to_all on one dim",
            comm.all_to_all(mine, axes, 2, 4 * n, 2, to_period),
            exchange.all_to_all(mesh, axes, values, 2, 4 * n, 2, to_period),
        )
    for dim, edges in itertools.product((0, 2), ((1, 2), (2, 0), (0, 1), (0, 0))):
        fill = bool(edges[0] % 2) if dtype == "bool" else 1
        same(
            f"edges {edges}",
            comm.halo(mine, axes, dim, edges, fill),
            exchange.halo(mesh, axes, values, dim, edges, fill),
        )
    same("shard", comm.shard(mine, axes, 2, 2 * n), exchange.shard(mesh, axes, values, 2, 2 * n))
    scalars = [draw(rng, (), dtype) for _ in range(mesh.size)]
    same(
        "scalar",
        comm.all_reduce(to_torch(scalars[rank]), axes, "max"),
        exchange.all_reduce(mesh, axes, scalars, "max"),
    )
    empty = torch.empty((2 * n, 0), dtype=mine.dtype)
    assert comm.all_gather(empty, axes, 0, 2 * n * n).shape == (2 * n * n, 0)
    assert comm.reduce_scatter(empty, axes, "max", 0, 2 * n).shape == (2, 0)


def check_permute(comm: Communicator, mesh: Mesh, rank: int, rng: np.random.Generator) -> None:
    for dtype in DTYPES:
        targets = rng.permutation(mesh.size)
        values = [draw(rng, (3, 2), dtype) for _ in range(mesh.size)]
        got = comm.permute(to_torch(values[rank]), [(s, int(t)) for s, t in enumerate(targets)])
        source = int(np.flatnonzero(targets == rank)[0])
        np.testing.assert_array_equal(to_numpy(got), values[source])


if __name__ == "__main__":
    main(sys.argv[1])
