"""Constants, counters and random numbers: values, exact bits, and index arithmetic against brute force."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from localcheck import CoordinateBuilder
from op_programs import program, run
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import Localizer
from rhino.dialects.hlo.constant import constant_of, splat_of
from rhino.dialects.hlo.digits import global_to_local, local_to_global, owned, places
from rhino.dialects.text import parse_module, print_module
from rhino.ir import philox, types
from rhino.ir.errors import ProgramError
from rhino.ir.evaluate import compile_ranks, run_module
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.passes.spmd import SpmdPass


def made(build) -> np.ndarray:
    return run_module(program(build, []), [])[0]


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.bool_, np.int8, np.int64]
)
def test_constants_of_every_type(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    got = made(lambda b: b.constant(array))
    assert got.dtype == dtype and (got == array).all()


def test_constants_from_python_numbers():
    assert made(lambda b: b.constant(1.5)).dtype == np.float32
    assert made(lambda b: b.constant(3)).dtype == np.int64
    assert made(lambda b: b.constant(True)).dtype == np.bool_
    assert made(lambda b: b.constant(2, types.tensor([2, 2], types.BF16))).tolist() == [[2, 2], [2, 2]]
    assert made(lambda b: b.full((2,), types.I8, -1)).tolist() == [-1, -1]
    assert run(lambda b, x: b.full_like(x, 7), np.zeros((2, 1), np.float16)).tolist() == [[7], [7]]


def test_wrong_constants_are_refused():
    with pytest.raises(ProgramError, match=r"shape \[2\] for type f32\[3\]"):
        program(lambda b: b.constant(np.zeros(2), types.tensor([3], types.F32)), [])
    with pytest.raises(ProgramError, match="does not fit"):
        program(lambda b: b.full((1,), types.I8, 200), [])
    with pytest.raises(ProgramError, match=r"datetime64\[D\] is not supported"):
        program(lambda b: b.constant(np.zeros(2, "M8[D]")), [])
    with pytest.raises(ProgramError, match=r"no dimension 2 in f32\[2, 3\]"):
        program(lambda b: b.iota(types.tensor([2, 3], types.F32), 2), [])
    with pytest.raises(ProgramError, match="no counter"):
        program(lambda b: b.iota(types.tensor([2], types.I1), 0), [])


def test_splats_and_arrays_are_found_again():
    func = FuncOp("f", ([types.tensor([2], types.F32)], []))
    b = Builder(InsertPoint.at_end(func.body.block))
    splat, mixed = b.full((2, 2), types.F32, 0.5), b.constant(np.array([1.0, 2.0]))
    assert splat_of(splat) == 0.5 and splat_of(mixed) is None and splat_of(func.args[0]) is None
    assert constant_of(mixed).tolist() == [1, 2] and constant_of(func.args[0]) is None


def test_iota_and_linear_index():
    assert made(lambda b: b.iota(types.tensor([2, 3], types.F32), 1)).tolist() == [[0, 1, 2]] * 2
    for shape in ((), (1,), (5,), (2, 3), (2, 1, 4), (3, 2, 2)):
        want = np.arange(int(np.prod(shape))).reshape(shape)
        got = made(lambda b, shape=shape: b.linear_index(shape))
        assert got.dtype == np.int64 and np.array_equal(got, want)


# Known answers of Random123 (kat_vectors, philox4x32 with 10 rounds): counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("counter, key, want", KNOWN)
def test_philox_known_answers(counter, key, want):
    assert tuple(int(w) for w in philox.philox(counter, key)) == want


@pytest.mark.parametrize("dtype", list(philox.SIGNIFICANT_BITS))
def test_random_numbers_are_uniform_and_exact(dtype):
    index = np.arange(-5000, 15000)
    got = philox.uniform(-3, index, dtype)
    wide = got.astype(np.float64)
    assert got.dtype == dtype and wide.min() >= 0 and wide.max() < 1
    assert abs(wide.mean() - 0.5) < 0.01 and abs(wide.var() - 1 / 12) < 0.005
    scaled = wide * 2.0 ** philox.SIGNIFICANT_BITS[dtype]
    assert np.array_equal(scaled, np.round(scaled))
    # Every type takes the leading bits of the same words.
    assert np.abs(wide - philox.uniform(-3, index, np.dtype(np.float64))).max() < 2.0 ** -min(
        philox.SIGNIFICANT_BITS[dtype], 32
    )


def test_random_op_depends_on_seed_and_index_alone():
    def draw(seed, index):
        return run(lambda b, s, i: b.random_uniform(s, i, types.F32), np.array(seed), index)

    index = np.arange(12).reshape(3, 4)
    assert np.array_equal(draw(1, index)[::-1], draw(1, index[::-1].copy()))
    assert not np.array_equal(draw(1, index), draw(2, index))
    assert not np.array_equal(draw(1, index), draw(1 + 2**32, index))
    with pytest.raises(ProgramError, match="seed must be"):
        program(
            lambda b, s, i: b.random_uniform(s, i, types.F32),
            [types.tensor([1], types.I64), types.tensor([4], types.I64)],
        )


def layouts(extent: int, mesh: Mesh):
    """All layouts of one dimension by digits of any subset of the mesh's atoms."""
    periods = [None, *(p for p in range(2, extent + 1) if extent % p == 0)]
    for choice in itertools.product(periods, repeat=len(mesh.atoms)):
        digits = [(a, p) for a, p in zip(mesh.atoms, choice, strict=True) if p is not None]
        layout = Layout.make([digits])
        if digits and layout.error((extent,)) is None:
            yield layout


@pytest.mark.parametrize("mesh", ["2x2", "4", "3", "2x2x2", "2x3"])
def test_index_arithmetic_against_brute_force(mesh):
    mesh, extent, count = Mesh.parse(mesh), 24, 0
    for layout in layouts(extent, mesh):
        count += 1
        digits = layout.dims[0]
        local = extent // layout.shards()
        func = FuncOp("main", ([types.tensor([local], types.I64), types.tensor([extent], types.I64)], []))
        b = CoordinateBuilder(func)
        ctx = Localizer(b, mesh, (), (layout,), ())
        here, everywhere = func.args
        out = [
            local_to_global(b, here, digits, ctx, extent),
            global_to_local(b, everywhere, digits, extent),
            owned(b, everywhere, digits, ctx, extent),
        ]
        func.body.block.add_op(ReturnOp(*out))
        arguments = [[np.arange(local)] * mesh.size, [np.arange(extent)] * mesh.size]
        arguments += [[np.array(mesh.coordinate(d, axes)) for d in mesh.devices()] for axes in b.axes]
        to_global, to_local, mine = compile_ranks(func, mesh)(arguments)
        for device in mesh.devices():
            (want,) = layout.indices((extent,), mesh, device)
            assert to_global[device].tolist() == want
            assert np.nonzero(mine[device])[0].tolist() == want
            assert to_local[device][want].tolist() == list(range(local))
    assert count >= 4


def test_neighbouring_digits_are_joined():
    mesh = Mesh.parse("8")
    (place,) = places(Layout.block((24,), [(0, mesh.axis("x"))]).dims[0])
    assert place[1:] == (8, 24)


PLACED = """
dist.mesh @mesh = <["x"=2, "y"=2]>
func.func @main() -> (tensor<4x6xi64> {{dist.layout = {layout}}}) {{
  %0 = hlo.constant dense<{value}> : tensor<4x6xi64> {{dist.layout = [{layout}]}}
  func.return %0 : tensor<4x6xi64>
}}
"""


@pytest.mark.parametrize(
    "layout",
    [
        '#dist.layout<[{"x"}, {"y"}]>',
        '#dist.layout<[{"x", "y"}, {}]>',
        '#dist.layout<[{}, {"y":2}]>',
        '#dist.layout<[{"y":2}, {"x"}]>',
        "#dist.layout<[{}, {}]>",
    ],
)
def test_constants_in_local_programs(layout):
    array = np.arange(24).reshape(4, 6)
    for value, want in ((array.tolist(), array), (7, np.full((4, 6), 7))):
        text = PLACED.format(layout=layout, value=value)
        module: ModuleOp = parse_module(text)
        SpmdPass().apply(Context(), module)
        assert ("dist.shard" in print_module(module)) == (value != 7 and "{}, {}" not in layout)
        assert np.array_equal(run_module(module, [])[0], want)
