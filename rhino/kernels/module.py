"""Generated source as an importable module: one file per kernel, named by the hash of its text."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType


def cache_folder() -> Path:
    """Where generated kernels are written: ``$RHINO_CACHE``, else the user's cache folder."""
    root = (
        os.environ.get("RHINO_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rhino"
    )
    return Path(root) / "kernels"


def kernel_name(kind: str, text: str) -> str:
    """A readable, content-addressed name; `text` must not contain the name itself."""
    return f"{kind}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def load(name: str, text: str, folder: Path | None = None) -> ModuleType:
    """Write the source to a file (atomically, so that ranks may race) and import it.

    A real file gives line numbers in Triton's errors and in profilers.
    """
    key = f"rhino_kernel_{name}"
    if key in sys.modules:
        return sys.modules[key]
    folder = folder or cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    if not path.exists() or path.read_text() != text:
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    spec = importlib.util.spec_from_file_location(key, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[key] = module
    spec.loader.exec_module(module)
    return module
