"""Whole random programs: which ops they are made of, and their boundary."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.check.choices import Choices
from rhino.check.random_ops import Argument, Maker, Program
from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.ir import types

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
STRUCTURE = (
    "binary",
    "broadcast",
    "concatenate",
    "dot",
    "pad",
    "reduce",
    "reshape",
    "slice",
    "transpose",
    "unary",
)
#: Ops that make partial results and ops that let them pass.
LINEAR = ("dot", "dot", "reduce", "reduced_pair", "reduced_pair", "binary", "binary", "halve", *STRUCTURE)
#: Ops with derivatives that stay among the integers.
SMOOTH = (
    "binary",
    "broadcast",
    "concatenate",
    "convolution",
    "cumulative",
    "dot",
    "dot",
    "dynamic",
    "halve",
    "pad",
    "reduce_sum",
    "reduce_sum",
    "reshape",
    "reverse",
    "slice",
    "take",
    "transpose",
)
ALL = (
    *STRUCTURE,
    *STRUCTURE,  # twice as likely as the rest: these are the ops whose sharding is subtle
    "halve",
    "compare",
    "convert",
    "maker",
    "reverse",
    "dynamic",
    "argmax",
    "cumulative",
    "convolution",
    "reduce_window",
    "take",
    "scatter",
    "sort",
    "top_k",
)


def random_program(
    choices: Choices, families: Sequence[Sequence[str]] = (ALL, LINEAR), max_ops: int = 12
) -> Program:
    """A program of about `max_ops` steps at most (a step may be more than one op) that returns its last values."""
    block = Block()
    maker = Maker(choices, block, Builder(InsertPoint.at_end(block)))
    ops = choices.pick(families)
    # A sum of small numbers is rarely small, and still shrinks.
    for _ in range(1 + sum(choices.integer(0, max_ops // 3) for _ in range(3))):
        getattr(maker, choices.pick(ops))()
    unused = [v for v in maker.bounds if not v.uses and v.owner is not block]
    returned = unused[-3:] or list(maker.bounds)[-1:]
    if not returned:
        returned = [maker.argument((), types.F64)]
    return finish(maker, returned)


def add_loss(program: Program) -> Program:
    """The program with a first result that is the sum of all others, and its floating-point arguments parameters."""
    func = signature.main_of(program.module)
    ret = signature.return_of(func)
    # There may be no other parameter that the loss depends on.
    scalar = types.tensor((), types.F64)
    extra = func.body.block.insert_arg(scalar, len(func.args))
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
    program = Program(program.module, (*program.arguments, Argument(scalar, -3, 3)))
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
