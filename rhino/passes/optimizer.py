"""optimizer: turn gradients into new parameters and optimizer state; the module becomes a whole training step.

    @main(%w, %x) -> (%loss, %dw)
becomes
    @main(%w, %x, %step, %m, %v) -> (%loss, %w_new alias 0, %step_new alias 2, %m_new alias 3, %v_new alias 4)

States start at zero. The update formulas and their order are torch.optim's (single-tensor form); bias
corrections are computed in f64 scalars, as torch does in Python floats.

With `clip_norm` the gradients are first scaled by ``min(1, clip_norm / (norm + 1e-6))``, where `norm` is that of all
gradients as one vector: torch.nn.utils.clip_grad_norm_. Each is a whole tensor of the global program, so what a mesh
shards, replicates or adds up later cannot change the norm, and tied weights are one parameter with one gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, LocationAttr, ModuleOp, NameLoc, NoneAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.signature import Slot
from rhino.ir import types
from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.optimizers import SGD, Adam, AdamW, Optimizer

STEP = "optimizer.step"


@dataclass(frozen=True)
class OptimizerPass(ModulePass):
    """Options: ``kind`` (sgd, adam, adamw), ``lr``, ``momentum``, ``weight_decay``, ``beta1``, ``beta2``, ``eps``,
    ``nesterov``, ``clip_norm``. ``keep_gradients`` also returns the gradients, unclipped. Needs the result of
    `autodiff`."""

    name = "optimizer"

    kind: str = "adamw"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float | None = None
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    nesterov: bool = False
    clip_norm: float | None = None
    keep_gradients: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        add_optimizer(op, self.optimizer(), keep_gradients=self.keep_gradients)

    def optimizer(self) -> Optimizer:
        clip = self.clip_norm
        if self.kind == "sgd":
            return SGD(self.lr, self.momentum, self.weight_decay or 0.0, self.nesterov, clip)
        if self.kind == "adam":
            return Adam(self.lr, (self.beta1, self.beta2), self.eps, self.weight_decay or 0.0, clip)
        if self.kind == "adamw":
            decay = 1e-2 if self.weight_decay is None else self.weight_decay
            return AdamW(self.lr, (self.beta1, self.beta2), self.eps, decay, clip)
        raise UsageError(f"no optimizer '{self.kind}'", remedy="use sgd, adam or adamw")


def add_optimizer(module: ModuleOp, optimizer: Optimizer, *, keep_gradients: bool = False) -> None:
    """Replace the gradients that `@main` returns by updated parameters and states, in place.

    Raises ProgramError when `@main` returns no gradients.
    """
    func = signature.main_of(module)
    ret = signature.return_of(func)
    arg_slots, result_slots = signature.arguments(func), signature.results(func)
    gradients = [(r, s) for r, s in zip(ret.operands, result_slots, strict=True) if s.role == "gradient"]
    if not gradients:
        raise ProgramError("@main returns no gradients", remedy="run autodiff before optimizer")
    index_of = {s.name: i for i, s in enumerate(arg_slots) if s.role == "parameter"}
    kept = [
        (r, s)
        for r, s in zip(ret.operands, result_slots, strict=True)
        if keep_gradients or s.role != "gradient"
    ]

    builder = Builder(InsertPoint.before(ret))
    if optimizer.clip_norm is not None:
        clipped = clip_by_norm(builder, [(str(s.of), g) for g, s in gradients], optimizer.clip_norm)
        gradients = [(g, s) for g, (_, s) in zip(clipped, gradients, strict=True)]
    states = _States(func.body.block.insert_arg, arg_slots)
    with builder.at(_place(STEP)):
        step = states.scalar(builder) if isinstance(optimizer, Adam | AdamW) else None
    updates: list[tuple[SSAValue, Slot]] = []
    for gradient, slot in gradients:
        assert slot.of is not None
        index = index_of[slot.of]
        parameter = func.args[index]
        with builder.at(_place(f"optimizer of {slot.of}")):
            new = _update(builder, optimizer, parameter, gradient, slot.of, states, step)
        updates.append((new, replace(arg_slots[index], alias=index, tied=())))
    out = kept + updates + states.results()
    ret.operands = [value for value, _ in out]
    func.function_type = FunctionType.from_lists([a.type for a in func.args], [v.type for v, _ in out])
    signature.set_arguments(func, arg_slots)
    signature.set_results(func, [s for _, s in out])


def _place(name: str) -> LocationAttr:
    """Where an op of the optimizer is from: no line of the program says it."""
    return NameLoc(StringAttr(name), NoneAttr())


def clip_by_norm(b: Builder, gradients: Sequence[tuple[str, SSAValue]], clip_norm: float) -> list[SSAValue]:
    """The gradients, scaled down where their common Euclidean norm exceeds `clip_norm`.

    Squares, their sum and the scaling are in f32, or f64 where a gradient is; torch rounds the norm of every bf16 or
    f16 gradient to that type instead. The formula is torch.nn.utils.clip_grad_norm_'s, its 1e-6 included.

    Args:
        gradients: each with the name of its parameter.
    """
    elements = [types.element_of(g) for _, g in gradients]
    wide = types.F64 if types.F64 in elements else types.F32
    total: SSAValue | None = None
    for name, gradient in gradients:
        with b.at(_place(f"clip_norm of {name}")):
            whole = b.convert(gradient, wide)
            part = b.reduce(b.mul(whole, whole), range(len(types.shape_of(whole))), "sum")
            total = part if total is None else b.add(total, part)
    assert total is not None
    with b.at(_place("clip_norm")):
        norm = b.sqrt(total)
        scale = b.div(b.full_like(norm, clip_norm), b.add(norm, b.full_like(norm, 1e-6)))
        scale = b.minimum(scale, b.full_like(scale, 1.0))
    scaled = []
    for (name, gradient), element in zip(gradients, elements, strict=True):
        with b.at(_place(f"clip_norm of {name}")):
            whole = b.convert(gradient, wide)
            scaled.append(b.convert(b.mul(whole, _spread(b, scale, whole)), element))
    return scaled


class _States:
    """Collects the state arguments that the update formulas ask for, and their new values."""

    def __init__(self, insert_arg: Callable[..., SSAValue], slots: list[Slot]) -> None:
        self._insert_arg = insert_arg
        self._slots = slots
        self._new: list[tuple[SSAValue, Slot]] = []

    def add(self, type: types.Type, slot: Slot) -> tuple[SSAValue, int]:
        self._slots.append(slot)
        index = len(self._slots) - 1
        return self._insert_arg(type, index), index

    def scalar(self, builder: Builder) -> SSAValue:
        """The step count after this step, an f64 scalar."""
        slot = Slot(name=STEP, role="state", slot="step")
        old, index = self.add(types.tensor([], types.F64), slot)
        new = builder.add(old, builder.full_like(old, 1.0))
        self._new.append((new, replace(slot, alias=index)))
        return new

    def like(self, parameter: SSAValue, of: str, slot: str) -> tuple[SSAValue, Callable[[SSAValue], None]]:
        """The old value of a state shaped like its parameter, and a function to call with the new one."""
        entry = Slot(name=f"{of}.{slot}", role="state", of=of, slot=slot)
        old, index = self.add(types.type_of(parameter), entry)
        return old, lambda new: self._new.append((new, replace(entry, alias=index)))

    def results(self) -> list[tuple[SSAValue, Slot]]:
        return self._new


def _update(
    b: Builder,
    optimizer: Optimizer,
    parameter: SSAValue,
    gradient: SSAValue,
    name: str,
    states: _States,
    step: SSAValue | None,
) -> SSAValue:
    if isinstance(optimizer, SGD):
        return _sgd(b, optimizer, parameter, gradient, name, states)
    assert step is not None
    if isinstance(optimizer, AdamW):
        if optimizer.weight_decay:
            parameter = b.mul(parameter, b.full_like(parameter, 1 - optimizer.lr * optimizer.weight_decay))
    elif optimizer.weight_decay:
        gradient = b.add(gradient, b.mul(parameter, b.full_like(parameter, optimizer.weight_decay)))
    return _adam(b, optimizer, parameter, gradient, name, states, step)


def _sgd(
    b: Builder, optimizer: SGD, parameter: SSAValue, gradient: SSAValue, name: str, states: _States
) -> SSAValue:
    if optimizer.weight_decay:
        gradient = b.add(gradient, b.mul(parameter, b.full_like(parameter, optimizer.weight_decay)))
    if optimizer.momentum:
        old, set_new = states.like(parameter, name, "momentum")
        momentum = b.full_like(old, optimizer.momentum)
        new = b.add(b.mul(old, momentum), gradient)
        set_new(new)
        gradient = b.add(gradient, b.mul(new, momentum)) if optimizer.nesterov else new
    return b.sub(parameter, b.mul(gradient, b.full_like(gradient, optimizer.lr)))


def _adam(
    b: Builder,
    optimizer: Adam | AdamW,
    parameter: SSAValue,
    gradient: SSAValue,
    name: str,
    states: _States,
    step: SSAValue,
) -> SSAValue:
    beta1, beta2 = optimizer.betas
    old_m, set_m = states.like(parameter, name, "m")
    old_v, set_v = states.like(parameter, name, "v")
    m = b.add(old_m, b.mul(b.sub(gradient, old_m), b.full_like(old_m, 1 - beta1)))
    v = b.add(
        b.mul(old_v, b.full_like(old_v, beta2)),
        b.mul(b.mul(gradient, gradient), b.full_like(gradient, 1 - beta2)),
    )
    set_m(m)
    set_v(v)
    one = b.full_like(step, 1.0)
    correction1 = b.sub(one, b.pow(b.full_like(step, beta1), step))
    correction2 = b.sqrt(b.sub(one, b.pow(b.full_like(step, beta2), step)))
    step_size = b.div(b.full_like(step, optimizer.lr), correction1)
    denominator = b.add(b.div(b.sqrt(v), _spread(b, correction2, v)), b.full_like(v, optimizer.eps))
    return b.sub(parameter, b.mul(_spread(b, step_size, m), b.div(m, denominator)))


def _spread(b: Builder, scalar: SSAValue, like: SSAValue) -> SSAValue:
    """A scalar converted to the element type of `like` and broadcast to its shape."""
    scalar = b.convert(scalar, types.element_of(like))
    shape: Sequence[int] = types.shape_of(like)
    return b.broadcast_in_dim(scalar, shape, ()) if len(shape) else scalar
