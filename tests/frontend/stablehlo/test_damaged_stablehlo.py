"""Damaged StableHLO, generic and pretty, gives errors with a place, or modules that print and read back.

``RHINO_SECONDS=3600 pytest tests/frontend/stablehlo/test_damaged_stablehlo.py -m long -s`` reads for an hour;
``RHINO_SEED`` draws other damage.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("jaxlib.mlir.dialects.stablehlo")

import hlo_op_cases
import jax
import product_cases
from hlo_reference import pretty
from jaxcheck import lowered
from op_draw import Draw
from test_jax_programs import programs
from test_stablehlo_read import CHECKED, GENERIC, PRETTY

from rhino.frontend.stablehlo import read_stablehlo

sys.path.insert(0, str(Path(__file__).parents[2] / "properties"))
from damaged_text import outcome, run, run_long

STRUCTURE = hlo_op_cases.CASES | product_cases.CASES


def corpus(rounds: int) -> list[str]:
    """Programs of one op in both forms, and (of more than one round) what JAX lowers."""
    texts = [PRETTY, GENERIC, CHECKED]
    for number in range(rounds):
        generic = [make(Draw(number)) for make in STRUCTURE.values()]
        texts += generic + [pretty(text) for text in generic]
    if rounds > 1:
        with jax.enable_x64(False):
            texts += [lowered(function, tree) for function, tree in programs().values()]
    return list(dict.fromkeys(texts))


def test_undamaged_text_is_read() -> None:
    texts = corpus(1)
    outcomes = [outcome(read_stablehlo, text) for text in texts]
    assert outcomes.count("module") > 0.9 * len(texts)


def test_damaged_text_is_an_error_with_a_place_or_a_module() -> None:
    counts = run(read_stablehlo, corpus(1), "0", seconds=60, most=3000)
    assert min(counts.values()) > 20


@pytest.mark.long
@pytest.mark.timeout(0)
def test_much_damaged_text() -> None:
    run_long(read_stablehlo, corpus(6))
