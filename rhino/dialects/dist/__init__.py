"""The `dist` dialect: meshes, layouts, the reshard of placed programs and the collectives of local ones."""

from xdsl.ir import Dialect

from rhino.dialects.dist import collectives, halo, mesh, reshard
from rhino.dialects.dist.attributes import AxesAttr, LayoutAttr, MeshAttr
from rhino.dialects.dist.collectives import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    AxisIndexOp,
    PermuteOp,
    ReduceScatterOp,
    ShardOp,
)
from rhino.dialects.dist.halo import HaloOp
from rhino.dialects.dist.local import CollectiveOp, LocalOp
from rhino.dialects.dist.mesh import MeshOp, find_mesh, mesh_of
from rhino.dialects.dist.reshard import ReshardOp

Dist = Dialect("dist", [*mesh.OPS, *reshard.OPS, *collectives.OPS, *halo.OPS], [MeshAttr, LayoutAttr, AxesAttr])

__all__ = [
    "AllGatherOp",
    "AllReduceOp",
    "AllToAllOp",
    "AxesAttr",
    "AxisIndexOp",
    "CollectiveOp",
    "Dist",
    "HaloOp",
    "LayoutAttr",
    "LocalOp",
    "MeshAttr",
    "MeshOp",
    "PermuteOp",
    "ReduceScatterOp",
    "ReshardOp",
    "ShardOp",
    "find_mesh",
    "mesh_of",
]
