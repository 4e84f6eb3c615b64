"""autodiff: append the gradient of the loss with respect to every floating-point parameter.

    func.func @main(%w {role = "parameter"}, %x {role = "input"}) -> (%loss)
becomes
    func.func @main(%w, %x) -> (%loss, %dw {role = "gradient", of = "w"})

A parameter that the loss does not depend on has no gradient, as in PyTorch: no optimizer touches it. One that the loss
depends on only through ops that are flat everywhere (`floor`) has a gradient of zeros.

Reverse mode on the IR: ops are walked backward once, each contributing the cotangents its definition gives.
Composites without a derivative of their own are inlined first. Runs before layouts exist, so that the sums of
the backward pass are ordinary partial sums to the planner. The cotangent of a complex value x + iy is
d(loss)/dx - i d(loss)/dy, so that holomorphic functions have the derivatives that they have on real numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.region_derivative import pull_back
from rhino.dialects.hlo.unary import StopGradientOp
from rhino.dialects.signature import Slot
from rhino.ir import types
from rhino.ir.collector import collector_paused
from rhino.ir.errors import ProgramError
from rhino.passes.inline_composites import inline_composites


@dataclass(frozen=True)
class AutodiffPass(ModulePass):
    """Options: none. Raises ProgramError when `@main` has no scalar floating-point loss as its first result."""

    name = "autodiff"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        differentiate(op)


@collector_paused()
def differentiate(module: ModuleOp) -> None:
    """Append gradients of result 0 with respect to the float parameters it depends on to `@main`, in place."""
    func = signature.main_of(module)
    inline_composites(module)
    ret = signature.return_of(func)
    loss = _loss(func, ret)
    slots = signature.arguments(func)
    wanted = [
        (arg, slot)
        for arg, slot in zip(func.args, slots, strict=True)
        if slot.role == "parameter" and types.is_float(types.element_of(arg))
    ]
    if not wanted:
        raise ProgramError(
            "@main has no floating-point parameter to differentiate",
            remedy='mark arguments with {rhino.role = "parameter"}',
        )
    used = _used_by(func, loss)
    wanted = [(arg, slot) for arg, slot in wanted if arg in used]
    if not wanted:
        raise ProgramError(
            "the loss depends on no floating-point parameter",
            remedy="compute the first result of @main from the parameters",
        )
    gradients = backward(func, loss, [arg for arg, _ in wanted])
    result_slots = signature.results(func)
    ret.operands = [*ret.operands, *gradients]
    result_slots += [Slot(name=f"{s.name}.grad", role="gradient", of=s.name) for _, s in wanted]
    func.function_type = FunctionType.from_lists(
        list(func.function_type.inputs), [o.type for o in ret.operands]
    )
    signature.set_results(func, result_slots)
    for op in list(func.body.block.ops):
        if isinstance(op, StopGradientOp):
            op.result.replace_all_uses_with(op.x)
            op.detach()
            op.erase()


def _loss(func: FuncOp, ret: ReturnOp) -> SSAValue:
    if not ret.operands:
        raise ProgramError("@main returns nothing", remedy="return the scalar loss as the first result")
    loss = ret.operands[0]
    type = types.type_of(loss)
    if type.get_shape() != () or not types.is_float(type.element_type):
        raise ProgramError(
            f"the first result of @main is {types.show(type)}, not a scalar floating-point loss",
            remedy="return the scalar loss first (reduce it with a sum or a mean)",
        )
    return loss


def backward(func: FuncOp, loss: SSAValue, wanted: Sequence[SSAValue]) -> list[SSAValue]:
    """Append ops that compute d(loss)/d(value) for every wanted value; zeros where no derivative reaches it."""
    ops = [op for op in func.body.block.ops if isinstance(op, HloOp)]
    builder = Builder(InsertPoint.before(signature.return_of(func)))
    with builder.at(loss.owner.location if isinstance(loss.owner, Operation) else builder.location):
        seed = builder.full_like(loss, 1.0)
    found = pull_back(builder, ops, {loss: seed}, wanted)
    return [builder.full_like(v, 0.0) if g is None else g for v, g in zip(wanted, found, strict=True)]


def _used_by(func: FuncOp, loss: SSAValue) -> set[SSAValue]:
    """Float values that the loss depends on through float values, up to where gradients are stopped."""
    used = {loss}
    for op in reversed(list(func.body.block.ops)):
        if not isinstance(op, StopGradientOp) and any(r in used for r in op.results):
            used.update(o for o in op.operands if types.is_differentiable(types.element_of(o)))
    return used


__all__ = ["AutodiffPass", "backward", "differentiate"]
