"""The interpreter: values are freed, local programs run in lockstep, pieces are cut and joined."""

import itertools
import weakref

import numpy as np
import pytest

from rhino.dialects.text import parse_module
from rhino.ir.errors import LayoutError, ProgramError, RunError, UsageError
from rhino.ir.evaluate import compile_function, run_module
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.shards import shard, unshard


def main_of(text):
    module = parse_module(text)
    return module, next(op for op in module.ops if op.name == "func.func")


CHAIN = """
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = hlo.add %x, %y : tensor<4xf32>
  %1 = hlo.mul %0, %0 : tensor<4xf32>
  %2 = hlo.exp %1 : tensor<4xf32>
  %3 = hlo.sub %1, %x : tensor<4xf32>
  func.return %3, %x, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
"""


def test_results_may_repeat_and_be_arguments():
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    a, b, c = run_module(parse_module(CHAIN), [x, y])
    assert np.array_equal(a, (x + y) ** 2 - x) and b is x and a is c


def test_slots_are_reused():
    lines = "\n".join(f"  %{i + 1} = hlo.exp %{i} : tensor<4xf32>" for i in range(100))
    module = parse_module(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = hlo.negate %x : tensor<4xf32>\n"
        f"{lines}\n  func.return %100 : tensor<4xf32>\n}}"
    )
    assert compile_function(next(iter(module.ops))).slots <= 4


def test_arrays_are_freed_at_their_last_use(monkeypatch):
    from rhino.dialects.hlo.elementwise import ExpOp

    alive: list[weakref.ref[np.ndarray]] = []
    most = 0

    def evaluate(self, x):
        nonlocal most
        out = np.exp(x)
        alive.append(weakref.ref(out))
        most = max(most, sum(r() is not None for r in alive))
        return (out,)

    monkeypatch.setattr(ExpOp, "evaluate", evaluate)
    lines = "\n".join(f"  %{i + 1} = hlo.exp %{i} : tensor<4xf32>" for i in range(20))
    module = parse_module(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = hlo.negate %x : tensor<4xf32>\n"
        f"{lines}\n  func.return %20 : tensor<4xf32>\n}}"
    )
    run_module(module, [np.zeros(4, np.float32)])
    assert most == 2


@pytest.mark.parametrize(
    "arrays, why",
    [
        ([np.zeros(4, np.float32)], "1 arguments given where the program has 2"),
        (
            [np.zeros(4), np.zeros(4, np.float32)],
            r"argument 0 is float64\[4\] where the program has f32\[4\]",
        ),
        ([np.zeros(4, np.float32), np.zeros(5, np.float32)], r"argument 1 is float32\[5\]"),
    ],
)
def test_wrong_arguments_are_refused(arrays, why):
    with pytest.raises(UsageError, match=why):
        run_module(parse_module(CHAIN), arrays)


def test_what_cannot_run_is_named():
    with pytest.raises(ProgramError, match="no function @main"):
        run_module(parse_module("func.func @other() {\n  func.return\n}"), [])
    module = parse_module("func.func @main() {\n  func.call @main() : () -> ()\n  func.return\n}")
    with pytest.raises(ProgramError, match=r"cannot run func.call"):
        run_module(module, [])


LOCAL = """
dist.mesh @mesh = <["x"=2]>
func.func @main(%x: tensor<2x3xf32> {{dist.layout = #dist.layout<[{{"x"}}, {{}}]>, dist.global_type = tensor<4x3xf32>}})
    -> (tensor<3xf32> {{dist.layout = {layout}, dist.global_type = tensor<3xf32>}}) {{
  %0 = hlo.reduce "sum" %x dims [0] : tensor<2x3xf32> -> tensor<3xf32>
  {more}
  func.return {result} : tensor<3xf32>
}}
"""


def test_local_programs_in_lockstep():
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    reduce = '%1 = dist.all_reduce sum %0 over ["x"] : tensor<3xf32>'
    whole = LOCAL.format(layout="#dist.layout<[{}]>", more=reduce, result="%1")
    partial = LOCAL.format(layout='#dist.layout<[{}] partial {"x": sum}>', more="", result="%0")
    for text in (whole, partial):
        (got,) = run_module(parse_module(text), [x])
        assert np.array_equal(got, x.sum(0))


def test_replicas_that_differ_are_an_error():
    text = LOCAL.format(layout="#dist.layout<[{}]>", more="", result="%0")
    with pytest.raises(
        RunError, match=r"result 0 of @main: devices 0 and 1 must hold equal pieces, but 3 of 3"
    ):
        run_module(parse_module(text), [np.arange(12, dtype=np.float32).reshape(4, 3)])


def test_a_local_program_needs_its_layouts():
    text = LOCAL.format(layout="#dist.layout<[{}]>", more="", result="%0")
    module = parse_module(text.replace("dist.layout = #dist.layout<[{}]>, ", ""))
    with pytest.raises(ProgramError, match=r"result 0 of the local @main lacks dist.layout"):
        run_module(module, [np.zeros((4, 3), np.float32)])


def layouts(shape, mesh):
    """All well-formed layouts of digits on every atom of a small mesh."""
    choices = [None]
    for dim, extent in enumerate(shape):
        choices += [(dim, p) for p in range(2, extent + 1) if extent % p == 0]
    for picks in itertools.product(choices, repeat=len(mesh.atoms)):
        dims = [[] for _ in shape]
        for atom, pick in zip(mesh.atoms, picks, strict=True):
            if pick is not None:
                dims[pick[0]].append((atom, pick[1]))
        layout = Layout.make(dims)
        if layout.error(shape) is None:
            yield layout


@pytest.mark.parametrize("shape", [(12,), (4, 6), (2, 3, 4)])
@pytest.mark.parametrize("mesh", ["2", "4", "2x3", "2x2x2"])
def test_shard_and_unshard_against_owner_maps(shape, mesh):
    mesh = Mesh.parse(mesh)
    array = np.arange(np.prod(shape)).reshape(shape)
    count = 0
    for layout in layouts(shape, mesh):
        pieces = [shard(array, layout, mesh, d) for d in mesh.devices()]
        for device, piece in enumerate(pieces):
            assert np.array_equal(piece, array[np.ix_(*layout.indices(shape, mesh, device))])
        assert np.array_equal(unshard(pieces, layout, shape, mesh), array)
        count += 1
    assert count > 1


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod"])
def test_partials_are_combined(kind):
    mesh = Mesh.parse("2x3")
    rng = np.random.default_rng(0)
    layout = Layout.make([[(mesh.axis("x"), 4)]], [(mesh.axis("y"), kind)])
    parts = rng.integers(-3, 4, (3, 4))
    pieces = [parts[mesh.coordinate(d, [mesh.axis("y")])][2 * (d // 3) : 2 * (d // 3) + 2] for d in range(6)]
    reference = {"sum": parts.sum(0), "max": parts.max(0), "min": parts.min(0), "prod": parts.prod(0)}[kind]
    assert np.array_equal(unshard(pieces, layout, (4,), mesh), reference)
    whole = [shard(reference, layout, mesh, d) for d in range(6)]
    assert np.array_equal(unshard(whole, layout, (4,), mesh), reference)


def test_logical_partials_and_bad_pieces():
    mesh = Mesh.parse("2")
    layout = Layout.make([[]], [(mesh.axis("x"), "or")])
    pieces = [np.array([True, False, False]), np.array([True, True, False])]
    assert unshard(pieces, layout, (3,), mesh).tolist() == [True, True, False]
    with pytest.raises(RunError, match=r"device 1 holds a piece of shape \[2\] instead of \[3\]"):
        unshard([pieces[0], pieces[1][:2]], layout, (3,), mesh)
    with pytest.raises(LayoutError):
        shard(np.zeros(3), Layout.block((3,), [(0, mesh.axis("x"))]), mesh, 0)
    nan = np.array([np.nan, 1.0])
    assert np.isnan(unshard([nan, nan.copy()], Layout.replicated(1), (2,), mesh)[0])
