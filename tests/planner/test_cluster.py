"""Clusters as text, hardware files with their sources, and the axioms that every collective's time obeys."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rhino.ir.errors import UsageError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.planner.cluster import Cluster, hardware, kinds, read_hardware
from rhino.planner.communication import Communication

GROWING = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")


def test_text_says_nodes_devices_and_kind() -> None:
    assert str(Cluster.parse("2x8xH100")) == "2x8xH100"
    assert (Cluster.parse("8xH100").nodes, Cluster.parse("8xH100").devices_per_node) == (1, 8)
    assert (Cluster.parse("16xA100").nodes, Cluster.parse("16xA100").devices_per_node) == (2, 8)
    local = Cluster.parse("4")
    assert (local.size, local.nodes, local.hardware.name) == (4, 1, "CPU")
    assert Cluster.parse("4xCPU") == local


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "cannot read"), ("H100", "cannot read"), ("2x8", "names no kind"), ("8xTPU9", "no data about"),
     ("0xH100", "no devices"), ("00x8xH100", "no devices"), ("12xH100", "do not fill nodes")],
)  # fmt: skip
def test_malformed_clusters_say_what_to_write(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        Cluster.parse(text)
    assert error.value.remedy


def test_the_parts_that_are_promised_ship_and_are_plausible() -> None:
    assert set(kinds()) >= {"A100", "H100", "H200", "B200", "L4", "V100", "CPU"}
    for kind in kinds():
        part = hardware(kind)
        assert part.flops["f64"] <= part.flops["f32"] <= part.flops["bf16"]
        assert 1e9 < part.memory_bytes < 1e12 and part.launch < 1e-4
        for op, lines in part.inner.lines.items():
            assert all(line.bandwidth > 0 and line.latency >= 0 for line in lines), (kind, op)


def test_a_figure_without_a_source_is_refused() -> None:
    text = (
        'name = "X"\n[sources]\n[device]\nmemory_bytes = { value = 1, source = "nowhere" }\n'
        "[efficiency]\n[flops]\n"
    )
    with pytest.raises(UsageError, match="malformed hardware file"):
        read_hardware(text)


@pytest.mark.parametrize("kind", ["A100", "H100", "CPU", "L4"])
@pytest.mark.parametrize("op", GROWING)
def test_more_bytes_or_more_members_never_cost_less(kind: str, op: str) -> None:
    comm = Communication(Cluster.parse(f"4x8x{kind}"), Mesh.parse("32"))
    sizes = [float(2**i) for i in range(0, 33, 3)]
    for (g, k), (small, large) in itertools.product(
        [(2, 1), (8, 1), (1, 4), (8, 4)], itertools.pairwise(sizes)
    ):
        assert 0 < comm.time(op, g, k, small) <= comm.time(op, g, k, large)
    # The same tensor in larger groups: an all-gather's operand is then a smaller piece of it.
    for whole in sizes:
        times = [comm.time(op, g, k, whole / (g * k) if op == "all_gather" else whole)
                 for g, k in ((2, 1), (4, 1), (8, 1), (8, 2), (8, 4))]  # fmt: skip
        assert times == sorted(times), (op, whole)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["A100", "H100", "B200", "V100", "L4", "CPU"]),
    st.sampled_from([(2, 1), (4, 1), (8, 1), (1, 2), (8, 4)]),
    st.floats(1.0, 1e10),
)
def test_all_reduce_is_reduce_scatter_and_all_gather(kind: str, group: tuple[int, int], size: float) -> None:
    """In one kernel: never dearer than the two, never cheaper than either. And an all-to-all never beats a slice."""
    comm = Communication(Cluster.parse(f"4x8x{kind}"), Mesh.parse("32"))
    g, k = group
    scatter = comm.time("reduce_scatter", g, k, size)
    gather = comm.time("all_gather", g, k, size / (g * k))
    reduce = comm.time("all_reduce", g, k, size)
    rounding = 1 + 1e-12
    assert max(scatter, gather) <= reduce * rounding and reduce <= (scatter + gather) * rounding
    assert comm.time("all_to_all", g, k, size) > comm.time("shard", 1, 1, size) > 0
    assert min(comm.time(kind, g, k, size) for kind in (*GROWING, "permute")) > 0


def test_groups_that_cross_nodes_cost_more_than_groups_that_do_not() -> None:
    comm = Communication(Cluster.parse("2x8xH100"), Mesh.parse("dp=2,tp=8"))
    assert comm.spread((comm.mesh.axis("tp"),)) == (8, 1)
    assert comm.spread((comm.mesh.axis("dp"),)) == (1, 2)
    assert comm.spread((comm.mesh.axis("dp"), comm.mesh.axis("tp"))) == (8, 2)
    size = 1e8
    assert comm.time("all_reduce", 1, 2, size) > 3 * comm.time("all_reduce", 2, 1, size)


def test_reshards_cost_their_steps() -> None:
    mesh = Mesh.parse("x=2,y=4")
    comm = Communication(Cluster.parse("8xH100"), mesh)
    shape = (64, 128, 512)
    x, y = mesh.axis("x"), mesh.axis("y")
    whole = Layout.replicated(3)
    rows = Layout.block(shape, [(0, x)])
    both = Layout.block(shape, [(0, x), (2, y)])
    partial = rows
    for atom in mesh.atoms_of(y):
        partial = partial.with_partial(atom, "sum")
    numel = 64 * 128 * 512
    assert comm.reshard_time(shape, 4, rows, whole) == comm.time("all_gather", 2, 1, 4 * numel / 2)
    assert comm.reshard_time(shape, 4, partial, rows) == comm.time("all_reduce", 4, 1, 4 * numel / 2)
    assert comm.reshard_time(shape, 4, partial, both) == comm.time("reduce_scatter", 4, 1, 4 * numel / 2)
    assert comm.reshard_time(shape, 4, whole, both) < 1e-4
    assert comm.reshard_time(shape, 4, rows, rows) == 0
    assert comm.reshard_time(shape, 4, rows, partial) == float("inf")
    layouts = (whole, rows, both, partial)
    table = comm.reshard_times(shape, 4, layouts, layouts)
    for i, a in enumerate(layouts):
        for j, b in enumerate(layouts):
            assert table[i, j] == pytest.approx(comm.reshard_time(shape, 4, a, b), rel=1e-12), (a, b)
