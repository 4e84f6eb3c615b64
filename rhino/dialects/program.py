"""Programs written by hand: a Python function of Tensors, traced once into a module.

    from rhino.dialects.program import f32, function, parameter

    @function(f32[4, 8], parameter(f32[8, 16]))
    def main(x, w):
        return (x @ w).relu().sum()

    print(main)                 # the module's text
    main(x, w)                  # runs on the interpreter

Arguments keep their Python names. A parameter is what `autodiff` differentiates; a program with parameters whose
first result is a float scalar has that as its loss.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.signature import Slot
from rhino.dialects.tensor import ElementType, Operand, Tensor, caller, concatenate, emit, stack, where
from rhino.ir import types
from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.evaluate import Executable, compile_function
from rhino.ir.printing import print_module
from rhino.ir.text import show_location
from rhino.ir.verify import verify_module

f64, f32, f16, bf16, i1, i8, i16, i32, i64 = map(
    ElementType, ("f64", "f32", "f16", "bf16", "i1", "i8", "i16", "i32", "i64")
)


@dataclass(frozen=True)
class Argument:
    """A type and the role it plays in training."""

    type: types.Type
    role: str = "input"


def parameter(type: types.Type) -> Argument:
    """An argument that training changes."""
    return Argument(type, "parameter")


def buffer(type: types.Type) -> Argument:
    """An argument that belongs to the model but is not trained."""
    return Argument(type, "buffer")


class Program:
    """A traced function. `module` is its text's module; calling it runs it on the interpreter.

    Arrays are converted to the argument's element type as long as floats stay floats and integers integers.
    Results come back in the structure that the function returned: one array, a tuple, or a dict.
    """

    def __init__(self, module: ModuleOp, structure: Any) -> None:
        self.module = module
        self._structure = structure
        self._executable: Executable | None = None

    def __str__(self) -> str:
        return print_module(self.module)

    def __call__(self, *arrays: Any) -> Any:
        func = signature.main_of(self.module)
        if self._executable is None:
            self._executable = compile_function(func)
        if len(arrays) != len(func.args):
            raise UsageError(f"{len(arrays)} arguments given where the program has {len(func.args)}")
        slots = signature.arguments(func)
        given = [
            _convert(array, types.type_of(arg), slot.name)
            for array, arg, slot in zip(arrays, func.args, slots, strict=True)
        ]
        results = self._executable(*given)
        if self._structure is None:
            return results[0]
        return dict(zip(self._structure, results, strict=True)) if self._structure else tuple(results)


def function(*arguments: types.Type | Argument) -> Callable[[Callable[..., Any]], Program]:
    """Decorator: trace a function of as many Tensors into a Program. Raises ProgramError at the line that is wrong."""

    def trace(body: Callable[..., Any]) -> Program:
        return _trace(body, [a if isinstance(a, Argument) else Argument(a) for a in arguments])

    return trace


def _trace(body: Callable[..., Any], arguments: Sequence[Argument]) -> Program:
    names = _names(body, len(arguments))
    func = FuncOp("main", ([a.type for a in arguments], []))
    builder = Builder(InsertPoint.at_end(func.body.block))
    for arg, name in zip(func.args, names, strict=True):
        arg.name_hint = name
    returned = body(*(Tensor(arg, builder) for arg in func.args))
    structure, outputs = _outputs(returned, body)
    for output in outputs:
        if output.builder is not builder:
            raise ProgramError(f"{body.__name__} returns {output!r}, which belongs to another function")
    builder.insert(ReturnOp(*(o.value for o in outputs)))
    func.update_function_type()
    signature.set_arguments(func, [Slot(n, a.role) for n, a in zip(names, arguments, strict=True)])
    slots = [Slot(structure[i] if structure else f"output{i}", "output") for i in range(len(outputs))]
    trained = any(a.role == "parameter" for a in arguments)
    if outputs and trained and outputs[0].shape == () and types.is_float(outputs[0].type.element_type):
        slots[0] = replace(slots[0], name=slots[0].name if structure else "loss", role="loss")
    signature.set_results(func, slots)
    module = ModuleOp([func])
    verify_module(module)
    return Program(module, structure)


def _names(body: Callable[..., Any], count: int) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(inspect.signature(body).parameters.values())
    names = [p.name for p in parameters if p.kind in kinds]
    if any(p.kind == inspect.Parameter.VAR_POSITIONAL for p in parameters):
        names += [f"x{i}" for i in range(count - len(names))]
    if len(names) != count:
        raise ProgramError(
            f"{body.__name__} takes {len(names)} arguments, but {count} types are given",
            remedy="give @function one type for every argument",
        )
    return names


def _outputs(returned: Any, body: Callable[..., Any]) -> tuple[Any, list[Tensor]]:
    """The structure (None: one value, (): a tuple, names: a dict) and the Tensors in it."""
    if isinstance(returned, Tensor):
        return None, [returned]
    structure: tuple[str, ...] = ()
    values = returned
    if isinstance(returned, Mapping):
        structure, values = tuple(returned), list(returned.values())
    if not isinstance(values, list | tuple) or not all(isinstance(v, Tensor) for v in values):
        raise ProgramError(
            f"{body.__name__} returns {type(returned).__name__}",
            remedy="return a Tensor, a tuple of Tensors, or a dict of them",
        )
    return structure, list(values)


def _convert(value: Any, type: types.Type, name: str) -> np.ndarray:
    array, dtype = np.asarray(value), types.numpy_dtype(type.element_type)
    if array.dtype != dtype:
        integral = array.dtype.kind in "iu"
        wanted = "float" if types.is_float(type.element_type) else "integer" if dtype != np.bool_ else "i1"
        fits = {"float": integral or array.dtype.kind == "f", "integer": integral, "i1": False}[wanted]
        if not fits:
            raise UsageError(
                f"argument {name} is {array.dtype}{list(array.shape)} instead of {types.show(type)}"
            )
        array = array.astype(dtype)
    return array


def composite(
    name: str, **attributes: int | float | str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: calls of a function of Tensors become one named op that carries its body as a region."""

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        def call(*operands: Tensor) -> Any:
            if not operands or not all(isinstance(o, Tensor) for o in operands):
                raise ProgramError(f"composite {name} takes Tensors", where=show_location(caller()))
            shape: list[Any] = []

            def build(b: Builder, *args: Any) -> list[Any]:
                structure, outputs = _outputs(body(*(Tensor(a, b) for a in args)), body)
                shape.append(structure)
                return [o.value for o in outputs]

            outer = operands[0].builder
            for operand in operands[1:]:
                operands[0]._same_function(operand)
            with outer.at(caller()):
                results = outer.composite(name, [o.value for o in operands], _attributes(attributes), build)
            out = [Tensor(r, outer) for r in results]
            (structure,) = shape
            if structure is None:
                return out[0]
            return dict(zip(structure, out, strict=True)) if structure else tuple(out)

        return call

    return decorate


def _attributes(values: Mapping[str, int | float | str]) -> dict[str, Attribute]:
    out: dict[str, Attribute] = {}
    for key, value in values.items():
        if isinstance(value, str):
            out[key] = StringAttr(value)
        elif isinstance(value, float):
            out[key] = FloatAttr(value, types.F64)
        else:
            out[key] = IntegerAttr(value, types.I64)
    return out


def full(like: Tensor, type: types.Type, value: bool | int | float) -> Tensor:
    """A Tensor of one value, in the function that `like` belongs to."""
    return emit(like.builder, lambda b: b.constant(value, type))


def constant(like: Tensor, value: Any) -> Tensor:
    """A Tensor from an array, in the function that `like` belongs to."""
    return emit(like.builder, lambda b: b.constant(np.asarray(value)))


def iota(like: Tensor, type: types.Type, dim: int) -> Tensor:
    """Every element its index along `dim`, in the function that `like` belongs to."""
    return emit(like.builder, lambda b: b.iota(type, dim))


def random_uniform(seed: Tensor, shape: Sequence[int], element: ElementType = f32) -> Tensor:
    """Uniform numbers in [0, 1) for a seed (``i64[]``); every element depends on the seed and its index alone."""
    return emit(seed.builder, lambda b: b.random_uniform(seed.value, b.linear_index(shape), element.mlir))


__all__ = [
    "Argument",
    "ElementType",
    "Operand",
    "Program",
    "Tensor",
    "bf16",
    "buffer",
    "composite",
    "concatenate",
    "constant",
    "f16",
    "f32",
    "f64",
    "full",
    "function",
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "iota",
    "parameter",
    "random_uniform",
    "stack",
    "where",
]
