"""The meshes that a search tries."""

from __future__ import annotations

from collections.abc import Iterator

from rhino.ir.mesh import Mesh
from rhino.planner.cluster import Cluster
from rhino.planner.templates import TENSOR_TEMPLATES


def meshes(cluster: Cluster, axes: int) -> list[Mesh]:
    """All meshes of the cluster with exactly `axes` axes of size 2 or more, named x, y, z.

    Inside one node the order of the axes does not matter, so only ascending sizes are listed there.
    """
    if cluster.size == 1:
        return [Mesh((("x", 1),))] if axes == 1 else []
    out = []
    for sizes in _factorisations(cluster.size, axes):
        if cluster.nodes > 1 or list(sizes) == sorted(sizes):
            out.append(Mesh(tuple(zip("xyz", sizes, strict=False))))
    return out


def _factorisations(n: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        if n > 1:
            yield (n,)
        return
    for first in range(2, n):
        if n % first == 0:
            for rest in _factorisations(n // first, parts - 1):
                yield (first, *rest)


def merged(mesh: Mesh) -> list[Mesh]:
    """The meshes in which two neighbouring axes of a mesh are one."""
    axes = mesh.axes
    return [
        Mesh((*axes[:i], (axes[i][0], axes[i][1] * axes[i + 1][1]), *axes[i + 2 :]))
        for i in range(len(axes) - 1)
    ]


def template_meshes(name: str, cluster: Cluster) -> list[Mesh]:
    """Meshes on which a template is tried when the user gives none: every split into data and tensor parallelism for
    ``megatron``; for ``fsdp_tp`` the one with the most tensor parallelism inside a node.
    """
    devices = cluster.size
    if name not in TENSOR_TEMPLATES:
        return [Mesh((("dp", devices),))]
    most = devices if name == "megatron" else min(devices - 1, devices // cluster.nodes)
    splits = [t for t in range(2, most + 1) if devices % t == 0] or [devices]
    if name != "megatron":
        splits = splits[-1:]
    return [Mesh((("tp", t),) if t == devices else (("dp", devices // t), ("tp", t))) for t in splits]
