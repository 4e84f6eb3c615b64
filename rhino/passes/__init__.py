"""Passes, one file each. `PASSES`: name on the command line -> factory that imports the pass when asked."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.passes import ModulePass


def _pass(module: str, name: str) -> Callable[[], type[ModulePass]]:
    def load() -> type[ModulePass]:
        found: type[ModulePass] = getattr(import_module(module), name)
        return found

    return load


PASSES: dict[str, Callable[[], type[ModulePass]]] = {
    "autodiff": _pass("rhino.passes.autodiff", "AutodiffPass"),
    "canonicalize": _pass("rhino.passes.canonicalize", "CanonicalizePass"),
    "cse": _pass("rhino.passes.cse", "CsePass"),
    "dce": _pass("rhino.passes.dce", "DcePass"),
    "fold-constants": _pass("rhino.passes.fold_constants", "FoldConstantsPass"),
    "fuse": _pass("rhino.passes.fuse", "FusePass"),
    "fuse-collectives": _pass("rhino.passes.fuse_collectives", "FuseCollectivesPass"),
    "inline-composites": _pass("rhino.passes.inline_composites", "InlineCompositesPass"),
    "microbatch": _pass("rhino.passes.microbatch", "MicrobatchPass"),
    "optimizer": _pass("rhino.passes.optimizer", "OptimizerPass"),
    "pad": _pass("rhino.passes.pad", "PadPass"),
    "place": _pass("rhino.passes.place", "PlacePass"),
    "propagate": _pass("rhino.passes.propagate", "PropagatePass"),
    "recompute": _pass("rhino.passes.recompute", "RecomputePass"),
    "spmd": _pass("rhino.passes.spmd", "SpmdPass"),
    "widen-floats": _pass("rhino.passes.widen_floats", "WidenFloatsPass"),
}
