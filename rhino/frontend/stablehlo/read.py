"""StableHLO text to a module of the global stage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.rewriter import InsertPoint

from rhino.dialects import signature
from rhino.dialects.signature import Slot
from rhino.frontend.stablehlo import chlo, control, dynamic, elementwise, linear, parallel, reductions, shapes
from rhino.frontend.stablehlo.importer import Check, Handler, Importer
from rhino.frontend.stablehlo.parser import parse
from rhino.frontend.stablehlo.shardings import apply_shardings
from rhino.frontend.stablehlo.syntax import FunctionDef, Location, ModuleSyntax
from rhino.ir import types
from rhino.ir.errors import ProgramError, UsageError
from rhino.ir.verify import verify_module

#: Attribute of results that belong to a check: ``kind tolerance``; see `rhino.frontend.stablehlo.checks`.
CHECK = "stablehlo.check"

HANDLERS: dict[str, Handler] = {
    **elementwise.HANDLERS,
    **shapes.HANDLERS,
    **dynamic.HANDLERS,
    **reductions.HANDLERS,
    **control.HANDLERS,
    **chlo.HANDLERS,
    **linear.HANDLERS,
    **parallel.HANDLERS,
}


def read_stablehlo(
    text: str, name: str = "<text>", *, function: str | None = None, parameters: int | None = None
) -> ModuleOp:
    """Read StableHLO text, generic or pretty, as `jax.jit(f).lower(...).as_text()` gives it.

    Functions that the entry function calls are inlined. Its arguments are `parameters` if they are donated
    (``tf.aliasing_output``), or the first `parameters` of them, else inputs.

    Args:
        text: one module.
        name: of the text, for messages.
        function: the entry function; by default `@main`, or else the only public one.
        parameters: so many first arguments are parameters; those that no result replaces yet are replaced by
            the first results of their types.

    Raises ProgramError for malformed text and UnsupportedError for what Rhino has no op or type for, each
    with ``name:line:column``; UsageError when there is no such function.
    """
    modules = parse(text, name)
    if len(modules) != 1:
        raise UsageError(
            f"{len(modules)} modules in one text", where=name, remedy="split it, one module a text"
        )
    return _convert(modules[0], text, name, function, parameters)


def runnable_functions(text: str, name: str = "<text>") -> list[str]:
    """Functions that can be run as they are: `@main` alone if there is one, else all without arguments."""
    (module,) = parse(text, name)
    if "main" in module.functions:
        return ["main"]
    return [f.name for f in module.functions.values() if not f.private and not f.body.arguments]


def _convert(
    syntax: ModuleSyntax, text: str, name: str, function: str | None, parameters: int | None
) -> ModuleOp:
    importer = Importer(syntax, text, name, HANDLERS)
    entry = _entry(syntax, name, function)
    block = Block(arg_types=[importer.type(a.type, entry.at) for a in entry.body.arguments])
    importer.b.point = InsertPoint.at_end(block)
    slots = [_argument(i, a.attributes, importer) for i, a in enumerate(entry.body.arguments)]
    for slot, argument in zip(slots, block.args, strict=True):
        if re.fullmatch(r"[A-Za-z_]\w*", slot.name):
            argument.name_hint = slot.name
    values = importer.function(None, entry.name, block.args)
    _check_results(entry, values, importer)
    results = [_result(i, attrs) for i, attrs in enumerate(_padded(entry))]
    for check_slot, value in _check_slots(importer.checks):
        results.append(check_slot)
        values = [*values, value]
    slots, results = _train(
        slots, results, [a.type for a in block.args], [v.type for v in values], entry, parameters
    )
    block.add_op(ReturnOp(*values))
    func = FuncOp("main", ([a.type for a in block.args], [v.type for v in values]), Region(block))
    module = ModuleOp([func])
    signature.set_arguments(func, slots)
    signature.set_results(func, results)
    apply_shardings(importer, module, entry)
    verify_module(module)
    return module


def _entry(syntax: ModuleSyntax, name: str, function: str | None) -> FunctionDef:
    functions = syntax.functions
    if function is not None:
        if function not in functions:
            known = ", ".join(f"@{f}" for f in functions) or "none"
            raise UsageError(f"{name} has no function @{function}", remedy=f"its functions: {known}")
        return functions[function]
    if "main" in functions:
        return functions["main"]
    public = [f for f in functions.values() if not f.private]
    if len(public) != 1:
        names = ", ".join(f"@{f.name}" for f in public) or "none"
        raise ProgramError(
            f"there is no function @main, and {len(public)} public functions",
            where=name,
            remedy=f"name one of: {names}",
        )
    return public[0]


def _check_results(entry: FunctionDef, values: Sequence[SSAValue], importer: Importer) -> None:
    wanted = [importer.type(t, entry.at) for t in entry.results]
    given = [v.type for v in values]
    if wanted != given:
        raise ProgramError(
            f"@{entry.name} returns {', '.join(map(types.show, given)) or 'nothing'}, but declares "
            f"{', '.join(map(types.show, wanted)) or 'nothing'}",
            where=importer.where(entry.at),
        )


def _padded(entry: FunctionDef) -> list[dict[str, Any]]:
    attributes = list(entry.result_attributes)
    return attributes + [{} for _ in entry.results[len(attributes) :]]


# What arguments and results are.


def _argument(index: int, attributes: dict[str, Any], importer: Importer) -> Slot:
    name = _own(attributes, "name")
    location, hops = attributes.get("loc"), 0
    while isinstance(location, Location) and location.alias and not location.name and hops < 32:
        location, hops = importer.syntax.locations.get(location.alias), hops + 1
    if not name and isinstance(location, Location):
        name = location.name
    role = _own(attributes, "role")
    return Slot(
        name or f"arg{index}", role or "input", of=_own(attributes, "of"), slot=_own(attributes, "slot")
    )


def _own(attributes: dict[str, Any], key: str) -> str | None:
    """An attribute ``rhino.<key>``, as the writer leaves it."""
    value = attributes.get(f"rhino.{key}")
    return value if isinstance(value, str) else None


def _result(index: int, attributes: dict[str, Any]) -> Slot:
    info = attributes.get("jax.result_info")
    name = _own(attributes, "name") or (info if isinstance(info, str) and info else f"result[{index}]")
    alias = attributes.get("rhino.alias")
    other: tuple[tuple[str, Attribute], ...] = ()
    if isinstance(attributes.get(CHECK), str):
        other = ((CHECK, StringAttr(attributes[CHECK])),)
    return Slot(
        name,
        _own(attributes, "role") or "output",
        of=_own(attributes, "of"),
        slot=_own(attributes, "slot"),
        alias=alias if isinstance(alias, int) else None,
        other=other,
    )


def _check_slots(checks: Sequence[Check]) -> list[tuple[Slot, SSAValue]]:
    out = []
    for i, check in enumerate(checks):
        mark = ((CHECK, StringAttr(f"{check.kind} {check.tolerance!r}")),)
        out.append((Slot(f"check{i}.actual", "output", other=mark), check.actual))
        out.append((Slot(f"check{i}.expected", "output", other=mark), check.expected))
    return out


def _train(
    arguments: list[Slot],
    results: list[Slot],
    argument_types: Sequence[Any],
    result_types: Sequence[Any],
    entry: FunctionDef,
    parameters: int | None,
) -> tuple[list[Slot], list[Slot]]:
    """Say which arguments a step replaces: donated ones, or the first `parameters`; a scalar left is the loss."""
    pairs: dict[int, int] = {}
    for i, argument in enumerate(entry.body.arguments):
        target = argument.attributes.get("tf.aliasing_output")
        if isinstance(target, int) and target < len(results) and argument_types[i] == result_types[target]:
            pairs[i] = target
    if parameters is not None:
        if not 0 <= parameters <= len(arguments):
            raise UsageError(f"{parameters} parameters, but the program has {len(arguments)} arguments")
        for i in range(parameters):
            free = [
                j for j, t in enumerate(result_types) if t == argument_types[i] and j not in pairs.values()
            ]
            if i not in pairs and free:
                pairs[i] = free[0]
    arguments, results = list(arguments), list(results)
    named = set(range(parameters or 0)) | set(pairs)
    for i in sorted(named):
        if arguments[i].role != "input":
            continue  # the text says it itself
        role = "parameter" if types.is_float(argument_types[i].element_type) else "buffer"
        arguments[i] = replace(arguments[i], role=role)
        if i in pairs and results[pairs[i]].alias is None:
            results[pairs[i]] = Slot(arguments[i].name, role, alias=i, other=results[pairs[i]].other)
    if not any(s.role == "loss" for s in results) and named:
        scalars = [
            j
            for j, (slot, type) in enumerate(zip(results, result_types, strict=True))
            if slot.role == "output"
            and not slot.other
            and not type.get_shape()
            and types.is_float(type.element_type)
        ]
        if len(scalars) == 1:
            results[scalars[0]] = replace(results[scalars[0]], role="loss")
    return arguments, results
