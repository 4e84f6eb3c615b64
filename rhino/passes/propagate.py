"""propagate: let the layouts that the user pinned spread over the whole program.

    func.func @main(%x {dist.layout = #dist.layout<[{"dp"}, {}]>}, %w) { %h = hlo.dot_general %x, %w ... }
becomes a placed module in which %h is split over "dp" as well and %w is replicated.

Pins are ``dist.layout`` attributes on arguments, results and ops. See `rhino.passes.follow` for how digits
travel.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from rhino.passes.follow import follow_pins
from rhino.passes.place import choose_mesh, place


@dataclass(frozen=True)
class PropagatePass(ModulePass):
    """Options: `mesh` (``dp=2,tp=4`` or ``2x4``), which may be left out when the module has one.

    Raises MeshError when there is no mesh or two different ones, LayoutError when a pin fits neither its
    value nor the mesh.
    """

    name = "propagate"
    mesh: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        mesh = choose_mesh(op, self.mesh)
        decided = follow_pins(op, mesh)
        place(op, mesh, decided.placements, decided.arguments, decided.results)
