"""The reference interpreter: runs a module of any stage on numpy arrays, the oracle for everything else.

A function is compiled once into a list of ``(function, input slots, output slots, slots to free)``; running
it is one loop that keeps no array longer than it is needed. A local (SPMD) program runs on all ranks in
lockstep: an ordinary op (one that has ``evaluate(*arrays)``) once per rank, an op that acts along mesh axes
(one that has ``evaluate_ranks(mesh, operands)``: for every operand, and result, one array per rank) on all
at once.

Arrays are never changed in place, so an op may return views of its operands.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, DictionaryAttr, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from rhino.ir import types
from rhino.ir.errors import ProgramError, RunError, UsageError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.shards import shard, unshard

Evaluate = Callable[..., Sequence[np.ndarray]]
PerRank = Sequence[np.ndarray]


@runtime_checkable
class HasLayout(Protocol):
    """The attribute `#dist.layout`."""

    def resolve(self, shape: tuple[int, ...], mesh: Mesh) -> Layout: ...


@dataclass(frozen=True)
class Step:
    """One op of a compiled block."""

    op: Operation
    run: Callable[..., Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    free: tuple[int, ...]


@dataclass(frozen=True)
class Executable:
    """A compiled function of the global or placed stage, or the region of an op."""

    types: tuple[Attribute, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    slots: int

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """Run on arrays of exactly the argument types. Raises UsageError when they differ."""
        check_arguments(arrays, self.types)
        with np.errstate(all="ignore"):
            return self.run(arrays)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """`__call__` without the checks."""
        env: list[np.ndarray | None] = [*arrays, *([None] * (self.slots - len(arrays)))]
        array = np.ndarray
        for step in self.steps:
            values = step.run(*[env[i] for i in step.inputs])
            for slot, value in zip(step.outputs, values, strict=True):
                env[slot] = value if type(value) is array else np.asarray(value)
            for slot in step.free:
                env[slot] = None
        return [env[i] for i in self.results]  # type: ignore[misc]


@dataclass(frozen=True)
class LockstepExecutable:
    """A compiled function of the local stage: all ranks at once."""

    mesh: Mesh
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    slots: int

    def __call__(self, arguments: Sequence[PerRank]) -> list[list[np.ndarray]]:
        """For every result the arrays of all ranks, from those of every argument."""
        env: list[Sequence[np.ndarray] | None] = [*arguments, *([None] * (self.slots - len(arguments)))]
        with np.errstate(all="ignore"):
            for step in self.steps:
                values = step.run(self.mesh, [env[i] for i in step.inputs])
                for slot, value in zip(step.outputs, values, strict=True):
                    env[slot] = value
                for slot in step.free:
                    env[slot] = None
        return [list(env[i]) for i in self.results]  # type: ignore[arg-type]


def compile_function(func: FuncOp) -> Executable:
    """Compile a function of the global or placed stage. Raises ProgramError for an op that cannot be run."""
    return compile_block(func.body.block)


def compile_block(block: Block) -> Executable:
    """Compile a block that ends in a terminator with the results as operands."""
    steps, results, slots = _compile(block, _global_step)
    return Executable(tuple(arg.type for arg in block.args), steps, results, slots)


def compile_ranks(func: FuncOp, mesh: Mesh) -> LockstepExecutable:
    """Compile a function of the local stage for all ranks of the mesh."""
    steps, results, slots = _compile(func.body.block, _lockstep_step)
    return LockstepExecutable(mesh, steps, results, slots)


def run_module(module: ModuleOp, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run `@main` of a module of any stage: global arrays in, global arrays out.

    A local program gets its arguments cut by their `dist.layout`, and its results are put together again.
    Arguments and results have the shapes that users see: where ``rhino.extent`` says that the program holds more, zeros
    are put behind them and cut off again. (An argument that has the larger shape already is taken as it is.)
    Raises UsageError when arguments do not fit, RunError when devices that must agree do not.
    """
    func = _main(module)
    global_args = _padded(func, args)
    results = _run_global(module, func, global_args)
    return [
        _true(array, extent) for array, extent in zip(results, _extents(func.res_attrs, results), strict=True)
    ]


def _run_global(module: ModuleOp, func: FuncOp, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """`run_module` on arrays with padding."""
    if not is_local(func):
        return compile_function(func)(*args)
    mesh = _mesh(module)
    inputs = _boundary(func.arg_attrs, [arg.type for arg in func.args], mesh, "argument")
    outputs = _boundary(func.res_attrs, list(func.function_type.outputs), mesh, "result")
    check_arguments(args, [type for type, _ in inputs])
    cut = [
        [shard(array, layout, mesh, device) for device in mesh.devices()]
        for array, (_, layout) in zip(args, inputs, strict=True)
    ]
    results = compile_ranks(func, mesh)(cut)
    out = []
    for i, (pieces, (type, layout)) in enumerate(zip(results, outputs, strict=True)):
        try:
            out.append(unshard(pieces, layout, type.get_shape(), mesh))
        except RunError as error:
            raise RunError(error.message, where=f"result {i} of @main", remedy=error.remedy) from None
    return out


def _padded(func: FuncOp, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arguments with zeros behind their true extents where the program wants them."""
    out = list(args)
    attrs = func.arg_attrs or ()
    for i, (array, extent) in enumerate(zip(args, _extents(func.arg_attrs, args), strict=True)):
        if extent is not None and tuple(array.shape) == extent:
            whole = list(attrs)[i].data.get("dist.global_type", func.args[i].type)
            assert isinstance(whole, TensorType)
            out[i] = np.pad(array, [(0, n - e) for n, e in zip(whole.get_shape(), extent, strict=True)])
    return out


def _true(array: np.ndarray, extent: tuple[int, ...] | None) -> np.ndarray:
    return array if extent is None else array[tuple(map(slice, extent))]


def _extents(
    attrs: Iterable[DictionaryAttr] | None, values: Sequence[object]
) -> list[tuple[int, ...] | None]:
    """``rhino.extent`` of every argument or result, None where there is none."""
    found = [a.data.get("rhino.extent") for a in attrs or ()]
    found += [None] * (len(values) - len(found))
    return [tuple(map(int, a.get_values())) if isinstance(a, DenseArrayBase) else None for a in found]


def is_local(func: FuncOp) -> bool:
    """Whether a function is of the local stage: its arguments and results say what their global types are."""
    attrs = [*(func.arg_attrs or ()), *(func.res_attrs or ())]
    return any("dist.global_type" in a.data for a in attrs)


def check_arguments(arrays: Sequence[np.ndarray], types_: Sequence[Attribute]) -> None:
    """Raise UsageError unless the arrays are of exactly these tensor types."""
    if len(arrays) != len(types_):
        raise UsageError(f"{len(arrays)} arguments given where the program has {len(types_)}")
    for i, (array, type) in enumerate(zip(arrays, types_, strict=True)):
        assert isinstance(type, TensorType)
        if tuple(array.shape) != type.get_shape() or array.dtype != types.numpy_dtype(type.element_type):
            raise UsageError(
                f"argument {i} is {array.dtype}{list(array.shape)} where the program has {types.show(type)}"
            )


def _compile(
    block: Block, make: Callable[[Operation], Callable[..., Any]]
) -> tuple[tuple[Step, ...], tuple[int, ...], int]:
    slots: dict[SSAValue, int] = {arg: i for i, arg in enumerate(block.args)}
    ops = list(block.ops)
    last: dict[SSAValue, int] = {}
    for i, op in enumerate(ops):
        for operand in op.operands:
            last[operand] = i
    dying: dict[int, list[SSAValue]] = {}
    for value, i in last.items():
        dying.setdefault(i, []).append(value)
    free: list[int] = []  # slots that hold nothing any more
    count = len(slots)
    steps: list[Step] = []
    for i, op in enumerate(ops):
        if op.has_trait(IsTerminator):
            return tuple(steps), tuple(_slot(slots, op, o) for o in op.operands), count
        inputs = tuple(_slot(slots, op, o) for o in op.operands)
        dead = [slots[v] for v in dying.get(i, ())]
        outputs = []
        for result in op.results:
            if free:
                slots[result] = free.pop()
            else:
                slots[result], count = count, count + 1
            outputs.append(slots[result])
            if result not in last:
                dead.append(slots[result])
        free.extend(dead)
        steps.append(Step(op, make(op), inputs, tuple(outputs), tuple(dead)))
    raise ProgramError("a block without a terminator cannot be run", where=_where(block))


def _slot(slots: dict[SSAValue, int], op: Operation, value: SSAValue) -> int:
    if value not in slots:
        raise ProgramError(f"{op.name}: an operand is used before its definition", where=str(op.location))
    return slots[value]


def _global_step(op: Operation) -> Callable[..., Any]:
    evaluate: Evaluate | None = getattr(op, "evaluate", None)
    if evaluate is None:
        raise ProgramError(f"the interpreter cannot run {op.name} in a global program")
    return evaluate


def _lockstep_step(op: Operation) -> Callable[..., Any]:
    together: Callable[..., Any] | None = getattr(op, "evaluate_ranks", None)
    if together is not None:
        return together
    alone: Evaluate | None = getattr(op, "evaluate", None)
    if alone is None:
        raise ProgramError(f"the interpreter cannot run {op.name} in a local program")
    evaluate, results = alone, len(op.results)

    def run(mesh: Mesh, operands: list[PerRank]) -> Sequence[PerRank]:
        # Ranks that share their operands (as objects) share the results: replicated work is done once.
        if all(value is ranks[0] for ranks in operands for value in ranks):
            return [[np.asarray(v)] * mesh.size for v in evaluate(*(ranks[0] for ranks in operands))]
        columns = [evaluate(*values) for values in zip(*operands, strict=True)]
        return [[np.asarray(column[i]) for column in columns] for i in range(results)]

    return run


def _main(module: ModuleOp) -> FuncOp:
    for op in module.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == "main":
            return op
    raise ProgramError("the module has no function @main", remedy="name the program's entry function main")


def _mesh(module: ModuleOp) -> Mesh:
    for op in module.ops:
        if op.name == "dist.mesh":
            mesh = getattr(op, "mesh", None)
            assert isinstance(mesh, Mesh)
            return mesh
    raise ProgramError("a local program without dist.mesh cannot be run")


def _boundary(
    attrs: Iterable[DictionaryAttr] | None, local: Sequence[Attribute], mesh: Mesh, what: str
) -> list[tuple[types.Type, Layout]]:
    """Global type and layout of every argument or result of a local `@main`."""
    out: list[tuple[types.Type, Layout]] = []
    for i, (type, attr) in enumerate(itertools.zip_longest(local, attrs or ())):
        found = attr.data if isinstance(attr, DictionaryAttr) else {}
        whole, layout = found.get("dist.global_type", type), found.get("dist.layout")
        if not isinstance(whole, TensorType) or not isinstance(layout, HasLayout):
            raise ProgramError(
                f"{what} {i} of the local @main lacks dist.layout or dist.global_type",
                remedy="let the pass `spmd` make local programs",
            )
        out.append((whole, layout.resolve(tuple(whole.get_shape()), mesh)))
    return out


def _where(block: Block) -> str | None:
    parent = block.parent_op()
    return parent.name if parent is not None else None
