"""Random programs under random legal placements: torch on four processes gives the interpreter's bits."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rhino.check.choices import Seeded
from rhino.check.random_layouts import Placed, random_placement
from rhino.check.random_ops import Program
from rhino.dialects import signature
from rhino.dialects.text import print_module
from rhino.ir.evaluate import run_module
from rhino.ir.mesh import Mesh
from rhino.passes.fuse_collectives import fuse_collectives
from rhino.passes.place import place
from rhino.passes.spmd import spmd
from rhino.runtime.launch import launch

sys.path.insert(0, str(Path(__file__).parents[1] / "properties"))
from random_layouts import placed
from random_programs import programs
from test_random_windows import network

MESHES = ("a=4", "a=2,b=2")


def draw(folder: Path, number: int, data: st.DataObject) -> None:
    """Write one example."""
    program = data.draw(programs())
    mesh = Mesh.parse(data.draw(st.sampled_from(MESHES)))
    write(folder, number, program, data.draw(placed(program, mesh)), data.draw(st.booleans()))


def write(folder: Path, number: int, program: Program, choice: Placed, fuse: bool) -> None:
    """One example: a local program, its arguments and its results."""
    arrays = program.data(number)
    want = run_module(program.module, arrays)
    module = program.module.clone()
    ops = list(signature.main_of(module).body.block.ops)[:-1]
    place(module, choice.mesh, choice.of(ops), choice.arguments, choice.results)
    spmd(module)
    if fuse:
        fuse_collectives(module)
    path = folder / f"{number:04d}.mlir"
    path.write_text(print_module(module))
    named = {f"a{i}": a for i, a in enumerate(arrays)} | {f"r{i}": w for i, w in enumerate(want)}
    np.savez(path.with_suffix(".npz"), **named)


@pytest.mark.parametrize("count", [60, pytest.param(1500, marks=pytest.mark.long)])
def test_ranks_give_the_interpreters_bits(tmp_path: Path, count: int) -> None:
    numbers = iter(range(10**9))

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        draw(tmp_path, next(numbers), data)

    collect()
    for seed in range(count // 10):
        choices = Seeded(seed)
        program, mesh = network(choices), Mesh.parse(MESHES[seed % 2])
        write(tmp_path, next(numbers), program, random_placement(choices, program, mesh), False)
    assert next(numbers) >= count
    assert sum("dist.halo" in path.read_text() for path in tmp_path.glob("*.mlir")) >= count // 30
    launch([sys.executable, str(Path(__file__).with_name("ranks_programs.py")), str(tmp_path)], 4)
