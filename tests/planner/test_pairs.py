"""Tables of reshard times: all pairs at once against one pair at a time, on small and on large meshes."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.reshard import reshard_steps, wire_bytes
from rhino.planner.candidates import argument_layouts
from rhino.planner.cluster import Cluster
from rhino.planner.communication import Communication
from rhino.planner.pairs import question_of


def some_layouts(shape: tuple[int, ...], mesh: Mesh, count: int) -> list[Layout]:
    """Layouts by whole axes with blocks and strided digits, some of them partial along an axis."""
    axes = [mesh.axis(name) for name, _ in mesh.axes]
    marks = [None, *((d, e // s) for d, e in enumerate(shape) for s in (1, 2))]
    found = list(
        argument_layouts(shape, [[m for m in marks if m is None or m[1] % a.size == 0] for a in axes], axes)
    )
    partial = [
        Layout(layout.dims, tuple((atom, "sum") for atom in Mesh.atoms_of(axis)))
        for layout, axis in itertools.product(found, axes)
        if not any(atom in layout.axes() for atom in Mesh.atoms_of(axis))
    ]
    return random.Random(1).sample(found, min(count, len(found))) + partial[:4]


@pytest.mark.parametrize(
    ("cluster", "mesh", "shape"),
    [
        ("8xH100", "x=2,y=4", (8, 16, 12)),
        ("8x8xH100", "x=8,y=8", (256, 128)),
        ("128x8xH100", "x=32,y=32", (2048, 64)),
        ("4x8xH100", "x=2,y=4,z=4", (64, 64)),
    ],
)
def test_a_table_holds_the_times_of_its_pairs(cluster: str, mesh: str, shape: tuple[int, ...]) -> None:
    one = Communication(Cluster.parse(cluster), Mesh.parse(mesh))
    layouts = some_layouts(shape, one.mesh, 16)
    table = one.reshard_times(shape, 2, layouts, layouts)
    times = np.array([[one.reshard_time(shape, 2, a, b) for b in layouts] for a in layouts])
    np.testing.assert_allclose(table, times, rtol=1e-12)
    assert (
        (np.diagonal(table) == 0).all() and np.isinf(table).any() and (table[np.isfinite(table)] >= 0).all()
    )


@pytest.mark.parametrize("text", ["x=4,y=2", "x=8,y=8"])
def test_a_question_moves_the_bytes_of_the_pairs_that_ask_it(text: str) -> None:
    """Or more, where the pair could pass through a place that a question leaves out."""
    mesh, shape = Mesh.parse(text), (64, 128)
    layouts = [x for x in some_layouts(shape, mesh, 40) if all(x.dims)]
    assert len(layouts) >= 8
    equal = 0
    for a, b in itertools.product(layouts, repeat=2):
        asked, scale = question_of(shape, a, b)
        small = reshard_steps(asked.shape, asked.before, asked.after, mesh)
        steps = reshard_steps(shape, a, b, mesh)
        sent, own = wire_bytes(small, asked.shape, 64) * scale, wire_bytes(steps, shape, 64)
        assert sent >= own
        equal += sent == own
    assert equal > len(layouts) ** 2 / 2


def test_the_first_group_is_the_one_that_holds_device_0() -> None:
    for text, cluster in (("x=2,y=4", "2x4xH100"), ("x=16,y=2,z=4", "16x8xH100"), ("x=6,y=2", "3x4xH100")):
        mesh, devices = Mesh.parse(text), Cluster.parse(cluster)
        one = Communication(devices, mesh)
        axes = [mesh.axis(name) for name, _ in mesh.axes]
        for n in range(1, len(axes) + 1):
            for some in itertools.combinations([*axes, *mesh.atoms], n):
                if len({atom for ref in some for atom in Mesh.atoms_of(ref)}) < sum(
                    len(Mesh.atoms_of(ref)) for ref in some
                ):
                    continue
                nodes = [d // devices.devices_per_node for d in mesh.groups(some)[0]]
                assert one.spread(tuple(some)) == (max(map(nodes.count, nodes)), len(set(nodes)))
