"""What the arguments and results of `@main` are: names, roles and aliases, read from and written to attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    i64,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute

from rhino.ir.errors import ProgramError
from rhino.ir.verify import op_error

ROLES = ("parameter", "buffer", "input", "state", "loss", "output", "gradient")


@dataclass(frozen=True)
class Slot:
    """One argument or result of `@main`.

    Attributes:
        name: module path of a parameter or buffer, or the name of an input, state or output.
        role: one of ROLES.
        of: for states and gradients, the parameter they belong to.
        slot: for states, which one (``m``, ``v``, ``step``, ``momentum``).
        alias: for results, the index of the argument that they replace in the next step.
        tied: further names of a tied parameter.
        extent: the shape that users see, where the program holds more: what lies beyond it is padding (see the
            pass `pad`); None where there is no padding.
        other: attributes that belong to others (layouts, say); kept as they are.
    """

    name: str = ""
    role: str = ""
    of: str | None = None
    slot: str | None = None
    alias: int | None = None
    tied: tuple[str, ...] = ()
    extent: tuple[int, ...] | None = None
    other: tuple[tuple[str, Attribute], ...] = ()

    def attributes(self) -> DictionaryAttr:
        out: dict[str, Attribute] = {}
        for key in ("name", "role", "of", "slot"):
            if getattr(self, key):
                out[f"rhino.{key}"] = StringAttr(getattr(self, key))
        if self.alias is not None:
            out["rhino.alias"] = IntegerAttr(self.alias, i64)
        if self.tied:
            out["rhino.tied"] = ArrayAttr([StringAttr(t) for t in self.tied])
        if self.extent is not None:
            out["rhino.extent"] = DenseArrayBase.from_list(i64, self.extent)
        out.update(self.other)
        return DictionaryAttr(out)


def main_of(module: ModuleOp) -> FuncOp:
    """The function `@main` of a module. Raises ProgramError if there is none, or it is not one block of ops."""
    for op in module.ops:
        if isinstance(op, FuncOp) and op.sym_name.data == "main":
            if len(op.body.blocks) != 1:
                raise op_error(op, f"@main has {len(op.body.blocks)} blocks", "write its ops in one block")
            return op
    raise ProgramError("the module has no function @main", remedy="name the program's entry function main")


def return_of(func: FuncOp) -> ReturnOp:
    """The `func.return` of a single-block function."""
    last = func.body.block.last_op
    if not isinstance(last, ReturnOp):
        raise ProgramError(f"function @{func.sym_name.data} does not end in func.return")
    return last


def arguments(func: FuncOp) -> list[Slot]:
    """One slot for every argument, empty where the function says nothing."""
    return _read(func.arg_attrs, len(func.function_type.inputs))


def results(func: FuncOp) -> list[Slot]:
    """One slot for every result. Raises ProgramError if one replaces an argument that there is not."""
    slots = _read(func.res_attrs, len(func.function_type.outputs))
    count = len(func.function_type.inputs)
    for i, slot in enumerate(slots):
        if slot.alias is not None and not 0 <= slot.alias < count:
            message = (
                f"result {i} of @{func.sym_name.data} replaces argument {slot.alias}, but there are {count}"
            )
            raise op_error(func, message)
    return slots


def set_arguments(func: FuncOp, slots: Sequence[Slot]) -> None:
    func.arg_attrs = ArrayAttr([s.attributes() for s in slots])


def set_results(func: FuncOp, slots: Sequence[Slot]) -> None:
    func.res_attrs = ArrayAttr([s.attributes() for s in slots])


def _read(attrs: ArrayAttr[DictionaryAttr] | None, count: int) -> list[Slot]:
    if attrs is None:
        return [Slot()] * count
    return [_slot(d) for d in attrs]


def _slot(attrs: DictionaryAttr) -> Slot:
    def string(key: str) -> str | None:
        value = attrs.data.get(f"rhino.{key}")
        return value.data if isinstance(value, StringAttr) else None

    alias = attrs.data.get("rhino.alias")
    tied = attrs.data.get("rhino.tied")
    extent = attrs.data.get("rhino.extent")
    known = {f"rhino.{k}" for k in ("name", "role", "of", "slot", "alias", "tied", "extent")}
    return Slot(
        name=string("name") or "",
        role=string("role") or "",
        of=string("of"),
        slot=string("slot"),
        alias=int(alias.value.data) if isinstance(alias, IntegerAttr) else None,
        tied=tuple(t.data for t in tied if isinstance(t, StringAttr)) if isinstance(tied, ArrayAttr) else (),
        extent=tuple(map(int, extent.get_values())) if isinstance(extent, DenseArrayBase) else None,
        other=tuple((k, v) for k, v in attrs.data.items() if k not in known),
    )
