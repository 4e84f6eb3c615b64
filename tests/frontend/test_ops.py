"""Every ATen family: the captured program equals torch, in values and gradients."""

from __future__ import annotations

import pytest
import torch
from op_cases import FAMILIES
from op_check import Case, check


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@pytest.mark.parametrize(
    ("family", "case"),
    [pytest.param(name, c, id=f"{name}-{c.name}") for name, cases in FAMILIES.items() for c in cases],
)
def test_op_equals_torch(family: str, case: Case, dtype: torch.dtype) -> None:
    check(FAMILIES[family], case, dtype)
