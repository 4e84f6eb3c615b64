"""Runs the checks that a StableHLO test file asks for (``check.expect_close`` and its kin) on the interpreter.

`read_stablehlo` turns each of them into two more results of `@main`, which passes leave in place, so that a
module can be checked as it was read or after any pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp, StringAttr

from rhino.dialects import signature
from rhino.frontend.stablehlo.read import CHECK
from rhino.ir import types
from rhino.ir.evaluate import run_module


@dataclass(frozen=True)
class CheckResult:
    """One check.

    Attributes:
        name: ``check0``, ``check1``, ...
        kind: ``eq``, ``almost_eq`` or ``close``.
        wrong: how many elements differ by more than is allowed.
        message: the first of them, or how many elements agree.
    """

    name: str
    kind: str
    wrong: int
    message: str


def run_checks(module: ModuleOp, arguments: Sequence[np.ndarray] = ()) -> list[CheckResult]:
    """Run `@main` and compare what its checks name. Raises RhinoError when it cannot be run."""
    slots = signature.results(signature.main_of(module))
    values = run_module(module, list(arguments))
    marked = [
        (slot.name.partition(".")[0], dict(slot.other)[CHECK], value)
        for slot, value in zip(slots, values, strict=True)
        if CHECK in dict(slot.other)
    ]
    out = []
    for (name, mark, actual), (_, _, expected) in zip(marked[::2], marked[1::2], strict=True):
        assert isinstance(mark, StringAttr)
        kind, _, tolerance = mark.data.partition(" ")
        out.append(_compare(name, kind, float(tolerance), actual, expected))
    return out


def _compare(name: str, kind: str, tolerance: float, actual: np.ndarray, expected: np.ndarray) -> CheckResult:
    bad = ~agree(kind, tolerance, actual, expected)
    wrong = int(np.count_nonzero(bad))
    if not wrong:
        return CheckResult(name, kind, 0, f"{actual.size} elements agree")
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    message = (
        f"{wrong} of {actual.size} elements differ; at {list(at)}: {actual[at]} instead of {expected[at]}"
    )
    return CheckResult(name, kind, wrong, message)


def agree(kind: str, tolerance: float, actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Elementwise agreement. ``eq``: equal (NaN with NaN); ``almost_eq``: to within `tolerance`; ``close``: at
    most `tolerance` representable numbers lie between. Complex numbers agree if both parts do."""
    if actual.dtype.kind == "c":
        parts = [agree(kind, tolerance, f(actual), f(expected)) for f in (np.real, np.imag)]
        return parts[0] & parts[1]
    is_float = types.is_float(types.from_numpy(actual.dtype))
    same = np.asarray(actual == expected)
    if not is_float:
        return same
    same = same | (np.isnan(actual) & np.isnan(expected))
    if kind == "eq":
        return same
    if kind == "almost_eq":
        with np.errstate(all="ignore"):
            return same | (np.abs(actual.astype(np.float64) - expected.astype(np.float64)) <= tolerance)
    finite = np.isfinite(actual) & np.isfinite(expected)
    return same | (finite & (steps(actual, expected) <= tolerance))


def steps(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How many representable numbers apart two arrays are, in floating point."""
    return np.abs(_rank(x) - _rank(y))


def _rank(x: np.ndarray) -> np.ndarray:
    """Position among the representable numbers of the type, in order, both zeros at 0."""
    bits = np.ascontiguousarray(x).view(np.dtype(f"i{x.dtype.itemsize}")).reshape(x.shape).astype(object)
    low = -(1 << (8 * x.dtype.itemsize - 1))
    return np.asarray(np.where(bits < 0, low - bits, bits), dtype=object)
