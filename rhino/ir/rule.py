"""Sharding rules: what splitting an op's iteration factors does to its operands and results.

A rule is written like an einsum over *factors*: ``"b m k, b k n -> b m n"``. A dimension made of several
factors is written in parentheses, major to minor: ``"b s (t h d) -> b s t h d"``. Each factor has a kind:

* ``pass``: may be split; the op runs unchanged on the pieces;
* ``sum``, ``max``, ``min``, ``prod``, ``and``, ``or``: may be split, and results that lack the factor are
  then partial with that kind;
* ``whole``: may not be split.

A factor that appears in results only (a broadcast or an iota) may be split freely: every device makes its
part.
A factor in `halos` is one whose pieces need their neighbours' edges (overlapping windows): it may be split in
contiguous blocks only, none of them shorter than the edge that its neighbour needs of it. The op exchanges the
edges itself.
`linear` lists groups of operands through which a partial sum may pass when exactly the operands of one group
are partial; `carries` says the same for any kind (a maximum carries partial max); `structural` ops (reshape,
transpose, concat, ...) let a partial of any kind through when all their operands are partial.
One rule serves propagation, candidate generation, cost, the SPMD rewrite and the checker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef

Dims = tuple[tuple[str, ...], ...]
REDUCTIONS = ("sum", "max", "min", "prod", "and", "or")


@dataclass(frozen=True)
class Split:
    """One atom (or sub-axis) of the mesh taking a digit of one factor; `period` counts inside the factor."""

    axis: AxisRef
    factor: str
    period: int


@dataclass(frozen=True)
class Halo:
    """What a piece of a factor needs of operand `operand` beyond its own part of it: so many elements of the factor's
    dimension from before and behind.
    """

    operand: int
    before: int
    after: int


@dataclass(frozen=True)
class Placement:
    """The layouts of an op's operands and results under one choice of splits."""

    operands: tuple[Layout, ...]
    results: tuple[Layout, ...]


@dataclass(frozen=True)
class Rule:
    """See the module's docstring. `sizes` maps every factor to its extent."""

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    sizes: Mapping[str, int]
    kinds: Mapping[str, str] = field(default_factory=dict)
    linear: tuple[tuple[int, ...], ...] = ()
    structural: bool = False
    carries: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    halos: Mapping[str, Halo] = field(default_factory=dict)

    def kind(self, factor: str) -> str:
        return self.kinds.get(factor, "pass")

    @cached_property
    def factors(self) -> tuple[str, ...]:
        """All factors that may be split, in order of first appearance in results, then operands."""
        seen = dict.fromkeys(f for dims in (*self.results, *self.operands) for dim in dims for f in dim)
        return tuple(f for f in seen if self.kind(f) != "whole" and self.sizes[f] > 1)

    @cached_property
    def result_only(self) -> frozenset[str]:
        """Factors no operand has."""
        in_operands = {f for dims in self.operands for dim in dims for f in dim}
        return frozenset(f for dims in self.results for dim in dims for f in dim if f not in in_operands)

    def locate(self, dims: Dims, factor: str) -> tuple[int, int] | None:
        """``(dim, minor)``: the dimension that holds `factor`, the product of factors minor to it there."""
        for i, dim in enumerate(dims):
            if factor in dim:
                return i, math.prod(self.sizes[g] for g in dim[dim.index(factor) + 1 :])
        return None

    def factor_at(self, dims: Dims, dim: int, digit: Digit) -> tuple[str, int] | None:
        """The ``(factor, period inside it)`` that a digit of a tensor's dimension falls in, or None."""
        minor = 1
        for factor in reversed(dims[dim]):
            size = self.sizes[factor]
            if digit.period % minor == 0:
                period = digit.period // minor
                if size % period == 0 and period % digit.axis.size == 0:
                    return factor, period
            minor *= size
        return None

    def place(self, splits: Sequence[Split]) -> Placement:
        """Layouts of all operands and results when the factors are split so; all else is replicated."""

        def one(dims: Dims, result: bool) -> Layout:
            digits: list[list[Digit]] = [[] for _ in dims]
            partial: list[tuple[AxisRef, str]] = []
            for split in splits:
                at = self.locate(dims, split.factor)
                if at is not None:
                    digits[at[0]].append(Digit(split.axis, split.period * at[1]))
                elif result and self.kind(split.factor) in REDUCTIONS:
                    partial.append((split.axis, self.kind(split.factor)))
            return Layout.make(digits, partial)

        return Placement(
            tuple(one(dims, False) for dims in self.operands), tuple(one(dims, True) for dims in self.results)
        )

    def most(self, factor: str) -> int:
        """Into how many pieces a factor may be split at most."""
        halo = self.halos.get(factor)
        edge = 0 if halo is None else max(halo.before, halo.after)
        if halo is None or not edge:
            return self.sizes[factor]
        at = self.locate(self.operands[halo.operand], factor)
        assert at is not None
        return min(self.sizes[factor], self.sizes[factor] * at[1] // edge)

    def halo_error(self, splits: Iterable[Split]) -> str | None:
        """Why some of these splits cut a factor so that its pieces cannot get the edges they need; None if they can.

        Edges come from the next neighbours only, and only contiguous blocks have neighbours.
        """
        if not self.halos:
            return None
        own: dict[str, list[Split]] = {}
        for split in splits:
            if split.factor in self.halos:
                own.setdefault(split.factor, []).append(split)
        for factor, found in own.items():
            left = self.sizes[factor]
            for split in sorted(found, key=lambda s: -s.period):
                if split.period != left:
                    return f"dimension '{factor}' has overlapping windows, and only contiguous blocks of them pass"
                left //= split.axis.size
            if (pieces := self.sizes[factor] // left) > self.most(factor):
                halo = self.halos[factor]
                return (
                    f"a piece of {pieces} of dimension '{factor}' would need more than its neighbours hold "
                    f"({halo.before} elements before and {halo.after} behind)"
                )
        return None

    def block(self, choices: Sequence[tuple[AxisRef, str]]) -> tuple[Split, ...] | None:
        """Contiguous splits of factors by axes; several axes on one factor nest, the first is major.

        None when an extent does not divide or a factor must stay whole.
        """
        left = dict(self.sizes)
        out = []
        for axis, factor in choices:
            if self.kind(factor) == "whole" or left[factor] % axis.size:
                return None
            out.append(Split(axis, factor, left[factor]))
            left[factor] //= axis.size
        return tuple(out) if self.halo_error(out) is None else None

    def forward(self, operands: Sequence[Layout]) -> tuple[Layout, ...] | str:
        """Result layouts that follow from operand layouts without communication, or why there are none."""
        splits: dict[AxisRef, Split] = {}
        partials: dict[AxisRef, str] = {}
        for atom in dict.fromkeys(a for layout in operands for a in layout.axes()):
            states = [layout.find(atom) for layout in operands]
            kinds = {s for s in states if isinstance(s, str)}
            if kinds:
                why = self._partial_error(states, kinds)
                if why is not None:
                    return f"axis '{atom.name}': {why}"
                partials[atom] = kinds.pop()
                continue
            split = self._common_split(atom, states)
            if isinstance(split, str):
                return f"axis '{atom.name}': {split}"
            splits[atom] = split
        if (why := self.halo_error(splits.values())) is not None:
            return why
        placement = self.place(list(splits.values()))
        # A conflict between two atoms on one factor shows up as an ill-formed layout.
        if any(a != b.without(partials) for a, b in zip(placement.operands, operands, strict=True)):
            return "operand layouts do not agree on the order of axes"
        results = []
        for layout, dims in zip(placement.results, self.results, strict=True):
            for atom, kind in partials.items():
                layout = layout.with_partial(atom, kind)
            if (why := layout.error(self.shape(dims))) is not None:
                return why
            results.append(layout)
        return tuple(results)

    def _partial_error(self, states: Sequence[object], kinds: set[str]) -> str | None:
        if len(kinds) > 1:
            return f"operands are partial with different kinds {sorted(kinds)}"
        who = tuple(i for i, s in enumerate(states) if isinstance(s, str))
        if any(isinstance(s, tuple) for s in states):
            return "one operand is partial and another is split"
        if self.structural and who == tuple(range(len(states))):
            return None
        (kind,) = kinds
        if (kind == "sum" and who in self.linear) or who in self.carries.get(kind, ()):
            return None
        return f"a partial operand ({', '.join(map(str, who))}) may not enter this op"

    def _common_split(self, atom: AxisRef, states: Sequence[object]) -> Split | str:
        found: set[tuple[str, int]] = set()
        for i, state in enumerate(states):
            if isinstance(state, tuple):
                at = self.factor_at(self.operands[i], state[0], Digit(atom, state[1]))
                if at is None:
                    return f"the split of operand {i} dim {state[0]} falls between two factors"
                found.add(at)
        if len(found) > 1:
            return "operands are split differently"
        factor, period = next(iter(found))
        if self.kind(factor) == "whole":
            return f"dimension '{factor}' must be whole on every device"
        for i, state in enumerate(states):
            if state is None and self.locate(self.operands[i], factor) is not None:
                return f"operand {i} is replicated where another is split"
        return Split(atom, factor, period)

    def backward(self, results: Sequence[Layout]) -> tuple[Layout, ...] | str:
        """Operand layouts under which the op yields `results` (digits only, no partials), or why none."""
        splits: dict[AxisRef, Split] = {}
        for layout, dims in zip(results, self.results, strict=True):
            for dim, digits in enumerate(layout.dims):
                for digit in digits:
                    at = self.factor_at(dims, dim, digit)
                    if at is None:
                        return f"the split of result dim {dim} falls between two factors"
                    if self.kind(at[0]) == "whole":
                        return f"dimension '{at[0]}' must be whole on every device"
                    split = Split(digit.axis, *at)
                    if splits.setdefault(digit.axis, split) != split:
                        return "results are split differently"
        if (why := self.halo_error(splits.values())) is not None:
            return why
        placement = self.place(list(splits.values()))
        for got, want in zip(placement.results, results, strict=True):
            if got.dims != want.dims:
                return "results are split differently"
        return placement.operands

    def admits(self, operands: Sequence[Layout], results: Sequence[Layout]) -> str | None:
        """None when the op may run locally under these layouts, otherwise the reason why not."""
        return _admits(self, tuple(operands), tuple(results))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Of what fixes the rest almost always; equality compares everything.
        return hash((self.operands, self.results, tuple(self.sizes.values())))

    def _admits(self, operands: Sequence[Layout], results: Sequence[Layout]) -> str | None:
        follow = self.forward(operands)
        if isinstance(follow, str):
            return follow
        busy = {a for layout in operands for a in layout.axes()}
        extra: dict[AxisRef, Split] = {}
        for i, (got, want, dims) in enumerate(zip(results, follow, self.results, strict=True)):
            rest = got
            for dim, digits in enumerate(got.dims):
                for digit in digits:
                    at = self.factor_at(dims, dim, digit)
                    free = at is not None and at[0] in self.result_only and self.kind(at[0]) != "whole"
                    if digit.axis not in busy and at is not None and free:
                        extra[digit.axis] = Split(digit.axis, *at)
                        rest = rest.without([digit.axis])
            if rest != want:
                return f"result {i} does not have the layout that follows from the operands"
            if (why := got.error(self.shape(dims))) is not None:
                return why
        for got, dims in zip(results, self.results, strict=True):
            for axis, split in extra.items():
                if (self.locate(dims, split.factor) is not None) != (got.find(axis) is not None):
                    return "results are split differently"
        return None

    def shape(self, dims: Dims) -> tuple[int, ...]:
        return tuple(math.prod(self.sizes[f] for f in dim) for dim in dims)


@lru_cache(maxsize=1 << 14)
def _admits(rule: Rule, operands: tuple[Layout, ...], results: tuple[Layout, ...]) -> str | None:
    """`Rule.admits`, once for ops that are copies of each other."""
    return rule._admits(operands, results)


def factors(
    text: str,
    operands: Sequence[Sequence[int]],
    results: Sequence[Sequence[int]],
    *,
    sizes: Mapping[str, int] | None = None,
    kinds: Mapping[str, str] | None = None,
    linear: Sequence[Sequence[int]] = (),
    structural: bool = False,
    carries: Mapping[str, Sequence[Sequence[int]]] | None = None,
) -> Rule:
    """Read a rule from text and work out the factor sizes from the shapes.

    Raises ValueError if the text does not fit the shapes (a mistake in an op definition, not a user's).
    """
    left, _, right = text.partition("->")
    ins = tuple(_dims(part) for part in left.split(",")) if operands else ()
    outs = tuple(_dims(part) for part in right.split(","))
    known = dict(sizes or {})
    for side, shapes in ((ins, operands), (outs, results)):
        if len(side) != len(shapes):
            raise ValueError(f"rule '{text}' has {len(side)} tensors where the op has {len(shapes)}")
        for dims, shape in zip(side, shapes, strict=True):
            if len(dims) != len(shape):
                raise ValueError(f"rule '{text}': {dims} does not fit shape {tuple(shape)}")
            for dim, extent in zip(dims, shape, strict=True):
                unknown = [f for f in dim if f not in known]
                done = math.prod(known[f] for f in dim if f in known)
                if len(unknown) == 1 and done and extent % done == 0:
                    known[unknown[0]] = extent // done
                elif unknown or done != extent:
                    raise ValueError(f"rule '{text}': cannot fit {dim} to extent {extent}")
    groups = {kind: tuple(tuple(g) for g in many) for kind, many in (carries or {}).items()}
    return Rule(ins, outs, known, dict(kinds or {}), tuple(tuple(g) for g in linear), structural, groups)


def _dims(text: str) -> Dims:
    return tuple(tuple(t.strip("()").split()) for t in re.findall(r"\([^)]*\)|\S+", text.strip()))
