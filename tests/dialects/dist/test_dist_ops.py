"""Collectives on numpy arrays against their definition, element by element; and what their verifiers say."""

import numpy as np
import pytest
from xdsl.ir import Block

from rhino.dialects.dist import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    AxisIndexOp,
    HaloOp,
    PermuteOp,
    ReduceScatterOp,
    ShardOp,
)
from rhino.ir import types
from rhino.ir.mesh import AxisRef, Mesh

MESH = Mesh.parse("a=2,b=6")
A, B, B2, B3 = MESH.axis("a"), MESH.axis("b"), AxisRef("b", 1, 2), AxisRef("b", 2, 3)
GROUPS = [(A,), (B,), (B2,), (B3,), (A, B3), (B3, A), (B2, A)]


def groups(axes):
    """Ranks by coordinates outside of `axes`, each group in order of its coordinates on them."""

    def place(rank):
        a, b = divmod(rank, 6)
        parts = {A: a, B: b, B2: b // 3, B3: b % 3}
        mine = tuple(parts[x] for x in axes)
        used = {A: "a", B: "b2 b3", B2: "b2", B3: "b3"}
        taken = " ".join(used[x] for x in axes)
        rest = tuple(v for v, tag in ((a, "a"), (b // 3, "b2"), (b % 3, "b3")) if tag not in taken)
        return rest, mine

    out = {}
    for rank in range(12):
        rest, mine = place(rank)
        out.setdefault(rest, []).append((mine, rank))
    return [[rank for _, rank in sorted(group)] for group in out.values()]


def value(shape):
    return Block(arg_types=[types.tensor(shape, types.I64)]).args[0]


def data(shape, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(-50, 50, shape) for _ in range(12)]


def part(x, dim, period, n, k):
    """Elements of member k by the definition of a digit."""
    mine = [i for i in range(x.shape[dim]) if (i % period) // (period // n) == k]
    return x.take(mine, axis=dim)


def run(op, *operands):
    (out,) = op.evaluate_ranks(MESH, operands)
    assert all(o.shape == types.shape_of(op.results[0]) for o in out)
    return out


def digits(extent, n):
    return [p for p in range(n, extent + 1, n) if extent % p == 0]


@pytest.mark.parametrize("axes", GROUPS, ids=str)
def test_all_reduce(axes):
    xs = data((2, 3))
    for kind, combine in (("sum", np.sum), ("max", np.max), ("min", np.min), ("prod", np.prod)):
        out = run(AllReduceOp.make(value((2, 3)), axes, MESH, kind=kind), xs)
        for group in groups(axes):
            want = combine([xs[r] for r in group], axis=0)
            assert all(np.array_equal(out[r], want) for r in group)


@pytest.mark.parametrize("axes", GROUPS, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_gather_shard_and_reduce_scatter(axes, dim):
    n = len(groups(axes)[0])
    shape = (2 * n, 2) if dim == 0 else (3, 2 * n)
    whole = data(shape)
    for period in digits(2 * n, n):
        fields = {"dim": dim, "period": period}
        cut = run(ShardOp.make(value(shape), axes, MESH, **fields), whole)
        total = run(ReduceScatterOp.make(value(shape), axes, MESH, kind="sum", **fields), whole)
        joined = run(AllGatherOp.make(value(cut[0].shape), axes, MESH, **fields), cut)
        for group in groups(axes):
            reduced = np.sum([whole[r] for r in group], axis=0)
            for k, rank in enumerate(group):
                assert np.array_equal(cut[rank], part(whole[rank], dim, period, n, k))
                assert np.array_equal(total[rank], part(reduced, dim, period, n, k))
                assert all(np.array_equal(part(joined[rank], dim, period, n, j), cut[r])
                           for j, r in enumerate(group))  # fmt: skip


@pytest.mark.parametrize("axes", GROUPS, ids=str)
@pytest.mark.parametrize(("to_dim", "dim"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_all_to_all(axes, to_dim, dim):
    n = len(groups(axes)[0])
    shape = (2 * n, n) if to_dim == 0 else (n, 2 * n)
    xs = data(shape)
    for to_period in digits(shape[to_dim], n):
        op = AllToAllOp.make(value(shape), axes, MESH, to_dim=to_dim, to_period=to_period, dim=dim,
                             period=n)  # fmt: skip
        out = run(op, xs)
        for group in groups(axes):
            for j, rank in enumerate(group):
                for k, source in enumerate(group):
                    piece = part(xs[source], to_dim, to_period, n, j)
                    assert np.array_equal(part(out[rank], dim, n, n, k), piece)


def test_permute_and_axis_index():
    xs = data((2,))
    targets = [(r + 6) % 12 for r in range(12)]
    out = run(PermuteOp.make(value((2,)), (A,), MESH, to=targets), xs)
    assert all(out[t] is xs[s] for s, t in enumerate(targets))
    assert [int(v) for v in run(AxisIndexOp.over((B3, A), MESH))] == [
        (r % 6 % 3) * 2 + r // 6 for r in range(12)
    ]


def test_periods_of_blocks_are_left_out():
    op = AllGatherOp.make(value((2, 4)), (A,), MESH, dim=0, period=4)
    assert "period" not in op.properties and op.period == 4
    op = AllToAllOp.make(value((2, 6)), (B3,), MESH, dim=0, period=6, to_dim=1, to_period=3)
    assert "period" not in op.properties and (op.period, op.to_period) == (6, 3)


@pytest.mark.parametrize("axes", GROUPS, ids=str)
@pytest.mark.parametrize("edges", [(1, 2), (2, 0), (0, 3), (3, 3)])
def test_halo(axes, edges):
    """Every rank sees a stretch of the whole, which has the neutral element on either side of it."""
    xs = data((2, 3))
    low, high = edges
    info = np.iinfo(np.int64)
    for kind, neutral in (("sum", 0), ("max", info.min), ("min", info.max), ("prod", 1)):
        op = HaloOp.make(value((2, 3)), axes, MESH, kind=kind, dim=1, low=low, high=high)
        out = run(op, xs)
        for group in groups(axes):
            sides = [np.full((2, n), neutral, xs[0].dtype) for n in edges]
            line = np.concatenate([sides[0], *(xs[r] for r in group), sides[1]], axis=1)
            for i, rank in enumerate(group):
                assert np.array_equal(out[rank], line[:, 3 * i : 3 * i + 3 + low + high])


def test_a_halo_lies_within_one_neighbour():
    op = HaloOp.make(value((4, 3)), (A,), MESH, kind="sum", dim=1, low=4, high=0)
    assert (why := op.error(MESH)) is not None
    assert "do not lie within one neighbour" in why
    assert op.bytes == 4 * 4 * 8
    assert HaloOp.make(value((4, 3)), (A,), MESH, kind="sum", dim=2, low=1, high=0).error(MESH) is not None


def test_bytes_that_each_rank_sends():
    x = value((12,))  # 96 bytes
    sent = {
        AllReduceOp: {"kind": "sum"},
        AllGatherOp: {"dim": 0},
        ReduceScatterOp: {"kind": "sum", "dim": 0},
        AllToAllOp: {"dim": 0, "to_dim": 0},
        ShardOp: {"dim": 0},
    }
    got = {op.__name__: op.make(x, (B3,), MESH, **fields).bytes for op, fields in sent.items()}
    assert got == {
        "AllReduceOp": 128,
        "AllGatherOp": 192,
        "ReduceScatterOp": 64,
        "AllToAllOp": 64,
        "ShardOp": 0,
    }


def test_whole_axes_are_written_by_name_when_the_mesh_is_known():
    assert str(AxisIndexOp.over((A, B2), MESH).axes_attr.data[0]) == '"a"'
    assert [a.axis_text() for a in AxisIndexOp.over((A, B2)).axes_attr.data] == ['"a":(1)2', '"b":(1)2']
    assert AxisIndexOp.over((A, B2)).axes(MESH) == (A, B2)
