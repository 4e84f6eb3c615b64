"""Cases of convolutions, windows, indexing and sorting for test_torch_ops.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from torch_op_check import FLOATS, INTEGERS, draw, run

from rhino.ir import types


def _convolution() -> None:
    # x shape, w shape, strides, padding, lhs dilation, rhs dilation, feature groups, batch groups
    plain = [
        ((2, 3, 8), (4, 3, 3), [1], [(0, 0)], [1], [1], 1, 1),
        ((2, 3, 8), (4, 3, 3), [2], [(1, 2)], [1], [2], 1, 1),
        ((2, 4, 6, 7), (6, 2, 3, 2), [2, 1], [(1, 1), (0, 0)], [1, 1], [1, 1], 2, 1),
        ((2, 4, 6, 7), (4, 1, 3, 3), [1, 1], [(1, 1), (1, 1)], [1, 1], [1, 1], 4, 1),
        ((2, 4, 6, 7), (6, 4, 3, 3), [1, 1], [(-1, 1), (2, -1)], [1, 1], [1, 1], 1, 1),
        ((4, 3, 6), (6, 3, 3), [1], [(1, 1)], [1], [1], 1, 2),
        ((2, 3, 4, 4, 3), (2, 3, 2, 2, 2), [1, 2, 1], [(0, 1), (0, 0), (1, 0)], [1] * 3, [1] * 3, 1, 1),
        ((3, 5), (4, 5), [], [], [], [], 1, 1),
        ((4, 6), (4, 3), [], [], [], [], 2, 1),
        ((0, 3, 8), (4, 3, 3), [1], [(0, 0)], [1], [1], 1, 1),
    ]
    input_gradients = [
        ((2, 4, 4, 4), (3, 4, 3, 3), [1, 1], [(1, 2), (1, 2)], [2, 2], [1, 1], 1, 1),
        ((2, 4, 4, 5), (6, 2, 3, 2), [1, 1], [(2, 2), (1, 1)], [3, 1], [1, 2], 2, 1),
        ((2, 4, 5), (3, 4, 3), [1], [(0, 0)], [2], [1], 1, 1),
        ((2, 4, 5), (3, 4, 3), [2], [(1, 4)], [3], [1], 1, 1),
        ((4, 4, 5), (4, 4, 3), [1], [(1, 1)], [2], [1], 1, 2),
    ]
    weight_gradients = [
        ((3, 2, 8, 8), (5, 2, 6, 6), [1, 1], [(0, 0), (0, 0)], [1, 1], [1, 1], 1, 1),
        ((3, 2, 8, 8), (5, 2, 4, 4), [1, 1], [(1, 0), (1, 0)], [1, 1], [2, 2], 1, 1),
        ((4, 2, 7, 7), (6, 2, 5, 5), [1, 1], [(0, 0), (0, 0)], [1, 1], [1, 1], 1, 2),
        ((3, 2, 9), (5, 2, 7), [2], [(1, 1)], [1], [1], 1, 1),
    ]
    for shape, window, *rest in (*plain, *input_gradients, *weight_gradients):
        for name in (*FLOATS, "i32", "i64"):
            arrays = [draw(name, shape, 1), draw(name, window, 2)]
            run(lambda b, x, w, r=rest: b.convolution(x, w, *r), arrays)


def _windows() -> list[tuple[tuple[int, ...], list[list[int]], list[tuple[int, int]], list[list[int]]]]:
    """Shape, (window, strides), padding, (base dilation, window dilation)."""
    return [
        ((2, 3, 8, 8), [[1, 1, 2, 2], [1, 1, 2, 2]], [(0, 0)] * 4, [[1] * 4, [1] * 4]),
        ((2, 3, 8, 7), [[1, 1, 3, 3], [1, 1, 2, 2]], [(0, 0), (0, 0), (1, 1), (1, 1)], [[1] * 4, [1] * 4]),
        ((2, 3, 8, 8), [[1, 1, 3, 2], [1, 1, 1, 1]], [(0, 0), (0, 0), (1, 0), (0, 2)], [[1] * 4, [1] * 4]),
        ((2, 3, 8, 8), [[1, 1, 3, 2], [1, 1, 2, 1]], [(0, 0)] * 4, [[1] * 4, [1, 1, 2, 3]]),
        ((5, 6), [[2, 3], [2, 1]], [(1, 1), (0, 1)], [[2, 1], [1, 2]]),
        ((7,), [[3], [2]], [(1, 0)], [[1], [1]]),
        ((2,), [[3], [1]], [(0, 0)], [[1], [1]]),
    ]


def _reduce_window() -> None:
    for kind in ("sum", "max", "min", "prod", "and", "or"):
        names: Sequence[str] = ("i32", "i1") if kind in ("and", "or") else (*FLOATS, "i32", "i64")
        for name in names:
            for shape, (window, strides), padding, (base, dilation) in _windows():
                x = draw(name, shape, 1, positive=kind == "prod")
                run(
                    lambda b, x, k=kind, a=(window, strides, padding, base, dilation): b.reduce_window(
                        x, k, *a
                    ),
                    [x],
                )


def _select_and_scatter() -> None:
    for name in (*FLOATS, "i32"):
        for shape, (window, strides), padding, (base, dilation) in _windows():
            if any(g != 1 for g in base):
                continue
            x = draw(name, shape, 1)
            pooled = run(
                lambda b, x, a=(window, strides, padding, base, dilation): b.reduce_window(x, "max", *a), [x]
            )
            source = draw(name, types.shape_of(pooled[0].results[0]), 2)
            run(
                lambda b, x, s, a=(window, strides, padding, dilation): b.select_and_scatter(x, s, *a),
                [x, source],
            )
    # Ties go to the first; a window of the lowest value still chooses a real element.
    tied = np.array([1, 1, 0, -np.inf, -np.inf, -np.inf], np.float32)
    run(lambda b, x, s: b.select_and_scatter(x, s, [2], [2]), [tied, np.array([1, 2, 4], np.float32)])
    run(
        lambda b, x, s: b.select_and_scatter(x, s, [3], [3], [(1, 2)]),
        [tied, np.array([1, 2, 4], np.float32)],
    )


def _numbers(
    offset: Sequence[int],
    collapsed: Sequence[int],
    index_map: Sequence[int],
    vector_dim: int,
    sizes: Sequence[int],
    batching: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> dict[str, object]:
    """Dimension numbers of a gather."""
    return {
        "offset_dims": offset,
        "collapsed_slice_dims": collapsed,
        "operand_batching_dims": batching[0],
        "start_indices_batching_dims": batching[1],
        "start_index_map": index_map,
        "index_vector_dim": vector_dim,
        "slice_sizes": sizes,
    }


# operand shape, indices shape, dimension numbers of the gather
GATHERS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = [
    # slices at scalar indices: take along 0, then along 1
    ((6, 4), (3, 2), _numbers([2], [0], [0], 2, [1, 4])),
    ((6, 4), (3, 1), _numbers([1], [0], [0], 1, [1, 4])),
    ((4, 6, 2), (3,), _numbers([0, 2], [1], [1], 1, [4, 1, 2])),
    ((4, 6, 2), (3, 5), _numbers([1, 3], [1], [1], 2, [4, 1, 2])),
    # the looked-up dimension stays in the result
    ((6, 4), (3,), _numbers([1, 2], [], [0], 1, [1, 4])),
    # vectors of two components, slices of several elements
    ((6, 5, 3), (4, 2), _numbers([1, 2], [1], [1, 0], 1, [2, 1, 3])),
    ((6, 5), (2, 4), _numbers([0], [0], [0, 1], 0, [1, 3])),
    ((6, 5), (2,), _numbers([0, 1], [], [0, 1], 0, [2, 2])),
    # batching dimensions: all but one (along), in order and out of order, and only some
    ((3, 6), (3, 4), _numbers([], [1], [1], 2, [1, 1], ([0], [0]))),
    ((3, 6, 2), (2, 4, 3), _numbers([], [1], [1], 3, [1, 1, 1], ([0, 2], [2, 0]))),
    ((3, 6, 2), (4, 3, 1), _numbers([2], [1], [1], 2, [1, 1, 2], ([0], [1]))),
    # one element
    ((5,), (), _numbers([], [0], [0], 0, [1])),
    ((5,), (1,), _numbers([], [0], [0], 0, [1])),
    # no index at all, and nothing to read
    ((3, 4), (2, 0), _numbers([1, 2], [], [], 1, [3, 2])),
    ((6, 4), (0,), _numbers([1], [0], [0], 1, [1, 4])),
]


def _indices(shape: tuple[int, ...], seed: int, name: str = "int64", high: int = 8) -> np.ndarray:
    """Some outside, some repeated."""
    return np.random.default_rng(seed).integers(-2, high, shape).astype(name)


def _gather() -> None:
    for shape, index_shape, numbers in GATHERS:
        for name, index in (("f32", "int64"), ("i32", "int32"), ("i1", "int64"), ("bf16", "int64")):
            arrays = [draw(name, shape, 1), _indices(index_shape, 2, index)]
            run(lambda b, x, i, n=numbers: b.gather(x, i, **n), arrays, exact=True)
    run(lambda b, x, i: b.take(x, i, 0), [draw("f32", (5, 3), 1), np.array(2)], exact=True)
    run(lambda b, x, i: b.take_along(x, i, 1), [draw("f32", (5, 7), 1), _indices((4, 3), 2)], exact=True)


def _scatter() -> None:
    for shape, index_shape, numbers in GATHERS:
        for kind in ("set", "add", "max", "min", "mul"):
            for name in (*FLOATS, *INTEGERS, *(("i1",) if kind in ("set", "max", "min") else ())):
                x, indices = draw(name, shape, 1), _indices(index_shape, 2)
                gathered = run(lambda b, x, i, n=numbers: b.gather(x, i, **n), [x, indices])
                updates = draw(name, types.shape_of(gathered[0].results[0]), 3)
                run(
                    lambda b, x, i, u, k=kind, n=numbers: _scatter_like(b, x, i, u, k, n),
                    [x, indices, updates],
                )


def _scatter_like(b, x, indices, updates, kind, n) -> object:  # type: ignore[no-untyped-def]
    return b.scatter(
        x,
        indices,
        updates,
        kind,
        update_window_dims=n["offset_dims"],
        inserted_window_dims=n["collapsed_slice_dims"],
        input_batching_dims=n["operand_batching_dims"],
        scatter_indices_batching_dims=n["start_indices_batching_dims"],
        scatter_dims_to_operand_dims=n["start_index_map"],
        index_vector_dim=n["index_vector_dim"],
    )


def _sort() -> None:
    for name in (*FLOATS, *INTEGERS, "i1"):
        for dim in range(2):
            for descending in (False, True):
                arrays = [draw(name, (5, 9), 1), draw("i64", (5, 9), 2), draw("f32", (5, 9), 3)]
                run(lambda b, *xs, d=dim, r=descending: b.sort(xs, d, r), arrays, exact=True)
                run(lambda b, x, d=dim, r=descending: b.sort([x], d, r), arrays[:1], exact=True)
    nan = np.array([1, np.nan, -np.inf, np.nan, 0], np.float32)
    for descending in (False, True):
        run(lambda b, x, i, r=descending: b.sort([x, i], 0, r), [nan, np.arange(5)], exact=True)


def _top_k() -> None:
    for name in (*FLOATS, *INTEGERS):
        for k in (0, 1, 4, 9):
            run(lambda b, x, k=k: b.top_k(x, k), [draw(name, (3, 9), 1)], exact=True)


def _composite() -> None:
    def swap(b, x, y):  # type: ignore[no-untyped-def]
        return b.composite("swap", [x, y], None, lambda i, p, q: (i.add(q, q), i.mul(p, i.exp(p))))

    run(swap, [draw("f32", (3, 4), 1), draw("f32", (2,), 2)])
    run(lambda b, x: b.composite("one", [x], None, lambda i, p: (i.tanh(p),)), [draw("f32", (3, 4), 1)])


CASES: dict[str, Callable[[], None]] = {
    "hlo.convolution": _convolution,
    "hlo.reduce_window": _reduce_window,
    "hlo.select_and_scatter": _select_and_scatter,
    "hlo.gather": _gather,
    "hlo.scatter": _scatter,
    "hlo.sort": _sort,
    "hlo.top_k": _top_k,
    "hlo.composite": _composite,
}
