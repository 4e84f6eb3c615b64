"""microbatch: run a training step as several small batches, one after another, that add up to the batch.

    func.func @main(%w {role = "parameter"}, %x: tensor<8x4xf32> {role = "input"}) {
      %h = hlo.dot_general %x, %w ...        // 8 rows
      %g = hlo.dot_general %h, %x ...        // a gradient: sums over the batch
      %n = hlo.sub %w, %g
becomes, with count=2,
      %x0 = ... %x ...                       // 4 rows: 0, 2, 4, 6
      %h0 = hlo.dot_general %x0, %w ...
      %g0 = hlo.dot_general %h0, %x0 ...
      %x1 = ... %x ...                       // 1, 3, 5, 7
      %h1 = hlo.dot_general %x1, %w ...
      %g1 = hlo.dot_general %h1, %x1 ...
      %g = hlo.add %g0, %g1
      %n = hlo.sub %w, %g                    // the optimizer: once

A micro-batch is run forward and backward before the next one begins, so that what is kept between forward and backward
is that of one micro-batch. Micro-batches are devices that take their turns (`rhino.passes.micro_split`): every op is
cut by its own `localize`, and means what it does when `spmd` cuts it over as many devices; random numbers are those of
the whole batch. Only the order of the sums over the batch differs, and their type: terms narrower than f32 (gradients
in bf16) are added in f32, and the sum is rounded once, where it is not wanted in f32 anyway. With `accumulate_in=same`
terms are added in the type that they have, unless the program itself widens them; that takes half the memory for the
sums, and half the bytes where devices add them up, but loses small terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import LocationAttr, ModuleOp, StringAttr, UnknownLoc
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp, Localizer
from rhino.dialects.hlo.digits import places
from rhino.dialects.hlo.elementwise import ConvertOp
from rhino.dialects.hlo.shape import BroadcastInDimOp, ReshapeOp, SliceOp, TransposeOp
from rhino.ir import types
from rhino.ir.collector import collector_paused
from rhino.ir.errors import UsageError
from rhino.ir.layout import Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.rule import Placement
from rhino.ir.verify import check_global, op_error
from rhino.passes.dce import eliminate_dead_ops
from rhino.passes.inline_composites import TAG
from rhino.passes.micro_split import AFTER, BEFORE, INSIDE, REMEDY, Decided, decide

#: Ops that move nothing.
VIEWS = (ReshapeOp, TransposeOp, BroadcastInDimOp, SliceOp)

#: Attribute of the ops of a micro-batch: ``"2.57"`` is the op with number 57 in micro-batch 2.
MICRO = "rhino.micro"

#: In which type terms narrower than f32 are added: in f32, or in the one that they have.
WIDE, SAME = "f32", "same"

#: Attribute of a module whose micro-batches were not added up in f32.
ACCUMULATE_IN = "rhino.accumulate_in"


@dataclass(frozen=True)
class MicrobatchPass(ModulePass):
    """Options: ``count``, how many micro-batches; ``batch`` (``tokens:0``), a dimension of an input that holds the
    batch, if it is not the one that most inputs share; ``accumulate_in``, ``f32`` or ``same``.

    Raises UsageError when `count` does not divide the batch, ProgramError that names the op which must see the whole
    batch at once.
    """

    name = "microbatch"
    count: int
    batch: str | None = None
    accumulate_in: str = WIDE

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        microbatch(op, self.count, self.batch, accumulate_in=self.accumulate_in)


@collector_paused()
def microbatch(module: ModuleOp, count: int, batch: str | None = None, *, accumulate_in: str = WIDE) -> None:
    """Split `@main` of the global stage, composites inlined, into `count` micro-batches, in place.

    Args:
        accumulate_in: the type of sums of terms narrower than f32: ``f32``, or ``same`` for that of the terms.

    Raises UsageError when `count` is below 1 or does not divide the batch or there is no such `accumulate_in`,
    ProgramError when an op must see the whole batch at once.
    """
    check_accumulate_in(accumulate_in)
    if count < 1:
        raise UsageError(f"{count} micro-batches", remedy="give 1 or more")
    if count == 1:
        return
    check_global(module)
    func = signature.main_of(module)
    _Unroll(func, decide(func, count, batch), accumulate_in == WIDE).run()
    eliminate_dead_ops(module)
    if accumulate_in != WIDE:
        module.attributes[ACCUMULATE_IN] = StringAttr(accumulate_in)


def check_accumulate_in(text: str) -> None:
    """Raises UsageError for a type of sums that there is not."""
    if text not in (WIDE, SAME):
        raise UsageError(f"micro-batches cannot be added up in '{text}'", remedy=f"give {WIDE} or {SAME}")


def accumulated_in(module: ModuleOp) -> str:
    """The option `accumulate_in` with which a module was split; the default for one that was not."""
    found = module.attributes.get(ACCUMULATE_IN)
    return found.data if isinstance(found, StringAttr) else WIDE


def micro_number(op: Operation) -> tuple[int, str] | None:
    """The micro-batch of an op, and its number there, which is the same in all of them; None outside."""
    found = op.attributes.get(MICRO)
    if not isinstance(found, StringAttr):
        return None
    index, _, number = found.data.partition(".")
    return int(index), number


class _MicroBuilder(Builder):
    """Builds the ops of one micro-batch, whose coordinate is a number, and its part of a value a slice."""

    def __init__(self, point: InsertPoint, mesh: Mesh) -> None:
        super().__init__(point)
        self.mesh = mesh
        self.index = 0

    def axis_index(self, axes: Sequence[AxisRef], mesh: Mesh | None = None) -> SSAValue:
        return self.constant(self.mesh.coordinate(self.index, axes), types.tensor((), types.I64))

    def shard(self, x: SSAValue, layout: Layout, mesh: Mesh) -> SSAValue:
        """The micro-batch's part of a whole value."""
        for dim, digits in enumerate(layout.dims):
            for axes, size, period in places(digits):
                shape = types.shape_of(x)
                chunk, at = period // size, self.mesh.coordinate(self.index, axes)
                outer = shape[dim] // period
                if outer > 1:
                    x = self.reshape(x, (*shape[:dim], outer, period, *shape[dim + 1 :]))
                d, now = (dim + (outer > 1)), types.shape_of(x)
                low = [at * chunk if i == d else 0 for i in range(len(now))]
                high = [(at + 1) * chunk if i == d else n for i, n in enumerate(now)]
                x = self.slice(x, low, high)
                if outer > 1:
                    x = self.reshape(x, (*shape[:dim], outer * chunk, *shape[dim + 1 :]))
        return x

    def join(self, parts: Sequence[SSAValue], layout: Layout) -> SSAValue:
        """The whole value of the parts of all micro-batches."""
        (dim, digits) = next((d, digits) for d, digits in enumerate(layout.dims) if digits)
        (_, size, period) = places(digits)[0]
        shape = types.shape_of(parts[0])
        chunk = period // size
        outer = shape[dim] // chunk
        if outer == 1:
            return self.concatenate(parts, dim)
        apart = [self.reshape(x, (*shape[:dim], outer, chunk, *shape[dim + 1 :])) for x in parts]
        whole = self.concatenate(apart, dim + 1)
        return self.reshape(whole, (*shape[:dim], outer * period, *shape[dim + 1 :]))

    def combine(self, x: SSAValue, y: SSAValue, kind: str) -> SSAValue:
        """One reduction step."""
        step = {
            "sum": self.add,
            "prod": self.mul,
            "max": self.maximum,
            "min": self.minimum,
            "and": self.and_,
            "or": self.or_,
        }[kind]
        return step(x, y)


class _Unroll:
    """One rewrite: all ops are made anew behind the old ones, which go away at the end."""

    def __init__(self, func: FuncOp, decided: Decided, widen: bool) -> None:
        self.func = func
        self.decided = decided
        self.widen = widen
        self.mesh = decided.mesh
        self.returned = signature.return_of(func)
        self.ops = [op for op in func.body.block.ops if op is not self.returned]
        self.order = {op: i for i, op in enumerate(self.ops)}
        self.builder = _MicroBuilder(InsertPoint.before(self.returned), decided.mesh)
        #: Values as the whole program has them.
        self.whole: dict[SSAValue, SSAValue] = {arg: arg for arg in func.args}
        #: Parts of values in the micro-batch that is built, and of split values in all of them.
        self.parts: dict[tuple[SSAValue, Layout], SSAValue] = {}
        self.pieces: dict[SSAValue, list[SSAValue]] = {}
        self.sums: dict[SSAValue, SSAValue] = {}
        #: Of values that are narrow, their sums in f32.
        self.wide: dict[SSAValue, SSAValue] = {}
        self.serial = 0

    def run(self) -> None:
        ends = set(self.returned.operands)
        for index in range(self.mesh.size):
            self.builder.index, self.serial, self.parts = index, 0, {}
            for op in self.ops:
                if self.decided.when[op] == INSIDE:
                    self._inside(op, ends)
        for value, total in self.sums.items():
            self.whole[value] = total if total.type == value.type else self._rounded(value, total)
        for value, pieces in self.pieces.items():
            with self.builder.at(_location(value)):
                self.whole[value] = self.builder.join(pieces, self.decided.layouts[value])
        for op in self.ops:
            if self.decided.when[op] == AFTER:
                self._once(op)
        self.returned.operands = [self._whole(v) for v in self.returned.operands]
        for op in reversed(self.ops):
            op.detach()
            op.erase()

    def _inside(self, op: Operation, ends: set[SSAValue]) -> None:
        """One op in the micro-batch that is built, and the sums that it adds to."""
        assert isinstance(op, HloOp)
        placement = self.decided.placements[op]
        results = self._local(op, placement)
        serial = self.serial
        for i, (result, value, layout) in enumerate(zip(op.results, results, placement.results, strict=True)):
            self.parts[result, layout] = value
            if layout.is_replicated:  # a loop's count, say: the same in all micro-batches
                self.whole.setdefault(result, value)
            elif result in self.decided.combined:
                kind = layout.partial[0][1]
                if self.widen and kind == "sum" and _narrow(value):
                    last = self._last()
                    with self.builder.at(op.location):
                        value = self.builder.convert(value, types.F32)
                    self._mark(last, f"{serial}.wide{i}", {})
                if result in self.sums:
                    last = self._last()
                    with self.builder.at(op.location):
                        value = self.builder.combine(self.sums[result], value, kind)
                    self._mark(last, f"{serial}.sum{i}", {})
                    if value.type == result.type:
                        value.name_hint = result.name_hint
                self.sums[result] = value
            elif result in ends and result not in self.decided.data:
                self.pieces.setdefault(result, []).append(value)

    def _rounded(self, value: SSAValue, total: SSAValue) -> SSAValue:
        """A sum in f32 as the program has it."""
        self.wide[value] = total
        with self.builder.at(_location(value)):
            rounded = self.builder.convert(total, types.element_of(value))
        rounded.name_hint = value.name_hint
        return rounded

    def _local(self, op: HloOp, placement: Placement) -> Sequence[SSAValue]:
        """The op on the micro-batch's parts."""
        operands = [self._part(v, at) for v, at in zip(op.operands, placement.operands, strict=True)]
        last = self._last()
        with self.builder.at(op.location):
            outs = op.localize(
                Localizer(
                    self.builder,
                    self.mesh,
                    placement.operands,
                    placement.results,
                    tuple(_local_type(v, at) for v, at in zip(op.results, placement.results, strict=True)),
                ),
                operands,
            )
        self.serial += 1
        self._mark(last, str(self.serial), op.attributes)
        for result, out in zip(op.results, outs, strict=True):
            if out.name_hint is None:
                out.name_hint = result.name_hint
        return outs

    def _last(self) -> Operation:
        """The op that was built last."""
        last = self.returned.prev_op
        assert last is not None
        return last

    def _mark(self, last: Operation, serial: str, attributes: dict[str, Attribute]) -> None:
        """Number the ops behind `last` and give them the attributes of the op that they stand for."""
        op = last.next_op
        own = dict(attributes)
        tag = own.get(TAG)
        if isinstance(tag, StringAttr) and self.builder.index:
            own[TAG] = StringAttr(f"{tag.data}.{self.builder.index}")
        number = 0
        while op is not None and op is not self.returned:
            if not isinstance(op, HloOp):
                raise op_error(op, "micro-batches would have to talk to each other", REMEDY)
            op.attributes.update(own if op.operands else {k: a for k, a in own.items() if k != TAG})
            op.attributes[MICRO] = StringAttr(
                f"{self.builder.index}.{serial}" + (f"-{number}" if number else "")
            )
            number += 1
            op = op.next_op

    def _part(self, value: SSAValue, layout: Layout) -> SSAValue:
        """The micro-batch's part of a value; the value itself where the layout leaves it whole."""
        if (value, layout) in self.parts:
            return self.parts[value, layout]
        if layout.is_replicated:
            self.parts[value, layout] = self._view(value)
            return self.parts[value, layout]
        part = self._made_small(value, layout)
        if part is None:
            whole, last = self._whole(value), self._last()
            with self.builder.at(_location(value)):
                part = self.builder.shard(whole, layout, self.mesh)
            self.serial += 1
            self._mark(last, str(self.serial), {})
        self.parts[value, layout] = part
        return part

    def _view(self, value: SSAValue) -> SSAValue:
        """A whole value. Views are made anew: through one that lasts, what it is a view of would be held from the first
        micro-batch to the last.
        """
        op = value.owner
        if not isinstance(op, VIEWS) or self.decided.when[op] != BEFORE:
            return self._whole(value)
        operand = op.operands[0]
        source = self._part(operand, Layout.replicated(len(types.shape_of(operand))))
        last = self._last()
        clone = self._insert_clone(op, [source])
        self.serial += 1
        self._mark(last, str(self.serial), op.attributes)
        return clone.results[0]

    def _made_small(self, value: SSAValue, layout: Layout) -> SSAValue | None:
        """A part of a value that is whole, made from parts of what it is made from; None where it must be sliced."""
        op = value.owner
        if not isinstance(op, HloOp) or len(op.results) != 1:
            return None
        operands = op.rule().backward([layout])
        if isinstance(operands, str) or op.rule().admits(operands, [layout]) is not None:
            return None
        return self._local(op, Placement(operands, (layout,)))[0]

    def _whole(self, value: SSAValue) -> SSAValue:
        """A value of the whole program; what it is made from is made first, in program order."""
        if value not in self.whole:
            wanted: set[Operation] = set()
            todo = [value]
            while todo:
                at = todo.pop()
                if at not in self.whole and isinstance(at.owner, Operation) and at.owner not in wanted:
                    wanted.add(at.owner)
                    todo += at.owner.operands
            for op in sorted(wanted, key=self.order.__getitem__):
                self._once(op)
        return self.whole[value]

    def _once(self, op: Operation) -> None:
        if isinstance(op, ConvertOp) and op.x in self.wide and self.wide[op.x].type == op.result.type:
            self.whole[op.result] = self.wide[op.x]  # a user that widens it gets it before it is rounded
            return
        clone = self._insert_clone(op, [self._whole(v) for v in op.operands])
        self.whole.update(zip(op.results, clone.results, strict=True))

    def _insert_clone(self, op: Operation, operands: Sequence[SSAValue]) -> Operation:
        clone = op.clone(dict(zip(op.operands, operands, strict=True)))
        clone.location = op.location
        self.builder.insert(clone)
        for old, new in zip(op.results, clone.results, strict=True):
            new.name_hint = old.name_hint
        return clone


def _narrow(value: SSAValue) -> bool:
    element = types.element_of(value)
    return types.is_float(element) and types.itemsize(element) < types.itemsize(types.F32)


def _local_type(value: SSAValue, layout: Layout) -> types.Type:
    type = types.type_of(value)
    return types.tensor(layout.local_shape(types.shape_of(value)), type.element_type)


def _location(value: SSAValue) -> LocationAttr:
    return value.owner.location if isinstance(value.owner, Operation) else UnknownLoc()


__all__ = [
    "MICRO",
    "SAME",
    "WIDE",
    "MicrobatchPass",
    "accumulated_in",
    "check_accumulate_in",
    "micro_number",
    "microbatch",
]
