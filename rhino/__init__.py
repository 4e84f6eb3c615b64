"""Rhino: a tensor program written for one device in, an equivalent distributed program out.

Names are loaded when they are first used, so that `import rhino` stays quick and needs no torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "SGD": "rhino.ir.optimizers",
    "Adam": "rhino.ir.optimizers",
    "AdamW": "rhino.ir.optimizers",
    "Mesh": "rhino.ir.mesh",
    "RhinoError": "rhino.ir.errors",
    "Program": "rhino.frontend.program",
    "parallelize": "rhino.api",
    "Parallel": "rhino.api",
}

__all__ = ["SGD", "Adam", "AdamW", "Mesh", "Parallel", "Program", "RhinoError", "__version__", "parallelize"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'rhino' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
