"""Runs built programs op by op, in torch and in numpy, on the same operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp
from rhino.ir import types
from rhino.runtime.executor import compile_block
from rhino.runtime.tensors import to_numpy, to_torch
from rhino.runtime.torch_ops import TABLE, Context
from rhino.runtime.torch_ops.foreign import adapt

CPU = Context(torch.device("cpu"), compile_block=compile_block)
FLOATS = ("f64", "f32", "f16", "bf16")
INTEGERS = ("i8", "i16", "i32", "i64")
TOLERANCE = {
    "f64": 1e-12,
    "f32": 3e-6,
    "f16": 2e-3,
    "bf16": 1.6e-2,
    "complex<f64>": 1e-12,
    "complex<f32>": 1e-5,
}

Build = Callable[..., object]


def draw(name: str, shape: Sequence[int], seed: int, positive: bool = False) -> np.ndarray:
    """Values of an element type: floats off the integers, integers with repetitions, negatives and zeros."""
    rng = np.random.default_rng([seed, *name.encode()])
    dtype = types.numpy_dtype(types.element(name))
    if name == "i1":
        return rng.integers(0, 2, shape).astype(dtype)
    if name in INTEGERS or name.startswith("ui"):
        return rng.integers(0 if positive or name.startswith("ui") else -4, 6, shape).astype(dtype)
    values = rng.uniform(0.2, 1.6, shape) if positive else rng.normal(size=shape)
    return values.astype(dtype)


def run(build: Build, arrays: Sequence[np.ndarray], exact: bool = False) -> list[HloOp]:
    """Build a program on `arrays`; compare, op by op, torch's results with numpy's for the same operands."""
    block = Block(arg_types=[types.tensor(a.shape, types.from_numpy(a.dtype)) for a in arrays])
    build(Builder(InsertPoint.at_end(block)), *block.args)
    known: dict[SSAValue, np.ndarray] = dict(zip(block.args, arrays, strict=True))
    ops = [op for op in block.ops if isinstance(op, HloOp)]
    for op in ops:
        op.verify()
        operands = [known[o] for o in op.operands]
        want = op.evaluate(*operands)
        before = [a.copy() for a in operands]
        tensors = [to_torch(a) for a in operands]
        got = adapt(op, TABLE[op.name], CPU)(*tensors)
        got = got if isinstance(got, tuple) else (got,)
        for tensor, array in zip(tensors, before, strict=True):
            np.testing.assert_array_equal(to_numpy(tensor), array, err_msg=f"{op.name} changed an operand")
        assert len(got) == len(want) == len(op.results)
        for result, g, w in zip(op.results, got, want, strict=True):
            compare(op, to_numpy(g), np.asarray(w), types.type_of(result), exact)
            known[result] = np.asarray(w)
    return ops


def compare(op: HloOp, got: np.ndarray, want: np.ndarray, type: types.Type, exact: bool) -> None:
    name = types.element_name(type.element_type)
    assert got.shape == want.shape == tuple(type.get_shape()), op.name
    assert got.dtype == types.numpy_dtype(type.element_type), op.name
    if exact or name not in TOLERANCE:
        np.testing.assert_array_equal(got, want, err_msg=op.name)
    else:
        if name.startswith("complex"):  # part by part
            got, want = (np.stack([a.real, a.imag]) for a in (got, want))
        wide = np.asarray(want, np.float64)
        finite = np.abs(wide[np.isfinite(wide)])
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        np.testing.assert_allclose(
            np.asarray(got, np.float64),
            wide,
            rtol=TOLERANCE[name],
            atol=TOLERANCE[name] * scale,
            err_msg=op.name,
        )
