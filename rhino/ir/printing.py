"""Modules to text: xDSL's printer, with exact tensor literals and without work done twice.

Every type, attribute and location is put into words once, and so is every op, up to the names of its operands: the
ops of a training step are mostly alike (`kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from io import StringIO

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType, UnregisteredOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.printer import Printer

from rhino.ir import dense, types
from rhino.ir.kinds import kind_of

#: Stands for an operand while the words around it are found; strings escape it, so that it is in no other text.
_HOLE = "\0"

#: The text of an op between its name and its location, cut where the operands go.
Form = tuple[str, ...]


class RhinoPrinter(Printer):
    """Prints tensor literals exactly; see the module for what it remembers. For ops that nothing changes meanwhile."""

    def __init__(self, stream: StringIO, *, debug: bool = False, generic: bool = False) -> None:
        super().__init__(stream, print_debuginfo=debug, print_generic_format=generic)
        self._texts: dict[int, tuple[Attribute, str]] = {}  # by id, which holding the attribute keeps its own
        self._names: dict[SSAValue, str] = {}
        self._forms: dict[Hashable, Form | None] = {}
        self._holes: list[SSAValue] | None = None

    # Attributes.

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        if "\n" in text:
            super().print_string(text, indent=indent)
        else:  # xDSL counts columns for its own diagnostics, which are not used here
            self.stream.write(text)

    def print_attribute(self, attribute: Attribute) -> None:
        if self.printing_location:  # inside of one, a location is written without its `loc(...)`
            self._print_attribute(attribute)
        else:
            self.print_string(self._text(attribute))

    def _text(self, attribute: Attribute) -> str:
        known = self._texts.get(id(attribute))
        if known is None:
            known = attribute, self._apart(lambda: self._print_attribute(attribute))
            self._texts[id(attribute)] = known
        return known[1]

    def _print_attribute(self, attribute: Attribute) -> None:
        if (
            isinstance(attribute, DenseIntOrFPElementsAttr)
            and isinstance(attribute.type, TensorType)
            and attribute.type.element_type in types.MLIR
        ):
            self.print_string(dense.show(attribute) + " : ")
            self.print_attribute(attribute.type)
        else:
            super().print_attribute(attribute)

    def _apart(self, write: Callable[[], object]) -> str:
        """What `write` prints, which does not go into the text of the module yet."""
        outer = self.stream, self._indent
        self.stream, self._indent = StringIO(), 0
        write()
        text = self.stream.getvalue()
        self.stream, self._indent = outer
        return text

    # Values and ops.

    def print_ssa_value(self, value: SSAValue) -> str:
        if self._holes is not None:
            self._holes.append(value)
            self.stream.write(_HOLE)
            return _HOLE
        name = self._name(value)
        self.stream.write(name)
        return name[1:]

    def _name(self, value: SSAValue) -> str:
        """``%name``; a value gets it when it is first met."""
        name = self._names.get(value)
        if name is None:
            name = self._names[value] = self._apart(lambda: Printer.print_ssa_value(self, value))
        return name

    def print_op(self, op: Operation) -> None:
        form = self._form(op)
        if form is None:
            super().print_op(op)
            return
        results = ", ".join([self._name(result) for result in op.results])
        line = [f"{results} = {op.name}" if results else op.name, form[0]]
        for operand, words in zip(op.operands, form[1:], strict=True):
            line += self._name(operand), words
        if self.print_debuginfo:
            line += " ", self._text(op.location)
        self.stream.write("".join(line))

    def _form(self, op: Operation) -> Form | None:
        """The words around the operands, or None for an op that is printed as a whole."""
        if self.print_generic_format or op.regions or op.successors or isinstance(op, UnregisteredOp):
            return None
        if type(op).print is Operation.print:
            return None
        kind = kind_of(op)
        form = self._forms.get(kind)
        if form is None and kind not in self._forms and len(set(op.operands)) == len(op.operands):
            form = self._forms[kind] = self._find_form(op)
        return form

    def _find_form(self, op: Operation) -> Form | None:
        holes = self._holes = []
        text = self._apart(lambda: op.print(self))
        self._holes = None
        # What follows relies on operands in their order; an op may also print them otherwise.
        return tuple(text.split(_HOLE)) if holes == list(op.operands) and "\n" not in text else None


def print_module(module: Operation, debug: bool = False, *, generic: bool = False) -> str:
    """The text of a module (or of any op), ending in a newline.

    `debug` adds locations, `generic` prints MLIR's generic form, which every MLIR tool can carry.
    """
    stream = StringIO()
    RhinoPrinter(stream, debug=debug, generic=generic).print_op(module)
    return stream.getvalue().rstrip("\n") + "\n"
