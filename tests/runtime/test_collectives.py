"""Collectives on real processes over gloo against their definition in numpy."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import torch

from rhino.runtime.collectives import as_bytes, from_bytes, join, reduce_members, split
from rhino.runtime.launch import LostContactError, launch


@pytest.mark.parametrize("mesh", ["2", "dp=2,tp=2", pytest.param("4", marks=pytest.mark.long)])
def test_collectives_equal_numpy(mesh: str) -> None:
    size = 2 if mesh == "2" else 4
    launch([sys.executable, str(Path(__file__).with_name("ranks_collectives.py")), mesh], size)


def test_a_rank_that_does_not_answer_times_out() -> None:
    started = time.monotonic()
    with pytest.raises(LostContactError, match=r"rank 0: all_reduce with ranks 0, 1 failed: .*[Tt]imed out"):
        launch([sys.executable, str(Path(__file__).with_name("ranks_hang.py"))], 2)
    assert time.monotonic() - started < 25


def test_split_and_join_are_inverse() -> None:
    x = torch.arange(2 * 24 * 3).reshape(2, 24, 3)
    for period in (24, 12, 8, 4):
        pieces = split(x, 4, 1, period)
        assert pieces.shape == (4, 2, 6, 3)
        assert torch.equal(join(pieces, 1, period), x)
    assert split(torch.arange(8), 2, 0, 4).tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.bool, torch.int16])
def test_bytes_and_back(dtype: torch.dtype) -> None:
    for x in (
        torch.tensor([[0, 1], [1, 0]]).to(dtype).T,
        torch.ones((), dtype=dtype),
        torch.ones(0, 3).to(dtype),
    ):
        assert torch.equal(from_bytes(as_bytes(x), x.dtype, x.shape), x)
    strided = torch.arange(6).to(dtype)[::2][1:2]
    assert torch.equal(from_bytes(as_bytes(strided), dtype, (1,)), strided)


def test_members_are_reduced_in_order() -> None:
    x = torch.tensor([[6, 1], [3, 5], [2, 4]])
    assert reduce_members(x, "sum").tolist() == [11, 10] and reduce_members(x, "prod").tolist() == [36, 20]
    assert reduce_members(x, "max").tolist() == [6, 5] and reduce_members(x, "min").tolist() == [2, 1]
    assert reduce_members(x, "and").tolist() == [2, 0] and reduce_members(x, "or").tolist() == [7, 5]
