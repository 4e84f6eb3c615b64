"""Generated kernels against numpy, in Triton's interpreter."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_programs import layer_norm, linear, program, run, tensor

from rhino.dialects import signature
from rhino.dialects.kernel import RegionOp
from rhino.kernels.region import contiguous, offset
from rhino.passes.fuse import fuse

RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RHINO_CACHE", str(tmp_path_factory.getbasetemp() / "kernel-cache"))


def kinds(module) -> list[str]:
    return [op.kind.data for op in signature.main_of(module).body.block.ops if isinstance(op, RegionOp)]


def test_offset_reads_every_element_of_any_strided_view() -> None:
    assert offset((), (), "i") == ""
    for shape in [(2, 3, 4), (1, 5), (6,), (2, 1, 3)]:
        for keep in itertools.product([0, 1], repeat=len(shape)):
            strides = tuple(s * k for s, k in zip(contiguous(shape), keep, strict=True))
            expression = offset(shape, strides, "i") or "0"
            flat = np.arange(int(np.prod(shape)))
            want = sum(
                (
                    np.array(digits) * s
                    for digits, s in zip(np.unravel_index(flat, shape), strides, strict=True)
                ),
                np.zeros_like(flat),
            )
            got = eval(expression, {"i": flat})
            assert np.array_equal(np.broadcast_to(got, flat.shape), want)


def test_offset_of_a_contiguous_tensor_costs_no_division() -> None:
    assert offset((4, 5, 6), contiguous((4, 5, 6)), "i") == "i"


def test_layer_norm_is_one_row_kernel() -> None:
    module = program([tensor(4, 6, 37), tensor(37)], lambda b, x, g: [layer_norm(b, x, g)])
    args = [draw(4, 6, 37), draw(37)]
    (want,) = run(module, args)
    fuse(module)
    module.verify()
    assert kinds(module) == ["rows"]
    region = next(op for op in signature.main_of(module).body.block.ops if isinstance(op, RegionOp))
    assert len(region.outputs) == 1, "row statistics that only the kernel needs are not stored"
    (got,) = run(module, args, triton=True)
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


def test_linear_with_activation_is_one_matmul_kernel() -> None:
    def body(b, x, w, bias):
        y = linear(b, x, w, bias)
        return [b.mul(y, b.logistic(y))]

    module = program([tensor(3, 20, 33), tensor(33, 48), tensor(48)], body)
    args = [draw(3, 20, 33), draw(33, 48), draw(48)]
    (want,) = run(module, args)
    fuse(module)
    assert kinds(module) == ["matmul"]
    np.testing.assert_allclose(run(module, args, triton=True)[0], want, rtol=2e-5, atol=2e-5)


def test_a_reduction_to_a_scalar_and_what_follows_it() -> None:
    def body(b, x):
        total = b.reduce(b.mul(x, x), [0], "sum")
        return [b.sqrt(b.mul(total, b.full((), x.type.element_type, 0.25)))]

    module = program([tensor(50)], body)
    args = [draw(50)]
    (want,) = run(module, args)
    fuse(module)
    assert kinds(module) == ["rows"]
    np.testing.assert_allclose(run(module, args, triton=True)[0], want, rtol=2e-6)


@pytest.mark.parametrize(
    ("shapes", "batch", "contract"),
    [
        (((2, 3, 8, 5), (2, 3, 7, 5)), ((0, 1), (0, 1)), ((3,), (3,))),
        (((8, 2, 5), (5, 7, 2)), ((1,), (2,)), ((2,), (0,))),
        (((4, 5, 6), (6, 5, 9)), ((), ()), ((1, 2), (1, 0))),
        (((5,), (5, 9)), ((), ()), ((0,), (0,))),
        (((6, 5), (5,)), ((), ()), ((1,), (0,))),
    ],
)
def test_matmul_takes_any_dimension_numbers(shapes, batch, contract) -> None:
    module = program(
        [tensor(*s) for s in shapes],
        lambda b, x, y: [b.dot_general(x, y, batch=batch, contract=contract)],
    )
    args = [draw(*s) for s in shapes]
    (want,) = run(module, args)
    fuse(module)
    assert kinds(module) == ["matmul"]
    np.testing.assert_allclose(run(module, args, triton=True)[0], want, rtol=2e-5, atol=2e-5)


def test_bf16_is_computed_in_f32_and_rounded_once() -> None:
    torch = pytest.importorskip("torch")
    from rhino.kernels.launch import compile_kernel
    from rhino.kernels.region import Buffer, Compute, Dot, KernelSpec, Load, Store

    a, b = torch.randn(64, 96).bfloat16(), torch.randn(96, 48).bfloat16()
    lhs, rhs = Buffer("in0", (64, 96), "bf16"), Buffer("in1", (96, 48), "bf16")
    out = Buffer("out0", (64, 48), "bf16")
    dot = Dot("acc0", lhs, rhs, (), (64,), (48,), (96,), (96, 1), (1, 48))
    spec = KernelSpec("matmul", (64, 48), 1, (lhs, rhs, out), (Store(out, "acc0", False),), dot)
    got = compile_kernel(spec)([a, b])[0].float()
    want = a.double() @ b.double()
    # One rounding to 8 bits of mantissa.
    assert ((got - want).abs() <= want.abs() * 2**-8 + 1e-6).all()

    x, y = Buffer("in0", (1000,), "bf16"), Buffer("out0", (1000,), "bf16")
    scale = (Load("v", x, (1,), False), Compute("w", "{0} * 1.7", ("v",)), Store(y, "w", False))
    values = torch.randn(1000).bfloat16()
    got = compile_kernel(KernelSpec("pointwise", (1000,), 0, (x, y), scale))([values])[0]
    assert torch.equal(got, (values.float() * 1.7).bfloat16())


def test_interpreter_still_needs_its_repair() -> None:
    """Fails when Triton's interpreter becomes right about bf16 by itself: then delete rhino/kernels/interpreter.py."""
    script = """
import os, tempfile; os.environ["TRITON_INTERPRET"] = "1"
import torch
from rhino.kernels import interpreter, launch
from rhino.kernels.region import Buffer, Compute, KernelSpec, Load, Store
os.environ["RHINO_CACHE"] = tempfile.mkdtemp()
interpreter.repair = lambda: None
x, y = Buffer("in0", (1000,), "bf16"), Buffer("out0", (1000,), "bf16")
body = (Load("v", x, (1,), False), Compute("w", "{0} * 1.7", ("v",)), Store(y, "w", False))
v = torch.randn(1000).bfloat16()
got = launch.compile_kernel(KernelSpec("pointwise", (1000,), 0, (x, y), body))([v])[0]
print(int((got != (v.float() * 1.7).bfloat16()).sum()))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) > 0


UNARY = ["negate", "abs", "exp", "logistic", "tanh", "sin", "cos", "erf", "floor"]
BINARY = ["add", "sub", "mul", "maximum", "minimum"]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_elementwise_and_row_programs(data: st.DataObject) -> None:
    """Any program of fusable ops gives numpy's values, however it is cut into regions."""
    rows, cols = data.draw(st.sampled_from([(3, 5), (8, 16), (1, 7)]))
    shape, count = (rows, cols), data.draw(st.integers(3, 14))

    def body(b, x, y, v, s):
        full = [x, y, b.broadcast_in_dim(v, shape, [1]), b.broadcast_in_dim(s, shape, [])]
        row = []
        for _ in range(count):
            kind = data.draw(
                st.sampled_from(["unary", "binary", "select", "reduce", "spread", "rowop", "opaque"])
            )
            pick = lambda values: values[data.draw(st.integers(0, len(values) - 1))]  # noqa: E731
            if kind == "unary":
                full.append(
                    getattr(b, data.draw(st.sampled_from(UNARY)))(
                        b.minimum(pick(full), b.full(shape, x.type.element_type, 3.0))
                    )
                )
            elif kind == "binary":
                full.append(getattr(b, data.draw(st.sampled_from(BINARY)))(pick(full), pick(full)))
            elif kind == "select":
                full.append(b.select(b.compare(pick(full), pick(full), "lt"), pick(full), pick(full)))
            elif kind == "reduce":
                row.append(b.reduce(pick(full), [1], data.draw(st.sampled_from(["sum", "max", "min"]))))
            elif kind == "spread" and row:
                full.append(b.broadcast_in_dim(pick(row), shape, [0]))
            elif kind == "rowop" and row:
                row.append(b.sub(pick(row), b.mul(pick(row), b.full((rows,), x.type.element_type, 0.5))))
            elif kind == "opaque":
                full.append(
                    b.reverse(pick(full), [1])
                )  # never fused: regions must not close a cycle around it
        return [full[-1], *row[-1:]]

    module = program([tensor(*shape), tensor(*shape), tensor(cols), tensor()], body)
    args = [RNG.uniform(-1, 1, s).astype(np.float32) for s in (shape, shape, (cols,), ())]
    want = run(module, args)
    fuse(module)
    module.verify()
    got = run(module, args, triton=True)
    for a, e in zip(got, want, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-4)


def test_kernels_without_a_gpu_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    from rhino.ir.errors import UsageError
    from rhino.kernels.launch import compile_kernel
    from rhino.kernels.region import Buffer, KernelSpec, Load, Store

    x, y = Buffer("in0", (8,), "f32"), Buffer("out0", (8,), "f32")
    spec = KernelSpec("pointwise", (8,), 0, (x, y), (Load("v", x, (1,), False), Store(y, "v", False)))
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(UsageError, match="TRITON_INTERPRET=1"):
        compile_kernel(spec)


def test_nan_wins_maxima_and_minima() -> None:
    def body(b, x, y):
        z = b.mul(x, y)
        return [b.maximum(z, y), b.minimum(z, y), b.reduce(z, [1], "max"), b.reduce(z, [1], "min")]

    module = program([tensor(3, 5), tensor(3, 5)], body)
    args = [draw(3, 5), draw(3, 5)]
    args[0][1, 2] = np.nan
    fuse(module)
    assert kinds(module), "the point is what a kernel does"
    highest, lowest, row_max, row_min = run(module, args, triton=True)
    for pairwise in (highest, lowest):
        assert np.argwhere(np.isnan(pairwise)).tolist() == [[1, 2]]
    for row in (row_max, row_min):
        assert np.isnan(row).tolist() == [False, True, False]
