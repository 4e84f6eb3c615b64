"""Does a pass keep the meaning? Run the module before and after it on random inputs and compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType

from rhino.dialects import signature
from rhino.dialects.signature import Slot
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.evaluate import run_module

#: Inputs are small integers: sums and products of them are exact, whatever the order.
_LOW, _HIGH = -3, 4


@dataclass(frozen=True)
class Outcome:
    """Results of a run, and what they are."""

    results: tuple[np.ndarray, ...]
    slots: tuple[Slot, ...]


class Inputs:
    """Random arguments for `@main`, the same for an argument of the same place (or name) in every module."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.known: dict[tuple[str, str], np.ndarray] = {}

    def run(self, module: ModuleOp) -> Outcome:
        """Run a module of any stage on its inputs."""
        func = signature.main_of(module)
        slots = signature.arguments(func)
        arrays = [
            self._array(i, slot, _global_type(slot, arg.type))
            for i, (slot, arg) in enumerate(zip(slots, func.args, strict=True))
        ]
        results = run_module(module, arrays)
        return Outcome(tuple(results), tuple(signature.results(func)))

    def _array(self, index: int, slot: Slot, type: types.Type) -> np.ndarray:
        key = (slot.role, f"{slot.name}/{slot.slot}" if slot.name else str(index))
        dtype, shape = types.numpy_dtype(type.element_type), slot.extent or tuple(type.get_shape())
        known = self.known.get(key)
        if known is None or known.shape != shape:
            known = self._draw(len(self.known), slot, dtype, shape)
            self.known[key] = known
        return known.astype(dtype)

    def _draw(self, number: int, slot: Slot, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        if slot.role == "state":
            return np.zeros(shape, dtype)
        rng = np.random.default_rng([self.seed, number])
        if dtype.kind in "bi":  # integers are often indices, so they stay small and not negative
            return rng.integers(0, 2, shape).astype(dtype)
        return rng.integers(_LOW, _HIGH, shape).astype(dtype)


def compare(before: Outcome, after: Outcome, name: str) -> str:
    """Compare the results that both modules have; returns a line that says how equal they are.

    Raises ProgramError that names the pass and the first result that differs.
    """
    pairs = _pairs(before.slots, after.slots)
    worst = 0.0
    for i, j in pairs:
        error = difference(before.results[i], after.results[j])
        if error is None:
            label = f"result {i}" + (f" ({before.slots[i].name})" if before.slots[i].name else "")
            raise ProgramError(
                f"pass {name} changes the meaning: {label} is\n{_head(after.results[j])}\n"
                f"but was\n{_head(before.results[i])}"
            )
        worst = max(worst, error)
    rest = len(before.results) - len(pairs)
    count = "1 result" if len(pairs) == 1 else f"{len(pairs)} results"
    text = f"{name}: {count} equal" if worst == 0 else f"{name}: {count} within {worst:.1e}"
    return f"{text}, {rest} of before not among those after" if rest else text


def difference(want: np.ndarray, got: np.ndarray) -> float | None:
    """The largest difference relative to the largest value: 0 if exact, None if it cannot be rounding."""
    if want.shape != got.shape or (want.dtype.kind in "bi") != (got.dtype.kind in "bi"):
        return None
    if want.dtype.kind in "bi":
        return 0.0 if np.array_equal(want, got) else None
    tolerance = max(_tolerance(want.dtype), _tolerance(got.dtype))
    a, b = want.astype(np.float64), got.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    if not (np.isfinite(a[~same]).all() and np.isfinite(b[~same]).all()):
        return None
    scale = max(1.0, float(np.abs(a[np.isfinite(a)]).max()))
    error = float(np.abs(a[~same] - b[~same]).max()) / scale
    return error if error <= tolerance else None


def _tolerance(dtype: np.dtype) -> float:
    """Room for a different order of a few thousand roundings."""
    by_size: Mapping[int, float] = {8: 1e-10, 4: 1e-4, 2: 0.1}
    return by_size[dtype.itemsize]


def _pairs(before: Sequence[Slot], after: Sequence[Slot]) -> list[tuple[int, int]]:
    """Which results correspond: by role and name where both are given, else by position."""
    named = {(s.role, s.name): j for j, s in enumerate(after) if s.name}
    out = []
    for i, slot in enumerate(before):
        if slot.name:
            if (slot.role, slot.name) in named:
                out.append((i, named[slot.role, slot.name]))
        elif i < len(after) and not after[i].name:
            out.append((i, i))
    return out


def _global_type(slot: Slot, local: object) -> types.Type:
    found = dict(slot.other).get("dist.global_type", local)
    if not isinstance(found, TensorType):
        raise ProgramError(f"@main takes an argument of type {found}, which is no tensor")
    return found


def _head(array: np.ndarray) -> str:
    return np.array2string(array.astype(np.float64), threshold=16, edgeitems=3)
