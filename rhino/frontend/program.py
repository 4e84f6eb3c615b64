"""What the user hands over: a model, its loss, a sample batch, and how to train it."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rhino.frontend.source import is_library
from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.optimizers import SGD, Adam, AdamW, Optimizer

if TYPE_CHECKING:
    import torch

Batch = Any  # a tensor, or a tuple, list or dict of batches
Loss = Callable[[Any, Any], Any]

#: What a user's own code may raise while Rhino runs it; reported with the line it was raised at.
USER_CODE_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Program:
    """A single-device program.

    Attributes:
        model: a `torch.nn.Module`; its parameters may lie on any device, `meta` included.
        loss: ``loss(model, batch)`` gives a scalar floating-point tensor.
        batch: a sample batch: a tensor, or a tuple or dict of tensors. Only shapes and dtypes matter.
        optimizer: how parameters are updated; None stands for `rhino.AdamW()`.
        batches: ``batches(step)`` gives the batch of a step, shaped like `batch`; None repeats `batch`.
    """

    model: torch.nn.Module
    loss: Loss
    batch: Batch
    optimizer: Optimizer | None = None
    batches: Callable[[int], Batch] | None = None

    def __post_init__(self) -> None:
        if not callable(self.loss):
            raise UsageError(
                f"loss is {_described(self.loss)}, not a function",
                remedy="give a function loss(model, batch) that returns a scalar tensor",
            )
        if self.optimizer is not None and not isinstance(self.optimizer, SGD | Adam | AdamW):
            raise UsageError(
                f"optimizer is {_described(self.optimizer)}",
                remedy="use rhino.SGD, rhino.Adam or rhino.AdamW",
            )

    def batch_at(self, step: int) -> Batch:
        """The batch of a training step (the sample batch when `batches` is None)."""
        return self.batch if self.batches is None else self.batches(step)


def named_inputs(batch: Batch) -> list[tuple[str, torch.Tensor]]:
    """The tensors of a batch with the names that they have in the captured module, in the same order.

    A dict entry is called by its key, an entry of a tuple ``batch.<index>``, a lone tensor ``batch``; nested
    names are joined by dots. Numbers, strings and None are part of the program, not inputs of it.
    """
    out: list[tuple[str, torch.Tensor]] = []
    _collect(batch, (), out)
    return out


def _collect(value: Batch, path: tuple[str, ...], out: list[tuple[str, torch.Tensor]]) -> None:
    import torch

    if isinstance(value, torch.Tensor):
        out.append((".".join(path) or "batch", value))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _collect(item, (*path, str(key)), out)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for i, item in enumerate(value):
            _collect(item, (*(path or ("batch",)), str(i)), out)
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise UsageError(
            f"the batch holds {_described(value)} at '{'.'.join(path) or 'batch'}'",
            remedy="make the batch a tensor, or a tuple or dict of tensors",
        )


def load_program(path: str | Path) -> Program:
    """Run a Python file and call its `program()`, which returns a `Program` or ``(model, loss, batch)``.

    Raises UsageError when there is no such file or function or it returns something else, ProgramError with
    file and line when the file itself fails.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"no program file '{path}'", remedy="give a Python file that defines program()")
    name = f"rhino_program_{path.stem.replace('.', '_').replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"'{path}' is not a Python file", remedy="give a .py file that defines program()")
    module = importlib.util.module_from_spec(spec)
    # As `python FILE` would: the file's neighbours can be imported, and its classes can be found by name.
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except USER_CODE_ERRORS as error:
        raise user_error(error, "the program file failed", str(path)) from error
    make = getattr(module, "program", None)
    if not callable(make):
        raise UsageError(
            f"'{path}' defines no function program()",
            remedy="define program() returning (model, loss, batch) or rhino.Program(...)",
        )
    try:
        result = make()
    except USER_CODE_ERRORS as error:
        raise user_error(error, "program() failed", str(path)) from error
    return as_program(result, str(path))


def as_program(value: Any, where: str) -> Program:
    """A `Program`, or ``(model, loss, batch)`` as one. Raises UsageError for anything else."""
    import torch

    if isinstance(value, tuple) and len(value) == 3:
        value = Program(*value)
    if not isinstance(value, Program):
        raise UsageError(
            f"program() returned {_described(value)}",
            where=where,
            remedy="return (model, loss, batch) or rhino.Program(model=, loss=, batch=, ...)",
        )
    if not isinstance(value.model, torch.nn.Module):
        raise UsageError(
            f"the program's model is {_described(value.model)}, not a torch.nn.Module", where=where
        )
    return value


def _described(value: Any) -> str:
    """What a value is, for a message: ``None``, ``a tuple of 2``, ``an object of type int``."""
    if value is None:
        return "None"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"an object of type {type(value).__name__}"


def user_error(error: Exception, what: str, default: str) -> ProgramError:
    """A ProgramError for an exception of the user's code, placed at its innermost line there."""
    where = default
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if not is_library(frame.filename):
                where = f"{frame.filename}:{frame.lineno}"
    lines = str(error).strip().splitlines()
    return ProgramError(
        f"{what}: {type(error).__name__}: {lines[0] if lines else ''}".rstrip(": "),
        where=where,
        remedy=_remedy(error),
    )


def _remedy(error: Exception) -> str | None:
    if isinstance(error, ModuleNotFoundError):
        return f"install {error.name}, or put it beside the program file"
    if isinstance(error, SyntaxError):
        return "make it a file that Python can run"
    return None
