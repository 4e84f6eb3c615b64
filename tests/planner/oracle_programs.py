"""Published models and others, as training steps without data, and the cluster whose cost is the bytes that it moves.

All sizes are arguments, so that what is planned at its true size is run at a small one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from planner_programs import Argument, attention, mean, norm, program, softmax
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.dist import CollectiveOp
from rhino.dialects.dist.layouts import argument_layouts
from rhino.dialects.dist.mesh import mesh_of
from rhino.ir import types
from rhino.ir.evaluate import compile_ranks, run_module
from rhino.ir.optimizers import SGD, Optimizer
from rhino.ir.shards import shard
from rhino.passes.fuse_collectives import fuse_collectives
from rhino.passes.spmd import spmd
from rhino.passes.step import training_step
from rhino.planner.cluster import COLLECTIVES, Cluster, Hardware, Line, Link

#: Layers of VGG-19: output channels, and P for a 2x2 maximum.
VGG19 = (
    64,
    64,
    "P",
    128,
    128,
    "P",
    256,
    256,
    256,
    256,
    "P",
    512,
    512,
    512,
    512,
    "P",
    512,
    512,
    512,
    512,
    "P",
)


@cache
def byte_cluster(devices: int, rate: float = 1e12) -> Cluster:
    """Devices on which a step takes a nanosecond for every byte that a device sends, and one for every kernel, so that
    nothing is cut that could have been whole or the other way round for nothing. Else only the arithmetic of matrix
    products and convolutions takes time, at `rate` FLOP/s: low enough that no copy of such work ever pays, so that all
    plans worth having compute alike.
    """
    line = {kind: (Line(0.0, 0.0, 1e9),) for kind in COLLECTIVES}
    link = Link("bytes", devices, line)
    free = float("inf")
    flops = {element: rate for element in ("f64", "f32", "f16", "bf16")}
    kernels = {
        "network": {"ramp": 0.0}
    }  # a measured device: element-wise ops cost the bytes they move, here nothing
    hardware = Hardware("bytes", free, free, 1e-9, flops, link, link, flops, free, kernels)
    return Cluster(1, devices, hardware)


def step(
    arguments: Sequence[Argument],
    body: Callable[..., Sequence[SSAValue]],
    optimizer: Optimizer | None,
) -> ModuleOp:
    """The training step of a loss."""
    return training_step(program(arguments, body), optimizer or SGD(lr=0.5))


def relu(b: Builder, x: SSAValue) -> SSAValue:
    """``max(x, 0)``."""
    return b.maximum(x, b.full_like(x, 0.0))


def shifted(b: Builder, x: SSAValue, bias: SSAValue, dim: int) -> SSAValue:
    """A bias along one dimension added."""
    return b.add(x, b.broadcast_in_dim(bias, types.shape_of(x), [dim]))


def vgg(
    batch: int,
    image: int = 224,
    layers: Sequence[int | str] = VGG19,
    wide: int = 4096,
    classes: int = 1000,
    element: str = "f32",
    optimizer: Optimizer | None = None,
) -> ModuleOp:
    """VGG: 3x3 convolutions and 2x2 maxima, three fully connected layers, the mean square of the output."""
    arguments: list[Argument] = []
    channels, side = 3, image
    for i, layer in enumerate(layers):
        if layer == "P":
            side //= 2
            continue
        assert isinstance(layer, int)
        arguments += [
            (f"features.{i}.weight", "parameter", (layer, channels, 3, 3), element),
            (f"features.{i}.bias", "parameter", (layer,), element),
        ]
        channels = layer
    widths = (channels * side * side, wide, wide, classes)
    for i in range(3):
        arguments += [
            (f"classifier.{i}.weight", "parameter", (widths[i], widths[i + 1]), element),
            (f"classifier.{i}.bias", "parameter", (widths[i + 1],), element),
        ]
    arguments.append(("images", "input", (batch, 3, image, image), element))

    def body(b: Builder, *args: SSAValue) -> Sequence[SSAValue]:
        *params, x = args
        rest = iter(params)
        for layer in layers:
            if layer == "P":
                x = b.reduce_window(x, "max", (1, 1, 2, 2), (1, 1, 2, 2))
            else:
                x = b.convolution(x, next(rest), strides=(1, 1), padding=((1, 1), (1, 1)))
                x = relu(b, shifted(b, x, next(rest), 1))
        x = b.reshape(x, (batch, widths[0]))
        for i in range(3):
            x = shifted(b, b.matmul(x, next(rest)), next(rest), 1)
            x = relu(b, x) if i < 2 else x
        return [mean(b, b.mul(x, x))]

    return step(arguments, body, optimizer)


def block(
    batch: int,
    tokens: int,
    width: int,
    heads: int,
    element: str = "f32",
    optimizer: Optimizer | None = None,
) -> ModuleOp:
    """A transformer block of 12 width^2 weights behind an element-wise scale, so that its input has a gradient."""
    d = width
    arguments: list[Argument] = [
        ("scale", "parameter", (d,), element),
        ("qkv", "parameter", (d, 3 * d), element),
        ("proj", "parameter", (d, d), element),
        ("fc", "parameter", (d, 4 * d), element),
        ("out", "parameter", (4 * d, d), element),
        ("x", "input", (batch, tokens, d), element),
    ]

    def body(
        b: Builder, scale: SSAValue, qkv: SSAValue, proj: SSAValue, fc: SSAValue, out: SSAValue, x: SSAValue
    ) -> Sequence[SSAValue]:
        x = norm(b, x, scale)
        x = b.add(x, attention(b, x, qkv, proj, heads))
        h = b.dot_general(x, fc, contract=((2,), (0,)))
        h = b.mul(h, b.logistic(h))
        x = b.add(x, b.dot_general(h, out, contract=((2,), (0,))))
        return [mean(b, b.mul(x, x))]

    return step(arguments, body, optimizer)


def moe(
    groups: int = 8,
    tokens: int = 1024,
    width: int = 768,
    hidden: int = 6144,
    experts: int = 8,
    capacity: int = 256,
    element: str = "f32",
    optimizer: Optimizer | None = None,
    gated: bool = False,
) -> ModuleOp:
    """A mixture of experts as GShard writes it, between two linear layers: ``x[groups, tokens, width]``.

    Gates are a softmax over the experts; who goes where is an input (0 or 1), as routing has no gradient. With `gated`
    the experts' first layer makes gate and value in one product, as Mixtral's does.
    """
    g, s, m, f, e, c = groups, tokens, width, hidden, experts, capacity
    first = 2 * f if gated else f
    arguments: list[Argument] = [
        ("before", "parameter", (m, m), element),
        ("gate", "parameter", (m, e), element),
        ("experts.in", "parameter", (e, m, first), element),
        ("experts.out", "parameter", (e, f, m), element),
        ("after", "parameter", (m, m), element),
        ("x", "input", (g, s, m), element),
        ("route", "input", (g, s, e, c), element),
    ]

    def body(
        b: Builder,
        before: SSAValue,
        gate: SSAValue,
        w_in: SSAValue,
        w_out: SSAValue,
        after: SSAValue,
        x: SSAValue,
        route: SSAValue,
    ) -> Sequence[SSAValue]:
        x = b.dot_general(x, before, contract=((2,), (0,)))
        gates = softmax(b, b.dot_general(x, gate, contract=((2,), (0,))))
        sent = b.dot_general(route, x, batch=((0,), (0,)), contract=((1,), (1,)))  # g e c m
        sent = b.reshape(b.transpose(sent, [1, 0, 2, 3]), [e, g * c, m])
        h = b.dot_general(sent, w_in, batch=((0,), (0,)), contract=((2,), (1,)))
        if gated:
            up = b.slice(h, [0, 0, f], [e, g * c, 2 * f])
            h = b.slice(h, [0, 0, 0], [e, g * c, f])
            h = b.mul(b.mul(h, b.logistic(h)), up)
        else:
            h = relu(b, h)
        out = b.dot_general(h, w_out, batch=((0,), (0,)), contract=((2,), (1,)))
        out = b.transpose(b.reshape(out, [e, g, c, m]), [1, 0, 2, 3])
        weights = b.mul(route, b.broadcast_in_dim(gates, [g, s, e, c], [0, 1, 2]))
        back = b.dot_general(weights, out, batch=((0,), (0,)), contract=((2, 3), (1, 2)))  # g s m
        x = b.add(x, back)
        x = b.dot_general(x, after, contract=((2,), (0,)))
        return [mean(b, b.mul(x, x))]

    return step(arguments, body, optimizer)


def two_towers(
    batch: int,
    items: int,
    wide: int,
    towers: Sequence[int],
    channels: Sequence[int],
    image: int,
    joint: int,
    element: str = "f32",
    optimizer: Optimizer | None = None,
) -> ModuleOp:
    """A recommender of two towers: a wide embedding table with an MLP, and convolutions over pictures; every user is
    compared to every picture of the batch (the loss is the cross entropy of a softmax over the batch).
    """
    arguments: list[Argument] = [("table", "parameter", (items, wide), element)]
    widths = (wide, *towers, joint)
    arguments += [
        (f"user.{i}", "parameter", (a, c), element)
        for i, (a, c) in enumerate(zip(widths[:-1], widths[1:], strict=True))
    ]
    arguments += [
        (f"conv.{i}", "parameter", (o, c, 3, 3), element)
        for i, (c, o) in enumerate(zip((3, *channels[:-1]), channels, strict=True))
    ]
    arguments.append(("head", "parameter", (channels[-1], joint), element))
    arguments.append(("user", "input", (batch,), "i64"))
    arguments.append(("pictures", "input", (batch, 3, image, image), element))

    def body(b: Builder, *args: SSAValue) -> Sequence[SSAValue]:
        table, *rest, user, pictures = args
        layers, convs, head = rest[: len(widths) - 1], rest[len(widths) - 1 : -1], rest[-1]
        u = b.take(table, user, 0)
        for i, w in enumerate(layers):
            u = b.matmul(u, w)
            u = relu(b, u) if i < len(layers) - 1 else u
        p = pictures
        for w in convs:
            p = relu(b, b.convolution(p, w, strides=(1, 1), padding=((1, 1), (1, 1))))
        p = b.reduce(p, [2, 3], "sum")
        p = b.matmul(b.mul(p, b.full_like(p, 1.0 / image**2)), head)
        scores = b.dot_general(u, p, contract=((1,), (1,)))
        top = b.broadcast_in_dim(b.reduce(scores, [1], "max"), (batch, batch), [0])
        total = b.log(b.reduce(b.exp(b.sub(scores, top)), [1], "sum"))
        own = b.reduce(b.mul(u, p), [1], "sum")
        top = b.reduce(scores, [1], "max")
        return [mean(b, b.sub(b.add(total, top), own))]

    return step(arguments, body, optimizer)


def local(placed: ModuleOp) -> ModuleOp:
    """The partitioned program of a placed module, with its collectives in buckets."""
    module = placed.clone()
    spmd(module)
    fuse_collectives(module)
    return module


def arrays(module: ModuleOp, seed: int = 0) -> list[np.ndarray]:
    """Random arguments of `@main`: normal numbers, weights divided by the root of their rows; indices below 4."""
    rng = np.random.default_rng(seed)
    out = []
    func = signature.main_of(module)
    for argument, slot in zip(func.args, signature.arguments(func), strict=True):
        shape, dtype = types.shape_of(argument), types.numpy_dtype(types.element_of(argument))
        if np.issubdtype(dtype, np.integer):
            out.append(rng.integers(0, 4, shape).astype(dtype))
        elif slot.role in ("parameter", "input"):
            scale = np.prod(shape[:-1]) ** -0.5 if slot.role == "parameter" and len(shape) > 1 else 1.0
            out.append((scale * rng.normal(size=shape)).astype(dtype))
        else:
            out.append(np.abs(rng.normal(size=shape)).astype(dtype))
    return out


def run_counted(placed: ModuleOp, given: Sequence[np.ndarray]) -> dict[str, int]:
    """Partition a placed program and run it on all ranks; per kind of collective how many bytes rank 0 sends.

    They are counted from the arrays that the ranks hand over, by the algorithms that the oracles assume (rings, direct
    exchange), not from what the program says of itself.
    """
    mesh = mesh_of(placed)
    cut = [
        [shard(array, layout, mesh, device) for device in mesh.devices()]
        for array, layout in zip(given, argument_layouts(signature.main_of(placed), mesh), strict=True)
        if layout is not None
    ]
    sent: dict[str, int] = {}
    executable = compile_ranks(signature.main_of(local(placed)), mesh)
    env: list[Sequence[np.ndarray] | None] = [*cut, *([None] * (executable.slots - len(cut)))]
    with np.errstate(all="ignore"):
        for one in executable.steps:
            operands = [env[i] for i in one.inputs]
            values = one.run(mesh, operands)
            if isinstance(one.op, CollectiveOp) and one.op.name != "dist.shard":
                kind = one.op.name.removeprefix("dist.")
                before, after = operands[0], values[0]
                assert before is not None
                members = next(len(g) for g in mesh.groups(one.op.axes(mesh)) if 0 in g)
                sent[kind] = sent.get(kind, 0) + bytes_sent(kind, before[0].nbytes, after[0].nbytes, members)
            for slot, value in zip(one.outputs, values, strict=True):
                env[slot] = value
            for slot in one.free:
                env[slot] = None
    return sent


def bytes_sent(kind: str, before: int, after: int, members: int) -> int:
    """Bytes that a rank of a group sends, from those of its arrays before and after: rings, or direct exchange."""
    if kind == "all_reduce":  # reduce-scatter and all-gather
        return -(-2 * before * (members - 1) // members)
    if kind == "all_gather":  # every piece but the own one passes through
        return after - after // members
    if kind == "permute":
        return before
    if kind == "halo":  # a rank between two others; those at the ends send to one side only
        return after - before
    return before - before // members  # all_to_all, reduce_scatter: all but the own piece


def same_results(module: ModuleOp, placed: ModuleOp, rtol: float = 1e-9) -> None:
    """The placed and the partitioned program give what the program gives; sums may be taken in another order."""
    given = arrays(module)
    want = run_module(module, given)
    for version in (placed, local(placed)):
        for got, expected in zip(run_module(version, given), want, strict=True):
            scale = max(1e-30, float(np.abs(expected).max(initial=0.0)))
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * scale)
