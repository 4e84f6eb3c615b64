"""Triton source for pointwise and row kernels, and the statements that all kernels share.

Sizes are static, so they stand in the text as numbers; a kernel's only run-time arguments are its pointers.
All floating-point work is done in f32 and rounded once, at the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rhino.kernels.expressions import COMPUTE, REDUCE
from rhino.kernels.region import Buffer, Compute, KernelSpec, Load, Reduce, Store, contiguous, offset

INDENT = "    "


@dataclass(frozen=True)
class Axis:
    """A group of loop dims walked by one index variable, e.g. all row dims by ``r``."""

    first: int
    last: int
    variable: str
    mask: str


def address(
    spec: KernelSpec, strides: tuple[int, ...], axes: tuple[Axis, ...], row: bool, *, whole: bool = False
) -> tuple[str, str]:
    """``(offset expression, mask expression)`` of a load or store; `whole` gives it the shape of the tile."""
    terms, masks = [], []
    for axis in axes:
        if row and axis.last > len(spec.loop) - spec.cols:
            continue
        part = slice(axis.first, axis.last)
        term = offset(spec.loop[part], strides[part], axis.variable)
        if term:
            terms.append(term)
        elif whole and axis.mask:
            terms.append(f"{axis.variable} * 0")
        if axis.mask:
            masks.append(axis.mask)
    return " + ".join(terms) or "0", " & ".join(masks)


def statement_lines(spec: KernelSpec, axes: tuple[Axis, ...], full_mask: str) -> list[str]:
    """The body that loads, computes and stores, in the order of the spec's statements."""
    lines: list[str] = []
    for s in spec.statements:
        if isinstance(s, Load):
            where, mask = address(spec, s.strides, axes, s.row)
            guard = f", mask={mask}, other=0" if mask and where != "0" else ""
            # A scalar load needs no mask; loads of one element are cheap and uniform.
            lines.append(f"{s.result} = tl.load({s.buffer.name} + {where}{guard}){cast(s.buffer)}")
        elif isinstance(s, Compute):
            lines.append(f"{s.result} = {s.text.format(*s.arguments)}")
        elif isinstance(s, Reduce):
            text, neutral = REDUCE[s.kind]
            lines.append(f"{s.result}_row = tl.where({full_mask}, {s.argument}, {neutral})")
            lines.append(f"{s.result} = {text.format(f'{s.result}_row')}[:, None]")
        else:
            lines.append(store_line(spec, s, axes))
    return lines


def store_line(spec: KernelSpec, store: Store, axes: tuple[Axis, ...]) -> str:
    rank = len(spec.loop)
    shape = spec.loop[: rank - spec.cols] if store.row else spec.loop
    strides = contiguous(shape) + ((0,) * spec.cols if store.row else ())
    where, mask = address(spec, strides, axes, store.row, whole=True)
    guard = f", mask={mask}" if mask else ""
    return f"tl.store({store.buffer.name} + {where}, {store.value}{guard})"


def cast(buffer: Buffer) -> str:
    """Loads are widened to what the kernel computes in."""
    return f".to({COMPUTE[buffer.element]})" if buffer.element in ("f16", "bf16") else ""


def source(name: str, spec: KernelSpec, lines: list[str], constants: Mapping[str, str], note: str) -> str:
    """A whole module: imports, signature, a comment that says what the kernel is, and its body."""
    arguments = ", ".join([*(b.name for b in spec.buffers), *(f"{c}: tl.constexpr" for c in constants)])
    shapes = ", ".join(f"{b.name}: {b.element}{list(b.shape)}" for b in spec.buffers)
    head = [
        "import triton",
        "import triton.language as tl",
        "",
        "",
        "@triton.jit",
        f"def {name}({arguments}):",
        f"{INDENT}# {note}",
        f"{INDENT}# {shapes}",
    ]
    return "\n".join([*head, *(INDENT + line for line in lines)]) + "\n"


def pointwise(name: str, spec: KernelSpec) -> str:
    """One flat loop over all points, BLOCK of them per program."""
    axes = (Axis(0, len(spec.loop), "i", "m"),)
    lines = [
        "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        f"m = i < {spec.points}",
        *statement_lines(spec, axes, "m"),
    ]
    note = f"pointwise over {list(spec.loop)}"
    return source(name, spec, lines, {"BLOCK": "points per program"}, note)


def rows(name: str, spec: KernelSpec) -> str:
    """ROWS rows per program, each held whole in COLS (a power of two) lanes."""
    split = len(spec.loop) - spec.cols
    axes = (Axis(0, split, "r", "rm"), Axis(split, len(spec.loop), "c", "cm"))
    lines = [
        "r = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]",
        "c = tl.arange(0, COLS)[None, :]",
        f"rm = r < {spec.row_count}",
        f"cm = c < {spec.column_count}",
        "m = rm & cm",
        *statement_lines(spec, axes, "m"),
    ]
    note = f"{spec.row_count} rows of {spec.column_count}, loop {list(spec.loop)}"
    return source(name, spec, lines, {"ROWS": "rows per program", "COLS": "padded row length"}, note)
