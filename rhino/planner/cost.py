"""Time of one op on one device's shards (seconds): a roofline over arithmetic and memory traffic, plus a launch.

    time = launch + max(flops / shards / rate, bytes / bandwidth)

`rate` is the device's matmul rate for the element type, or its f32 rate for ops that are no matmul; bytes are the
local operands read and the local results written once. Views move nothing; lookups move what they look up.
"""

from __future__ import annotations

import math

from rhino.ir import types
from rhino.ir.layout import Layout
from rhino.ir.rule import Placement
from rhino.planner.candidates import COMPUTE
from rhino.planner.cluster import Hardware
from rhino.planner.graph import MAKERS, Kind

#: Ops that only say how memory is read; torch makes them views.
VIEWS = frozenset({"hlo.reshape", "hlo.transpose", "hlo.broadcast_in_dim", "hlo.slice"})

#: Ops that read of operand 0 no more than they return.
LOOKUPS = frozenset({"hlo.gather", "hlo.dynamic_slice"})


def op_time(hardware: Hardware, kind: Kind, placement: Placement, shards: int) -> float:
    """Time of an op whose work is cut into `shards` equal pieces, under a placement."""
    if kind.name in VIEWS or kind.name == "hlo.constant":
        return 0.0
    element = types.element_name(kind.results[0].element_type)
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
        tuple(Layout.replicated(len(t.get_shape())) for t in kind.operands),
        tuple(Layout.replicated(len(t.get_shape())) for t in kind.results),
    )
    if kind.name in VIEWS or kind.name == "hlo.constant":
        return 0.0
    return hardware.launch + (op_time(hardware, kind, whole, 1) - hardware.launch) / devices


def traffic(kind: Kind, placement: Placement) -> float:
    """Bytes that an op reads and writes in one device's memory."""
    if kind.name in VIEWS:
        return 0.0
    written = sum(local_bytes(t, layout) for t, layout in zip(kind.results, placement.results, strict=True))
    read = [local_bytes(t, layout) for t, layout in zip(kind.operands, placement.operands, strict=True)]
    if kind.name in LOOKUPS:
        read[0] = written
    return written + sum(read)


def local_bytes(type: types.Type, layout: Layout) -> float:
    """Bytes of a tensor on one device."""
    return types.itemsize(type.element_type) * math.prod(layout.local_shape(type.get_shape()))


def shards_of(placement: Placement) -> int:
    """Number of pieces that an op's work is cut into under a placement."""
    atoms = {
        digit.axis
        for layout in (*placement.operands, *placement.results)
        for digits in layout.dims
        for digit in digits
    }
    return math.prod(atom.size for atom in atoms)


def makes_nothing(kind: Kind) -> bool:
    """Whether an op's result takes no memory of its own: a view of its operand."""
    return kind.name in VIEWS


__all__ = ["LOOKUPS", "MAKERS", "VIEWS", "local_bytes", "makes_nothing", "op_time", "shards_of", "traffic"]
