"""StableHLO text to syntax: modules, functions, regions and ops, in MLIR's generic form and the pretty one."""

from __future__ import annotations

from typing import Any

from rhino.frontend.stablehlo.cursor import Cursor
from rhino.frontend.stablehlo.pretty import FORMS, Form, plain_form
from rhino.frontend.stablehlo.syntax import (
    Argument,
    Body,
    FunctionDef,
    FunctionSyntax,
    Location,
    ModuleSyntax,
    OpSyntax,
    Resource,
    Struct,
    Symbol,
    TypeSyntax,
)

#: Regions may nest this deep; deeper text is refused, well before Python's own limit.
_DEEPEST = 60

_MODULE = ("module", "builtin.module", '"builtin.module"')
_FUNCTION = ("func.func", '"func.func"')


class Parser(Cursor):
    """Reads a file. Raises ProgramError with ``name:line:column`` for malformed text."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name)
        self._nesting = 0
        self._read_location_aliases()

    def _read_location_aliases(self) -> None:
        """Locations are given names after their use: read those first."""
        tokens = self.tokens
        for i in range(len(tokens) - 2):
            if tokens[i].kind == "hash" and tokens[i + 1].text == "=" and tokens[i + 2].text == "loc":
                self.index = i + 2
                self.location_aliases[tokens[i].text] = self.location()
        self.index = 0

    # Files and modules.

    def modules(self) -> list[ModuleSyntax]:
        """All modules of the text; functions outside of any make up one of their own."""
        loose = ModuleSyntax("", {}, {}, {}, {}, self.location_aliases)
        found: list[ModuleSyntax] = []
        resources: dict[str, bytes] = {}
        while self.token.kind != "end":
            if self.token.text == "{-#":
                self._file_metadata(resources)
            elif self._alias():
                continue
            elif self.token.text in _MODULE:
                found.append(self._module())
            elif not self._item(loose):
                self.expected("a module or a function")
        if loose.functions or not found:
            found.append(loose)
        for module in found:
            module.resources.update(resources)
        return found

    def _alias(self) -> bool:
        """``#name = attribute`` or ``!name = type``."""
        if self.token.kind not in ("hash", "type") or self.peek().text != "=":
            return False
        token = self.take()
        self.expect("=")
        if self.token.text == "loc":
            self.location()
        else:
            self.aliases[token.text] = self.attribute()
        return True

    def _module(self) -> ModuleSyntax:
        at = self.token.at
        generic = self.take().kind == "string"
        module = ModuleSyntax("", {}, {}, {}, {}, self.location_aliases, at)
        if generic:
            self.expect("(")
            self.expect(")")
            if self.token.text == "<":
                self.expect("<")
                module.attributes.update(self.attributes())
                self.expect(">")
            self.expect("(")
            self._module_body(module, label=True)
            self.expect(")")
            module.attributes.update(self.optional_attributes())
            self.expect(":")
            self.function_type()
            module.name = str(module.attributes.get("sym_name", ""))
        else:
            if self.token.kind == "symbol":
                module.name = self.symbol()
            if self.accept("attributes"):
                module.attributes.update(self.attributes())
            self._module_body(module, label=False)
        self.optional_location()
        return module

    def _module_body(self, module: ModuleSyntax, label: bool) -> None:
        self.expect("{")
        if label and self.token.kind == "label":
            self.take()
            self.expect(":")
        while not self.accept("}"):
            if self.token.text in _MODULE:
                self.unsupported("a module inside a module")
            if not self._item(module):
                self.expected("a function")

    def _item(self, module: ModuleSyntax) -> bool:
        """A function or a mesh."""
        token = self.token
        if token.text in _FUNCTION:
            function = self._generic_function() if token.kind == "string" else self._function()
            if function.name in module.functions:
                self.fail(f"a second function @{function.name}", function.at)
            module.functions[function.name] = function
        elif token.text == "sdy.mesh":
            self.take()
            name = self.symbol()
            self.expect("=")
            module.meshes[name] = Struct("sdy.mesh", self.raw())
            self.optional_attributes()
            self.optional_location()
        elif token.text == '"sdy.mesh"':
            op = self.op()
            module.meshes[str(op.attributes.get("sym_name"))] = op.attributes.get("mesh")
        else:
            return False
        return True

    def _file_metadata(self, resources: dict[str, bytes]) -> None:
        """``{-# dialect_resources: {builtin: {name: "0x..."}} #-}``: keep the data, with their alignment cut off."""
        self.expect("{-#")
        while not self.accept("#-}"):
            token = self.take()
            if token.kind == "end":
                self.expected("'#-}'")
            if token.kind in ("word", "string") and self.token.text == ":" and self.peek().kind == "string":
                self.take()
                text = self.take()
                if text.text.startswith('"0x'):
                    # The first four bytes hold the alignment of the blob.
                    name = token.text.strip('"')
                    resources[name] = self.hexadecimal(text)[4:]

    # Functions.

    def _function(self) -> FunctionDef:
        at = self.take().at
        private = False
        if self.token.text in ("public", "private", "nested"):
            private = self.take().text == "private"
        name = self.symbol()
        arguments = self.listed(self.argument, "(", ")")
        results: list[TypeSyntax] = []
        attributes: list[dict[str, Any]] = []
        if self.accept("->"):
            if self.token.text == "(":
                for type, attrs in self.listed(lambda: (self.type(), self.optional_attributes()), "(", ")"):
                    results.append(type)
                    attributes.append(attrs)
            else:
                results, attributes = [self.type()], [{}]
        own = self.attributes() if self.accept("attributes") else {}
        if self.token.text != "{":
            self.unsupported(f"function @{name} has no body", at)
        body = self.region(arguments)
        self.optional_location()
        return FunctionDef(name, private, body, results, attributes, own, at)

    def _generic_function(self) -> FunctionDef:
        op = self.op()
        attrs = op.attributes
        type, name = attrs.get("function_type"), attrs.get("sym_name")
        if not isinstance(type, FunctionSyntax) or not isinstance(name, str) or len(op.regions) != 1:
            self.fail("func.func needs function_type, sym_name and a region", op.at)
        body = op.regions[0]
        for argument, extra in zip(body.arguments, attrs.get("arg_attrs") or [], strict=False):
            argument.attributes.update(extra)
        results = attrs.get("res_attrs") or [{} for _ in type.outputs]
        private = attrs.get("sym_visibility") == "private"
        return FunctionDef(name, private, body, list(type.outputs), results, attrs, op.at)

    def argument(self) -> Argument:
        """``%name: type {attributes} loc(...)``."""
        name = self.value()
        self.expect(":")
        found = Argument(name, self.type(), self.optional_attributes())
        location = self.optional_location()
        if location is not None:
            found.attributes["loc"] = location
        return found

    def region(self, arguments: list[Argument] | None = None) -> Body:
        """``{ ops }``, with or without a label in front."""
        self._nesting += 1
        if self._nesting > _DEEPEST:
            self.fail("nested too deeply")
        body = Body(list(arguments or []), [])
        self.expect("{")
        if self.token.kind == "label":
            self.take()
            if self.token.text == "(":
                body.arguments.extend(self.listed(self.argument, "(", ")"))
            self.expect(":")
        while not self.accept("}"):
            if self.token.kind == "label":
                self.unsupported("a region of several blocks: Rhino reads structured control flow only")
            body.ops.append(self.op())
        self._nesting -= 1
        return body

    # Ops.

    def op(self) -> OpSyntax:
        """One op of either form."""
        results: list[tuple[str, int]] = []
        if self.token.kind == "value":
            while True:
                name = self.value()
                results.append((name, self.integer() if self.accept(":") else 1))
                if not self.accept(","):
                    break
            self.expect("=")
        token = self.take()
        if token.kind == "string":
            form, name = self._generic(), token.text[1:-1]
        elif token.kind == "word":
            name = {"return": "func.return", "call": "func.call", "constant": "stablehlo.constant"}.get(
                token.text, token.text
            )
            reader = FORMS.get(name)
            if reader is None and name.partition(".")[0] not in (
                "stablehlo",
                "chlo",
                "sdy",
                "func",
                "check",
                "interpreter",
            ):
                self.unsupported(f"no op '{token.text}'", token.at)
            form = reader(self) if reader is not None else plain_form(self, name)
        else:
            self.index -= 1
            self.expected("an op")
        op = OpSyntax(
            name,
            form.operands,
            results,
            form.attributes,
            form.regions,
            tuple(form.operand_types),
            tuple(form.result_types),
            token.at,
            self.optional_location(),
        )
        count = sum(n for _, n in results)
        if results and count != len(op.result_types):
            self.fail(f"{name} has {len(op.result_types)} results, but {count} are named", token.at)
        return op

    def _generic(self) -> Form:
        """``"name"(operands) <{properties}> ({regions}) {attributes} : type``."""
        form = Form()
        form.operands = self.listed(self.value, "(", ")")
        if self.token.text == "[":
            self.unsupported("branches between blocks: Rhino reads structured control flow only")
        if self.accept("<"):
            form.attributes.update(self.attributes())
            self.expect(">")
        if self.token.text == "(":
            form.regions = self.listed(self.region, "(", ")")
        form.attributes.update(self.optional_attributes())
        self.expect(":")
        type = self.function_type()
        form.operand_types, form.result_types = list(type.inputs), list(type.outputs)
        return form


def parse(text: str, name: str) -> list[ModuleSyntax]:
    """The modules of a text. Raises ProgramError or UnsupportedError with ``name:line:column``."""
    return Parser(text, name).modules()


__all__ = ["Location", "Parser", "Resource", "Symbol", "parse"]
