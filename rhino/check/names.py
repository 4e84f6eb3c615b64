"""Names by which a value can be found again after a pass.

`name_values` names every value of a module. Passes carry names along: an op that survives keeps its own, a value that
replaces another takes its name over, `spmd` gives a local value the name of the global one. So what still has a name
after a pass stands for the value that had it before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from rhino.dialects import signature

#: What the names of values begin with; no pass makes such names.
_PREFIX = "value."


@dataclass(frozen=True)
class Name:
    """What a value was called before.

    Attributes:
        shown: for messages: its own name, else the argument's, else that of the op that makes it.
        hint: its own name.
    """

    shown: str
    hint: str | None


def name_values(module: ModuleOp) -> dict[str, Name]:
    """Give every value of `@main` a name of its own, in place; what each of them was called before."""
    func = signature.main_of(module)
    slots = signature.arguments(func)
    values = [*func.args, *(result for op in func.body.block.ops for result in op.results)]
    before = {}
    for number, value in enumerate(values):
        owner, hint = value.owner, value.name_hint
        if isinstance(owner, Operation):
            shown = f"%{hint}" if hint else owner.name
        else:
            shown = slots[number].name or f"argument {number}"
        before[f"{_PREFIX}{number}"] = Name(shown, hint)
        value.name_hint = f"{_PREFIX}{number}"
    return before


def restore_names(module: ModuleOp, before: Mapping[str, Name]) -> None:
    """Undo `name_values`, in place, as far as the named values still exist."""
    for op in module.walk():
        for region in op.regions:
            for block in region.blocks:
                for arg in block.args:
                    _restore(arg, before)
        for result in op.results:
            _restore(result, before)


def _restore(value: SSAValue, before: Mapping[str, Name]) -> None:
    if tag := tag_of(value):
        value.name_hint = before[tag].hint


def tag_of(value: SSAValue) -> str:
    """The name that `name_values` gave a value, empty for a value that has none."""
    hint = value.name_hint
    return hint if hint is not None and hint.startswith(_PREFIX) else ""
