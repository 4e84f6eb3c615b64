"""`rhino check --by-pass`: the pipeline pass by pass, and what is written where it goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rhino.check.by_pass import Outcome, Pass, WrongPass, check_passes
from rhino.check.minimise import minimise
from rhino.check.values import TOLERANCE
from rhino.cli.planning import Request, make_plan
from rhino.cli.source import to_train
from rhino.dialects import signature
from rhino.dialects.text import print_module
from rhino.ir.errors import UsageError
from rhino.ir.optimizers import Optimizer
from rhino.passes import PASSES

#: Where the files go if nothing else is said.
FOLDER = "rhino-check"
CLEANUPS = ("fold-constants", "canonicalize", "cse", "dce")
LOCAL = ("spmd", "fuse-collectives", "fuse")


def pipeline(forward: ModuleOp, optimizer: Optimizer, plan: Callable[[ModuleOp], ModuleOp]) -> list[Pass]:
    """All passes from a forward module (or a whole step) to the kernels of the local program, as `rhino run` uses them.

    `plan` makes the placed module of a training step.
    """
    first: list[Pass] = [_named("inline-composites")]
    if to_train(forward):
        first = [_named("autodiff"), _optimizer(optimizer)]
    return [
        *first,
        *(_named(name, folds=True) for name in CLEANUPS),
        Pass("plan", plan),
        *(_named(name, local=True) for name in LOCAL),
    ]


def _named(name: str, *, local: bool = False, folds: bool = False) -> Pass:
    """A pass without options."""

    def apply(module: ModuleOp) -> ModuleOp:
        PASSES[name]()().apply(Context(), module)
        return module

    return Pass(name, apply, local, folds)


def _optimizer(optimizer: Optimizer) -> Pass:
    def apply(module: ModuleOp) -> ModuleOp:
        from rhino.passes.optimizer import add_optimizer

        add_optimizer(module, optimizer, keep_gradients=False)
        return module

    return Pass("optimizer", apply, drops=("gradient",))


def run_by_pass(
    forward: ModuleOp,
    step: ModuleOp,
    arrays: Sequence[np.ndarray],
    optimizer: Optimizer,
    request: Request,
    mode: str,
    tell: Callable[[str], None],
) -> Outcome:
    """Run every pass that makes the distributed program, until one is wrong.

    Args:
        step: the training step of `forward`, and `arrays` its arguments.
    """

    def plan(module: ModuleOp) -> ModuleOp:
        # A plan file names its program by a hash, in which the names of values count.
        return make_plan(step if request.file is not None else module, request).module

    slots = signature.arguments(signature.main_of(step))
    known = {slot.name: array for slot, array in zip(slots, arrays, strict=True)}
    return check_passes(
        forward,
        pipeline(forward, optimizer, plan),
        known,
        limit=TOLERANCE[mode],
        tell=tell,
    )


def write_wrong(wrong: WrongPass, limit: float, folder: str) -> dict[str, Any]:
    """Minimise and write: the module before and after the pass, its arguments, and what was found.

    Returns the report that was written, and its files. Raises UsageError when the folder cannot be written.
    """
    small = minimise(wrong, limit)
    root = Path(folder)
    name, finding = wrong.made_by.name, wrong.finding
    report: dict[str, Any] = {
        "pass": name,
        "number": wrong.number,
        "op": finding.op,
        "where": finding.where,
        "value": finding.value,
        "error": finding.error,
        "ranks": list(finding.ranks),
        "detail": finding.detail,
        "text": finding.text(),
        "ops": small.ops,
        "whole": small.whole,
        "files": [
            str(root / f"{name}.{end}") for end in ("before.mlir", "after.mlir", "arguments.npz", "json")
        ],
    }
    try:
        root.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.before.mlir").write_text(print_module(small.before, debug=True))
        (root / f"{name}.after.mlir").write_text(print_module(small.after, debug=True))
        np.savez(root / f"{name}.arguments.npz", *small.arrays)
        (root / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    except OSError as error:
        raise UsageError(
            f"cannot write to '{folder}': {error.strerror}", remedy="give another --out-dir"
        ) from error
    return report
