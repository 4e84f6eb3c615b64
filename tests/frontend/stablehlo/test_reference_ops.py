"""Ops of StableHLO on our interpreter, against StableHLO's own reference interpreter that jaxlib carries."""

from __future__ import annotations

import os
import zlib
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("jaxlib.mlir.dialects.stablehlo")

import hlo_op_cases
import product_cases
from elementwise_cases import Case, cases, program
from hlo_reference import pretty, run_reference
from op_draw import Draw

from rhino.frontend.stablehlo import read_stablehlo
from rhino.frontend.stablehlo.checks import steps
from rhino.ir import types
from rhino.ir.evaluate import run_module

STRUCTURE = hlo_op_cases.CASES | product_cases.CASES
ELEMENTWISE = list(cases())

#: Units in the last place by which elementwise results may differ; of complex numbers, whose parts cancel in the
#: interpreter's formulas, how much of their size.
UNITS = 2
OF_SIZE = {"complex<f32>": 2e-5, "complex<f64>": 1e-11}


def difference(got: np.ndarray, want: np.ndarray, units: float) -> str:
    """What differs by more than `units` in the last place; empty if nothing does."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    same = np.asarray(got == want)
    if types.is_float(types.from_numpy(want.dtype)):
        same = same | (np.isnan(got) & np.isnan(want))
        finite = np.isfinite(got) & np.isfinite(want)
        same = same | (finite & (steps(got, want) <= units))
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{int((~same).sum())} of {same.size} differ; at {list(at)}: {got[at]} instead of {want[at]}"


def differences(text: str) -> list[str]:
    """What differs. Sums are exact but where products have grown long: those may be rounded in another order."""
    got, want = run_module(read_stablehlo(text), []), run_reference(text)
    found = [difference(g, w, 4 if w.dtype.itemsize < 4 else 64) for g, w in zip(got, want, strict=True)]
    return [f for f in found if f]


def elementwise(case: Case) -> list[str]:
    """What differs in one elementwise case. Complex results come in two parts, which are compared as one."""
    name, elements, result, _ = case
    text = program(case)
    got, want = run_module(read_stablehlo(text), []), run_reference(text)
    loose = next((OF_SIZE[e] for e in (*elements, result) if e in OF_SIZE), None)
    if loose is None or result == "i1":
        return [f for f in (difference(g, w, UNITS) for g, w in zip(got, want, strict=True)) if f]
    off = np.sqrt(sum((g.astype(float) - w.astype(float)) ** 2 for g, w in zip(got, want, strict=True)))
    size = np.sqrt(sum(w.astype(float) ** 2 for w in want))
    bad = off > loose * np.maximum(size, 1e-3)
    return [f"{name}: {int(bad.sum())} of {bad.size} differ"] if bad.any() else []


def test_every_element_type() -> None:
    assert {case: found for case in ELEMENTWISE if (found := elementwise(case))} == {}


def test_scalars() -> None:
    for case in ELEMENTWISE:
        text = (
            program(case, 1).replace("tensor<1x", "tensor<").replace("dense<[", "dense<").replace("]>", ">")
        )
        assert all(v.shape == () for v in run_module(read_stablehlo(text), [])), case


@pytest.mark.parametrize("name", sorted(STRUCTURE))
def test_structure(name: str) -> None:
    for seed in range(8):
        text = STRUCTURE[name](Draw(zlib.crc32(name.encode()) + seed))
        assert not differences(text), text


def same_when_printed(text: str) -> bool:
    """Whether a program gives the same bits in the form in which MLIR prints it, pretty or generic."""
    want = run_module(read_stablehlo(text), [])
    for generic in (False, True):
        got = run_module(read_stablehlo(pretty(text, generic)), [])
        if any(x.tobytes() != y.tobytes() for x, y in zip(got, want, strict=True)):
            return False
    return True


def test_printed_forms() -> None:
    """One of every op, whatever its types; every attribute of the ops that have some."""
    first = {case[0]: program(case, 3) for case in ELEMENTWISE}
    texts = [*first.values()]
    for name, make in STRUCTURE.items():
        texts += [make(Draw(zlib.crc32(name.encode()) + seed)) for seed in range(6)]
    assert [t for t in texts if not same_when_printed(t)] == []


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", sorted(STRUCTURE))
def test_many_draws_of_structure(name: str) -> None:
    wrong = Counter[str]()
    for seed in range(int(os.environ.get("RHINO_ROUNDS", "100"))):
        text = STRUCTURE[name](Draw(zlib.crc32(name.encode()) + 1000 + seed))
        wrong.update(differences(text))
    assert not wrong
