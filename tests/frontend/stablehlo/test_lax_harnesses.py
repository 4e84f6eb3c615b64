"""JAX's own list of calls of every primitive (its test harnesses), lowered and run here, against JAX.

The list is part of JAX's package and needs `absl-py`. A report of every result is written to $RHINO_REPORT.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("absl.testing", reason="JAX's test harnesses need absl-py")

import jax
from jax import lax
from jaxcheck import Case, Outcome, compare

#: Of groups with thousands of calls that differ in one attribute, every so many.
_STEP = 9


def harnesses() -> Iterator[tuple[str, Any]]:
    """Names of groups and their calls."""
    from jax._src.internal_test_util import test_harnesses

    seen: Counter[str] = Counter()
    for harness in test_harnesses.all_harnesses:
        seen[harness.group_name] += 1
        many = harness.group_name.startswith("scatter")
        unstable = "isstable_False" in harness.fullname  # which of equal keys comes first is open
        if harness.filter("cpu") and not unstable and (not many or seen[harness.group_name] % _STEP == 1):
            yield harness.group_name, harness


def outcome(group: str, harness: Any) -> Outcome:
    random = np.random.RandomState(zlib.crc32(harness.fullname.encode()) & 0x7FFFFFFF)
    wide = np.dtype(harness.dtype) in (np.dtype(t) for t in ("int64", "uint64", "float64", "complex128"))
    with jax.enable_x64(wide):
        arguments = tuple(jax.numpy.asarray(a) for a in harness.dyn_args_maker(random))

    def function(*values: Any) -> Any:
        """Every argument is used: one that is not would be left out of the program."""
        _, values = lax.optimization_barrier((0, values))
        found = harness.dyn_fun(*values)
        return found[0] if group == "approx_top_k" else found  # which of equal elements are named is open

    return compare(Case(harness.fullname, function, arguments, wide=wide, scaled=True))


@pytest.mark.long
@pytest.mark.timeout(0)
def test_every_primitive() -> None:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    others: list[dict[str, str]] = []
    for group, harness in harnesses():
        result = outcome(group, harness)
        found[group][result.status] += 1
        if result.status != "passed":
            others.append({"group": group} | vars(result))
    total = sum(found.values(), Counter[str]())
    if "RHINO_REPORT" in os.environ:
        report = {"total": total, "groups": found, "others": others}
        Path(os.environ["RHINO_REPORT"]).write_text(json.dumps(report, indent=1))
    assert total["wrong"] == 0, [o for o in others if o["status"] == "wrong"][:10]
    assert total["passed"] >= 0.95 * (sum(total.values()) - sum(found[g]["unsupported"] for g in _CALLS))


#: Factorizations that JAX leaves to LAPACK by custom calls.
_CALLS = ("eig", "eigh", "lu", "qr", "svd", "tridiagonal_solve", "custom_linear_solve")
