"""Random bits as StableHLO and XLA define them: a function of a state that counts on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import VarConstraint, irdl_op_definition, operand_def, prop_def, result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Localizer, Properties, get_text
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Rule
from rhino.ir.threefry import philox_bits, threefry_bits

ALGORITHMS = ("DEFAULT", "THREE_FRY", "PHILOX")

#: Integer operations of an element: twenty rounds of ThreeFry, or a part of ten of Philox.
_FLOPS = 60


@irdl_op_definition
class RngBitGeneratorOp(HloOp):
    """Random integers, and the state after them.

    ``%t, %r = hlo.rng_bit_generator "PHILOX" %s as tensor<4x2xui32> : tensor<2xui64>``

    The state is a key and a counter of one 64-bit word (or, for Philox, two). Bit for bit what XLA returns on CPUs,
    where DEFAULT is Philox; integers of 8 and 16 bits are the low bits of those of 32.
    """

    name = "hlo.rng_bit_generator"
    S: ClassVar = VarConstraint("S", TENSOR)
    T: ClassVar = VarConstraint("T", TENSOR)
    state = operand_def(S)
    rng_algorithm = prop_def(StringAttr)
    output_type = prop_def(T)
    output_state = result_def(S)
    output = result_def(T)
    assembly_format = "$rng_algorithm $state `as` $output_type attr-dict `:` type($state)"

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (state,) = operands
        algorithm, output = get_text(properties, "rng_algorithm"), properties["output_type"]
        assert isinstance(output, TensorType)
        if algorithm not in ALGORITHMS:
            raise ProgramError(f"no algorithm '{algorithm}'", remedy=f"use one of {', '.join(ALGORITHMS)}")
        lengths = (2,) if algorithm == "THREE_FRY" else (2, 3)
        if state.element_type != types.UI64 or state.get_shape() not in [(n,) for n in lengths]:
            wanted = " or ".join(f"ui64[{n}]" for n in lengths)
            raise ProgramError(f"operand 0 is {types.show(state)}, but the state of {algorithm} is {wanted}")
        if not types.is_integer(output.element_type):
            raise ProgramError(
                f"no random bits of type {types.show(output)}",
                remedy="draw integers and bitcast_convert them",
            )
        return [state, output]

    def rule(self) -> Rule:
        """The numbers may lie in any layout: every device draws them all and keeps its part."""
        shape = types.shape_of(self.output)
        dims = tuple((f"d{i}",) for i in range(len(shape)))
        sizes = {f"d{i}": n for i, n in enumerate(shape)} | {"state": types.shape_of(self.state)[0]}
        return Rule(((("state",),),), ((("state",),), dims), sizes, {"state": "whole"})

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        (state,) = operands
        key, *rest = (int(v) for v in state)
        shape, dtype = types.shape_of(self.output), types.numpy_dtype(types.element_of(self.output))
        bits = 64 if dtype.itemsize == 8 else 32
        with np.errstate(over="ignore"):
            if self.rng_algorithm.data == "THREE_FRY":
                numbers, counter = threefry_bits(key, rest[0], shape, bits)
                after = [counter]
            else:
                # Of a short state, XLA takes the key for the upper half of the counter.
                upper = rest[1] if len(rest) == 2 else key
                numbers, counter = philox_bits(key, rest[0] | upper << 64, shape, bits)
                after = [counter % 2**64, counter >> 64][: len(rest)]
        unsigned = numbers.astype(np.dtype(f"u{dtype.itemsize}"))
        return np.array([key, *after], np.uint64), unsigned.view(dtype)

    def flops(self) -> int:
        return _FLOPS * int(np.prod(types.shape_of(self.output), dtype=np.int64))

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        results = ctx.builder.emit(RngBitGeneratorOp, operands, self.properties).results
        layout = ctx.results[1]
        numbers = results[1] if layout.is_replicated else ctx.builder.shard(results[1], layout, ctx.mesh)
        return [results[0], numbers]


OPS: list[type[HloOp]] = [RngBitGeneratorOp]
