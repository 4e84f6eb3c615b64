"""pad on random programs with odd extents: bit for bit what they computed, whatever lies in the padding of arguments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from random_programs import SMOOTH, Program, programs, with_loss
from xdsl.dialects.builtin import ModuleOp

from rhino.dialects import signature
from rhino.dialects.text import parse_module, print_module
from rhino.dialects.verify import stage_of, verify
from rhino.ir import types
from rhino.ir.evaluate import run_module
from rhino.passes.autodiff import differentiate
from rhino.passes.extents import classes_of
from rhino.passes.pad import pad

CI = settings(
    max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
LONG = settings(CI, max_examples=20_000, derandomize=False)
SEEDS = st.integers(0, 99)


def poisoned(module: ModuleOp, inputs: list[np.ndarray], how: int) -> list[np.ndarray]:
    """Arguments as the padded module takes them, with something harmful behind the true extents."""
    func, out = signature.main_of(module), []
    for arg, array in zip(func.args, inputs, strict=True):
        kinds = {"f": (np.nan, np.inf, -1e300), "i": (7, 2**62, -(2**62)), "b": (True, True, False)}
        whole = np.full(types.shape_of(arg), kinds[array.dtype.kind][how], array.dtype)
        whole[tuple(map(slice, array.shape))] = array
        out.append(whole)
    return out


def any_padding(data: st.DataObject, program: Program, seed: int) -> None:
    """Grow some classes of dimensions, and demand the same results of the same and of poisoned arguments."""
    module, inputs = program.module, program.data(seed)
    want = run_module(module, inputs)
    before = print_module(module)
    classes, _ = classes_of(signature.main_of(module))
    growth = {
        i: each.extent + data.draw(st.integers(1, 3))
        for i, each in enumerate(classes)
        if each.extent > 1 and data.draw(st.integers(0, 2))
    }
    zeros = data.draw(st.booleans())
    try:
        pad(module, growth, zeros=zeros)
        verify(module)
        assert stage_of(module) == "global"
        text = print_module(module)
        assert print_module(parse_module(text)) == text
        got = run_module(module, inputs if zeros else poisoned(module, inputs, data.draw(st.integers(0, 2))))
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b, f"result {i}")
    except BaseException:
        note(f"before pad {growth}:\n{before}\nafter:\n{print_module(module)}")
        raise


@CI
@given(st.data(), programs(), SEEDS)
def test_random_padding(data, program, seed):
    any_padding(data, program, seed)


@settings(CI, max_examples=50)
@given(st.data(), with_loss(programs([SMOOTH])), SEEDS)
def test_random_padding_of_gradients(data, program, seed):
    differentiate(program.module)
    any_padding(data, program, seed)


@pytest.mark.long
@pytest.mark.timeout(0)
@LONG
@given(st.data(), programs(max_ops=14), SEEDS)
def test_much_random_padding(data, program, seed):
    any_padding(data, program, seed)
