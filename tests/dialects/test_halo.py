"""Windows that overlap, cut over devices in space: rules, local forms and the exchange of edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hloprog import build, type_like, whole
from localcheck import check_local, pieces_of, run_local
from xdsl.dialects.func import FuncOp

from rhino.dialects.hlo.base import HloOp
from rhino.ir import types
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import Mesh
from rhino.ir.shards import unshard

FOUR = Mesh.parse("x=4")
GRID = Mesh.parse("x=2,y=2")

#: Input, weight, options, and per spatial dimension the edges (before, behind) and the most pieces; None: whole.
CASES = {
    "1": ((1, 2, 8), (3, 2, 1), {"padding": [(0, 0)]}, [(None, 8)]),
    "3": ((1, 2, 8), (3, 2, 3), {"padding": [(1, 1)]}, [((1, 1), 8)]),
    "5": ((1, 2, 8), (3, 2, 5), {"padding": [(2, 2)]}, [((2, 2), 4)]),
    "7": ((1, 2, 8), (3, 2, 7), {"padding": [(3, 3)]}, [((3, 3), 2)]),
    "causal": ((1, 2, 8), (3, 2, 3), {"padding": [(2, 0)]}, [((2, 0), 4)]),
    "even": ((1, 2, 8), (3, 2, 4), {"padding": [(1, 2)]}, [((1, 2), 4)]),
    "shifted by more than the window": ((1, 2, 12), (3, 2, 3), {"padding": [(-1, 3)]}, [((0, 3), 4)]),
    "dilated": ((1, 2, 8), (3, 2, 3), {"padding": [(2, 2)], "rhs_dilation": [2]}, [((2, 2), 4)]),
    "1 by strides of 2": ((1, 2, 16), (3, 2, 1), {"strides": [2]}, [((0, 0), 8)]),
    "3 by strides of 2": ((1, 2, 16), (3, 2, 3), {"strides": [2], "padding": [(1, 1)]}, [((1, 0), 8)]),
    "7 by strides of 2": ((1, 2, 16), (3, 2, 7), {"strides": [2], "padding": [(3, 3)]}, [((3, 2), 5)]),
    "transposed": (
        (1, 2, 8), (3, 2, 3), {"lhs_dilation": [2], "padding": [(1, 2)]}, [((0, 1), 8)]
    ),
    "transposed, 7": (
        (1, 2, 8), (3, 2, 7), {"lhs_dilation": [2], "padding": [(3, 4)]}, [((1, 2), 4)]
    ),
    "both": (
        (1, 2, 12), (3, 2, 3), {"strides": [3], "lhs_dilation": [2], "padding": [(1, 1)]}, [((0, 0), 4)]
    ),
    "weight": ((3, 2, 8), (3, 2, 8), {"padding": [(1, 1)]}, [((1, 1), 8)]),
    "weight of strides of 2": (
        (3, 2, 8), (3, 2, 4), {"padding": [(1, 0)], "rhs_dilation": [2]}, [((1, 0), 4)]
    ),
    "plane": ((1, 1, 8, 4), (2, 1, 3, 3), {"padding": [(1, 1), (1, 1)]}, [((1, 1), 8), ((1, 1), 4)]),
    "no padding": ((1, 2, 8), (3, 2, 3), {}, [None]),
    "groups": ((2, 4, 8), (4, 2, 3), {"padding": [(1, 1)], "feature_groups": 2}, [((1, 1), 8)]),
    "batch groups": ((4, 2, 8), (4, 2, 3), {"padding": [(1, 1)], "batch_groups": 2}, [((1, 1), 8)]),
}  # fmt: skip


def op_of(program, arrays) -> HloOp:
    func = build(program, [type_like(a) for a in arrays]).body.block.first_op
    assert isinstance(func, FuncOp)
    return [o for o in func.body.block.ops if isinstance(o, HloOp)][-1]


def convolution(x, w, options) -> HloOp:
    return op_of(lambda b, x, w: b.convolution(x, w, **options), [x, w])


def in_space(op: HloOp, dims: dict[int, str], mesh: Mesh) -> tuple[list[Layout], list[Layout]]:
    """Operand 0 (and a result of its rank whose dimension the rule ties to it) cut along mesh axes, in blocks."""
    rule = op.rule()
    splits = rule.block([(mesh.axis(name), f"p{dim - 2}") for dim, name in dims.items()])
    assert splits is not None
    placement = rule.place(splits)
    return list(placement.operands), list(placement.results)


@pytest.mark.parametrize("name", CASES)
def test_every_placement_computes_the_whole(name):
    x, w, options, expected = CASES[name]
    arrays = [whole(*x), whole(*w, seed=1)]
    rule = convolution(*arrays, options).rule()
    for i, one in enumerate(expected):
        halo = rule.halos.get(f"p{i}")
        if one is None:
            assert f"p{i}" not in rule.sizes
            continue
        edges, most = one
        assert (None if halo is None else (halo.before, halo.after)) == edges
        assert rule.most(f"p{i}") == most
    assert check_local(lambda b, x, w: b.convolution(x, w, **options), arrays, limit=60) > 5


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize(("k", "stride", "n"), [(3, 1, 2), (3, 2, 4), (5, 1, 4), (7, 2, 2), (1, 2, 2)])
def test_equal_to_torch(dtype, k, stride, n):
    """Rows over one axis, columns over the other where there are two."""
    generator = torch.Generator().manual_seed(k)
    size = (2 * 8, 2 * 8)
    images = torch.randint(-3, 4, (1, 2, *size), generator=generator).to(getattr(torch, dtype))
    weight = torch.randint(-1, 2, (3, 2, k, k), generator=generator).to(getattr(torch, dtype))
    want = torch.nn.functional.conv2d(images.double(), weight.double(), None, stride, k // 2)
    kind = types.numpy_dtype(types.BF16 if dtype == "bfloat16" else types.F64)
    x, w = (t.double().numpy().astype(kind) for t in (images, weight))
    op = convolution(x, w, {"strides": [stride] * 2, "padding": [(k // 2, (k - 1) // 2)] * 2})
    for mesh, cut in ((Mesh.parse(f"x={n}"), {2: "x"}), (GRID, {2: "x", 3: "y"}), (GRID, {2: "y", 3: "x"})):
        operands, results = in_space(op, cut, mesh)
        cuts = [pieces_of(a, layout, mesh, 0)[1] for a, layout in zip((x, w), operands, strict=True)]
        (got,) = run_local(op, mesh, operands, results, cuts)
        found = unshard(got, results[0], want.shape, mesh)
        np.testing.assert_array_equal(found.astype(np.float64), want.to(images.dtype).double().numpy())


def test_edges_wider_than_a_piece_are_refused():
    op = convolution(whole(1, 1, 8), whole(1, 1, 7, seed=1), {"padding": [(3, 3)]})
    rule = op.rule()
    x = Layout.make([[], [], [Digit(FOUR.axis("x"), 8)]])
    assert rule.most("p0") == 2
    assert rule.block([(FOUR.axis("x"), "p0")]) is None
    why = rule.admits([x, Layout.replicated(3)], [x])
    assert why is not None
    assert "3 elements before and 3 behind" in why
    assert rule.backward([x]) == rule.forward([x, Layout.replicated(3)])


def test_strided_digits_are_refused():
    rule = convolution(whole(1, 1, 8), whole(1, 1, 3, seed=1), {"padding": [(1, 1)]}).rule()
    axis = Mesh.parse("x=2").axis("x")
    assert isinstance(rule.forward([Layout.make([[], [], [Digit(axis, 8)]]), Layout.replicated(3)]), tuple)
    assert isinstance(rule.forward([Layout.make([[], [], [Digit(axis, 4)]]), Layout.replicated(3)]), str)


def test_axes_nest_in_any_order():
    x, w = whole(1, 1, 16), whole(1, 1, 3, seed=1)
    op = convolution(x, w, {"padding": [(1, 1)]})
    want = op.evaluate(x, w)[0]
    for outer, inner in (("x", "y"), ("y", "x")):
        layout = Layout.make([[], [], [Digit(GRID.axis(outer), 16), Digit(GRID.axis(inner), 8)]])
        cuts = [pieces_of(a, la, GRID, 0)[1] for a, la in ((x, layout), (w, Layout.replicated(3)))]
        (got,) = run_local(op, GRID, [layout, Layout.replicated(3)], [layout], cuts)
        np.testing.assert_array_equal(unshard(got, layout, want.shape, GRID), want)


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize(
    ("size", "stride", "padding", "most"),
    [(3, 2, (1, 1), 8), (3, 2, (0, 1), 8), (3, 1, (1, 1), 16), (5, 1, (4, 0), 4), (2, 1, (0, 1), 16)],
)
def test_pooling(kind, size, stride, padding, most):
    """What stands beyond the border is the neutral element: all numbers are on one side of 0."""
    for low, high in ((1, 3), (-3, -1)):
        x = whole(16, 2, low=low, high=high)
        program = lambda b, x: b.reduce_window(x, kind, (size, 1), (stride, 1), [padding, (0, 0)])  # noqa: E731
        assert op_of(program, [x]).rule().most("p0") == most
        assert check_local(program, [x], limit=30) > 5


@pytest.mark.parametrize("kind", ["max", "or", "and"])
def test_pooling_of_other_types(kind):
    x = whole(8, 2, low=-9, high=-1, dtype=np.int32) if kind == "max" else whole(8, 2, low=0, high=2) > 0
    check_local(lambda b, x: b.reduce_window(x, kind, (3, 1), (1, 1), [(1, 1), (0, 0)]), [x], limit=30)


@pytest.mark.parametrize(("name", "most"), [("f8E4M3FN", None), ("f8E5M2", 8)])
def test_floats_without_infinities_have_nothing_to_put_beyond_the_border(name, most):
    x = whole(8, 2, low=-3, high=-1).astype(types.numpy_dtype(types.element(name)))
    program = lambda b, x: b.reduce_window(x, "max", (3, 1), (1, 1), [(1, 1), (0, 0)])  # noqa: E731
    rule = op_of(program, [x]).rule()
    assert (rule.most("p0") if "p0" in rule.halos else None) == most
    check_local(program, [x], meshes=(Mesh.parse("2"),), limit=30)


def test_random_windows():
    """The arithmetic of edges on many windows: whatever the rule lets pass is right."""
    rng, cut = np.random.default_rng(0), 0
    while cut < 60:
        extent, size = int(rng.integers(2, 17)), int(rng.integers(1, 6))
        stride, base, dilation = (int(rng.choice([1, 1, 2, 3])) for _ in range(3))
        padding = int(rng.integers(-2, 6)), int(rng.integers(-2, 6))
        room = (extent - 1) * base + 1 + sum(padding) - (size - 1) * dilation - 1
        if room < 0:
            continue
        x, w = whole(1, 1, extent), whole(1, 1, size, seed=1)
        options = {
            "strides": [stride], "padding": [padding], "lhs_dilation": [base], "rhs_dilation": [dilation]
        }  # fmt: skip
        rule = convolution(x, w, options).rule()
        if not any(math.gcd(rule.sizes[f], 12) > 1 for f in rule.halos):
            continue
        cut += 1
        check_local(
            lambda b, x, w, o=options: b.convolution(x, w, **o),
            [x, w],
            meshes=(Mesh.parse("2"), Mesh.parse("3"), Mesh.parse("2x2")),
            limit=6,
        )
