"""Bounds of values hold what the interpreter computes, and say of padding what must be true of it."""

from __future__ import annotations

import numpy as np
import pytest
from bounds import bounds_before, chooses_nothing, meets_zeros
from fault_bases import model_base

from rhino.dialects import signature
from rhino.dialects.hlo.constant import splat_of
from rhino.ir import types
from rhino.ir.evaluate import compile_ranks
from rhino.passes.widen_floats import widen_floats


@pytest.mark.parametrize("name", ["padded 11", "padded sequence"])
def test_values_lie_within_their_bounds(name: str) -> None:
    """Every value on every rank, and bounds that say something: not all padding is anything."""
    base = model_base(name)
    module = base.local.clone()
    widen_floats(module)
    func = signature.main_of(module)
    known = bounds_before(module, base.mesh, signature.return_of(func))
    compiled = compile_ranks(func, base.mesh)
    given = base.references[0].pieces()
    env = [*given, *([None] * (compiled.slots - len(given)))]
    informed = 0
    for step in compiled.steps:
        with np.errstate(all="ignore"):
            outs = step.run(base.mesh, [env[i] for i in step.inputs])
        for slot, result, arrays in zip(step.outputs, step.op.results, outs, strict=True):
            env[slot] = arrays
            for array, bounds in zip(arrays, known[result], strict=True):
                slack = 1e-12 * np.abs(array)  # the square root of an inverse is not rounded as rsqrt is
                inside = (bounds.low - slack <= array) & (array <= bounds.high + slack)
                assert np.all(inside | bounds.anything), f"{step.op}: {array[~inside]}"
                informed += int(np.sum(bounds.exact & ~bounds.anything)) if splat_of(result) is None else 0
    assert informed > 500


@pytest.mark.parametrize("name", ["padded 11", "padded sequence"])
def test_masks_of_padding_that_may_be_anything_are_needed(name: str) -> None:
    """The mask of a softmax's denominator: exponentials of zeros are ones."""
    base = model_base(name)
    masks = []
    for op in signature.main_of(base.local).body.block.ops:
        if op.name == "hlo.exp":
            masks += [u.operation for u in op.results[0].uses if u.operation.name == "hlo.select"]
    assert masks
    for select in masks:
        assert types.is_float(types.element_of(select.results[0]))
        assert not chooses_nothing(base.local, base.mesh, select)
        assert not meets_zeros(base.local, base.mesh, select)
