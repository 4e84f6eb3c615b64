"""What the user insists on: layouts of parameters, inputs and ops by name, axes and paradigms that are not wanted.

    h.*.attn.c_attn.weight=[{}, {"tp"}]       a pin: arguments whose name matches have this layout
    h.*.mlp/dot_general=[{"dp"}, {}, {"tp"}]  ops by place and kind: their result has this layout, where ranks agree
    *.bias=replicated                         the whole tensor on every device
    wte.weight:tp                             forbidden: nothing that matches uses axis tp
    tensor                                    forbidden: a paradigm (see `PARADIGMS`)

Patterns are those of a shell. A name is an argument's; where no argument matches, it is an op's: the module path (or
``file.py:line``) that it came from, a slash, and its kind; its kind alone where that is unknown. What is forbidden is
forbidden to arguments and ops alike. Constraints narrow the plan space of a mesh; what they ask for beats what a
template or a held choice leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, FileLineColLoc, FusedLoc, NameLoc
from xdsl.ir import Attribute

from rhino.ir.errors import LayoutError, MeshError, PlanError, UsageError
from rhino.ir.layout import Layout
from rhino.ir.layout_text import LayoutSpec, format_layout
from rhino.ir.mesh import Mesh
from rhino.planner.candidates import COMPUTE, Candidate, Cut, Options, choices_for, marks_for
from rhino.planner.fold import Folding
from rhino.planner.graph import Graph, Kind
from rhino.planner.space import CandidateSet, Space, Spread, Workshop
from rhino.planner.templates import Reach, batch_inputs, inputs, reach

#: What may be forbidden as a whole.
PARADIGMS = {
    "data": "the batch is not split",
    "sequence": "no dimension of the inputs but the batch is split",
    "tensor": "no matrix product is split along a dimension of a parameter",
    "sharded-states": "parameters and optimizer states are stored whole",
    "strided": "of every dimension a device has one contiguous block",
}

OBJECTIVES = ("time", "memory")


@dataclass(frozen=True)
class Pin:
    """Whatever matches `pattern` has a layout; None stands for replicated."""

    pattern: str
    layout: LayoutSpec | None

    @staticmethod
    def parse(text: str) -> Pin:
        """Read ``PATTERN=LAYOUT``. Raises UsageError."""
        pattern, equals, layout = text.partition("=")
        if not equals or not pattern.strip() or not layout.strip():
            raise UsageError(
                f"cannot read pin '{text}'", remedy="write PATTERN=LAYOUT: 'wte.weight=[{}, {\"x\"}]'"
            )
        if layout.strip() == "replicated":
            return Pin(pattern.strip(), None)
        try:
            return Pin(pattern.strip(), LayoutSpec.parse(layout.strip()))
        except LayoutError as error:
            raise UsageError(f"cannot read pin '{text}': {error.message}", remedy=error.remedy) from error

    def axes(self) -> set[str]:
        """Names of the mesh axes it needs."""
        if self.layout is None:
            return set()
        return {axis.name for dim in self.layout.dims for axis in dim} | {
            a.name for a, _ in self.layout.partial
        }

    def resolve(self, shape: Sequence[int], mesh: Mesh) -> Layout:
        """The layout on a mesh. Raises PlanError naming the pin when it does not fit."""
        if self.layout is None:
            return Layout.replicated(len(shape))
        try:
            return self.layout.resolve(shape, mesh)
        except (LayoutError, MeshError) as error:
            raise PlanError(f"{self} does not fit: {error.message}", remedy=error.remedy) from error

    def __str__(self) -> str:
        return f"pin '{self.pattern}={self.layout or 'replicated'}'"


@dataclass(frozen=True)
class Ban:
    """Nothing that matches `pattern` uses a mesh axis; or a paradigm is not used (no pattern)."""

    pattern: str | None
    what: str

    @staticmethod
    def parse(text: str) -> Ban:
        """Read ``PATTERN:AXIS`` or a paradigm. Raises UsageError."""
        if text.strip() in PARADIGMS:
            return Ban(None, text.strip())
        pattern, colon, axis = text.rpartition(":")
        if not colon or not pattern.strip() or not axis.strip().isidentifier():
            raise UsageError(
                f"cannot read what to forbid: '{text}'",
                remedy=f"write PATTERN:AXIS ('*.bias:x'), or one of {', '.join(PARADIGMS)}",
            )
        return Ban(pattern.strip(), axis.strip())

    def axes(self) -> set[str]:
        """Names of the mesh axes it speaks of."""
        return set() if self.pattern is None else {self.what}

    def __str__(self) -> str:
        return f"forbid '{self.what if self.pattern is None else f'{self.pattern}:{self.what}'}'"


Constraint = Pin | Ban


@dataclass(frozen=True)
class Constraints:
    """All that a user insists on; empty ones change nothing."""

    pins: tuple[Pin, ...] = ()
    bans: tuple[Ban, ...] = ()

    @staticmethod
    def parse(pins: Sequence[str] = (), forbid: Sequence[str] = ()) -> Constraints:
        """Read both lists. Raises UsageError."""
        return Constraints(tuple(map(Pin.parse, pins)), tuple(map(Ban.parse, forbid)))

    def __bool__(self) -> bool:
        return bool(self.pins or self.bans)

    def all(self) -> tuple[Constraint, ...]:
        return (*self.pins, *self.bans)

    def without(self, one: Constraint) -> Constraints:
        """All but one."""
        return Constraints(
            tuple(p for p in self.pins if p is not one), tuple(b for b in self.bans if b is not one)
        )

    def suits(self, mesh: Mesh) -> bool:
        """Whether a mesh has every axis that the pins name."""
        return all(pin.axes() <= {name for name, _ in mesh.axes} for pin in self.pins)

    def check(self, meshes: Sequence[Mesh]) -> None:
        """Raise PlanError for a constraint that names an axis which none of the meshes has."""
        for one in self.all():
            wanted = one.axes()
            if not any(wanted <= {name for name, _ in mesh.axes} for mesh in meshes):
                known = sorted({name for mesh in meshes for name, _ in mesh.axes})
                raise PlanError(
                    f"{one}: no mesh that is searched has {' and '.join(sorted(wanted))}; axes are {', '.join(known)}",
                    remedy="fix a mesh with that axis: --mesh dp=2,tp=2",
                )

    def alike(self, graph: Graph, folding: Folding) -> bool:
        """Whether they ask the same of all that a folding takes for copies, so that these may still decide alike.

        Raises PlanError when a pattern matches nothing.
        """
        for one in self.all():
            arguments, ops = _asked(one, graph)
            if any(arguments.get(i) != arguments.get(first) for i, first in enumerate(folding.arguments)):
                return False
            if any(ops.get(i) != ops.get(first) for i, first in enumerate(folding.nodes)):
                return False
        return True

    def narrow(self, space: Space, options: Options) -> Space:
        """The part of a plan space that keeps to them. Raises PlanError naming the constraints that clash."""
        return _Narrowing(self, space, options).space()


def _asked(constraint: Constraint, graph: Graph) -> tuple[dict[int, object], dict[int, object]]:
    """The arguments and the ops that a constraint is about, each with what tells it from others of its class."""
    if isinstance(constraint, Pin) or constraint.pattern is not None:
        arguments, ops = targets(graph, str(constraint.pattern), both=isinstance(constraint, Ban))
        return dict.fromkeys(arguments, True), dict.fromkeys(ops, True)
    if constraint.what in ("sharded-states", "strided"):
        return {}, {}  # of all of a role, or of all
    found = _reached(graph, constraint.what)
    return {i: found.values[i] for i in inputs(graph)}, dict(enumerate(found.nodes))


def _reached(graph: Graph, paradigm: str) -> Reach:
    """What sees the dimensions that a paradigm splits: ``data``, ``sequence`` or ``tensor``."""
    batch = [(i, (0, graph.values[i].shape[0])) for i in batch_inputs(graph)]
    if paradigm == "data":
        return reach(graph, batch)
    if paradigm == "sequence":
        seeds = [(i, (d, n)) for i in inputs(graph) for d, n in enumerate(graph.values[i].shape)]
        return reach(graph, [seed for seed in seeds if seed not in batch])
    return reach(
        graph,
        [
            (i, (d, n))
            for i, slot in enumerate(graph.arguments)
            if slot.role == "parameter"
            for d, n in enumerate(graph.values[i].shape)
        ],
    )


def label(op_name: str, location: Attribute) -> list[str]:
    """Names of an op: its module path and its file and line, each with its kind."""
    kind = op_name.removeprefix("hlo.")
    return [f"{place}/{kind}" for place in places(location)] or [kind]


def places(location: Attribute) -> list[str]:
    """Module path and ``file.py:line`` of a location, where known."""
    if isinstance(location, NameLoc):
        return [location.desc.data, *places(location.location)]
    if isinstance(location, FileLineColLoc):
        return [f"{location.filename.data.rpartition('/')[2]}:{location.line.data}"]
    if isinstance(location, FusedLoc) and isinstance(location.locations, ArrayAttr):
        return [place for part in location.locations for place in places(part)]
    return []


def targets(graph: Graph, pattern: str, *, both: bool = False) -> tuple[list[int], list[int]]:
    """Arguments whose name matches, and ops if there are none (or if `both` are wanted).

    Raises PlanError when nothing matches.
    """
    found = [
        i
        for i, slot in enumerate(graph.arguments)
        if any(fnmatchcase(name, pattern) for name in (slot.name, *slot.tied))
    ]
    ops: list[int] = []
    if both or not found:
        ops = [
            i
            for i, node in enumerate(graph.nodes)
            if not node.free and any(fnmatchcase(n, pattern) for n in label(node.op.name, node.op.location))
        ]
    if not found and not ops:
        raise PlanError(
            f"'{pattern}' matches no parameter, buffer, input or op of the program",
            remedy="names are module paths (h.0.attn.weight), or place/kind of an op (h.0.attn/dot_general)",
        )
    return found, ops


def _has_layout(wanted: Layout) -> Callable[[Layout], bool]:
    return lambda one: one == wanted


def _makes_layout(wanted: Layout) -> Callable[[Candidate], bool]:
    return lambda one: one.placement.results[0] == wanted


def _has_none_of(atoms: frozenset[object]) -> Callable[[Layout], bool]:
    return lambda one: atoms.isdisjoint(_atoms(one))


def _uses_none_of(atoms: frozenset[object]) -> Callable[[Candidate], bool]:
    return lambda one: all(
        atoms.isdisjoint(_atoms(layout)) for layout in (*one.placement.operands, *one.placement.results)
    )


def _cuts_none_of(cuts: frozenset[Cut]) -> Callable[[Candidate], bool]:
    return lambda one: not any(isinstance(c, Cut) and c in cuts for c in one.choices)


def is_blocks(layout: Layout, shape: Sequence[int]) -> bool:
    """Whether every device has one contiguous block of every dimension."""
    for extent, digits in zip(shape, layout.dims, strict=True):
        for digit in digits:
            if digit.period != extent:
                return False
            extent = digit.chunk
    return True


def _in_blocks(shape: Sequence[int]) -> Callable[[Layout], bool]:
    return lambda one: is_blocks(one, shape)


def _works_in_blocks(kind: Kind) -> Callable[[Candidate], bool]:
    shapes = [shape for shape, _ in (*kind.operand_tensors, *kind.result_tensors)]
    return lambda one: all(
        is_blocks(layout, shape)
        for layout, shape in zip((*one.placement.operands, *one.placement.results), shapes, strict=True)
    )


def _whole_along(dims: frozenset[int]) -> Callable[[Layout], bool]:
    return lambda one: not any(one.dims[d] for d in dims)


class _Narrowing:
    """One plan space being narrowed; notes for every element which constraints have acted on it."""

    def __init__(self, constraints: Constraints, space: Space, options: Options) -> None:
        self.constraints = constraints
        self.graph, self.shop, self.options = space.graph, space.shop, options
        self.before = space
        self.arguments: dict[int, dict[Constraint, Callable[[Layout], bool]]] = {}
        self.ops: dict[int, dict[Constraint, Callable[[Candidate], bool]]] = {}
        self.cuts: dict[tuple[Constraint, int], frozenset[Cut]] = {}

    def space(self) -> Space:
        for pin in self.constraints.pins:
            self._pin(pin)
        for ban in self.constraints.bans:
            if ban.pattern is None:
                self._paradigm(ban)
            else:
                self._axis(ban)
        sets = list(self.before.sets)
        spreads = list(self.before.arguments)
        for i, tests in self.arguments.items():
            spreads[i] = self._argument(i, tests)
        known: dict[object, CandidateSet] = {}
        for i, checks in self.ops.items():
            made = sets[i]
            if made is None:
                continue
            # Ops of one kind under the same constraints keep one set, so that regions still decide together.
            shapes = tuple((c, self._meaning(c, i)) for c in checks)
            key = id(made), shapes
            if key not in known:
                known[key] = self._op(i, made, checks)
            sets[i] = known[key]
        return replace(self.before, sets=sets, arguments=spreads)

    def _meaning(self, constraint: Constraint, op: int) -> object:
        """Paradigms mean cuts, which ops may have different ones of; all else means the same for ops of one kind."""
        return self.cuts.get((constraint, op))

    def _pin(self, pin: Pin) -> None:
        arguments, ops = targets(self.graph, pin.pattern)
        ranks = {len(self.graph.values[i].shape) for i in arguments}
        ranks |= {len(self.graph.values[self.graph.nodes[i].results[0]].shape) for i in ops}
        if pin.layout is not None and pin.layout.rank not in ranks:
            raise PlanError(
                f"{pin} has {pin.layout.rank} dimensions, but what it matches has {_numbers(ranks)}",
                remedy="write one {...} per dimension, empty for a whole one",
            )
        for i in arguments:
            shape = self.graph.values[i].shape
            if pin.layout is None or pin.layout.rank == len(shape):
                layout = pin.resolve(shape, self.shop.mesh)
                self.arguments.setdefault(i, {})[pin] = _has_layout(layout)
        for i in ops:
            shape = self.graph.values[self.graph.nodes[i].results[0]].shape
            if pin.layout is None or pin.layout.rank == len(shape):
                layout = pin.resolve(shape, self.shop.mesh)
                self.ops.setdefault(i, {})[pin] = _makes_layout(layout)

    def _axis(self, ban: Ban) -> None:
        assert ban.pattern is not None
        mesh = self.shop.mesh
        names = {name for name, _ in mesh.axes}
        if ban.what not in names:
            return  # this mesh has no such axis to use
        atoms: frozenset[object] = frozenset(mesh.atoms_of(mesh.axis(ban.what)))
        arguments, ops = targets(self.graph, ban.pattern, both=True)
        for i in arguments:
            self.arguments.setdefault(i, {})[ban] = _has_none_of(atoms)
        for i in ops:
            self.ops.setdefault(i, {})[ban] = _uses_none_of(atoms)

    def _paradigm(self, ban: Ban) -> None:
        graph = self.graph
        if ban.what == "sharded-states":
            for i, slot in enumerate(graph.arguments):
                if slot.role in ("parameter", "state"):
                    whole = Layout.replicated(len(graph.values[i].shape))
                    self.arguments.setdefault(i, {})[ban] = _has_layout(whole)
            return
        if ban.what == "strided":
            for i in range(len(graph.arguments)):
                self.arguments.setdefault(i, {})[ban] = _in_blocks(graph.values[i].shape)
            for i, node in enumerate(graph.nodes):
                if not node.free:
                    self.ops.setdefault(i, {})[ban] = _works_in_blocks(node.kind)
            return
        found = _reached(graph, ban.what)
        for i, node in enumerate(graph.nodes):
            cuts = found.nodes[i]
            if cuts and not node.free and (ban.what != "tensor" or node.kind.name in COMPUTE):
                self.ops.setdefault(i, {})[ban] = _cuts_none_of(cuts)
                self.cuts[ban, i] = cuts
        if ban.what == "tensor":
            return
        for i in inputs(graph):
            own = frozenset(dim for dim, _ in found.values[i])
            self.arguments.setdefault(i, {})[ban] = _whole_along(own)

    def _argument(self, index: int, tests: Mapping[Constraint, Callable[[Layout], bool]]) -> Spread:
        """The layouts that pass, of the space's own or else of all that the mesh allows."""
        marks = tuple(marks_for(self.options.arguments[index], axis) for axis in self.shop.axes)
        shape = self.graph.values[index].shape
        for layouts in (self.before.arguments[index].layouts, tuple(self.shop.argument(shape, marks))):
            kept = [layout for layout in layouts if all(test(layout) for test in tests.values())]
            if kept:
                return self.shop.spread(kept)
        alone = {c: tuple(i for i, one in enumerate(layouts) if test(one)) for c, test in tests.items()}
        raise _clash(self.graph.arguments[index].name, layouts, alone, shape, self.shop.mesh)

    def _op(
        self, index: int, made: CandidateSet, tests: Mapping[Constraint, Callable[[Candidate], bool]]
    ) -> CandidateSet:
        node = self.graph.nodes[index]
        open_to = tuple(choices_for(self.options.nodes[index], axis) for axis in self.shop.axes)
        for one in (made, self.shop.candidate_set(node.kind, open_to)):
            kept = [i for i, c in enumerate(one.candidates) if all(test(c) for test in tests.values())]
            if kept:
                return _only(one, kept, self.shop)
        names = label(node.op.name, node.op.location)
        layouts = [c.placement.results[0] for c in one.candidates]
        alone = {
            c: tuple(i for i, one in enumerate(one.candidates) if test(one)) for c, test in tests.items()
        }
        shape = self.graph.values[node.results[0]].shape
        raise _clash(names[0], layouts, alone, shape, self.shop.mesh)


def _clash(
    name: str,
    layouts: Sequence[Layout],
    passing: Mapping[Constraint, Sequence[int]],
    shape: Sequence[int],
    mesh: Mesh,
) -> PlanError:
    """The error for something that no option suits; `passing` are the options that each constraint alone admits."""
    for constraint, left in passing.items():
        if not left:
            known = ", ".join(dict.fromkeys(format_layout(one, shape, mesh) for one in layouts))
            return PlanError(
                f"{constraint} cannot be met for {name} on mesh {mesh}",
                remedy=f"its layouts there: {known[:600]}",
            )
    clashing = dict(passing)
    for constraint in passing:  # drop what the others clash without
        others = [set(left) for other, left in clashing.items() if other is not constraint]
        if len(others) > 1 and not set.intersection(*others):
            del clashing[constraint]
    return PlanError(
        f"{' and '.join(map(str, clashing))} clash: no layout of {name} on mesh {mesh} suits all",
        remedy="drop one of them, or narrow its pattern",
    )


def _atoms(layout: Layout) -> set[object]:
    return {digit.axis for digits in layout.dims for digit in digits} | {axis for axis, _ in layout.partial}


def _only(made: CandidateSet, kept: Sequence[int], shop: Workshop) -> CandidateSet:
    """Some of the candidates of a set."""
    if len(kept) == len(made.candidates):
        return made
    found = tuple(made.candidates[i] for i in kept)
    return CandidateSet(
        found,
        np.array(made.times[list(kept)]),
        tuple(shop.spread([c.placement.operands[i] for c in found]) for i in range(len(made.operands))),
        tuple(shop.spread([c.placement.results[i] for c in found]) for i in range(len(made.results))),
    )


def _numbers(ranks: set[int]) -> str:
    return " or ".join(map(str, sorted(ranks)))


def culprits(constraints: Constraints, works: Callable[[Constraints], bool]) -> tuple[Constraint, ...]:
    """A smallest set of constraints that do not work together: each is dropped if the rest fails without it."""
    left = constraints
    for one in constraints.all():
        fewer = left.without(one)
        if not works(fewer):
            left = fewer
    return left.all()


def clash(constraints: Sequence[Constraint], what: str) -> PlanError:
    """The error for constraints that cannot be met together, or under a limit."""
    return PlanError(
        f"{what}, because of {' and '.join(map(str, constraints))}",
        remedy="without any one of these it would go" if len(constraints) > 1 else "without it, it would go",
    )
