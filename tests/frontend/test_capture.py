"""The captured module's shape: arguments, roles, ties, constants, composites, locations, and what is not captured."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from xdsl.dialects.builtin import FileLineColLoc, ModuleOp, NameLoc, UnknownLoc
from xdsl.ir import Operation

from rhino.dialects import signature
from rhino.dialects.hlo.composite import CompositeOp
from rhino.frontend.capture import SEED, capture
from rhino.frontend.program import Program, load_program
from rhino.ir import types
from rhino.ir.errors import ProgramError, RhinoWarning, UnsupportedError, UsageError
from rhino.ir.evaluate import run_module
from rhino.passes.autodiff import differentiate

EXAMPLES = Path(__file__).parents[2] / "examples"


def body(module: ModuleOp) -> list[Operation]:
    return list(signature.main_of(module).body.block.ops)


def run(module: ModuleOp, program: Program, **extra: np.ndarray) -> dict[str, np.ndarray]:
    """All results of a captured module by name, on the program's own tensors."""
    from rhino.frontend.program import named_inputs

    tensors = {
        **dict(program.model.named_parameters(remove_duplicate=False)),
        **dict(program.model.named_buffers(remove_duplicate=False)),
        **dict(named_inputs(program.batch)),
    }
    arrays = {n: t.detach().numpy().copy() for n, t in tensors.items()} | extra
    func = signature.main_of(module)
    outputs = run_module(module, [arrays[s.name] for s in signature.arguments(func)])
    return {s.name: o for s, o in zip(signature.results(func), outputs, strict=True)}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.other = nn.Linear(4, 4, bias=False)
        self.other.weight = self.inner.weight
        self.unused = nn.Parameter(torch.randn(2))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)
        self.table = torch.arange(4.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return self.other(torch.tanh(self.inner(x) * self.scale)) * self.frozen + self.table


def tied_program() -> Program:
    torch.manual_seed(0)
    return Program(
        Tied(), lambda m, b: m(b["x"]).square().mean() + b["y"], {"x": torch.randn(3, 4), "y": torch.ones(())}
    )


def test_arguments_and_results_say_what_they_are() -> None:
    func = signature.main_of(capture(tied_program()))
    slots = signature.arguments(func)
    assert [(s.name, s.role) for s in slots] == [
        ("unused", "parameter"),
        ("inner.weight", "parameter"),
        ("inner.bias", "parameter"),
        ("frozen", "buffer"),
        ("count", "buffer"),
        ("scale", "buffer"),
        ("x", "input"),
        ("y", "input"),
    ]
    assert slots[1].tied == ("other.weight",)
    assert [types.show(t) for t in func.function_type.inputs][4] == "i64[]"
    results = signature.results(func)
    assert [(s.name, s.role, s.alias) for s in results] == [("loss", "loss", None), ("count", "buffer", 4)]


def test_tied_weights_constants_and_buffers_compute_as_in_torch() -> None:
    program = tied_program()
    module = capture(program)
    differentiate(module)
    out = run(module, program)
    loss = program.loss(program.model, program.batch)
    loss.backward()
    np.testing.assert_allclose(out["loss"], loss.detach(), rtol=1e-5)
    np.testing.assert_allclose(
        out["inner.weight.grad"], program.model.inner.weight.grad, rtol=1e-4, atol=1e-6
    )
    assert out["count"] == 1 == int(program.model.count)
    assert "frozen.grad" not in out
    assert "unused.grad" not in out


def test_capture_changes_nothing_in_the_model() -> None:
    program = tied_program()
    before = {n: (t, t.clone()) for n, t in program.model.state_dict(keep_vars=True).items()}
    capture(program)
    after = program.model.state_dict(keep_vars=True)
    for name, (tensor, copy) in before.items():
        assert after[name] is tensor and torch.equal(tensor, copy)
    assert program.model.other.weight is program.model.inner.weight


def test_names_of_inputs() -> None:
    def names(batch: object) -> list[str]:
        program = Program(nn.Linear(2, 1), lambda m, b: m(torch.ones(3, 2)).sum(), batch)
        return [s.name for s in signature.arguments(signature.main_of(capture(program))) if s.role == "input"]

    x = torch.ones(3, 2)
    assert names(x) == ["batch"]
    assert names((x, x)) == ["batch.0", "batch.1"]
    assert names({"a": x, "b": {"c": x, "n": 3}}) == ["a", "b.c"]


def test_every_composite_is_kept_whole() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.rms, self.out = nn.LayerNorm(8), nn.RMSNorm(8), nn.Linear(8, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = F.scaled_dot_product_attention(x, x, x, is_causal=True)
            return self.out(F.gelu(self.rms(self.norm(y))).softmax(-1).log_softmax(-1))

    program = Program(
        Model(),
        lambda m, b: F.cross_entropy(m(b[0]).flatten(0, -2), b[1].flatten(), label_smoothing=0.1),
        (torch.randn(2, 2, 3, 8), torch.randint(0, 5, (2, 2, 3))),
    )
    module = capture(program)
    composites = {op.composite_name.data: op for op in body(module) if isinstance(op, CompositeOp)}
    assert set(composites) == {
        "attention", "layer_norm", "rms_norm", "gelu", "softmax", "log_softmax", "cross_entropy"
    }  # fmt: skip
    attributes = composites["cross_entropy"].composite_attributes
    assert attributes is not None and set(attributes.data) == {
        "dim",
        "reduction",
        "ignore_index",
        "label_smoothing",
    }
    expected = program.loss(program.model, program.batch)
    np.testing.assert_allclose(run(module, program)["loss"], expected.detach(), rtol=1e-5)


def test_every_op_has_a_location_with_module_path_and_line() -> None:
    module = capture(tied_program())
    for op in body(module)[:-1]:
        assert not isinstance(op.location, UnknownLoc), op.name
    dots = [op for op in body(module) if op.name == "hlo.dot_general"]
    places = [op.location for op in dots]
    assert [p.desc.data for p in places if isinstance(p, NameLoc)] == ["inner", "other"]
    lines = []
    for place in places:
        assert isinstance(place, NameLoc) and isinstance(place.location, FileLineColLoc)
        assert place.location.filename.data.endswith("test_capture.py")
        lines.append(place.location.line.data)
    source = Path(__file__).read_text().splitlines()
    assert "self.other(torch.tanh(self.inner(x)" in source[lines[0] - 1]


class Stopped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = self.a(x).abs().mean()
        y = self.a(x).detach()
        return (self.b(x) * scale + y * self.b(y)).square().mean()


def test_detach_and_no_grad_stop_gradients() -> None:
    torch.manual_seed(0)
    program = Program(Stopped().double(), lambda m, b: m(b), torch.randn(2, 3, dtype=torch.float64))
    module = capture(program)
    differentiate(module)
    assert not any(op.name == "hlo.stop_gradient" for op in body(module))
    out = run(module, program)
    program.loss(program.model, program.batch).backward()
    assert "a.weight.grad" not in out and program.model.a.weight.grad is None
    np.testing.assert_allclose(out["b.weight.grad"], program.model.b.weight.grad, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_kept_and_accumulate_in_f32(dtype: torch.dtype) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(F.gelu(self.inner(x)))
            y = F.scaled_dot_product_attention(y, y, y)
            return (y.softmax(-1).float().square() + F.silu(y).mean(-1, keepdim=True)).sum()

    torch.manual_seed(0)
    program = Program(Model().to(dtype), lambda m, b: m(b.to(dtype)), torch.randn(2, 4, 8))
    module = capture(program)
    element = {torch.bfloat16: types.BF16, torch.float16: types.F16}[dtype]
    func = signature.main_of(module)
    assert [types.element_of(a) for a in func.args] == [element] * 4 + [types.F32]
    arrays = [
        p.detach().float().numpy().astype(types.numpy_dtype(element)) for p in program.model.parameters()
    ]
    (found,) = run_module(module, [*arrays, program.batch.numpy()])
    expected = program.loss(program.model, program.batch)
    np.testing.assert_allclose(found, expected.detach(), rtol=2e-2)


def test_autocast_is_captured() -> None:
    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(batch).float().square().mean()

    torch.manual_seed(0)
    program = Program(nn.Linear(4, 4), loss, torch.randn(3, 4))
    module = capture(program)
    (dot,) = (op for op in body(module) if op.name == "hlo.dot_general")
    assert types.element_of(dot.results[0]) == types.BF16
    np.testing.assert_allclose(
        run(module, program)["loss"], loss(program.model, program.batch).detach(), rtol=2e-2
    )


# Random numbers


def dropout_program() -> Program:
    return Program(
        nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.25), nn.Dropout(0.25)),
        lambda m, b: (m[1](b) + m[2](b) * 10000).sum(),
        torch.ones(50, 64, dtype=torch.float64),
    )


def test_dropout_counts_steps_in_a_state() -> None:
    module = capture(dropout_program())
    func = signature.main_of(module)
    seed = signature.arguments(func)[-1]
    assert (seed.name, seed.role, seed.slot) == (SEED, "state", "seed")
    new = signature.results(func)[-1]
    assert (new.name, new.role, new.alias) == (SEED, "state", len(func.args) - 1)


def test_dropout_keeps_the_right_share_and_differs_between_sites_and_steps() -> None:
    program = dropout_program()
    module = capture(program)

    def sums(step: int) -> tuple[int, int]:
        out = run(module, program, **{SEED: np.asarray(step, dtype=np.int64)})
        assert out[SEED] == step + 1
        second, first = divmod(round(float(out["loss"]) * 0.75), 10000)
        return first, second

    first, second = sums(0), sums(1)
    n = 50 * 64
    for kept in (*first, *second):
        assert abs(kept - 0.75 * n) < 5 * (n * 0.75 * 0.25) ** 0.5
    assert len({*first, *second}) > 2
    assert sums(0) == first


def test_dropout_gradient_uses_the_same_mask() -> None:
    program = Program(nn.ParameterList([torch.ones(20, 8, dtype=torch.float64)]), _dropped, torch.zeros(1))
    module = capture(program)
    differentiate(module)
    out = run(module, program, **{SEED: np.asarray(3, dtype=np.int64)})
    gradient = out["0.grad"]
    assert set(np.unique(gradient)) == {0.0, 2.0}
    np.testing.assert_allclose(out["loss"], gradient.sum())


def _dropped(model: nn.ParameterList, batch: torch.Tensor) -> torch.Tensor:
    return F.dropout(model[0], 0.5, training=True).sum()


def test_attention_dropout_is_inside_the_composite() -> None:
    q = torch.randn(2, 2, 8, 4)
    program = Program(
        nn.Linear(4, 4), lambda m, b: F.scaled_dot_product_attention(m(b), b, b, dropout_p=0.5).sum(), q
    )
    module = capture(program)
    (op,) = (op for op in body(module) if isinstance(op, CompositeOp))
    assert op.composite_name.data == "attention" and types.show(op.operands[-1].type) == "i64[]"
    run(module, program, **{SEED: np.asarray(0, dtype=np.int64)})


# Errors


class Bad(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.inner = Inner(function)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class Inner(nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x @ self.weight)  # type: ignore[operator]


def failure(function: object, kind: type[Exception], loss: object = None) -> Exception:
    def total(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return model(batch).sum()

    with pytest.raises(kind) as caught:
        capture(Program(Bad(function), loss or total, torch.randn(4, 4)))  # type: ignore[arg-type]
    return caught.value


def test_unsupported_op_names_op_place_and_remedy() -> None:
    error = failure(lambda x: torch.linalg.ldl_factor(x).LD, UnsupportedError)
    assert isinstance(error, UnsupportedError)
    assert "aten.linalg_ldl_factor_ex.default" in error.message
    assert error.where is not None and error.where.startswith("inner (") and "test_capture.py:" in error.where
    assert error.remedy is not None and "docs/add-an-op.md" in error.remedy


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 0],
        lambda x: x.nonzero().float(),
        lambda x: x * x.sum().item(),
        lambda x: x if x.sum() > 0 else -x,
        lambda x: torch.zeros(int(x.argmax())),
    ],
    ids=["mask", "nonzero", "item", "branch", "size"],
)
def test_data_dependent_programs_are_refused(function: object) -> None:
    error = failure(function, UnsupportedError)
    assert isinstance(error, UnsupportedError)
    assert "depend" in error.message
    assert error.where is not None and "test_capture.py:" in error.where
    assert error.remedy is not None and "static shapes" in error.remedy


def test_shape_mistake_in_the_model_is_placed() -> None:
    error = failure(lambda x: x @ torch.ones(3, 3), ProgramError)
    assert isinstance(error, ProgramError)
    assert "being traced" in error.message and error.where is not None and "test_capture.py:" in error.where


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda m, b: m(b), r"shape [4, 4]"),
        (lambda m, b: m(b).argmax(), "dtype torch.int64"),
        (lambda m, b: (m(b).sum(), m(b).sum()), "returns 2 values"),
        (lambda m, b: 1.0, "float"),
        (lambda m, b: None, "NoneType"),
    ],
    ids=["shape", "integer", "pair", "number", "none"],
)
def test_a_loss_must_be_one_float(loss: object, found: str) -> None:
    assert found in str(failure(lambda x: x, ProgramError, loss))


def test_parameter_outside_of_the_model_is_refused() -> None:
    scale = nn.Parameter(torch.ones(4))
    error = failure(lambda x: x * scale, ProgramError)
    assert "no parameter of the model" in str(error)


def test_unsupported_dtype() -> None:
    assert "dtype torch.complex32" in str(
        failure(lambda x: x.to(torch.complex32).real.float(), UnsupportedError)
    )


def test_batch_with_strange_content() -> None:
    with pytest.raises(UsageError, match=r"holds an object of type object at 'a\.b'"):
        capture(Program(nn.Linear(2, 2), lambda m, b: 0, {"a": {"b": object()}}))


# Big models


def test_meta_model_is_captured_without_weights() -> None:
    program = load_program(EXAMPLES / "gpt2_small.py")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    module = capture(program)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert all(p.is_meta for p in program.model.parameters())
    weights = sum(p.numel() * 4 for p in program.model.parameters()) // 1024
    assert grown < weights, f"{grown} KiB more for {weights} KiB of weights"
    func = signature.main_of(module)
    sizes = [types.bytes_of(types.type_of(a)) for a in func.args]
    assert sum(sizes) // 4 > 124_000_000
    attention = [
        op for op in body(module) if isinstance(op, CompositeOp) and op.composite_name.data == "attention"
    ]
    assert len(attention) == 12


def test_meta_constant_without_values_is_refused() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4, device="meta")
            self.table = torch.zeros(4, device="meta")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + self.table

    with pytest.raises(ProgramError, match="use register_buffer"):
        capture(Program(Model(), lambda m, b: m(b).sum(), torch.zeros(3, 4)))


def test_example_equals_torch() -> None:
    program = load_program(EXAMPLES / "gpt2.py")
    out = run(capture(program), program)
    expected = program.loss(program.model, program.batch_at(0))
    np.testing.assert_allclose(out["loss"], expected.detach(), rtol=1e-5)


class Straight(torch.autograd.Function):
    """Rounds; its gradient passes straight through, which the forward pass does not say."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


def test_a_backward_pass_of_ones_own_is_warned_of() -> None:
    before = torch.autograd.Function.__dict__["apply"]
    given = Program(nn.Linear(4, 4), lambda m, x: Straight.apply(m(x)).square().sum(), torch.randn(2, 4))
    with pytest.warns(RhinoWarning, match="Straight"):
        capture(given)
    assert torch.autograd.Function.__dict__["apply"] is before
