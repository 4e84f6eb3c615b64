"""Random legal placements: whatever a rule allows, strided digits, sub-axes and partial flows included."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Operation, SSAValue

from rhino.check.choices import Choices
from rhino.check.random_ops import Program, divisors
from rhino.dialects import signature
from rhino.ir import types
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.rule import REDUCTIONS, Placement, Rule, Split


@dataclass(frozen=True)
class Placed:
    """What `place` takes, for the ops in program order."""

    mesh: Mesh
    placements: tuple[Placement, ...]
    arguments: tuple[Layout, ...]
    results: tuple[Layout, ...]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"a placement on {self.mesh}")

    def of(self, ops: Sequence[Operation]) -> dict[Operation, Placement]:
        return dict(zip(ops, self.placements, strict=True))


def periods(extent: int, digits: Sequence[Digit], atom: AxisRef) -> list[int]:
    """All periods with which `atom` can take one more digit of a dimension (or factor)."""
    return [
        p
        for p in divisors(extent)
        if p % atom.size == 0 and Layout.make([[*digits, Digit(atom, p)]]).error([extent]) is None
    ]


def random_layout(choices: Choices, shape: Sequence[int], mesh: Mesh, partial: Sequence[str] = ()) -> Layout:
    """Well-formed layouts of a tensor; partial with one of the kinds given, or not at all."""
    dims: list[list[Digit]] = [[] for _ in shape]
    parts = []
    kind = choices.pick(partial) if partial else None
    for atom in mesh.atoms:
        what = choices.integer(0, 3)
        options = [(d, p) for d, e in enumerate(shape) for p in periods(e, dims[d], atom)]
        if what and options:
            dim, period = choices.pick(options[::-1])
            dims[dim].append(Digit(atom, period))
        elif what == 0 and kind is not None:
            parts.append((atom, kind))
    return Layout.make(dims, parts)


def random_splits(choices: Choices, rule: Rule, atoms: Sequence[AxisRef]) -> list[Split]:
    """Splits of a rule's factors by some of the atoms, under which all layouts are well-formed."""
    out: list[Split] = []
    if not rule.factors:
        return out
    # Often only reduced factors, so that there are partial results to speak of.
    reduced = [f for f in rule.factors if rule.kind(f) in REDUCTIONS]
    factors = [None, *(reduced if reduced and choices.flip() else rule.factors)]
    for atom in choices.order(atoms):
        factor = choices.pick(factors)
        if factor is None:
            continue
        taken = [Digit(s.axis, s.period) for s in out if s.factor == factor]
        options = [
            p
            for p in periods(rule.sizes[factor], taken, atom)
            if rule.halo_error([*out, Split(atom, factor, p)]) is None
        ]
        if options:
            out.append(Split(atom, factor, choices.pick(options[::-1])))
    return out


def carry(
    choices: Choices, op: Operation, rule: Rule, base: Placement, have: Mapping[SSAValue, Layout]
) -> Placement:
    """`base`, with some of the operands' partial axes going through the op where its rule admits that."""
    for atom in dict.fromkeys(a for v in op.operands for a, _ in have[v].partial):
        kinds = [have[v].find(atom) for v in op.operands]
        kind = next(k for k in kinds if isinstance(k, str))
        who = [i for i, k in enumerate(kinds) if k == kind]
        groups = [g for n in range(len(who), 0, -1) for g in itertools.combinations(who, n)]
        group = choices.pick([*groups, groups[0], groups[0], ()])
        operands = list(base.operands)
        if not group or any(layout.find(atom) is not None for layout in (*operands, *base.results)):
            continue
        for i in group:
            operands[i] = operands[i].with_partial(atom, kind)
        trial = Placement(tuple(operands), tuple(r.with_partial(atom, kind) for r in base.results))
        if rule.admits(trial.operands, trial.results) is None:
            base = trial
    return base


def random_placement(choices: Choices, program: Program, mesh: Mesh) -> Placed:
    """A random legal placement of a whole program."""
    func = signature.main_of(program.module)
    ret = signature.return_of(func)
    have: dict[SSAValue, Layout] = {}
    for arg in func.args:
        kinds = ("sum", "max") if types.element_of(arg) != types.I1 and choices.integer(0, 4) == 4 else ()
        have[arg] = random_layout(choices, types.shape_of(arg), mesh, kinds)
    arguments = tuple(have.values())
    placements = []
    for op in func.body.block.ops:
        if op is ret:
            break
        rule = op.rule()
        # An atom over which an operand is partial can go through the op only if it splits nothing there.
        flowing = {a for v in op.operands for a, _ in have[v].partial}
        atoms = [a for a in mesh.atoms if a not in flowing or choices.integer(0, 3) == 3]
        placement = carry(choices, op, rule, rule.place(random_splits(choices, rule, atoms)), have)
        placements.append(placement)
        have.update(zip(op.results, placement.results, strict=True))
    results = []
    for value in ret.operands:
        if choices.integer(0, 2):
            results.append(random_layout(choices, types.shape_of(value), mesh))
        else:
            results.append(have[value])
    return Placed(mesh, tuple(placements), arguments, tuple(results))
