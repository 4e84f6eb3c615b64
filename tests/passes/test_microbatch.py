"""microbatch: the same step, run as several small batches; and what cannot be run so is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

sys.path.insert(0, str(Path(__file__).parents[1] / "planner"))
from planner_programs import program

from rhino.cli.batches import random_arrays
from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.text import parse_module, print_module
from rhino.frontend.capture import capture
from rhino.frontend.program import Program
from rhino.ir import types
from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.evaluate import run_module
from rhino.ir.optimizers import SGD, AdamW, Optimizer
from rhino.passes.autodiff import differentiate
from rhino.passes.inline_composites import TAG
from rhino.passes.microbatch import MICRO, microbatch
from rhino.passes.recompute import recompute
from rhino.passes.step import training_step
from rhino.passes.widen_floats import widen_floats
from rhino.planner import plan
from rhino.planner.cluster import Cluster
from rhino.planner.effort import Effort

Loss = Callable[[Any, Any], Tensor]


def step_of(model: nn.Module, loss: Loss, batch: object, optimizer: Optimizer | None = None) -> ModuleOp:
    torch.manual_seed(0)
    return training_step(capture(Program(model, loss, batch)), optimizer or AdamW())


def arrays_of(module: ModuleOp, seed: int = 0, most: int = 2) -> list[np.ndarray]:
    known = random_arrays(module, ("parameter", "buffer", "input", "state"), seed)
    rng = np.random.default_rng(seed)
    func = signature.main_of(module)
    out = []
    for slot, arg in zip(signature.arguments(func), func.args, strict=True):
        array = known[slot.name]
        if slot.role == "input" and types.is_integer(types.element_of(arg)):
            array = rng.integers(0, most, array.shape).astype(array.dtype)
        out.append(array)
    return out


def compare(step: ModuleOp, count: int, most: int = 2, batch: str | None = None) -> ModuleOp:
    """The step in micro-batches, after it was compared with the step, in f64."""
    widen_floats(step)
    small = step.clone()
    microbatch(small, count, batch)
    small.verify()
    arrays = arrays_of(step, most=most)
    for want, got in zip(run_module(step, arrays), run_module(small, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-13)
    return small


def ops(module: ModuleOp) -> list[Operation]:
    return list(signature.main_of(module).body.block.ops)


def mlp(depth: int = 2, dropout: float = 0.3, width: int = 8) -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


def regression(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def pairs(rows: int, width: int = 8) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, width), torch.randn(rows, width)


@pytest.mark.parametrize("count", [2, 3, 6])
def test_mlp_with_dropout(count: int) -> None:
    compare(step_of(mlp(), regression, pairs(12)), count)


class Block(nn.Module):
    """A transformer layer with dropout everywhere, tied embeddings and tokens that do not count."""

    def __init__(self, width: int = 8, heads: int = 2, vocabulary: int = 11) -> None:
        super().__init__()
        self.heads = heads
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Parameter(torch.randn(6, width))
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.2)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.drop(self.wte(tokens) + self.wpe)
        b, s, d = x.shape
        q, k, v = (
            t.view(b, s, self.heads, d // self.heads).transpose(1, 2)
            for t in self.qkv(self.ln1(x)).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(b, s, d)))
        x = x + self.drop(self.down(F.gelu(self.up(self.ln2(x)))))
        return x @ self.wte.weight.T


def next_token(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten(), ignore_index=1)


def tokens(rows: int, length: int = 6) -> tuple[Tensor, Tensor]:
    return torch.randint(0, 11, (rows, length)), torch.randint(0, 11, (rows, length))


def test_transformer_layer_with_tied_embeddings_and_a_mean_over_tokens_that_count() -> None:
    step = step_of(Block(), next_token, tokens(4))
    recompute(step)
    small = compare(step, 2, most=11)
    table = (11, 8)
    sums = [
        op for op in ops(small)
        if op.name == "hlo.add" and ".sum" in str(op.attributes.get(MICRO)) and types.shape_of(op.results[0]) == table
    ]  # fmt: skip
    assert len(sums) == 1  # both gradients of the tied table become one before they are summed
    tags = {op.attributes[TAG].data for op in ops(small) if TAG in op.attributes}
    assert {f"{tag}.1" for tag in tags if "." not in tag} == {tag for tag in tags if "." in tag} != set()


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def test_a_mean_over_a_mask_divides_by_the_count_of_the_whole_batch() -> None:
    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, mask = batch
        error = model(x).pow(2).sum(-1)
        return (error * mask).sum() / mask.sum().clamp(min=1)

    compare(step_of(Masked(), loss, (torch.randn(6, 8), torch.ones(6))), 3)


def test_a_global_norm_is_one_of_the_whole_gradient() -> None:
    """Computed after the last micro-batch, from sums."""
    module = parse_module(
        """builtin.module {
      func.func @main(%w: tensor<4xf64> {rhino.name = "w", rhino.role = "parameter"},
                      %x: tensor<6x4xf64> {rhino.name = "x", rhino.role = "input"})
          -> (tensor<f64> {rhino.role = "loss"}, tensor<4xf64> {rhino.role = "parameter", rhino.alias = 0 : i64}) {
        %y = hlo.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<6x4xf64>, tensor<4xf64>) -> tensor<6xf64>
        %s = hlo.mul %y, %y : tensor<6xf64>
        %l = hlo.reduce "sum" %s dims [0] : tensor<6xf64> -> tensor<f64>
        %g = hlo.dot_general %y, %x batch [] x [] contract [0] x [0] : (tensor<6xf64>, tensor<6x4xf64>) -> tensor<4xf64>
        %q = hlo.mul %g, %g : tensor<4xf64>
        %n = hlo.reduce "sum" %q dims [0] : tensor<4xf64> -> tensor<f64>
        %r = hlo.sqrt %n : tensor<f64>
        %b = hlo.broadcast_in_dim %r dims [] : tensor<f64> -> tensor<4xf64>
        %d = hlo.div %g, %b : tensor<4xf64>
        %v = hlo.sub %w, %d : tensor<4xf64>
        func.return %l, %v : tensor<f64>, tensor<4xf64>
      }
    }"""
    )
    small = compare(module, 3)
    assert [op.name for op in ops(small)].count("hlo.sqrt") == 1


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("dim", [0, 1])
def test_integers_are_equal_to_the_bit(kind: str, dim: int) -> None:
    """Outputs that are split are put together, and all kinds of reductions are combined, whole numbers exactly."""
    shape = "6x5" if dim == 0 else "5x6"
    module = parse_module(
        f"""builtin.module {{
      func.func @main(%p: tensor<i64> {{rhino.name = "p", rhino.role = "parameter"}},
                      %x: tensor<{shape}xi64> {{rhino.name = "x", rhino.role = "input"}})
          -> (tensor<5xi64>, tensor<{shape}xi64>, tensor<30xi64>) {{
        %b = hlo.broadcast_in_dim %p dims [] : tensor<i64> -> tensor<{shape}xi64>
        %y = hlo.mul %x, %b : tensor<{shape}xi64>
        %r = hlo.reduce "{kind}" %y dims [{dim}] : tensor<{shape}xi64> -> tensor<5xi64>
        %f = hlo.reshape %y : tensor<{shape}xi64> -> tensor<30xi64>
        func.return %r, %y, %f : tensor<5xi64>, tensor<{shape}xi64>, tensor<30xi64>
      }}
    }}"""
    )
    small = module.clone()
    microbatch(small, 3, f"x:{dim}")
    small.verify()
    x = np.random.default_rng(0).integers(-4, 5, (6, 5) if dim == 0 else (5, 6))
    assert {MICRO in op.attributes for op in ops(small) if op.name in ("hlo.mul", "hlo.reduce")} == {True}
    arrays = [np.int64(3), x]
    for want, got in zip(run_module(module, arrays), run_module(small, arrays), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("accumulate_in", "other"), [("f32", "f32"), ("same", "bf16")])
def test_bf16_gradients_that_become_f32_are_summed_in_f32(accumulate_in: str, other: str) -> None:
    module = parse_module(
        """builtin.module {
      func.func @main(%w: tensor<4xbf16> {rhino.name = "w", rhino.role = "parameter"},
                      %d: tensor<4x8xbf16> {rhino.name = "d", rhino.role = "input"}) -> (tensor<8xf32>, tensor<8xbf16>) {
        %b = hlo.broadcast_in_dim %w dims [0] : tensor<4xbf16> -> tensor<4x8xbf16>
        %x = hlo.mul %d, %b : tensor<4x8xbf16>
        %r = hlo.reduce "sum" %x dims [0] : tensor<4x8xbf16> -> tensor<8xbf16>
        %c = hlo.convert %r to f32 : tensor<8xbf16> -> tensor<8xf32>
        %y = hlo.mul %x, %x : tensor<4x8xbf16>
        %t = hlo.reduce "sum" %y dims [0] : tensor<4x8xbf16> -> tensor<8xbf16>
        func.return %c, %t : tensor<8xf32>, tensor<8xbf16>
      }
    }"""
    )
    microbatch(module, 4, accumulate_in=accumulate_in)
    sums = [op for op in ops(module) if op.name == "hlo.add"]
    assert [types.element_name(types.element_of(op.results[0])) for op in sums] == ["f32", other] * 3


def test_one_micro_batch_is_the_program_and_a_batch_must_divide() -> None:
    step = step_of(mlp(1), regression, pairs(6))
    text = print_module(step)
    microbatch(step, 1)
    assert print_module(step) == text
    with pytest.raises(UsageError, match="4 micro-batches do not divide the batch of 6") as error:
        microbatch(step, 4)
    assert "2, 3, 6" in str(error.value)
    with pytest.raises(UsageError, match="give 1 or more"):
        microbatch(step, 0)
    with pytest.raises(UsageError, match="'tokens:0' is no dimension"):
        microbatch(step, 2, "tokens:0")
    assert print_module(step) == text


def test_batch_norm_is_refused_with_the_op_that_needs_the_whole_batch() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.lin(x))

    step = step_of(Normed(), regression, pairs(8))
    text = print_module(step)
    with pytest.raises(ProgramError, match=r"sub needs what hlo\.reduce makes of the whole batch") as error:
        microbatch(step, 2)
    assert "test_microbatch.py" in str(error.value)
    assert print_module(step) == text


def test_a_contrastive_loss_is_refused() -> None:
    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        a, b = model(batch[0]), model(batch[1])
        return F.cross_entropy(a @ b.T, torch.arange(8))

    step = step_of(mlp(1, dropout=0.0), loss, pairs(8))
    with pytest.raises(ProgramError, match="micro-batches cannot run one after another: dot_general"):
        microbatch(step, 2)


def test_a_backward_pass_that_needs_the_loss_of_the_whole_batch_is_refused() -> None:
    step = step_of(mlp(1, dropout=0.0), lambda model, batch: regression(model, batch).sqrt(), pairs(8))
    with pytest.raises(ProgramError, match="micro-batches cannot run one after another"):
        microbatch(step, 2)


def peak(module: ModuleOp) -> float:
    """Bytes that the step needs on one device."""
    return plan(module, Cluster.parse("1xH100"), effort=Effort("O1", 1)).cost.peak_memory_bytes


def test_activations_shrink_with_the_micro_batch() -> None:
    rows, width = 4096, 8
    step = step_of(mlp(6, dropout=0.0, width=width), regression, pairs(rows, width), SGD(lr=0.1))
    inputs = 2 * rows * width * 4
    before = peak(step) - inputs
    for count in (2, 8):
        small = step.clone()
        microbatch(small, count)
        assert before / count <= peak(small) - inputs < 1.1 * before / count


def test_a_program_whose_batch_is_not_leading() -> None:
    """The dimension that most inputs share is the batch; every reshape that merges it is followed."""
    compare(step_of(Masked(), lambda model, x: model(x[0].transpose(0, 1)).pow(2).mean() + x[1].pow(2).mean(),
                    (torch.randn(5, 6, 8), torch.randn(6, 8))), 3, batch="batch.0:1")  # fmt: skip


def test_ops_are_numbered_alike_in_all_micro_batches() -> None:
    step = step_of(mlp(), regression, pairs(12))
    microbatch(step, 3)
    kinds: list[dict[str, str]] = [{}, {}, {}]
    for op in ops(step):
        if MICRO in op.attributes:
            index, _, serial = op.attributes[MICRO].data.partition(".")
            assert serial not in kinds[int(index)]
            kinds[int(index)][serial] = op.name
    assert kinds[0].items() < kinds[1].items() and kinds[1] == kinds[2]


def test_loops_and_branches_run_on_the_rows_of_a_micro_batch() -> None:
    """What counts rows inside of a loop counts those of the whole batch."""

    def body(b: Builder, w: SSAValue, x: SSAValue) -> list[SSAValue]:
        def turn(c: Builder, k: SSAValue, a: SSAValue, w: SSAValue) -> list[SSAValue]:
            place = c.convert(c.linear_index((6, 4)), types.F64)
            return [
                c.add(k, c.full((), types.I64, 1)),
                c.add(c.tanh(c.matmul(a, w)), c.mul(place, c.full_like(place, 0.01))),
            ]

        def more(c: Builder, k: SSAValue, *_: SSAValue) -> list[SSAValue]:
            return [c.compare(k, c.full((), types.I64, 3), "lt")]

        y = b.while_([b.full((), types.I64, 0), x], [w], more, turn)[1]
        positive = b.compare(b.reduce(w, [0, 1], "sum"), b.full((), types.F64, 0.0), "gt")
        z = b.if_(positive, [y], lambda c, v: [c.mul(v, v)], lambda c, v: [c.negate(v)])[0]
        return [b.reduce(z, [0, 1], "sum"), z]

    module = program(
        [("w", "parameter", (4, 4), "f64"), ("x", "input", (6, 4), "f64")], body, ("loss", "output")
    )
    small = compare(module, 3)
    names = [op.name for op in ops(small) if MICRO in op.attributes]
    assert names.count("hlo.while") == names.count("hlo.if") == 3
    differentiate(module)  # the gradient of w is summed inside of the loop
    with pytest.raises(ProgramError, match="while must see the whole batch"):
        microbatch(module, 3)


def test_a_step_of_which_nothing_can_be_split_is_refused() -> None:
    """Sorting a batch is no matter of weights, and is done beforehand; all that follows would be, too."""

    def body(b: Builder, w: SSAValue, x: SSAValue) -> list[SSAValue]:
        (rank,) = b.sort([x], 0)
        return [b.reduce(b.mul(rank, w), [0], "sum")]

    module = program([("w", "parameter", (6,), "f64"), ("x", "input", (6,), "f64")], body)
    with pytest.raises(ProgramError, match="sort must see the whole batch"):
        microbatch(module, 3)
