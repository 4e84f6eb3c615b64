"""``chlo.scan``: a loop over the slices of tensors that carries values, read as the ``stablehlo.while`` that it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from xdsl.ir import SSAValue

from rhino.frontend.stablehlo.importer import Importer, Values
from rhino.frontend.stablehlo.syntax import Argument, Body, Literal, OpSyntax, TensorSyntax, TypeSyntax
from rhino.ir import types

_COUNTER, _BIT = TensorSyntax((), "i64"), TensorSyntax((), "i1")

#: A value: its name and type.
Value = tuple[str, TypeSyntax]


class _Ops:
    """A list of ops that grows; `names` are those that its results get."""

    def __init__(self, at: int, names: Iterator[str]) -> None:
        self._at, self._names = at, names
        self.ops: list[OpSyntax] = []

    def emit(
        self, short: str, operands: Sequence[Value], type: TypeSyntax, name: str = "", **attributes: Any
    ) -> Value:
        """An op of one result, which may be given a name."""
        result = name or next(self._names)
        self._add(short, operands, [(result, 1)], (type,), attributes)
        return result, type

    def number(self, value: int, type: TensorSyntax = _COUNTER) -> Value:
        text: Any = (str(value), "0") if type.element.startswith("complex") else str(value)
        return self.emit("constant", [], type, value=Literal((text,), (), None, type, self._at))

    def end(self, operands: Sequence[Value]) -> None:
        self._add("return", operands, [], (), {})

    def _add(
        self,
        short: str,
        operands: Sequence[Value],
        results: list[tuple[str, int]],
        kinds: tuple[TypeSyntax, ...],
        attributes: dict[str, Any],
    ) -> None:
        names, given = [name for name, _ in operands], tuple(type for _, type in operands)
        self.ops.append(
            OpSyntax(f"stablehlo.{short}", names, results, attributes, [], given, kinds, self._at)
        )


def scan(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """Every step takes one slice of each input along `dimension` and the carried values, and yields one slice of each
    output and the next carried values."""
    count, carried = ctx.ints(op, "operandSegmentSizes")
    dim, body = ctx.integer(op, "dimension"), op.regions[0]
    extents = {types.shape_of(x)[dim] for x in operands[:count]}
    outputs = op.result_types[: len(op.result_types) - carried]
    if len(extents) != 1 or not body.ops or len(body.ops[-1].operands) != len(op.result_types):
        ctx.fail(op, "needs inputs of one extent, and a body that yields what it returns")
    (extent,) = extents
    names = (f"%scan.{op.at}.{i}" for i in itertools.count())
    start = _Ops(op.at, names)
    empty = [start.number(0, type) for type in outputs if isinstance(type, TensorSyntax)]
    inits = list(zip(op.operands[count:], op.operand_types[count:], strict=True))
    values = [start.number(0), *inits, *empty]
    kinds = tuple(type for _, type in values)
    # The body finds the carried values under its own names.
    arguments = [Argument(next(names), type) for type in kinds]
    arguments[1 : 1 + carried] = body.arguments[count:]
    results = [next(names) for _ in values]
    inputs = list(zip(op.operands[:count], op.operand_types[:count], strict=True))
    regions = [
        _condition(_Ops(op.at, names), arguments, extent),
        _step(_Ops(op.at, names), body, arguments, inputs, dim, extent - 1 if _reversed(op) else None),
    ]
    given = [name for name, _ in values]
    loop = OpSyntax("stablehlo.while", given, [(n, 1) for n in results], {}, regions, kinds, kinds, op.at)
    if extent:
        start.ops.append(loop)
    else:
        results = given
    for each in start.ops:
        ctx.op(each)
    found = [ctx.lookup(op, name) for name in results[1:]]
    return found[carried:] + found[:carried]


def _reversed(op: OpSyntax) -> bool:
    return op.attributes.get("is_reverse") is True


def _condition(b: _Ops, arguments: list[Argument], extent: int) -> Body:
    counter = arguments[0].name, arguments[0].type
    more = b.emit("compare", [counter, b.number(extent)], _BIT, comparison_direction="LT")
    b.end([more])
    return Body(arguments, b.ops)


def _step(
    b: _Ops, body: Body, arguments: list[Argument], inputs: list[Value], dim: int, last: int | None
) -> Body:
    """The slices under the names of the body's arguments, its ops, and where the outputs go."""
    counter, *others = [(a.name, a.type) for a in arguments]
    carried = len(body.arguments) - len(inputs)
    place = counter if last is None else b.emit("subtract", [b.number(last), counter], _COUNTER)
    zero = b.number(0)

    def at(rank: int) -> list[Value]:
        return [place if d == dim else zero for d in range(rank)]

    for value, argument in zip(inputs, body.arguments, strict=False):
        shape = _shape(value[1])
        sizes = [1 if d == dim else n for d, n in enumerate(shape)]
        piece = TensorSyntax(tuple(sizes), _element(value[1]))
        found = b.emit("dynamic_slice", [value, *at(len(shape))], piece, slice_sizes=sizes)
        b.emit("reshape", [found], argument.type, argument.name)
    *ops, end = body.ops
    b.ops += ops
    yielded = list(zip(end.operands, end.operand_types, strict=True))
    after = yielded[len(yielded) - carried :] if carried else []
    filled = []
    for whole, slice in zip(others[carried:], yielded, strict=False):
        shape = _shape(whole[1])
        piece = TensorSyntax(tuple(1 if d == dim else n for d, n in enumerate(shape)), _element(whole[1]))
        one = b.emit("reshape", [slice], piece)
        filled.append(b.emit("dynamic_update_slice", [whole, one, *at(len(shape))], whole[1]))
    b.end([b.emit("add", [counter, b.number(1)], _COUNTER), *after, *filled])
    return Body(arguments, b.ops)


def _shape(type: TypeSyntax) -> list[int]:
    return [n or 0 for n in type.shape] if isinstance(type, TensorSyntax) else []


def _element(type: TypeSyntax) -> str:
    return type.element if isinstance(type, TensorSyntax) else ""
