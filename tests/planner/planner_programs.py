"""Training steps that the planner's tests plan: forward by hand, backward and update by the passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.signature import Slot
from rhino.ir import types
from rhino.ir.optimizers import SGD, Optimizer
from rhino.passes.step import training_step

Argument = tuple[str, str, Sequence[int], str]
"""Name, role, shape, element type."""


def program(
    arguments: Sequence[Argument], body: Callable[..., Sequence[SSAValue]], roles: Sequence[str] = ("loss",)
) -> ModuleOp:
    """A module whose @main is built by ``body(builder, *arguments)``; `roles` are those of its results."""
    given = [types.tensor(shape, types.element(element)) for _, _, shape, element in arguments]
    func = FuncOp("main", (given, []))
    builder = Builder(InsertPoint.at_end(func.body.block))
    results = list(body(builder, *func.args))
    builder.insert(ReturnOp(*results))
    func.function_type = FunctionType.from_lists(given, [r.type for r in results])
    signature.set_arguments(func, [Slot(name=name, role=role) for name, role, _, _ in arguments])
    signature.set_results(func, [Slot(name=role, role=role) for role in roles])
    module = ModuleOp([func])
    module.verify()
    return module


def mean(b: Builder, x: SSAValue) -> SSAValue:
    """Mean over all elements."""
    shape = types.shape_of(x)
    total = b.reduce(x, range(len(shape)), "sum")
    count = 1
    for extent in shape:
        count *= extent
    return b.mul(total, b.full_like(total, 1.0 / count))


def mlp(
    batch: int, widths: Sequence[int], optimizer: Optimizer | None = None, element: str = "f32"
) -> ModuleOp:
    """Linear layers with relu between them; the loss is the mean square of the output."""
    arguments: list[Argument] = [
        (f"layer{i}.weight", "parameter", (a, b), element)
        for i, (a, b) in enumerate(zip(widths[:-1], widths[1:], strict=True))
    ]
    arguments.append(("x", "input", (batch, widths[0]), element))

    def body(b: Builder, *args: SSAValue) -> Sequence[SSAValue]:
        *weights, x = args
        for i, w in enumerate(weights):
            x = b.matmul(x, w)
            if i < len(weights) - 1:
                x = b.maximum(x, b.full_like(x, 0.0))
        return [mean(b, b.mul(x, x))]

    return training_step(program(arguments, body), optimizer or SGD(lr=0.5))


def cnn(batch: int, channels: Sequence[int], size: int, optimizer: Optimizer | None = None) -> ModuleOp:
    """3x3 convolutions with relu; the loss is the mean square of the output."""
    arguments: list[Argument] = [
        (f"conv{i}.weight", "parameter", (o, c, 3, 3), "f32")
        for i, (c, o) in enumerate(zip(channels[:-1], channels[1:], strict=True))
    ]
    arguments.append(("images", "input", (batch, channels[0], size, size), "f32"))

    def body(b: Builder, *args: SSAValue) -> Sequence[SSAValue]:
        *weights, x = args
        for w in weights:
            x = b.convolution(x, w, strides=(1, 1), padding=((1, 1), (1, 1)))
            x = b.maximum(x, b.full_like(x, 0.0))
        return [mean(b, b.mul(x, x))]

    return training_step(program(arguments, body), optimizer or SGD(lr=0.5))


def norm(b: Builder, x: SSAValue, gain: SSAValue) -> SSAValue:
    """Root-mean-square norm over the last dimension."""
    shape = types.shape_of(x)
    square = b.reduce(b.mul(x, x), [len(shape) - 1], "sum")
    scale = b.rsqrt(b.add(b.mul(square, b.full_like(square, 1.0 / shape[-1])), b.full_like(square, 1e-5)))
    lead = range(len(shape) - 1)
    return b.mul(
        b.mul(x, b.broadcast_in_dim(scale, shape, lead)), b.broadcast_in_dim(gain, shape, [len(shape) - 1])
    )


def softmax(b: Builder, x: SSAValue) -> SSAValue:
    """Softmax over the last dimension."""
    shape = types.shape_of(x)
    lead = range(len(shape) - 1)
    top = b.broadcast_in_dim(b.reduce(x, [len(shape) - 1], "max"), shape, lead)
    e = b.exp(b.sub(x, top))
    return b.div(e, b.broadcast_in_dim(b.reduce(e, [len(shape) - 1], "sum"), shape, lead))


def attention(b: Builder, x: SSAValue, qkv: SSAValue, proj: SSAValue, heads: int) -> SSAValue:
    """Attention over ``x[batch, tokens, width]`` with fused ``qkv[width, 3 width]`` and merged tokens behind it."""
    batch, tokens, width = types.shape_of(x)
    head = width // heads
    y = b.dot_general(x, qkv, contract=((2,), (0,)))
    q, k, v = (
        b.transpose(
            b.reshape(
                b.slice(y, [0, 0, j * width], [batch, tokens, (j + 1) * width]), [batch, tokens, heads, head]
            ),
            [0, 2, 1, 3],
        )
        for j in range(3)
    )
    scores = b.dot_general(q, k, batch=((0, 1), (0, 1)), contract=((3,), (3,)))
    p = softmax(b, b.mul(scores, b.full_like(scores, head**-0.5)))
    z = b.dot_general(p, v, batch=((0, 1), (0, 1)), contract=((3,), (2,)))
    z = b.reshape(b.transpose(z, [0, 2, 1, 3]), [batch * tokens, width])
    return b.reshape(b.matmul(z, proj), [batch, tokens, width])


def transformer(
    layers: int,
    batch: int,
    tokens: int,
    width: int,
    heads: int,
    vocabulary: int,
    optimizer: Optimizer | None = None,
    element: str = "f32",
    hidden: int | None = None,
) -> ModuleOp:
    """A decoder with fused QKV, tied embedding and cross entropy on shifted tokens (no causal mask)."""
    hidden = hidden or 4 * width
    arguments: list[Argument] = [("wte", "parameter", (vocabulary, width), element)]
    for i in range(layers):
        for name, shape in (
            ("norm1", (width,)),
            ("qkv", (width, 3 * width)),
            ("proj", (width, width)),
            ("norm2", (width,)),
            ("fc", (width, hidden)),
            ("fc_bias", (hidden,)),
            ("out", (hidden, width)),
        ):
            arguments.append((f"h.{i}.{name}", "parameter", shape, element))
    arguments.append(("tokens", "input", (batch, tokens), "i64"))
    arguments.append(("targets", "input", (batch, tokens), "i64"))

    def body(b: Builder, wte: SSAValue, *rest: SSAValue) -> Sequence[SSAValue]:
        *params, ids, targets = rest
        x = b.take(wte, ids, 0)
        for i in range(layers):
            norm1, qkv, proj, norm2, fc, bias, out = params[7 * i : 7 * i + 7]
            x = b.add(x, attention(b, norm(b, x, norm1), qkv, proj, heads))
            h = b.dot_general(norm(b, x, norm2), fc, contract=((2,), (0,)))
            h = b.add(h, b.broadcast_in_dim(bias, [batch, tokens, hidden], [2]))
            x = b.add(x, b.dot_general(b.mul(h, b.logistic(h)), out, contract=((2,), (0,))))
        logits = b.dot_general(x, wte, contract=((2,), (1,)))
        top = b.reduce(logits, [2], "max")
        shifted = b.sub(logits, b.broadcast_in_dim(top, [batch, tokens, vocabulary], [0, 1]))
        total = b.log(b.reduce(b.exp(shifted), [2], "sum"))
        hit = b.reshape(b.take_along(shifted, b.reshape(targets, [batch, tokens, 1]), 2), [batch, tokens])
        return [mean(b, b.sub(total, hit))]

    return training_step(program(arguments, body), optimizer or SGD(lr=0.5))
