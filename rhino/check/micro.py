"""Do several small batches compute what the batch does? Decided on small shapes, whatever the size.

The program is placed on a virtual mesh whose devices are the micro-batches, made small as a plan is, by
`rhino.check.shrink`, which keeps what layouts divide, and read without its layouts again: a small program for one
device, of the same ops, whose batch still divides. The pass is run on it, and what both compute is compared in f64.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from rhino.check.by_pass import Outcome, Pass, check_passes
from rhino.check.shrink import shrink
from rhino.check.values import TOLERANCE
from rhino.dialects import signature
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import LAYOUT, with_attribute
from rhino.ir import types
from rhino.ir.mesh import Mesh
from rhino.passes.follow import follow_pins
from rhino.passes.inline_composites import inline_composites
from rhino.passes.micro_split import AXIS, batch_digits, decide
from rhino.passes.microbatch import microbatch
from rhino.passes.place import place
from rhino.planner.explain import unplaced_module


def small_program(program: ModuleOp, count: int) -> ModuleOp:
    """A global-stage program on small shapes whose batch `count` micro-batches divide; the argument stays as it was.

    Raises RhinoError where there is no small form.
    """
    module = program.clone()
    inline_composites(module)
    func = signature.main_of(module)
    mesh = Mesh(((AXIS, count),))
    digits = batch_digits(func, count)
    slots = [
        with_attribute(slot, LAYOUT, LayoutAttr.of(digits[arg], types.shape_of(arg), mesh))
        if arg in digits
        else slot
        for slot, arg in zip(signature.arguments(func), func.args, strict=True)
    ]
    signature.set_arguments(func, slots)
    decided = follow_pins(module, mesh)
    place(module, mesh, decided.placements, decided.arguments, decided.results)
    return unplaced_module(shrink(module, count).module)[0]


def same_split(program: ModuleOp, small: ModuleOp, count: int) -> bool:
    """Whether the pass decides alike for all ops of a program and of its small form."""
    whole = program.clone()
    inline_composites(whole)
    a, b = (decide(signature.main_of(m), count) for m in (whole, small))
    ours, theirs = list(a.when.items()), list(b.when.items())
    return len(ours) == len(theirs) and all(
        x.name == y.name and w == v for (x, w), (y, v) in zip(ours, theirs, strict=True)
    )


def check_micro_batches(program: ModuleOp, count: int, arrays: Mapping[str, np.ndarray]) -> Outcome:
    """Run the pass on a global program, and compare what is computed of these arguments (by name)."""

    def split(module: ModuleOp) -> ModuleOp:
        microbatch(module, count)
        return module

    return check_passes(program, [Pass("microbatch", split)], arrays, limit=TOLERANCE["float64"])
