"""A program through its passes, one after the other: the first pass after which it computes something else.

Passes on the whole program are judged by its results. From the placed program on, every value that the passes kept is
compared as well, cut by its layout: a wrong value that these numbers happen to hide (behind a maximum, say) counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from rhino.check.names import Name, name_values, restore_names
from rhino.check.reference import Reference, fit, result_key
from rhino.check.trace import Finding, first_difference
from rhino.dialects import signature
from rhino.dialects.verify import verify
from rhino.ir import types
from rhino.ir.errors import RhinoError
from rhino.ir.evaluate import PerRank
from rhino.passes.widen_floats import widen_floats


@dataclass(frozen=True)
class Pass:
    """A step of a pipeline.

    Attributes:
        apply: returns the new module; it may change the one it is given.
        local: whether it takes a placed or a local module.
        folds: whether it may compute constants. It is then shown the program in f64 already where the comparison is in
            f64, so that what it rounds to the program's own types does not count.
        drops: roles of results that it may leave out.
    """

    name: str
    apply: Callable[[ModuleOp], ModuleOp]
    local: bool = False
    folds: bool = False
    drops: tuple[str, ...] = ()


@dataclass(frozen=True)
class Passed:
    """A pass that kept the meaning: how many results and, for local passes, named values were compared."""

    name: str
    results: int
    values: int
    seconds: float


@dataclass(frozen=True)
class WrongPass:
    """The first pass that changed the meaning.

    Attributes:
        number: its place in the pipeline, from 1.
        before, after: the module that it was given and what it made of it; values are called as `names` says.
        reference: what the values of `before` are.
    """

    made_by: Pass
    number: int
    finding: Finding
    before: ModuleOp
    after: ModuleOp
    names: Mapping[str, Name]
    reference: Reference


@dataclass
class Outcome:
    """All passes up to the first wrong one, and the module at the end (of the last pass that was right)."""

    module: ModuleOp
    passed: list[Passed] = field(default_factory=list)
    wrong: WrongPass | None = None


def check_passes(
    module: ModuleOp,
    passes: Sequence[Pass],
    arrays: Mapping[str, np.ndarray],
    *,
    limit: float,
    widen: bool = True,
    floor: float = 0.0,
    tell: Callable[[str], None] = lambda name: None,
) -> Outcome:
    """Run the passes on a module (which is left as it was) until one changes what it computes.

    Args:
        arrays: a value for every argument that any of the modules has, by name.
        limit: the greatest relative error that counts as equal.
        widen: compute everything in f64.
        floor: the least scale of a value in the middle of a placed or local program (see `Expected`): what is nothing
            but rounding is not its own measure where all numbers are about one.
        tell: told the name of every pass before it runs.

    Raises what the passes raise.
    """
    out = Outcome(module.clone())
    chain = _Chain(arrays, limit, widen, floor)
    for number, each in enumerate(passes, 1):
        tell(each.name)
        began = time.perf_counter()
        step = chain.local(out.module, each) if each.local else chain.whole(out.module, each)
        if step.finding is not None:
            out.wrong = WrongPass(
                each, number, step.finding, step.before, step.after, step.names, step.reference
            )
            return out
        out.module = step.next
        values = len(step.reference.expected) if each.local else 0
        out.passed.append(Passed(each.name, len(step.reference.results), values, time.perf_counter() - began))
    return out


@dataclass(frozen=True)
class _Step:
    before: ModuleOp
    after: ModuleOp
    next: ModuleOp
    names: Mapping[str, Name]
    reference: Reference
    finding: Finding | None


class _Chain:
    """What one pass hands to the next: local passes share the reference of the placed module."""

    def __init__(self, arrays: Mapping[str, np.ndarray], limit: float, widen: bool, floor: float) -> None:
        self.arrays = arrays
        self.limit = limit
        self.widen = widen
        self.floor = floor
        self.placed: tuple[Reference, Mapping[str, Name]] | None = None

    def given(self, module: ModuleOp) -> list[np.ndarray]:
        """The arguments of a module, in the types that they are known in, with zeros where it holds padding."""
        func = signature.main_of(module)
        out = []
        for slot, arg in zip(signature.arguments(func), func.args, strict=True):
            array, held = self.arrays[slot.name], types.shape_of(arg)
            if array.shape == slot.extent:
                array = np.pad(array, [(0, n - e) for n, e in zip(held, array.shape, strict=True)])
            out.append(array)
        return out

    def widened(self, module: ModuleOp, widen: bool) -> list[PerRank]:
        """The arguments of a module for one device, in its types or with all floats in f64."""
        func = signature.main_of(module)
        arrays = self.given(module)
        if not widen:
            return [[array] for array in fit(func, arrays)]
        return [
            [a.astype(np.float64) if types.is_float(types.element_of(arg)) else a]
            for a, arg in zip(arrays, func.args, strict=True)
        ]

    def whole(self, current: ModuleOp, each: Pass) -> _Step:
        """A pass on a program for one device."""
        before = current.clone()
        if self.widen and each.folds:
            widen_floats(before)
        names = name_values(before)
        reference = Reference.of(
            before, names, self.given(before), widen=self.widen and not each.folds, alone=True
        )
        after = each.apply(before.clone())
        finding = _malformed(after) or _lost(after, reference, each)
        if finding is None:
            finding = first_difference(
                after,
                reference,
                self.limit,
                self.widened(after, reference.widen),
                only_if_results_differ=True,
            )
        if self.widen and each.folds:
            following = each.apply(current.clone())
        else:
            following = after.clone()
            restore_names(following, names)
        return _Step(before, after, following, names, reference, finding)

    def local(self, current: ModuleOp, each: Pass) -> _Step:
        """A pass on a placed or a local program; `current` has names from the first one on."""
        if self.placed is None:
            before = name_values(current)
            arrays = self.given(current)
            self.placed = Reference.of(current, before, arrays, widen=self.widen, floor=self.floor), before
        reference, names = self.placed
        after = each.apply(current.clone())
        finding = _malformed(after) or _lost(after, reference, each)
        if finding is None:
            finding = first_difference(after, reference, self.limit)
        return _Step(current, after, after, names, reference, finding)


def _malformed(module: ModuleOp) -> Finding | None:
    try:
        verify(module)
    except RhinoError as error:
        return Finding("verify", error.where, "the module", "", float("inf"), (), error.message, ())
    return None


def _lost(module: ModuleOp, reference: Reference, each: Pass) -> Finding | None:
    """A result that is gone."""
    func = signature.main_of(module)
    have = {result_key(slot, i) for i, slot in enumerate(signature.results(func))}
    for key, tag in reference.results.items():
        if key not in have and key[0] not in each.drops:
            detail = f"the {key[0] or 'result'} {key[1]} is not returned any more"
            ret = signature.return_of(func)
            return Finding(ret.name, None, f"result {key[1]}", tag, float("inf"), (), detail, (ret,))
    return None
