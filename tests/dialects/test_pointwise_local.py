"""Elementwise ops, constants, counters and random numbers on every device equal the global op."""

import numpy as np
import pytest
from hloprog import build
from localcheck import check_local
from xdsl.ir import SSAValue

from rhino.dialects.builder import Builder
from rhino.ir import types
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh

RNG = np.random.default_rng(0)


def integers(shape, dtype=np.float64):
    return RNG.integers(-3, 4, shape).astype(dtype)


def booleans(shape):
    return RNG.integers(0, 2, shape).astype(np.bool_)


@pytest.mark.parametrize("name", ["negate", "abs", "sign", "exp", "floor", "logistic"])
def test_unary(name):
    assert check_local(lambda b, x: getattr(b, name)(x), [integers((4, 6))], limit=12) > 10


@pytest.mark.parametrize("name", ["add", "sub", "mul", "maximum", "minimum", "atan2"])
def test_binary(name):
    x, y = integers((4, 6)), integers((4, 6))
    assert check_local(lambda b, x, y: getattr(b, name)(x, y), [x, y], limit=24) > 20


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
@pytest.mark.parametrize("make", [booleans, lambda shape: integers(shape, np.int32)], ids=["i1", "i32"])
def test_bitwise(name, make):
    x, y = make((4, 6)), make((4, 6))
    assert check_local(lambda b, x, y: getattr(b, name)(x, y), [x, y], limit=24) > 20


def test_division_by_powers_of_two():
    x, y = integers((4, 6)), 2.0 ** integers((4, 6))
    assert check_local(lambda b, x, y: b.div(x, y), [x, y], limit=24) > 20
    x, y = integers((4, 6), np.int32), integers((4, 6), np.int32)
    assert check_local(lambda b, x, y: b.div(x, y), [x, y], limit=24) > 10


def test_compare_select_convert():
    x, y, p = integers((4, 6)), integers((4, 6)), booleans((4, 6))
    check_local(lambda b, x, y: b.compare(x, y, "le"), [x, y], limit=24)
    check_local(lambda b, p, x, y: b.select(p, x, y), [p, x, y], limit=40)
    check_local(lambda b, p, x, y: b.select(p, x, y), [np.array(True), x, y], limit=40)
    check_local(lambda b, x: b.convert(x, types.F64), [x.astype(np.float32)], limit=24)
    check_local(lambda b, x: b.convert(x, types.F32), [x], limit=24)
    check_local(lambda b, x: b.convert(x, types.I64), [integers((4, 6), np.int8)], limit=24)


@pytest.mark.parametrize("wide, passes", [(types.I8, True), (types.I32, False)])
def test_partial_integer_sums_wrap_before_they_are_widened(wide, passes):
    # 100 + 100 wraps to -56; widened first, the parts would add up to 200.
    module = build(lambda b, x: b.convert(x, wide), [types.tensor((4,), types.I8)])
    rule = next(op for op in module.walk() if op.name == "hlo.convert").rule()
    (atom,) = Mesh.parse("2").atoms
    partial = Layout.replicated(1).with_partial(atom, "sum")
    assert isinstance(rule.forward([partial]), str) is not passes


@pytest.mark.parametrize("shape, dim", [((24,), 0), ((12, 4), 0), ((4, 12), 1), ((2, 12, 2), 1)])
@pytest.mark.parametrize("element", [types.I64, types.I32, types.F32])
def test_iota_inserts_every_digit(shape, dim, element):
    assert check_local(lambda b: b.iota(types.tensor(shape, element), dim), [], limit=60) > 20


def test_splat_constants_take_any_layout():
    assert check_local(lambda b: b.full((4, 6, 2), types.F32, 2.5), [], limit=40) > 20


def test_random_numbers_do_not_depend_on_the_layout():
    def program(b: Builder, seed: SSAValue, index: SSAValue) -> SSAValue:
        return b.random_uniform(seed, index, types.F32)

    index = np.arange(48).reshape(8, 6)
    assert check_local(program, [np.array(7), index], limit=40) > 10
