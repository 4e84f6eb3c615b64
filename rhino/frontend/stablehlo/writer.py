"""Modules of the global stage as StableHLO text that JAX and XLA run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

import numpy as np
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import LAYOUT
from rhino.dialects.dist.mesh import mesh_op_of
from rhino.dialects.hlo.composite import CompositeOp
from rhino.frontend.stablehlo.expand import expand
from rhino.ir import dense, types
from rhino.ir.errors import UnsupportedError, UsageError
from rhino.ir.evaluate import is_local
from rhino.ir.layout_text import LayoutSpec
from rhino.ir.text import show_location
from rhino.passes.inline_composites import inline_composites

Emit = Callable[["Writer", Operation], None]


def write_stablehlo(module: ModuleOp) -> str:
    """The module as StableHLO text; `module` itself is left as it is.

    Arguments that a result replaces are marked as donated (``tf.aliasing_output``), names become locations of
    arguments and ``jax.result_info``, layouts without strides ``sdy.sharding``. The text uses `chlo` only
    where JAX does too (erf, top_k).

    Raises UnsupportedError naming the op that StableHLO has no counterpart of, UsageError for a local module.
    """
    func = signature.main_of(module)
    if is_local(func):
        raise UsageError(
            "a local program cannot be written as StableHLO",
            remedy="export the module before the pass `spmd`",
        )
    module = module.clone()
    if any(isinstance(op, CompositeOp) for op in module.walk()):
        inline_composites(module)
    expand(module)
    return Writer().module(module)


class Writer:
    """Collects the lines of one module. `OPS` of `write_ops` tells how each op is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.indent = "    "
        self._names: dict[SSAValue, str] = {}
        self._count = 0
        self._mesh: str | None = None

    # Modules.

    def module(self, module: ModuleOp) -> str:
        func = signature.main_of(module)
        mesh = mesh_op_of(module)
        lines = ["module @rhino {"]
        if mesh is not None:
            self._mesh = mesh.sym_name.data
            axes = ", ".join(f'"{name}"={size}' for name, size in mesh.mesh.axes)
            lines.append(f"  sdy.mesh @{self._mesh} = <[{axes}]>")
        lines.append(f"  func.func public @main({self._arguments(func)}){self._results(func)} {{")
        self.body(func.body.block.ops)
        return "\n".join([*lines, *self.lines, "  }", "}"]) + "\n"

    def _arguments(self, func: FuncOp) -> str:
        donated: dict[int, int] = {}
        for i, slot in enumerate(signature.results(func)):
            if slot.alias is not None:
                donated.setdefault(slot.alias, i)
        parts = []
        for i, (value, slot) in enumerate(zip(func.args, signature.arguments(func), strict=True)):
            attrs = self._slot_attributes(slot, types.shape_of(value))
            if i in donated:
                attrs.append(f"tf.aliasing_output = {donated[i]} : i32")
            named = f" loc({quote(slot.name)})" if slot.name else ""
            self._names[value] = f"%arg{i}"
            parts.append(f"%arg{i}: {value.type}{braces(attrs)}{named}")
        return ", ".join(parts)

    def _results(self, func: FuncOp) -> str:
        outputs = list(func.function_type.outputs)
        if not outputs:
            return ""
        parts = []
        for type, slot in zip(outputs, signature.results(func), strict=True):
            assert isinstance(type, TensorType)
            attrs = self._slot_attributes(slot, tuple(type.get_shape()))
            if slot.name:
                attrs.append(f"jax.result_info = {quote(slot.name)}")
            parts.append(f"{type}{braces(attrs)}")
        return f" -> ({', '.join(parts)})"

    def _slot_attributes(self, slot: signature.Slot, shape: tuple[int, ...]) -> list[str]:
        layout = dict(slot.other).get(LAYOUT)
        if not isinstance(layout, LayoutAttr) or self._mesh is None:
            return []
        text = self.sharding(layout, shape)
        return [] if text is None else [f"sdy.sharding = #sdy.sharding{text}"]

    def sharding(self, layout: LayoutAttr, shape: tuple[int, ...]) -> str | None:
        """``<@mesh, [{"dp"}, {}]>``, or None for what sdy cannot say: periods, partials other than sums."""
        spec: LayoutSpec = layout.data
        if any(axis.period is not None for axes in spec.dims for axis in axes):
            return None
        if any(kind != "sum" for _, kind in spec.partial):
            return None
        dims = ", ".join("{" + ", ".join(axis.axis_text() for axis in axes) + "}" for axes in spec.dims)
        summed = ", ".join(axis.axis_text() for axis, _ in spec.partial)
        rest = f", unreduced={{{summed}}}" if summed else ""
        return f"<@{self._mesh}, [{dims}]{rest}>"

    # Blocks and ops.

    def body(self, ops: Iterable[Operation], terminator: str = "return") -> None:
        """All ops of a block, the last one as the terminator of that name."""
        for op in ops:
            if isinstance(op, ReturnOp) or op.name == "hlo.yield":
                self.line(self.terminator(terminator, op.operands))
                continue
            self.op(op)

    def nested(self, block: Block, captured: Sequence[SSAValue] = ()) -> list[str]:
        """The lines of a region; its last arguments, as many as `captured`, are those values outside."""
        own = list(block.args)[: len(block.args) - len(captured)]
        for argument, value in zip(block.args[len(own) :], captured, strict=True):
            self.alias(argument, self.name(value))
        for argument in own:
            self.alias(argument, self.fresh())
        saved, self.lines, indent, self.indent = self.lines, [], self.indent, "  "
        if own:
            self.lines.append(f"^bb0({', '.join(f'{self.name(a)}: {a.type}' for a in own)}):")
        self.body(block.ops, "stablehlo.return")
        lines, self.lines, self.indent = self.lines, saved, indent
        return lines

    def op(self, op: Operation) -> None:
        from rhino.frontend.stablehlo.write_ops import OPS

        emit = OPS.get(op.name)
        if emit is None:
            self.refuse(op, "StableHLO has no such op")
        emit(self, op)
        self._constrain(op)

    def _constrain(self, op: Operation) -> None:
        """A pin becomes a constraint on the value."""
        layouts = op.attributes.get(LAYOUT)
        if self._mesh is None or layouts is None:
            return
        if not isinstance(op.parent_op(), FuncOp):
            return
        for value, layout in zip(op.results, layouts, strict=True):  # type: ignore[call-overload]
            text = self.sharding(layout, types.shape_of(value))
            if text is not None:
                name = self.fresh()
                self.line(f"{name} = sdy.sharding_constraint {self.name(value)} {text} : {value.type}")
                self._names[value] = name

    def refuse(self, op: Operation, why: str) -> NoReturn:
        """Raise an UnsupportedError about an op."""
        raise UnsupportedError(f"{op.name}: {why}", where=show_location(op.location))

    def terminator(self, name: str, operands: Sequence[SSAValue]) -> str:
        if not operands:
            return name
        return f"{name} {self.names(operands)} : {', '.join(str(v.type) for v in operands)}"

    # Names and lines.

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def fresh(self) -> str:
        self._count += 1
        return f"%{self._count - 1}"

    def name(self, value: SSAValue) -> str:
        return self._names[value]

    def names(self, values: Sequence[SSAValue]) -> str:
        return ", ".join(self._names[v] for v in values)

    def alias(self, value: SSAValue, name: str) -> None:
        """Let a value be written as an earlier name."""
        self._names[value] = name

    def define(self, results: Sequence[SSAValue], text: str) -> None:
        """A line that defines results: ``%0 = text`` or ``%0:2 = text``."""
        name = self.fresh()
        if len(results) == 1:
            self._names[results[0]] = name
            self.line(f"{name} = {text}")
            return
        for i, value in enumerate(results):
            self._names[value] = f"{name}#{i}"
        self.line(f"{name}:{len(results)} = {text}")

    def value(self, text: str) -> str:
        """A line that defines a value of no op of ours; its name."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def scalar(self, number: object, element: Attribute) -> str:
        """A scalar constant; its name."""
        return self.full(number, types.tensor((), element))

    def full(self, number: object, type: types.Type) -> str:
        """A constant of one number; its name."""
        array = np.asarray(number).astype(types.numpy_dtype(type.element_type))
        return self.value(f"stablehlo.constant {literal(dense.dense(array, type))} : {type}")


def literal(attr: DenseIntOrFPElementsAttr) -> str:
    """``dense<...>`` as MLIR reads it; i1 as a list, since how its bits are packed depends on the version."""
    type = attr.type
    if type.element_type == types.I1 and not dense.is_splat(attr):
        return f"dense<{_nested(dense.to_numpy(attr))}>"
    return dense.show(attr)


def _nested(array: np.ndarray) -> str:
    if array.ndim == 0:
        return "true" if array else "false"
    return "[" + ", ".join(_nested(a) for a in array) + "]"


def braces(attributes: Sequence[str]) -> str:
    return f" {{{', '.join(attributes)}}}" if attributes else ""


def quote(text: str) -> str:
    """A string literal."""
    return '"' + re.sub(r"[^ !#-\[\]-~]", lambda m: "".join(f"\\{b:02X}" for b in m[0].encode()), text) + '"'
