"""From a kernel spec to something that runs: source text, launch constants, and a callable on torch tensors."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rhino.ir.errors import UsageError
from rhino.kernels import emit, matmul, module
from rhino.kernels.region import KernelSpec

if TYPE_CHECKING:
    import torch

EMITTERS: dict[str, Callable[[str, KernelSpec], str]] = {
    "pointwise": emit.pointwise,
    "rows": emit.rows,
    "matmul": matmul.matmul,
}


@dataclass(frozen=True)
class Generated:
    """A generated kernel: its readable source and how to launch it."""

    name: str
    text: str
    spec: KernelSpec
    constants: tuple[tuple[str, int], ...]
    grid: tuple[int, ...]
    warps: int
    stages: int


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter (Triton reads the variable when a kernel is defined)."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


def generate(spec: KernelSpec, *, interpret: bool = False) -> Generated:
    """Emit the source and choose launch constants.

    The interpreter pays about a millisecond per program and little per element, a GPU the reverse; only the
    constants differ, never the text.
    """
    anonymous = EMITTERS[spec.kind]("kernel", spec)
    name = module.kernel_name(spec.kind, anonymous)
    text = EMITTERS[spec.kind](name, spec)
    constants: tuple[tuple[str, int], ...]
    if spec.kind == "pointwise":
        block = min(_power_of_two(spec.points), 65536 if interpret else 1024)
        constants = (("BLOCK", block),)
        grid: tuple[int, ...] = (math.ceil(spec.points / block),)
        warps, stages = 4, 1
    elif spec.kind == "rows":
        cols = _power_of_two(spec.column_count)
        per = max(1, min(_power_of_two(spec.row_count), (65536 if interpret else 2048) // cols))
        constants = (("ROWS", per), ("COLS", cols))
        grid = (math.ceil(spec.row_count / per),)
        warps, stages = (4 if cols * per <= 2048 else 8 if cols * per <= 8192 else 16), 1
    else:
        constants, grid, warps, stages = _matmul_launch(spec, interpret)
    return Generated(name, text, spec, constants, grid, warps, stages)


def _matmul_launch(
    spec: KernelSpec, interpret: bool
) -> tuple[tuple[tuple[str, int], ...], tuple[int, ...], int, int]:
    dot = spec.dot
    assert dot is not None
    m, n, k = (math.prod(d) for d in (dot.rows, dot.columns, dot.contracted))
    narrow = dot.lhs.element in ("f16", "bf16")
    # 128x256x64 with 8 warps keeps the tensor cores fed without spills, but leaves no registers for an epilogue;
    # f32 operands take twice the space.
    wide = (128, 256, 64) if len(spec.statements) <= 2 else (128, 128, 64)
    most = (512, 512, 512) if interpret else wide if narrow else (64, 64, 16)
    bm, bn, bk = (min(max(16, _power_of_two(e)), top) for e, top in zip((m, n, k), most, strict=True))
    constants = (("BM", bm), ("BN", bn), ("BK", bk), ("GROUP", 8))
    grid = (math.ceil(m / bm) * math.ceil(n / bn), math.prod(dot.batch))
    return constants, grid, 8 if bm * bn >= 128 * 128 else 4, 3


def compile_kernel(spec: KernelSpec) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """A function from input tensors to output tensors that launches the generated kernel.

    Raises UsageError where kernels cannot run: without triton, or without a GPU and without ``TRITON_INTERPRET=1``.
    """
    import torch

    if importlib.util.find_spec("triton") is None:
        raise UsageError(
            "generated kernels need triton", remedy="pip install 'rhino[triton]', or use torch kernels"
        )
    if not interpreted() and not torch.cuda.is_available():
        raise UsageError(
            "generated kernels need a GPU",
            remedy="set TRITON_INTERPRET=1 to run them on the CPU (slow), or use --kernels torch",
        )

    from rhino.kernels import interpreter

    interpret = interpreted()
    if interpret:
        interpreter.repair()
    made = generate(spec, interpret=interpret)
    kernel: Any = getattr(module.load(made.name, made.text), made.name)
    outputs = [b for b in spec.buffers if b.name.startswith("out")]
    dtypes = {
        "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
        "i1": torch.bool, "i32": torch.int32, "i64": torch.int64,
    }  # fmt: skip
    options: dict[str, Any] = dict(made.constants)
    if not interpret:
        options |= {"num_warps": made.warps, "num_stages": made.stages, "enable_fp_fusion": True}

    def run(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        device = inputs[0].device if inputs else torch.device("cpu" if interpret else "cuda")
        results = [torch.empty(b.shape, dtype=dtypes[b.element], device=device) for b in outputs]
        kernel[made.grid](*(t.contiguous() for t in inputs), *results, **options)
        return results

    return run


def _power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()
