"""Plans are checked on small shapes and meshes: what shrinking keeps, and that faults are found there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from rhino.check import planned
from rhino.check.excerpt import excerpt
from rhino.check.fuzz import draw_case
from rhino.check.names import name_values
from rhino.check.planned import PlanCheck, check_planned
from rhino.check.same import first_other
from rhino.check.shrink import elements, shrink
from rhino.check.sizes import Extents, ShrinkError, Sizes, Sum
from rhino.cli.main import main
from rhino.cli.source import step_of
from rhino.dialects import signature
from rhino.dialects.dist import ReshardOp
from rhino.dialects.dist.layouts import read_layouts
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.text import parse_module
from rhino.dialects.verify import verify
from rhino.frontend.capture import capture
from rhino.frontend.program import Program
from rhino.ir import types
from rhino.ir.mesh import Mesh
from rhino.ir.optimizers import AdamW
from rhino.passes import fuse_collectives as fusing
from rhino.passes.place import PlacePass
from rhino.planner import Plan, plan
from rhino.planner.cluster import Cluster

WIDTH, HEADS, LENGTH, VOCABULARY = 256, 8, 32, 512


class Block(nn.Module):
    """Attention with one projection for queries, keys and values, and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            t.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for t in self.qkv(self.norm(x)).split(WIDTH, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(x)))


class Transformer(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(layers))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return x @ self.embed.weight.T


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    logits = model(batch)[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def step(layers: int) -> ModuleOp:
    with torch.device("meta"):
        model, tokens = Transformer(layers), torch.zeros(16, LENGTH, dtype=torch.long)
    program = Program(model, loss, tokens, AdamW(lr=1e-3))
    assert program.optimizer is not None
    return step_of(capture(program), program.optimizer)


@pytest.fixture(scope="module")
def two_layers() -> tuple[ModuleOp, Plan]:
    program = step(2)
    return program, plan(program, Cluster.parse("16"), mesh=Mesh.parse("dp=4,tp=4"), template="megatron")


@pytest.fixture(scope="module")
def five_layers() -> tuple[ModuleOp, Plan]:
    program = step(5)
    return program, plan(program, Cluster.parse("8"), mesh=Mesh.parse("dp=8"), template="zero3")


def test_a_plan_of_a_transformer_is_equal_on_four_ranks(two_layers: tuple[ModuleOp, Plan]) -> None:
    found = check_planned(two_layers[0], two_layers[1].module)
    assert (found.verdict, found.shrunk, found.mesh, found.ranks) == ("equal", True, "dp=2,tp=2", 4)
    assert found.values > 500 and found.kept == found.ops and not found.notes
    assert found.text() == f"shrunk to 4 ranks (dp=2,tp=2), {found.values} values equal"


def test_ops_reshards_and_split_dimensions_stay(two_layers: tuple[ModuleOp, Plan]) -> None:
    placed = two_layers[1].module
    small = shrink(placed)
    verify(small.module)
    assert elements(small.module) < elements(placed) / 10_000
    before, after = (list(signature.main_of(m).body.block.ops) for m in (placed, small.module))
    assert [op.name for op in before] == [op.name for op in after]
    layouts = [read_layouts(signature.main_of(m), mesh_of(m)) for m in (placed, small.module)]
    for large, little in zip(*(each.values() for each in layouts), strict=True):
        assert _axes(large) == _axes(little)
        assert {(a.name, k) for a, k in large.partial} == {(a.name, k) for a, k in little.partial}
    fused = [v for v in layouts[1] if _name(small.module, v) == "layers.0.qkv.weight"]
    # A third of the queries, of the keys and of the values to every device: still a digit inside a third.
    (digit,) = layouts[1][fused[0]].dims[0]
    assert digit.period * 3 == types.shape_of(fused[0])[0]


def _axes(layout: object) -> list[list[str]]:
    """Names of the axes per dimension, major to minor, each once."""
    return [list(dict.fromkeys(d.axis.name for d in digits)) for digits in layout.dims]  # type: ignore[attr-defined]


def _name(module: ModuleOp, value: object) -> str:
    func = signature.main_of(module)
    slots = signature.arguments(func)
    return next((s.name for s, a in zip(slots, func.args, strict=True) if a is value), "")


def test_of_equal_layers_the_first_two_and_the_last_stay(five_layers: tuple[ModuleOp, Plan]) -> None:
    program, found = five_layers
    part = excerpt(found.module)
    verify(part.module)
    assert part.layers == 3 and part.of >= 4 and part.kept < part.ops
    kept = {s.name for s in signature.arguments(signature.main_of(part.module))}
    assert {"layers.0.qkv.weight", "layers.4.qkv.weight", "embed.weight"} <= kept
    assert any(name.startswith("cut.") for name in kept)
    # Whatever is left out has its like among what is kept: the same op, on the same types, in the same layouts.
    assert _kinds(found.module) == _kinds(part.module)
    checked = check_planned(program, found.module)
    assert checked.verdict == "equal" and checked.kept < checked.ops
    assert re.search(r"3 of \d equal layers \(\d+ of \d+ ops\)", checked.text())


def _kinds(module: ModuleOp) -> set[str]:
    mesh = mesh_of(module)
    layouts = read_layouts(signature.main_of(module), mesh)
    out = set()
    for op in signature.main_of(module).body.block.ops:
        values = [*op.operands, *op.results]
        if op.results:
            out.add(f"{op.name} {[(v.type, layouts[v]) for v in values]}")
    return out


# What a fault in a pass or in a plan does.


def _drop_all_reduces(module: ModuleOp, limit: int = 0) -> None:
    for op in [op for op in module.walk() if op.name == "dist.all_reduce"]:
        op.results[0].replace_all_uses_with(op.operands[0])
        op.detach()
        op.erase()


def test_a_pass_that_drops_reductions_is_named(
    two_layers: tuple[ModuleOp, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, found = two_layers
    monkeypatch.setattr(fusing, "fuse_collectives", _drop_all_reduces)
    monkeypatch.setattr(planned, "MOST", 10_000_000)
    outcome = check_planned(program, found.module)
    assert outcome.verdict == "different" and outcome.wrong is not None
    assert outcome.wrong.made_by.name == "fuse-collectives"
    assert outcome.wrong.finding.op.startswith("hlo.") or outcome.wrong.finding.op == "func.return"
    assert outcome.reason.startswith("after fuse-collectives: ")


def test_a_shard_of_another_device_is_found(
    two_layers: tuple[ModuleOp, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rhino.dialects.hlo.constant import IotaOp

    monkeypatch.setattr(
        IotaOp, "localize", lambda self, ctx, operands: [ctx.builder.iota(ctx.result_types[0], 0)]
    )
    monkeypatch.setattr(planned, "MOST", 10_000_000)
    outcome = check_planned(*_parts(two_layers))
    assert outcome.verdict == "different" and "hlo.iota" in outcome.reason and "spmd" in outcome.reason


def _parts(given: tuple[ModuleOp, Plan]) -> tuple[ModuleOp, ModuleOp]:
    return given[0], given[1].module


def test_a_plan_that_reads_another_value_is_found_without_running(two_layers: tuple[ModuleOp, Plan]) -> None:
    program, found = two_layers
    assert first_other(program, found.module, "") is None
    wrong = found.module.clone()
    seen: dict[object, Operation] = {}
    for op in wrong.walk():
        if isinstance(op, ReshardOp):
            key = op.x.type, op.to
            other = seen.setdefault(key, op)
            if other.operands[0] is not op.operands[0]:
                op.operands[0] = other.operands[0]
                break
    outcome = check_planned(program, wrong)
    assert outcome.verdict == "different" and "is not computed by the ops of the program" in outcome.reason


# Random programs, all ops, strided and partial layouts, sub-axes.


def _placed(seed: str) -> ModuleOp | None:
    case = draw_case(seed)
    module = case.program.module.clone()
    for each in case.passes:
        if each.local:
            return module
        name_values(module)
        module = each.apply(module)
    return None


def _equal_when_small(seed: str) -> None:
    placed = _placed(seed)
    assert placed is not None
    small = shrink(placed)
    verify(small.module)
    assert elements(small.module) <= elements(placed) and small.mesh.size <= mesh_of(placed).size
    assert [op.name for op in small.module.walk()] == [op.name for op in placed.walk()]
    outcome = planned._run(small.module, PlanCheck("equal"))
    assert outcome.verdict == "equal", outcome.reason


# Of number 1878, an extent of 6 was raised to 8, so that it holds a digit behind a gap.
@pytest.mark.parametrize("number", [*range(30), 1878])
def test_random_programs_are_equal_when_small(number: int) -> None:
    _equal_when_small(f"shrink/{number}")


@pytest.mark.long
@pytest.mark.timeout(0)
def test_many_random_programs_are_equal_when_small() -> None:
    for number in range(3000):
        _equal_when_small(f"shrink/{number}")


# Single ops on extents too large to run.

LARGE = {
    "slice": "%y = hlo.slice %x start [0, 1] limit [4096, 65536] strides [1, 1] : tensor<4096x65536xf32> "
    "-> tensor<4096x65535xf32>",
    "strided slice": "%y = hlo.slice %x start [1, 0] limit [4096, 65536] strides [2, 4] : tensor<4096x65536xf32> "
    "-> tensor<2048x16384xf32>",
    "pad": "%y = hlo.pad %x with 0.0 : f32 low [0, 1] high [4096, -1] interior [0, 0] : tensor<4096x65536xf32> "
    "-> tensor<8192x65536xf32>",
    "concatenate": "%y = hlo.concatenate %x, %x, %x dim 0 : (tensor<4096x65536xf32>, tensor<4096x65536xf32>, "
    "tensor<4096x65536xf32>) -> tensor<12288x65536xf32>",
    "top_k": "%y, %i = hlo.top_k %x k 1000 : tensor<4096x65536xf32> -> tensor<4096x1000xf32>, tensor<4096x1000xi64>",
    "reshape": "%y = hlo.reshape %x : tensor<4096x65536xf32> -> tensor<4096x512x128xf32>",
    "cumulative": '%y = hlo.cumulative "sum" %x dim 1 : tensor<4096x65536xf32> -> tensor<4096x65536xf32>',
    "reverse": "%y = hlo.reverse %x dims [1] : tensor<4096x65536xf32> -> tensor<4096x65536xf32>",
}


@pytest.mark.parametrize("name", LARGE)
def test_ops_that_hold_extents_become_small(name: str) -> None:
    result = LARGE[name].rsplit("-> ", 1)[1].split("xf32>")[0] + "xf32>"
    module = parse_module(
        "func.func @main(%x: tensor<4096x65536xf32> {dist.layout = #dist.layout<[{\"a\"}, {}]>}) -> "
        f"({result}) {{\n{LARGE[name]}\nfunc.return %y : {result}\n}}"
    )  # fmt: skip
    PlacePass(mesh="a=64").apply(Context(), module)
    small = shrink(module)
    verify(small.module)
    assert small.mesh.size == 2 and elements(small.module) < 500 and not small.kept
    assert planned._run(small.module, PlanCheck("equal")).verdict == "equal"


TIED = """
func.func @main(%x: tensor<64x8191x3xf32> {dist.layout = #dist.layout<[{"a"}, {}, {}]>}) -> tensor<64x3x8191xf32> {
  %0 = hlo.negate %x : tensor<64x8191x3xf32>
  %y = hlo.reshape %0 : tensor<64x8191x3xf32> -> tensor<64x3x8191xf32>
  func.return %y : tensor<64x3x8191xf32>
}
"""


def test_an_op_that_ties_large_extents_is_named_and_the_plan_run_at_full_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, placed = parse_module(TIED), parse_module(TIED)
    PlacePass(mesh="a=64").apply(Context(), placed)
    small = shrink(placed)
    assert small.mesh.size == 2 and small.kept == ("hlo.reshape at <text>:4:3 keeps an extent of 8191",)
    most = elements(small.module) * 3
    monkeypatch.setattr(planned, "MOST", most)
    assert check_planned(program, placed).text() == "shrunk to 2 ranks (a=2), 3 values equal"
    monkeypatch.setattr(planned, "MOST", most - 1)
    outcome = check_planned(program, placed)
    assert outcome.verdict == "unchecked"
    assert outcome.text() == f"not checked: {small.kept[0]}"


def test_what_cannot_be_shrunk_is_run_at_full_size_and_said_so(
    two_layers: tuple[ModuleOp, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(module: ModuleOp, least: int = 2) -> None:
        raise ShrinkError("no small sizes were found for extents that add up")

    text = "func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {\n%y = hlo.exp %x : tensor<8xf32>\nfunc.return %y : tensor<8xf32>\n}"
    program, placed = parse_module(text), parse_module(text)
    PlacePass(mesh="a=4").apply(Context(), placed)
    monkeypatch.setattr(planned, "shrink", none)
    outcome = check_planned(program, placed)
    assert outcome.text() == "at full size on 4 ranks, 2 values equal"
    assert outcome.notes == ("not shrunk: no small sizes were found for extents that add up",)
    outcome = check_planned(*_parts(two_layers))
    assert outcome.verdict == "unchecked" and "no small sizes" in outcome.text()


# Sizes alone.


def test_sums_are_satisfied_from_below() -> None:
    """8192 tokens, without the first and without the last; a group of 8 divides the tokens."""
    extents = Extents()
    all_, rest, one = extents.new(8192), extents.new(8191), extents.amount(1)
    extents.sums.append(Sum((all_,), (rest, one)))
    extents.settle()
    sizes = Sizes(extents, [8], least=2)
    sizes.hold(all_, [(0, 1024, 8192)])
    sizes.solve()
    assert [sizes.value(e) for e in (all_, rest, one)] == [4, 3, 1] and sizes.devices(0) == 2
    assert sizes.periods(all_, [(0, 1024, 8192)]) == {0: 4}


def test_a_digit_between_gaps_and_a_product_of_factors() -> None:
    """A dimension of 3 x 8 x 64, of which 8 are cut in four, strided."""
    extents = Extents()
    whole, *parts = (extents.new(n) for n in (1536, 3, 8, 64))
    extents.products[whole, tuple(parts)] = None
    extents.settle()
    assert extents.places(whole) == (1, 64, 512, 1536)
    sizes = Sizes(extents, [4], least=2)
    sizes.hold(whole, [(0, 128, 512)])
    sizes.solve()
    assert [sizes.value(e) for e in parts] == [3, 4, 3] and sizes.value(whole) == 36
    assert sizes.periods(whole, [(0, 128, 512)]) == {0: 12}


def test_what_cannot_be_small_stays_as_it_is() -> None:
    """A dimension that is all of a group of 6, and one of 6 + 5 that the same group must not outgrow."""
    extents = Extents()
    a, b, five = extents.new(6), extents.new(11), extents.new(5)
    extents.sums.append(Sum((b,), (a, five)))
    extents.fixed.add(five)
    extents.settle()
    sizes = Sizes(extents, [6], least=2)
    sizes.hold(a, [(0, 1, 6)])
    sizes.solve()
    assert sizes.value(a) + 5 == sizes.value(b) and sizes.value(a) == sizes.devices(0)


# On the command line.

MLP = str(Path(__file__).parents[2] / "examples" / "mlp.mlir")


def _code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as done:
        main(list(arguments))
    return int(done.value.code or 0)


def test_plans_are_written_with_what_was_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, facts = tmp_path / "plan.mlir", tmp_path / "plan.json"
    arguments = ["plan", MLP, "--mesh", "x=4", "--plan", "dp", "-o", str(out), "--json", str(facts)]
    assert _code(*arguments) == 0
    found = json.loads(facts.read_text())["check"]
    assert found["verdict"] == "equal" and found["ranks"] == 2 and found["shrunk"]
    assert f"checked: {found['text']}, " in capsys.readouterr().out
    assert f'rhino.checked = "{found["text"]}"' in out.read_text()
    assert _code(*arguments, "--no-check") == 0
    assert "rhino.checked" not in out.read_text() and "check" not in json.loads(facts.read_text())
    assert _code("check", MLP, "--plan", str(out), "--shrunk", "--json", str(facts)) == 0
    assert json.loads(facts.read_text())["equal"]
    assert f"equal: {found['text']}" in capsys.readouterr().out
    assert _code("check", MLP, "--mesh", "x=4", "--shrunk", "--by-pass") == 2


def test_a_plan_that_is_wrong_is_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fusing, "fuse_collectives", _drop_all_reduces)
    monkeypatch.setattr(planned, "MOST", 1_000_000)
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "plan.mlir"
    assert _code("plan", MLP, "--mesh", "x=4", "--plan", "dp", "-o", str(out)) == 1
    error = capsys.readouterr().err
    assert "does not compute what the program does: after fuse-collectives" in error and "--no-check" in error
    assert not out.exists() and (tmp_path / "rhino-check" / "fuse-collectives.before.mlir").exists()
