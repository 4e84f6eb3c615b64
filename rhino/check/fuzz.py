"""Random programs under random layouts on random meshes, each through all passes, bit by bit.

The programs compute with small integers, so every order of additions gives the same bits: results and values must be
equal exactly. A case follows from its seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from rhino.check.by_pass import Pass, WrongPass, check_passes
from rhino.check.choices import Choices, Seeded
from rhino.check.names import tag_of
from rhino.check.random_layouts import random_layout, random_placement, random_splits
from rhino.check.random_ops import Program
from rhino.check.random_programs import MESHES, SMOOTH, add_loss, random_program
from rhino.dialects import signature
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import LAYOUT, set_layouts, with_attribute
from rhino.dialects.hlo.base import HloOp
from rhino.ir import types
from rhino.ir.errors import RhinoError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.rule import Placement
from rhino.passes import PASSES
from rhino.passes.place import place

CLEANUPS = ("canonicalize", "cse", "dce", "fold-constants")
LOCAL = ("spmd", "fuse-collectives", *CLEANUPS, "fuse")
#: What a random case is; half of them are placements of the program itself.
KINDS = ("placement", "placement", "pins", "gradient")

#: What a pass that is wrong may raise.
CRASHES = (RhinoError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError)


@dataclass(frozen=True)
class Case:
    """A program, what it is called with, and the passes that it goes through."""

    kind: str
    mesh: Mesh
    program: Program
    passes: tuple[Pass, ...]
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True)
class Failure:
    """A case that went wrong.

    Attributes:
        wrong: the pass that changed the meaning; None when one failed.
        crashed: name of the pass that failed, what it raised, and the module that it was given.
    """

    seed: str
    wrong: WrongPass | None = None
    crashed: tuple[str, str, ModuleOp] | None = None


def run_case(seed: str) -> tuple[int, Failure | None]:
    """Draw a case and run it: how many passes were right, and what was not."""
    case = draw_case(seed)
    given: list[tuple[str, ModuleOp]] = []

    def noting(each: Pass) -> Pass:
        def apply(module: ModuleOp) -> ModuleOp:
            given[:] = [(each.name, module.clone())]
            return each.apply(module)

        return Pass(each.name, apply, each.local, each.folds, each.drops)

    try:
        passes = [noting(each) for each in case.passes]
        outcome = check_passes(case.program.module, passes, case.arrays, limit=0.0, widen=False)
    except CRASHES as error:
        name, module = given[-1] if given else ("none", case.program.module)
        return 0, Failure(seed, crashed=(name, f"{type(error).__name__}: {error}", module))
    return len(outcome.passed), Failure(seed, outcome.wrong) if outcome.wrong is not None else None


def draw_case(seed: str) -> Case:
    """The case of a seed."""
    choices = Seeded(seed)
    mesh = Mesh.parse(choices.pick(MESHES))
    kind = choices.pick(KINDS)
    passes: list[Pass] = []
    if kind == "gradient":
        program = add_loss(random_program(choices, [SMOOTH], 10))
        passes.append(_named("autodiff"))
    else:
        program = random_program(choices, max_ops=14)
    if kind == "pins":
        _pin(choices, program.module, mesh)
        how = choices.pick(["propagate", "place"])
        passes.append(Pass(how, lambda m: _apply(PASSES[how]()(mesh=str(mesh)), m)))  # type: ignore[call-arg]
    else:
        if choices.flip():
            passes += [_named(name) for name in CLEANUPS]
        passes.append(Pass("place", _Placing(choices, mesh)))
    passes += [_named(name, local=True) for name in LOCAL]
    arrays = program.data(choices.integer(0, 99))
    return Case(kind, mesh, program, tuple(passes), {f"a{i}": a for i, a in enumerate(arrays)})


def _named(name: str, *, local: bool = False) -> Pass:
    return Pass(name, lambda module: _apply(PASSES[name]()(), module), local)


def _apply(each: ModulePass, module: ModuleOp) -> ModuleOp:
    each.apply(Context(), module)
    return module


class _Placing:
    """`place` with a random legal placement; drawn once, then kept for the values of these names."""

    def __init__(self, choices: Choices, mesh: Mesh) -> None:
        self.choices = choices
        self.mesh = mesh
        self.placements: dict[str, Placement] = {}
        self.layouts: dict[str, Layout] = {}

    def __call__(self, module: ModuleOp) -> ModuleOp:
        func = signature.main_of(module)
        ops = [op for op in func.body.block.ops if op.results]
        returned: Sequence[Layout] | None = None
        if not self.layouts:
            chosen = random_placement(self.choices, Program(module, ()), self.mesh)
            returned = chosen.results
            for arg, layout in zip(func.args, chosen.arguments, strict=True):
                self.layouts[tag_of(arg)] = layout
            for op, placement in zip(ops, chosen.placements, strict=True):
                self.placements[tag_of(op.results[0])] = placement
                for result, layout in zip(op.results, placement.results, strict=True):
                    self.layouts[tag_of(result)] = layout
        if returned is None:
            returned = [self.layouts[tag_of(v)] for v in signature.return_of(func).operands]
        arguments = [self.layouts[tag_of(arg)] for arg in func.args]
        placements = {op: self.placements[tag_of(op.results[0])] for op in ops}
        place(module, self.mesh, placements, arguments, returned)
        return module


def _pin(choices: Choices, module: ModuleOp, mesh: Mesh) -> None:
    """Pin some arguments, results and ops; ops to something that their rules can yield."""
    func = signature.main_of(module)
    arguments, results = signature.arguments(func), signature.results(func)
    for slots, values in ((arguments, func.args), (results, signature.return_of(func).operands)):
        for i, value in enumerate(values):
            if choices.flip():
                shape = types.shape_of(value)
                attr = LayoutAttr.of(random_layout(choices, shape, mesh), shape, mesh)
                slots[i] = with_attribute(slots[i], LAYOUT, attr)
    signature.set_arguments(func, arguments)
    signature.set_results(func, results)
    for op in func.body.block.ops:
        if isinstance(op, HloOp) and choices.integer(0, 4) == 4:
            rule = op.rule()
            set_layouts(op, rule.place(random_splits(choices, rule, mesh.atoms)).results, mesh)


def fuzz(count: int, seed: int, tell: Callable[[int, int], None]) -> tuple[int, Failure | None]:
    """Run so many cases, up to the first that goes wrong.

    Args:
        tell: told how many cases and passes were right, after each.

    Returns how many cases were right, and the one that was not.
    """
    passes = 0
    for i in range(count):
        done, failure = run_case(f"{seed}/{i}")
        passes += done
        if failure is not None:
            return i, failure
        tell(i + 1, passes)
    return count, None
