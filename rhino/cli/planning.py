"""From what the command line says of cluster, mesh and plan to the program that every rank runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.text import load_module
from rhino.ir.collector import collector_paused
from rhino.ir.errors import MeshError, UsageError
from rhino.ir.mesh import Mesh
from rhino.passes.microbatch import WIDE, check_accumulate_in
from rhino.planner.cluster import Cluster
from rhino.planner.effort import Effort
from rhino.planner.micro import AUTO, parse_count
from rhino.planner.pins import Constraints

if TYPE_CHECKING:
    from rhino.planner import Plan

#: Devices when nothing says how many.
DEFAULT_DEVICES = 4

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?\s*\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Request:
    """What the user asked for; None where nothing was said.

    Attributes:
        cluster: ``2x8xH100``, say.
        nproc: local processes.
        mesh: ``dp=2,tp=2``, say.
        plan: ``auto``, the name of a template, or a file of a plan.
        memory_limit: bytes per device, ``80GB``, say.
        pins, forbid: what the plan must keep to; see `rhino.planner.pins`.
        objective: ``time`` or ``memory``.
        level, folded, mesh_axes: how thoroughly to search; see `rhino.planner.effort`.
        pad: whether extents that the mesh does not divide may be padded; see `rhino.planner.uneven`.
        micro_batches: a number, or ``auto``; see `rhino.planner.micro`.
        accumulate_in: the type of their sums; see `rhino.passes.microbatch`.
    """

    cluster: str | None = None
    nproc: int | None = None
    mesh: str | None = None
    plan: str = "auto"
    memory_limit: str | None = None
    pins: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    objective: str = "time"
    level: str = "O2"
    folded: bool = True
    mesh_axes: int = 3
    pad: bool = True
    micro_batches: str = AUTO
    accumulate_in: str = WIDE

    @property
    def effort(self) -> Effort:
        """How thoroughly to search. Raises UsageError for a level or a number of axes that there is not."""
        return Effort(self.level, self.mesh_axes, self.folded)

    @property
    def file(self) -> str | None:
        """The plan's file, if the plan is one."""
        return self.plan if self.plan.endswith(".mlir") else None

    @property
    def template(self) -> str | None:
        """The template's name; None for a file and for a search."""
        return None if self.plan == "auto" or self.file else self.plan

    def resolve(self) -> tuple[Cluster, Mesh | None]:
        """The cluster, and the mesh if it is fixed. Raises UsageError or MeshError when they do not fit
        together.
        """
        if self.cluster is not None and self.nproc is not None:
            raise UsageError("--cluster and --nproc say the same thing", remedy="give one of them")
        if self.nproc is not None and self.nproc < 1:
            raise UsageError(f"--nproc is {self.nproc}", remedy="give 1 or more")
        if self.file is not None and not Path(self.file).is_file():
            raise UsageError(
                f"no plan file '{self.file}'", remedy="write one with `rhino plan PROGRAM -o FILE.mlir`"
            )
        if self.file is not None and (self.pins or self.forbid or self.objective != "time"):
            raise UsageError(
                "a plan file is taken as it is", remedy="leave out --pin, --forbid and --objective, or --plan"
            )
        if self.file is not None and not self.pad:
            raise UsageError("a plan file is taken as it is", remedy="leave out --no-pad, or --plan")
        if self.file is not None and self.micro_batches != AUTO:
            raise UsageError("a plan file is taken as it is", remedy="leave out --micro-batches, or --plan")
        if self.file is not None and self.accumulate_in != WIDE:
            raise UsageError("a plan file is taken as it is", remedy="leave out --accumulate-in, or --plan")
        parse_count(self.micro_batches)
        check_accumulate_in(self.accumulate_in)
        Constraints.parse(self.pins, self.forbid)
        if self.effort != Effort() and self.file is not None:
            raise UsageError(
                "a plan file is taken as it is",
                remedy="leave out --level, --no-fold and --mesh-axes, or --plan",
            )
        mesh = Mesh.parse(self.mesh) if self.mesh is not None else None
        if self.file is not None:
            planned = mesh_of(load_module(self.file))
            if mesh is not None and mesh != planned:
                raise MeshError(
                    f"the plan {self.file} is for mesh {planned}, not for {mesh}", remedy="leave out --mesh"
                )
            mesh = planned
        if self.cluster is not None:
            cluster = Cluster.parse(self.cluster)
        else:
            devices = (
                self.nproc if self.nproc is not None else mesh.size if mesh is not None else DEFAULT_DEVICES
            )
            cluster = Cluster.parse(str(devices))
        if mesh is not None and mesh.size != cluster.size:
            raise MeshError(
                f"mesh {mesh} has {mesh.size} devices, but there are {cluster.size}",
                remedy=f"make the sizes multiply to {cluster.size}, or ask for {mesh.size} devices",
            )
        return cluster, mesh


def parse_size(text: str) -> int:
    """Bytes of ``80GB``, ``512MiB`` or a plain number. Raises UsageError."""
    match = _SIZE.match(text)
    if match is None:
        raise UsageError(f"cannot read the size '{text}'", remedy="write it like 80GB or 512MiB")
    power = "KMGT".find(match[2].upper()) + 1 if match[2] else 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def make_plan(step: ModuleOp, request: Request, progress: Callable[[str], None] | None = None) -> Plan:
    """Plan a training step as asked, or read the plan file. Raises PlanError when there is no such plan.

    `progress` is told what is being worked on.
    """
    from rhino.cli.compiling import compiling_told
    from rhino.planner import plan, read_plan

    cluster, mesh = request.resolve()
    limit = parse_size(request.memory_limit) if request.memory_limit is not None else None
    if request.file is not None:
        return read_plan(request.file, step, cluster)
    with compiling_told(progress) as tell:
        return plan(
            step,
            cluster,
            mesh=mesh,
            template=request.template,
            memory_limit=limit,
            pins=request.pins,
            forbid=request.forbid,
            objective=request.objective,
            pad=request.pad,
            effort=request.effort,
            micro_batches=parse_count(request.micro_batches),
            accumulate_in=request.accumulate_in,
            progress=tell,
        )


@collector_paused()
def local_program(placed: ModuleOp) -> ModuleOp:
    """The program that every rank runs, for a placed module, which is left as it was."""
    from rhino.passes.fuse_collectives import fuse_collectives
    from rhino.passes.spmd import spmd

    module = placed.clone()
    spmd(module)
    fuse_collectives(module)
    return module
