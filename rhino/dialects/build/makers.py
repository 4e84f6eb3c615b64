"""Builder methods of the ops that make tensors: constants, counters, random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from xdsl.ir import Attribute, SSAValue

from rhino.dialects.build.elementwise import ElementwiseBuilder
from rhino.dialects.hlo.base import integer
from rhino.dialects.hlo.constant import ConstantOp, IotaOp
from rhino.dialects.hlo.random import RandomUniformOp
from rhino.ir import types
from rhino.ir.dense import Scalar, dense


class MakersBuilder(ElementwiseBuilder):
    """Methods return SSA values; see the ops of `rhino.dialects.hlo.constant` and `.random`."""

    def constant(self, value: np.ndarray | Scalar, type: types.Type | None = None) -> SSAValue:
        """A constant from an array or a scalar, of a given type or its own (Python numbers: f32, i64, i1).

        A scalar with a type fills the tensor. Raises ProgramError when shape or values do not fit the type.
        """
        array = np.asarray(value)
        if type is None:
            if isinstance(value, float):
                array = array.astype(np.float32)
            type = types.tensor(array.shape, types.from_numpy(array.dtype))
        return self.emit1(ConstantOp, [], {"value": dense(array, type)})

    def full(self, shape: Sequence[int], element_type: Attribute, value: Scalar) -> SSAValue:
        """A tensor of one value."""
        return self.constant(value, types.tensor(shape, element_type))

    def full_like(self, x: SSAValue, value: Scalar) -> SSAValue:
        """A tensor of one value with the type of `x`."""
        return self.constant(value, types.type_of(x))

    def iota(self, type: types.Type, dim: int) -> SSAValue:
        """Every element its own index along `dim`."""
        return self.emit1(IotaOp, [], {"dim": integer(dim), "type": type})

    def linear_index(self, shape: Sequence[int]) -> SSAValue:
        """Every element its own row-major index, ``i64[shape]``: the counter for `random_uniform`."""
        type = types.tensor(shape, types.I64)
        total: SSAValue | None = None
        for dim, extent in enumerate(shape):
            if extent == 1:
                continue
            term = self.iota(type, dim)
            stride = math.prod(shape[dim + 1 :])
            if stride != 1:
                term = self.mul(term, self.full_like(term, stride))
            total = term if total is None else self.add(total, term)
        return self.full(shape, types.I64, 0) if total is None else total

    def random_uniform(self, seed: SSAValue, index: SSAValue, element_type: Attribute) -> SSAValue:
        """Uniform in [0, 1), a function of the seed (``i64[]``) and each element's index (``i64[...]``)."""
        return self.emit1(RandomUniformOp, [seed, index], {"element_type": element_type})
