"""Resharding on large meshes: the helpers that do not go from device to device, against those that do."""

from __future__ import annotations

import itertools

import pytest

from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import Mesh
from rhino.ir.reshard import reshard_steps

MESHES = ("x=32,y=32", "x=128,y=8", "x=16,y=2,z=4", "x=6,y=10", "x=2,y=4")
SHAPE = (15360, 15360)


def layouts(mesh: Mesh) -> list[Layout]:
    """Every axis in every place, each dimension cut by the axes in mesh order and in the opposite one."""
    axes = [mesh.axis(name) for name, _ in mesh.axes]
    return [
        Layout.block(SHAPE, [(place[axes.index(axis)], axis) for axis in order])
        for place in itertools.product((0, 1), repeat=len(axes))
        for order in (axes, axes[::-1])
    ]


@pytest.mark.parametrize("text", MESHES)
def test_a_permutation_gives_every_device_the_piece_it_wants(text: str) -> None:
    mesh = Mesh.parse(text)
    seen = 0
    for a, b in itertools.permutations(layouts(mesh), 2):
        for step in reshard_steps(SHAPE, a, b, mesh):
            if step.kind != "permute":
                continue
            seen += 1
            sources, targets = zip(*step.pairs, strict=True)
            assert sorted(sources) == sorted(targets) == list(range(mesh.size)) and list(sources) == sorted(
                sources
            )
            for source, target in step.pairs:
                piece = starts(step.after, mesh, target)
                assert starts(step.before, mesh, source) == piece
                if starts(step.before, mesh, target) == piece:
                    assert source == target  # what is there stays there
    assert seen


def starts(layout: Layout, mesh: Mesh, device: int) -> tuple[int, ...]:
    """The first index of every dimension that a device holds, digit by digit."""
    return tuple(sum(mesh.coordinate(device, (d.axis,)) * d.chunk for d in digits) for digits in layout.dims)


def test_the_way_does_not_depend_on_what_the_axes_are_called_or_on_axes_that_stay_out() -> None:
    shape = (64, 64)
    one, other = Mesh.parse("x=8,y=2"), Mesh.parse("data=3,model=8,expert=2")
    rename = {"x": "model", "y": "expert"}

    def moved(layout: Layout) -> Layout:
        def name(axis):  # type: ignore[no-untyped-def]
            return type(axis)(rename[axis.name], axis.pre, axis.size)

        return Layout.make([[Digit(name(a), p) for a, p in digits] for digits in layout.dims])

    axes = [one.axis("x"), one.axis("y")]
    some = [Layout.block(shape, list(zip(p, axes, strict=True))) for p in itertools.product((0, 1), repeat=2)]
    for a, b in itertools.product(some, repeat=2):
        ways = [reshard_steps(shape, a, b, one), reshard_steps(shape, moved(a), moved(b), other)]
        kinds = [
            [(s.kind, s.dim, s.period, s.to_dim, s.to_period, s.group_size) for s in way] for way in ways
        ]
        assert kinds[0] == kinds[1]
