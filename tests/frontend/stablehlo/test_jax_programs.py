"""Whole JAX programs: networks and training steps through the reader, the passes and `rhino check`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from jaxcheck import Case, compare, lowered

from rhino.cli.main import main
from rhino.dialects import signature
from rhino.frontend.stablehlo import read_stablehlo
from rhino.ir.evaluate import run_module
from rhino.passes.step import clean


def attention(x: Any, w: Any, o: Any, heads: int = 2) -> Any:
    b, t, d = x.shape
    q, k, v = ((x @ w).reshape(b, t, 3, heads, d // heads)[:, :, i] for i in range(3))
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / np.sqrt(d // heads)
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, -1), v).reshape(b, t, d) @ o


def normalized(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def transformer(p: dict[str, Any], tokens: Any) -> Any:
    """Mean cross entropy of a one-block language model with a tied embedding."""
    x = p["embedding"][tokens]
    x = x + attention(normalized(x), p["qkv"], p["out"])
    x = x + jax.nn.gelu(normalized(x) @ p["up"]) @ p["down"]
    logits = x @ p["embedding"].T
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1))


def weights() -> dict[str, Any]:
    random = np.random.default_rng(0)
    sizes = {"embedding": (11, 8), "qkv": (8, 24), "out": (8, 8), "up": (8, 16), "down": (16, 8)}
    return {k: (0.3 * random.normal(size=v)).astype(np.float32) for k, v in sizes.items()}


def adam(p: Any, m: Any, v: Any, t: Any, tokens: Any) -> Any:
    loss, g = jax.value_and_grad(transformer)(p, tokens)
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b * b, v, g)
    t = t + 1
    new = jax.tree.map(
        lambda p, m, v: p - 1e-2 * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.99**t)) + 1e-8), p, m, v
    )
    return loss, new, m, v, t


def pooled(x: Any, w: Any) -> Any:
    y = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = jax.lax.reduce_window(jax.nn.relu(y), -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return (y**2).sum()


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    random = np.random.default_rng(1)
    p, tokens = weights(), random.integers(0, 11, (2, 5)).astype(np.int32)
    zeros = jax.tree.map(np.zeros_like, p)
    x, w = (random.normal(size=s).astype(np.float32) for s in ((2, 6, 6, 2), (3, 3, 2, 4)))
    return {
        "transformer": (transformer, (p, tokens)),
        "gradient": (jax.grad(transformer), (p, tokens)),
        "adam": (adam, (p, zeros, zeros, np.zeros((), np.float32), tokens)),
        "convolution": (jax.value_and_grad(pooled, (0, 1)), (x, w)),
        "norm": (lambda x: jnp.linalg.norm(x.reshape(2, -1), axis=1), (x,)),
        "one_hot": (lambda t: jax.nn.one_hot(t, 11).cumsum(0), (tokens,)),
        "loop": (lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c * 2 + i, x), (x,)),
        "until": (
            lambda x: jax.lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, jnp.sin(c[1] + x)), (0, x)),
            (x,),
        ),
        "scan": (jax.grad(lambda x: jax.lax.scan(lambda c, r: (jnp.tanh(c + r), c), x[0], x)[0].sum()), (x,)),
        "cond": (lambda x: jax.lax.cond(x.sum() > 0, lambda a: a * 2, lambda a: -a, x), (x,)),
        "switch": (lambda x, i: jax.lax.switch(i, [jnp.sin, jnp.cos, jnp.tanh], x), (x, np.int32(7))),
        "normal": (lambda k: jax.random.normal(k, (5, 3)), (np.array([0, 7], np.uint32),)),
        "permutation": (lambda k: jax.random.permutation(k, 9), (np.array([0, 7], np.uint32),)),
        "quantile": (lambda x: jnp.median(x.reshape(2, -1), axis=1), (x,)),
    }


@pytest.mark.parametrize("name", list(programs()))
def test_program(name: str) -> None:
    function, arguments = programs()[name]
    outcome = compare(Case(name, function, arguments, 10, wide=False))
    assert outcome.status == "passed", outcome


@pytest.mark.parametrize("name", ["gradient", "convolution", "scan", "switch"])
def test_generic_form(name: str) -> None:
    function, arguments = programs()[name]
    outcome = compare(Case(name, function, arguments, 10, wide=False), generic=True)
    assert outcome.status == "passed", outcome


def example() -> Any:
    """The module `examples/jax_mlp.py`."""
    path = Path(__file__).parents[3] / "examples" / "jax_mlp.py"
    spec = importlib.util.spec_from_file_location("jax_mlp", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def step_text() -> str:
    module = example()
    module.SIZES, module.BATCH = (6, 8, 4), 8
    x = jax.ShapeDtypeStruct((8, 6), jnp.float32)
    y = jax.ShapeDtypeStruct((8,), jnp.int32)
    return str(jax.jit(module.step, donate_argnums=0).lower(module.shapes(), x, y).as_text(debug_info=True))


def test_the_example_is_a_training_step(step_text: str) -> None:
    func = signature.main_of(read_stablehlo(step_text))
    arguments, results = signature.arguments(func), signature.results(func)
    assert [s.role for s in arguments] == ["parameter"] * 4 + ["input"] * 2
    assert [s.name for s in arguments] == [
        "params[0]['b']", "params[0]['w']", "params[1]['b']", "params[1]['w']", "x", "y",
    ]  # fmt: skip
    assert [(s.role, s.alias) for s in results] == [("loss", None), *(("parameter", i) for i in range(4))]


def test_clean_ups_keep_its_results(step_text: str) -> None:
    module = read_stablehlo(step_text)
    random = np.random.default_rng(0)
    arguments = [random.normal(size=s).astype(np.float32) for s in ((8,), (6, 8), (4,), (8, 4), (8, 6))] + [
        random.integers(0, 4, 8).astype(np.int32)
    ]
    want = run_module(module, arguments)
    clean(module)
    for got, expected in zip(run_module(module, arguments), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("plan", ["dp", "megatron"])
def test_checked_on_four_devices(step_text: str, plan: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "step.mlir"
    path.write_text(step_text)
    with pytest.raises(SystemExit) as ended:
        main(["check", str(path), "--nproc", "4", "--plan", plan])
    assert ended.value.code == 0
    assert "equal" in capsys.readouterr().out


def test_text_of_an_argument_that_is_not_used() -> None:
    text = lowered(lambda x, y: x + 1, (np.ones(2, np.float32), np.ones(3, np.float32)))
    module = read_stablehlo(text)
    count = len(signature.main_of(module).args)
    assert count == 1
    np.testing.assert_array_equal(run_module(module, [np.ones(2, np.float32)])[0], [2, 2])
