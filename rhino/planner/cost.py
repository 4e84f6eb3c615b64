"""Time of one op on one device's shards (seconds): a roofline over arithmetic and memory traffic, plus a launch.

    time = launch + max(flops / shards / rate, bytes / bandwidth)

`rate` is the device's matmul rate for the element type, or its f32 rate for ops that are no matmul; bytes are the
local operands read and the local results written once. Views move nothing; lookups move what they look up.
"""

from __future__ import annotations

import math
from functools import lru_cache

from rhino.ir.layout import Layout
from rhino.ir.rule import Placement
from rhino.planner.candidates import COMPUTE
from rhino.planner.cluster import Hardware
from rhino.planner.graph import Kind

#: Ops that only say how memory is read; torch makes them views.
VIEWS = frozenset({"hlo.reshape", "hlo.transpose", "hlo.broadcast_in_dim", "hlo.slice"})

#: Ops that read of operand 0 no more than they return.
LOOKUPS = frozenset({"hlo.gather", "hlo.dynamic_slice"})


def op_time(hardware: Hardware, kind: Kind, placement: Placement, shards: int) -> float:
    """Time of an op whose work is cut into `shards` equal pieces, under a placement."""
    if kind.name in VIEWS or kind.name == "hlo.constant":
        return 0.0
    element = kind.element
    rates = hardware.flops
    rate = (
        rates.get(element, rates["f32"])
        if kind.name in COMPUTE
        else rates["f64" if element == "f64" else "f32"]
    )
    return hardware.launch + max(
        kind.flops / shards / rate, traffic(kind, placement) / hardware.memory_bandwidth
    )


def least_time(hardware: Hardware, kind: Kind, devices: int) -> float:
    """What an op takes at least, whatever its placement: work and tensors in as many pieces as there are devices."""
    whole = Placement(
        tuple(Layout.replicated(len(shape)) for shape, _ in kind.operand_tensors),
        tuple(Layout.replicated(len(shape)) for shape, _ in kind.result_tensors),
    )
    if kind.name in VIEWS or kind.name == "hlo.constant":
        return 0.0
    return hardware.launch + (op_time(hardware, kind, whole, 1) - hardware.launch) / devices


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
