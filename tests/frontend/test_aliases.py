"""Tensors that are written in place or lie in one another's memory: as PyTorch has it, or refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import rhino
from rhino.frontend.aliases import require_separate
from rhino.frontend.capture import capture
from rhino.ir.errors import UnsupportedError
from rhino.runtime.reference import Reference

X = torch.arange(24.0).reshape(8, 3) / 8


class Net(nn.Module):
    """A layer whose weight serves twice, running statistics, and a buffer that is written through a view of it."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(torch.tanh(self.first(x)))
        self.seen[1:].mul_(0.5).add_(y.detach().square().sum(0))
        return self.second(y) * (1 + self.seen[1:])


def square(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).square().mean()


@pytest.mark.parametrize("plan", ["dp", "megatron"])
def test_written_buffers_and_tied_weights_train_as_in_torch(plan: str) -> None:
    """In shares on the devices: the statistics of the whole batch go on from step to step, the weight has one value."""
    reference = Reference(Net().double(), square, rhino.SGD(lr=1e-2))
    step = rhino.parallelize(
        Net().double(),
        loss=square,
        batch=X.double(),
        optimizer=rhino.SGD(lr=1e-2),
        plan=plan,
        mesh="dp=2" if plan == "dp" else "2x2",
    )
    for i in range(3):
        assert float(step(X.double() + i)) == pytest.approx(float(reference.step(X.double() + i)), rel=1e-9)
    got, want = step.state_dict(), reference.model.state_dict()
    assert set(got) == set(want) and want["seen"].abs().sum() > 1 and want["norm.num_batches_tracked"] == 3
    for name, tensor in want.items():
        torch.testing.assert_close(got[name], tensor, rtol=1e-9, atol=1e-12)


class Sharing(nn.Module):
    """Two tensors of a model; the loss depends on both."""

    def __init__(self, make: Callable[[nn.Module], None]) -> None:
        super().__init__()
        make(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean() * (self.a.square().sum() + 3 * self.b.sin().sum())


def parameter(tensor: torch.Tensor, trained: bool = True) -> nn.Parameter:
    return nn.Parameter(tensor.detach(), requires_grad=trained)


def slices(first: slice, second: slice) -> Callable[[nn.Module, str], None]:
    def make(model: nn.Module, device: str) -> None:
        flat = torch.ones(24, device=device)
        model.a, model.b = parameter(flat[first]), parameter(flat[second])

    return make


def columns(overlap: int) -> Callable[[nn.Module, str], None]:
    def make(model: nn.Module, device: str) -> None:
        table = torch.ones(4, 6, device=device)
        model.a, model.b = parameter(table[:, : 3 + overlap]), parameter(table[:, 3:])

    return make


def transposed(model: nn.Module, device: str) -> None:
    model.a = parameter(torch.ones(4, 2, device=device))
    model.b = parameter(model.a.T)


def same_data(model: nn.Module, device: str) -> None:
    """All of the memory, but two Parameters: torch updates it twice a step."""
    model.a = parameter(torch.ones(4, device=device))
    model.b = parameter(model.a)


def buffer_of(trained: bool) -> Callable[[nn.Module, str], None]:
    def make(model: nn.Module, device: str) -> None:
        model.a = parameter(torch.ones(4, device=device), trained)
        model.c = parameter(torch.ones((), device=device))
        model.register_buffer("b", model.a.detach()[1:])

    return make


def graph_of_parameter(model: nn.Module, device: str) -> None:
    model.a = nn.Parameter(torch.ones(4, device=device))
    model.register_buffer("b", model.a[:2])


def tied(model: nn.Module, device: str) -> None:
    model.a = model.b = parameter(torch.ones(4, device=device))


REFUSED = {
    "transposed": transposed,
    "same data": same_data,
    "slices": slices(slice(0, 13), slice(12, 24)),
    "one within the other": slices(slice(0, 24), slice(5, 6)),
    "even and every third": slices(slice(0, None, 2), slice(0, None, 3)),
    "columns": columns(1),
    "buffer": buffer_of(trained=True),
    "buffer with a gradient": graph_of_parameter,
}
ALLOWED = {
    "tied": tied,
    "slices": slices(slice(0, 12), slice(12, 24)),
    "even and odd": slices(slice(0, None, 2), slice(1, None, 2)),
    "columns": columns(0),
    "nothing of it is trained": buffer_of(trained=False),
    "empty": slices(slice(0, 24), slice(5, 5)),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("how", REFUSED)
def test_what_lies_in_the_memory_of_a_parameter_is_refused(how: str, device: str) -> None:
    with pytest.raises(UnsupportedError, match=r"^'a' \[.*\] and 'b' \[.*\] share memory") as caught:
        capture(rhino.Program(Sharing(lambda m: REFUSED[how](m, device)), square, X))
    assert caught.value.remedy is not None and "tie them fully" in caught.value.remedy


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("how", ALLOWED)
def test_neighbours_in_one_memory_are_not(how: str, device: str) -> None:
    capture(rhino.Program(Sharing(lambda m: ALLOWED[how](m, device)), square, X))


@pytest.mark.parametrize("how", ["slices", "even and odd", "columns"])
def test_neighbours_train_as_in_torch(how: str) -> None:
    model, other = (Sharing(lambda m: ALLOWED[how](m, "cpu")) for _ in range(2))
    reference = Reference(other, square, rhino.SGD(lr=1e-4))
    step = rhino.parallelize(
        model, loss=square, batch=X, optimizer=rhino.SGD(lr=1e-4), mesh="2", plan="zero3"
    )
    for _ in range(3):
        assert float(step(X)) == pytest.approx(float(reference.step(X)), rel=1e-5)
    for name, tensor in reference.model.state_dict().items():
        torch.testing.assert_close(step.state_dict()[name], tensor)


def test_an_expanded_parameter_is_refused_and_an_expanded_constant_is_not() -> None:
    """PyTorch's optimizers cannot update the one; the other is what many libraries hold as positions."""
    wide = torch.ones(4, 1).expand(4, 3)
    with pytest.raises(RuntimeError, match="single memory location"):
        p = nn.Parameter(wide)
        p.grad = torch.ones(4, 3)
        torch.optim.SGD([p], 0.1).step()
    model = Sharing(lambda m: None)
    model.a, model.b = parameter(wide), parameter(torch.ones(2))
    with pytest.raises(UnsupportedError, match=r"several elements of 'a' \[4, 3\]") as caught:
        capture(rhino.Program(model, square, X))
    assert "inside forward" in str(caught.value.remedy)
    model = Sharing(lambda m: None)
    model.a = parameter(torch.ones(2))
    model.register_buffer("b", wide)
    capture(rhino.Program(model, square, X))


class Counting(nn.Module):
    """A frozen weight, a buffer that is a part of it, and one that is written."""

    def __init__(self, written: torch.Tensor | None) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.table = nn.Parameter(torch.ones(6), requires_grad=False)
        self.register_buffer("window", self.table.detach()[2:5])
        self.register_buffer("count", torch.zeros(3) if written is None else written)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1.0)
        return x * self.scale * self.window + self.table[:3] * self.count


def test_a_buffer_that_is_written_may_lie_nowhere_else() -> None:
    capture(rhino.Program(Counting(None), square, X))
    model = Counting(None)
    model.count = model.table.detach()[3:]
    with pytest.raises(UnsupportedError, match=r"'table' \[6\] and 'count' \[3\] share memory"):
        capture(rhino.Program(model, square, X))
    model = Counting(None)
    model.count = model.window
    with pytest.raises(UnsupportedError, match="'window' = 'count'"):  # torch cannot export it
        capture(rhino.Program(model, square, X))


class Writing(nn.Module):
    def __init__(self, write: Callable[[nn.Module, dict[str, torch.Tensor]], torch.Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.write = write

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.write(self, batch) * self.weight


def _into_input(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    batch["x"][1:].mul_(2.0)
    return batch["x"]


def _into_weight(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        model.weight.clamp_(max=0.5)
    return batch["x"]


@pytest.mark.parametrize(
    ("write", "what", "remedy"),
    [(_into_input, "'x' in place", "clone"), (_into_weight, "'weight' in place", "only buffers")],
)
def test_inputs_and_weights_may_not_be_written(
    write: Callable[[nn.Module, dict[str, torch.Tensor]], torch.Tensor], what: str, remedy: str
) -> None:
    batch = {"x": X.clone(), "y": X}
    with pytest.raises(UnsupportedError, match=f"the forward pass writes to {what}") as caught:
        capture(rhino.Program(Writing(write), square, batch))
    assert caught.value.remedy is not None and remedy in caught.value.remedy
    assert torch.equal(batch["x"], X), "tracing does not touch the sample batch"


def test_a_copy_of_the_input_may_be_written_and_inputs_may_be_one_tensor() -> None:
    def write(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        x = batch["x"].clone()
        x[1:].mul_(2.0)
        return x + batch["y"]

    batch = {"x": X, "y": X[:]}
    step = rhino.parallelize(Writing(write), loss=square, batch=batch, optimizer=rhino.SGD(lr=0.1), mesh="2")
    want = F.mse_loss(torch.cat([2 * X[:1], 3 * X[1:]]), torch.zeros(8, 3))
    assert float(step(batch)) == pytest.approx(float(want), rel=1e-6)


@st.composite
def views(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Shape, strides and offset of a view of 60 elements."""
    rank = draw(st.integers(0, 3))
    shape = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    strides = tuple(draw(st.integers(0, 6)) for _ in range(rank))
    return shape, strides, draw(st.integers(0, 5))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(views(), views(), st.sampled_from(["cpu", "meta", "fake"]))
def test_any_two_views_against_the_places_of_their_elements(first, second, kind) -> None:  # type: ignore[no-untyped-def]
    places = np.arange(60)
    touched = [
        np.lib.stride_tricks.as_strided(places[offset:], shape, [8 * s for s in strides]).ravel()
        for shape, strides, offset in (first, second)
    ]
    twice = len(set(touched[0])) < touched[0].size
    both = bool(set(touched[0]) & set(touched[1]))
    if kind == "fake":
        with FakeTensorMode():
            flat = torch.empty(60)
            a, b = (torch.as_strided(flat, *view) for view in (first, second))
    else:
        flat = torch.empty(60, device=kind)
        a, b = (torch.as_strided(flat, *view) for view in (first, second))
    if not (twice or both):
        require_separate({"a": a, "b": b}, ["a"])
        return
    message = "several elements of 'a'" if twice else "'a' .* and 'b' .* share memory"
    with pytest.raises(UnsupportedError, match=message):
        require_separate({"a": a, "b": b}, ["a"])
    if not twice and not any(n > 1 for n in second[0]):
        with pytest.raises(UnsupportedError, match="share memory"):
            require_separate({"a": a, "b": b}, ["b"])
    require_separate({"a": a, "b": b}, [])
