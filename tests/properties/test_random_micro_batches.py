"""microbatch on random programs: bit for bit what they computed, and so is what random layouts make of the result."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from random_programs import SMOOTH, Program, meshes, programs, with_loss
from test_passes import any_placement

from rhino.dialects import signature
from rhino.dialects.text import parse_module, print_module
from rhino.dialects.verify import stage_of, verify
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.evaluate import run_module
from rhino.passes.autodiff import differentiate
from rhino.passes.microbatch import MICRO, microbatch

CI = settings(
    max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
MANY = int(os.environ.get("RHINO_EXAMPLES", "20000"))
LONG = settings(CI, max_examples=MANY, derandomize=False)
SEEDS = st.integers(0, 99)


def split(data: st.DataObject, program: Program, seed: int) -> bool:
    """Make micro-batches of some dimension of some argument, the others being parameters now and then, and demand the
    same results. Whether anything is split; programs that cannot be split are left as they were.
    """
    module, inputs = program.module, program.data(seed)
    func = signature.main_of(module)
    seeds = [(arg.index, d, n) for arg in func.args for d, n in enumerate(types.shape_of(arg)) if n > 1]
    if not seeds:
        return False
    at, dim, extent = data.draw(st.sampled_from(seeds))
    count = data.draw(st.sampled_from([n for n in range(2, extent + 1) if extent % n == 0]))
    roles = ["input" if i == at or data.draw(st.booleans()) else "parameter" for i in range(len(func.args))]
    signature.set_arguments(func, [signature.Slot(name=f"a{i}", role=r) for i, r in enumerate(roles)])
    want = run_module(module, inputs)
    before = print_module(module)
    try:
        microbatch(module, count, f"a{at}:{dim}")
    except ProgramError:
        assert print_module(module) == before
        return False
    try:
        verify(module)
        assert stage_of(module) == "global"
        text = print_module(module)
        assert print_module(parse_module(text)) == text
        for i, (a, b) in enumerate(zip(run_module(module, inputs), want, strict=True)):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b, f"result {i}")
    except BaseException:
        note(f"before {count} micro-batches of a{at}:{dim}:\n{before}\nafter:\n{print_module(module)}")
        raise
    return any(MICRO in op.attributes for op in func.body.block.ops)


@CI
@given(st.data(), programs(), SEEDS)
def test_random_programs(data, program, seed):
    split(data, program, seed)


@settings(CI, max_examples=20)
@given(st.data(), meshes(), with_loss(programs([SMOOTH], max_ops=6)), SEEDS)
def test_gradients_under_random_layouts(data, mesh, program, seed):
    differentiate(program.module)
    if split(data, program, seed):
        any_placement(data, mesh, program, seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@LONG
@given(st.data(), meshes(), programs(max_ops=14), SEEDS)
def test_many_random_programs(data, mesh, program, seed):
    if split(data, program, seed):
        any_placement(data, mesh, program, seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@LONG
@given(st.data(), meshes(), with_loss(programs([SMOOTH], max_ops=10)), SEEDS)
def test_many_gradients(data, mesh, program, seed):
    differentiate(program.module)
    if split(data, program, seed):
        any_placement(data, mesh, program, seed)
