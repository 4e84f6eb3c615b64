"""spmd: local programs of whole training steps, their boundary, and how fast they are made."""

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rhino.dialects import signature
from rhino.dialects.dist import CollectiveOp, LocalOp
from rhino.dialects.dist.layouts import GLOBAL_TYPE
from rhino.dialects.hlo.base import HloOp
from rhino.dialects.text import parse_module
from rhino.dialects.verify import stage_of, verify
from rhino.ir.evaluate import run_module
from rhino.passes import PASSES

MLP = """
func.func @main(%w1: tensor<8x16xf64> {{rhino.name = "w1", rhino.role = "parameter"{w1}}},
                %w2: tensor<16x4xf64> {{rhino.name = "w2", rhino.role = "parameter"{w2}}},
                %x: tensor<8x8xf64> {{rhino.name = "x", rhino.role = "input"{x}}})
    -> (tensor<f64> {{rhino.role = "loss", rhino.name = "loss"}}) {{
  %h = hlo.dot_general %x, %w1 batch [] x [] contract [1] x [0] : (tensor<8x8xf64>, tensor<8x16xf64>) -> tensor<8x16xf64>
  %z = hlo.constant dense<0.0> : tensor<8x16xf64>
  %r = hlo.maximum %h, %z : tensor<8x16xf64>
  %y = hlo.dot_general %r, %w2 batch [] x [] contract [1] x [0] : (tensor<8x16xf64>, tensor<16x4xf64>) -> tensor<8x4xf64>
  %q = hlo.mul %y, %y : tensor<8x4xf64>
  %l = hlo.reduce "sum" %q dims [0, 1] : tensor<8x4xf64> -> tensor<f64>
  func.return %l : tensor<f64>
}}
"""


def pin(text):
    return f", dist.layout = #dist.layout<{text}>"


def run(module: ModuleOp, *passes: str, **options: object) -> None:
    for name in passes:
        PASSES[name]()(**options).apply(Context(), module)
        verify(module)


PLANS = {
    "data parallel": {"x": pin('[{"a", "b"}, {}]'), "w1": pin("[{}, {}]"), "w2": pin("[{}, {}]")},
    "zero": {"x": pin('[{"a", "b"}, {}]'), "w1": pin('[{}, {"a", "b"}]'), "w2": pin('[{"a", "b"}, {}]')},
    "tensor parallel": {"x": pin("[{}, {}]"), "w1": pin('[{}, {"b", "a"}]'), "w2": pin('[{"b", "a"}, {}]')},
    "both": {"x": pin('[{"a"}, {}]'), "w1": pin('[{}, {"b"}]'), "w2": pin('[{"b"}, {}]')},
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_training_steps_equal_the_single_device_program(plan, optimizer):
    module = parse_module(MLP.format(**PLANS[plan]))
    run(module, "autodiff")
    run(module, "optimizer", kind=optimizer)
    func = signature.main_of(module)
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal(t.get_shape())
        if t.get_shape()
        else np.zeros((), np.float64 if "f" in str(t) else np.int64)
        for t in func.function_type.inputs
    ]
    want = run_module(module, inputs)
    aliases = [s.alias for s in signature.results(func)]
    run(module, "propagate", mesh="a=2,b=2")
    run(module, "spmd", "fuse-collectives")
    assert stage_of(module) == "local"
    for got, expected in zip(run_module(module, inputs), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    func = signature.main_of(module)
    assert [s.alias for s in signature.results(func)] == aliases
    # What replaces a parameter lives where the parameter lives.
    arguments, results = signature.arguments(func), signature.results(func)
    for slot in results:
        if slot.alias is not None:
            assert dict(slot.other) == dict(arguments[slot.alias].other)


def test_data_parallel_needs_one_all_reduce_of_all_gradients():
    module = parse_module(MLP.format(**PLANS["data parallel"]))
    run(module, "autodiff")
    run(module, "propagate", mesh="a=2,b=2")
    run(module, "spmd", "fuse-collectives", "cse", "dce")
    found = [op for op in module.walk() if isinstance(op, CollectiveOp)]
    assert [op.name for op in found] == ["dist.all_reduce"]
    assert (found[0].reason or "").startswith(
        "combines 3: reshard [] partial {a: sum, b: sum} -> [] for result"
    )


def test_tensor_parallel_needs_one_all_reduce():
    module = parse_module(MLP.format(**PLANS["tensor parallel"]))
    run(module, "propagate", mesh="a=2,b=2")
    run(module, "spmd", "fuse-collectives")
    found = [op for op in module.walk() if isinstance(op, LocalOp)]
    assert [op.name for op in found] == ["dist.all_reduce"]


def test_locations_and_names_are_kept():
    module = parse_module(MLP.format(**PLANS["both"]))
    before = {op.results[0].name_hint: str(op.location) for op in module.walk() if op.results}
    run(module, "propagate", mesh="a=2,b=2")
    run(module, "spmd")
    for op in module.walk():
        if isinstance(op, HloOp) and op.results[0].name_hint in before:
            assert str(op.location) == before[op.results[0].name_hint]
    slots = signature.arguments(signature.main_of(module))
    assert [s.name for s in slots] == ["w1", "w2", "x"]
    assert [str(dict(s.other)[GLOBAL_TYPE]) for s in slots][2] == "tensor<8x8xf64>"
