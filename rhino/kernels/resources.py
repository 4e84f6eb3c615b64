"""Compile a generated kernel for a GPU that is not there, and read what it would use.

Works without a driver: Triton's wheels ship ptxas and cuobjdump. The process must not have TRITON_INTERPRET set,
since Triton reads it when a kernel is defined.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rhino.ir.errors import RhinoError
from rhino.kernels import module
from rhino.kernels.expressions import POINTER
from rhino.kernels.launch import Generated, interpreted

#: Shared memory of one block in bytes, by compute capability.
SHARED_LIMIT = {80: 166912, 90: 232448, 100: 232448}


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel uses.

    Attributes:
        registers: per thread.
        spill_bytes: spilled to local memory, stores and loads added.
        shared_bytes: shared memory of a block.
        tensor_core: the tensor-core instruction found (``HGMMA``, ``HMMA``, ``UTCHMMA``), or None.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int
    tensor_core: str | None


def compile_for(made: Generated, capability: int = 90) -> Resources:
    """Compile for sm_`capability` (80, 90 or 100). Raises RhinoError under TRITON_INTERPRET."""
    if interpreted():
        raise RhinoError(
            "kernels cannot be compiled while TRITON_INTERPRET is set", remedy="unset TRITON_INTERPRET"
        )
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel: Any = getattr(module.load(made.name, made.text), made.name)
    signature = {b.name: POINTER[b.element] for b in made.spec.buffers}
    signature |= {name: "constexpr" for name, _ in made.constants}
    names = list(kernel.arg_names)
    # Buffers come from an allocator that aligns to far more than 16 bytes; the launcher would find this out.
    aligned = {(names.index(b.name),): [["tt.divisibility", 16]] for b in made.spec.buffers}
    compiled = triton.compile(
        ASTSource(kernel, signature, {(names.index(n),): v for n, v in made.constants}, aligned),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": made.warps, "num_stages": made.stages, "enable_fp_fusion": True},
    )
    sass = _sass(compiled.asm["cubin"])
    found = next((i for i in ("HGMMA", "UTCHMMA", "HMMA") if i in sass), None)
    registers, spills = _assemble(compiled.asm["ptx"], capability)
    return Resources(registers, spills, int(compiled.metadata.shared), found)


def _tools() -> Path:
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def _assemble(ptx: str, capability: int) -> tuple[int, int]:
    """Registers and spilled bytes as the assembler reports them."""
    suffix = "a" if capability >= 90 else ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.ptx")
        path.write_text(ptx)
        report = ""
        # Newer Tritons write PTX that only the newer of their two assemblers reads.
        for tool in ("ptxas", "ptxas-blackwell"):
            done = subprocess.run(
                [
                    _tools() / tool,
                    "-v",
                    "--gpu-name",
                    f"sm_{capability}{suffix}",
                    path,
                    "-o",
                    Path(folder, "out"),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            report = done.stdout + done.stderr
            if done.returncode == 0:
                break
        else:
            raise RhinoError(f"the PTX of a kernel does not assemble for sm_{capability}: {report.strip()}")
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    registers = re.search(r"Used (\d+) registers", report)
    if spills is None or registers is None:
        raise RhinoError(f"cannot read the assembler's report: {report.strip()}")
    return int(registers[1]), int(spills[1]) + int(spills[2])


def _sass(cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        done = subprocess.run(
            [_tools() / "cuobjdump", "--dump-sass", path],
            capture_output=True,
            text=True,
            check=True,
            env={"PATH": f"{_tools()}:{os.environ.get('PATH', '')}"},  # cuobjdump looks for nvdisasm there
        )
    return done.stdout
