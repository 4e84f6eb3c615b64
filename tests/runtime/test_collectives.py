"""Collectives on real processes over gloo against their definition in numpy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rhino.runtime.launch import launch


@pytest.mark.parametrize("mesh", ["2", "dp=2,tp=2", pytest.param("4", marks=pytest.mark.long)])
def test_collectives_equal_numpy(mesh: str) -> None:
    size = 2 if mesh == "2" else 4
    launch([sys.executable, str(Path(__file__).with_name("ranks_collectives.py")), mesh], size)
