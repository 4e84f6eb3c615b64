"""Transpose, broadcast, slice, concat, pad, reverse, reduce and dot against brute force.

For every choice of operand layouts every result layout is tried: the local op runs on all devices' data, and
the outcome is compared with the result's local data. The layouts for which it agrees must be exactly those
that the rule admits. Slice and pad may take any local bounds, as long as all devices take the same.
"""

# ruff: noqa: B023 -- functions made in a loop are used up in the same turn

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import simulate

from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.reshape import (
    broadcast_rule,
    concat_rule,
    dot_rule,
    local_pad,
    local_slice,
    pad_extent,
    pad_rule,
    reduce_rule,
    reverse_rule,
    slice_extent,
    slice_rule,
    transpose_rule,
)
from rhino.ir.rule import Rule

Arrays = list[np.ndarray]
#: Global op, and local op for a local result shape; yields the outcomes of all local ops there may be.
Local = Callable[[Sequence[Arrays], tuple[int, ...]], Iterator[Arrays]]


def each(fn: Callable[..., np.ndarray]) -> Local:
    """The same op on every device."""

    def local(devices: Sequence[Arrays], shape: tuple[int, ...]) -> Iterator[Arrays]:
        try:
            yield [fn(*arrays) for arrays in devices]
        except ValueError:  # shapes that do not go together
            return

    return local


def check(
    rule: Rule,
    arrays: Arrays,
    value: np.ndarray,
    local: Local,
    mesh: Mesh,
    kinds: Sequence[str] = ("sum",),
    found: Counter[str] | None = None,
) -> Counter[str]:
    """Counts of kept, refused, wrong and missed placements over all operand layouts."""
    found = Counter() if found is None else found
    assert [rule.shape(dims) for dims in rule.operands] == [x.shape for x in arrays]
    assert rule.shape(rule.results[0]) == value.shape
    results = list(simulate.layouts(value.shape, mesh, kinds))
    choices = [list(simulate.layouts(x.shape, mesh, kinds)) for x in arrays]
    pieces = [
        {a: simulate.scatter(x, a, mesh, seed=i) for a in layouts}
        for i, (x, layouts) in enumerate(zip(arrays, choices, strict=True))
    ]
    wanted = {
        result: [simulate.cut(value, result, mesh, device) for device in mesh.devices()]
        for result in results
        if not result.partial
    }
    for operands in itertools.product(*choices):
        devices = [[p[a][d] for p, a in zip(pieces, operands, strict=True)] for d in range(mesh.size)]
        outcomes: dict[tuple[int, ...], list[Arrays]] = {}
        kept = False
        for result in results:
            shape = result.local_shape(value.shape)
            if shape not in outcomes:
                outcomes[shape] = list(local(devices, shape))
            if result.partial:
                truth = any(_denotes(out, value, result, mesh) for out in outcomes[shape])
            else:
                truth = any(all(map(np.array_equal, out, wanted[result])) for out in outcomes[shape])
            says = rule.admits(operands, [result]) is None
            kept |= truth
            found["wrong"] += says and not truth
            found["missed"] += truth and not says
            if says != truth:
                found[f"{operands} -> {result}: rule says {says}"] += 1
        found["kept" if kept else "refused"] += 1
    return found


def _denotes(arrays: Arrays, value: np.ndarray, layout: Layout, mesh: Mesh) -> bool:
    if any(x.shape != layout.local_shape(value.shape) for x in arrays):
        return False
    if any(kind == "max" for _, kind in layout.partial) and value.size:
        # Equal arrays are a maximum of themselves; that is not what is meant by partial.
        axes = [atom for atom, _ in layout.partial]
        for axis in axes:
            if all(
                np.array_equal(arrays[a], arrays[b])
                for group in simulate.groups(mesh, [axis])
                for a, b in itertools.pairwise(group)
            ):
                return False
    return simulate.check(arrays, value, layout, mesh) is None


def fine(found: Counter[str]) -> None:
    assert found["wrong"] == found["missed"] == 0, found
    assert found["kept"] > 0


def data(*shape: int, seed: int = 0) -> np.ndarray:
    """Distinct large numbers, so that nothing agrees by accident."""
    return np.random.default_rng(seed).permutation(10**4)[: math.prod(shape)].reshape(shape) + 10**5


QUICK = ["2", "3"]
LONG = ["2", "3", "4", "2x2", "2x3"]


# -- transpose, reverse, broadcast

TRANSPOSES = [
    (shape, perm) for shape in [(6,), (4, 6), (2, 4, 3)] for perm in itertools.permutations(range(len(shape)))
]


def run_transposes(mesh: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for shape, perm in TRANSPOSES:
        x = data(*shape)
        check(
            transpose_rule(shape, perm),
            [x],
            x.transpose(perm),
            each(lambda x: x.transpose(perm)),
            Mesh.parse(mesh),
            found=found,
        )
    return found


REVERSES = [((6,), (0,)), ((4, 6), (1,)), ((4, 6), (0, 1)), ((2, 1, 6), (1,)), ((4, 6), ())]


def run_reverses(mesh: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for shape, dims in REVERSES:
        x = data(*shape)
        op = each(lambda x: np.flip(x, dims))
        check(reverse_rule(shape, dims), [x], np.flip(x, dims), op, Mesh.parse(mesh), found=found)
    return found


BROADCASTS = [
    ((), (6,), ()),
    ((6,), (6, 4), (0,)),
    ((4,), (6, 4), (1,)),
    ((1, 6), (4, 6), (0, 1)),
    ((6, 1), (2, 6, 4), (1, 2)),
    ((4, 6), (4, 6), (0, 1)),
]


def run_broadcasts(mesh: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for src, dst, dims in BROADCASTS:
        x = data(*src)

        def spread(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
            view = [1] * len(dst)
            for extent, at in zip(x.shape, dims, strict=True):
                view[at] = extent
            return np.broadcast_to(x.reshape(view), shape)

        def local(devices: Sequence[Arrays], shape: tuple[int, ...]) -> Iterator[Arrays]:
            # The op's extents must match or be 1 to begin with, as the global op's.
            for e, at in zip(src, dims, strict=True):
                if e != 1 and any(x[0].shape[dims.index(at)] != shape[at] for x in devices):
                    return
            yield from each(lambda x: spread(x, shape))(devices, shape)

        check(broadcast_rule(src, dst, dims), [x], spread(x, dst), local, Mesh.parse(mesh), found=found)
    return found


@pytest.mark.parametrize("run", [run_transposes, run_reverses, run_broadcasts])
@pytest.mark.parametrize("mesh", QUICK)
def test_structural(run: Callable[[str], Counter[str]], mesh: str) -> None:
    fine(run(mesh))


# -- slice, pad, concat


def any_slice(devices: Sequence[Arrays], shape: tuple[int, ...]) -> Iterator[Arrays]:
    """All slices with equal bounds on all devices, along the first dimension."""
    extent, length = devices[0][0].shape[0], shape[0]
    for start in range(extent):
        for stride in range(1, max(2, extent)):
            if start + (length - 1) * stride < extent:
                yield [x[0][start : start + (length - 1) * stride + 1 : stride] for x in devices]


def run_slices(mesh: str, extents: Sequence[int], strides: Sequence[int] = (1, 2, 3, 4)) -> Counter[str]:
    """One dimension: all starts, limits and strides. Also compares `local_slice` with what must come out."""
    found: Counter[str] = Counter()
    m = Mesh.parse(mesh)
    for extent in extents:
        x = data(extent)
        for start, limit in itertools.combinations(range(extent + 1), 2):
            for stride in strides:
                if slice_extent(start, limit, stride) == slice_extent(start, limit - 1, stride):
                    continue  # the same elements as with a smaller limit
                rule = slice_rule((extent,), (start,), (limit,), (stride,))
                value = x[start:limit:stride]
                check(rule, [x], value, any_slice, m, (), found)
                for a in simulate.layouts(x.shape, m, ()):
                    if not isinstance(got := rule.forward([a]), str):
                        first, last = local_slice(start, limit, stride, a.shards())
                        parts = [p[first:last:stride] for p in simulate.scatter(x, a, m)]
                        assert simulate.check(parts, value, got[0], m) is None
    return found


def run_pads(mesh: str, extents: Sequence[int], most: int) -> Counter[str]:
    """One dimension: all amounts up to `most`, cropping too, interior 0 to 2."""
    found: Counter[str] = Counter()
    m = Mesh.parse(mesh)

    def padded(x: np.ndarray, lo: int, hi: int, gap: int) -> np.ndarray:
        wide = np.full(max(0, len(x) + max(0, len(x) - 1) * gap), -1)
        wide[:: gap + 1] = x
        wide = np.concatenate([np.full(max(lo, 0), -1), wide, np.full(max(hi, 0), -1)])
        return wide[max(-lo, 0) : len(wide) - max(-hi, 0)]

    for extent, gap in itertools.product(extents, (0, 1, 2)):
        x = data(extent)
        for lo, hi in itertools.product(range(-2, most + 1), repeat=2):
            total = pad_extent(extent, lo, hi, gap)
            if total <= 0 or extent + max(0, extent - 1) * gap + min(lo, 0) + min(hi, 0) <= 0:
                continue
            value = padded(x, lo, hi, gap)
            assert len(value) == total
            if (value == -1).all():
                continue  # nothing of the operand is left, so any layout would do

            def any_pad(devices: Sequence[Arrays], shape: tuple[int, ...]) -> Iterator[Arrays]:
                inner = len(devices[0][0]) + (len(devices[0][0]) - 1) * gap
                for low in range(-inner, shape[0] + 1):
                    yield [padded(x[0], low, shape[0] - inner - low, gap) for x in devices]

            rule = pad_rule((extent,), (lo,), (hi,), (gap,))
            check(rule, [x], value, any_pad, m, (), found)
            for a in simulate.layouts(x.shape, m, ()):
                if not isinstance(got := rule.forward([a]), str):
                    low, high = local_pad(extent, lo, hi, gap, a.shards())
                    parts = [padded(p, low, high, gap) for p in simulate.scatter(x, a, m)]
                    assert simulate.check(parts, value, got[0], m) is None
    return found


def run_concats(mesh: str, parts: Sequence[tuple[tuple[int, ...], ...]], dim: int = 0) -> Counter[str]:
    found: Counter[str] = Counter()
    for shapes in parts:
        arrays = [data(*shape, seed=i) for i, shape in enumerate(shapes)]
        op = each(lambda *xs: np.concatenate(xs, dim))
        check(
            concat_rule(shapes, dim), arrays, np.concatenate(arrays, dim), op, Mesh.parse(mesh), found=found
        )
    return found


@pytest.mark.parametrize("mesh", QUICK)
def test_slices(mesh: str) -> None:
    fine(run_slices(mesh, [5, 6, 8], strides=(1, 2, 3)))


def test_slices_of_two_digits() -> None:
    fine(run_slices("4", [8], strides=(1,)))


@pytest.mark.parametrize("mesh", QUICK)
def test_pads(mesh: str) -> None:
    fine(run_pads(mesh, [1, 4, 6], most=2))


@pytest.mark.parametrize("mesh", QUICK)
def test_concats(mesh: str) -> None:
    pairs = [((a,), (b,)) for a, b in itertools.product([1, 2, 3, 4, 6], repeat=2)]
    fine(run_concats(mesh, [*pairs, ((2,), (4,), (6,))]))
    fine(run_concats(mesh, [((2, 6), (2, 3))], dim=1))


def test_slice_keeps_other_dimensions_and_whole_periods() -> None:
    """Q out of a fused QKV of 3 * 4 heads * 8, split on heads: the digit of period 32 stays."""
    mesh = Mesh.parse("2")
    (x,) = mesh.atoms
    rule = slice_rule((5, 96), (0, 32), (5, 64))
    a = Layout.replicated(2).with_digit(1, x, 32)
    assert rule.forward([a]) == (a,)
    assert isinstance(rule.forward([Layout.replicated(2).with_digit(1, x, 96)]), str)
    rows = Layout.replicated(2).with_partial(x, "max")
    assert rule.forward([rows]) == (rows,)


# -- reduce, dot

REDUCES = [
    (shape, dims)
    for shape in [(6,), (4, 6), (2, 3, 4)]
    for r in (1, 2)
    for dims in itertools.combinations(range(len(shape)), r)
]


def run_reduces(mesh: str, kind: str) -> Counter[str]:
    found: Counter[str] = Counter()
    fn = {"sum": np.sum, "max": np.max}[kind]
    for shape, dims in REDUCES:
        x = data(*shape)
        op = each(lambda x: fn(x, axis=dims))
        check(reduce_rule(shape, dims, kind), [x], fn(x, axis=dims), op, Mesh.parse(mesh), (kind,), found)
    return found


DOTS = [
    # lhs, rhs, batch, contract (same dimension numbers on both sides unless given), einsum
    ((4, 6), (6, 2), (), (), (1,), (0,), "mk,kn->mn"),
    ((4, 6), (2, 6), (), (), (1,), (1,), "mk,nk->mn"),
    ((6,), (6,), (), (), (0,), (0,), "k,k->"),
    ((4,), (6,), (), (), (), (), "m,n->mn"),
    ((2, 4, 3), (2, 3, 2), (0,), (0,), (2,), (1,), "bmk,bkn->bmn"),
]
BIG_DOTS = [((4, 2, 6), (6, 4, 2), (1,), (2,), (2, 0), (0, 1), "mbk,kmb->b")]


def run_dots(mesh: str, cases: Sequence[tuple]) -> Counter[str]:
    found: Counter[str] = Counter()
    for lhs, rhs, bl, br, cl, cr, text in cases:
        x, y = data(*lhs, seed=1), data(*rhs, seed=2)
        op = each(lambda x, y: np.einsum(text, x, y))
        check(
            dot_rule(lhs, rhs, bl, br, cl, cr),
            [x, y],
            np.einsum(text, x, y),
            op,
            Mesh.parse(mesh),
            found=found,
        )
    return found


@pytest.mark.parametrize("mesh", QUICK)
@pytest.mark.parametrize("kind", ["sum", "max"])
def test_reduces(mesh: str, kind: str) -> None:
    fine(run_reduces(mesh, kind))


@pytest.mark.parametrize("mesh", QUICK)
def test_dots(mesh: str) -> None:
    fine(run_dots(mesh, DOTS))


def test_two_axes_in_one_dot() -> None:
    fine(run_dots("2x2", [((2, 4), (4, 2), (), (), (1,), (0,), "mk,kn->mn")]))


# -- the full product


@pytest.mark.long
@pytest.mark.parametrize("mesh", LONG)
def test_everything(mesh: str) -> None:
    single = "x" not in mesh and mesh != "4"
    runs = {
        "transpose": run_transposes(mesh),
        "reverse": run_reverses(mesh),
        "broadcast": run_broadcasts(mesh),
        "reduce sum": run_reduces(mesh, "sum"),
        "reduce max": run_reduces(mesh, "max"),
        "slice": run_slices(mesh, range(1, 17) if single else [8, 12]),
        "pad": run_pads(mesh, range(1, 13) if single else [8, 12], 6 if single else 4),
        "concat": run_concats(
            mesh,
            [((a,), (b,)) for a, b in itertools.product(range(1, 25) if single else (4, 6, 12), repeat=2)]
            + [((a,), (b,), (c,)) for a, b, c in itertools.product((2, 4, 6) if single else (4,), repeat=3)],
        ),
        "dot": run_dots(mesh, [*DOTS, *BIG_DOTS] if single else DOTS[:3]),
    }
    for name, found in runs.items():
        print(f"\n{name} on {mesh}: kept {found['kept']}, refused {found['refused']}", end="")
        fine(found)


@pytest.mark.long
def test_three_digits() -> None:
    """An axis of 8, that is three atoms, for the ops with one operand."""
    fine(run_transposes("8"))
    fine(run_broadcasts("8"))
    fine(run_reduces("8", "sum"))
    fine(run_slices("8", [8, 16], strides=(1, 2)))
    fine(run_pads("8", [8], 8))
