"""fuse-collectives: rewrites that only fire when they may, and equal results on all meshes and periods."""

import itertools

import numpy as np
import pytest
from xdsl.ir import Block

from rhino.dialects.dist import AllGatherOp
from rhino.dialects.text import parse_module
from rhino.dialects.verify import verify
from rhino.ir import types
from rhino.ir.errors import UsageError
from rhino.ir.mesh import AxisRef, Mesh
from rhino.passes.fuse_collectives import FuseCollectivesPass, fuse_collectives

HEAD = 'dist.mesh @mesh = <["a"=2, "b"=3]>\n'


def boundary(extent: int) -> str:
    return f"{{dist.layout = #dist.layout<[{{}}]>, dist.global_type = tensor<{extent}xf64>}}"


def names(body: str, arguments: int = 1, limit: int = 0, results: str = "%r: 12") -> list[str]:
    """The ops that are left of a local program."""
    args = ", ".join(f"%x{i}: tensor<12xf64> {boundary(12)}" for i in range(arguments))
    pairs = [r.split(": ") for r in results.split(", ")]
    types_ = ", ".join(f"tensor<{n}xf64>" for _, n in pairs)
    typed = ", ".join(f"tensor<{n}xf64> {boundary(int(n))}" for _, n in pairs)
    module = parse_module(
        f"{HEAD}func.func @main({args}) -> ({typed}) {{\n{body}\nfunc.return {', '.join(v for v, _ in pairs)} : {types_}\n}}"
    )
    fuse_collectives(module, limit)
    verify(module)
    return [op.name.split(".")[1] for op in module.walk()][3:-1]


T = "tensor<12xf64>"


def test_an_all_reduce_with_other_users_stays():
    assert names(f"""
      %0 = dist.all_reduce sum %x0 over ["a"] : {T}
      %s = dist.shard %0 dim 0 over ["a"] : {T} -> tensor<6xf64>
    """, results="%0: 12, %s: 6") == ["all_reduce", "shard"]  # fmt: skip


def test_a_shard_over_other_axes_stays():
    assert names(f"""
      %0 = dist.all_reduce sum %x0 over ["a"] : {T}
      %r = dist.shard %0 dim 0 over ["b"] : {T} -> tensor<4xf64>
    """, results="%r: 4") == ["all_reduce", "shard"]  # fmt: skip


def test_sums_of_different_axes_or_shared_operands_stay():
    assert names(f"""
      %0 = dist.all_reduce sum %x0 over ["a"] : {T}
      %1 = dist.all_reduce sum %x1 over ["b"] : {T}
      %r = hlo.add %0, %1 : {T}
    """, 2) == ["all_reduce", "all_reduce", "add"]  # fmt: skip
    assert names(f"""
      %0 = dist.all_reduce sum %x0 over ["a"] : {T}
      %1 = dist.all_reduce sum %x1 over ["a"] : {T}
      %q = hlo.add %0, %1 : {T}
      %r = hlo.mul %q, %0 : {T}
    """, 2) == ["all_reduce", "all_reduce", "add", "mul"]  # fmt: skip


def test_reduce_scatters_are_summed_first_too():
    assert names(f"""
      %0 = dist.reduce_scatter sum %x0 dim 0 over ["b"] period 6 : {T} -> tensor<4xf64>
      %1 = dist.reduce_scatter sum %x1 dim 0 over ["b"] period 6 : {T} -> tensor<4xf64>
      %r = hlo.sub %0, %1 : tensor<4xf64>
    """, 2, results="%r: 4") == ["sub", "reduce_scatter"]  # fmt: skip
    assert names(f"""
      %0 = dist.reduce_scatter sum %x0 dim 0 over ["b"] period 6 : {T} -> tensor<4xf64>
      %1 = dist.reduce_scatter sum %x1 dim 0 over ["b"] : {T} -> tensor<4xf64>
      %r = hlo.sub %0, %1 : tensor<4xf64>
    """, 2, results="%r: 4") == ["reduce_scatter", "reduce_scatter", "sub"]  # fmt: skip


def test_all_reduces_in_a_row_become_one():
    assert names(f"""
      %0 = dist.all_reduce max %x0 over ["b"] : {T}
      %r = dist.all_reduce max %0 over ["a"] : {T}
    """) == ["all_reduce"]  # fmt: skip
    assert names(f"""
      %0 = dist.all_reduce sum %x0 over ["a"] : {T}
      %r = dist.all_reduce sum %0 over ["a"] : {T}
    """) == ["all_reduce", "all_reduce"]  # fmt: skip


def test_a_gather_over_other_axes_is_not_undone():
    assert names(f"""
      %0 = dist.all_gather %x0 dim 0 over ["a"] : {T} -> tensor<24xf64>
      %r = dist.shard %0 dim 0 over ["a"] period 12 : tensor<24xf64> -> {T}
    """) == ["all_gather", "shard"]  # fmt: skip


GATHERS = [
    (mesh, first, second)
    for mesh in ("a=2,b=2", "a=2,b=3", "a=4,b=2")
    for first, second in itertools.permutations(["a", "b"])
]


@pytest.mark.parametrize(("mesh_text", "first", "second"), GATHERS)
def test_gathers_merge_exactly_when_their_digits_touch(mesh_text, first, second):
    mesh = Mesh.parse(mesh_text)
    n1, n2 = mesh.sizes[first], mesh.sizes[second]
    start = 2 * n1 * n2
    local = [np.arange(rank * start, (rank + 1) * start) for rank in range(mesh.size)]
    merged = 0
    for p1, p2 in itertools.product(range(1, start * n1 + 1), range(1, start * n1 * n2 + 1)):
        if p1 % n1 or (start * n1) % p1 or p2 % n2 or (start * n1 * n2) % p2:
            continue
        block = Block(arg_types=[types.tensor([start], types.I64)])
        one = AllGatherOp.make(block.args[0], [mesh.axis(first)], mesh, dim=0, period=p1)
        two = AllGatherOp.make(one.result, [mesh.axis(second)], mesh, dim=0, period=p2)
        want = two.evaluate_ranks(mesh, one.evaluate_ranks(mesh, [local]))[0]
        text = f"""dist.mesh @mesh = <[{", ".join(f'"{n}"={s}' for n, s in mesh.axes)}]>
          func.func @main(%x: tensor<{start}xi64> {{dist.layout = #dist.layout<[{{}}]>, dist.global_type = tensor<{start}xi64>}}) -> (tensor<{start * n1 * n2}xi64> {{dist.layout = #dist.layout<[{{}}]>, dist.global_type = tensor<{start * n1 * n2}xi64>}}) {{
            %0 = dist.all_gather %x dim 0 over ["{first}"] period {p1} : tensor<{start}xi64> -> tensor<{start * n1}xi64>
            %1 = dist.all_gather %0 dim 0 over ["{second}"] period {p2} : tensor<{start * n1}xi64> -> tensor<{start * n1 * n2}xi64>
            func.return %1 : tensor<{start * n1 * n2}xi64>
          }}"""
        module = parse_module(text)
        fuse_collectives(module)
        gathers = [op for op in module.walk() if isinstance(op, AllGatherOp)]
        # Brute force: is there one gather over both axes that gives the same?
        whole = start * n1 * n2
        possible = False
        for axes in ([first, second], [second, first]):
            for p in range(n1 * n2, whole + 1, n1 * n2):
                if whole % p == 0:
                    refs: list[AxisRef] = [mesh.axis(a) for a in axes]
                    both = AllGatherOp.make(block.args[0], refs, mesh, dim=0, period=p)
                    got = both.evaluate_ranks(mesh, [local])[0]
                    possible |= all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
        assert (len(gathers) == 1) == possible
        if possible:
            merged += 1
            got = gathers[0].evaluate_ranks(mesh, [local])[0]
            assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
    assert merged


def test_buckets_respect_kind_type_and_order():
    body = f"""
      %a = dist.all_reduce sum %x0 over ["a"] : {T}
      %m = dist.all_reduce max %x0 over ["a"] : {T}
      %b = dist.all_reduce sum %x1 over ["b"] : {T}
      %c = dist.all_reduce sum %x1 over ["a"] : {T}
      %t = hlo.mul %a, %m : {T}
      %u = hlo.mul %b, %c : {T}
      %d = dist.all_reduce sum %t over ["a"] : {T}
      %r = hlo.mul %d, %u : {T}
    """
    got = names(body, 2, limit=1 << 20)
    assert got == ["concatenate", "all_reduce", "slice", "slice", "all_reduce", "all_reduce", "mul", "mul",
                   "all_reduce", "mul"]  # fmt: skip
    assert names(body, 2, limit=100).count("all_reduce") == 5


def layer(i: int, scale: str, of: str) -> str:
    """Text of a layer that scales and squares what it gets: ``%y{i}``."""
    return f"""
      %g{i} = dist.all_reduce max {scale} over ["a"] : {T}
      %s{i} = hlo.mul {of}, %g{i} : {T}
      %y{i} = hlo.dot_general %s{i}, %s{i} batch [0] x [0] contract [] x [] : ({T}, {T}) -> {T}
    """


def test_what_is_there_at_once_is_bucketed_in_front_of_all_layers():
    body = layer(0, "%x1", "%x0") + layer(1, "%x2", "%y0") + layer(2, "%x3", "%y1")
    got = names(body + f"%r = hlo.add %y2, %y2 : {T}", 4, limit=1 << 20)
    assert got == ["concatenate", "all_reduce", *["slice"] * 3, *["mul", "dot_general"] * 3, "add"]


def test_no_bucket_makes_a_matrix_product_wait():
    """What the second and third layer need is made late, so that in one bucket the first layer would come after it."""
    late = "".join(f"%n{i} = hlo.negate %x{i} : {T}\n" for i in (2, 3))
    body = layer(0, "%x1", "%x0") + late + layer(1, "%n2", "%y0") + layer(2, "%n3", "%y1")
    got = names(body + f"%r = hlo.add %y2, %y2 : {T}", 4, limit=1 << 20)
    assert got == ["all_reduce", "mul", "dot_general", "negate", "negate", "concatenate", "all_reduce",
                   "slice", "slice", *["mul", "dot_general"] * 2, "add"]  # fmt: skip


def test_negative_sizes_are_refused():
    with pytest.raises(UsageError, match="bytes is -1"):
        FuseCollectivesPass(-1).apply(None, parse_module(HEAD))
