"""What becomes of a sample: imported, interpreted, differentiated and divided, and compared with torch each time."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch
from samples import Calls, Sample, program
from xdsl.dialects.builtin import ModuleOp

from rhino.check.choices import Seeded
from rhino.check.random_layouts import random_placement
from rhino.check.random_ops import Program as Drawn
from rhino.dialects import signature
from rhino.frontend.capture import SEED, import_exported
from rhino.frontend.export import STATIC_REMEDY, Exported, export
from rhino.frontend.torch_ops import ATEN
from rhino.ir.errors import ProgramError, RhinoError, UnsupportedError
from rhino.ir.evaluate import run_module
from rhino.ir.mesh import Mesh
from rhino.passes.autodiff import differentiate
from rhino.passes.place import place
from rhino.passes.spmd import spmd
from rhino.passes.step import clean

MESH = "2x2"
#: Random layouts per program.
LAYOUTS = 3

NO_GRADIENT = "depends on no floating-point parameter"
#: Entries whose results are memory with no defined contents.
UNDEFINED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
    | {"resize_", "resize_as_"}
)

#: Entries whose gradient by torch is not the function's, and why; only their values are compared.
WRONG_IN_TORCH = {"as_strided_scatter": "torch gives the overwritten elements a gradient, and no others"}

#: Entries that torch computes less exactly than float64 allows: its Bessel functions between 4 and 9, by 4e-7, and
#: Airy's between -5 and -2, by 3e-6.
LOOSE = {f"special.bessel_{name}": 1e-5 for name in ("j0", "j1", "y0", "y1")} | {"special.airy_ai": 1e-4}

PASSED, UNSUPPORTED, WRONG, OUTSIDE = "passed", "unsupported", "wrong", "outside"


@dataclass(frozen=True)
class Outcome:
    """What became of one sample.

    Attributes:
        kind: passed; unsupported (Rhino refuses, with a typed error); wrong (another value than torch's, or a
            crash); outside (`torch.export` refuses the call, or the result's shape depends on values).
        reason: one line, empty where it passed.
        random: its results are random, and only their shapes and what divides them were compared.
    """

    kind: str
    reason: str = ""
    random: bool = False


def outcomes(calls: Sequence[Sample], layouts: int = LAYOUTS) -> dict[int, Outcome]:
    """The outcome of each sample; of a group that does not pass, each sample by itself."""
    if not calls:
        return {}
    outcome = _outcome(calls, layouts)
    if outcome.kind == PASSED or len(calls) == 1:
        return {s.index: outcome for s in calls}
    half = len(calls) // 2
    return outcomes(calls[:half], layouts) | outcomes(calls[half:], layouts)


def _outcome(calls: Sequence[Sample], layouts: int) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.manual_seed(0)
            model = Calls(calls)
        except Exception as error:
            return Outcome(OUTSIDE, f"torch itself fails: {_line(error)}")
        try:
            exported = export(program(model), ATEN)
        except (ProgramError, UnsupportedError) as error:
            return Outcome(OUTSIDE, f"torch.export: {error.message}")
        except Exception as error:
            return Outcome(OUTSIDE, f"torch.export: {_line(error)}")
        try:
            return _compared(model, exported, layouts)
        except RhinoError as error:
            outside = error.remedy == STATIC_REMEDY
            return Outcome(OUTSIDE if outside else UNSUPPORTED, error.message)
        except AssertionError as error:
            return Outcome(WRONG, _line(error))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            return Outcome(
                WRONG, f"{type(error).__name__} in {place.filename.split('/')[-1]}: {_line(error)}"
            )


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _compared(model: Calls, exported: Exported, layouts: int) -> Outcome:
    module = import_exported(exported)
    loss = model(model.batch)
    undefined = all(s.name in UNDEFINED for s in model.calls)
    if loss.requires_grad:
        try:
            differentiate(module)
        except ProgramError as error:  # torch gives zeros, for random numbers for example
            if NO_GRADIENT not in error.message:
                raise
    clean(module)
    func = signature.main_of(module)
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers()), **model.batch}
    slots = signature.arguments(func)
    random = any(s.name == SEED for s in slots)
    arguments = [as_numpy(tensors[s.name]) if s.name in tensors else np.zeros((), np.int64) for s in slots]
    whole = run_module(module, arguments)
    found = {s.name: o for s, o in zip(signature.results(func), whole, strict=True)}
    wanted = expected(model, loss)
    if all(s.name in WRONG_IN_TORCH for s in model.calls):
        wanted = {name: value for name, value in wanted.items() if not name.endswith(".grad")}
    loose = max(LOOSE.get(s.name, 1e-7) for s in model.calls)
    compare(found, wanted, loose, only_shapes=random or undefined)
    divide(module, arguments, whole, layouts)
    return Outcome(PASSED, random=random)


def expected(model: Calls, loss: torch.Tensor) -> dict[str, np.ndarray]:
    """torch's results and gradients by name."""
    values = {"loss": as_numpy(loss)} | {n: as_numpy(b) for n, b in model.named_buffers()}
    names = [n for n, _ in model.named_parameters()]
    if loss.requires_grad and names:
        gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        for name, gradient in zip(names, gradients, strict=True):
            if gradient is not None:
                values[f"{name}.grad"] = as_numpy(gradient)
    return values


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor._is_zerotensor():
        tensor = torch.zeros_like(tensor)
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16).copy()
    return tensor.numpy().copy()


def compare(
    found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], loose: float, only_shapes: bool
) -> None:
    """Raises AssertionError where values differ by more than rounding."""
    for name, want in wanted.items():
        if name not in found:
            assert name.endswith(".grad") or name.split("_")[-1].startswith("out"), f"no result {name}"
            assert only_shapes or not want.any(), f"{name} is missing"
            continue
        got = found[name]
        assert got.shape == want.shape, f"{name} is {got.shape}, not {want.shape}"
        assert got.dtype == want.dtype, f"{name} is {got.dtype}, not {want.dtype}"
        if not only_shapes:
            close(got, want, name, loose)


def close(got: np.ndarray, want: np.ndarray, name: str, loose: float = 1e-7) -> None:
    """Equal up to rounding for floats, exactly for others."""
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want, name)
        return
    eps = float(ml_dtypes.finfo(want.dtype).eps)
    if want.dtype == ml_dtypes.bfloat16:
        got, want = got.astype(np.float32), want.astype(np.float32)
    loose = max(loose if eps < 1e-12 else 0.0, 30 * eps)
    scale = float(np.max(np.abs(want[np.isfinite(want)]), initial=1.0))
    np.testing.assert_allclose(got, want, rtol=loose, atol=loose * min(scale, 1e3) * 1e-1, err_msg=name)


def divide(module: ModuleOp, arguments: list[np.ndarray], whole: list[np.ndarray], count: int) -> None:
    """Random legal layouts on a 2x2 mesh: the divided program gives what the whole one gave."""
    mesh = Mesh.parse(MESH)
    for seed in range(count):
        own = module.clone()
        chosen = random_placement(Seeded(seed), Drawn(own, ()), mesh)
        ops = [op for op in signature.main_of(own).body.block.ops if op.results]
        place(own, mesh, chosen.of(ops), chosen.arguments, chosen.results)
        spmd(own)
        for slot, got, want in zip(
            signature.results(signature.main_of(own)), run_module(own, arguments), whole, strict=True
        ):
            close(got, want, f"{slot.name} divided")
