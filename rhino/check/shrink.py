"""A placed program on small shapes and a small mesh: the same ops, the same layouts, the same reshards.

%y = hlo.dot_general %x, %w : tensor<8192x28672xbf16>, 64 devices      becomes      tensor<4x6xbf16>, 4 devices

Sub-axes of the mesh that all layouts use as one become one small axis. Every digit of every layout, every factor of
every op's rule and every sum of extents (slices, concatenations, padding) stays what it was, with small numbers in it
(`rhino.check.sizes`). So a layout that was wrong for the large program is wrong for the small one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from xdsl.dialects.builtin import ArrayAttr, FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from rhino.check.shrink_ops import Facts, Term, facts_of, small_properties
from rhino.check.sizes import Extents, Sizes, Sum
from rhino.dialects import signature
from rhino.dialects.dist import MeshOp, ReshardOp
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import LAYOUT, read_layouts, with_attribute
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.hlo.base import HloOp
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.rule import Dims, Rule
from rhino.ir.text import show_location

#: The least that an extent without digits becomes; whether three or four lead to less depends on the products that they
#: must fit. Of two numbers a norm leaves nothing but their signs, so two is for what is large otherwise.
LENGTHS = (3, 4)

#: Elements of all values on all ranks from which on that is.
MUCH = 20_000_000

#: Extents up to this size are never named as what keeps a program large.
_SMALL = 16


@dataclass(frozen=True)
class Small:
    """A small placed program.

    Attributes:
        kept: ops that tie large extents to their own numbers, so that these stayed as they were.
    """

    module: ModuleOp
    mesh: Mesh
    kept: tuple[str, ...]


class _Digit(NamedTuple):
    """A digit of a whole group of atoms that all layouts use as one."""

    group: int
    chunk: int
    period: int


@dataclass(frozen=True)
class _Places:
    """A layout in terms of groups: digits per dimension, and partial groups."""

    dims: tuple[tuple[_Digit, ...], ...]
    partial: tuple[tuple[int, str], ...]


@dataclass
class _Read:
    """An op with the extents of its rule's factors."""

    op: HloOp
    rule: Rule
    facts: Facts
    terms: dict[Term, int]


def shrink(module: ModuleOp, least: int = 2) -> Small:
    """The small form of a placed module, which is left as it was.

    Args:
        least: the size of a group of devices that was at least so large.

    Raises ProgramError for an op that is none of `hlo` (and `dist.reshard`).
    """
    program = _Program(module)
    broken: set[AxisRef] = set()
    while True:
        groups = _groups(program.mesh, program.layouts.values(), broken)
        reading = _Reading(program, groups)
        more = reading.torn() - broken
        if not more:
            break
        broken |= more
    sizes = reading.solve(least)
    return _build(program, reading, sizes)


class _Program:
    """A placed module, read once."""

    def __init__(self, module: ModuleOp) -> None:
        self.module = module
        self.mesh = mesh_of(module)
        self.func = signature.main_of(module)
        self.ret = signature.return_of(self.func)
        self.ops = [op for op in self.func.body.block.ops if op is not self.ret]
        self.layouts = read_layouts(self.func, self.mesh)


def _groups(mesh: Mesh, layouts: Iterable[Layout], broken: set[AxisRef]) -> list[AxisRef]:
    """Runs of neighbouring atoms that every layout uses as one; an atom in `broken` begins a run of its own."""
    begins = set(broken)
    for layout in set(layouts):
        for name, _ in mesh.axes:
            atoms = Mesh.atoms_of(mesh.axis(name))
            for major, minor in zip(atoms, atoms[1:], strict=False):
                if minor not in begins and not _one(layout.find(major), layout.find(minor), major.size):
                    begins.add(minor)
    out: list[AxisRef] = []
    for name, _ in mesh.axes:
        for i, atom in enumerate(Mesh.atoms_of(mesh.axis(name))):
            if i and atom not in begins:
                out[-1] = AxisRef(name, out[-1].pre, out[-1].size * atom.size)
            else:
                out.append(atom)
    return out


def _one(major: object, minor: object, size: int) -> bool:
    if isinstance(major, tuple) and isinstance(minor, tuple):
        return bool(major[0] == minor[0] and major[1] == minor[1] * size)
    return major == minor


class _Reading:
    """All extents of a program and what ties them, for one grouping of the mesh."""

    def __init__(self, program: _Program, groups: Sequence[AxisRef]) -> None:
        self.program = program
        self.groups = groups
        self._group_of = {atom: g for g, group in enumerate(groups) for atom in Mesh.atoms_of(group)}
        self.extents = Extents()
        self.dims: dict[SSAValue, list[int]] = {}
        self.ops: dict[Operation, _Read] = {}
        self.places: dict[Layout, _Places] = {}
        self._rules: dict[object, tuple[Rule, Facts]] = {}
        for arg in program.func.args:
            self._value(arg)
        for op in program.ops:
            self._op(op)
        self.extents.settle()

    def _value(self, value: SSAValue) -> None:
        self.dims[value] = [self.extents.new(n) for n in types.shape_of(value)]

    def of(self, layout: Layout) -> _Places:
        """A layout in terms of groups."""
        if layout not in self.places:
            self.places[layout] = _Places(
                tuple(self._digits(digits) for digits in layout.dims),
                tuple(dict.fromkeys((self._group_of[atom], kind) for atom, kind in layout.partial)),
            )
        return self.places[layout]

    def _digits(self, digits: Sequence[Digit]) -> tuple[_Digit, ...]:
        ends: dict[int, tuple[int, int]] = {}
        for digit in digits:
            g = self._group_of[digit.axis]
            low, high = ends.get(g, (digit.chunk, digit.period))
            ends[g] = min(low, digit.chunk), max(high, digit.period)
        return tuple(_Digit(g, *both) for g, both in ends.items())

    def _op(self, op: Operation) -> None:
        extents = self.extents
        if isinstance(op, ReshardOp):
            self._value(op.result)
            # Only the extents are equal. What is stored in pieces that cut a head in two may be used in whole heads.
            for before, after in zip(self.dims[op.x], self.dims[op.result], strict=True):
                extents.sums.append(Sum((before,), (after,)))
            return
        if not isinstance(op, HloOp):
            raise ProgramError(
                f"{op.name} has no place in a placed program", where=show_location(op.location)
            )
        rule, facts = self._rule(op)
        for result in op.results:
            self._value(result)
        terms = {f: extents.new(n) for f, n in rule.sizes.items() if n != 1}
        terms |= {name: extents.amount(n) for name, n in facts.amounts.items()}
        for values, tensors in ((op.operands, rule.operands), (op.results, rule.results)):
            for value, tensor in zip(values, tensors, strict=True):
                self._tensor(value, tensor, terms)
        extents.fixed.update(terms[f] for f in facts.fixed if f in terms)
        for left, right in facts.sums:
            plus = sum(f not in terms for f in right) - sum(f not in terms for f in left)
            ends = [tuple(terms[f] for f in side if f in terms) for side in (left, right)]
            extents.sums.append(Sum(ends[0], ends[1], plus))
        self.ops[op] = _Read(op, rule, facts, terms)

    def _rule(self, op: HloOp) -> tuple[Rule, Facts]:
        if op.regions or op.name == "hlo.constant":
            rule = op.rule()
            return rule, facts_of(op, rule)
        operands, results = (tuple(v.type for v in values) for values in (op.operands, op.results))
        key = (op.name, tuple(sorted(op.properties.items())), operands, results)
        if key not in self._rules:
            rule = op.rule()
            self._rules[key] = rule, facts_of(op, rule)
        return self._rules[key]

    def _tensor(self, value: SSAValue, tensor: Dims, terms: Mapping[Term, int]) -> None:
        """Tie the dimensions of a value to the factors that they are made of."""
        for extent, names in zip(self.dims[value], tensor, strict=True):
            factors = [terms[f] for f in names if f in terms]
            if len(factors) == 1:
                self.extents.join(extent, factors[0])
            elif factors:
                self.extents.products[extent, tuple(factors)] = None

    def torn(self) -> set[AxisRef]:
        """Atoms that must begin a group of their own, as a factor begins inside the group's digit."""
        out: set[AxisRef] = set()
        for value, dims in self.dims.items():
            for extent, digits in zip(dims, self.of(self.program.layouts[value]).dims, strict=True):
                if not digits or self.extents.sets.find(extent) in self.extents.fixed:
                    continue
                places = self.extents.places(extent)
                for digit in digits:
                    period, torn = digit.period, False
                    for i, atom in enumerate(Mesh.atoms_of(self.groups[digit.group])):
                        chunk = period // atom.size
                        across = any(chunk < place < period for place in places)
                        if i and (period in places or across or torn):
                            out.add(atom)
                        torn = across
                        period = chunk
        return out

    def solve(self, least: int) -> Sizes:
        """Small sizes for everything: the least of those that several beginnings lead to. Raises ShrinkError."""
        best = min((self._solve(least, length) for length in LENGTHS), key=self._work)
        return best if self._work(best) <= MUCH else min((best, self._solve(least, 2)), key=self._work)

    def _solve(self, least: int, length: int) -> Sizes:
        sizes = Sizes(self.extents, [group.size for group in self.groups], least, length)
        done: set[tuple[int, tuple[_Digit, ...]]] = set()
        for value, dims in self.dims.items():
            for extent, digits in zip(dims, self.of(self.program.layouts[value]).dims, strict=True):
                key = self.extents.sets.find(extent), digits
                if digits and key not in done:
                    done.add(key)
                    sizes.hold(extent, digits)
        sizes.solve()
        return sizes

    def _work(self, sizes: Sizes) -> int:
        """Elements of all values on all ranks."""
        known = [sizes.value(e) for e in range(len(self.extents.size))]
        elements = sum(math.prod(known[e] for e in dims) for dims in self.dims.values())
        return elements * math.prod(sizes.devices(g) for g in range(len(self.groups)))

    def kept(self) -> tuple[str, ...]:
        """Ops that keep large extents as they are."""
        out: dict[str, None] = {}
        for read in self.ops.values():
            large = [read.rule.sizes[f] for f in read.facts.fixed if read.rule.sizes[f] > _SMALL]
            if large:
                place = show_location(read.op.location)
                out[f"{read.op.name}{f' at {place}' if place else ''} keeps an extent of {max(large)}"] = None
        return tuple(out)


def _build(program: _Program, reading: _Reading, sizes: Sizes) -> Small:
    """The small program."""
    refs, mesh = _mesh(program.mesh, reading.groups, [sizes.devices(g) for g in range(len(reading.groups))])
    layouts: dict[tuple[Layout, tuple[int, ...]], Layout] = {}

    def shape(value: SSAValue) -> tuple[int, ...]:
        return tuple(sizes.value(e) for e in reading.dims[value])

    def layout(value: SSAValue) -> Layout:
        own = program.layouts[value]
        roots = tuple(map(sizes.extents.sets.find, reading.dims[value]))
        if (own, roots) not in layouts:
            places = reading.of(own)
            dims = [
                [Digit(refs[g], period) for g, period in sizes.periods(extent, digits).items()]
                for extent, digits in zip(roots, places.dims, strict=True)
            ]
            layouts[own, roots] = Layout.make(dims, [(refs[g], kind) for g, kind in places.partial])
        return layouts[own, roots]

    def attr(value: SSAValue) -> LayoutAttr:
        return LayoutAttr.of(layout(value), shape(value), mesh)

    block = Block(arg_types=[types.tensor(shape(a), types.element_of(a)) for a in program.func.args])
    values: dict[SSAValue, SSAValue] = dict(zip(program.func.args, block.args, strict=True))
    for old, new in values.items():
        new.name_hint = old.name_hint
    for op in program.ops:
        if isinstance(op, ReshardOp):
            made: Operation = ReshardOp.make(values[op.x], layout(op.result), mesh)
        else:
            made = _op(reading.ops[op], values, [shape(r) for r in op.results], sizes)
            made.attributes.update(op.attributes)
            made.attributes[LAYOUT] = ArrayAttr([attr(r) for r in op.results])
        made.location = op.location
        block.add_op(made)
        for old, new in zip(op.results, made.results, strict=True):
            values[old] = new
            new.name_hint = old.name_hint
    returned = program.ret.operands
    block.add_op(ReturnOp(*(values[v] for v in returned)))
    function = FunctionType.from_lists([a.type for a in block.args], [values[v].type for v in returned])
    func = FuncOp("main", function, Region(block))
    signature.set_arguments(
        func, _slots(signature.arguments(program.func), [attr(a) for a in program.func.args])
    )
    signature.set_results(func, _slots(signature.results(program.func), [attr(v) for v in returned]))
    return Small(ModuleOp([MeshOp.of(mesh), func]), mesh, reading.kept())


def _op(
    read: _Read, values: Mapping[SSAValue, SSAValue], results: Sequence[tuple[int, ...]], sizes: Sizes
) -> Operation:
    op = read.op

    def value(term: Term) -> int:
        return sizes.value(read.terms[term]) if term in read.terms else 1

    shapes = [types.tensor(s, types.element_of(r)) for s, r in zip(results, op.results, strict=True)]
    properties = small_properties(op, read.rule, value, results)
    operands = [values[v] for v in op.operands]
    if not op.regions:
        return type(op).create(operands=operands, result_types=shapes, properties=properties)
    new = op.clone(dict(zip(op.operands, operands, strict=True)))
    new.properties.update(properties)
    for result, wanted in zip(tuple(new.results), shapes, strict=True):
        if result.type != wanted:
            Rewriter.replace_value_with_new_type(result, wanted)
    return new


def _mesh(mesh: Mesh, groups: Sequence[AxisRef], sizes: Sequence[int]) -> tuple[list[AxisRef], Mesh]:
    """The small mesh, and what every group is on it."""
    refs: list[AxisRef] = []
    total = dict.fromkeys((name for name, _ in mesh.axes), 1)
    for group, size in zip(groups, sizes, strict=True):
        refs.append(AxisRef(group.name, total[group.name], size))
        total[group.name] *= size
    return refs, Mesh(tuple(total.items()))


def _slots(slots: Sequence[signature.Slot], layouts: Sequence[Attribute]) -> list[signature.Slot]:
    """What arguments and results are, without what speaks of other arguments or of the padding in them."""
    return [
        with_attribute(replace(slot, alias=None, extent=None), LAYOUT, layout)
        for slot, layout in zip(slots, layouts, strict=True)
    ]


def elements(module: ModuleOp) -> int:
    """Elements of all values of `@main`, and multiplications of its products: what it takes to run it once."""
    total = 0
    for op in signature.main_of(module).body.block.ops:
        total += sum(math.prod(types.shape_of(r)) for r in op.results)
        if isinstance(op, HloOp):
            total += op.flops() // 2
    return total
