"""The rules of digit arithmetic against brute-force owner maps: nothing wrong, nothing missed.

`wrong`: the rule accepts a placement under which the local op on local data is not the result's local data.
`missed`: such a placement exists and the rule does not accept it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef
from rhino.ir.reshape import reshape_rule

Place = tuple[int, int]
Digits = tuple[tuple[AxisRef, Place], ...]
X = AxisRef("x", 1, 2)
Y = AxisRef("y", 1, 2)
Z = AxisRef("z", 1, 3)


def shapes_of(count: int, rank: int) -> Iterator[tuple[int, ...]]:
    """All shapes of a rank with that many elements."""
    if rank == 0:
        if count == 1:
            yield ()
        return
    for first in range(1, count + 1):
        if count % first == 0:
            for rest in shapes_of(count // first, rank - 1):
                yield (first, *rest)


def owners(shape: tuple[int, ...], n: int) -> dict[Place, bytes]:
    """For every digit ``(dim, period)`` of n, the owner of each flat element."""
    index = np.indices(shape).reshape(len(shape), -1)
    out = {}
    for dim, extent in enumerate(shape):
        for period in range(n, extent + 1):
            if extent % period == 0 and period % n == 0:
                out[dim, period] = ((index[dim] % period) // (period // n)).astype(np.int8).tobytes()
    return out


def layout(rank: int, digits: Sequence[tuple[AxisRef, Place]]) -> Layout:
    dims: list[list[Digit]] = [[] for _ in range(rank)]
    for axis, (dim, period) in digits:
        dims[dim].append(Digit(axis, period))
    return Layout.make(dims)


class ReshapeCheck:
    """All reshapes between shapes of `count` elements."""

    def __init__(self, count: int, two_axes: bool) -> None:
        self.shapes = [shape for rank in (1, 2, 3) for shape in shapes_of(count, rank)]
        self.two_axes = two_axes
        self.owner = {(shape, n): owners(shape, n) for shape in self.shapes for n in (2, 3)}
        self.place = {key: {owner: at for at, owner in table.items()} for key, table in self.owner.items()}
        for key, table in self.owner.items():
            assert len(self.place[key]) == len(table)  # an owner map names its digit
        self.count: Counter[str] = Counter()

    def cases(self, shape: tuple[int, ...]) -> Iterator[tuple[str, Digits]]:
        """Placements of atoms on the source: one axis of 2, 3, 4 and 8; with `two_axes` 2 x 2, 2 x 3."""
        singles = {axis: [(axis, at) for at in self.owner[shape, axis.size]] for axis in (X, Y, Z)}
        for axis in (X, Z):
            for digit in singles[axis]:
                yield f"n={axis.size}", (digit,)
        for n in (4, 8):
            for dim, extent in enumerate(shape):
                for period in range(n, extent + 1):
                    if extent % period == 0 and period % n == 0:
                        atoms = [AxisRef("x", 2**j, 2) for j in range(n.bit_length() - 1)]
                        yield f"n={n}", tuple((a, (dim, period // a.pre)) for a in atoms)
        if self.two_axes:
            for second in (Y, Z):
                for pair in itertools.product(singles[X], singles[second]):
                    if layout(len(shape), pair).error(shape) is None:
                        yield f"2x{second.size}", pair

    def same(self, src: tuple[int, ...], dst: tuple[int, ...], n: int, at: Place) -> Place | None:
        """The digit of the target that gives every flat element the owner it has in the source."""
        return self.place[dst, n].get(self.owner[src, n][at])

    def run(self) -> Counter[str]:
        cases = {shape: list(self.cases(shape)) for shape in self.shapes}
        for src, dst in itertools.product(self.shapes, repeat=2):
            rule = reshape_rule(src, dst)
            assert rule.shape(rule.operands[0]) == src and rule.shape(rule.results[0]) == dst
            for name, digits in cases[src]:
                truth = [(axis, self.same(src, dst, axis.size, at)) for axis, at in digits]
                want = None
                if all(at is not None for _, at in truth):
                    want = layout(len(dst), [(axis, at) for axis, at in truth if at is not None])
                    assert want.error(dst) is None
                source = layout(len(src), digits)
                got = rule.forward([source])
                self.count[f"{name} {'kept' if want else 'refused'}"] += 1
                if isinstance(got, str):
                    self.count["missed"] += want is not None
                elif want is None or got != (want,):
                    self.count["wrong"] += 1
                else:
                    assert rule.backward(got) == (source,)
                    assert rule.admits([source], got) is None
        return self.count


@pytest.mark.parametrize("count", [6, 8, 12, 18])
def test_reshape(count: int) -> None:
    found = ReshapeCheck(count, two_axes=True).run()
    assert found["wrong"] == found["missed"] == 0
    assert found["n=2 kept"] > 0


@pytest.mark.long
def test_reshape_of_up_to_64_elements() -> None:
    found: Counter[str] = Counter()
    for count in range(1, 65):
        found += ReshapeCheck(count, two_axes=True).run()
    print("\nreshape:", dict(sorted(found.items())))
    assert found["wrong"] == found["missed"] == 0


def test_the_digit_that_cannot_be_halved_is_refused() -> None:
    """[2,6] split in 2 on dim 1: periods of 3 would follow from a rule that forgets to ask for n | period."""
    rule = reshape_rule((2, 6), (6, 2))
    assert "falls between" in str(rule.forward([Layout(((), (Digit(X, 6),)))]))


def test_four_shards_become_two_digits() -> None:
    x1, x2 = AxisRef("x", 1, 2), AxisRef("x", 2, 2)
    rule = reshape_rule((12,), (2, 6))
    whole = Layout.make([[Digit(AxisRef("x", 1, 4), 12)]])
    assert rule.forward([whole]) == (Layout(((Digit(x1, 2),), (Digit(x2, 6),))),)


@pytest.mark.parametrize(
    ("src", "dst", "at", "to"),
    [
        ((4, 8, 16), (32, 16), (1, 8), (0, 8)),  # tokens: sequence split survives the merge with batch
        ((32, 16), (4, 8, 16), (0, 8), (1, 8)),
        ((2, 5, 96), (2, 5, 3, 4, 8), (2, 32), (3, 4)),  # fused QKV: heads of each third
        ((2, 5, 96), (2, 5, 3, 4, 8), (2, 24), None),  # three heads are no digit of four
        ((2, 5, 12, 8), (2, 5, 96), (2, 12), (2, 96)),
        ((2, 16), (2, 2, 8), (1, 8), (2, 8)),  # gate and up, each split
        ((4, 6, 5, 7), (4, 30, 7), (2, 5), None),  # 5 is not even
        ((4, 5, 6, 7), (4, 30, 7), (2, 6), (1, 6)),  # experts: the inner dim splits
    ],
)
def test_reshapes_of_models(src: tuple[int, ...], dst: tuple[int, ...], at: Place, to: Place | None) -> None:
    got = reshape_rule(src, dst).forward([layout(len(src), [(X, at)])])
    if to is None:
        assert isinstance(got, str)
    else:
        assert got == (layout(len(dst), [(X, to)]),)


def test_reshape_corner_cases() -> None:
    assert reshape_rule((), (1, 1)).forward([Layout(())]) == (Layout.replicated(2),)
    assert reshape_rule((0, 4), (2, 0)).forward([Layout.replicated(2)]) == (Layout.replicated(2),)
    assert isinstance(reshape_rule((0, 4), (2, 0)).forward([layout(2, [(X, (1, 4))])]), str)
    with pytest.raises(ValueError, match="cannot reshape"):
        reshape_rule((4,), (5,))
