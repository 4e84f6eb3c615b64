"""Gather and scatter against StableHLO's definition written as loops, and against torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hloprog import check_against_torch, normal, run1, vjp, whole

from rhino.ir.errors import ProgramError

COMBINE = {
    "set": lambda a, b: b,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": max,
    "min": min,
}


@dataclass(frozen=True)
class Numbers:
    """Dimension numbers under gather's names."""

    x: tuple[int, ...]
    indices: tuple[int, ...]
    offset: tuple[int, ...]
    collapsed: tuple[int, ...]
    x_batch: tuple[int, ...]
    i_batch: tuple[int, ...]
    map: tuple[int, ...]
    vector: int
    sizes: tuple[int, ...]

    def gather(self, b, x, indices):
        return b.gather(
            x,
            indices,
            offset_dims=self.offset,
            collapsed_slice_dims=self.collapsed,
            operand_batching_dims=self.x_batch,
            start_indices_batching_dims=self.i_batch,
            start_index_map=self.map,
            index_vector_dim=self.vector,
            slice_sizes=self.sizes,
        )

    def scatter(self, b, x, indices, updates, kind):
        return b.scatter(
            x,
            indices,
            updates,
            kind,
            update_window_dims=self.offset,
            inserted_window_dims=self.collapsed,
            input_batching_dims=self.x_batch,
            scatter_indices_batching_dims=self.i_batch,
            scatter_dims_to_operand_dims=self.map,
            index_vector_dim=self.vector,
        )

    @property
    def result(self):
        batch = [n for d, n in enumerate(self.indices) if d != self.vector]
        slices = [n for d, n in enumerate(self.sizes) if d not in self.collapsed and d not in self.x_batch]
        out = []
        for d in range(len(batch) + len(slices)):
            out.append(slices.pop(0) if d in self.offset else batch.pop(0))
        return tuple(out)

    def places(self, indices, clamp):
        """(result index, operand index) pairs in row-major order, following the specification's formulas."""
        for at in np.ndindex(*self.result):
            batch_index = [i for d, i in enumerate(at) if d not in self.offset]
            window = [i for d, i in enumerate(at) if d in self.offset]
            vector_at = list(batch_index)
            if self.vector < len(self.indices):
                vector_at.insert(self.vector, slice(None))
            start = np.atleast_1d(indices[tuple(vector_at)])
            full = [0] * len(self.x)
            for d, s in zip(self.map, start, strict=True):
                full[d] = int(np.clip(s, 0, self.x[d] - self.sizes[d])) if clamp else int(s)
            for dx, di in zip(self.x_batch, self.i_batch, strict=True):
                full[dx] += batch_index[di - (di > self.vector)]
            for d in range(len(self.x)):
                if d not in self.collapsed and d not in self.x_batch:
                    full[d] += window.pop(0)
            yield at, tuple(full)


CASES = {
    "rows": Numbers((7, 3), (4,), (1,), (0,), (), (), (0,), 1, (1, 3)),
    "rows, vectors": Numbers((7, 3), (4, 1), (1,), (0,), (), (), (0,), 1, (1, 3)),
    "columns": Numbers((3, 7), (2, 2), (0,), (1,), (), (), (1,), 2, (3, 1)),
    "points": Numbers((4, 5), (6, 2), (), (0, 1), (), (), (1, 0), 1, (1, 1)),
    "vector dim first": Numbers((4, 5), (2, 6), (), (0, 1), (), (), (0, 1), 0, (1, 1)),
    "windows": Numbers((5, 6, 2), (3, 2), (1, 2, 3), (), (), (), (0, 1), 1, (2, 3, 2)),
    "windows in front": Numbers((5, 6), (3, 2), (0, 2), (), (), (), (1, 0), 1, (2, 3)),
    "kept slice of one": Numbers((5, 3), (4,), (0, 2), (), (), (), (0,), 1, (1, 3)),
    "unindexed collapsed": Numbers((1, 5, 3), (4,), (1,), (0, 1), (), (), (1,), 1, (1, 1, 3)),
    "partial unindexed": Numbers((5, 4), (3,), (1,), (0,), (), (), (0,), 1, (1, 2)),
    "batching": Numbers((3, 5, 2), (3, 4), (2,), (1,), (0,), (0,), (1,), 2, (1, 1, 2)),
    "two batching": Numbers((3, 5, 2), (2, 4, 3), (), (1,), (0, 2), (2, 0), (1,), 3, (1, 1, 1)),
    "batching, windows": Numbers((2, 3, 6), (3, 1, 2), (1,), (), (0, 1), (2, 0), (2,), 1, (1, 1, 4)),
    "batching, two components": Numbers((4, 5, 3), (2, 3, 6), (), (0, 1), (2,), (1,), (1, 0), 0, (1, 1, 1)),
    "one index": Numbers((5, 3), (), (0,), (0,), (), (), (0,), 0, (1, 3)),
    "whole slice": Numbers((3, 4), (2, 1), (1, 2), (), (), (), (0,), 1, (3, 4)),
}


def indices_for(numbers: Numbers, low: int = -2, beyond: int = 3, seed: int = 0) -> np.ndarray:
    """Index vectors, some of them out of bounds."""
    return np.random.default_rng(seed).integers(low, max(numbers.x) + beyond, numbers.indices)


@pytest.mark.parametrize("name", CASES)
def test_gather(name):
    numbers = CASES[name]
    x, indices = whole(*numbers.x, low=-99, high=99), indices_for(numbers)
    want = np.zeros(numbers.result)
    matrix = np.zeros((*numbers.result, *numbers.x))
    for at, place in numbers.places(indices, clamp=True):
        want[at] = x[place]
        matrix[(*at, *place)] = 1
    for dtype in (np.int64, np.int32):
        np.testing.assert_array_equal(run1(numbers.gather, x, indices.astype(dtype)), want)
    dy = whole(*numbers.result, seed=1)
    (dx, none) = vjp(numbers.gather, [x, indices], [dy])
    assert none is None
    np.testing.assert_array_equal(dx, np.tensordot(dy, matrix, dy.ndim))


@pytest.mark.parametrize("kind", COMBINE)
@pytest.mark.parametrize("name", CASES)
def test_scatter(name, kind):
    numbers = CASES[name]
    for seed in range(3):
        x, u = whole(*numbers.x, low=1, high=4), whole(*numbers.result, low=-2, high=4, seed=1)
        indices = indices_for(numbers, seed=seed)
        want = x.copy()
        writers: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for at, place in numbers.places(indices, clamp=False):
            if all(0 <= i < n for i, n in zip(place, x.shape, strict=True)):
                want[place] = COMBINE[kind](want[place], u[at])
                writers.setdefault(place, []).append(at)
        program = lambda b, x, i, u: numbers.scatter(b, x, i, u, kind)  # noqa: E731
        np.testing.assert_array_equal(run1(program, x, indices, u), want)
        dy = whole(*x.shape, seed=2) * 60  # divisible by the number of ties
        dx, _, du = vjp(program, [x, indices, u], [dy])
        want_x, want_u = dy.copy(), np.zeros_like(u)
        for place, at in writers.items():
            values = [x[place], *(u[a] for a in at)]
            if kind == "add":
                share = [1.0] * len(values)
            elif kind == "set":
                share = [0.0, *[1.0] * len(at)]
            elif kind == "mul":
                share = [np.prod(values[:i] + values[i + 1 :]) for i in range(len(values))]
            else:
                hits = [float(v == want[place]) for v in values]
                share = [h / sum(hits) for h in hits]
            want_x[place] = dy[place] * share[0]
            for a, s in zip(at, share[1:], strict=True):
                want_u[a] = dy[place] * s
        np.testing.assert_allclose(dx, want_x, rtol=1e-14)
        np.testing.assert_allclose(du, want_u, rtol=1e-14)


def test_narrow_floats_and_integers():
    x = np.zeros(2, np.float16)
    i = np.zeros(4096, np.int64)
    got = run1(
        lambda b, x, i, u: b.scatter_along(x, i, u, 0, "add"), x, i, np.full(4096, 1 / 256, np.float16)
    )
    np.testing.assert_array_equal(got, [16, 0])
    got = run1(lambda b, x, i: b.take(x, i, 0), np.array([True, False]), np.array([[0, 1]], np.int8))
    np.testing.assert_array_equal(got, [[True, False]])


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_take_is_index_select(dim):
    i = np.array([2, 0, 0, 1])
    check_against_torch(
        lambda b, x, i: b.take(x, i, dim), lambda x, i: torch.index_select(x, dim, i), [normal(3, 4, 3), i]
    )
    table, ids = normal(5, 4), whole(2, 3, low=0, high=5, dtype=np.int64)
    check_against_torch(
        lambda b, t, i: b.take(t, i, 0), lambda t, i: torch.nn.functional.embedding(i, t), [table, ids]
    )


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_take_along_is_gather(dim):
    for shape in [(3, 4, 2), (2, 3, 1)]:  # torch lets the index be shorter outside of dim
        i = whole(*shape, low=0, high=[3, 4, 2][dim], dtype=np.int64)
        check_against_torch(
            lambda b, x, i: b.take_along(x, i, dim),
            lambda x, i: torch.gather(x, dim, i),
            [normal(3, 4, 2), i],
        )
        check_against_torch(
            lambda b, x, i, u: b.scatter_along(x, i, u, dim, "add"),
            lambda x, i, u: torch.scatter_add(x, dim, i, u),
            [normal(3, 4, 2), i, normal(*shape, seed=1)],
        )
        for kind, name in (("max", "amax"), ("min", "amin")):
            check_against_torch(
                lambda b, x, i, u, k=kind: b.scatter_along(x, i, u, dim, k),
                lambda x, i, u, n=name: torch.scatter_reduce(x, dim, i, u, n),
                [normal(3, 4, 2), i, normal(*shape, seed=1)],
            )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sizes": (1, 4)}, ["slice size 4", "operand 0 is f64[7, 3]"]),
        ({"sizes": (2, 3)}, ["collapsed", "must be 1"]),
        ({"offset": ()}, ["0 offset dims"]),
        ({"offset": (5,)}, ["offset dims [5]", "rank 2"]),
        ({"map": (0, 1)}, ["operand 1 is i64[4]", "1 components", "2 dimensions"]),
        ({"map": (7,)}, ["dimension 7"]),
        ({"vector": 3}, ["index vector dim 3"]),
        ({"x_batch": (1,)}, ["batching"]),
        ({"x_batch": (0,), "i_batch": (0,), "collapsed": ()}, ["batching", "[0]"]),
    ],
)
def test_gather_errors(change, words):
    numbers = Numbers(**{**CASES["rows"].__dict__, **change})
    with pytest.raises(ProgramError) as error:
        run1(numbers.gather, normal(7, 3), np.zeros(4, np.int64))
    for word in ["hlo.gather", *words]:
        assert word in str(error.value)


def test_scatter_and_helper_errors():
    x, i, u = normal(7, 3), np.zeros(4, np.int64), normal(4, 3)
    rows = CASES["rows"]
    for program, arrays, words in [
        (
            lambda b, x, i, u: rows.scatter(b, x, i, u, "add"),
            (x, i, u[:3]),
            ["hlo.scatter", "operand 2 is f64[3, 3]", "[4, 3]"],
        ),
        (lambda b, x, i, u: rows.scatter(b, x, i, u, "sub"), (x, i, u), ["'sub'", "mul"]),
        (
            lambda b, x, i, u: rows.scatter(b, x, i, u, "add"),
            (x, i, u.astype(np.float32)),
            ["operand 2", "f32[4, 3]", "f64[7, 3]"],
        ),
        (lambda b, x, i, u: rows.scatter(b, x, u, u, "add"), (x, i, u), ["operand 1", "integers"]),
        (lambda b, x, i, u: b.take(x, i, 2), (x, i, u), ["take", "dimension 2", "f64[7, 3]"]),
        (lambda b, x, i, u: b.take_along(x, i, 0), (x, i, u), ["take_along", "i64[4]", "f64[7, 3]"]),
    ]:
        with pytest.raises(ProgramError) as error:
            run1(program, *arrays)
        for word in words:
            assert word in str(error.value)
