"""A few entries of PyTorch's op database on every run; `-m long` runs all of them, `report.py` runs them in parts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch's op database needs it")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "properties")]

from check import PASSED, UNSUPPORTED, WRONG, outcomes  # noqa: E402
from pages import group_of, page  # noqa: E402
from report import kind_of, run_entry  # noqa: E402
from samples import entries, samples  # noqa: E402

#: Quick ones, each of another family.
FEW = ("nn.functional.max_pool1d", "scatter_reduce.mean", "fft.rfft", "cummax", "special.i1")


@pytest.mark.parametrize("name", FEW)
def test_entry_passes(name: str) -> None:
    found = outcomes(samples(entries()[name], 3), layouts=2)
    assert {o.kind for o in found.values()} == {PASSED}, found


#: Samples that were wrong once, by entry, on the whole program and divided.
ONCE_WRONG = (
    ("index_reduce.amax", 0),
    ("index_reduce.mean", 1),
    ("histogram", 0),
    ("histogram", 168),
    ("__rmod__", 8),
    ("cholesky_inverse", 6),
    ("cholesky_solve", 7),
    ("einsum", 8),
    ("gather", 4),
    ("lu_unpack", 15),
    ("linalg.solve", 3),
    ("index_fill", 5),
)


def test_what_was_wrong_once() -> None:
    calls = [replace(samples(entries()[name])[k], index=i) for i, (name, k) in enumerate(ONCE_WRONG)]
    found = outcomes(calls, layouts=2)
    assert {o.kind for o in found.values()} == {PASSED}, found


def test_a_shape_that_depends_on_values_is_outside() -> None:
    row = run_entry("nonzero", 1, 0)
    assert row["kind"] == "outside" and "depends on data" in row["reasons"]["outside"]


def test_one_bad_sample_is_told_from_the_good_ones() -> None:
    """`chalf` gives complex numbers of 16-bit parts, which Rhino has not."""
    good, bad = samples(entries()["exp"], 1), samples(entries()["chalf"], 1)
    found = outcomes([*good, *[type(s)(**{**vars(s), "index": 7}) for s in bad]], layouts=0)
    assert found[0].kind == PASSED
    assert found[7].kind == UNSUPPORTED and "complex32" in found[7].reason


def test_an_entry_is_as_good_as_its_worst_sample() -> None:
    from collections import Counter

    assert kind_of(Counter({PASSED: 9, UNSUPPORTED: 1})) == UNSUPPORTED
    assert kind_of(Counter({PASSED: 9, UNSUPPORTED: 1, WRONG: 1})) == WRONG


def test_the_page_counts_and_groups() -> None:
    why = "sample 3: no handler for the op aten.x.default"
    rows = {
        "a": {"kind": PASSED, "reasons": {}, "samples": {PASSED: 4}},
        "b": {"kind": WRONG, "reasons": {WRONG: "x|y"}},
        "c": {"kind": UNSUPPORTED, "reasons": {UNSUPPORTED: why}},
        "d": {"kind": "outside", "reasons": {"outside": "sample 0: torch.export: no"}},
    }
    text = page({"one sample": rows})
    assert "| one sample | 4 | 1 | 1 | 1 | 0 | 1 | 33.3 % | 4 |" in text
    assert "| wrong (1) | x\\|y | `b` |" in text and "`c` (aten.x)" in text
    assert group_of(why) == "no handler for the ATen op"


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", sorted(entries()))
def test_no_entry_is_wrong(name: str) -> None:
    row = run_entry(name, None, 3)
    assert row["kind"] != WRONG, row["reasons"]
