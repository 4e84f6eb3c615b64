"""Random programs under random legal placements: torch on four processes gives the interpreter's bits."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def write(folder: Path, number: int, data: st.DataObject) -> None:
    """One example: a local program, its arguments and its results."""
    program = data.draw(programs())
    mesh = Mesh.parse(data.draw(st.sampled_from(["a=4", "a=2,b=2"])))
    choice = data.draw(placed(program, mesh))
    arrays = program.data(number)
    want = run_module(program.module, arrays)
    module = program.module.clone()
    ops = list(signature.main_of(module).body.block.ops)[:-1]
    place(module, mesh, choice.of(ops), choice.arguments, choice.results)
    spmd(module)
    if data.draw(st.booleans()):
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
        write(tmp_path, next(numbers), data)

    collect()
    assert next(numbers) >= count
    launch([sys.executable, str(Path(__file__).with_name("ranks_programs.py")), str(tmp_path)], 4)
