"""The smallest part of a program on which a pass goes wrong.

The value that differs becomes the only result. Then ops are replaced, from the result backwards, by arguments that hold
what the ops compute, as long as the pass still goes wrong.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from rhino.check.by_pass import WrongPass
from rhino.check.names import restore_names, tag_of
from rhino.check.reference import Reference, fit
from rhino.check.values import relative_error
from rhino.dialects import signature
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import GLOBAL_TYPE, LAYOUT
from rhino.dialects.signature import Slot
from rhino.dialects.verify import stage_of, verify
from rhino.ir import types
from rhino.ir.errors import RhinoError, RunError
from rhino.ir.evaluate import run_module
from rhino.passes.widen_floats import widen_floats

#: When to be content with what there is.
TRIALS = 400
SECONDS = 30.0


@dataclass(frozen=True)
class Minimised:
    """A program on which a pass goes wrong, and what it makes of it.

    Attributes:
        arrays: its arguments.
        ops: how many ops it has, `func.return` not counted.
        whole: whether it is the whole program: nothing smaller goes wrong.
    """

    before: ModuleOp
    after: ModuleOp
    arrays: tuple[np.ndarray, ...]
    ops: int
    whole: bool


def minimise(wrong: WrongPass, limit: float) -> Minimised:
    """Look for a small program on which the pass goes wrong in the same value."""
    search = _Search(wrong, limit)
    smallest = search.run()
    whole = smallest is None
    before = wrong.before.clone() if smallest is None else smallest
    arrays = search.given(before)
    after = wrong.after.clone() if smallest is None else wrong.made_by.apply(before.clone())
    for module in (before, after):
        restore_names(module, wrong.names)
    ops = len(list(signature.main_of(before).body.block.ops)) - 1
    return Minimised(before, after, tuple(arrays), ops, whole)


class _Search:
    def __init__(self, wrong: WrongPass, limit: float) -> None:
        self.wrong = wrong
        self.limit = limit
        self.reference: Reference = wrong.reference
        self.trials = 0
        self.deadline = time.perf_counter() + SECONDS

    def run(self) -> ModuleOp | None:
        """The smallest program found, None when only the whole one goes wrong."""
        tag = self.wrong.finding.tag
        target = _find(self.wrong.before, tag) if tag else None
        if target is None:
            return None
        best = self.extract(tag)
        if not self.fails(best):
            return None
        at = 0
        while self.trials < TRIALS and time.perf_counter() < self.deadline:
            ops = [op for op in reversed(list(signature.main_of(best).body.block.ops)) if op.results][1:]
            if at >= len(ops):
                break
            smaller = self.cut(best, at)
            if smaller is not None and self.fails(smaller):
                best = smaller
            else:
                at += 1
        return best

    def extract(self, tag: str) -> ModuleOp:
        """The program that computes one value."""
        module = self.wrong.before.clone()
        module.attributes.clear()  # what a plan says of itself
        func = signature.main_of(module)
        target = _find(module, tag)
        assert target is not None
        roles = {
            tag_of(v): slot.role
            for slot, v in zip(signature.results(func), signature.return_of(func).operands, strict=True)
        }
        signature.return_of(func).operands = [target]
        slot = Slot("result", roles.get(tag) or "output", other=self.attributes(tag))
        func.function_type = FunctionType.from_lists([a.type for a in func.args], [target.type])
        signature.set_results(func, [slot])
        _tidy(module)
        return module

    def cut(self, module: ModuleOp, at: int) -> ModuleOp | None:
        """The program with arguments instead of an op, counted from the end (without the last); None if its values are
        not known.
        """
        module = module.clone()
        func = signature.main_of(module)
        op = [op for op in reversed(list(func.body.block.ops)) if op.results][1:][at]
        used = [result for result in op.results if result.first_use is not None]
        tags = [tag_of(result) for result in used]
        if not all(tag in self.reference.expected for tag in tags):
            return None
        slots = signature.arguments(func)
        for result, tag in zip(used, tags, strict=True):
            slots.append(Slot(self.wrong.names[tag].hint or tag, "input", other=self.attributes(tag)))
            argument = func.body.block.insert_arg(result.type, len(func.args))
            result.replace_all_uses_with(argument)
            argument.name_hint = tag
        inputs = [a.type for a in func.args]
        func.function_type = FunctionType.from_lists(inputs, list(func.function_type.outputs))
        signature.set_arguments(func, slots)
        _tidy(module)
        return module

    def attributes(self, tag: str) -> tuple[tuple[str, Attribute], ...]:
        """Layout and global type, where the program needs them."""
        stage = stage_of(self.wrong.before)
        if stage == "global" or not self.wrong.made_by.local:
            return ()
        want = self.reference.expected[tag]
        shape = want.array.shape
        out: list[tuple[str, Attribute]] = [(LAYOUT, LayoutAttr.of(want.layout, shape, want.mesh))]
        if stage == "local":
            out.append((GLOBAL_TYPE, types.tensor(shape, self.reference.element_types[tag])))
        return tuple(out)

    def given(self, module: ModuleOp) -> list[np.ndarray]:
        """The arguments of a candidate."""
        func = signature.main_of(module)
        return fit(func, [self.reference.expected[tag_of(arg)].array for arg in func.args])

    def fails(self, module: ModuleOp) -> bool:
        """Whether the pass changes what the candidate computes."""
        self.trials += 1
        try:
            verify(module)
            after = self.wrong.made_by.apply(module.clone())
            verify(after)
            (want,) = self.results(module, module)
        except RhinoError:
            return False
        try:
            got = self.results(after, module)
        except RunError:  # devices that must agree do not
            return True
        scale = self.reference.expected[self.wrong.finding.tag].scale
        return len(got) < 1 or not relative_error(got[0], want, scale) <= self.limit

    def results(self, module: ModuleOp, arguments_of: ModuleOp) -> Sequence[np.ndarray]:
        arrays = [self.reference.expected[tag_of(a)].array for a in signature.main_of(arguments_of).args]
        if self.reference.widen:
            module = module.clone()
            widen_floats(module)
        return run_module(module, fit(signature.main_of(module), arrays))


def _find(module: ModuleOp, tag: str) -> SSAValue | None:
    block = signature.main_of(module).body.block
    values = (*block.args, *(result for op in block.ops for result in op.results))
    return next((v for v in values if tag_of(v) == tag), None)


def _tidy(module: ModuleOp) -> None:
    """Remove ops and arguments that nothing uses."""
    func = signature.main_of(module)
    block = func.body.block
    ret = signature.return_of(func)
    op: Operation | None = ret.prev_op
    while op is not None:
        previous = op.prev_op
        if all(result.first_use is None for result in op.results):
            block.erase_op(op)
        op = previous
    slots = signature.arguments(func)
    kept = []
    for argument, slot in zip(tuple(block.args), slots, strict=True):
        if argument.first_use is None:
            block.erase_arg(argument)
        else:
            kept.append(slot)
    func.function_type = FunctionType.from_lists([a.type for a in block.args], [v.type for v in ret.operands])
    signature.set_arguments(func, kept)
