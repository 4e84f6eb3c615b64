"""From a `kernel.region` to a KernelSpec: which values are loaded how, and what is computed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import BlockArgument, SSAValue

from rhino.dialects.hlo.base import HloOp, get_ints, get_text
from rhino.dialects.hlo.constant import ConstantOp, splat_of
from rhino.dialects.hlo.dot import DotGeneralOp
from rhino.dialects.hlo.reduce import ReduceOp
from rhino.dialects.hlo.shape import BroadcastInDimOp, ReshapeOp
from rhino.dialects.kernel import RegionOp
from rhino.ir import types
from rhino.ir.errors import RhinoError
from rhino.kernels.expressions import BINARY, COMPARE, COMPUTE, UNARY, literal
from rhino.kernels.region import Buffer, Compute, Dot, KernelSpec, Load, Reduce, Statement, Store, contiguous

Shape = tuple[int, ...]


def is_row_shape(shape: Shape, loop: Shape, cols: int) -> bool:
    """Whether a value of `shape` has one element per row of the loop (kept dims of extent 1 included)."""
    head = loop[: len(loop) - cols]
    return cols > 0 and shape in (head, head + (1,) * cols)


def loop_of(region: RegionOp) -> tuple[Shape, int]:
    """``(loop shape, number of column dims)`` of a region."""
    ops = [op for op in region.body.block.ops if isinstance(op, HloOp)]
    for op in ops:
        if isinstance(op, ReduceOp):
            return types.shape_of(op.operands[0]), len(get_ints(op.properties, "dims"))
        if isinstance(op, DotGeneralOp):
            return types.shape_of(op.results[0]), _free_dims(op)[1]
    return max((types.shape_of(r) for op in ops for r in op.results), key=lambda s: (math.prod(s), len(s))), 0


def read(region: RegionOp) -> KernelSpec:
    """Raises RhinoError when the region holds an op that no kernel can compute (`fuse` makes no such region)."""
    return _Reader(region).spec()


class _Reader:
    """Walks a region once; values of the region become variables of the kernel as they are first used."""

    def __init__(self, region: RegionOp) -> None:
        self.region = region
        self.loop, self.cols = loop_of(region)
        block = region.body.block
        self.buffers: dict[SSAValue, Buffer] = {
            arg: _buffer(f"in{i}", arg) for i, arg in enumerate(block.args)
        }
        self.names: dict[SSAValue, str] = {}
        self.statements: list[Statement] = []
        self.dot: Dot | None = None
        self.count = 0

    def spec(self) -> KernelSpec:
        for op in self.region.body.block.ops:
            if isinstance(op, HloOp):
                self.visit(op)
        outputs = []
        for i, value in enumerate(self.region.yielded.values):
            out = _buffer(f"out{i}", value)
            outputs.append(out)
            row = is_row_shape(out.shape, self.loop, self.cols) and out.shape != self.loop
            self.statements.append(Store(out, self.use(value), row))
        return KernelSpec(
            self.region.kind.data,
            self.loop,
            self.cols,
            (*self.buffers.values(), *outputs),
            tuple(self.statements),
            self.dot,
        )

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def use(self, value: SSAValue) -> str:
        """The variable (or literal) that holds `value`, loading it if it is an argument not yet read."""
        if value not in self.names:
            if isinstance(value, BlockArgument):
                self.names[value] = self.load(value, contiguous(types.shape_of(value)), types.shape_of(value))
            elif (splat := splat_of(value)) is not None:
                self.names[value] = literal(splat, types.element_name(types.element_of(value)))
            else:
                raise RhinoError(f"{value.owner} cannot be computed in a kernel")
        return self.names[value]

    def load(self, argument: SSAValue, strides: Sequence[int], shape: Shape) -> str:
        """Load an argument whose element for an index of `shape` lies at ``sum(strides * index)``."""
        name = self.fresh()
        row = shape != self.loop
        if row and not is_row_shape(shape, self.loop, self.cols):
            raise RhinoError(f"a kernel over {list(self.loop)} cannot load a value of shape {list(shape)}")
        rows = len(self.loop) - self.cols
        full = (*strides[:rows], *(0 for _ in range(self.cols))) if row else tuple(strides)
        self.statements.append(Load(name, self.buffers[argument], full, row))
        return name

    def visit(self, op: HloOp) -> None:
        result = op.results[0]
        if isinstance(op, ConstantOp):
            return  # read where it is used
        if isinstance(op, DotGeneralOp):
            self.visit_dot(op)
        elif isinstance(op, ReduceOp):
            name = self.fresh()
            self.statements.append(Reduce(name, get_text(op.properties, "kind"), self.use(op.operands[0])))
            self.names[result] = name
        elif isinstance(op, BroadcastInDimOp):
            self.names[result] = self.broadcast(op)
        elif isinstance(op, ReshapeOp):
            self.names[result] = self.use(op.operands[0])
        else:
            name = self.fresh()
            arguments = tuple(self.use(o) for o in op.operands)
            self.statements.append(Compute(name, expression(op), arguments))
            self.names[result] = name

    def broadcast(self, op: BroadcastInDimOp) -> str:
        (x,) = op.operands
        if (splat := splat_of(x)) is not None:
            return literal(splat, types.element_name(types.element_of(x)))
        if not isinstance(x, BlockArgument):
            return self.use(x)  # a row value, spread over its columns by Triton itself
        shape, source = types.shape_of(op.results[0]), types.shape_of(x)
        strides = [0] * len(shape)
        for at, extent, stride in zip(
            get_ints(op.properties, "dims"), source, contiguous(source), strict=True
        ):
            strides[at] = stride if extent == shape[at] else 0
        return self.load(x, strides, shape)

    def visit_dot(self, op: DotGeneralOp) -> None:
        lhs, rhs = op.operands
        (batch_l, batch_r), (deep_l, deep_r) = dot_dims(op)
        shape_l, shape_r = types.shape_of(lhs), types.shape_of(rhs)
        free_l = [d for d in range(len(shape_l)) if d not in (*batch_l, *deep_l)]
        free_r = [d for d in range(len(shape_r)) if d not in (*batch_r, *deep_r)]
        strides_l, strides_r = contiguous(shape_l), contiguous(shape_r)
        name = self.fresh()
        self.dot = Dot(
            name,
            self.buffers[lhs],
            self.buffers[rhs],
            tuple(shape_l[d] for d in batch_l),
            tuple(shape_l[d] for d in free_l),
            tuple(shape_r[d] for d in free_r),
            tuple(shape_l[d] for d in deep_l),
            tuple(strides_l[d] for d in (*batch_l, *free_l, *deep_l)),
            tuple(strides_r[d] for d in (*batch_r, *free_r, *deep_r)),
        )
        self.names[op.results[0]] = name


def dot_dims(op: DotGeneralOp) -> tuple[tuple[Shape, Shape], tuple[Shape, Shape]]:
    """``((lhs, rhs) batch dims, (lhs, rhs) contracted dims)``."""
    p = op.properties
    return (
        (get_ints(p, "lhs_batch"), get_ints(p, "rhs_batch")),
        (get_ints(p, "lhs_contract"), get_ints(p, "rhs_contract")),
    )


def _free_dims(op: DotGeneralOp) -> tuple[int, int]:
    (batch_l, batch_r), (deep_l, deep_r) = dot_dims(op)
    shapes = [types.shape_of(o) for o in op.operands]
    return len(shapes[0]) - len(batch_l) - len(deep_l), len(shapes[1]) - len(batch_r) - len(deep_r)


def expression(op: HloOp) -> str:
    """The Triton expression of an elementwise op. Raises RhinoError when there is none."""
    if op.name in UNARY:
        return UNARY[op.name]
    if op.name in BINARY:
        return BINARY[op.name]
    if op.name == "hlo.compare":
        return f"{{0}} {COMPARE[get_text(op.properties, 'direction')]} {{1}}"
    if op.name == "hlo.select":
        return "tl.where({0}, {1}, {2})"
    if op.name == "hlo.convert":
        # Rounding to a narrower float inside a kernel is kept: convert means it.
        narrow = {"f16": "tl.float16", "bf16": "tl.bfloat16"}
        element = types.element_name(types.element_of(op.results[0]))
        return (
            f"{{0}}.to({narrow[element]}).to(tl.float32)"
            if element in narrow
            else f"{{0}}.to({COMPUTE[element]})"
        )
    raise RhinoError(f"{op.name} has no Triton expression")


def _buffer(name: str, value: SSAValue) -> Buffer:
    return Buffer(name, types.shape_of(value), types.element_name(types.element_of(value)))
