"""Torch tensors beside MLIR types and numpy arrays: dtypes and conversions that keep every bit."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import torch
from xdsl.ir import Attribute

from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh

_TORCH: dict[Attribute, torch.dtype] = {
    types.F64: torch.float64,
    types.F32: torch.float32,
    types.F16: torch.float16,
    types.BF16: torch.bfloat16,
    types.I1: torch.bool,
    types.I8: torch.int8,
    types.I16: torch.int16,
    types.I32: torch.int32,
    types.I64: torch.int64,
    types.UI8: torch.uint8,
    types.UI16: torch.uint16,
    types.UI32: torch.uint32,
    types.UI64: torch.uint64,
    types.C64: torch.complex64,
    types.C128: torch.complex128,
    types.F8E4M3FN: torch.float8_e4m3fn,
    types.F8E5M2: torch.float8_e5m2,
    types.F8E4M3FNUZ: torch.float8_e4m3fnuz,
    types.F8E5M2FNUZ: torch.float8_e5m2fnuz,
    types.F8E8M0FNU: torch.float8_e8m0fnu,
}
_MLIR = {dtype: element for element, dtype in _TORCH.items()}
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
#: One-byte floats, of which numpy knows nothing by itself.
_FLOAT8 = {types.numpy_dtype(e): _TORCH[e] for e in types.FLOAT8 if e in _TORCH}
_FROM_FLOAT8 = {dtype: array for array, dtype in _FLOAT8.items()}


def torch_dtype(element: Attribute) -> torch.dtype:
    """The torch dtype of an element type. Raises ProgramError for types Rhino does not compute with."""
    if element not in _TORCH:
        raise ProgramError(
            f"torch has no element type {element}", remedy="run it on the interpreter with `rhino check`"
        )
    return _TORCH[element]


def element_type(dtype: torch.dtype) -> Attribute:
    """The element type of a torch dtype. Raises ProgramError where there is none."""
    if dtype not in _MLIR:
        raise ProgramError(f"torch dtype {dtype} is not supported", remedy="convert the tensor first")
    return _MLIR[dtype]


def to_torch(array: np.ndarray, device: torch.device | str = "cpu") -> torch.Tensor:
    """A tensor with the array's values on `device`; never shares memory with the array."""
    array = np.array(array, order="C", copy=True)
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
    if array.dtype in _FLOAT8:
        return torch.from_numpy(array.view(np.uint8)).view(_FLOAT8[array.dtype]).to(device)
    return torch.from_numpy(array).to(device)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's values as a numpy array, bfloat16 as ml_dtypes' type."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(_BFLOAT16)
    if tensor.dtype in _FROM_FLOAT8:
        return tensor.view(torch.uint8).numpy().view(_FROM_FLOAT8[tensor.dtype])
    return tensor.numpy()


def cut(tensor: torch.Tensor, layout: Layout, mesh: Mesh, device: int) -> torch.Tensor:
    """The piece of a global tensor that `device` holds under `layout` (digits only), as a tensor of its own.

    Shape: the layout's local shape. The result shares no memory with `tensor`, so that this one can be freed.
    """
    for dim, digits in enumerate(layout.dims):
        for digit in digits:
            # Digits are kept major to minor: cutting by one leaves the later (minor) periods as they were.
            extent, n = tensor.shape[dim], digit.axis.size
            period = digit.period
            where = mesh.coordinate(device, (digit.axis,))
            shape = (*tensor.shape[:dim], extent // period, n, period // n, *tensor.shape[dim + 1 :])
            piece = tensor.reshape(shape).select(dim + 1, where)
            tensor = piece.reshape(*tensor.shape[:dim], extent // n, *tensor.shape[dim + 1 :])
    return tensor.clone(memory_format=torch.contiguous_format)


def piece_of(
    tensor: torch.Tensor, shape: Sequence[int], layout: Layout, mesh: Mesh, device: int
) -> torch.Tensor:
    """The piece that `device` holds of a global tensor of `shape`, of which `tensor` is the beginning and the rest
    is zero. Only the piece is made, not the whole; it shares no memory with `tensor`.
    """
    if tuple(tensor.shape) == tuple(shape):
        return cut(tensor, layout, mesh, device)
    out = tensor.new_zeros(layout.local_shape(shape))
    for dim, (true, held) in enumerate(zip(tensor.shape, shape, strict=True)):
        # Local elements keep the order of the global ones, so those that are no padding come first.
        own = cut(torch.arange(held), Layout.make([layout.dims[dim]]), mesh, device)
        own = own[own < true]
        if len(own) < true:
            tensor = tensor.index_select(dim, own.to(tensor.device))
    out[tuple(map(slice, tensor.shape))] = tensor
    return out
