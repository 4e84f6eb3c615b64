"""A training step written in JAX, as StableHLO text for Rhino.

    python examples/jax_mlp.py > step.mlir
    rhino check step.mlir --nproc 4

The parameters are donated, which is how a JAX program says that it replaces them: Rhino takes donated
arguments for parameters, and a scalar result beside them for the loss.
"""

import jax
import jax.numpy as jnp

SIZES = (64, 256, 256, 10)
BATCH = 32
RATE = 0.1


def shapes() -> list[dict[str, jax.ShapeDtypeStruct]]:
    return [
        {"w": jax.ShapeDtypeStruct((m, n), jnp.float32), "b": jax.ShapeDtypeStruct((n,), jnp.float32)}
        for m, n in zip(SIZES, SIZES[1:], strict=False)
    ]


def loss(params, x, y):
    """Mean cross entropy of a multi-layer perceptron."""
    for layer in params[:-1]:
        x = jax.nn.gelu(x @ layer["w"] + layer["b"])
    logits = x @ params[-1]["w"] + params[-1]["b"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1))


def step(params, x, y):
    value, gradient = jax.value_and_grad(loss)(params, x, y)
    return value, jax.tree.map(lambda p, g: p - RATE * g, params, gradient)


if __name__ == "__main__":
    x = jax.ShapeDtypeStruct((BATCH, SIZES[0]), jnp.float32)
    y = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    print(jax.jit(step, donate_argnums=0).lower(shapes(), x, y).as_text(debug_info=True))
