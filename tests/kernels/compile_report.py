"""Prints, as JSON, what a set of representative kernels uses on each architecture. Run without TRITON_INTERPRET."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from kernel_programs import layer_norm, linear, program, tensor

from rhino.dialects import signature
from rhino.dialects.kernel import RegionOp
from rhino.kernels.launch import generate
from rhino.kernels.read import read
from rhino.kernels.resources import compile_for
from rhino.passes.fuse import fuse


def gelu_linear(b, x, w, bias):
    y = linear(b, x, w, bias)
    return [b.mul(y, b.logistic(y))]


def adam_like(b, p, g, m):
    new = b.add(m, b.mul(b.sub(g, m), b.full_like(m, 0.1)))
    return [new, b.sub(p, b.div(new, b.add(b.sqrt(b.mul(new, new)), b.full_like(m, 1e-8))))]


def softmax(b, x):
    shape = (512, 4096)
    e = b.exp(b.sub(x, b.broadcast_in_dim(b.reduce(x, [1], "max"), shape, [0])))
    return [b.div(e, b.broadcast_in_dim(b.reduce(e, [1], "sum"), shape, [0]))]


PROGRAMS = {
    "matmul bf16": ([tensor(4096, 1024, element="bf16"), tensor(1024, 4096, element="bf16"),
                     tensor(4096, element="bf16")], gelu_linear),
    "matmul f16 batch": ([tensor(8, 512, 64, element="f16"), tensor(8, 512, 64, element="f16")],
                         lambda b, x, y: [b.dot_general(x, y, batch=((0,), (0,)), contract=((2,), (2,)))]),
    "matmul f32": ([tensor(512, 256), tensor(256, 512), tensor(512)], gelu_linear),
    "layer_norm f32": ([tensor(2048, 768), tensor(768)], lambda b, x, g: [layer_norm(b, x, g)]),
    "softmax bf16": ([tensor(512, 4096, element="bf16")], softmax),
    "update f32": ([tensor(1000, 1000)] * 3, adam_like),
}  # fmt: skip

report = {}
for name, (arguments, body) in PROGRAMS.items():
    module = program(arguments, body)
    fuse(module)
    regions = [op for op in signature.main_of(module).body.block.ops if isinstance(op, RegionOp)]
    for capability in map(int, sys.argv[1:]):
        report[f"{name} sm_{capability}"] = [
            asdict(compile_for(generate(read(r)), capability)) for r in regions
        ]
json.dump(report, sys.stdout)
