"""Time of one op on one device's shards (seconds), from its local shapes.

* Matrix products in a type that the device was measured at: tiles, waves and split-K (`rhino.planner.model.gemm`).
* Other ops of such a device: ``launch + bytes / bandwidth`` (`rhino.planner.model.memory_bound`).
* Convolutions, matrix products in other types, and devices without kernel models: a roofline,

      time = launch + max(flops / shards / rate, bytes / bandwidth)

  where `rate` is the device's matmul rate for the element type, or its f32 rate for ops that are no matmul.

Bytes are the local operands read and the local results written once. Views move nothing; lookups move what they look
up.
"""

from __future__ import annotations

import math
from functools import lru_cache

from rhino.dialects.hlo.base import HloOp, get_integer
from rhino.dialects.hlo.constant import ConstantOp, IotaOp
from rhino.ir import types
from rhino.ir.dense import is_splat
from rhino.ir.layout import Layout
from rhino.ir.rule import Placement
from rhino.planner.candidates import COMPUTE
from rhino.planner.cluster import Hardware
from rhino.planner.graph import Kind
from rhino.planner.model.gemm import gemm_time
from rhino.planner.model.machine import matmuls
from rhino.planner.model.memory_bound import elementwise_time

#: Ops that only say how memory is read; torch makes them views.
VIEWS = frozenset({"hlo.reshape", "hlo.transpose", "hlo.broadcast_in_dim", "hlo.slice"})

#: Ops that read of operand 0 no more than they return.
LOOKUPS = frozenset({"hlo.gather", "hlo.dynamic_slice"})


def op_time(hardware: Hardware, kind: Kind, placement: Placement, shards: int) -> float:
    """Time of an op whose work is cut into `shards` equal pieces, under a placement."""
    if kind.name in VIEWS or kind.name == "hlo.constant":
        return 0.0
    if kind.name == "hlo.dot_general" and (constants := matmuls(hardware).get(kind.element)) is not None:
        return float(gemm_time(constants, *local_product(kind, placement, shards)))
    moved = traffic(kind, placement)
    if hardware.kernels and kind.name not in COMPUTE:
        return float(elementwise_time(moved, hardware.memory_bandwidth, 1.0, hardware.launch, 1.0))
    return hardware.launch + max(
        kind.flops / shards / _rate(hardware, kind), moved / hardware.memory_bandwidth
    )


def _rate(hardware: Hardware, kind: Kind) -> float:
    """FLOP/s that no kernel of a kind exceeds."""
    rates = hardware.flops
    if kind.name not in COMPUTE:
        return rates["f64" if kind.element == "f64" else "f32"]
    return rates.get(kind.element, rates["f32"])


def local_product(kind: Kind, placement: Placement, shards: int) -> tuple[float, float, float, float]:
    """``(m, n, k, batch)`` of a device's share of a `dot_general`: all four follow from the sizes of its operands and
    result, ``b m k``, ``b k n``, ``b m n``, and its multiplications, ``b m n k``.
    """
    lhs, rhs = (
        elements(shape, layout)
        for (shape, _), layout in zip(kind.operand_tensors, placement.operands, strict=True)
    )
    out = elements(kind.result_tensors[0][0], placement.results[0])
    work = kind.flops // 2 // shards
    if not work:
        return 0.0, 0.0, 0.0, 0.0
    return float(work // rhs), float(work // lhs), float(work // out), float(lhs * rhs * out // work**2)


def least_time(hardware: Hardware, kind: Kind, devices: int) -> float:
    """What an op takes at least, whatever its placement: work and tensors in as many pieces as there are devices,
    all of them at the device's best.
    """
    if kind.name in VIEWS or kind.name == "hlo.constant":
        return 0.0
    whole = Placement(
        tuple(Layout.replicated(len(shape)) for shape, _ in kind.operand_tensors),
        tuple(Layout.replicated(len(shape)) for shape, _ in kind.result_tensors),
    )
    launch, rate, bandwidth = hardware.launch, _rate(hardware, kind), hardware.memory_bandwidth
    if kind.name == "hlo.dot_general" and (c := matmuls(hardware).get(kind.element)) is not None:
        launch, rate, bandwidth = c.launch, c.peak * c.efficiency, c.memory
    elif hardware.kernels and kind.name not in COMPUTE:
        rate = math.inf
    return launch + max(kind.flops / rate, traffic(kind, whole) / bandwidth) / devices


def held(op: HloOp, size: int) -> int:
    """Bytes that a result of `size` bytes takes: a splat is one element and an iota one row, seen from everywhere."""
    if isinstance(op, ConstantOp):
        return min(size, types.itemsize(types.element_of(op.result))) if is_splat(op.value) else size
    if isinstance(op, IotaOp):
        result = op.results[0]
        return min(
            size,
            types.itemsize(types.element_of(result))
            * types.shape_of(result)[get_integer(op.properties, "dim")],
        )
    return size


def copy_time(hardware: Hardware, size: float, kernels: int) -> float:
    """Time to copy `size` bytes within a device's memory by so many kernels."""
    return kernels * hardware.launch + 2 * size / hardware.memory_bandwidth


def traffic(kind: Kind, placement: Placement) -> float:
    """Bytes that an op reads and writes in one device's memory."""
    if kind.name in VIEWS:
        return 0.0
    written = sum(
        size * elements(shape, layout)
        for (shape, size), layout in zip(kind.result_tensors, placement.results, strict=True)
    )
    read = [
        size * elements(shape, layout)
        for (shape, size), layout in zip(kind.operand_tensors, placement.operands, strict=True)
    ]
    if kind.name in LOOKUPS:
        read[0] = written
    return written + sum(read)


@lru_cache(maxsize=1 << 18)
def elements(shape: tuple[int, ...], layout: Layout) -> int:
    """Elements of a tensor on one device."""
    return math.prod(layout.local_shape(shape))


def shards_of(placement: Placement) -> int:
    """Number of pieces that an op's work is cut into under a placement."""
    atoms = {
        digit.axis
        for layout in (*placement.operands, *placement.results)
        for digits in layout.dims
        for digit in digits
    }
    return math.prod(atom.size for atom in atoms)
