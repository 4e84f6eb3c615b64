"""Loops and branches: values, text, gradients against JAX, rules, every device, the whole pipeline."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hloprog import build, execute, normal, run, run1, type_like, vjp
from localcheck import check_local

from rhino.dialects.hlo.control import WhileOp
from rhino.dialects.hlo.trips import trip_count
from rhino.dialects.signature import Slot, main_of, set_arguments, set_results
from rhino.dialects.text import parse_module, print_module
from rhino.ir import types
from rhino.ir.errors import ProgramError, UnsupportedError
from rhino.ir.evaluate import run_module
from rhino.passes.autodiff import differentiate
from rhino.passes.place import PlacePass
from rhino.passes.spmd import spmd
from rhino.runtime.executor import compile_function
from rhino.runtime.tensors import to_numpy, to_torch
from rhino.runtime.torch_ops import Context


@pytest.fixture(autouse=True, scope="module")
def double():
    with jax.enable_x64(True):
        yield


def counted(turns, body, *, step=1, direction="lt", start=0):
    """``for k in range(...): carried = body(b, k, carried, fixed)`` as a builder program on (carried, fixed)."""

    def program(b, carried, fixed):
        n = len(carried)

        def cond(c, k, *values):
            return [c.compare(k, c.full((), types.I64, turns), direction)]

        def turn(c, k, *values):
            return [c.add(k, c.full((), types.I64, step)), *body(c, k, values[:n], values[n:])]

        return b.while_([b.full((), types.I64, start), *carried], fixed, cond, turn)[1:]

    return program


def powers(b, x, w):
    """x_{k+1} = tanh(x_k w) + k, five times."""

    def body(c, k, carried, fixed):
        (a,) = carried
        h = c.tanh(c.matmul(a, fixed[0]))
        return [c.add(h, c.broadcast_in_dim(c.convert(k, types.F64), (3, 4), ()))]

    return counted(5, body)(b, [x], [w])


def test_while_values_and_gradient():
    x, w = normal(3, 4), normal(4, 4, seed=1) * 0.5

    def reference(x, w):
        return jax.lax.fori_loop(0, 5, lambda k, a: jnp.tanh(a @ w) + k, x)

    want, back = jax.vjp(reference, x, w)
    np.testing.assert_allclose(run1(powers, x, w), want, rtol=1e-12)
    dy = normal(3, 4, seed=2)
    for got, expected in zip(vjp(powers, [x, w], [dy]), back(dy), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


def test_scan_that_slices_and_stacks():
    """What `jax.lax.scan` becomes: inputs read and outputs written at the counter."""
    xs, w = normal(6, 3), normal(3)

    def program(b, xs, w):
        def body(c, k, carried, fixed):
            total, out = carried
            zero = c.full((), types.I64, 0)
            x = c.reshape(c.dynamic_slice(fixed[0], [k, zero], (1, 3)), (3,))
            total = c.sin(c.add(total, c.mul(x, fixed[1])))
            return [total, c.dynamic_update_slice(out, c.reshape(total, (1, 3)), [k, zero])]

        start = [b.full((3,), types.F64, 0.1), b.full((6, 3), types.F64, 0)]
        return counted(6, body)(b, start, [xs, w])

    def reference(xs, w):
        def step(total, x):
            total = jnp.sin(total + x * w)
            return total, total

        return jax.lax.scan(step, jnp.full(3, 0.1), xs)

    want, back = jax.vjp(reference, xs, w)
    got = run(program, xs, w)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    cotangents = (normal(3, seed=3), normal(6, 3, seed=4))
    for a, b in zip(vjp(program, [xs, w], cotangents), back(cotangents), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_second_derivative_through_a_loop():
    def cube(b, x):
        return counted(2, lambda c, k, carried, fixed: [c.mul(carried[0], fixed[0])])(b, [x], [x])[0]

    def grad(b, x):
        y = cube(b, x)
        (dx, *_rest) = [g for g in y.owner.derivative(b, [None, b.full_like(x, 1)]) if g is not None]
        return b.add(dx, _rest[0])

    x = normal(4)
    np.testing.assert_allclose(run1(cube, x), x**3)
    np.testing.assert_allclose(run1(grad, x), 3 * x**2)
    (second,) = vjp(grad, [x], [np.ones(4)])
    np.testing.assert_allclose(second, 6 * x)


@pytest.mark.parametrize(
    "turns, step, direction, start, want",
    [(5, 1, "lt", 0, 5), (5, 2, "le", 0, 3), (-3, -1, "gt", 0, 3), (0, 1, "lt", 4, 0), (7, 1, "ne", 0, 7)],
)
def test_trip_counts(turns, step, direction, start, want):
    loop = counted(
        turns, lambda c, k, carried, fixed: [c.exp(carried[0])], step=step, direction=direction, start=start
    )
    module = build(lambda b, x: loop(b, [x], []), [types.tensor((2,), types.F64)])
    (op,) = [o for o in module.walk() if isinstance(o, WhileOp)]
    assert trip_count(op) == want
    x = np.full(2, -1.0)
    expected = x
    for _ in range(want):
        expected = np.exp(expected)
    np.testing.assert_array_equal(execute(module, x)[0], expected)


def test_bounds_from_outside():
    """The bound is a constant that comes in as a fixed operand, or one that the loop carries along."""

    def program(b, x, carry):
        end, zero = b.full((), types.I32, 4), b.full((), types.I32, 0)

        def cond(c, k, *values):
            return [c.compare(k, values[0] if carry else values[1], "lt")]

        def turn(c, k, *values):
            y = c.sin(values[1 if carry else 0])
            return [c.add(k, c.full((), types.I32, 1)), *([values[0], y] if carry else [y])]

        initial = [zero, end, x] if carry else [zero, x]
        return b.while_(initial, [] if carry else [end], cond, turn)[-1]

    x = normal(3)
    for carry in (False, True):
        want, back = jax.vjp(lambda x: jnp.sin(jnp.sin(jnp.sin(jnp.sin(x)))), x)
        np.testing.assert_allclose(run1(lambda b, x, c=carry: program(b, x, c), x), want)
        (got,) = vjp(lambda b, x, c=carry: program(b, x, c), [x], [np.ones(3)])
        np.testing.assert_allclose(got, back(np.ones(3))[0])


def until_small(b, x):
    """Halve until the sum is below one: nobody can tell how often."""

    def cond(c, y):
        return [c.compare(c.reduce(y, [0, 1], "sum"), c.full((), types.F64, 1.0), "gt")]

    return b.while_([x], [], cond, lambda c, y: [c.mul(y, c.full_like(y, 0.5))])[0]


def test_a_loop_that_looks_at_data():
    x = np.abs(normal(2, 3)) * 10
    want = x
    while want.sum() > 1:
        want = want * 0.5
    np.testing.assert_array_equal(run1(until_small, x), want)
    with pytest.raises(UnsupportedError, match="number of turns"):
        vjp(until_small, [x], [x])


def two_ways(b, p, x, y):
    return b.if_(
        p,
        [x, y],
        lambda c, x, y: [c.mul(x, y), c.exp(x)],
        lambda c, x, y: [c.sin(y), y],
    )


@pytest.mark.parametrize("p", [True, False])
def test_if(p):
    x, y, chosen = normal(3, 2), normal(3, 2, seed=1), np.array(p)
    reference = (lambda x, y: (x * y, jnp.exp(x))) if p else (lambda x, y: (jnp.sin(y), y))
    want, back = jax.vjp(reference, x, y)
    for a, b in zip(run(two_ways, chosen, x, y), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    cotangents = [normal(3, 2, seed=5), normal(3, 2, seed=6)]
    for got, expected in zip(
        vjp(two_ways, [chosen, x, y], cotangents)[1:], back(tuple(cotangents)), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-12)
    _, dx, dy = vjp(two_ways, [chosen, x, y], [None, cotangents[1]])
    for got, expected in zip((dx, dy), back((np.zeros((3, 2)), cotangents[1])), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("index, branch", [(0, 0), (1, 1), (2, 2), (3, 2), (-1, 2)])
def test_case(index, branch):
    def program(b, i, x):
        branches = [lambda c, x: [c.negate(x)], lambda c, x: [c.exp(x)], lambda c, x: [c.mul(x, x)]]
        return b.case(i, [x], branches)[0]

    x, functions = normal(4), [jnp.negative, jnp.exp, jnp.square]
    want, back = jax.vjp(functions[branch], x)
    np.testing.assert_allclose(run1(program, np.int32(index), x), want)
    _, dx = vjp(program, [np.int32(index), x], [np.ones(4)])
    np.testing.assert_allclose(dx, back(np.ones(4))[0])


def test_text():
    module = build(powers, [types.tensor((3, 4), types.F64), types.tensor((4, 4), types.F64)])
    text = print_module(module)
    assert "= hlo.while(" in text and "hlo.yield" in text
    assert print_module(parse_module(text)) == text
    generic = print_module(module, generic=True)
    assert print_module(parse_module(generic)) == text


SOURCE = """func.func @main(%p: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {{
  %y = hlo.if(%p, %x) : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32> ({{
  ^bb0(%a: {argument}):
    hlo.yield {what}
  }}, {{
  ^bb0(%a: tensor<4xf32>):
    hlo.yield %a : tensor<4xf32>
  }})
  func.return %y : tensor<4xf32>
}}
"""


@pytest.mark.parametrize(
    "argument, what, message",
    [
        ("tensor<4xf32>", "%a : tensor<4xf32>", None),
        ("tensor<3xf32>", "%a : tensor<3xf32>", "takes f32.3. where it must take f32.4."),
        ("tensor<4xf32>", "%a, %a : tensor<4xf32>, tensor<4xf32>", "the false branch yields f32.4."),
        ("tensor<4xf32>", "%x : tensor<4xf32>", "defined out of its IsolatedFromAbove parent"),
    ],
)
def test_what_is_refused(argument, what, message):
    source = SOURCE.format(argument=argument, what=what)
    if message is None:
        parse_module(source)
        return
    with pytest.raises(ProgramError, match=message):
        parse_module(source)


def test_builders_refuse():
    x = normal(2)
    for program, words in [
        (lambda b, x: b.while_([x], [], lambda c, y: [y], lambda c, y: [y]), "the condition yields f64.2."),
        (
            lambda b, x: b.while_(
                [x], [], lambda c, y: [c.full((), types.I1, False)], lambda c, y: [c.reverse(y, (0,)), y]
            ),
            "the body yields",
        ),
        (lambda b, x: b.if_(x, [], lambda c: [], lambda c: []), "the predicate must be"),
        (lambda b, x: b.case(x, [], [lambda c: []]), "the index must be"),
    ]:
        with pytest.raises(ProgramError, match=words):
            run(program, x)


def whole_numbers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float64)


def elementwise_loop(b, x, y):
    def body(c, k, carried, fixed):
        return [c.add(c.mul(carried[0], fixed[0]), c.full_like(carried[0], 1))]

    return counted(3, body)(b, [x], [y])


def row_loop(b, x, w):
    """Rows pass through; columns are contracted."""
    return counted(3, lambda c, k, carried, fixed: [c.matmul(carried[0], fixed[0])])(b, [x], [w])


def loop_with_counters(b, x):
    """The body counts along a dimension: every device must count its own part."""

    def body(c, k, carried, fixed):
        return [c.add(carried[0], c.iota(types.tensor((4, 6), types.F64), 0))]

    return counted(2, body)(b, [x], [])


def rule_of(program, *arrays):
    module = build(program, [type_like(a) for a in arrays])
    (op,) = [o for o in module.body.block.first_op.body.block.ops if o.regions]
    return op.rule()


def free(rule, dims):
    return [rule.kind(d[0]) == "pass" for d in dims]


def test_rules():
    x, w = whole_numbers(4, 6), whole_numbers(6, 6)
    assert free(rule_of(elementwise_loop, x, x), rule_of(elementwise_loop, x, x).results[1]) == [True, True]
    rule = rule_of(row_loop, x, w)
    assert free(rule, rule.results[1]) == [True, False]
    assert free(rule, rule.operands[2]) == [False, False]
    rule = rule_of(until_small, np.abs(x))
    assert free(rule, rule.results[0]) == [False, False]

    def turned(b, x):  # what one turn does to rows the next does to columns
        return counted(2, lambda c, k, carried, fixed: [c.transpose(carried[0], (1, 0))])(b, [x], [])

    rule = rule_of(turned, whole_numbers(4, 4))
    assert free(rule, rule.results[1]) == [False, False]


@pytest.mark.parametrize(
    "program, shapes, least",
    [
        (elementwise_loop, [(4, 6), (4, 6)], 40),
        (row_loop, [(4, 6), (6, 6)], 8),
        (loop_with_counters, [(4, 6)], 30),
    ],
)
def test_loops_on_every_device(program, shapes, least):
    """`check_local` wants the operands of the op to be the program's arguments: the counter is one, too."""
    arrays = [whole_numbers(*s, seed=i) for i, s in enumerate(shapes)]
    module = build(program, [type_like(a) for a in arrays])
    (op,) = [o for o in module.walk() if isinstance(o, WhileOp)]
    kinds = [o.type for o in op.operands]

    def again(b, *operands):
        return b.emit_regions(WhileOp, operands, {}, [r.clone() for r in op.regions])

    assert [types.type_of(o) for o in op.operands] == kinds
    assert check_local(again, [np.array(0), *arrays], limit=30) >= least


def test_branches_on_every_device():
    x, y = whole_numbers(4, 6), whole_numbers(4, 6, seed=1)

    def program(b, p, x, y):
        return b.if_(
            p,
            [x, y],
            lambda c, x, y: [c.mul(x, y), c.add(y, c.iota(types.tensor((4, 6), types.F64), 1))],
            lambda c, x, y: [c.negate(y), y],
        )

    for p in (True, False):
        assert check_local(program, [np.array(p), x, y], limit=30) > 40

    def chosen(b, i, x):
        return b.case(
            i, [x], [lambda c, x: [c.reduce(x, [1], "sum")], lambda c, x: [c.reduce(x, [1], "max")]]
        )

    assert check_local(chosen, [np.int32(1), x], limit=30) >= 8


def test_the_whole_way():
    """A training step with a loop: differentiated, placed by pins, cut, and run by all ranks."""
    x, w = normal(4, 6), normal(6, 6, seed=1) * 0.3

    def program(b, w, x):
        body = counted(3, lambda c, k, carried, fixed: [c.tanh(c.matmul(carried[0], fixed[0]))])
        (y,) = body(b, [x], [w])
        return b.reduce(b.mul(y, y), (0, 1), "sum")

    module = build(program, [type_like(w), type_like(x)])
    func = main_of(module)
    set_arguments(func, [Slot("w", "parameter"), Slot("x", "input")])
    set_results(func, [Slot("loss", "loss")])
    differentiate(module)
    want = run_module(module, [w, x])

    def reference(w):
        y = x
        for _ in range(3):
            y = jnp.tanh(y @ w)
        return (y * y).sum()

    loss, gradient = jax.value_and_grad(reference)(w)
    np.testing.assert_allclose(want[0], loss)
    np.testing.assert_allclose(want[1], gradient, rtol=1e-10)
    text = print_module(module).replace(
        'rhino.role = "input"', 'rhino.role = "input", dist.layout = #dist.layout<[{"dp"}, {}]>'
    )
    placed = parse_module(text)
    PlacePass("dp=2").apply(None, placed)
    spmd(placed)
    text = print_module(placed)
    assert "tensor<2x6xf64>" in text.split("hlo.while")[1]
    got = run_module(parse_module(text), [w, x])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(
    "program, arrays",
    [
        (powers, [normal(3, 4), normal(4, 4)]),
        (until_small, [np.abs(normal(2, 3))]),
        (two_ways, [np.array(True), normal(3, 2), normal(3, 2)]),
        (two_ways, [np.array(False), normal(3, 2), normal(3, 2)]),
    ],
)
def test_on_torch(program, arrays):
    module = build(program, [type_like(a) for a in arrays])
    got = compile_function(main_of(module), Context(torch.device("cpu")))([to_torch(a) for a in arrays])
    for a, b in zip(got, run(program, *arrays), strict=True):
        np.testing.assert_allclose(to_numpy(a), b, rtol=1e-12)
