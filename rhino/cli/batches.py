"""What a batch holds, for programs of either kind."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from rhino.dialects import signature
from rhino.ir import types

if TYPE_CHECKING:
    import torch


def tokens_of(batch: Any) -> int:
    """Tokens in a batch: the elements of its first integer tensor of two or more dimensions.

    A batch without one (images, say) counts its first tensor's leading dimension: samples.
    """
    from rhino.frontend.program import named_inputs

    tensors: list[torch.Tensor] = [t for _, t in named_inputs(batch)]
    for tensor in tensors:
        if tensor.dim() >= 2 and not tensor.is_floating_point() and not tensor.is_complex():
            return tensor.numel()
    return int(tensors[0].shape[0]) if tensors and tensors[0].dim() else 1


def random_arrays(module: ModuleOp, roles: tuple[str, ...], seed: int = 0) -> dict[str, np.ndarray]:
    """Values for arguments of some roles of `@main`, by name; each depends on the seed and its name alone.

    Floats are normal with deviation 0.1 (squares of them for second moments), integers 0 or 1, step counts 0.
    """
    func = signature.main_of(module)
    out: dict[str, np.ndarray] = {}
    for slot, arg in zip(signature.arguments(func), func.args, strict=True):
        if (slot.role or "input") not in roles:
            continue
        shape, dtype = types.shape_of(arg), types.numpy_dtype(types.element_of(arg))
        digest = hashlib.sha256(f"{seed}:{slot.name}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        if slot.slot in ("step", "seed"):
            value: np.ndarray = np.zeros(shape)
        elif not types.is_float(types.element_of(arg)):
            value = rng.integers(0, 2, shape)
        else:
            value = rng.normal(scale=0.1, size=shape)
            value = value**2 if slot.slot == "v" else value
        out[slot.name] = np.asarray(value).astype(dtype)
    return out
