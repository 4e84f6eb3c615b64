"""Batch normalisation against XLA, linear algebra and transforms against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rhino.frontend.stablehlo import read_stablehlo
from rhino.ir.evaluate import run_module


def op_text(name: str, attributes: str, operands: list[str], results: list[str]) -> str:
    """A module of one op in generic form."""
    arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(operands))
    names = ", ".join(f"%a{i}" for i in range(len(operands)))
    outs = ", ".join(results)
    bound, returned = "%r", "%r"
    if len(results) > 1:
        bound, returned = f"%r:{len(results)}", ", ".join(f"%r#{i}" for i in range(len(results)))
    kind = outs if len(results) == 1 else f"({outs})"
    return (
        f"func.func @main({arguments}) -> ({outs}) {{\n"
        f'  {bound} = "stablehlo.{name}"({names}) <{{{attributes}}}> : ({", ".join(operands)}) -> {kind}\n'
        f"  return {returned} : {outs}\n}}"
    )


X, V = "tensor<2x3x4xf32>", "tensor<3xf32>"


@pytest.mark.parametrize(
    ("name", "operands", "results"),
    [
        ("batch_norm_inference", [X, V, V, V, V], [X]),
        ("batch_norm_training", [X, V, V], [X, V, V]),
        ("batch_norm_grad", [X, V, V, V, X], [X, V, V]),
    ],
)
def test_batch_norm(name: str, operands: list[str], results: list[str]) -> None:
    pytest.importorskip("jax")
    import xla

    random = np.random.default_rng(0)
    arrays: list[Any] = [
        np.abs(random.normal(size=(2, 3, 4) if t == X else (3,))).astype(np.float32) for t in operands
    ]
    text = op_text(name, "epsilon = 1.0e-3 : f32, feature_index = 1 : i64", operands, results)
    for got, want in zip(run_module(read_stablehlo(text), arrays), xla.run(text, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5)
