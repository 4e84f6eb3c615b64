"""capture: a PyTorch program as an `hlo` module of the global stage."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from xdsl.dialects.builtin import FunctionType, ModuleOp, NameLoc, NoneAttr, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.signature import Slot
from rhino.frontend.export import MODEL, Exported, export, require_static, scalar_loss
from rhino.frontend.program import Program
from rhino.frontend.source import Origins
from rhino.frontend.torch_ops import ATEN, effects
from rhino.frontend.torch_ops.context import OpContext, RandomState, Value, element_type
from rhino.ir import types
from rhino.ir.collector import collector_paused
from rhino.ir.errors import ProgramError, RhinoError, UnsupportedError

#: Name of the state argument that counts steps for random numbers; see `rhino.frontend.torch_ops.random`.
SEED = "random.seed"

Results = list[tuple[SSAValue, Slot]]


@collector_paused()
def capture(program: Program) -> ModuleOp:
    """The forward pass and loss of a program as a module.

    ``@main(parameters, buffers, inputs[, seed]) -> (loss, updated buffers[, seed])``.
    Arguments and results carry the attributes that `docs/architecture.md` describes. Parameters that need no
    gradient have the role of buffers. Weights are neither read nor copied, so models on the meta device work.

    Raises:
        UnsupportedError: an op without a handler, or data-dependent shapes; names the place.
        ProgramError: the user's code fails, or the loss is not a scalar floating-point tensor.
    """
    return import_exported(export(program, ATEN))


@dataclass
class _Main:
    """The function under construction."""

    block: Block
    b: Builder
    origins: Origins
    values: dict[fx.Node, Value] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)

    def argument(self, type: types.Type, slot: Slot) -> SSAValue:
        self.slots.append(slot)
        value = self.block.insert_arg(type, len(self.block.args))
        return value


def import_exported(exported: Exported) -> ModuleOp:
    """Lower an exported program op by op."""
    block = Block()
    main = _Main(block, Builder(InsertPoint.at_end(block)), exported.origins)
    _arguments(main, exported)
    seeds: list[SSAValue] = []

    def seed() -> SSAValue:
        slot = Slot(name=SEED, role="state", slot="seed")
        seeds.append(main.argument(types.tensor([], types.I64), slot))
        return seeds[0]

    random = RandomState(seed)
    output: fx.Node | None = None
    for node in exported.program.graph.nodes:
        if node.op == "call_function":
            main.values[node] = _lower(main, node, random)
        elif node.op == "output":
            output = node
    assert output is not None
    return _module(main, _results(main, exported, output, seeds))


def _arguments(main: _Main, exported: Exported) -> None:
    """Parameters, then buffers, then inputs; constants become ops."""
    graph = exported.program.graph
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    specs = exported.program.graph_signature.input_specs
    inputs = iter(exported.inputs)
    queued: dict[str, list[tuple[fx.Node, Slot]]] = {"parameter": [], "buffer": [], "input": []}
    for node, spec in zip(placeholders, specs, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            if not isinstance(node.meta.get("val"), torch.Tensor):
                main.values[node] = node.meta.get("val")
                continue
            queued["input"].append((node, Slot(name=next(inputs), role="input")))
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            name = _name(spec.target)
            role = (
                "parameter" if spec.kind == InputKind.PARAMETER and name not in exported.frozen else "buffer"
            )
            queued[role].append((node, Slot(name=name, role=role)))
        elif spec.kind == InputKind.CONSTANT_TENSOR:
            main.values[node] = _constant(main, exported.program.constants[spec.target], spec.target)
        elif spec.kind == InputKind.TOKEN:
            main.values[node] = effects.TOKEN
        else:
            raise UnsupportedError(
                f"the program takes a {spec.kind.name.lower()} '{spec.target}'",
                remedy="use tensors, parameters and buffers only",
            )
    by_name: dict[str, SSAValue] = {}
    first = {other: name for name, others in exported.tied.items() for other in others}
    for role in ("parameter", "buffer", "input"):
        for node, slot in queued[role]:
            require_static(node, main.origins)
            name = first.get(slot.name, slot.name) if role != "input" else slot.name
            if role != "input" and name in by_name:
                main.values[node] = by_name[name]
                continue
            value = main.argument(
                _type(node.meta["val"]), replace(slot, name=name, tied=tuple(exported.tied.get(name, ())))
            )
            main.values[node] = value
            if role != "input":
                by_name[name] = value


def _name(target: str | None) -> str:
    """An exported name without the wrapper's prefix."""
    assert target is not None
    return target.removeprefix(f"{MODEL}.")


def _type(value: torch.Tensor) -> types.Type:
    return types.tensor(value.shape, element_type(value.dtype))


def _constant(main: _Main, value: Any, name: str) -> SSAValue:
    """A tensor that the program holds, as a constant op."""
    if not isinstance(value, torch.Tensor):
        raise UnsupportedError(f"the constant '{_name(name)}' is a {type(value).__name__}")
    if value.device.type == "meta" or isinstance(value, torch._subclasses.FakeTensor):
        raise ProgramError(
            f"the tensor '{_name(name)}' is on the meta device, so its values are not known",
            remedy="register it as a buffer (register_buffer), or create it on the CPU",
        )
    value = value.detach().cpu().contiguous()
    if value.dtype == torch.bfloat16:  # numpy has no bfloat16 of its own
        array = value.view(torch.int16).numpy().view(types.numpy_dtype(types.BF16))
    else:
        array = value.numpy()
    with main.b.at(NameLoc(StringAttr(_name(name)), NoneAttr())):
        return main.b.constant(array, _type(value))


def _lower(main: _Main, node: fx.Node, random: RandomState) -> Value:
    if node.target is operator.getitem:
        source_value, index = node.args
        values = main.values[source_value]  # type: ignore[index]
        if values[index] is None:
            raise UnsupportedError(
                f"result {index} of {source_value.target} is not computed",  # type: ignore[union-attr]
                where=main.origins.describe(node.meta),
            )
        return values[index]
    handler = ATEN.get(str(node.target))
    where = main.origins.describe(node.meta)
    if handler is None:
        if not _used(node):
            return None
        require_static(node, main.origins)
        raise UnsupportedError(
            f"no handler for the op {node.target}",
            where=where,
            remedy="add one to a table under rhino/frontend/torch_ops; docs/add-an-op.md shows how",
        )
    require_static(node, main.origins)

    def read(arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            return main.values[arg]
        if isinstance(arg, tuple | list):
            return [read(a) for a in arg]
        return arg

    args = [read(a) for a in node.args]
    kwargs = {k: read(v) for k, v in node.kwargs.items()}
    with main.b.at(main.origins.location(node.meta)):
        try:
            value = handler(OpContext(main.b, node, random), *args, **kwargs)
        except RhinoError as error:
            raise type(error)(error.message, where=error.where or where, remedy=error.remedy) from error
    _check(main, node, value)
    return value


def _used(node: fx.Node) -> bool:
    return bool(node.users) or node.is_impure()


def _check(main: _Main, node: fx.Node, value: Value) -> None:
    """A handler must give exactly what torch gives; anything else is a mistake in the handler."""
    want = node.meta.get("val")
    if isinstance(want, torch.Tensor):
        pairs = [(want, value)]
    elif isinstance(want, tuple | list):
        pairs = list(zip(want, value, strict=True))
    else:
        return
    for expected, found in pairs:
        if (
            isinstance(expected, torch.Tensor)
            and isinstance(found, SSAValue)
            and found.type != _type(expected)
        ):
            raise UnsupportedError(
                f"{node.target} gave {types.show(found.type)}, but torch {types.show(_type(expected))}",
                where=main.origins.describe(node.meta),
                remedy="this is a mistake in the op's handler; please report it",
            )


def _results(main: _Main, exported: Exported, output: fx.Node, seeds: list[SSAValue]) -> Results:
    """Loss first, then the buffers that the forward pass updates, then the seed."""
    index_of = {slot.name: i for i, slot in enumerate(main.slots) if slot.role in ("parameter", "buffer")}
    first = {other: name for name, others in exported.tied.items() for other in others}
    loss: Results = []
    buffers: Results = []
    values = output.args[0]
    assert isinstance(values, tuple | list)
    specs = exported.program.graph_signature.output_specs
    user = [v for v, s in zip(values, specs, strict=True) if s.kind == OutputKind.USER_OUTPUT]
    if len(user) != 1:
        raise ProgramError(
            f"loss(model, batch) returns {len(user)} values",
            remedy="return one scalar tensor",
        )
    for value, spec in zip(values, specs, strict=True):
        if spec.kind == OutputKind.USER_OUTPUT:
            loss.append((main.values[scalar_loss(value, main.origins)], Slot(name="loss", role="loss")))
        elif spec.kind == OutputKind.BUFFER_MUTATION:
            name = first.get(_name(spec.target), _name(spec.target))
            slot = Slot(name=name, role="buffer", alias=index_of[name])
            buffers.append((main.values[value], slot))  # type: ignore[index]
        elif spec.kind == OutputKind.TOKEN:
            continue
        else:
            is_input = spec.kind == OutputKind.USER_INPUT_MUTATION
            name = _input_names(exported).get(spec.target or "", _name(spec.target))
            raise UnsupportedError(
                f"the forward pass writes to '{name}' in place ({spec.kind.name.lower()})",
                remedy="write to a copy of the batch's tensor (clone)"
                if is_input
                else "only buffers may be updated in the forward pass",
            )
    results = loss + buffers
    for seed in seeds:
        index = list(main.block.args).index(seed)  # type: ignore[arg-type]
        with main.b.at(NameLoc(StringAttr(SEED), NoneAttr())):
            new = main.b.add(seed, main.b.full_like(seed, 1))
        results.append((new, replace(main.slots[index], alias=index)))
    return results


def _input_names(exported: Exported) -> dict[str, str]:
    """What the batch calls its tensors, by the names that torch gave them."""
    specs = exported.program.graph_signature.input_specs
    tensors = (
        spec.arg.name
        for spec in specs
        if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    )
    return dict(zip(tensors, exported.inputs, strict=True))


def _module(main: _Main, results: Results) -> ModuleOp:
    main.block.add_op(ReturnOp(*[value for value, _ in results]))
    type = FunctionType.from_lists([a.type for a in main.block.args], [v.type for v, _ in results])
    func = FuncOp("main", type, Region(main.block))
    signature.set_arguments(func, main.slots)
    signature.set_results(func, [slot for _, slot in results])
    module = ModuleOp([func])
    module.verify()
    return module
