"""Text to modules: xDSL's parser, repaired where Rhino needs it exact. (`printing` is the way back.)

What xDSL 0.75 gets wrong, and this file puts right:

* hexadecimal elements of float literals are bit patterns (xDSL reads ``0xFF800000`` as a number, not -inf);
* literals that overflow their type, and i1 literals as packed bits, are read or refused, never misread;
* splats stay one element, whatever the tensor's size;
* locations: aliases defined after use, column ranges, metadata of fused ones; every op gets a location;
* an unclosed string is an error, not an endless search; escaped UTF-8 is read as the text that it is;
* a property among the attributes of an op that writes it in its own place is an error, not passed over;
* integers wider than MLIR has them are refused before anything computes their range;
* a use that is never defined and an unknown op are reported where they stand;
* the same type text is parsed once.

This file and `printing` are the only ones that touch xDSL's private names.
"""

from __future__ import annotations

import bisect
import difflib
import math
import re
import struct
from collections import defaultdict
from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    CallSiteLoc,
    DenseIntOrFPElementsAttr,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    LocationAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    TensorType,
    UnknownLoc,
)
from xdsl.ir import Attribute, AttributeInvT, Operation, SSAValue, TypeAttribute
from xdsl.irdl import IRDLOperation
from xdsl.parser import AttrParser, Parser, ParserState, UnresolvedOperand
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Span, Token
from xdsl.utils.mlir_lexer import (
    KIND_BY_PUNCTUATION_SPELLING,
    MLIRLexer,
    MLIRToken,
    MLIRTokenKind,
    StringLiteral,
)

from rhino.ir import dense, types
from rhino.ir.collector import collector_paused
from rhino.ir.errors import ProgramError, RhinoError

_TENSOR = re.compile(r"tensor<(?:\d+x)*(?:\w+|complex<\w+>)>")
_INTEGER = re.compile(r"(?:si|ui|i)(\d+)")
_LOCATION_ALIAS = re.compile(r"^[ \t]*(#[A-Za-z_]\w*)\s*=\s*loc(?=\()", re.MULTILINE)

#: One element of a dense literal: its text (of a complex number: its parts), whether a minus stood before it, where.
Element = tuple[Any, bool, Span]

#: Most tokens, after white space: a value, a bare identifier, or a mark that begins no longer token.
_TOKEN = re.compile(
    r"\s*+(?:(%(?:[0-9]++|[a-zA-Z$._-][a-zA-Z0-9$._-]*+))|([a-zA-Z_][a-zA-Z0-9_$.]*+)|([:,()}\[\]<>=+*?|]))",
    re.ASCII,
)
_KINDS = (MLIRTokenKind.EOF, MLIRTokenKind.PERCENT_IDENT, MLIRTokenKind.BARE_IDENT)

#: MLIR's limit of the width of integers.
_MOST_BITS = (1 << 24) - 1

#: Longest piece of a line that an error shows.
_SHOWN = 160

#: What xDSL's parser and attribute constructors raise on malformed text besides ParseError.
_FOREIGN_ERRORS = (
    VerifyException,
    ValueError,
    TypeError,
    AssertionError,
    LookupError,
    ArithmeticError,
    RecursionError,
    NotImplementedError,
    AttributeError,
    struct.error,
)


class RhinoLexer(MLIRLexer):
    """Reads most tokens by one pattern, and an unclosed string in linear time; xDSL's backtracks exponentially on one.

    The printer escapes what is not ASCII, but xDSL reads escapes of such bytes as raw bytes, which no op takes.
    """

    def lex(self) -> MLIRToken:
        match = _TOKEN.match(self.input.content, self.pos)
        if match is None:
            return super().lex()
        group = match.lastindex
        assert group is not None
        start, self.pos = match.span(group)
        kind = _KINDS[group] if group < 3 else KIND_BY_PUNCTUATION_SPELLING[match[group]]
        return Token(kind, Span(start, self.pos, self.input))

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')

    def _lex_string_literal(self, start_pos: int) -> MLIRToken:
        token = super()._lex_string_literal(start_pos)
        if token.kind == MLIRTokenKind.BYTES_LIT:
            try:
                StringLiteral.from_span(token.span).bytes_contents.decode()
            except UnicodeDecodeError:
                return token
            return Token(MLIRTokenKind.STRING_LIT, token.span)
        return token


class RhinoParser(Parser):
    """Reads MLIR text; raises ParseError, and for some mistakes what xDSL raises. Use `parse_text`."""

    def __init__(self, ctx: Context, text: str, name: str = "<text>") -> None:
        AttrParser.__init__(self, ParserState(RhinoLexer(Input(text, name))), ctx)
        self.ssa_values = {}
        self.blocks = {}
        self.forward_block_references = defaultdict(list)
        self.forward_ssa_references = {}
        self._text = text
        self._file = StringAttr(name)
        self._lines = [m.end() for m in re.finditer("\n", text)]
        self._types: dict[str, TypeAttribute] = {}
        self._first_use: dict[str, Span] = {}
        self._op_start = 0
        self._location_end = -1
        self._loc_aliases: dict[str, int] | None = None
        self._resolving: set[str] = set()

    # Where things stand.

    def position(self, at: int) -> tuple[int, int]:
        """Line and column of a position, both from 1."""
        line = bisect.bisect_right(self._lines, at)
        return line + 1, at - (self._lines[line - 1] if line else 0) + 1

    # Ops.

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        try:
            return super().parse_module(allow_implicit_module)
        except ParseError as error:
            if error.msg.startswith("values used but not defined") and self.forward_ssa_references:
                name = next(iter(self.forward_ssa_references))
                self.raise_error(f"%{name} is used but never defined", self._first_use[name])
            raise

    def parse_operation(self) -> Operation:
        start = self._op_start = self._current_token.span.start
        op = super().parse_operation()
        if isinstance(op.location, UnknownLoc) and self._location_end != self.pos:
            line, column = self.position(start)
            op.location = FileLineColLoc(self._file, IntAttr(line), IntAttr(column))
        if op.attributes:
            self._check_attributes(op, start)
        return op

    def _check_attributes(self, op: Operation, start: int) -> None:
        """Properties that an op writes in a place of their own may not be among its attributes."""
        if isinstance(op, IRDLOperation):
            for name in op.attributes.keys() & op.get_irdl_definition().properties.keys():
                at = self._text.find(name, start, self.pos)
                self.raise_error(
                    f"'{name}' of {op.name} is not written among the attributes", at, at + len(name)
                )

    def _get_op_by_name(self, name: str) -> type[Operation]:
        op = self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        if op is not None:
            return op
        known = [o.name for dialect in self.ctx.loaded_dialects for o in dialect.operations]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        at = self._text.find(name, self._op_start)
        self.raise_error(f"unknown op '{name}'{hint}", Span(at, at + len(name), self.lexer.input))

    def resolve_operand(self, operand: UnresolvedOperand, type: AttributeInvT) -> SSAValue[AttributeInvT]:
        name = operand.operand_name
        if name not in self.ssa_values:
            self._first_use.setdefault(name, operand.span)
        return super().resolve_operand(operand, type)

    # Types.

    def _parse_optional_builtin_type(self) -> TypeAttribute | None:
        token = self._current_token
        if token.kind != MLIRTokenKind.BARE_IDENT or token.text != "tensor":
            if (integer := _INTEGER.fullmatch(token.text)) and (
                len(integer[1]) > len(str(_MOST_BITS)) or int(integer[1]) > _MOST_BITS
            ):
                self.raise_error(f"integers have at most {_MOST_BITS} bits")
            return super()._parse_optional_builtin_type()
        match = _TENSOR.match(self._text, token.span.start)
        if match is None:
            return super()._parse_optional_builtin_type()
        if (known := self._types.get(match[0])) is not None:
            self._resume_from(match.end())
            return known
        type = super()._parse_optional_builtin_type()
        if type is not None:
            self._types[match[0]] = type
        return type

    # Tensor literals.

    def parse_dense_int_or_fp_elements_attr(self, type: Any) -> DenseIntOrFPElementsAttr:
        start = self.pos
        self.parse_punctuation("<", " in dense literal")
        text: str | None = None
        elements: list[Element] = []
        shape: list[int] = []
        if self.parse_optional_punctuation(">") is None:
            text = self.parse_optional_str_literal()
            if text is None:
                elements, shape = self._parse_elements()
            self.parse_punctuation(">", " in dense literal")
        else:
            shape = [0]
        known: Any = type
        if known is None:
            self.parse_punctuation(":", " in dense literal")
            known = self._parse_dense_literal_type()
        if not isinstance(known, TensorType) or types.element_name(known.element_type) not in types.NAMES:
            self._resume_from(start)
            return super().parse_dense_int_or_fp_elements_attr(type)
        try:
            if text is not None:
                return dense.from_bytes(self._hex_bytes(text), known)
            if shape == [0] and math.prod(known.get_shape()) == 0:
                return dense.dense(0, known)
            if shape and tuple(shape) != known.get_shape():
                why = f"a literal of shape {shape} for the type {types.show(known)}"
                self.raise_error(why, start, self.pos)
            values = np.array([self._element(known.element_type, *e) for e in elements])
            return dense.dense(values.reshape(shape), known)
        except ProgramError as error:
            self.raise_error(str(error), start, self.pos)

    def _hex_bytes(self, text: str) -> bytes:
        try:
            if not text.startswith("0x"):
                raise ValueError
            return bytes.fromhex(text[2:])
        except ValueError:
            raise ProgramError("a string of dense elements must be 0x and hexadecimal digits") from None

    def _parse_elements(self) -> tuple[list[Element], list[int]]:
        """Elements as ``(text, negative, span)``, and the shape; a single element has shape []."""
        rows = self.parse_optional_comma_separated_list(self.Delimiter.SQUARE, self._parse_elements)
        if rows is not None:
            if any(shape != rows[0][1] for _, shape in rows):
                self.raise_error("rows of a dense literal differ in length")
            elements = [e for row, _ in rows for e in row]
            return elements, [len(rows), *(rows[0][1] if rows else [])]
        if self._current_token.kind == MLIRTokenKind.L_PAREN:
            start = self._current_token.span.start
            with self.in_parens():
                parts = self.parse_comma_separated_list(self.Delimiter.NONE, self._parse_element)
            span = Span(start, self._current_token.span.start, self.lexer.input)
            return [(tuple(parts), False, span)], []
        return [self._parse_element()], []

    def _parse_element(self) -> Element:
        """One number, true or false, with its sign."""
        negative = self._parse_optional_token(MLIRTokenKind.MINUS) is not None
        token = self._current_token
        number = token.kind in (MLIRTokenKind.INTEGER_LIT, MLIRTokenKind.FLOAT_LIT)
        if not number and (negative or token.text not in ("true", "false")):
            self.raise_error("expected a number, true or false")
        self._consume_token()
        return token.text, negative, token.span

    def _element(self, type: Attribute, text: str | tuple[Element, ...], negative: bool, span: Span) -> Any:
        dtype = types.numpy_dtype(type)
        name = types.element_name(type)
        if isinstance(text, tuple) != types.is_complex(type) or (isinstance(text, tuple) and len(text) != 2):
            self.raise_error(f"no element of type {name}", span)
        if isinstance(text, tuple):
            re_, im = (self._element(types.real_part(type), *part) for part in text)
            return np.stack([re_, im]).view(dtype)[0]
        if text in ("true", "false"):
            if dtype != np.bool_:
                self.raise_error(f"{text} is no element of type {name}", span)
            return np.bool_(text == "true")
        is_hex = text.lower().startswith("0x")
        if types.is_float(type):
            if is_hex:
                bits = int(text, 16)
                if negative or bits >> (8 * dtype.itemsize):
                    self.raise_error(f"no bit pattern of type {name}", span)
                return np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype)[0]
            value = np.float64(-float(text) if negative else float(text))
            with np.errstate(over="ignore"):
                rounded = value.astype(dtype)
            if not np.isfinite(np.float64(rounded)):
                self.raise_error(f"{text} does not fit {name}", span)
            return rounded
        if not is_hex and not text.isdigit():
            self.raise_error(f"{text} is no element of type {name}", span)
        integer = int(text, 0 if is_hex else 10) * (-1 if negative else 1)
        if dtype == np.bool_:
            if integer not in (0, 1, -1):
                self.raise_error(f"{integer} does not fit {name}", span)
            return np.bool_(integer)
        width = 8 * dtype.itemsize
        unsigned = dtype.kind == "u"
        if not (0 if unsigned else -(1 << (width - 1))) <= integer < (1 << width):
            self.raise_error(f"{integer} does not fit {name}", span)
        if unsigned:
            return dtype.type(integer)
        # As in MLIR, a signless literal may be written as signed or unsigned.
        return np.array(integer - (1 << width) if integer >> (width - 1) > 0 else integer).astype(dtype)[()]

    # Locations.

    def parse_optional_location(self) -> LocationAttr | None:
        location = super().parse_optional_location()
        if location is not None:
            self._location_end = self.pos  # an explicit loc(unknown) stays unknown
        return location

    def _parse_location(self) -> LocationAttr:
        if self.parse_optional_keyword("unknown") is not None:
            return UnknownLoc()
        if self._current_token.kind == MLIRTokenKind.HASH_IDENT:
            return self._parse_location_alias()
        if (name := self.parse_optional_str_literal()) is not None:
            return self._parse_named_location(StringAttr(name))
        if self.parse_optional_keyword("callsite") is not None:
            with self.in_parens():
                callee = self._parse_location()
                self.parse_keyword("at")
                return CallSiteLoc(callee, self._parse_location())
        if self.parse_optional_keyword("fused") is not None:
            metadata: Attribute = NoneAttr()
            if self.parse_optional_punctuation("<") is not None:
                metadata = self.parse_attribute()
                self.parse_punctuation(">")
            parts = self.parse_comma_separated_list(self.Delimiter.SQUARE, self._parse_location)
            return FusedLoc(ArrayAttr(parts), metadata)
        self.raise_error("expected a location")

    def _parse_named_location(self, name: StringAttr) -> LocationAttr:
        if self.parse_optional_punctuation(":") is None:
            inner: Attribute = NoneAttr()
            if self._current_token.kind == MLIRTokenKind.L_PAREN:
                with self.in_parens():
                    inner = self._parse_location()
            return NameLoc(name, inner)
        line = self.parse_integer(False, False)
        self.parse_punctuation(":")
        column = self.parse_integer(False, False)
        if self.parse_optional_keyword("to") is not None:  # a range; its start says enough
            self.parse_optional_integer(False, False)
            self.parse_punctuation(":")
            self.parse_integer(False, False)
        return FileLineColLoc(name, IntAttr(line), IntAttr(column))

    def _parse_location_alias(self) -> LocationAttr:
        token = self._consume_token(MLIRTokenKind.HASH_IDENT)
        name = token.text
        known = self.attribute_aliases.get(name)
        if isinstance(known, LocationAttr):
            return known
        if self._loc_aliases is None:
            self._loc_aliases = {m[1]: m.end() for m in _LOCATION_ALIAS.finditer(self._text)}
        if name not in self._loc_aliases or name in self._resolving:
            self.raise_error(f"{name} is no location", token.span)
        back = self.pos
        self._resolving.add(name)
        try:
            self._resume_from(self._loc_aliases[name])
            with self.in_parens():
                return self._parse_location()
        finally:
            self._resolving.discard(name)
            self._resume_from(back)


def text_in_angles(parser: AttrParser) -> str:
    """The raw text between the coming `<` and its `>`, both passed over: for attributes that read themselves."""
    return parser._parse_dialect_symbol_body()


def parse_text(ctx: Context, text: str, name: str = "<text>") -> ModuleOp:
    """Read a module without verifying it. Raises ProgramError with ``file:line:column`` and the line."""
    try:
        parser = RhinoParser(ctx, text, name)  # lexes the first token
    except ParseError as error:
        raise _located(text, name, error.msg, error.span.start) from error
    try:
        with collector_paused():
            return parser.parse_module()
    except ParseError as error:
        message = error.msg.replace("Could not parse entire input!", "expected an op")
        raise _located(text, name, message, error.span.start) from error
    except RhinoError as error:
        raise _located(text, name, error.message, parser.pos, error.remedy) from error
    except _FOREIGN_ERRORS as error:
        deep = isinstance(error, RecursionError)
        what = "nested too deeply" if deep else str(error) or type(error).__name__
        raise _located(text, name, what, parser.pos) from error


def _located(text: str, name: str, message: str, at: int, remedy: str | None = None) -> ProgramError:
    """An error at a position of the text, with the line and a pointer under it."""
    line = text.count("\n", 0, at) + 1
    start = text.rfind("\n", 0, at) + 1
    column = at - start
    shown = text[start:].partition("\n")[0]
    if len(shown) > _SHOWN:  # a huge literal would bury the message
        cut = max(0, column - _SHOWN // 2)
        shown = shown[cut : cut + _SHOWN]
    else:
        cut = 0
    pointer = "".join(c if c == "\t" else " " for c in shown[: column - cut]) + "^"
    message = f"{message.rstrip()}\n    {shown}\n    {pointer}"
    return ProgramError(message, where=f"{name}:{line}:{column + 1}", remedy=remedy)


def show_location(location: Attribute) -> str | None:
    """Short text of a location for messages (``file:line:col``, a name), or None if unknown."""
    if isinstance(location, FileLineColLoc):
        column = f":{location.column.data}" if location.column.data else ""  # 0: it is not known
        return f"{location.filename.data}:{location.line.data}{column}"
    if isinstance(location, NameLoc):
        inner = show_location(location.location)
        return f"{location.desc.data} ({inner})" if inner else location.desc.data
    if isinstance(location, CallSiteLoc):
        return show_location(location.callee) or show_location(location.caller)
    if isinstance(location, FusedLoc) and isinstance(location.locations, ArrayAttr):
        return next(filter(None, map(show_location, location.locations)), None)
    return None
