"""Runs a JAX function twice: by JAX, and by Rhino's interpreter on the text that JAX lowers it to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np

from rhino.dialects import signature
from rhino.frontend.stablehlo import read_stablehlo
from rhino.ir.errors import RhinoError, UnsupportedError
from rhino.ir.evaluate import run_module

#: Relative error that different summation orders and function approximations may cause, per dtype.
TOLERANCE = {
    "float64": 1e-10,
    "float32": 3e-5,
    "float16": 4e-3,
    "bfloat16": 3e-2,
    "complex64": 5e-5,
    "complex128": 1e-10,
}


@dataclass(frozen=True)
class Case:
    """A function and its arguments; `slack` multiplies the tolerance, `wide` turns on 64 bits, and with `scaled` the
    tolerance is one of the largest result, as for sums and factors of matrices."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    slack: float = 1.0
    wide: bool = True
    scaled: bool = False


@dataclass(frozen=True)
class Outcome:
    """``passed``, ``unsupported`` (a typed error) or ``wrong``, and why."""

    name: str
    status: str
    message: str = ""


def lowered(function: Callable[..., Any], arguments: Sequence[Any], generic: bool = False) -> str:
    """The text that JAX lowers the function to."""
    low = jax.jit(function).lower(*arguments)
    if generic:
        return str(low.compiler_ir("stablehlo").operation.get_asm(print_generic_op_form=True))
    return str(low.as_text())


def compare(case: Case, generic: bool = False) -> Outcome:
    """Lower, read, run, compare with JAX."""
    with jax.enable_x64(case.wide):
        text = lowered(case.function, case.arguments, generic)
        expected = [np.asarray(v) for v in jax.tree.leaves(jax.jit(case.function)(*case.arguments))]
        arguments = [np.asarray(v) for v in jax.tree.leaves(case.arguments)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = read_stablehlo(text, case.name)
            assert len(signature.main_of(module).args) == len(arguments), "an argument is not used"
            actual = run_module(module, arguments)
    except UnsupportedError as error:
        return Outcome(case.name, "unsupported", error.message)
    except RhinoError as error:
        return Outcome(case.name, "wrong", f"{type(error).__name__}: {error}")
    for i, (got, want) in enumerate(zip(actual, expected, strict=True)):
        if got.dtype != want.dtype or got.shape != want.shape:
            return Outcome(
                case.name, "wrong", f"result {i}: {got.dtype}{got.shape} for {want.dtype}{want.shape}"
            )
        why = difference(got, want, case.slack, case.scaled)
        if why is not None:
            return Outcome(case.name, "wrong", f"result {i}: {why}")
    return Outcome(case.name, "passed")


def difference(got: np.ndarray, want: np.ndarray, slack: float, scaled: bool = False) -> str | None:
    """What differs, or None."""
    tolerance = TOLERANCE.get(want.dtype.name)
    if tolerance is None:
        same = got == want
        return None if same.all() else f"{int((~same).sum())} of {same.size} elements differ"
    wide: Any = np.complex128 if want.dtype.kind == "c" else np.float64
    if want.dtype == ml_dtypes.bfloat16 or want.dtype == np.float16 or want.dtype.kind in "fc":
        with np.errstate(invalid="ignore"):
            got, want = got.astype(wide), want.astype(wide)
    largest = float(np.max(np.abs(want[np.isfinite(want)]), initial=0.0)) if scaled else 1.0
    close, off = tolerance * slack, tolerance * slack * largest
    try:
        np.testing.assert_allclose(got, want, rtol=close, atol=off, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return None
