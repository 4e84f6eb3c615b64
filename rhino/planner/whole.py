"""Ops that a mesh cannot divide: every device does all of their work, whatever the plan."""

from __future__ import annotations

from collections.abc import Sequence

from rhino.ir.mesh import Mesh
from rhino.ir.text import show_location
from rhino.planner.candidates import Cut, Options, choices_for
from rhino.planner.cluster import Hardware
from rhino.planner.cost import least_time
from rhino.planner.graph import Graph, Node


def undivided(graph: Graph, options: Options, mesh: Mesh, hardware: Hardware) -> list[str]:
    """Names every op that no axis of the mesh can divide, in program order, with its shapes and where it came from.

    Ops whose work takes less time than launching them are left out: to divide them would save nothing.
    """
    axes = [mesh.axis(name) for name, size in mesh.axes if size > 1]
    if not axes:
        return []
    found = []
    for node, choices in zip(graph.nodes, options.nodes, strict=True):
        divided = any(isinstance(choice, Cut) for axis in axes for choice in choices_for(choices, axis))
        if node.free or divided or least_time(hardware, node.kind, 1) <= 2 * hardware.launch:
            continue
        found.append(_sentence(node, mesh))
    return found


def _sentence(node: Node, mesh: Mesh) -> str:
    where = show_location(node.op.location)
    shapes = ", ".join(_shape(t.get_shape()) for t in (*node.kind.operands, *node.kind.results))
    place = f"{where}: " if where else ""
    return f"{place}{node.kind.name} ({shapes}) runs whole on every device: no dimension of it divides over {mesh}"


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
