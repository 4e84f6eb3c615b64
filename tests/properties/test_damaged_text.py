"""Damaged text of every dialect and stage gives errors with a place, or modules that print and read back.

``RHINO_SECONDS=3600 pytest tests/properties/test_damaged_text.py -m long -s`` reads for an hour; ``RHINO_SEED`` draws
other damage.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from damaged_text import outcome, run, run_long

from rhino.check.fuzz import draw_case
from rhino.check.names import name_values
from rhino.dialects.text import parse_module, print_module
from rhino.passes.fuse import fuse

_FILES = sorted((Path(__file__).parents[1] / "filecheck").rglob("*.mlir"))
# Random programs compute in f64, of which no kernels are made.
_FUSED = """func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x4xf32>) -> tensor<4xf32> {
  %0 = hlo.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %1 = hlo.exp %0 : tensor<4x4xf32>
  %2 = hlo.add %1, %0 : tensor<4x4xf32>
  %3 = hlo.reduce "sum" %2 dims [1] : tensor<4x4xf32> -> tensor<4xf32>
  %4 = hlo.mul %3, %3 : tensor<4xf32>
  func.return %4 : tensor<4xf32>
}
"""


def corpus(cases: int) -> list[str]:
    """The texts of tests/filecheck, kernels, and random programs at every stage, in both forms."""
    texts = [part for file in _FILES for part in file.read_text().split("// -----\n")]
    fused = parse_module(_FUSED)
    assert fuse(fused)
    texts += [print_module(fused, generic=generic) for generic in (False, True)]
    for number in range(cases):
        case = draw_case(f"damaged/{number}")
        module = case.program.module.clone()
        texts.append(print_module(module, number % 2 == 0))
        for each in case.passes:
            name_values(module)
            module = each.apply(module)
            texts.append(print_module(module, generic=number % 3 == 0))
    return list(dict.fromkeys(texts))


def test_undamaged_text_is_read() -> None:
    texts = corpus(6)
    assert all(any(dialect in text for text in texts) for dialect in ("hlo.", "dist.", "kernel."))
    # Files hold programs that are wrong, too; all that passes print is right.
    found = [(text, outcome(parse_module, text)) for text in texts]
    assert all(kind == "module" for text, kind in found if "//" not in text)


def test_damaged_text_is_an_error_with_a_place_or_a_module() -> None:
    counts = run(parse_module, corpus(3), "0", seconds=60, most=2000)
    assert min(counts.values()) > 50


@pytest.mark.long
@pytest.mark.timeout(0)
def test_much_damaged_text() -> None:
    run_long(parse_module, corpus(60))
