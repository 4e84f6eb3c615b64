"""StableHLO syntax to `hlo`: functions are inlined, every op goes through the table of its dialect."""

from __future__ import annotations

import bisect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from xdsl.dialects.builtin import (
    Attribute,
    FileLineColLoc,
    IntAttr,
    LocationAttr,
    NameLoc,
    NoneAttr,
    StringAttr,
)
from xdsl.ir import Block, Region, SSAValue
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from rhino.dialects.builder import Builder
from rhino.dialects.hlo import Hlo
from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.composite import YieldOp
from rhino.dialects.hlo.constant import ConstantOp
from rhino.dialects.hlo.regions import RegionOp
from rhino.frontend.stablehlo import literals
from rhino.frontend.stablehlo.lexer import place
from rhino.frontend.stablehlo.narrow import KEEPING, NARROW, OF_BITS, Narrow, finished, prepared, wrapped
from rhino.frontend.stablehlo.syntax import (
    Body,
    FunctionDef,
    Literal,
    Location,
    ModuleSyntax,
    OpSyntax,
    Resource,
    Struct,
    TensorSyntax,
    TypeSyntax,
    Word,
)
from rhino.ir import types
from rhino.ir.errors import ProgramError, RhinoError, RhinoWarning, UnsupportedError

Values = Sequence[SSAValue]
Handler = Callable[["Importer", OpSyntax, list[SSAValue]], Values]
Env = dict[str, SSAValue]

#: `hlo` ops by name, so that an op's absence is a message and not an import error.
OPS: dict[str, type[HloOp]] = {op.name: op for op in Hlo.operations if issubclass(op, HloOp)}

#: What reading an op raises that lacks an operand or has an attribute of another kind.
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, VerifyException)

#: Ops that only order others in time.
_TOKENS = ("stablehlo.after_all", "stablehlo.create_token")
_TERMINATORS = ("stablehlo.return", "func.return", "sdy.return")


@dataclass(frozen=True)
class Check:
    """A check that the text asks for: two values that should agree.

    Attributes:
        kind: ``eq``, ``almost_eq`` or ``close``.
        actual, expected: the values.
        tolerance: largest difference of ``almost_eq``; for ``close`` the most units in the last place.
    """

    kind: str
    actual: SSAValue
    expected: SSAValue
    tolerance: float


class Importer:
    """Converts functions of one module. Handlers use its methods to read attributes and to complain."""

    def __init__(self, syntax: ModuleSyntax, text: str, name: str, handlers: Mapping[str, Handler]) -> None:
        self.syntax, self.text, self.name = syntax, text, name
        self.handlers = handlers
        self.b = Builder(InsertPoint.at_end(Block()))
        self.checks: list[Check] = []
        self.probes: dict[str, list[SSAValue]] = {}
        self.shardings: list[tuple[SSAValue, Any, int]] = []
        self._env: Env = {}
        self._tuples: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._tokens: set[str] = set()
        self._calls: list[str] = []
        self._types: dict[TypeSyntax, types.Type] = {}
        self._lines = [m.end() for m in re.finditer("\n", text)]
        self._file = StringAttr(name)
        self._warned: set[str] = set()
        self._depth = 0

    # Complaints.

    def where(self, at: int) -> str:
        return place(self.text, self.name, at)

    def fail(self, op: OpSyntax, message: str, remedy: str | None = None) -> NoReturn:
        """Raise a ProgramError at an op."""
        raise ProgramError(f"{op.name}: {message}", where=self.where(op.at), remedy=remedy)

    def unsupported(self, op: OpSyntax, message: str, remedy: str | None = None) -> NoReturn:
        """Raise an UnsupportedError at an op."""
        raise UnsupportedError(f"{op.name}: {message}", where=self.where(op.at), remedy=remedy)

    def warn(self, at: int, message: str) -> None:
        """Warn once for each message."""
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(f"{self.where(at)}: {message}", RhinoWarning, stacklevel=2)

    # Types, constants, ops.

    def type(self, syntax: TypeSyntax, at: int) -> types.Type:
        """Rhino's type. Raises UnsupportedError for what it has no type for: tokens, tuples, dynamic extents."""
        known = self._types.get(syntax)
        if known is not None:
            return known
        if not isinstance(syntax, TensorSyntax):
            raise UnsupportedError(
                f"a value of type {syntax}: Rhino computes with tensors only", where=self.where(at)
            )
        if None in syntax.shape:
            raise UnsupportedError(
                f"{syntax} has a dynamic extent",
                where=self.where(at),
                remedy="lower the program for fixed shapes",
            )
        narrow = NARROW.get(syntax.element)
        if syntax.element not in types.NAMES and narrow is None:
            raise UnsupportedError(
                f"{syntax}: Rhino does not compute with element type {syntax.element}", where=self.where(at)
            )
        shape = [n for n in syntax.shape if n is not None]
        type = types.tensor(shape, narrow.storage if narrow else types.element(syntax.element))
        self._types[syntax] = type
        return type

    def result(self, op: OpSyntax, index: int = 0) -> types.Type:
        """The declared type of a result."""
        if index >= len(op.result_types):
            self.fail(op, "has no result type")
        return self.type(op.result_types[index], op.at)

    def literal(self, op: OpSyntax, value: Any) -> np.ndarray:
        """A tensor literal or resource as an array of its full shape."""
        if isinstance(value, Resource):
            data = self.syntax.resources.get(value.name)
            if data is None:
                self.unsupported(op, f"the data of resource {value.name} are not in the text")
            value = Literal((), (), data, value.type, value.at)
        if not isinstance(value, Literal):
            self.fail(op, "expected a tensor literal")
        type = self.type(value.type, value.at)
        try:
            return np.broadcast_to(literals.array(value, type), type.get_shape())
        except ProgramError as error:
            raise ProgramError(error.message, where=self.where(value.at), remedy=error.remedy) from None

    def emit(
        self,
        op: OpSyntax,
        name: str,
        operands: Values,
        properties: Mapping[str, Attribute] | None = None,
    ) -> Values:
        """Build the op ``hlo.<name>``. Raises UnsupportedError when Rhino has none."""
        kind = OPS.get(f"hlo.{name}")
        if kind is None:
            self.unsupported(op, f"Rhino has no op hlo.{name}")
        return self.b.emit(kind, operands, properties).results

    # Attributes.

    def ints(self, op: OpSyntax, name: str, default: Sequence[int] | None = None) -> list[int]:
        """A list of integers, however it was written: ``array<i64: 1>``, ``[1]`` or ``dense<1>``."""
        value = op.attributes.get(name)
        if value is None:
            if default is None:
                self.fail(op, f"needs the attribute {name}")
            return list(default)
        if isinstance(value, Literal):
            return [int(v) for v in self.literal(op, value).reshape(-1)]
        if isinstance(value, int):
            return [int(value)]
        if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
            self.fail(op, f"{name} must be a list of integers")
        return [int(v) for v in value]

    def pairs(self, op: OpSyntax, name: str, count: int) -> list[tuple[int, int]]:
        """An n x 2 table of integers, zeros where it is left out."""
        value = op.attributes.get(name)
        if value is None:
            return [(0, 0)] * count
        if isinstance(value, Literal):
            value = self.literal(op, value).reshape(-1, 2).tolist()
        if not isinstance(value, list) or any(not isinstance(v, list) or len(v) != 2 for v in value):
            self.fail(op, f"{name} must be a table of pairs")
        return [(int(low), int(high)) for low, high in value]

    def integer(self, op: OpSyntax, name: str, default: int | None = None) -> int:
        value = op.attributes.get(name, default)
        if not isinstance(value, int):
            self.fail(op, f"needs the integer attribute {name}")
        return int(value)

    def word(self, op: OpSyntax, name: str, default: str = "") -> str:
        """An enumeration's value: ``EQ`` or ``#stablehlo<comparison_direction EQ>``; in capitals."""
        value = op.attributes.get(name, default)
        found = (
            value.word() if isinstance(value, Struct) else value.text if isinstance(value, Word) else value
        )
        if not isinstance(found, str) or (not found and not default and name not in op.attributes):
            return default
        return found.upper()

    def fields(self, op: OpSyntax, name: str) -> Mapping[str, Any]:
        """What a structured attribute such as ``#stablehlo.gather<...>`` says."""
        value = op.attributes.get(name)
        if not isinstance(value, Struct):
            self.fail(op, f"needs the attribute {name}")
        return value.fields

    # Ops, blocks, functions.

    def lookup(self, op: OpSyntax, name: str) -> SSAValue:
        value = self._env.get(name)
        if value is None and (name in self._tokens or name in self._tuples):
            self.unsupported(op, f"of the token or tuple {name}: Rhino computes with tensors only")
        if value is None:
            self.fail(op, f"{name} is used but not defined before")
        return value

    def op(self, op: OpSyntax) -> None:
        """Convert one op and bind its results."""
        if op.name in _TOKENS:
            self._tokens.update(name for name, _ in op.results)
            return
        if op.name == "stablehlo.tuple":
            self._tuples.update({name: (self._depth, tuple(op.operands)) for name, _ in op.results})
            return
        handler = self.handlers.get(op.name)
        if handler is None:
            self.unsupported(op, "Rhino does not read this op")
        names = self._element(op) if op.name == "stablehlo.get_tuple_element" else op.operands
        operands = [self.lookup(op, name) for name in names]
        with self.b.at(self.location(op)):
            try:
                results = self._handled(handler, op, operands)
            except RhinoError as error:
                if error.where is None:
                    error.where = self.where(op.at)
                    error.args = (error.message,)
                raise
            except _MALFORMED as error:
                self.fail(op, f"its operands, attributes or regions do not fit it ({error})")
        self.bind(op, results)

    def _element(self, op: OpSyntax) -> list[str]:
        """The name of the value that an element of a tuple stands for."""
        depth, known = self._tuples.get(op.operands[0], (0, ())) if op.operands else (0, ())
        index = self.integer(op, "index")
        if depth != self._depth or not 0 <= index < len(known):
            self.unsupported(op, "of a tuple that no stablehlo.tuple makes in the same region")
        return [known[index]]

    def _handled(self, handler: Handler, op: OpSyntax, operands: list[SSAValue]) -> Values:
        """The handler's results; integers of 2 and 4 bits, which it takes for 8 bits, are wrapped around."""
        narrow = [_narrow(t) for t in op.result_types]
        if op.name == "stablehlo.bitcast_convert" and any(
            _narrow(t) for t in (*op.operand_types, *op.result_types)
        ):
            self.unsupported(op, "the bits of integers of less than a byte")
        if not any(narrow):
            return handler(self, op, operands)
        if op.name in OF_BITS and narrow[0] is not None:
            first = prepared(self.b, op.name, operands[0], narrow[0])
            (found,) = handler(self, op, [first, *operands[1:]])
            return [finished(self.b, op.name, found, narrow[0])]
        results = handler(self, op, operands)
        if op.name in KEEPING:
            return results
        return [v if n is None else wrapped(self.b, v, n) for v, n in zip(results, narrow, strict=True)]

    def bind(self, op: OpSyntax, results: Values) -> None:
        """Give the results their names, and check that they have the types that the text declares."""
        if len(results) != len(op.result_types):
            self.fail(op, f"{len(op.result_types)} result types for {len(results)} results")
        for i, (value, declared) in enumerate(zip(results, op.result_types, strict=True)):
            want = self.type(declared, op.at)
            if value.type != want:
                self.fail(
                    op, f"result {i} is declared as {types.show(want)}, but is {types.show(value.type)}"
                )
        at = 0
        for name, count in op.results:
            if count == 1:
                self._env[name] = results[at]
            for i in range(count):
                self._env[f"{name}#{i}"] = results[at + i]
            at += count
        if op.results and len(op.results) == len(results):
            for (name, _), value in zip(op.results, results, strict=True):
                if value.name_hint is None and (name[1].isalpha() or name[1] == "_"):
                    value.name_hint = re.sub(r"[^\w$]", "_", name[1:])

    def location(self, op: OpSyntax) -> LocationAttr:
        """Where the user's program made the op, if the text says so, else where it stands in the text."""
        found, hops = op.location, 0
        while found is not None and found.alias and hops < 32:
            alias = self.syntax.locations.get(found.alias)
            name, found, hops = found.name, alias, hops + 1
            if found is not None and name:
                found = Location(name, found.file, found.line, found.column, found.alias)
        if found is not None and (found.file or found.name):
            inner = FileLineColLoc(StringAttr(found.file), IntAttr(found.line), IntAttr(found.column))
            if not found.name:
                return inner
            return (
                NameLoc(StringAttr(found.name), inner)
                if found.file
                else NameLoc(StringAttr(found.name), NoneAttr())
            )
        line = bisect.bisect_right(self._lines, op.at)
        column = op.at - (self._lines[line - 1] if line else 0)
        return FileLineColLoc(self._file, IntAttr(line + 1), IntAttr(column + 1))

    def run(self, body: Body, arguments: Values) -> list[SSAValue]:
        """Convert a block's ops where the builder stands; the values that its terminator takes."""
        for argument, value in zip(body.arguments, arguments, strict=True):
            self._env[argument.name] = value
        for op in body.ops:
            if op.name in _TERMINATORS:
                return [self.lookup(op, name) for name in op.operands]
            self.op(op)
        return []

    def regions(self, op: OpSyntax, bodies: Sequence[Body]) -> tuple[list[SSAValue], list[Region]]:
        """Isolated regions that take the bodies' arguments, then the values that they read from outside.

        Returns those values, which become operands of the op. Constants are made anew inside.
        """
        names = [n for n in captured(bodies) if n in self._env]
        fixed = [n for n in names if not isinstance(self._env[n].owner, ConstantOp)]
        out = []
        for body in bodies:
            own = [self.type(a.type, op.at) for a in body.arguments]
            block = Block(arg_types=[*own, *(self._env[n].type for n in fixed)])
            with self._inside(block):
                for name in names:
                    owner = self._env[name].owner
                    if isinstance(owner, ConstantOp):
                        self._env[name] = self.b.emit1(ConstantOp, [], owner.properties)
                self._env.update(zip(fixed, block.args[len(own) :], strict=True))
                values = self.run(body, block.args[: len(own)])
                self.b.insert(YieldOp.create(operands=values))
            out.append(Region(block))
        return [self._env[n] for n in fixed], out

    def emit_regions(
        self,
        op: OpSyntax,
        name: str,
        operands: Values,
        properties: Mapping[str, Attribute],
        regions: Sequence[Region],
    ) -> Values:
        """Build the op ``hlo.<name>`` with regions. Raises UnsupportedError when Rhino has none."""
        kind = OPS.get(f"hlo.{name}")
        if kind is None or not issubclass(kind, RegionOp):
            self.unsupported(op, f"Rhino has no op hlo.{name}")
        return self.b.emit_regions(kind, operands, dict(properties), regions)

    @contextmanager
    def scope(self, env: Env) -> Iterator[None]:
        """Read and bind names in another environment."""
        saved, self._env = self._env, env
        try:
            yield
        finally:
            self._env = saved

    @property
    def in_region(self) -> bool:
        """Whether ops are being built inside of another op."""
        return self._depth > 0

    @contextmanager
    def _inside(self, block: Block) -> Iterator[None]:
        """Build at the end of a block; names bound inside are forgotten afterwards."""
        point, env = self.b.point, dict(self._env)
        self.b.point = InsertPoint.at_end(block)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self.b.point, self._env = point, env

    def function(self, op: OpSyntax | None, name: str, arguments: Values) -> list[SSAValue]:
        """Convert the body of a function where the builder stands, for these arguments."""
        function = self.syntax.functions.get(name)
        at = op.at if op is not None else self.syntax.at
        if function is None:
            raise ProgramError(f"there is no function @{name}", where=self.where(at))
        if name in self._calls:
            raise UnsupportedError(f"@{name} calls itself", where=self.where(at))
        self._check_arguments(function, arguments, at)
        env, self._env = self._env, {}
        self._calls.append(name)
        try:
            return self.run(function.body, arguments)
        finally:
            self._env = env
            self._calls.pop()

    def _check_arguments(self, function: FunctionDef, arguments: Values, at: int) -> None:
        wanted = [self.type(a.type, function.at) for a in function.body.arguments]
        given = [v.type for v in arguments]
        if wanted != given:
            raise ProgramError(
                f"@{function.name} takes {', '.join(map(types.show, wanted)) or 'nothing'}, "
                f"but is given {', '.join(map(types.show, given)) or 'nothing'}",
                where=self.where(at),
            )


def _narrow(type: TypeSyntax) -> Narrow | None:
    return NARROW.get(type.element) if isinstance(type, TensorSyntax) else None


def captured(bodies: Sequence[Body]) -> list[str]:
    """Names that the bodies read but do not define, in order of first use."""
    out: dict[str, None] = {}

    def visit(body: Body, defined: set[str]) -> None:
        defined = defined | {a.name for a in body.arguments}
        for op in body.ops:
            out.update(dict.fromkeys(n for n in op.operands if n not in defined))
            for inner in op.regions:
                visit(inner, defined)
            for name, count in op.results:
                defined |= {name, *(f"{name}#{i}" for i in range(count))}

    for body in bodies:
        visit(body, set())
    return list(out)
