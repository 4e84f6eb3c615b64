"""Buckets: small collectives of one sort give the same bits in one, whatever their dimensions and periods."""

import math
import random

import numpy as np
import pytest

from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.signature import main_of
from rhino.dialects.text import parse_module
from rhino.dialects.verify import verify
from rhino.ir import types
from rhino.ir.evaluate import compile_ranks
from rhino.passes.fuse_collectives import fuse_collectives

MESHES = {"a": {"a": 2}, "ab": {"a": 2, "b": 3}, "a4": {"a": 4, "b": 2}}
SHAPES = [(12,), (24, 4), (4, 24), (2, 24, 3), (24,)]


def tensor(shape) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf64>"


def boundary(shape) -> str:
    """Whole on every rank, as far as the text goes; the test gives every rank an array of its own."""
    dims = ", ".join("{}" for _ in shape)
    return f"{tensor(shape)} {{dist.layout = #dist.layout<[{dims}]>, dist.global_type = {tensor(shape)}}}"


def collective(kind: str, axes: list[str], n: int, rng: random.Random, x: str) -> tuple[str, tuple, tuple]:
    """Text of one on `x`, the operand's shape, the result's."""
    shape = rng.choice([s for s in SHAPES if any(e % n == 0 for e in s)])
    dim = rng.choice([d for d, e in enumerate(shape) if e % n == 0])
    period = rng.choice([p for p in range(n, shape[dim] + 1, n) if shape[dim] % p == 0])
    part = tuple(e // n if d == dim else e for d, e in enumerate(shape))
    over = "over [" + ", ".join(f'"{a}"' for a in axes) + "]"
    if kind == "all_reduce":
        return f"dist.all_reduce max {x} {over} : {tensor(shape)}", shape, shape
    before, after = (shape, part) if kind == "reduce_scatter" else (part, shape)
    reduction = "sum " if kind == "reduce_scatter" else ""
    text = (
        f"dist.{kind} {reduction}{x} dim {dim} {over} period {period} : {tensor(before)} -> {tensor(after)}"
    )
    return text, before, after


def program(kind: str, sizes: dict[str, int], rng: random.Random) -> str:
    """Four collectives over the same axes, each with an op behind it that waits for it."""
    axes = rng.choice([[a] for a in sizes] + [list(sizes), list(reversed(sizes))])
    n = math.prod(sizes[a] for a in axes)
    arguments, body, results = [], [], []
    for i in range(4):
        text, before, after = collective(kind, axes, n, rng, f"%n{i}")
        arguments.append(f"%x{i}: {boundary(before)}")
        body += [f"%n{i} = hlo.negate %x{i} : {tensor(before)}", f"%c{i} = {text}"]
        body.append(f"%u{i} = hlo.add %c{i}, %c{i} : {tensor(after)}")
        results.append(after)
    mesh = ", ".join(f'"{a}"={s}' for a, s in sizes.items())
    names = ", ".join(f"%u{i}" for i in range(4))
    return (
        f"dist.mesh @mesh = <[{mesh}]>\n"
        f"func.func @main({', '.join(arguments)}) -> ({', '.join(map(boundary, results))}) {{\n"
        + "\n".join(body)
        + f"\nfunc.return {names} : {', '.join(map(tensor, results))}\n}}"
    )


def run(module, arrays):
    return compile_ranks(main_of(module), mesh_of(module))(arrays)


@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter", "all_gather"])
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("seed", range(12))
def test_equal_bits_with_one_collective(kind, mesh, seed):
    module = parse_module(program(kind, MESHES[mesh], random.Random(f"{kind}{mesh}{seed}")))
    draw = np.random.default_rng(seed)
    ranks = mesh_of(module).size
    arrays = [[draw.normal(size=types.shape_of(a)) for _ in range(ranks)] for a in main_of(module).args]
    want = run(module, arrays)
    fuse_collectives(module, 1 << 20)
    verify(module)
    assert sum(op.name == f"dist.{kind}" for op in module.walk()) == 1
    for g, w in zip(run(module, arrays), want, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(g, w, strict=True))


CHAIN = f"""dist.mesh @mesh = <["a"=2]>
func.func @main(%x: {boundary((4,))}) -> ({boundary((4,))}) {{
  %1 = dist.all_reduce sum %x over ["a"] : tensor<4xf64>
  %2 = hlo.negate %1 : tensor<4xf64>
  %3 = dist.all_reduce sum %2 over ["a"] : tensor<4xf64>
  %4 = dist.all_reduce sum %3 over ["a"] : tensor<4xf64>
  func.return %4 : tensor<4xf64>
}}"""


def test_what_depends_on_a_member_is_not_collected_with_it():
    module = parse_module(CHAIN)
    assert _all_reduces(module) == 3


CROSSED = f"""dist.mesh @mesh = <["a"=2, "b"=2]>
func.func @main(%x: {boundary((4,))}, %y: {boundary((4,))}) -> ({boundary((4,))}, {boundary((4,))}) {{
  %a1 = dist.all_reduce sum %x over ["a"] : tensor<4xf64>
  %b1 = dist.all_reduce sum %y over ["b"] : tensor<4xf64>
  %m = hlo.negate %b1 : tensor<4xf64>
  %a2 = dist.all_reduce sum %m over ["a"] : tensor<4xf64>
  %n = hlo.negate %a1 : tensor<4xf64>
  %b2 = dist.all_reduce sum %n over ["b"] : tensor<4xf64>
  func.return %a2, %b2 : tensor<4xf64>, tensor<4xf64>
}}"""


def test_buckets_that_would_wait_for_each_other():
    """a1 with a2 and b1 with b2 is a cycle: only one of the pairs can be had."""
    module = parse_module(CROSSED)
    draw = np.random.default_rng(0)
    arrays = [[draw.normal(size=4) for _ in range(4)] for _ in range(2)]
    want = run(module, arrays)
    assert _all_reduces(module) == 3
    verify(module)
    for g, w in zip(run(module, arrays), want, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(g, w, strict=True))


def _all_reduces(module) -> int:
    """How many are left."""
    fuse_collectives(module, 1 << 20)
    return sum(op.name == "dist.all_reduce" for op in module.walk())
