"""Which `hlo` ops the handler of an ATen op is made of, read from the handlers' code.

A handler builds ops by calling methods of `Builder` on something named `b` or `c.b`. The calls are found in the byte
code of the handler, of the functions that it holds or names, and of the builder's methods, so the result is what a
handler can emit, over all its branches.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import cache, partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp
from rhino.frontend.torch_ops import ATEN
from rhino.frontend.torch_ops.context import OpContext

#: Names under which builders and contexts stand in the code.
_BUILDERS, _CONTEXTS = frozenset({"b", "builder", "Builder"}), frozenset({"c", "ctx"})
#: Ops between a program's ops: they bring operands to one type and shape. Listed only where nothing else is.
GLUE = frozenset({"hlo.convert", "hlo.broadcast_in_dim", "hlo.reshape", "hlo.constant"})


@cache
def made_of() -> dict[str, tuple[str, ...]]:
    """The `hlo` ops of every ATen op, sorted."""
    return {name: _shown(_ops_of(handler)) for name, handler in sorted(ATEN.items())}


def _shown(found: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(found - GLUE or found))


def _ops_of(start: Any) -> frozenset[str]:
    found: set[str] = set()
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, type):
            if issubclass(value, HloOp) and "name" in vars(value):
                found.add(value.name)
        elif isinstance(value, partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, tuple | list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, FunctionType) and value.__module__.startswith("rhino."):
            waiting += _reached(value)
    return frozenset(found)


def _reached(function: FunctionType) -> Iterator[Any]:
    """What a function holds and names, and the methods that it calls on builders and contexts."""
    for cell in function.__closure__ or ():
        yield cell.cell_contents
    yield from function.__defaults__ or ()
    own = function.__module__.startswith(("rhino.dialects.build", "rhino.frontend.torch_ops"))
    for code in _codes(function.__code__):
        last: Any = None
        for instruction in dis.get_instructions(code):
            name = instruction.argval
            if "GLOBAL" in instruction.opname and own and name in function.__globals__:
                yield function.__globals__[name]
            if "ATTR" in instruction.opname or "METHOD" in instruction.opname:
                receiver = last[-1] if isinstance(last, tuple) else last
                module = function.__globals__.get(str(receiver))
                if own and isinstance(module, ModuleType) and module.__name__.startswith("rhino."):
                    yield getattr(module, str(name), None)
                elif receiver in _BUILDERS or (receiver == "self" and hasattr(Builder, str(name))):
                    yield getattr(Builder, str(name), None)
                elif receiver in _CONTEXTS:
                    yield getattr(OpContext, str(name), None)
            if isinstance(name, str | tuple):
                last = name


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
