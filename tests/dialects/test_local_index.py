"""Rules and local forms of gather, scatter, convolution and windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hloprog import build, type_like, whole
from localcheck import check_local
from test_index import CASES, Numbers, indices_for

from rhino.dialects.hlo.base import HloOp
from rhino.ir.mesh import Mesh

#: Extents that 2, 3 and 4 divide, so that there is something to split.
NUMBERS = {
    "rows": Numbers((12, 4), (6,), (1,), (0,), (), (), (0,), 1, (1, 4)),
    "points": Numbers((4, 6), (4, 2), (), (0, 1), (), (), (1, 0), 1, (1, 1)),
    "vector dim first": Numbers((4, 6), (2, 8), (), (0, 1), (), (), (0, 1), 0, (1, 1)),
    "windows": Numbers((4, 6, 4), (4, 2), (1, 2, 3), (), (), (), (0, 1), 1, (2, 6, 4)),
    "kept slice of one": Numbers((12, 3), (4,), (0, 2), (), (), (), (0,), 1, (1, 3)),
    "partial unindexed": Numbers((12, 4), (4,), (1,), (0,), (), (), (0,), 1, (1, 2)),
    "two batching": Numbers((4, 8, 6), (6, 2, 4), (), (1,), (0, 2), (2, 0), (1,), 3, (1, 1, 1)),
    "batching, two components": Numbers((4, 6, 4), (2, 4, 2), (), (0, 1), (2,), (1,), (1, 0), 0, (1, 1, 1)),
    "unindexed collapsed": Numbers((4, 12, 4), (4,), (1,), (0, 1), (), (), (1,), 1, (1, 1, 4)),
}


@pytest.mark.parametrize("dtype", [np.float64, np.bool_])
@pytest.mark.parametrize("name", NUMBERS)
def test_gather(name, dtype):
    numbers = NUMBERS[name]
    x = whole(*numbers.x, low=-9, high=9).astype(dtype)
    assert check_local(numbers.gather, [x, indices_for(numbers)]) > 5


@pytest.mark.parametrize("kind", ["set", "add", "max", "min", "mul"])
@pytest.mark.parametrize("name", NUMBERS)
def test_scatter(name, kind):
    numbers = NUMBERS[name]
    x, u = whole(*numbers.x, low=-3, high=4), whole(*numbers.result, low=-2, high=3, seed=1)
    count = check_local(
        lambda b, x, i, u: numbers.scatter(b, x, i, u, kind), [x, indices_for(numbers), u], limit=25
    )
    assert count > 5


def test_narrow_index_types_can_name_large_local_extents():
    rows = replace(NUMBERS["rows"], x=(256, 4))
    indices = np.array([0, 127, 3, 100, -5, 64], np.int8)
    x = whole(256, 4, low=-9, high=9)
    check_local(rows.gather, [x, indices], limit=10)
    check_local(lambda b, x, i, u: rows.scatter(b, x, i, u, "add"), [x, indices, whole(6, 4)], limit=10)


def op_of(program, arrays) -> HloOp:
    module = build(program, [type_like(a) for a in arrays])
    return [o for o in module.walk() if isinstance(o, HloOp)][-1]


def test_what_may_be_split():
    """An embedding: rows of the table (partial), its columns, tokens. Scatter: rows too, tokens partial."""
    table, ids = whole(12, 4), whole(2, 6, low=0, high=12, dtype=np.int64)
    rule = op_of(lambda b, t, i: b.take(t, i, 0), [table, ids]).rule()
    assert {rule.kind(f) for f in rule.factors} == {"sum", "pass"}
    assert len(rule.factors) == 4
    along = whole(2, 1, low=0, high=2, dtype=np.int64)
    rule = op_of(lambda b, x, i: b.take_along(x, i, 1), [whole(2, 4), along]).rule()
    assert sorted(rule.kind(f) for f in rule.factors) == ["pass", "sum"]
    points = CASES["points"]
    u = whole(*points.result)
    arrays = [whole(*points.x), indices_for(points), u]
    rule = op_of(lambda b, x, i, u: points.scatter(b, x, i, u, "add"), arrays).rule()
    assert sorted(rule.kind(f) for f in rule.factors) == ["pass", "pass", "sum"]


CONV = {
    "plain": ((4, 4, 5), (6, 4, 3), {"padding": [(1, 1)]}),
    "strided, dilated": (
        (2, 4, 7, 6), (4, 4, 3, 2), {"strides": (2, 1), "rhs_dilation": (1, 2), "lhs_dilation": (2, 1)}
    ),
    "one by one": ((2, 4, 4, 6), (4, 4, 1, 1), {}),
    "patches": ((2, 3, 8, 6), (4, 3, 2, 3), {"strides": (2, 3)}),
    "feature groups": ((2, 12, 5), (12, 2, 3), {"feature_groups": 6}),
    "depthwise": ((2, 12, 5), (12, 1, 3), {"feature_groups": 12}),
    "four groups of four": ((2, 16, 3), (16, 4, 1), {"feature_groups": 4}),
    "batch groups": ((12, 4, 5), (12, 4, 3), {"batch_groups": 6}),
    "batch groups of two": ((8, 2, 3), (8, 2, 2), {"batch_groups": 4}),
}  # fmt: skip


@pytest.mark.parametrize("name", CONV)
def test_convolution(name):
    x, w, options = CONV[name]
    program = lambda b, x, w: b.convolution(x, w, **options)  # noqa: E731
    assert check_local(program, [whole(*x), whole(*w, seed=1)]) > 10


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod"])
def test_windows(kind):
    x = whole(4, 6, 8, low=-2, high=3)
    for window, strides, padding in [
        ((1, 2, 2), (1, 2, 2), None),
        ((1, 3, 2), (1, 1, 2), [(0, 0), (1, 1), (0, 0)]),
        ((1, 1, 4), (1, 2, 4), None),
    ]:
        program = lambda b, x, a=(kind, window, strides, padding): b.reduce_window(x, *a)  # noqa: E731
        assert check_local(program, [x], limit=20) > 5


def test_select_and_scatter():
    x, source = whole(4, 6, 8), whole(4, 3, 4, seed=1)
    assert check_local(lambda b, x, s: b.select_and_scatter(x, s, (1, 2, 2), (1, 2, 2)), [x, source]) > 5


def test_three_atoms_on_one_dimension():
    """Strided digits of several axes on the dimension that is looked up."""
    rows = replace(NUMBERS["rows"], x=(16, 4))
    mesh = (Mesh.parse("2x4"),)
    check_local(rows.gather, [whole(16, 4), indices_for(rows)], meshes=mesh, limit=60)
    check_local(
        lambda b, x, i, u: rows.scatter(b, x, i, u, "add"),
        [whole(16, 4), indices_for(rows), whole(6, 4)],
        meshes=mesh,
        limit=60,
    )
