"""From a program to an ATen graph: torch.export in fake tensors, so that no weight is ever read or copied."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.export import ExportedProgram
from torch.export.exported_program import default_decompositions
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.overrides import TorchFunctionMode

from rhino.frontend.aliases import require_separate
from rhino.frontend.program import USER_CODE_ERRORS, Batch, Loss, Program, named_inputs, user_error
from rhino.frontend.source import Origins, origins
from rhino.ir.errors import ProgramError, RhinoWarning, UnsupportedError, UsageError

#: Name of the model inside the wrapper; exported names start with it.
MODEL = "model"

_OPS = torch.library.Library("rhino", "DEF")
_OPS.define("stop_gradient(Tensor x) -> Tensor")
_OPS.impl("stop_gradient", torch.clone, "CompositeExplicitAutograd")

STATIC_REMEDY = (
    "Rhino plans with static shapes: compute with masks (torch.where, masked sums) instead of "
    "boolean indexing, nonzero, .item() or Python branches on tensor values"
)


@dataclass(frozen=True)
class Exported:
    """An exported program.

    Attributes:
        program: the functional ATen graph.
        inputs: names of the batch's tensors in the order of the graph's user inputs.
        tied: further names of every parameter or buffer that has several, by its first name.
        frozen: names of the parameters that need no gradient.
        origins: tells where nodes came from.
    """

    program: ExportedProgram
    inputs: tuple[str, ...]
    tied: Mapping[str, tuple[str, ...]]
    frozen: frozenset[str]
    origins: Origins


def export(program: Program, keep: Collection[str]) -> Exported:
    """Trace ``loss(model, batch)``.

    Args:
        keep: names of ATen ops (``aten.softmax.int``) that have a handler and so are not decomposed.

    Raises:
        UnsupportedError: for data-dependent shapes or control flow, ops that torch cannot trace, and parameters or
            buffers that share memory with something that training changes.
        ProgramError: when the user's own code fails.
    """
    model = program.model
    inputs = named_inputs(program.batch)
    duplicates = {n for i, (n, _) in enumerate(inputs) if n in [m for m, _ in inputs[:i]]}
    if duplicates:
        raise UsageError(f"two tensors of the batch are called '{min(duplicates)}'", remedy="rename one")
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    names = _names_by_tensor(model)
    tied = {first: tuple(rest) for first, *rest in names.values() if rest}
    frozen = frozenset(n for n, p in model.named_parameters() if not p.requires_grad)
    first = {name: same[0] for same in names.values() for name in same}
    state = {name: tensor for name, tensor in _named_state(model) if name == first[name]}
    trained = {name for name, _ in model.named_parameters()} - frozen
    require_separate(state, trained)
    with _fake_state(model, mode), _quiet(), _translated_errors():
        batch = _fake_batch(program.batch, mode)
        with _OwnParameters(), _derivatives_noticed():
            traced = torch.export.export(_Step(model, program.loss), (batch,), strict=False)
        _mark_stopped_gradients(traced.graph_module)
        lowered = _lowered(traced, keep, [n for n in names.values() if len(n) > 1 and n[0] not in trained])
    mutated = lowered.graph_signature.buffers_to_mutate.values()
    require_separate(state, trained | {first[target.removeprefix(f"{MODEL}.")] for target in mutated})
    return Exported(lowered, tuple(name for name, _ in inputs), tied, frozen, origins(MODEL, program.loss))


class _Step(nn.Module):
    """The function that is exported. A tuple holds the loss, so that a loss that is a module is no child."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.held = (loss,)

    def forward(self, batch: Batch) -> torch.Tensor:
        (loss,) = self.held
        return loss(self.model, batch)


def _names_by_tensor(model: nn.Module) -> dict[int, list[str]]:
    """All names of every parameter and buffer, keyed by the tensor's identity."""
    names: dict[int, list[str]] = {}
    for name, tensor in _named_state(model):
        names.setdefault(id(tensor), []).append(name)
    return names


def _named_state(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, then buffers, under all their names."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


@contextmanager
def _fake_state(model: nn.Module, mode: FakeTensorMode) -> Iterator[None]:
    """Inside the block all parameters and buffers are fakes on the CPU; ties are kept.

    One device for all makes meta models, models on a GPU and batches on the CPU trace alike.
    """
    fakes: dict[int, torch.Tensor] = {}
    saved: list[tuple[dict[str, torch.Tensor | None], str, torch.Tensor]] = []
    try:
        for module in model.modules():
            for table in (module._parameters, module._buffers):
                for name, tensor in table.items():
                    if tensor is None:
                        continue
                    if id(tensor) not in fakes:
                        fakes[id(tensor)] = _fake(tensor, mode)
                    saved.append((table, name, tensor))  # type: ignore[arg-type]
                    table[name] = fakes[id(tensor)]  # type: ignore[assignment]
        yield
    finally:
        for table, name, tensor in saved:
            table[name] = tensor


def _fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    with mode:
        fake = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(fake, requires_grad=tensor.requires_grad)
    return fake


def _fake_batch(value: Batch, mode: FakeTensorMode) -> Batch:
    if isinstance(value, torch.Tensor):
        return _fake(value.detach(), mode)
    if isinstance(value, Mapping):
        return {k: _fake_batch(v, mode) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        items = [_fake_batch(v, mode) for v in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _lowered(
    traced: ExportedProgram, keep: Collection[str], tied: Sequence[Sequence[str]]
) -> ExportedProgram:
    """The program in core ATen. `tied` holds the names of each buffer that has several."""
    try:
        return traced.run_decompositions(_decompositions(keep))
    except AssertionError as error:
        # torch's functionalisation fails in an assertion of its own where a buffer with two names is written to.
        if not tied:
            raise
        raise UnsupportedError(
            "torch cannot trace the program; it may write in place to a buffer with several names, as "
            + ", ".join(" = ".join(f"'{n}'" for n in names) for names in tied),
            remedy="register the buffer once, and reach it through that module everywhere",
        ) from error


def _decompositions(keep: Collection[str]) -> dict[Any, Callable[..., Any]]:
    """Core ATen, less the ops with a handler, plus what torch can decompose beyond core ATen."""
    table = default_decompositions()
    known = set(table.keys())
    for op in known:
        if str(op) in keep:
            table.pop(op)
    for op, decomposition in decomposition_table.items():
        if op not in known and str(op) not in keep:
            table[op] = decomposition
    return table


def _mark_stopped_gradients(module: fx.GraphModule) -> None:
    """Make `detach` and `torch.no_grad()` survive decomposition, which would turn them into plain copies.

    Regions without gradients are inlined and every value that leaves one is marked.
    """
    stop = torch.ops.rhino.stop_gradient.default
    graph = module.graph
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in (torch.ops.aten.detach.default, torch.ops.aten.detach_.default):
            if _is_float(node):
                node.target = stop
        elif node.target is torch.ops.higher_order.wrap_with_set_grad_enabled:
            _inline_region(module, node)
    graph.lint()
    module.recompile()


def _inline_region(module: fx.GraphModule, node: fx.Node) -> None:
    enabled, body, *operands = node.args
    assert isinstance(body, fx.Node) and isinstance(body.target, str)
    region = getattr(module, body.target)
    _mark_stopped_gradients(region)
    graph, values = module.graph, dict[fx.Node, Any]()
    placeholders = [n for n in region.graph.nodes if n.op == "placeholder"]
    values.update(zip(placeholders, operands, strict=True))
    with graph.inserting_before(node):
        for inner in region.graph.nodes:
            if inner.op in ("placeholder", "output"):
                continue
            if inner.op == "get_attr":  # a nested region (autocast): move it to the outer module
                name = f"{body.target}_{inner.target}"
                setattr(module, name, getattr(region, str(inner.target)))
                values[inner] = graph.get_attr(name)
                continue
            values[inner] = graph.node_copy(inner, lambda n: values[n])
        (output,) = (n for n in region.graph.nodes if n.op == "output")
        results = [_stopped(graph, values[r], enabled) for r in output.args[0]]
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(results[user.args[1]])  # type: ignore[index]
        graph.erase_node(user)
    graph.erase_node(node)


def _stopped(graph: fx.Graph, value: fx.Node, enabled: Any) -> fx.Node:
    if enabled or not isinstance(value, fx.Node) or not _is_float(value):
        return value
    node = graph.call_function(torch.ops.rhino.stop_gradient.default, (value,))
    node.meta = dict(value.meta)
    return node


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


class _ForeignParameter(RuntimeError):
    """A tensor outside of the model needs a gradient."""


class _OwnParameters(TorchFunctionMode):
    """Refuses tensors that need a gradient and are not of the model: export would make constants of them.

    The model's own parameters are fakes at this point, so a plain tensor or Parameter is someone else's.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for arg in (*args, *kwargs.values()):
            for item in arg if isinstance(arg, tuple | list) else (arg,):
                if type(item) in (torch.Tensor, nn.Parameter) and item.requires_grad:
                    raise _ForeignParameter(
                        f"a tensor of shape {list(item.shape)} needs a gradient but is no parameter of the model"
                    )
        return func(*args, **kwargs)


@contextmanager
def _derivatives_noticed() -> Iterator[None]:
    """Warns of functions that bring a backward pass of their own: export keeps what their forward pass does alone."""
    function = torch.autograd.Function
    original: Any = function.__dict__["apply"]
    found: dict[str, None] = {}

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        if cls.__module__.partition(".")[0] != "torch":
            found[f"{cls.__module__}.{cls.__qualname__}"] = None
        return original.__func__(cls, *args, **kwargs)

    function.apply = classmethod(apply)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        function.apply = original  # type: ignore[method-assign]
    for name in found:
        warnings.warn(
            f"the backward pass of {name} (an autograd.Function) is not used: gradients are those of its forward "
            "pass. Where the two are meant to differ, write y + (f(x) - y).detach() for a function f that takes "
            "y's gradient; rhino check compares with PyTorch",
            RhinoWarning,
            stacklevel=2,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide torch's own deprecation warnings; they are about torch's code, not the user's."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")
        yield


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException) as error:
        what = user_error(
            error, "a shape or a branch depends on the values of a tensor", "loss(model, batch)"
        )
        raise UnsupportedError(what.message, where=what.where, remedy=STATIC_REMEDY) from error
    except UnsupportedOperatorException as error:
        what = user_error(error, f"torch cannot trace {error.func}", "loss(model, batch)")
        raise UnsupportedError(
            what.message,
            where=what.where,
            remedy="register a fake kernel for it (torch.library.register_fake)",
        ) from error
    except USER_CODE_ERRORS as error:
        what = user_error(error, "the program failed while being traced", "loss(model, batch)")
        raise ProgramError(what.message, where=what.where, remedy=_remedy(error) or what.remedy) from error


def _remedy(error: Exception) -> str | None:
    if isinstance(error, _ForeignParameter):
        return "make it an nn.Parameter of the model (a loss with parameters belongs inside the model)"
    if "meta" in str(error):
        return "a tensor that is no parameter or buffer stays on the meta device: use register_buffer for it"
    return None


def require_static(node: fx.Node, where: Origins) -> None:
    """Raises UnsupportedError when a value of the node has a size that depends on data."""
    value = node.meta.get("val")
    for item in value if isinstance(value, tuple | list) else [value]:
        dynamic = isinstance(item, torch.SymInt | torch.SymFloat | torch.SymBool)
        if isinstance(item, torch.Tensor):
            dynamic = not all(isinstance(extent, int) for extent in item.shape)
        if dynamic:
            raise UnsupportedError(
                f"the result of {node.target} has a size or a value that depends on data",
                where=where.describe(node.meta),
                remedy=STATIC_REMEDY,
            )


def scalar_loss(node: Any, where: Origins) -> fx.Node:
    """The graph's loss node. Raises ProgramError unless it is one scalar floating-point tensor."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else node
    if not isinstance(value, torch.Tensor):
        found = f"a {type(value).__name__}"
    elif value.dim() != 0 or not value.is_floating_point():
        found = f"a tensor of shape {list(value.shape)} and dtype {value.dtype}"
    else:
        return node
    raise ProgramError(
        f"the loss is {found}, not a scalar floating-point tensor",
        where=where.describe(node.meta if isinstance(node, fx.Node) else {}),
        remedy="let loss(model, batch) return one number, for example the mean over the batch",
    )


__all__ = ["MODEL", "STATIC_REMEDY", "Exported", "export", "require_static", "scalar_loss"]
