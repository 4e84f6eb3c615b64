"""Weights that leave a run are whole and the model's own, however they were divided, and go on under any other plan."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import rhino
from rhino.runtime.reference import Reference

#: A fused projection that is cut in thirds, a vocabulary of 7 that nothing divides, a tied weight.
WIDTH, VOCABULARY = 8, 7


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.embed = nn.Embedding(VOCABULARY, WIDTH)
            self.fused = nn.Linear(WIDTH, 3 * WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        a, b, c = self.fused(self.embed(tokens)).chunk(3, -1)
        return self.head(torch.tanh(a * b) + c)


def loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def batch(step: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (8, 3), generator=torch.Generator().manual_seed(step))


PLANS: list[dict[str, object]] = [
    {  # two axes on a dimension, one on each, and thirds each cut in two
        "mesh": "a=2,b=2,c=2",
        "pins": [
            'fused.weight=[{"b", "c"}, {"a"}]',
            'fused.bias=[{"a":8}]',
            'embed.weight=[{}, {"a", "c"}]',
            'batch=[{"b"}, {}]',
        ],
    },
    {"mesh": "x=4", "pins": ['embed.weight=[{"x"}, {}]']},  # 7 rows are padded to 8
    {"mesh": "dp=2,tp=2", "plan": "megatron"},
]


def test_training_goes_on_under_another_plan_and_mesh() -> None:
    reference = Reference(Model(), loss, rhino.SGD(lr=0.5))
    model: nn.Module = Model()
    for number, options in enumerate(PLANS):
        step = rhino.parallelize(model, loss=loss, batch=batch(0), optimizer=rhino.SGD(lr=0.5), **options)  # type: ignore[arg-type]
        for i in range(2):
            index = 2 * number + i
            assert float(step(batch(index))) == pytest.approx(float(reference.step(batch(index))), rel=1e-5)
        whole = step.state_dict()
        want = reference.model.state_dict()
        assert set(whole) == set(want) and torch.equal(whole["head.weight"], whole["embed.weight"])
        for name, tensor in whole.items():
            torch.testing.assert_close(tensor, want[name], rtol=1e-4, atol=1e-6)
        model = Model()
        model.load_state_dict(whole)
