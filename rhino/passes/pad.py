"""pad: grow extents that a mesh does not divide, so that everything after it sees even shards.

    func.func @main(%w: tensor<257x8xf32> {role = "parameter"}, %h: tensor<4x8xf32>) {
      %y = hlo.dot_general %h, %w ... -> tensor<4x257xf32>     %m = hlo.reduce "max" %y dims [1]
becomes, with multiple=4,
    func.func @main(%w: tensor<260x8xf32> {role = "parameter", extent = [257, 8]}, %h: tensor<4x8xf32>) {
      %y = hlo.dot_general %h, %w ... -> tensor<4x260xf32>
      %in = hlo.compare "lt", %iota, %257 ...                  %z = hlo.select %in, %y, %minus_infinity
      %m = hlo.reduce "max" %z dims [1]

Dimensions that the sharding rules tie grow together (see `rhino.passes.extents`); where they end, at an output or at an
op that must see them whole, the value is cut to what it was. Parameters, buffers, inputs and optimizer states arrive
with zeros behind their true extents (``rhino.extent``) and leave so; whoever runs the program puts the zeros there and
takes them away. Padding of computed values may be anything and reaches no true value: wherever an op combines over a
grown dimension, a select puts the neutral element there, unless it is known to be there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.constant import splat_of
from rhino.dialects.hlo.shape import SliceOp
from rhino.ir import types
from rhino.ir.errors import UsageError
from rhino.ir.verify import check_global
from rhino.passes.extents import DimClass, OpFactors, classes_of
from rhino.passes.grow import Growth, combine, emit
from rhino.passes.padded import Held, Padded

#: Growth of an extent that costs next to nothing.
SLIGHT = 1 / 64

#: The most that a large extent may grow, as a share of it; a small one (up to SMALL) may nearly double.
LIMIT = 1 / 8
SMALL = 32


@dataclass(frozen=True)
class PadPass(ModulePass):
    """Options: ``multiple`` grows every extent of matrix products, convolutions and look-ups to a multiple of it, as
    far as `best_growth` allows; ``extents`` (``257:260,6:8``) says which extents grow to what instead. With
    ``zeros=false`` nothing is taken for granted of the padding of arguments.

    Raises UsageError when the options say nothing or cannot be read, ProgramError when the module is not of the global
    stage.
    """

    name = "pad"
    multiple: int | None = None
    extents: str | None = None
    zeros: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if (self.multiple is None) == (self.extents is None):
            raise UsageError(
                "pad needs multiple= or extents=", remedy='multiple=4, say, or extents="257:260"'
            )
        wanted = _read(self.extents) if self.extents is not None else {}

        def choose(each: DimClass) -> int | None:
            if self.multiple is not None:
                return best_growth(each.extent, (self.multiple,)) if each.heavy else None
            return wanted.get(each.extent)

        classes, _ = classes_of(signature.main_of(op))
        pad(
            op,
            {i: new for i, each in enumerate(classes) if (new := choose(each)) is not None},
            zeros=self.zeros,
        )


def _read(text: str) -> dict[int, int]:
    try:
        out = {int(a): int(b) for a, b in (pair.split(":") for pair in text.split(","))}
    except ValueError:
        raise UsageError(f"cannot read extents '{text}'", remedy='write them like "257:260,6:8"') from None
    for old, new in out.items():
        if not 1 < old < new:
            raise UsageError(
                f"extent {old} cannot grow to {new}", remedy="give an extent above 1 and a greater one"
            )
    return out


def best_growth(extent: int, multiples: Sequence[int]) -> int | None:
    """The extent grown to a multiple of the greatest of `multiples` that is worth it; None when none is needed or none
    is worth it.

    Worth it is at most an eighth more, or less than twice as much of a small extent (up to 32).
    """
    for multiple in sorted(multiples, reverse=True):
        new = -(-extent // multiple) * multiple
        if new - extent <= LIMIT * extent or (extent <= SMALL and new < 2 * extent):
            return new if new > extent else None
    return None


def pad(module: ModuleOp, growth: Mapping[int, int], *, zeros: bool = True) -> None:
    """Grow classes of dimensions of `@main`, in place.

    Args:
        growth: index of a class in `classes_of` -> its new extent.
        zeros: whether arguments may be taken to arrive with zeros behind their extents.

    Raises ProgramError when the module is not of the global stage.
    """
    check_global(module)
    func = signature.main_of(module)
    classes, factors = classes_of(func)
    if growth:
        _Pad(func, classes, factors, growth, zeros).run()


class _Pad:
    """One rewrite, front to back: a new op for each that grows; the others stay and get their operands as they were."""

    def __init__(
        self,
        func: FuncOp,
        classes: Sequence[DimClass],
        factors: Mapping[Operation, OpFactors],
        growth: Mapping[int, int],
        zeros: bool,
    ) -> None:
        self.func = func
        self.classes = classes
        self.factors = factors
        self.growth = growth
        self.zeros = zeros
        self.padded = Padded(Builder(InsertPoint.at_start(func.body.block)))
        self.held: dict[SSAValue, Held] = {}
        self.old = tuple(func.body.block.args)
        self.grown = {
            (value, d): types.shape_of(value)[d] // classes[i].extent * new
            for i, new in growth.items()
            for value, d in classes[i].members
        }

    def run(self) -> None:
        block = self.func.body.block
        returned = signature.return_of(self.func)
        ops = [op for op in block.ops if op is not returned]
        old = self._arguments()
        dead = [op for op in ops if self._op(op)]
        self._results(returned)
        for op in reversed(dead):
            op.detach()
            op.erase()
        for arg in old:
            block.erase_arg(arg)
        outputs = [v.type for v in returned.operands]
        self.func.function_type = FunctionType.from_lists([a.type for a in block.args], outputs)

    def _arguments(self) -> list[BlockArgument]:
        """Larger arguments beside those that grow; returns these."""
        block, slots = self.func.body.block, signature.arguments(self.func)
        old: list[BlockArgument] = []
        for i, arg in enumerate(self.old):
            true = types.shape_of(arg)
            shape = tuple(self.grown.get((arg, d), n) for d, n in enumerate(true))
            self.held[arg] = Held(arg, true)
            if shape == true:
                continue
            element = types.element_of(arg)
            new = block.insert_arg(types.tensor(shape, element), arg.index)
            new.name_hint = arg.name_hint
            zero = types.numpy_dtype(element).type(0)
            dims = [d for d in range(len(true)) if shape[d] > true[d]] if self.zeros else []
            self.held[arg] = Held(new, true, None, dict.fromkeys(dims, zero))
            slots[i] = replace(slots[i], extent=slots[i].extent or true)
            old.append(arg)
        if old:
            signature.set_arguments(self.func, slots)
        return old

    def _op(self, op: Operation) -> bool:
        """Rewrite one op; whether it is dead now."""
        self.padded.builder.point = InsertPoint.before(op)
        self.padded.builder.location = op.location
        found = self.factors.get(op)
        operands = [self.held[v] for v in op.operands]
        if found is None:
            self._keep(op, [self.padded.fit(held, held.true) for held in operands])
            return False
        assert isinstance(op, HloOp)
        sizes = {
            factor: found.rule.sizes[factor] // self.classes[i].extent * self.growth[i]
            for factor, i in found.classes.items()
            if i in self.growth
        }
        growth = Growth(op, found.rule, sizes)
        wanted = [growth.wanted(i) for i in range(len(operands))]
        if isinstance(op, SliceOp):
            # It takes what it takes from the front; what lies behind may as well be there.
            wanted = [tuple(map(max, wanted[0], operands[0].shape))]
        fitted = [self.padded.fit(held, shape) for held, shape in zip(operands, wanted, strict=True)]
        if not sizes:
            self._keep(op, fitted, combine(growth, fitted, None))
            return False
        new, results = emit(growth, fitted, self.padded)
        new.attributes.update(op.attributes)
        for result, held in zip(op.results, results, strict=True):
            held.value.name_hint = result.name_hint
            self.held[result] = held
        return True

    def _keep(self, op: Operation, operands: Sequence[Held], uniform: np.generic | None = None) -> None:
        values = [held.value for held in operands]
        if any(a is not b for a, b in zip(values, op.operands, strict=True)):
            op.operands = values
        for result in op.results:
            if (constant := splat_of(result)) is not None:
                uniform = types.numpy_dtype(types.element_of(result)).type(constant)
            self.held[result] = Held(result, types.shape_of(result), uniform)

    def _results(self, returned: ReturnOp) -> None:
        """Outputs are cut to what they were; what replaces an argument keeps its shape and gets its zeros back."""
        self.padded.builder.point = InsertPoint.before(returned)
        self.padded.builder.location = returned.location
        arguments, slots, values = signature.arguments(self.func), signature.results(self.func), []
        for i, (slot, value) in enumerate(zip(tuple(slots), returned.operands, strict=True)):
            held = self.held[value]
            shape = held.true
            if slot.alias is not None:
                shape = self.held[self.old[slot.alias]].shape
                slots[i] = replace(slot, extent=arguments[slot.alias].extent)
            held = self.padded.fit(held, shape)
            if slot.alias is not None and self.zeros:
                held = self.padded.mask(held, held.grown, "sum")
            values.append(held.value)
        returned.operands = values
        signature.set_results(self.func, slots)
