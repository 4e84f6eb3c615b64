"""PROGRAM on the command line: a Python file with `program()`, MLIR text of the global stage, or StableHLO."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects.builtin import ModuleOp

from rhino.dialects import signature
from rhino.dialects.text import parse_module, read_file
from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.optimizers import AdamW, Optimizer
from rhino.ir.verify import check_global

if TYPE_CHECKING:
    import torch

    from rhino.frontend.program import Program

#: The seed under which `program()` runs, so that every rank, and the reference, build the same model.
SEED = 0

_DTYPES = ("float32", "float64", "bfloat16", "float16")


@dataclass(frozen=True)
class Source:
    """A program as it was given.

    Attributes:
        path: the file.
        program: the model, loss and batches of a Python file.
        module: the module of an MLIR file.
    """

    path: str
    program: Program | None = None
    module: ModuleOp | None = None

    @property
    def optimizer(self) -> Optimizer:
        """The program's optimizer, or the default one."""
        chosen = self.program.optimizer if self.program is not None else None
        return chosen or AdamW()

    def python(self, what: str) -> Program:
        """The Python program. Raises UsageError saying that `what` needs one."""
        if self.program is None:
            raise UsageError(f"{what} needs a Python program, but '{self.path}' is an MLIR file")
        return self.program


def load(path: str, dtype: str | None = None) -> Source:
    """Read PROGRAM; `dtype` converts a Python program's floating-point weights and inputs.

    Raises UsageError when there is no such file or it is of another kind, ProgramError with a position when
    it is malformed or fails.
    """
    suffix = Path(path).suffix
    if suffix == ".mlir":
        if dtype is not None:
            raise UsageError(
                "--dtype is for Python programs", remedy="an MLIR file says its element types itself"
            )
        module = _read(path)
        check_global(module)
        _name_arguments(module, path)
        return Source(path, module=module)
    if suffix != ".py":
        raise UsageError(f"'{path}' is neither a .py nor a .mlir file")
    import torch

    from rhino.frontend.program import load_program

    torch.manual_seed(SEED)
    program = load_program(path)
    return Source(path, program=program if dtype is None else convert(program, dtype))


#: An op of StableHLO at the beginning of a line, of either form.
_STABLEHLO = re.compile(r'^\s*(?:%[^=\n]*=\s*)?"?(?:stablehlo|chlo)\.\w', re.MULTILINE)


def _read(path: str) -> ModuleOp:
    """A module in Rhino's own text, or in StableHLO as JAX prints it: donated arguments are its parameters."""
    text = read_file(path)
    if _STABLEHLO.search(text) is None:
        return parse_module(text, path)
    from rhino.frontend.stablehlo import read_stablehlo

    return read_stablehlo(text, path)


def _name_arguments(module: ModuleOp, path: str) -> None:
    """Call nameless arguments of `@main` ``arg0``, ``arg1``, ... and take those without a role for inputs.

    Raises ProgramError when two arguments have one name.
    """
    func = signature.main_of(module)
    slots = [
        replace(slot, name=slot.name or f"arg{i}", role=slot.role or "input")
        for i, slot in enumerate(signature.arguments(func))
    ]
    for name, count in Counter(slot.name for slot in slots).items():
        if count > 1:
            raise ProgramError(f"{count} arguments of @main have the name '{name}'", where=path)
    signature.set_arguments(func, slots)


def convert(program: Program, dtype: str) -> Program:
    """The program with floating-point weights, buffers and inputs of another dtype."""
    import torch

    if dtype not in _DTYPES:
        raise UsageError(f"no dtype '{dtype}'", remedy=f"use one of {', '.join(_DTYPES)}")
    wanted: torch.dtype = getattr(torch, dtype)
    batches: Callable[[int], Any] | None = None
    if program.batches is not None:
        given = program.batches

        def batches(step: int) -> Any:
            return _cast(given(step), wanted)

    return replace(
        program, model=program.model.to(wanted), batch=_cast(program.batch, wanted), batches=batches
    )


def _cast(batch: Any, dtype: torch.dtype) -> Any:
    import torch

    if isinstance(batch, torch.Tensor):
        return batch.to(dtype) if batch.is_floating_point() else batch
    if isinstance(batch, dict):
        return {key: _cast(value, dtype) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(_cast(value, dtype) for value in batch)
    return batch


def forward_of(source: Source) -> ModuleOp:
    """The program as a module of the global stage, before differentiation."""
    if source.module is not None:
        return source.module
    from rhino.frontend.capture import capture

    return capture(source.python("capture"))


def step_of(forward: ModuleOp, optimizer: Optimizer) -> ModuleOp:
    """The training step of a forward module.

    A module that is one already (its results say what they replace) is taken as it is, and so is one without
    a loss or without parameters: there is nothing to train.
    """
    from rhino.passes.inline_composites import inline_composites
    from rhino.passes.step import clean, training_step

    if to_train(forward):
        return training_step(forward, optimizer)
    module = forward.clone()
    inline_composites(module)
    clean(module)
    return module


def to_train(module: ModuleOp) -> bool:
    """Whether a module is to become a training step: it has a loss and parameters, and is no step yet."""
    func = signature.main_of(module)
    arguments, results = signature.arguments(func), signature.results(func)
    trained = any(s.alias is not None and s.role in ("parameter", "gradient") for s in results)
    trainable = any(s.role == "loss" for s in results) and any(s.role == "parameter" for s in arguments)
    return trainable and not trained
