"""Draws StableHLO programs of one op in generic form: constants, the op, its results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from rhino.ir import types

FLOATS = ("f64", "f32", "f16", "bf16")
FLOAT8 = ("f8E3M4", "f8E4M3", "f8E4M3FN", "f8E5M2", "f8E4M3B11FNUZ", "f8E4M3FNUZ", "f8E5M2FNUZ")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("ui8", "ui16", "ui32", "ui64")
INTEGERS = (*SIGNED, *UNSIGNED)
COMPLEX = ("complex<f32>", "complex<f64>")
PART = {"complex<f32>": "f32", "complex<f64>": "f64"}


def tensor(shape: Sequence[int], element: str) -> str:
    return "tensor<" + "".join(f"{n}x" for n in shape) + element + ">"


def array(values: Iterable[int]) -> str:
    found = ", ".join(map(str, values))
    return f"array<i64: {found}>" if found else "array<i64>"


def pairs(rows: Sequence[Sequence[int]]) -> str:
    return (
        f"dense<{[list(r) for r in rows]}> : tensor<{len(rows)}x2xi64>"
        if rows
        else "dense<> : tensor<0x2xi64>"
    )


def literal(values: np.ndarray, element: str) -> str:
    """``dense<...> : type``, as numbers for i1 and as bytes for all others."""
    if values.size == 0:
        text = ""
    elif element == "i1":
        text = np.array2string(values, separator=", ", threshold=1 << 30).lower()
    else:
        text = '"0x' + np.ascontiguousarray(values).tobytes().hex().upper() + '"'
    return f"dense<{text}> : {tensor(values.shape, element)}"


def special(random: np.random.Generator, element: str, count: int, wild: bool = True) -> np.ndarray:
    """Numbers of all sizes, and if `wild` those at the borders: infinities, NaN, subnormals, the largest integers."""
    dtype = types.numpy_dtype(types.element(element))
    if element == "i1":
        return random.integers(0, 2, count).astype(np.bool_)
    if element in COMPLEX:
        z = np.empty(count, dtype)
        z.real, z.imag = (special(random, PART[element], count, wild) for _ in range(2))
        return z
    if element in INTEGERS:
        info = np.iinfo(dtype)
        edges = [0, 1, 2, 3, 7, 8 * dtype.itemsize - 1, 8 * dtype.itemsize, info.min, info.max, info.max // 2]
        many = random.integers(info.min, info.max, count, dtype=dtype, endpoint=True)
        few = random.integers(0 if element in UNSIGNED else -9, 20, count).astype(dtype)
        found = np.concatenate([np.array(edges, dtype), few, many])
        return random.permutation(found)[:count]
    near = random.uniform(-4, 4, count).astype(dtype)
    if not wild:
        return near
    info = ml_dtypes.finfo(dtype)
    tiny, large = float(info.smallest_subnormal), float(info.max)
    edges = [0.0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, large, -large, tiny, 100, -7]
    far = random.uniform(-1, 1, count) * 10.0 ** random.uniform(-8, 8, count)
    with np.errstate(all="ignore"):
        found = np.concatenate([np.array(edges).astype(dtype), near, far.astype(dtype)])
    return random.permutation(found)[:count]


class Draw:
    """One program: random choices from a seed, and the lines that they make."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.lines: list[str] = []
        self._names = 0

    # Choices.

    def integer(self, low: int, high: int) -> int:
        """From `low` to `high`, both possible."""
        return int(self.random.integers(low, high + 1))

    def choice(self, items: Sequence[Any]) -> Any:
        return items[self.integer(0, len(items) - 1)]

    def rarely(self) -> bool:
        return self.integer(0, 5) == 0

    def shape(self, low: int = 0, high: int = 3, least: int = 1, most: int = 4) -> list[int]:
        return [self.integer(least, most) for _ in range(self.integer(low, high))]

    def order(self, count: int) -> list[int]:
        return [int(i) for i in self.random.permutation(count)]

    def some(self, count: int) -> list[int]:
        return [i for i in range(count) if self.integer(0, 1)]

    # Lines.

    def name(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def constant(self, shape: Sequence[int], element: str, low: int = -8, high: int = 9) -> str:
        """Small whole and half numbers, of which all sums and products are exact."""
        if element == "i1":
            values = self.random.integers(0, 2, tuple(shape)).astype(np.bool_)
        else:
            low = max(low, 0) if element in UNSIGNED else low
            whole = self.random.integers(low, high + 1, tuple(shape))
            found = whole / 2 if element in FLOATS else whole
            if element in COMPLEX:
                found = whole + 1j * self.random.integers(low, high + 1, tuple(shape))
            values = np.asarray(found).astype(types.numpy_dtype(types.element(element)))
        return self.given(values, element)

    def given(self, values: np.ndarray, element: str) -> str:
        name = self.name()
        self.lines.append(f"  {name} = stablehlo.constant {literal(values, element)}")
        return name

    def op(
        self,
        name: str,
        operands: Sequence[str],
        operand_types: Sequence[str],
        attributes: str,
        result_types: Sequence[str],
        regions: str = "",
    ) -> list[str]:
        """Append an op; the names of its results."""
        own, count = self.name(), len(result_types)
        bound = own if count == 1 else f"{own}:{count}"
        results = result_types[0] if count == 1 else f"({', '.join(result_types)})"
        properties = f" <{{{attributes}}}>" if attributes else ""
        self.lines.append(
            f'  {bound} = "stablehlo.{name}"({", ".join(operands)}){properties} {regions} : '
            f"({', '.join(operand_types)}) -> {results}"
        )
        return [own] if count == 1 else [f"{own}#{i}" for i in range(count)]

    def text(self, results: Sequence[str], result_types: Sequence[str]) -> str:
        """The program. Complex results are returned in parts: jaxlib cannot pass them on."""
        names, kinds = [], []
        for name, kind in zip(results, result_types, strict=True):
            if "complex" not in kind:
                names.append(name)
                kinds.append(kind)
                continue
            part = kind.replace("complex<f32>", "f32").replace("complex<f64>", "f64")
            for side in ("real", "imag"):
                names += self.op(side, [name], [kind], "", [part])
                kinds.append(part)
        body = "\n".join(self.lines)
        all_kinds = ", ".join(kinds)
        return f"func.func @main() -> ({all_kinds}) {{\n{body}\n  func.return {', '.join(names)} : {all_kinds}\n}}"
