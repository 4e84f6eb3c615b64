"""Collectives that compare unsigned numbers, which torch has as signed ones."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from xdsl.ir import Block

from rhino.dialects.dist import ReduceScatterOp
from rhino.dialects.dist.halo import HaloOp
from rhino.ir import types
from rhino.ir.mesh import Mesh
from rhino.runtime.tensors import to_numpy, to_torch
from rhino.runtime.torch_ops import TABLE, Context
from rhino.runtime.torch_ops.foreign import adapt

MESH = Mesh.parse("x=2")
SMALL, LARGE = np.array([3, 200, 5, 130], np.uint8), np.array([7, 100, 250, 4], np.uint8)


class Alone:
    """Stands for a group of two: nobody is a neighbour; what is scattered is the better of the halves of one array."""

    mesh = MESH

    def halo(
        self, x: torch.Tensor, axes: object, dim: int, edges: tuple[int, int], fill: int
    ) -> torch.Tensor:
        low, high = (x.new_full((n,), fill) for n in edges)
        return torch.cat((low, x, high), dim)

    def reduce_scatter(self, x: torch.Tensor, axes: object, kind: str, dim: int, period: int) -> torch.Tensor:
        own, other = x.chunk(2)
        return torch.maximum(own, other) if kind == "max" else torch.minimum(own, other)


@pytest.mark.parametrize(("kind", "fill"), [("max", 0), ("min", 255)])
def test_beyond_the_border_stands_the_least_or_the_greatest(kind: str, fill: int) -> None:
    x = Block(arg_types=[types.tensor([4], types.UI8)]).args[0]
    op = HaloOp.make(x, (MESH.axis("x"),), MESH, kind=kind, dim=0, low=1, high=1)
    run = adapt(op, TABLE[op.name], Context(torch.device("cpu"), cast(Any, Alone())))
    np.testing.assert_array_equal(to_numpy(run(to_torch(SMALL))), [fill, *SMALL, fill])


@pytest.mark.parametrize("kind", ["max", "min"])
def test_the_greatest_of_two_is_that_of_unsigned_numbers(kind: str) -> None:
    x = Block(arg_types=[types.tensor([8], types.UI8)]).args[0]
    op = ReduceScatterOp.make(x, (MESH.axis("x"),), MESH, kind=kind, dim=0, period=8)
    run = adapt(op, TABLE[op.name], Context(torch.device("cpu"), cast(Any, Alone())))
    want = np.maximum(SMALL, LARGE) if kind == "max" else np.minimum(SMALL, LARGE)
    np.testing.assert_array_equal(to_numpy(run(to_torch(np.concatenate([SMALL, LARGE])))), want)
