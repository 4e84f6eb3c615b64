"""Every chain of reshard steps, executed on all devices' local arrays, must give the layout asked for."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import simulate

from rhino.ir.errors import LayoutError
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.reshard import reshard_steps, wire_bytes


def prove(shape: tuple[int, ...], mesh: Mesh, sample: int | None = None) -> int:
    """Reshard between all (or `sample` random) pairs of layouts; returns how many had a way."""
    everything = list(simulate.layouts(shape, mesh))
    pairs = list(itertools.product(everything, repeat=2))
    if sample is not None and sample < len(pairs):
        pairs = random.Random(0).sample(pairs, sample)
    value = np.random.default_rng(1).integers(-99, 99, shape)
    done = 0
    for a, b in pairs:
        try:
            steps = reshard_steps(shape, a, b, mesh)
        except LayoutError:
            held = dict(a.partial)
            assert any(held.get(x) != kind for x, kind in b.partial), (a, b)
            continue
        assert all(dict(a.partial).get(x) == kind for x, kind in b.partial), (a, b)
        arrays, at = simulate.scatter(value, a, mesh), a
        for step in steps:
            assert step.before == at and step.after.error(shape) is None, (a, b, steps)
            arrays, at = simulate.execute(step, arrays, mesh), step.after
            assert (why := simulate.check(arrays, value, at, mesh)) is None, (why, a, b, step)
        assert at == b
        done += 1
    return done


SMALL = [(8,), (12,), (2, 4), (6, 2), (3, 4, 2), (1, 6)]


@pytest.mark.parametrize("shape", SMALL, ids=str)
@pytest.mark.parametrize("mesh", ["2", "3", "4", "2x2", "2x3"])
def test_all_pairs(shape: tuple[int, ...], mesh: str) -> None:
    # All pairs where there is one atom; the long test takes all pairs everywhere.
    assert prove(shape, Mesh.parse(mesh), sample=None if mesh in ("2", "3") else 200) > 0


def test_a_dimension_of_no_elements_is_no_way_out() -> None:
    mesh = Mesh.parse("2x2")
    for a, b in itertools.product(list(simulate.layouts((4,), mesh)), repeat=2):
        empty = [Layout(((), *x.dims), x.partial) for x in (a, b)]
        try:
            steps = reshard_steps((4,), a, b, mesh)
        except LayoutError:
            continue
        found = reshard_steps((0, 4), empty[0], empty[1], mesh)
        assert found[-1].after == empty[1] if steps else not found


@pytest.mark.long
@pytest.mark.parametrize("shape", [*SMALL, (24,), (4, 6), (2, 2, 6), (16,)], ids=str)
@pytest.mark.parametrize("mesh", ["2", "3", "4", "2x2", "2x3", "6", "3x2"])
def test_all_pairs_long(shape: tuple[int, ...], mesh: str) -> None:
    assert prove(shape, Mesh.parse(mesh)) > 0


@pytest.mark.parametrize("shape", [(16, 8), (8, 4, 2), (24,)], ids=str)
@pytest.mark.parametrize("mesh", ["2x2x2", "8", "2x4", "12"])
def test_sampled_pairs(shape: tuple[int, ...], mesh: str) -> None:
    assert prove(shape, Mesh.parse(mesh), sample=100) > 0


@pytest.mark.long
@pytest.mark.parametrize("shape", [(16, 8), (8, 8, 2), (48,), (24, 12)], ids=str)
@pytest.mark.parametrize("mesh", ["2x2x2", "8", "2x4", "12", "2x2x3"])
def test_sampled_pairs_long(shape: tuple[int, ...], mesh: str) -> None:
    assert prove(shape, Mesh.parse(mesh), sample=3000) > 0


MESH = Mesh.parse("dp=2,tp=4")
DP, TP = MESH.axis("dp"), MESH.axis("tp")
SHAPE = (64, 32, 16)


def block(*splits: tuple[int, AxisRef]) -> Layout:
    return Layout.block(SHAPE, splits)


def kinds(a: Layout, b: Layout, shape: tuple[int, ...] = SHAPE, mesh: Mesh = MESH) -> list[str]:
    return [step.kind for step in reshard_steps(shape, a, b, mesh)]


R = Layout.replicated(3)
PARTIAL = Layout.make([(), (), ()], [(TP, "sum")])
PARTIAL_BOTH = Layout.make([(), (), ()], [(DP, "sum"), (TP, "sum")])


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        (R, R, []),
        (R, block((0, TP)), ["shard"]),
        (R, block((0, DP), (0, TP)), ["shard"]),
        (R, block((0, DP), (1, TP)), ["shard", "shard"]),
        (block((0, TP)), R, ["all_gather"]),
        (block((0, TP), (0, DP)), R, ["all_gather"]),
        (PARTIAL, R, ["all_reduce"]),
        (PARTIAL_BOTH, R, ["all_reduce"]),
        (PARTIAL, block((1, TP)), ["reduce_scatter"]),
        (PARTIAL_BOTH, block((1, TP)), ["reduce_scatter", "all_reduce"]),
        (PARTIAL_BOTH, block((1, TP), (1, DP)), ["reduce_scatter"]),
        (block((0, TP)), block((1, TP)), ["all_to_all"]),
        (block((0, DP), (0, TP)), block((2, DP), (2, TP)), ["all_to_all"]),
        (block((0, TP)), block((1, TP), (2, DP)), ["shard", "all_to_all"]),
        (block((0, TP), (1, DP)), block((1, DP)), ["all_gather"]),
        (block((0, DP), (0, TP)), block((0, TP), (0, DP)), ["permute"]),
    ],
)
def test_chains(a: Layout, b: Layout, want: list[str]) -> None:
    assert kinds(a, b) == want


def test_swapping_axes_of_one_size_is_one_permute() -> None:
    mesh = Mesh.parse("4x4")
    x, y = mesh.axis("x"), mesh.axis("y")
    for a, b in [((0, x), (0, y)), ((1, y), (1, x))]:
        one, two = Layout.block((16, 16), [a]), Layout.block((16, 16), [b])
        (step,) = reshard_steps((16, 16), one, two, mesh)
        assert step.kind == "permute" and step.wire_bytes((16, 16), 4) == 4 * 64
        assert sum(s == t for s, t in step.pairs) >= 4  # the diagonal keeps what it has


def test_nested_period_change_is_one_exchange() -> None:
    mesh = Mesh.parse("4")
    (x,) = (mesh.axis("x"),)
    assert kinds(Layout.make([[Digit(x, 48)]]), Layout.make([[Digit(x, 12)]]), (48,), mesh) == ["all_to_all"]
    # 24 in 3: periods 24 and 12 share places, so no uniform exchange exists.
    mesh = Mesh.parse("3")
    a, b = Layout.make([[Digit(mesh.atoms[0], 24)]]), Layout.make([[Digit(mesh.atoms[0], 12)]])
    assert kinds(a, b, (24,), mesh) == ["all_gather", "shard"]


def test_a_free_dimension_saves_the_gather() -> None:
    mesh = Mesh.parse("3")
    (x,) = mesh.atoms
    a, b = Layout.make([[Digit(x, 24)], []]), Layout.make([[Digit(x, 12)], []])
    assert kinds(a, b, (24, 3), mesh) == ["all_to_all", "all_to_all"]


def test_handing_a_dimension_to_another_axis_moves_pieces_not_the_whole() -> None:
    """dim 0 on tp=4, wanted on dp=2: one half of tp hands its place to dp, the other is gathered."""
    a, b = block((0, TP)), block((0, DP))
    assert kinds(a, b) == ["permute", "all_gather"]
    local = 64 * 32 * 16 // 4
    assert wire_bytes(reshard_steps(SHAPE, a, b, MESH), SHAPE, 1) == 2 * local  # gathering all of tp sends 3


@pytest.mark.parametrize("mesh", ["2x2", "4", "2x3"])
def test_bytes_are_sane(mesh: str) -> None:
    """No dearer than by way of replicated, no cheaper than what is lacking, free if only slices are asked."""
    m = Mesh.parse(mesh)
    shape = (12, 4)
    everything = list(simulate.layouts(shape, m, kinds=("sum",)))
    for a, b in random.Random(0).sample(list(itertools.product(everything, repeat=2)), 800):
        if b.partial:
            continue
        sent = wire_bytes(reshard_steps(shape, a, b, m), shape, 12)
        none = Layout.replicated(2)
        through = wire_bytes(reshard_steps(shape, a, none, m), shape, 12)
        assert sent <= through, (a, b)
        assert sent >= 12 * max(0, 48 // b.shards() - 48 // a.shards()), (a, b)
        if b.without(set(b.axes()) - set(a.axes())) == a:
            assert sent == 0


def test_impossible_and_ill_formed() -> None:
    with pytest.raises(LayoutError, match="cannot become partial sum"):
        reshard_steps(SHAPE, R, PARTIAL, MESH)
    with pytest.raises(LayoutError, match="a tensor that is sum cannot become partial max"):
        reshard_steps(SHAPE, PARTIAL, Layout.make([(), (), ()], [(TP, "max")]), MESH)
    with pytest.raises(LayoutError, match="does not divide"):
        reshard_steps((3, 3, 3), R, block((0, TP)), MESH)


def test_local_periods_of_a_nested_digit() -> None:
    """Worked by hand: [24] on x (period 24) and y (period 6) in a 2x3 mesh; dropping x leaves y applied."""
    mesh = Mesh.parse("2x3")
    x, y = mesh.atoms
    a = Layout.make([[Digit(x, 24), Digit(y, 6)]])
    (step,) = reshard_steps((24,), a, a.without([x]), mesh)
    # y keeps 8 of 24 elements; x split those 8 in two blocks of 4.
    assert (step.kind, step.axes, step.dim, step.period) == ("all_gather", (x,), 0, 8)
    (step,) = reshard_steps((24,), a, a.without([y]), mesh)
    # x keeps 12 elements, in which y has period 6 still.
    assert (step.kind, step.axes, step.dim, step.period) == ("all_gather", (y,), 0, 6)
