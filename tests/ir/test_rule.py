"""Rules: what they follow, refuse and admit, and that the rule checker finds wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
from rulecheck import check_rule

from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.reshape import (
    broadcast_rule,
    concat_rule,
    dot_rule,
    pad_rule,
    reduce_rule,
    reshape_rule,
    slice_rule,
    transpose_rule,
)
from rhino.ir.rule import Rule, Split, factors

X, Y = AxisRef("x", 1, 2), AxisRef("y", 1, 2)


def ints(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape)


def digits(*dims: list[Digit]) -> Layout:
    return Layout.make(dims)


R2 = Layout.replicated(2)
ADD = factors("a b, a b -> a b", [(4, 6)] * 2, [(4, 6)], linear=[(0, 1)])
MAX = factors("a b, a b -> a b", [(4, 6)] * 2, [(4, 6)], carries={"max": [(0,), (1,), (0, 1)]})
DOT = factors("m k, k n -> m n", [(4, 6), (6, 2)], [(4, 2)], kinds={"k": "sum"}, linear=[(0,), (1,)])


@pytest.mark.parametrize(
    ("rule", "evaluate", "arrays"),
    [
        (ADD, np.add, [ints(4, 6)] * 2),
        (MAX, np.maximum, [ints(4, 6), ints(4, 6) + 1]),
        (DOT, np.matmul, [ints(4, 6), ints(6, 2)]),
        (dot_rule((4, 6), (6, 2), (), (), (1,), (0,)), np.matmul, [ints(4, 6), ints(6, 2)]),
        (reduce_rule((4, 6), (1,), "max"), lambda x: x.max(1), [ints(4, 6)]),
        (reduce_rule((4, 6), (0, 1), "sum"), np.sum, [ints(4, 6)]),
        (transpose_rule((4, 6, 2), (2, 0, 1)), lambda x: x.transpose(2, 0, 1), [ints(4, 6, 2)]),
        (concat_rule([(4, 6), (4, 12)], 1), lambda *x: np.concatenate(x, 1), [ints(4, 6), ints(4, 12)]),
        (
            factors("a b, a b -> a, a b", [(4, 6)] * 2, [(4,), (4, 6)], kinds={"b": "sum"}),
            lambda x, y: ((x * y).sum(1), x * y),
            [ints(4, 6)] * 2,
        ),
    ],
)
def test_sound_rules_pass(rule: Rule, evaluate: object, arrays: list[np.ndarray]) -> None:
    assert check_rule(rule, evaluate, arrays) == []  # type: ignore[arg-type]


def test_sound_rules_of_ops_with_extents_pass() -> None:
    def to_local_shape(fn: object) -> object:
        return lambda mesh, device, operands, results: lambda x: fn(x, results[0])  # type: ignore[operator]

    shape = (4, 6, 2)
    reshape = to_local_shape(lambda x, a: x.reshape(a.local_shape((12, 4))))
    got = check_rule(reshape_rule(shape, (12, 4)), lambda x: x.reshape(12, 4), [ints(*shape)], reshape)  # type: ignore[arg-type]
    assert got == []
    spread = to_local_shape(lambda x, a: np.broadcast_to(x, a.local_shape((4, 6))))
    got = check_rule(
        broadcast_rule((6,), (4, 6), (1,)), lambda x: np.broadcast_to(x, (4, 6)), [ints(6)], spread
    )  # type: ignore[arg-type]
    assert got == []


@pytest.mark.parametrize(
    ("rule", "evaluate", "arrays", "says"),
    [
        # a contraction declared as if every device had the sum
        (
            factors("m k, k n -> m n", [(4, 6), (6, 2)], [(4, 2)]),
            np.matmul,
            [ints(4, 6), ints(6, 2)],
            "differ",
        ),
        # an op that is not linear
        (
            factors("a k, a k -> a", [(4, 6)] * 2, [(4,)], kinds={"k": "sum"}),
            lambda x, y: x.sum(1) * y.sum(1),
            [ints(4, 6)] * 2,
            "is wrong",
        ),
        (factors("a -> a", [(6,)], [(6,)], linear=[(0,)]), np.abs, [ints(6)], "partial sum"),
        (factors("a -> a", [(6,)], [(6,)], carries={"max": [(0,)]}), np.negative, [ints(6)], "partial max"),
        # a sort along a dimension that may be split
        (factors("a -> a", [(6,)], [(6,)]), np.sort, [np.arange(6)[::-1].copy()], "is wrong"),
        (
            factors("a b -> b a", [(4, 6)], [(6, 4)]),
            lambda x: x.reshape(6, 4),
            [ints(4, 6)],
            "local op fails",
        ),
        (factors("a b -> a b", [(4, 6)], [(4, 6)]), lambda x: x.T, [ints(4, 6)], "rule says shape"),
        (factors("a, a -> a", [(4,)] * 2, [(4,)]), np.abs, [ints(4)], "the rule has 2 operands"),
    ],
)
def test_wrong_rules_are_found(rule: Rule, evaluate: object, arrays: list[np.ndarray], says: str) -> None:
    problems = check_rule(rule, evaluate, arrays)  # type: ignore[arg-type]
    assert any(says in problem for problem in problems), problems


def test_forward() -> None:
    k = digits([], [Digit(X, 6)])
    assert DOT.forward([k, digits([Digit(X, 6)], [])]) == (R2.with_partial(X, "sum"),)
    assert "replicated where another is split" in str(DOT.forward([k, R2]))
    assert "split differently" in str(DOT.forward([k, digits([Digit(X, 2)], [])]))
    assert DOT.forward([R2.with_partial(X, "sum"), R2]) == (R2.with_partial(X, "sum"),)
    assert "may not enter" in str(DOT.forward([R2.with_partial(X, "sum")] * 2))
    assert "may not enter" in str(ADD.forward([R2.with_partial(X, "sum"), R2]))
    assert "different kinds" in str(ADD.forward([R2.with_partial(X, "sum"), R2.with_partial(X, "max")]))
    # A partial sum on one axis and a partial maximum on another have no meaning together.
    both = R2.with_partial(X, "max").with_partial(Y, "max")
    assert MAX.forward([both, both]) == (both,)
    row_max = reduce_rule((4, 6), (1,), "max")
    mixed = digits([], [Digit(X, 6)]).with_partial(Y, "sum")
    assert isinstance(row_max.forward([mixed]), str)


def test_backward() -> None:
    want = digits([Digit(X, 4)], [Digit(Y, 2)])
    assert DOT.backward([want]) == (digits([Digit(X, 4)], []), digits([], [Digit(Y, 2)]))
    both = factors("a b -> a b, a b", [(4, 6)], [(4, 6)] * 2)
    assert both.backward([want, want]) != "results are split differently"
    assert both.backward([digits([Digit(X, 4)], []), R2]) == "results are split differently"
    sort = factors("a b -> a b", [(4, 6)], [(4, 6)], kinds={"b": "whole"})
    assert "must be whole" in str(sort.backward([digits([], [Digit(X, 6)])]))


def test_admits_free_splits_of_new_dimensions_but_not_of_whole_ones() -> None:
    rule = broadcast_rule((6,), (4, 6), (1,))
    assert rule.admits([Layout.replicated(1)], [digits([Digit(X, 4)], [])]) is None
    assert rule.admits([Layout.replicated(1)], [digits([Digit(X, 2)], [])]) is None
    assert rule.admits([Layout.replicated(1)], [digits([], [Digit(X, 6)])]) is not None
    iota = factors("-> a", [], [(4,)], kinds={"a": "whole"})
    assert iota.admits([], [digits([Digit(X, 4)])]) is not None


def test_pad_lets_partials_through_only_where_the_value_allows() -> None:
    a = Layout.replicated(1)
    for value, kinds in [(0, "sum prod max min and or"), (1, "prod max min and or"), (7, "max min and or")]:
        rule = pad_rule((4,), (2,), (2,), value=value)
        for kind in ("sum", "prod", "max", "min", "and", "or"):
            got = rule.forward([a.with_partial(X, kind)])
            assert (got == (a.with_partial(X, kind),)) == (kind in kinds.split()), (value, kind)
    rule = pad_rule((4,), (2,), (2,), value_operand=True)
    assert rule.forward([a.with_partial(X, "max"), Layout(())]) == (a.with_partial(X, "max"),)
    assert isinstance(rule.forward([a.with_partial(X, "sum"), Layout(())]), str)


def test_factors_that_divide_nothing_are_not_offered() -> None:
    rule = slice_rule((24, 5), (8, 0), (24, 5), (1, 1))
    assert [rule.sizes[f] for f in rule.factors] == [8, 5]
    assert rule.block([(Mesh.parse("3").axis("x"), rule.factors[0])]) is None
    (split,) = rule.block([(X, rule.factors[0])]) or ()
    assert split == Split(X, rule.factors[0], 8)
    assert rule.place([split]).results == (digits([Digit(X, 8)], []),)
