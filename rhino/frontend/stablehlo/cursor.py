"""A cursor over tokens, and the parser of types, attributes and locations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from rhino.frontend.stablehlo.lexer import Token, place, tokenize
from rhino.frontend.stablehlo.syntax import (
    FunctionSyntax,
    Literal,
    Location,
    OtherType,
    Resource,
    Struct,
    Symbol,
    TensorSyntax,
    TypeSyntax,
    Word,
)
from rhino.ir.errors import ProgramError, UnsupportedError

T = TypeVar("T")

_BUILTIN = re.compile(r"(?:s|u)?i\d+|f\d+\w*|bf16|tf32|index|none")
_EXTENTS = re.compile(r"(?:(?:\d+|\?)x)*")
_ESCAPE = re.compile(rb"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_OPEN = {"(": ")", "[": "]", "{": "}", "<": ">"}

#: Nesting beyond which text is refused, well before Python's own limit.
_DEEPEST = 120


def unescape(text: str) -> str:
    """The string that a string literal (with its quotes) stands for."""
    if "\\" not in text:
        return text[1:-1]
    letters = {b"n": b"\n", b"t": b"\t"}
    raw = _ESCAPE.sub(
        lambda m: bytes([int(m[1], 16)]) if m[1] else letters.get(m[2], m[2]), text[1:-1].encode()
    )
    return raw.decode("utf-8", "replace")


class Cursor:
    """Reads tokens one by one. Its errors say ``name:line:column``."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.file = text, name
        self.tokens = tokenize(text, name)
        self.index = 0
        self.aliases: dict[str, Any] = {}
        self.location_aliases: dict[str, Location] = {}
        self._types: dict[str, TensorSyntax] = {}
        self._depth = 0

    # Tokens.

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        """Raise a ProgramError at a position, by default that of the current token."""
        raise ProgramError(message, where=place(self.text, self.file, self.token.at if at is None else at))

    def unsupported(self, message: str, at: int | None = None) -> NoReturn:
        """Raise an UnsupportedError at a position."""
        raise UnsupportedError(
            message, where=place(self.text, self.file, self.token.at if at is None else at)
        )

    def expected(self, what: str) -> NoReturn:
        found = self.token.text or "the end of the text"
        self.fail(f"expected {what}, found {found[:60]}")

    def take(self) -> Token:
        token = self.tokens[self.index]
        if token.kind != "end":
            self.index += 1
        return token

    def accept(self, text: str) -> bool:
        """Pass over a punctuation or word if it comes next."""
        token = self.tokens[self.index]
        if token.text == text and token.kind in ("punct", "word"):
            self.index += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.expected(f"'{text}'")

    def kind(self, kind: str, what: str) -> Token:
        if self.token.kind != kind:
            self.expected(what)
        return self.take()

    def listed(self, item: Callable[[], T], opening: str, closing: str) -> list[T]:
        """Items between commas and brackets; a comma may follow the last."""
        self.expect(opening)
        out: list[T] = []
        while not self.accept(closing):
            out.append(item())
            if not self.accept(","):
                self.expect(closing)
                break
        return out

    def raw(self) -> str:
        """The text between the coming opening bracket and its partner, both passed over."""
        start = self.token
        if start.text not in _OPEN:
            self.expected("a bracket")
        stack = [_OPEN[self.take().text]]
        while stack:
            token = self.take()
            if token.kind == "end":
                self.fail(f"'{start.text}' is never closed", start.at)
            if token.kind != "punct":
                continue
            if token.text in _OPEN:
                stack.append(_OPEN[token.text])
            elif token.text == stack[-1]:
                stack.pop()
            elif token.text in _OPEN.values():
                self.fail(f"'{token.text}' closes nothing", token.at)
        return self.text[start.at + 1 : self.tokens[self.index - 1].at]

    # Values.

    def value(self) -> str:
        return self.kind("value", "a value").text

    def symbol(self) -> str:
        text = self.kind("symbol", "a symbol").text[1:]
        return unescape(text) if text.startswith('"') else text

    def string(self) -> str:
        return unescape(self.kind("string", "a string").text)

    def integer(self) -> int:
        token = self.kind("number", "an integer")
        try:
            return int(token.text, 16 if "x" in token.text else 10)
        except ValueError:
            self.fail(f"expected an integer, found {token.text}", token.at)

    def integers(self) -> list[int]:
        return self.listed(self.integer, "[", "]")

    def word(self) -> str:
        return self.kind("word", "a word").text

    def boolean(self) -> bool:
        if self.accept("true"):
            return True
        self.expect("false")
        return False

    def booleans(self) -> list[bool]:
        return self.listed(self.boolean, "[", "]")

    # Types.

    def type(self) -> TypeSyntax:
        token = self.token
        if token.kind == "tensor":
            return self.tensor()
        if token.text == "(":
            return self.function_type()
        if token.kind == "type":
            self.take()
            inner = f"<{self.raw()}>" if self.token.text == "<" else ""
            return OtherType(token.text + inner)
        if token.kind == "word":
            self.take()
            if self.token.text == "<":
                inner = self.raw()
                if token.text == "tensor":
                    what = "a quantised type" if "!quant" in inner else "this tensor type"
                    self.unsupported(f"tensor<{inner}>: Rhino does not compute with {what}", token.at)
                return OtherType(f"{token.text}<{inner}>")
            if _BUILTIN.fullmatch(token.text):
                return OtherType(token.text)
            self.fail(f"no type '{token.text}'", token.at)
        self.expected("a type")

    def tensor(self) -> TensorSyntax:
        token = self.kind("tensor", "a tensor type")
        known = self._types.get(token.text)
        if known is None:
            body = token.text[7:-1]
            extents = _EXTENTS.match(body)
            assert extents is not None  # it may be empty
            shape = tuple(None if e == "?" else int(e) for e in extents[0].split("x")[:-1])
            known = TensorSyntax(shape, body[extents.end() :])
            self._types[token.text] = known
        return known

    def function_type(self) -> FunctionSyntax:
        inputs = self.listed(self.type, "(", ")")
        self.expect("->")
        return FunctionSyntax(tuple(inputs), tuple(self.result_types()))

    def result_types(self) -> list[TypeSyntax]:
        """``(types)`` or a single type."""
        return self.listed(self.type, "(", ")") if self.token.text == "(" else [self.type()]

    # Attributes.

    def attributes(self) -> dict[str, Any]:
        """``{name = attribute, ...}``."""
        out: dict[str, Any] = {}

        def item() -> None:
            token = self.take()
            if token.kind not in ("word", "string"):
                self.fail(f"expected an attribute's name, found {token.text}", token.at)
            name = unescape(token.text) if token.kind == "string" else token.text
            out[name] = self.attribute() if self.accept("=") else True

        self.listed(item, "{", "}")
        return out

    def optional_attributes(self) -> dict[str, Any]:
        return self.attributes() if self.token.text == "{" else {}

    def attribute(self) -> Any:
        """An attribute as a Python value: see `syntax`. A number loses its type."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self.fail("nested too deeply")
        try:
            return self._attribute()
        finally:
            self._depth -= 1

    def _attribute(self) -> Any:
        token = self.token
        if token.kind == "number":
            value = self.number()
            if self.accept(":"):
                self.type()
            return value
        if token.kind == "string":
            text = self.string()
            if self.accept(":"):
                self.type()
            return text
        if token.kind == "symbol":
            name = self.symbol()
            while self.accept("::"):
                name += "::" + self.symbol()
            return Symbol(name)
        if token.kind == "hash":
            return self._dialect_attribute()
        if token.kind in ("tensor", "type") or token.text == "(":
            return self.type()
        if token.text == "[":
            return self.listed(self.attribute, "[", "]")
        if token.text == "{":
            return self.attributes()
        if token.kind == "word":
            return self._keyword()
        self.expected("an attribute")

    def number(self) -> int | float:
        """A number without a type."""
        token = self.kind("number", "a number")
        wide = any(c in token.text for c in ".eE") and "x" not in token.text
        return float(token.text) if wide else int(token.text, 16 if "x" in token.text else 10)

    def _keyword(self) -> Any:
        token = self.token
        if token.text in ("true", "false"):
            return self.boolean()
        if token.text == "dense":
            return self.literal()
        if token.text == "dense_resource":
            self.take()
            self.expect("<")
            name = self.take().text
            self.expect(">")
            self.expect(":")
            return Resource(name, self.tensor(), token.at)
        if token.text == "array":
            self.take()
            return self._array()
        if token.text == "unit":
            self.take()
            return True
        if token.text == "loc":
            return self.location()
        if _BUILTIN.fullmatch(token.text) or self.peek().text == "<":
            return self.type()
        return Word(self.take().text)

    def _array(self) -> list[Any]:
        """``array<i64: 1, 2>``: the list of its elements."""
        self.expect("<")
        self.word()
        out: list[Any] = []
        if self.accept(":"):
            while True:
                out.append(self.boolean() if self.token.kind == "word" else self.number())
                if not self.accept(","):
                    break
        self.expect(">")
        return out

    def _dialect_attribute(self) -> Any:
        token = self.take()
        name = token.text[1:]
        if self.token.text == "<":
            return self._struct(name)
        if token.text in self.aliases:
            return self.aliases[token.text]
        if "." in name:
            return Struct(name, "")
        if token.text in self.location_aliases:
            return self.location_aliases[token.text]
        self.fail(f"{token.text} is not defined before its use", token.at)

    def _struct(self, name: str) -> Struct:
        """The fields of ``#name<field = value, ...>`` where it is of that form, its text in any case."""
        start = self.index
        text = self.raw()
        end = self.index
        fields: dict[str, Any] = {}
        raw = int(self.tokens[start + 1].text == "raw")  # convolution's dimensions by name
        first, second = self.tokens[start + 1 + raw], self.tokens[start + 2 + raw]
        if first.kind == "word" and second.text == "=" and not name.startswith("sdy."):
            self.index = start + 1 + raw
            self._field(fields)
            while self.accept(","):
                self._field(fields)
            self.expect(">")
            self.index = end
        return Struct(name, text, fields)

    def _field(self, fields: dict[str, Any]) -> None:
        name = self.word()
        if not self.accept("="):
            fields[name] = True
            return
        if self.token.text == "(":  # a sub-axis: (1)2
            self.expect("(")
            before = self.integer()
            self.expect(")")
            fields[name] = (before, self.integer())
            return
        fields[name] = self.attribute()

    # Tensor literals.

    def literal(self) -> Literal:
        """``dense<...> : type``."""
        at = self.token.at
        self.expect("dense")
        self.expect("<")
        data: bytes | None = None
        elements: list[Any] = []
        shape: tuple[int, ...] = ()
        if self.token.text == ">":
            shape = (0,)
        elif self.token.kind == "string":
            data = self.hexadecimal(self.take())
        else:
            shape = self._elements(elements, 0)
        self.expect(">")
        self.expect(":")
        if self.token.kind != "tensor":
            self.type()  # says what is unsupported about it
            self.expected("a tensor type")
        return Literal(tuple(elements), shape, data, self.tensor(), at)

    def hexadecimal(self, token: Token) -> bytes:
        """The bytes of a string ``"0x..."``."""
        try:
            if not token.text.startswith('"0x'):
                raise ValueError
            return bytes.fromhex(token.text[3:-1])
        except ValueError:
            self.fail("a string of elements must be 0x and hexadecimal digits", token.at)

    def _elements(self, out: list[Any], depth: int) -> tuple[int, ...]:
        """Append the elements of nested lists and return their shape."""
        if depth > _DEEPEST:
            self.fail("nested too deeply")
        token = self.token
        if token.text == "(":  # a complex element
            self.take()
            real = self._scalar()
            self.expect(",")
            out.append((real, self._scalar()))
            self.expect(")")
            return ()
        if token.text != "[":
            out.append(self._scalar())
            return ()
        shapes = self.listed(lambda: self._elements(out, depth + 1), "[", "]")
        if any(shape != shapes[0] for shape in shapes):
            self.fail("rows of a literal differ in length", token.at)
        return (len(shapes), *(shapes[0] if shapes else ()))

    def _scalar(self) -> str:
        token = self.take()
        if token.kind == "number" or token.text in ("true", "false"):
            return token.text
        self.fail(f"expected a number, true or false, found {token.text}", token.at)

    # Locations.

    def optional_location(self) -> Location | None:
        return self.location() if self.token.text == "loc" and self.peek().text == "(" else None

    def location(self) -> Location:
        """``loc(...)``; of a fused one the first part that says something."""
        self.expect("loc")
        self.expect("(")
        found = self._location_inside()
        self.expect(")")
        return found

    def _location_inside(self) -> Location:
        token = self.token
        if token.kind == "hash":
            self.take()
            return self.location_aliases.get(token.text) or Location(alias=token.text)
        if token.kind == "string":
            return self._named_location()
        if self.accept("unknown"):
            return Location()
        if self.accept("callsite"):
            self.expect("(")
            callee = self._location_inside()
            self.expect("at")
            caller = self._location_inside()
            self.expect(")")
            return callee if callee != Location() else caller
        if self.accept("fused"):
            if self.token.text == "<":
                self.raw()
            parts = self.listed(self._location_inside, "[", "]")
            return next((p for p in parts if p != Location()), Location())
        self.expected("a location")

    def _named_location(self) -> Location:
        name = self.string()
        if self.accept(":"):
            line = self.integer()
            self.expect(":")
            column = self.integer()
            if self.accept("to"):
                if self.token.kind == "number":
                    self.integer()
                self.expect(":")
                self.integer()
            return Location(file=name, line=line, column=column)
        if self.token.text == "(":
            self.expect("(")
            inner = self._location_inside()
            self.expect(")")
            return Location(name, inner.file, inner.line, inner.column, inner.alias)
        return Location(name)
