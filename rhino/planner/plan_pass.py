"""plan: decide all layouts of a global module for a cluster, and write them in.

    rhino-opt step.mlir -p 'plan{cluster=8xH100},spmd,fuse-collectives'

The layers of the package point downward, so it stands here and not among `rhino.passes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from rhino.ir.mesh import Mesh
from rhino.planner.cluster import Cluster
from rhino.planner.micro import parse_count
from rhino.planner.plan import plan


@dataclass(frozen=True)
class PlanPass(ModulePass):
    """Options: `cluster` (``2x8xH100``, or a number of local processes), `mesh` (searched if left out), `template`
    (``dp``, ``zero3``, ``megatron``, ``fsdp_tp``; a search if left out), `memory` (bytes per device, 90 % of the
    device's if left out), `pad` (whether extents may be padded), `micro_batches` (a number, or ``auto``),
    `accumulate_in` (``f32`` or ``same``; see `microbatch`).

    Raises what `rhino.planner.plan` raises.
    """

    name = "plan"
    cluster: str = "4"
    mesh: str | None = None
    template: str | None = None
    memory: float | None = None
    pad: bool = True
    micro_batches: str = "1"
    accumulate_in: str = "f32"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        found = plan(
            op,
            Cluster.parse(self.cluster),
            mesh=None if self.mesh is None else Mesh.parse(self.mesh),
            template=self.template,
            memory_limit=self.memory,
            pad=self.pad,
            micro_batches=parse_count(self.micro_batches),
            accumulate_in=self.accumulate_in,
        )
        placed = found.module
        op.attributes.update(placed.attributes)
        op.detach_region(op.body).drop_all_references()
        op.add_region(placed.detach_region(placed.body))
