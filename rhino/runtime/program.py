"""The boundary of a program that ranks run: what its arguments and results are, where they lie, how they
compile.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp

from rhino.dialects import signature
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import GLOBAL_TYPE, LAYOUT
from rhino.dialects.dist.local import LocalOp
from rhino.dialects.dist.mesh import mesh_op_of
from rhino.dialects.signature import Slot
from rhino.ir import types
from rhino.ir.layout import Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.runtime.collectives import Communicator
from rhino.runtime.executor import Executable, compile_function
from rhino.runtime.tensors import torch_dtype
from rhino.runtime.torch_ops import Context
from rhino.runtime.world import World


@dataclass(frozen=True)
class Port:
    """One argument or result of the program that a rank runs.

    Attributes:
        slot: its name and role.
        shape: the global shape, padding included.
        layout: where the pieces lie; replicated in a program for one device.
        dtype: element type.
    """

    slot: Slot
    shape: tuple[int, ...]
    layout: Layout
    dtype: torch.dtype

    @property
    def true_shape(self) -> tuple[int, ...]:
        """The global shape that users see."""
        return self.slot.extent or self.shape

    @property
    def local_shape(self) -> tuple[int, ...]:
        return self.layout.local_shape(self.shape)


@dataclass(frozen=True)
class RankProgram:
    """A compiled program of one rank.

    Attributes:
        mesh: all devices; a mesh without axes for a program of one device.
        arguments, results: its boundary.
        executable: local arrays in, local arrays out.
        communicator: the process groups that it uses.
    """

    mesh: Mesh
    arguments: tuple[Port, ...]
    results: tuple[Port, ...]
    executable: Executable
    communicator: Communicator


def compile_module(module: ModuleOp, world: World) -> RankProgram:
    """Compile `@main` of a local module, or of a global one when there is one rank only.

    All ranks must call it with the same module: the process groups are created here. Raises RunError when
    mesh and number of ranks differ, UnsupportedError when torch has no lowering for an op.
    """
    func = signature.main_of(module)
    mesh_op = mesh_op_of(module)
    mesh = mesh_op.mesh if mesh_op is not None else Mesh(())
    world.check(mesh)
    communicator = Communicator(mesh, world.rank, world.device, world.timeout, handles=world.handles)
    communicator.open(_axes_used(func, mesh))
    executable = compile_function(func, Context(world.device, communicator))
    outputs = signature.return_of(func).operands
    return RankProgram(
        mesh,
        tuple(
            _port(s, types.type_of(v), mesh)
            for s, v in zip(signature.arguments(func), func.args, strict=True)
        ),
        tuple(
            _port(s, types.type_of(v), mesh) for s, v in zip(signature.results(func), outputs, strict=True)
        ),
        executable,
        communicator,
    )


def _axes_used(func: FuncOp, mesh: Mesh) -> list[tuple[AxisRef, ...]]:
    """The axes of every collective, in program order: the same on every rank."""
    found = [op.axes(mesh) for op in func.body.block.ops if isinstance(op, LocalOp)]
    return list(dict.fromkeys(found))


def _port(slot: Slot, local: types.Type, mesh: Mesh) -> Port:
    known = dict(slot.other)
    whole, layout = known.get(GLOBAL_TYPE, local), known.get(LAYOUT)
    assert isinstance(whole, TensorType)
    shape = tuple(whole.get_shape())
    placed = layout.resolve(shape, mesh) if isinstance(layout, LayoutAttr) else Layout.replicated(len(shape))
    return Port(slot, shape, placed, torch_dtype(whole.element_type))
