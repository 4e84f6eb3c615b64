"""Every pass keeps the meaning, bit by bit: random programs, random legal layouts, random meshes.

`RHINO_EXAMPLES` sets the number of random placements of the long run (20,000 unless it says otherwise; a quarter as
many pins and gradients are drawn beside them): ``pytest tests/properties -m long``. A failure prints the module before and after the pass that broke it.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from random_layouts import layouts, placed, splits
from random_programs import SMOOTH, Program, meshes, programs, with_loss
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rhino.dialects import signature
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import LAYOUT, set_layouts, with_attribute
from rhino.dialects.text import parse_module, print_module
from rhino.dialects.verify import stage_of, verify
from rhino.ir import types
from rhino.ir.evaluate import run_module
from rhino.ir.mesh import Mesh
from rhino.passes import PASSES
from rhino.passes.autodiff import differentiate
from rhino.passes.place import place

CI = settings(
    max_examples=500, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
MANY = int(os.environ.get("RHINO_EXAMPLES", "20000"))
LONG = settings(CI, max_examples=MANY, derandomize=False)
LONG_QUARTER = settings(LONG, max_examples=MANY // 4)
#: Passes whose results are also printed and read back.
READ_BACK = ("canonicalize", "place", "propagate", "fuse-collectives")
CLEANUPS = ("canonicalize", "cse", "dce", "fold-constants")


class Chain:
    """A module on its way through the passes, and what it must compute at every station."""

    def __init__(self, module: ModuleOp, inputs: list[np.ndarray]) -> None:
        self.module = module
        self.inputs = inputs
        self.want = run_module(module, inputs)
        self.text = print_module(module)

    def apply(self, name: str, **options: object) -> None:
        """Run a pass, then check the module."""
        with_options = PASSES[name]()(**options)
        self.check(name, lambda: with_options.apply(Context(), self.module))

    def check(self, name: str, change: object) -> None:
        """Change the module, verify it, read its text back, and run it."""
        before = self.text
        try:
            change()
            verify(self.module)
            self.text = print_module(self.module)
            if self.text == before:
                return
            if name in READ_BACK:
                again = print_module(parse_module(self.text, verify=False))
                assert again == self.text, f"the text does not read back:\n{again}"
            results = run_module(self.module, self.inputs)
            for i, (got, want) in enumerate(zip(results, self.want, strict=True)):
                assert got.dtype == want.dtype, f"result {i} is of type {got.dtype}, not {want.dtype}"
                np.testing.assert_array_equal(got, want, f"result {i}")
        except BaseException:
            note(f"before {name}:\n{before}\nafter {name}:\n{print_module(self.module)}")
            raise

    def place(self, data: st.DataObject, program: Program, mesh: Mesh) -> None:
        """Give the module a random legal placement."""
        chosen = data.draw(placed(program, mesh))
        ops = [op for op in signature.main_of(self.module).body.block.ops if op.results]
        self.check(
            "place", lambda: place(self.module, mesh, chosen.of(ops), chosen.arguments, chosen.results)
        )
        assert stage_of(self.module) == "placed"

    def localize(self) -> None:
        """From the placed stage to the end."""
        self.apply("spmd")
        assert stage_of(self.module) == "local"
        self.apply("fuse-collectives")
        for name in (*CLEANUPS, "fuse"):
            self.apply(name)


def any_placement(data: st.DataObject, mesh: Mesh, program: Program, seed: int) -> None:
    chain = Chain(program.module, program.data(seed))
    if data.draw(st.booleans()):
        for name in CLEANUPS:
            chain.apply(name)
    chain.place(data, program, mesh)
    chain.localize()


def pin(data: st.DataObject, module: ModuleOp, mesh: Mesh) -> None:
    """Pin some arguments, results and ops; ops to something that their rules can yield."""
    func = signature.main_of(module)
    values = {
        "argument": (signature.arguments(func), list(func.args)),
        "result": (signature.results(func), list(signature.return_of(func).operands)),
    }
    for slots, ends in values.values():
        for i, value in enumerate(ends):
            if data.draw(st.booleans()):
                shape = types.shape_of(value)
                attr = LayoutAttr.of(data.draw(layouts(shape, mesh)), shape, mesh)
                slots[i] = with_attribute(slots[i], LAYOUT, attr)
    signature.set_arguments(func, values["argument"][0])
    signature.set_results(func, values["result"][0])
    for op in func.body.block.ops:
        if op.results and data.draw(st.integers(0, 4)) == 4:
            rule = op.rule()
            set_layouts(op, rule.place(data.draw(splits(rule, mesh.atoms))).results, mesh)


def any_pins(data: st.DataObject, mesh: Mesh, program: Program, seed: int) -> None:
    pin(data, program.module, mesh)
    chain = Chain(program.module, program.data(seed))
    chain.apply(data.draw(st.sampled_from(["propagate", "place"])), mesh=str(mesh))
    chain.localize()


def any_gradient(data: st.DataObject, mesh: Mesh, program: Program, seed: int) -> None:
    differentiate(program.module)
    any_placement(data, mesh, program, seed)


SEEDS = st.integers(0, 99)


@CI
@given(st.data(), meshes(), programs(), SEEDS)
def test_random_placements(data, mesh, program, seed):
    any_placement(data, mesh, program, seed)


@settings(CI, max_examples=100)
@given(st.data(), meshes(), programs(), SEEDS)
def test_propagation_from_random_pins(data, mesh, program, seed):
    any_pins(data, mesh, program, seed)


@settings(CI, max_examples=100)
@given(st.data(), meshes(), with_loss(programs([SMOOTH])), SEEDS)
def test_random_placements_of_gradients(data, mesh, program, seed):
    any_gradient(data, mesh, program, seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@LONG
@given(st.data(), meshes(), programs(max_ops=14), SEEDS)
def test_many_random_placements(data, mesh, program, seed):
    any_placement(data, mesh, program, seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@LONG_QUARTER
@given(st.data(), meshes(), programs(max_ops=14), SEEDS)
def test_propagation_from_many_random_pins(data, mesh, program, seed):
    any_pins(data, mesh, program, seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@LONG_QUARTER
@given(st.data(), meshes(), with_loss(programs([SMOOTH], max_ops=10)), SEEDS)
def test_many_random_placements_of_gradients(data, mesh, program, seed):
    any_gradient(data, mesh, program, seed)
