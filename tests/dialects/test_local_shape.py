"""Rules and local forms of the shape and reducing ops and of dot."""

from __future__ import annotations

import numpy as np
import pytest
from hloprog import whole
from localcheck import check_local

SCALARS = (np.array(1), np.array(2))

CASES = {
    "broadcast": (lambda b, x: b.broadcast_in_dim(x, (4, 6, 2), (1, 2)), [whole(6, 1)]),
    "broadcast, dims out of order": (lambda b, x: b.broadcast_in_dim(x, (4, 6), (1, 0)), [whole(6, 4)]),
    "broadcast a scalar": (lambda b, x: b.broadcast_to(x, (4, 3)), [whole()]),
    "reshape, merge": (lambda b, x: b.reshape(x, (24,)), [whole(4, 6)]),
    "reshape, split": (lambda b, x: b.reshape(x, (2, 4, 3)), [whole(8, 3)]),
    "reshape, regroup": (lambda b, x: b.reshape(x, (3, 8)), [whole(6, 4)]),
    "transpose": (lambda b, x: b.transpose(x, (2, 0, 1)), [whole(4, 3, 2)]),
    "slice, periods": (lambda b, x: b.slice(x, (4, 0), (8, 6)), [whole(12, 6)]),
    "slice, strides": (lambda b, x: b.slice(x, (1, 0), (12, 6), (3, 2)), [whole(12, 6)]),
    "slice, offset": (lambda b, x: b.slice(x, (8,), (23,), (2,)), [whole(24)]),
    "pad, periods": (lambda b, x: b.pad(x, 0, (4, 0), (8, 0)), [whole(4, 6)]),
    "pad, value": (lambda b, x: b.pad(x, 7, (4, 0), (0, 1)), [whole(4, 6)]),
    "pad, interior": (lambda b, x: b.pad(x, 0, (1,), (0,), (1,)), [whole(8)]),
    "pad, more interior": (lambda b, x: b.pad(x, 1, (6,), (2,), (2,)), [whole(4)]),
    "pad, crop": (lambda b, x: b.pad(x, 0, (-4,), (4,)), [whole(12)]),
    "concatenate": (lambda b, x, y: b.concatenate((x, y), 0), [whole(4, 6), whole(8, 6, seed=1)]),
    "concatenate one twice": (lambda b, x: b.concatenate((x, x), 1), [whole(2, 6)]),
    "reverse": (lambda b, x: b.reverse(x, (0,)), [whole(4, 6)]),
    "dynamic_slice": (lambda b, x, i, j: b.dynamic_slice(x, (i, j), (2, 6)), [whole(4, 6), *SCALARS]),
    "dynamic_update_slice": (
        lambda b, x, u, i, j: b.dynamic_update_slice(x, u, (i, j)),
        [whole(4, 6), whole(2, 6, seed=1), *SCALARS],
    ),
    "reduce sum": (lambda b, x: b.reduce(x, (1,), "sum"), [whole(4, 6, 2)]),
    "reduce max": (lambda b, x: b.reduce(x, (0, 2), "max"), [whole(4, 6, 2)]),
    "reduce prod": (lambda b, x: b.reduce(x, (0,), "prod"), [whole(4, 6)]),
    "reduce and": (lambda b, x: b.reduce(x, (0,), "and"), [whole(4, 6, low=-1, high=1, dtype=np.int32)]),
    "reduce or": (lambda b, x: b.reduce(x, (0,), "or"), [whole(4, 6, low=0, high=2, dtype=np.bool_)]),
    "argmax": (lambda b, x: b.argmax(x, 1), [whole(4, 6)]),
    "cumulative": (lambda b, x: b.cumulative(x, 1, "sum"), [whole(4, 6)]),
    "cumulative max": (lambda b, x: b.cumulative(x, 0, "max", True), [whole(4, 6)]),
    "sort": (lambda b, x, y: b.sort((x, y), 1)[0], [whole(4, 6), whole(4, 6, seed=1)]),
    "top_k": (lambda b, x: b.top_k(x, 2)[0], [whole(4, 6)]),
    "dot": (
        lambda b, x, y: b.dot_general(x, y, ((0,), (1,)), ((2,), (0,))),
        [whole(4, 3, 6), whole(6, 4, 2, seed=1)],
    ),
    "dot, two contracted": (
        lambda b, x, y: b.dot_general(x, y, contract=((0, 1), (1, 0))),
        [whole(4, 6), whole(6, 4)],
    ),
    "outer": (lambda b, x, y: b.dot_general(x, y), [whole(4), whole(6)]),
}


@pytest.mark.parametrize("name", CASES)
def test_every_placement(name):
    program, arrays = CASES[name]
    assert check_local(program, arrays) > 3
