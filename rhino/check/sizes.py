"""Small sizes for the extents of a program, such that everything that holds of the large ones by structure still does.

An *extent* is the size of a dimension of a tensor, or of a factor of an op's rule. Extents that an op ties are one.
Others are products of extents (a dimension of several factors). Inside an extent lie *cuts*: place values at which a
factor begins. They divide each other, so an extent with cuts 1, 64, 512 is 64 x 8, and a cut in one extent is a cut in
all extents that hold it. What lies between two cuts is one variable of the program.

A variable must hold the digits that layouts put into it: a *stack* of them, with gaps between, is a product that
divides it. Slices, concatenations and padding add up: they give sums. The small sizes are found from below: every
variable begins with as little as its stacks need, and whichever side of a sum is too small is raised, never above what
the program has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from rhino.ir.disjoint import DisjointSets
from rhino.ir.errors import ProgramError

#: Rounds of raising after which there is taken to be no answer, and how often something is given up for one.
_ROUNDS, _ATTEMPTS = 200, 50

#: Both sides of a sum, each of products of variables, and a constant on the right.
_Terms = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...], int]


class ShrinkError(ProgramError):
    """A program has no small form that this package can find; the message says which extents clash."""


class _Stuck(Exception):
    """These variables cannot be small."""

    def __init__(self, variables: set[int]) -> None:
        super().__init__()
        self.variables = variables


@dataclass(frozen=True)
class Sum:
    """Extents on the left add up to what those on the right do, with a constant added there."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    plus: int = 0


@dataclass
class Extents:
    """The extents of a program under construction.

    Attributes:
        size: of every extent, as the program has it.
        products: an extent and the extents that it is the product of, major to minor.
        fixed: extents that must stay as they are.
        amounts: extents of no tensor (how much a slice cuts off, say), which may become 1.
        cuts: place values inside extents.
    """

    sets: DisjointSets = field(default_factory=DisjointSets)
    size: list[int] = field(default_factory=list)
    products: dict[tuple[int, tuple[int, ...]], None] = field(default_factory=dict)
    sums: list[Sum] = field(default_factory=list)
    fixed: set[int] = field(default_factory=set)
    amounts: set[int] = field(default_factory=set)
    cuts: dict[int, set[int]] = field(default_factory=dict)

    def new(self, size: int) -> int:
        self.size.append(size)
        return self.sets.new()

    def amount(self, size: int) -> int:
        """An extent of no tensor."""
        number = self.new(size)
        self.amounts.add(number)
        return number

    def join(self, i: int, j: int) -> None:
        if self.size[i] != self.size[j]:
            raise ShrinkError(f"extents of {self.size[i]} and {self.size[j]} are tied to each other")
        self.sets.join(i, j)

    def settle(self) -> None:
        """Bring every cut to all extents that hold it, and fix those whose cuts do not divide each other."""
        find = self.sets.find
        self.cuts = _by_root(self.cuts, find)
        self.fixed = {find(i) for i in self.fixed}
        products = list(
            dict.fromkeys((find(whole), tuple(map(find, parts))) for whole, parts in self.products)
        )
        holders: dict[int, list[int]] = {}
        for number, (whole, parts) in enumerate(products):
            for extent in (whole, *parts):
                holders.setdefault(extent, []).append(number)
        waiting = dict.fromkeys(range(len(products)))
        while waiting:
            number = next(iter(waiting))
            del waiting[number]
            for changed in self._exchange(*products[number]):
                waiting.update(dict.fromkeys(holders[changed]))
        self.products = dict.fromkeys(products)
        for extent, cuts in self.cuts.items():
            if not _chain(sorted(cuts), self.size[extent]):
                self.fixed.add(extent)
        while True:
            more = {p for whole, parts in products if whole in self.fixed for p in parts} - self.fixed
            if not more:
                return
            self.fixed |= more

    def _exchange(self, whole: int, parts: Sequence[int]) -> list[int]:
        """Cuts of a product to its factors, and back; returns the extents that got new ones."""
        changed = []
        mine = self.cuts.setdefault(whole, set())
        minor = 1
        for part in reversed(parts):
            size = self.size[part]
            theirs = self.cuts.setdefault(part, set())
            down = {c // minor for c in mine if minor < c < minor * size and c % minor == 0} - theirs
            up = {minor * c for c in (1, *theirs, size)} - mine - {1, self.size[whole]}
            if down:
                theirs |= down
                changed.append(part)
            if up:
                mine |= up
                changed.append(whole)
            minor *= size
        return changed

    def places(self, extent: int) -> tuple[int, ...]:
        """The place values 1, cuts, size of an extent; of a fixed one only the ends. After `settle`."""
        root = self.sets.find(extent)
        inside = () if root in self.fixed else sorted(self.cuts.get(root, ()))
        return (1, *inside, self.size[root])


def _by_root(cuts: dict[int, set[int]], find: object) -> dict[int, set[int]]:
    out: dict[int, set[int]] = {}
    for extent, places in cuts.items():
        out.setdefault(find(extent), set()).update(places)  # type: ignore[operator]
    return out


def _chain(cuts: Sequence[int], size: int) -> bool:
    return all(b % a == 0 for a, b in zip((1, *cuts), (*cuts, size), strict=True))


@dataclass(frozen=True)
class Stack:
    """Digits of one layout inside one variable, major to minor: the group of devices, chunk and period of each."""

    digits: tuple[tuple[int, int, int], ...]

    def gaps(self, size: int) -> list[int]:
        """What lies before, between and behind the digits, for a variable of this (true) size."""
        periods = [*(period for _, _, period in self.digits), 1]
        chunks = [size, *(chunk for _, chunk, _ in self.digits)]
        return [chunk // period for chunk, period in zip(chunks, periods, strict=True)]


class Sizes:
    """Variables of settled extents, and their small values after `solve`.

    Attributes:
        groups: true sizes of the groups of devices that digits belong to.
        kept: variables, and groups, that stay as they are.

    Args:
        least: the least that a larger group becomes.
        length: the least that a larger extent without digits becomes.
    """

    def __init__(self, extents: Extents, groups: Sequence[int], least: int, length: int = 3) -> None:
        self.extents = extents
        self.groups = tuple(groups)
        self._length = length
        self.kept_groups: set[int] = set()
        self.kept: set[int] = set()
        self._sets = DisjointSets()
        self._true: list[int] = []
        self._least: list[int] = []
        self._of: dict[int, list[int]] = {}
        self._stacks: dict[int, dict[Stack, None]] = {}
        self._devices_least = least
        self._devices = list(groups)
        self._small: dict[int, int] = {}
        for whole, parts in extents.products:
            self._tie(whole, parts)

    def _of_extent(self, extent: int) -> list[int]:
        """The variables of an extent, minor to major."""
        root = self.extents.sets.find(extent)
        if root not in self._of:
            places = self.extents.places(root)
            least = 1 if root in self.extents.amounts else self._length
            made = []
            for a, b in zip(places, places[1:], strict=False):
                self._true.append(b // a)
                self._least.append(min(b // a, least))
                made.append(self._sets.new())
            if root in self.extents.fixed or self.extents.size[root] == 0:
                self.kept.update(made)
            self._of[root] = made
        return self._of[root]

    def _tie(self, whole: int, parts: Sequence[int]) -> None:
        if whole in self.extents.fixed:
            return  # then so are the parts
        minor, places = 1, self.extents.places(whole)
        for part in reversed(parts):
            size = self.extents.size[part]
            if minor not in places or minor * size not in places:
                raise ShrinkError(f"an extent of {self.extents.size[whole]} has no place {minor}")
            mine = self._of_extent(whole)[places.index(minor) : places.index(minor * size)]
            theirs = self._of_extent(part)
            if part in self.extents.fixed:
                self.kept.update(mine)
            elif len(mine) == len(theirs):
                for a, b in zip(mine, theirs, strict=True):
                    self._join(a, b)
            else:  # a cut of the product that lies across the factor's: both stay as they are
                self.kept.update((*mine, *theirs))
            minor *= size

    def _join(self, a: int, b: int) -> None:
        a, b = self._sets.find(a), self._sets.find(b)
        if self._true[a] != self._true[b]:
            raise ShrinkError(f"digits of {self._true[a]} and {self._true[b]} are tied to each other")
        least = max(self._least[a], self._least[b])
        self._least[self._sets.join(a, b)] = least

    def stacks(self, extent: int, digits: Sequence[tuple[int, int, int]]) -> list[tuple[int, Stack]] | None:
        """Digits of an extent by the variables that they lie in, minor first; None if one lies across two."""
        places = self.extents.places(extent)
        variables = self._of_extent(extent)
        found: dict[int, list[tuple[int, int, int]]] = {}
        for group, chunk, period in digits:
            at = next((i for i, p in enumerate(places[1:]) if period <= p), -1)
            low = places[at]
            if at < 0 or chunk < low or chunk % low or places[at + 1] % period:
                return None
            found.setdefault(at, []).append((group, chunk // low, period // low))
        return [
            (variables[at], Stack(tuple(sorted(s, key=lambda d: -d[2])))) for at, s in sorted(found.items())
        ]

    def hold(self, extent: int, digits: Sequence[tuple[int, int, int]]) -> None:
        """The extent must have room for these digits."""
        found = self.stacks(extent, digits)
        if found is None:
            self.kept.update(self._of_extent(extent))
            self.kept_groups.update(group for group, _, _ in digits)
            return
        for variable, stack in found:
            self._stacks.setdefault(variable, {})[stack] = None

    def solve(self) -> None:
        """Give every variable and group its small value.

        Where that fails, what fails keeps the sizes of the program, which satisfy everything. Raises ShrinkError when
        that happens too often.
        """
        for e in range(len(self.extents.size)):
            self._of_extent(e)
        find = self._sets.find
        stacks: dict[int, dict[Stack, None]] = {}
        for variable, some in self._stacks.items():
            stacks.setdefault(find(variable), {}).update(some)
        self._stacks = stacks
        self.kept = {find(v) for v in self.kept}
        sums = list(
            dict.fromkeys(
                (
                    tuple(tuple(find(v) for v in self._of_extent(e)) for e in each.left),
                    tuple(tuple(find(v) for v in self._of_extent(e)) for e in each.right),
                    each.plus,
                )
                for each in self.extents.sums
            )
        )
        for _ in range(_ATTEMPTS):
            try:
                self._settle(sums)
                return
            except _Stuck as stuck:
                self.kept |= stuck.variables
        raise ShrinkError("no small sizes were found for extents that add up")

    def _settle(self, sums: Sequence[_Terms]) -> None:
        """Raise from below until everything holds. Raises _Stuck where it does not."""
        self.kept_groups |= {
            g for root in self.kept for stack in self._stacks.get(root, ()) for g, _, _ in stack.digits
        }
        self._devices = [
            size if g in self.kept_groups else min(size, self._devices_least)
            for g, size in enumerate(self.groups)
        ]
        roots = {self._sets.find(v) for v in range(len(self._true))}
        self._small = {
            root: self._true[root] if root in self.kept else 1 if root in self._stacks else self._least[root]
            for root in roots
        }
        for _ in range(_ROUNDS):
            changed = any([self._fit(root) for root in self._stacks])
            for left, right, plus in sums:
                have, want = self._total(left), self._total(right) + plus
                if have != want:
                    changed = True
                    side, missing = (left, want - have) if have < want else (right, have - want)
                    if not self._raise(side, missing):
                        raise _Stuck({v for term in (*left, *right) for v in term})
            if not changed:
                return
        raise _Stuck({v for left, right, _ in sums for term in (*left, *right) for v in term})

    def _fit(self, root: int) -> bool:
        """Make a variable hold its stacks; returns whether anything changed."""
        if root in self.kept:
            return False
        unit, tight = self._unit(root)
        before = self._small[root]
        want = -(-before // unit) * unit
        if want > self._true[root]:
            raise _Stuck({root})
        if not tight:
            self._small[root] = want
            return want != before
        for stack in tight:
            have = self._product(stack)
            if have != want and not self._enlarge(stack, want, have):
                raise _Stuck({root})
        self._small[root] = want
        return want != before or any(self._product(stack) != want for stack in tight)

    def _unit(self, root: int) -> tuple[int, list[Stack]]:
        """What the small value must be a multiple of, and the stacks that leave no gap, which it must equal."""
        unit, tight = 1, []
        for stack in self._stacks.get(root, ()):
            gaps = stack.gaps(self._true[root])
            unit = math.lcm(unit, self._product(stack) * math.prod(min(g, 2) for g in gaps))
            if all(g == 1 for g in gaps):
                tight.append(stack)
        return unit, tight

    def _product(self, stack: Stack) -> int:
        return math.prod(self._devices[group] for group, _, _ in stack.digits)

    def _enlarge(self, stack: Stack, want: int, have: int) -> bool:
        """Enlarge a group of devices, so that a stack without gaps fills what it must; False if that cannot be."""
        for group, _, _ in stack.digits:
            size = self._devices[group] * want // have
            if want % have == 0 and size <= self.groups[group]:
                self._devices[group] = size
                return True
        return False

    def _total(self, terms: Sequence[Sequence[int]]) -> int:
        return sum(math.prod(self._small[v] for v in term) for term in terms)

    def _raise(self, terms: Sequence[Sequence[int]], missing: int) -> bool:
        """Raise the last term that has room (amounts stand last), by as much as is missing if it has as much room.

        A product may come out larger than wanted; then the other side is raised next. False if no term has room.
        """
        for term in reversed(terms):
            options = [v for v in term if v not in self.kept and self._small[v] < self._true[v]]
            if options:
                want = math.prod(self._small[v] for v in term) + missing
                # One that makes up for all of it, if there is one; else the one with most room.
                best = max(
                    options, key=lambda v: (self._fills(v, term, want), self._true[v] / self._small[v])
                )
                others = math.prod(self._small[v] for v in term) // self._small[best]
                least = max(self._small[best] + 1, -(-want // others) if others else 0)
                self._small[best] = min(self._true[best], least)
                return True
        return False

    def _fills(self, variable: int, term: Sequence[int], want: int) -> bool:
        """Whether a product can be what it should if this variable alone is raised."""
        others = math.prod(self._small[v] for v in term) // self._small[variable]
        if not others or want % others or want // others > self._true[variable]:
            return False
        unit, tight = self._unit(variable)
        return not tight and want // others % unit == 0

    def value(self, extent: int) -> int:
        """The small size of an extent."""
        return math.prod(self._small[self._sets.find(v)] for v in self._of_extent(extent))

    def devices(self, group: int) -> int:
        """The small size of a group."""
        return self._devices[group]

    def periods(self, extent: int, digits: Sequence[tuple[int, int, int]]) -> dict[int, int]:
        """The small period of every group's digit in an extent."""
        found = self.stacks(extent, digits)
        if found is None:
            return {group: period for group, _, period in digits}
        out: dict[int, int] = {}
        variables = self._of_extent(extent)
        for variable, stack in found:
            below = variables[: variables.index(variable)]
            low = math.prod(self._small[self._sets.find(v)] for v in below)
            for (group, _, _), period in zip(stack.digits, self._places(variable, stack), strict=True):
                out[group] = low * period
        return out

    def _places(self, variable: int, stack: Stack) -> list[int]:
        """Small periods of a stack's digits; the last gap that is one takes what is left."""
        root = self._sets.find(variable)
        if root in self.kept:
            return [period for _, _, period in stack.digits]
        gaps = [min(g, 2) for g in stack.gaps(self._true[root])]
        rest = self._small[root] // (self._product(stack) * math.prod(gaps))
        if wide := [i for i, g in enumerate(gaps) if g > 1]:
            gaps[wide[-1]] *= rest
        out, at = [], self._small[root]
        for gap, (group, _, _) in zip(gaps, stack.digits, strict=False):
            at //= gap
            out.append(at)
            at //= self._devices[group]
        return out
