"""Initial values: shards of the user's own weights, and of models that exist as shapes only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from rhino.ir.errors import ProgramError
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import Mesh
from rhino.ir.shards import shard
from rhino.runtime.state import materialise, named_values, values_of
from rhino.runtime.tensors import cut, to_numpy, to_torch


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight


class Unknowable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))


def on_meta(make: type[nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return make()


def test_real_models_hand_out_their_own_values() -> None:
    model = Tied()
    provide = values_of(model)
    assert torch.equal(provide("head.weight"), model.embed.weight)
    assert provide("norm.running_var").tolist() == [1.0] * 4
    with pytest.raises(ProgramError, match="no parameter or buffer 'lost'"):
        provide("lost")


def test_consumed_values_are_freed_one_by_one() -> None:
    model = Tied()
    provide = values_of(model, consume=True)
    assert provide("embed.weight").numel() == 32
    provide("norm.weight")
    assert model.embed.weight.numel() == 0 and model.norm.weight.numel() == 4


def test_meta_models_start_alike_everywhere() -> None:
    model = on_meta(Tied)
    first, again = values_of(model, seed=3), values_of(on_meta(Tied), seed=3)
    weight = first("embed.weight")
    assert weight.device.type == "cpu" and weight.std() > 0
    again("norm.weight")  # the order in which values are asked for plays no part
    assert torch.equal(again("embed.weight"), weight)
    assert not torch.equal(values_of(model, seed=4)("embed.weight"), weight)
    assert first("norm.running_mean").tolist() == [0.0] * 4 and int(first("norm.num_batches_tracked")) == 0
    assert all(t.device.type == "meta" for t in named_values(model).values())


def test_materialised_models_keep_ties_and_have_the_same_values() -> None:
    model = materialise(on_meta(Tied), seed=3)
    assert model.head.weight is model.embed.weight
    assert torch.equal(model.embed.weight, values_of(on_meta(Tied), seed=3)("embed.weight"))
    assert all(t.device.type == "cpu" for t in named_values(model).values())


def test_what_no_module_initialises_is_an_error() -> None:
    with pytest.raises(ProgramError, match="'scale' is on the meta device"):
        values_of(on_meta(Unknowable))("scale")


def test_cut_is_what_a_device_holds() -> None:
    mesh = Mesh.parse("a=2,b=4")
    a, b = mesh.axis("a"), mesh.axis("b")
    array = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)
    for layout in (
        Layout.replicated(2),
        Layout.block((16, 24), [(0, a), (1, b)]),
        Layout.block((16, 24), [(1, b), (1, a)]),
        Layout.make([[Digit(b, 8)], [Digit(a, 6)]]),
        Layout.make([[], [Digit(a, 24), Digit(b, 4)]]),
    ):
        for device in mesh.devices():
            piece = cut(to_torch(array), layout, mesh, device)
            np.testing.assert_array_equal(to_numpy(piece), shard(array, layout, mesh, device))


def test_a_cut_shares_no_memory() -> None:
    whole = torch.zeros(4)
    cut(whole, Layout.replicated(1), Mesh.parse("a=2"), 0).fill_(1)
    assert whole.tolist() == [0] * 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.int8])
def test_numpy_and_back(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1], [1, 0]]).to(dtype).T
    assert torch.equal(to_torch(to_numpy(tensor)), tensor)
