"""Map, reductions, sort and scatter with any body: against JAX and plain loops, on every device, in text."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hloprog import build, normal, run, run1, type_like, vjp
from localcheck import check_local

from rhino.dialects.text import parse_module, print_module
from rhino.ir import types
from rhino.ir.errors import ProgramError, UnsupportedError


@pytest.fixture(autouse=True, scope="module")
def double():
    with jax.enable_x64(True):
        yield


RNG = np.random.default_rng(0)


def numbers(*shape, low=-4, high=5, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def softplus(c, a, b):
    """Three elementwise ops and a constant."""
    return [c.mul(c.log1p(c.exp(c.add(a, c.full((), types.F64, 0.5)))), b), c.compare(a, b, "lt")]


def test_map():
    x, y = normal(3, 4), normal(3, 4, seed=1)

    def reference(x, y):
        return jnp.log1p(jnp.exp(x + 0.5)) * y

    want, back = jax.vjp(reference, x, y)
    z, p = run(lambda b, x, y: b.map([x, y], softplus), x, y)
    np.testing.assert_allclose(z, want, rtol=1e-12)
    np.testing.assert_array_equal(p, x < y)
    for got, expected in zip(
        vjp(lambda b, x, y: b.map([x, y], softplus), [x, y], [x, None]), back(x), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


def collatz(c, n):
    """A loop in the body: it cannot run on all elements at once."""
    one = c.full((), types.I64, 1)

    def cond(d, n, k):
        return [d.compare(n, d.full((), types.I64, 1), "gt")]

    def turn(d, n, k):
        two, three, one = (d.full((), types.I64, v) for v in (2, 3, 1))
        odd = d.compare(d.rem(n, two), one, "eq")
        return [d.select(odd, d.add(d.mul(n, three), one), d.div(n, two)), d.add(k, one)]

    return [c.while_([n, c.sub(one, one)], [], cond, turn)[1]]


def test_map_with_a_loop_inside():
    x = np.arange(1, 13).reshape(3, 4)

    def steps(n):
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    np.testing.assert_array_equal(run1(lambda b, x: b.map([x], collatz), x), np.vectorize(steps)(x))


def first_max(c, a, i, b, j):
    """What JAX's argmax lowers to: the value and the index of the first largest."""
    greater, equal = c.compare(a, b, "gt"), c.compare(a, b, "eq")
    earlier = c.and_(equal, c.compare(i, j, "lt"))
    take = c.or_(greater, earlier)
    return [c.select(take, a, b), c.select(take, i, j)]


@pytest.mark.parametrize(
    "shape, dims", [((3, 5), [1]), ((3, 5), [0]), ((4, 3, 5), [0, 2]), ((2, 300), [1]), ((7,), [0])]
)
def test_reduce_of_two_tensors(shape, dims):
    x = numbers(*shape)
    index = np.arange(x.size).reshape(shape)

    def program(b, x, i):
        initial = [b.full((), types.F64, -np.inf), b.full((), types.I64, 10**6)]
        return b.generic_reduce([x, i], initial, dims, first_max)

    value, where = run(program, x, index)
    np.testing.assert_array_equal(value, x.max(axis=tuple(dims)))
    flat = np.where(x == x.max(axis=tuple(dims), keepdims=True), index, 10**6)
    np.testing.assert_array_equal(where, flat.min(axis=tuple(dims)))


def affine(c, a, b, x, y):
    """Composition of x -> ax + b: associative, not commutative."""
    return [c.mul(a, x), c.add(c.mul(b, x), y)]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 128, 129, 200, 257])
def test_reduce_keeps_the_order(count):
    a, b = numbers(2, count, low=-3, high=4, dtype=np.int64), numbers(2, count, dtype=np.int64, seed=1)

    def program(c, a, b):
        return c.generic_reduce([a, b], [c.full((), types.I64, 1), c.full((), types.I64, 0)], [1], affine)

    with np.errstate(over="ignore"):
        want = [np.ones(2, np.int64), np.zeros(2, np.int64)]
        for i in range(count):
            want = [want[0] * a[:, i], want[1] * a[:, i] + b[:, i]]
    for got, expected in zip(run(program, a, b), want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "window, strides, padding, base, dilation",
    [
        ((2, 2), (1, 2), [(0, 0), (1, 1)], (1, 1), (1, 1)),
        ((3, 1), (2, 1), [(1, 2), (0, 0)], (2, 1), (1, 1)),
        ((2, 3), (1, 1), [(0, 1), (2, 0)], (1, 2), (2, 1)),
    ],
)
def test_reduce_window(window, strides, padding, base, dilation):
    x = normal(5, 6)

    def program(b, x):
        def body(c, a, v):
            return [c.maximum(a, c.mul(v, v))]

        return b.generic_reduce_window(
            [x], [b.full((), types.F64, 0.25)], window, strides, padding, body, base, dilation
        )

    # The body squares the right side only, so the padding counts as 1/16.
    want = jax.lax.reduce_window(x * x, 0.0625, jax.lax.max, window, strides, padding, base, dilation)
    np.testing.assert_allclose(run1(program, x), np.maximum(want, 0.25))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 17, 64, 100])
@pytest.mark.parametrize("dim", [0, 1])
def test_sort_by_two_keys(n, dim):
    shape = (n, 3) if dim == 0 else (3, n)
    x, y = numbers(*shape, low=0, high=3), numbers(*shape, low=0, high=3, dtype=np.int32, seed=1)
    tag = np.arange(x.size).reshape(shape)

    def body(c, x, x2, y, y2, t, t2):
        equal = c.compare(x, x2, "eq")
        return [c.select(equal, c.compare(y, y2, "gt"), c.compare(x, x2, "lt"))]

    got = run(lambda b, *xs: b.generic_sort(xs, dim, body), x, y, tag)
    want = jax.lax.sort((x, -y, tag), dimension=dim, is_stable=True, num_keys=2)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], -np.asarray(want[1]))
    np.testing.assert_array_equal(got[2], want[2])


def test_sort_by_total_order_and_its_gradient():
    x = np.array([1.5, -0.0, np.nan, 0.0, -np.inf, -1.0, np.copysign(np.nan, -1.0)])
    got = run1(lambda b, x: b.generic_sort([x], 0, lambda c, a, z: [c.compare_total(a, z, "lt")]), x)
    assert np.isnan(got[0]) and np.isnan(got[-1])
    np.testing.assert_array_equal(got[1:-1], [-np.inf, -1.0, -0.0, 0.0, 1.5])
    np.testing.assert_array_equal(np.signbit(got[3:5]), [True, False])
    y = normal(4, 6)
    dy = normal(4, 6, seed=1)
    (dx,) = vjp(lambda b, x: b.generic_sort([x], 1, lambda c, a, z: [c.compare(a, z, "gt")]), [y], [dy])
    want = np.empty_like(dy)
    np.put_along_axis(want, np.argsort(-y, axis=1, kind="stable"), dy, 1)
    np.testing.assert_array_equal(dx, want)


def scatter_rows(b, x, y, i, u, v):
    def body(c, a, b_, p, q):
        return [c.sub(c.mul(a, c.full((), types.F64, 2)), p), c.maximum(b_, q)]

    return b.generic_scatter(
        [x, y],
        i,
        [u, v],
        body,
        update_window_dims=[1],
        inserted_window_dims=[0],
        scatter_dims_to_operand_dims=[0],
        index_vector_dim=1,
    )


def test_scatter_of_two_tensors():
    x, y = numbers(4, 3), numbers(4, 3, seed=1)
    u, v = numbers(6, 3, seed=2), numbers(6, 3, seed=3)
    i = np.array([1, 3, 1, 9, -1, 1])
    want_x, want_y = x.copy(), y.copy()
    for row, at in enumerate(i):
        if 0 <= at < 4:
            want_x[at] = want_x[at] * 2 - u[row]
            want_y[at] = np.maximum(want_y[at], v[row])
    got = run(scatter_rows, x, y, i, u, v)
    np.testing.assert_array_equal(got[0], want_x)
    np.testing.assert_array_equal(got[1], want_y)


@pytest.mark.parametrize("padding", [[(0, 0), (0, 0)], [(1, 0), (1, 1)]])
def test_select_and_scatter(padding):
    """Against the compact op, by ge and add, and against a loop, by le and another body."""
    x = numbers(4, 6)
    shape = run1(lambda b, x: b.reduce_window(x, "max", (2, 3), (2, 2), padding), x).shape
    s = numbers(*shape, seed=1)

    def program(select, scatter, start):
        def build_it(b, x, s):
            initial = b.full((), types.F64, start)
            return b.generic_select_and_scatter(x, s, initial, (2, 3), (2, 2), padding, select, scatter)

        return build_it

    add = program(lambda c, a, z: [c.compare(a, z, "ge")], lambda c, a, z: [c.add(a, z)], 0.0)
    compact = run1(lambda b, x, s: b.select_and_scatter(x, s, (2, 3), (2, 2), padding), x, s)
    np.testing.assert_array_equal(run1(add, x, s), compact)
    other = program(lambda c, a, z: [c.compare(a, z, "lt")], lambda c, a, z: [c.sub(a, z)], 7.0)
    want = np.full(x.shape, 7.0)
    for (p, q), value in np.ndenumerate(s):
        best = None
        for di in range(2):
            for dj in range(3):
                at = (2 * p + di - padding[0][0], 2 * q + dj - padding[1][0])
                inside = 0 <= at[0] < 4 and 0 <= at[1] < 6
                if inside and (best is None or not x[best] < x[at]):
                    best = at
        if best is not None:
            want[best] -= value
    np.testing.assert_array_equal(run1(other, x, s), want)


def test_on_every_device():
    x, y = numbers(4, 6), numbers(4, 6, seed=1)
    check_local(
        lambda b, x, y: b.map([x, y], lambda c, a, z: [c.maximum(a, z), c.add(a, z)]), [x, y], limit=12
    )
    index = np.arange(24).reshape(4, 6)
    low, none = np.array(-9.0), np.array(99)
    check_local(lambda b, *v: b.generic_reduce(v[:2], v[2:], [1], first_max), [x, index, low, none], limit=20)
    check_local(
        lambda b, x, v: b.generic_reduce_window(
            [x], [v], (1, 2), (1, 2), None, lambda c, a, z: [c.add(a, z)]
        ),
        [x, np.array(0.0)],
        limit=20,
    )
    check_local(
        lambda b, x, y: b.generic_sort([x, y], 1, lambda c, a, z, m, n: [c.compare(m, n, "lt")]),
        [x, y],
        limit=12,
    )
    i = np.array([1, 3, 1, 9, -1, 1])
    u, v = numbers(6, 6, seed=2), numbers(6, 6, seed=3)
    assert check_local(scatter_rows, [x, y, i, u, v], limit=40) > 40

    def select(b, x, s, v):
        return b.generic_select_and_scatter(
            x,
            s,
            v,
            (1, 2),
            (1, 2),
            None,
            lambda c, a, z: [c.compare(a, z, "ge")],
            lambda c, a, z: [c.add(a, z)],
        )

    check_local(select, [x, numbers(4, 3), np.array(0.0)], limit=20)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.complex64])
def test_text_and_other_types(dtype):
    x = np.abs(numbers(3, 4)).astype(dtype)

    def program(b, x):
        initial = b.full((), types.from_numpy(np.dtype(dtype)), 1)
        return b.generic_reduce([x], [initial], [0], lambda c, a, z: [c.add(c.mul(a, z), a)])

    module = build(program, [type_like(x)])
    text = print_module(module)
    assert "hlo.generic_reduce(" in text and "dims = array<i64: 0>" in text
    assert print_module(parse_module(text)) == text
    want = np.ones(4, dtype)
    for row in x:
        want = want * row + want
    np.testing.assert_array_equal(run1(program, x), want)


def test_errors():
    x = normal(3, 4)
    for program, words in [
        (lambda b, x: b.map([x, b.reshape(x, (4, 3))], lambda c, a, z: [a]), "operand 1 is f64.4, 3."),
        (lambda b, x: b.map([x], lambda c, a: [c.broadcast_in_dim(a, (2,), ())]), "must yield scalars"),
        (lambda b, x: b.generic_reduce([x], [x], [0], lambda c, a, z: [a]), "the initial value"),
        (
            lambda b, x: b.generic_reduce([x], [b.full((), types.F64, 0)], [0], lambda c, a, z: [a, z]),
            "body must",
        ),
        (lambda b, x: b.generic_sort([x], 0, lambda c, a, z: [a]), "must yield one i1"),
        (lambda b, x: b.generic_sort([x], 5, lambda c, a, z: [c.compare(a, z, "lt")]), "dimension 5"),
    ]:
        with pytest.raises(ProgramError, match=words):
            run(program, x)
    with pytest.raises(UnsupportedError, match="derivative"):
        vjp(
            lambda b, x: b.generic_reduce(
                [x], [b.full((), types.F64, 0)], [0], lambda c, a, z: [c.add(a, z)]
            ),
            [x],
            [x[0]],
        )
