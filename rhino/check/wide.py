"""A PyTorch program in float64 throughout, captured and run.

Casts inside the model are widened before the program is imported, so that every constant keeps all its digits. A module
that is widened later has those that a narrow type left: 1e-5 in float32 is off by 1e-8 of itself, which a comparison to
1e-10 can see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from xdsl.dialects.builtin import ModuleOp

from rhino.frontend.capture import import_exported
from rhino.frontend.export import export
from rhino.frontend.program import Program
from rhino.frontend.torch_ops import ATEN

#: 8-bit floats stay: conversions to them round on purpose.
WIDE: Mapping[torch.dtype, torch.dtype] = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}


def capture_wide(program: Program) -> ModuleOp:
    """Like `rhino.frontend.capture.capture`, with every float in f64 and every complex number in c128."""
    exported = export(program, ATEN)
    constants = exported.program.constants
    constants.update({name: _value(value) for name, value in constants.items()})
    for node in exported.program.graph.nodes:
        node.args = tree_map(_argument, node.args)
        node.kwargs = tree_map(_argument, node.kwargs)
        if "val" in node.meta:
            node.meta["val"] = tree_map(_value, node.meta["val"])
    return import_exported(exported)


@contextmanager
def wide() -> Iterator[None]:
    """While active, PyTorch's ops compute in float64 and complex128 where they name a narrower type or none."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Wide():
            yield
    finally:
        torch.set_default_dtype(before)


class _Wide(TorchDispatchMode):
    """Every dtype argument that names a narrower type names the widest of its kind."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = {k: _argument(v) for k, v in (kwargs or {}).items()}
        # torch.tensor(..., dtype=...) made its argument before any op ran.
        if func is torch.ops.aten.lift_fresh.default:
            args = (_value(args[0]),)
        run = _grouped_product if func is torch.ops.aten._grouped_mm.default else func
        return run(*map(_argument, args), **kwargs)


def _grouped_product(
    x: torch.Tensor,
    y: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`aten._grouped_mm`, whose kernel takes no float64: a product per group, written down one after the other.

    Its derivative is again such products, so that this serves the backward pass too.
    """
    if offs is None:
        out = x @ y
    else:
        ends: list[int] = offs.tolist()
        groups = [slice(first, last) for first, last in zip([0, *ends], ends, strict=False)]
        if x.dim() == 2 and y.dim() == 3:  # rows of x
            out = x.new_zeros(x.shape[0], y.shape[2])
            for g, rows in enumerate(groups):
                out[rows] = x[rows] @ y[g]
        elif x.dim() == 3:  # columns of y
            out = x.new_zeros(x.shape[1], y.shape[1])
            for g, columns in enumerate(groups):
                out[:, columns] = x[g] @ y[:, columns]
        else:  # the contracted dimension
            out = torch.stack([x[:, inner] @ y[inner] for inner in groups])
    out = out if bias is None else out + bias
    return out if out_dtype is None else out.to(out_dtype)


def _argument(arg: Any) -> Any:
    return WIDE.get(arg, arg) if isinstance(arg, torch.dtype) else arg


def _value(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in WIDE:
        return value.to(WIDE[value.dtype])
    return value
