"""Random programs on integer-valued data, small enough to read and exact in every order of evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from random_ops import ALL, LINEAR, SMOOTH, Maker
from random_values import Argument
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.ir import types
from rhino.ir.mesh import Mesh
from rhino.ir.text import print_module

__all__ = ["ALL", "LINEAR", "SMOOTH", "Program", "meshes", "programs", "with_loss"]

MESHES = (
    "a=2",
    "a=3",
    "a=4",
    "a=8",
    "a=6",
    "a=2,b=2",
    "a=2,b=3",
    "a=4,b=2",
    "a=2,b=2,c=2",
    "a=3,b=2",
    "a=1,b=4",
    "a=1",
)


@dataclass(frozen=True)
class Program:
    """A module of the global stage and what to call it with."""

    module: ModuleOp
    arguments: tuple[Argument, ...]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text("\n" + print_module(self.module))

    def data(self, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [
            rng.integers(a.low, a.high + 1, size=tuple(a.type.get_shape())).astype(
                types.numpy_dtype(a.type.element_type)
            )
            for a in self.arguments
        ]


def meshes() -> st.SearchStrategy[Mesh]:
    """Meshes of up to 8 devices and 3 axes."""
    return st.sampled_from(MESHES).map(Mesh.parse)


@st.composite
def programs(draw: Callable, families: Sequence[Sequence[str]] = (ALL, LINEAR), max_ops: int = 12) -> Program:
    """Programs of about `max_ops` steps at most (a step may be more than one op) that return their last values."""
    block = Block()
    maker = Maker(draw, block, Builder(InsertPoint.at_end(block)))
    ops = draw(st.sampled_from(families))
    # A sum of small numbers is rarely small, and still shrinks.
    for _ in range(1 + sum(draw(st.integers(0, max_ops // 3)) for _ in range(3))):
        getattr(maker, draw(st.sampled_from(ops)))()
    unused = [v for v in maker.bounds if not v.uses and v.owner is not block]
    returned = unused[-3:] or list(maker.bounds)[-1:]
    if not returned:
        returned = [maker.argument((), types.F64)]
    return finish(maker, returned)


@st.composite
def with_loss(draw: Callable, base: st.SearchStrategy[Program]) -> Program:
    """Programs whose first result is the sum of all others, and whose floating-point arguments are parameters."""
    program = draw(base)
    func = signature.main_of(program.module)
    ret = signature.return_of(func)
    # There may be no other parameter that the loss depends on.
    extra = func.body.block.insert_arg(types.tensor((), types.F64), len(func.args))
    builder = Builder(InsertPoint.before(ret))
    loss: SSAValue = extra
    for value in ret.operands:
        if types.element_of(value) != types.F64:
            value = builder.convert(value, types.F64)
        loss = builder.add(loss, builder.reduce(value, range(len(types.shape_of(value))), "sum"))
    ret.operands = [loss, *ret.operands]
    outputs = [v.type for v in ret.operands]
    func.function_type = FunctionType.from_lists([a.type for a in func.args], outputs)
    roles = ["parameter" if types.element_of(a) == types.F64 else "input" for a in func.args]
    program = Program(program.module, (*program.arguments, Argument(extra.type, -3, 3)))
    signature.set_arguments(func, [signature.Slot(name=f"a{i}", role=r) for i, r in enumerate(roles)])
    names = [signature.Slot(name="loss", role="loss")]
    names += [signature.Slot(name=f"r{i}", role="output") for i in range(len(outputs) - 1)]
    signature.set_results(func, names)
    return program


def finish(maker: Maker, returned: Sequence[SSAValue]) -> Program:
    """Close the program under construction."""
    maker.builder.insert(ReturnOp(*returned))
    inputs = [a.type for a in maker.block.args]
    outputs = [v.type for v in returned]
    func = FuncOp("main", FunctionType.from_lists(inputs, outputs), Region(maker.block))
    signature.set_arguments(func, [signature.Slot(name=f"a{i}", role="input") for i in range(len(inputs))])
    signature.set_results(func, [signature.Slot(name=f"r{i}", role="output") for i in range(len(outputs))])
    return Program(ModuleOp([func]), tuple(maker.arguments))
