"""Checks of whole modules that xDSL lacks: errors that say where, SSA dominance, the global stage."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.traits import OpTrait
from xdsl.utils.exceptions import VerifyException

from rhino.ir.errors import ProgramError
from rhino.ir.kinds import VerifiedByKind, kind_of
from rhino.ir.text import show_location


def op_error(op: Operation, message: str, remedy: str | None = None) -> ProgramError:
    """An error about one op: its location if known, its name in front of the message."""
    if not message.startswith(op.name):
        message = f"{op.name}: {message}"
    return ProgramError(message, where=show_location(op.location), remedy=remedy)


def verify_module(module: ModuleOp) -> None:
    """Verify every op and that values are defined before they are used.

    Raises ProgramError that names the op and its place in the text or in the user's program.
    """
    check_dominance(module)
    kinds: set[Hashable] = set()
    for op in module.walk():
        kind = _kind(op)
        if kind is not None and kind in kinds:
            continue
        try:
            op.verify(verify_nested_ops=False)
        except VerifyException as error:
            message = str(error).removeprefix("Operation does not verify: ")
            raise op_error(_redefinition(op) or op, message) from error
        if kind is not None:
            kinds.add(kind)


def _kind(op: Operation) -> Hashable | None:
    """Equal for ops of which one need be verified; None for an op whose place, regions or traits matter."""
    if not isinstance(op, VerifiedByKind) or op.regions or op.successors or op.next_op is None:
        return None
    if any(type(trait).verify is not OpTrait.verify for trait in op.traits):
        return None
    return kind_of(op)


def _redefinition(op: Operation) -> Operation | None:
    """The second op of one name in a module, which has a place where the module may have none."""
    names = set()
    for nested in op.body.block.ops if isinstance(op, ModuleOp) and len(op.body.blocks) == 1 else ():
        name = nested.get_attr_or_prop("sym_name")
        if name is not None and name in names:
            return nested
        names.add(name)
    return None


def check_dominance(op: Operation) -> None:
    """Raise ProgramError if a value is used before its definition or outside its region; linear."""
    _dominance(op, set())


def _dominance(op: Operation, seen: set[SSAValue]) -> None:
    for region in op.regions:
        inner: list[SSAValue] = []
        for block in region.blocks:
            _enter(block.args, seen, inner)
            for nested in block.ops:
                for i, operand in enumerate(nested.operands):
                    if operand not in seen:
                        message = f"operand {i}{_name(operand)} is used before its definition"
                        raise op_error(nested, message)
                if nested.regions:
                    _dominance(nested, seen)
                _enter(nested.results, seen, inner)
        seen.difference_update(inner)


def _enter(values: Sequence[SSAValue], seen: set[SSAValue], inner: list[SSAValue]) -> None:
    seen.update(values)
    inner.extend(values)


def _name(value: SSAValue) -> str:
    return f" (%{value.name_hint})" if value.name_hint else ""


def check_global(module: ModuleOp) -> None:
    """The global stage: only `builtin`, `func` and `hlo` ops, and no layouts. Raises ProgramError."""
    for op in module.walk():
        if op.name.split(".")[0] not in ("builtin", "func", "hlo"):
            raise op_error(op, "has no place in a global program", "only hlo and func ops do before `place`")
        for name in op.attributes:
            if name.startswith("dist."):
                raise op_error(op, f"carries {name} in a global program", "remove the attribute")
