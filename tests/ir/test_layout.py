"""Meshes and layouts against their definitions."""

from __future__ import annotations

import itertools
import math

import pytest
import simulate

from rhino.ir.errors import LayoutError, MeshError
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh, merge_refs

MESHES = ["2", "3", "4", "6", "8", "2x2", "2x3", "3x4", "2x2x3"]


@pytest.mark.parametrize("text", MESHES)
def test_coordinates_and_groups(text: str) -> None:
    mesh = Mesh.parse(text)
    assert math.prod(a.size for a in mesh.atoms) == mesh.size
    for device in mesh.devices():
        for atom in mesh.atoms:
            assert mesh.coordinate(device, [atom]) == simulate.coordinate(mesh, device, atom)
        assert mesh.coordinate(device, mesh.atoms) == device  # row-major, majors first
    for r in range(1, len(mesh.atoms) + 1):
        for refs in itertools.permutations(mesh.atoms, r):
            want = {tuple(g) for g in simulate.groups(mesh, refs)}
            assert set(mesh.groups(refs)) == want
            assert set(mesh.groups(merge_refs(refs))) == want


@pytest.mark.parametrize("text", MESHES)
def test_shards_are_equal_and_cover_everything(text: str) -> None:
    mesh = Mesh.parse(text)
    shape = (12, 4)
    for layout in itertools.islice(simulate.layouts(shape, mesh, partial=False), 400):
        local = layout.local_shape(shape)
        pieces = set()
        for device in mesh.devices():
            held = layout.indices(shape, mesh, device)
            assert held == tuple(
                simulate.owned(e, digits, mesh, device) for e, digits in zip(shape, layout.dims, strict=True)
            )
            assert tuple(map(len, held)) == local
            pieces.add(tuple(map(tuple, held)))
        assert len(pieces) == layout.shards()
        assert sum(len(a) * len(b) for a, b in pieces) == math.prod(shape)


def test_ill_formed_layouts_have_reasons() -> None:
    x, y = AxisRef("x", 1, 2), AxisRef("y", 1, 3)
    for layout, why in [
        (Layout(((Digit(x, 3),),)), "does not divide period 3"),
        (Layout(((Digit(x, 8),),)), "period 8 of axis 'x' does not divide 12"),
        (Layout(((Digit(x, 6), Digit(y, 6)),)), "does not divide 3"),
        (Layout(((Digit(x, 6),),), ((x, "sum"),)), "used twice"),
        (Layout(((),), ((x, "avg"),)), "unknown partial kind"),
        (Layout(((),), ((x, "sum"), (y, "max"))), "two different kinds"),
        (Layout.replicated(2), "rank 2"),
    ]:
        assert why in str(layout.error((12,)))
        with pytest.raises(LayoutError):
            layout.check((12,))


def test_editing() -> None:
    mesh = Mesh.parse("dp=2,tp=4")
    dp, tp1, tp2 = mesh.atoms
    layout = Layout.block((16, 8), [(0, mesh.axis("tp")), (1, dp)])
    assert layout == Layout.make([[Digit(tp2, 8), Digit(tp1, 16)], [Digit(dp, 8)]])  # in any order
    assert [layout.find(a) for a in mesh.atoms] == [(1, 8), (0, 16), (0, 8)]
    assert layout.without([tp1]).with_digit(0, tp1, 16) == layout
    assert hash(layout.without([tp1]).with_digit(0, tp1, 16)) == hash(layout)
    assert layout.without([tp1]).with_partial(tp1, "max").find(tp1) == "max"
    assert layout.local_period(0, layout.dims[0][0]) == 8 and layout.local_period(0, layout.dims[0][1]) == 8
    assert Layout.replicated(2).is_replicated and not layout.is_replicated


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp=2,dp=4", "named twice"),
        ("dp=0", "has size 0"),
        ("dp", "cannot read 'dp'"),
        ("2x2x2x2", "at most three"),
        ("a=1,b=1,c=1,d=1", "at most three"),
        ("", "cannot read"),
    ],
)
def test_meshes_that_are_none(text: str, message: str) -> None:
    with pytest.raises(MeshError) as error:
        Mesh.parse(text)
    assert message in str(error.value) and "remedy" in str(error.value)


def test_unknown_axis() -> None:
    with pytest.raises(MeshError, match="no axis 'pp'"):
        Mesh.parse("dp=2").axis("pp")
    assert str(Mesh.parse("2x4")) == "x=2,y=4" and Mesh.parse(" dp=2, tp=4 ") == Mesh((("dp", 2), ("tp", 4)))
