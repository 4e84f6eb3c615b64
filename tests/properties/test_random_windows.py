"""Random networks of convolutions and pooling and their gradients, cut at random: partitioning keeps every bit.

The programs of `test_passes.py` have such ops too, but few of them overlap and are cut in space.
"""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from rhino.check.choices import Choices, Seeded
from rhino.check.random_layouts import random_placement
from rhino.check.random_ops import Argument, Program
from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.dist import HaloOp, LayoutAttr
from rhino.dialects.dist.layouts import LAYOUT, with_attribute
from rhino.dialects.text import parse_module, print_module
from rhino.dialects.verify import stage_of, verify
from rhino.ir import types
from rhino.ir.evaluate import run_module
from rhino.ir.layout import Digit, Layout
from rhino.ir.mesh import Mesh
from rhino.passes.autodiff import differentiate
from rhino.passes.fuse_collectives import fuse_collectives
from rhino.passes.place import place
from rhino.passes.propagate import PropagatePass
from rhino.passes.spmd import spmd

MESHES = ("a=2", "a=4", "a=3", "a=2,b=2")


def network(choices: Choices) -> Program:
    """An image, two or three layers over windows whose result divides like their input, a loss, all derivatives."""
    height, width = choices.pick([8, 12, 16]), choices.pick([1, 4, 6, 8])
    images = types.tensor((choices.pick([1, 2]), 2, height, width), types.F64)
    func = FuncOp("main", ([images], []))
    b = Builder(InsertPoint.at_end(func.body.block))
    x: SSAValue = func.args[0]
    arguments = [Argument(images, -2, 2)]
    for _ in range(choices.integer(2, 3)):
        x = layer(choices, func, b, x, arguments)
    loss = b.reduce(x, range(4), "sum")
    b.insert(ReturnOp(loss, x))
    func.function_type = FunctionType.from_lists([a.type for a in func.args], [loss.type, x.type])
    signature.set_arguments(
        func, [signature.Slot(name=f"a{i}", role="parameter") for i in range(len(func.args))]
    )
    slots = [signature.Slot(name="loss", role="loss"), signature.Slot(name="r", role="output")]
    signature.set_results(func, slots)
    module = ModuleOp([func])
    differentiate(module)
    return Program(module, tuple(arguments))


def layer(choices: Choices, func: FuncOp, b: Builder, x: SSAValue, arguments: list[Argument]) -> SSAValue:
    """A convolution, or a sum over windows."""
    sizes, strides, padding, dilations = [], [], [], []
    for extent in types.shape_of(x)[2:]:
        dilation = choices.pick([1, 1, 2])
        stride = choices.pick([1, 1, 2]) if extent % 2 == 0 else 1
        size = choices.pick([1, 2, 3, 5]) if extent > 1 else 1
        room = (size - 1) * dilation + 1 - stride  # so that the result has a `stride`-th of the extent
        low = choices.integer(min(0, room), max(0, room))
        sizes.append(size)
        strides.append(stride)
        padding.append((low, room - low))
        dilations.append(dilation)
    if choices.integer(0, 3) == 0:
        one = [1, 1]
        return b.reduce_window(
            x, "sum", one + sizes, one + strides, [(0, 0), (0, 0), *padding], None, one + dilations
        )
    type = types.tensor((choices.pick([1, 2]), 2, *sizes), types.F64)
    features = types.shape_of(x)[1]
    type = types.tensor((type.get_shape()[0] * 2 // features, features, *sizes), types.F64)
    arguments.append(Argument(type, -1, 1))
    w = func.body.block.insert_arg(type, len(func.args))
    return b.convolution(x, w, strides, padding, None, dilations)


def check(module: ModuleOp, inputs: list[np.ndarray], want: list[np.ndarray]) -> int:
    """Partition a placed module and run it. Returns how many edges are exchanged."""
    verify(module)
    assert stage_of(module) == "placed"
    spmd(module)
    fuse_collectives(module)
    verify(module)
    text = print_module(module)
    assert print_module(parse_module(text, verify=False)) == text
    for got, expected in zip(run_module(module, inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected, text)
    return sum(isinstance(op, HaloOp) for op in module.walk())


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.long)])
def test_random_placements(count: int) -> None:
    edges = 0
    for seed in range(count):
        choices = Seeded(f"place {seed}")
        program, mesh = network(choices), Mesh.parse(choices.pick(MESHES))
        inputs = program.data(seed)
        want = run_module(program.module, inputs)
        placed = random_placement(choices, program, mesh)
        ops = list(signature.main_of(program.module).body.block.ops)[:-1]
        place(program.module, mesh, placed.of(ops), placed.arguments, placed.results)
        edges += check(program.module, inputs, want)
    assert edges > count / 2


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.long)])
def test_cut_images_stay_cut(count: int) -> None:
    """From a pin of the images alone, in rows or in rows and columns, everything else follows."""
    edges = 0
    for seed in range(count):
        choices = Seeded(f"pin {seed}")
        program, mesh = network(choices), Mesh.parse(choices.pick(("a=2", "a=4", "a=2,b=2")))
        inputs = program.data(seed)
        want = run_module(program.module, inputs)
        func = signature.main_of(program.module)
        shape = types.shape_of(func.args[0])
        rows = [Digit(mesh.axis("a"), shape[2])]
        columns = [Digit(mesh.axis("b"), shape[3])] if len(mesh.axes) > 1 and shape[3] % 2 == 0 else []
        slots = signature.arguments(func)
        layout = Layout.make([[], [], rows, columns])
        slots[0] = with_attribute(slots[0], LAYOUT, LayoutAttr.of(layout, shape, mesh))
        signature.set_arguments(func, slots)
        PropagatePass(str(mesh)).apply(Context(), program.module)
        edges += check(program.module, inputs, want)
    assert edges > count
