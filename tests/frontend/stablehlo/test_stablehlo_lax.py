"""Every `jax.lax` primitive, lowered to text, read and run by the interpreter, against JAX."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("jax")

from jaxcheck import Outcome, compare
from lax_cases import GENERATORS, Draw, cases


@pytest.mark.parametrize("name", list(GENERATORS))
def test_primitive(name: str) -> None:
    outcome = compare(GENERATORS[name](Draw(list(GENERATORS).index(name))))
    assert outcome.status != "wrong", outcome


@pytest.mark.long
@pytest.mark.timeout(0)
def test_many_draws() -> None:
    """Writes a report to $RHINO_REPORT: how many passed, and what did not."""
    outcomes: list[Outcome] = [
        compare(case) for case in cases(int(os.environ.get("RHINO_ROUNDS", "30")), seed=1)
    ]
    outcomes += [compare(case, generic=True) for case in cases(2, seed=2)]
    counts = Counter(o.status for o in outcomes)
    if "RHINO_REPORT" in os.environ:
        rest = [vars(o) for o in outcomes if o.status != "passed"]
        Path(os.environ["RHINO_REPORT"]).write_text(json.dumps({"counts": counts, "others": rest}, indent=1))
    assert counts["wrong"] == 0, [o for o in outcomes if o.status == "wrong"][:5]
    assert counts["passed"] >= 0.9 * len(outcomes)
