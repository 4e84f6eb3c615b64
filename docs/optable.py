"""`ops.md`: every op with its StableHLO name, its ATen names, its sharding rule, its derivative and its kernel."""

from __future__ import annotations

import re
from functools import cache
from itertools import groupby

import aten
import reference
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.hlo import Hlo
from rhino.dialects.hlo.base import HloOp
from rhino.dialects.text import parse_module
from rhino.frontend.stablehlo.writer import write_stablehlo
from rhino.frontend.torch_ops import ATEN
from rhino.ir.errors import UnsupportedError
from rhino.kernels.expressions import BINARY, UNARY

#: ATen names in a row of the first table; the second table has all.
SHOWN = 6

#: Ops that no handler of an ATen op emits: where they come from.
WITHOUT_ATEN = {
    "hlo.yield": "ends a region",
    "hlo.select_and_scatter": "none; made by `autodiff` for max pooling",
}
_ONLY_STABLEHLO = "none; StableHLO programs have it"

#: Ops whose StableHLO counterpart no example shows.
_STABLEHLO = {
    "hlo.yield": "`return`",
    "hlo.stop_gradient": "none; its operand is written",
    "hlo.composite": "none; its region is written",
    "hlo.random_uniform": "none; its integer arithmetic (Philox) is written",
}
_POINTWISE = frozenset({*UNARY, *BINARY, "hlo.compare", "hlo.select", "hlo.convert"})
_READ_THROUGH = frozenset({"hlo.constant", "hlo.broadcast_in_dim", "hlo.reshape"})

_INTRO = """# Ops

Every op of the dialect `hlo`. [ir-reference.md](ir-reference.md) says what each computes.

* *StableHLO*: the ops that it is written as ([stablehlo.md](stablehlo.md)); `chlo` where JAX uses that too.
* *ATen*: PyTorch's ops whose handlers can emit it, those first that are made of the fewest ops. Type conversions,
  broadcasts, reshapes and constants stand between any two ops and are counted only where a handler emits
  nothing else. [All ATen ops](#aten) are in the second table.
* *Sharding rule*: of the example in the op's docstring, written like an einsum over factors
  ([layouts.md](layouts.md)). Every factor may be split unless it is *whole*; splitting one of a reduction kind
  leaves the result partial.
* *Derivative*: *yes*; *zero* where no gradient flows through it (comparisons, integers, steps); *no* where
  differentiation is an error, and what to use instead.
* *Kernel*: what Rhino's Triton kernels do with it ([kernels.md](kernels.md)). *pointwise* and *reduction* (of
  trailing dimensions) are fused into one kernel, *matmul template* takes pointwise ops along; ops that are *read
  through* cost no kernel; for *none* the backend calls torch's own function.
"""


def page() -> str:
    """The whole page."""
    head = "| op | StableHLO | ATen | sharding rule | derivative | kernel |\n|---|---|---|---|---|---|"
    rows = [row(op) for op in Hlo.operations]
    return "\n".join([reference._HEAD, _INTRO, head, *rows, "", aten_table()])


def row(op: type[Operation]) -> str:
    """An op's line of the first table."""
    cells = [f"`{op.name}`", stablehlo(op), aten_names(op.name), _rule(op), derivative(op), kernel(op.name)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


@cache
def example(op: type[Operation]) -> ModuleOp | None:
    """The first example of the docstring as a function that returns what the op gives."""
    doc = " ".join((op.__doc__ or "").split())
    found = reference.examples(op)
    if found:
        text = found[0]
        body, signature = text.rsplit(" : ", 1)
        names = re.findall(r"%\w+", body.split("=", 1)[1])
        types = re.findall(r"tensor<(?:[^<>]|<[^>]*>)*>", signature.split("->")[0])
        types += types[-1:] * (len(names) - len(types))
    elif match := re.search(
        r"Example:: (%[^=]*= hlo\.\w+ ?(?:\"\w+\")?\((.*?)\).*?: \((.*?)\) -> .*?\}\)?)", doc
    ):
        names, types = match[2].split(", "), re.findall(r"tensor<[^>]*>", match[3])
        block = re.search(
            r"Example::\n\n((?:    .*\n|\s*\n)+)", reference.inspect.cleandoc(op.__doc__ or "") + "\n"
        )
        assert block is not None
        text = block[1]
    else:
        return None
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=False))
    module = parse_module(f"func.func @main({arguments}) {{\n  {text}\n  func.return\n}}")
    func = _main(module)
    last = func.body.block.last_op
    assert last is not None
    last.operands = _op(module).results
    func.update_function_type()
    return module


def _main(module: ModuleOp) -> FuncOp:
    (func,) = module.ops
    assert isinstance(func, FuncOp)
    return func


def _op(module: ModuleOp) -> HloOp:
    first = _main(module).body.block.first_op
    assert isinstance(first, HloOp)
    return first


def stablehlo(op: type[Operation]) -> str:
    """The ops outside of regions that the example is written as, without constants."""
    if op.name in _STABLEHLO:
        return _STABLEHLO[op.name]
    module = example(op)
    assert module is not None, f"{op.name} has no example in its docstring"
    lines = [line for line in write_stablehlo(module).splitlines() if re.match(r"    %\S+ = ", line)]
    names = [re.search(r"\b(stablehlo|chlo)\.(\w+)", line) for line in lines]
    found = dict.fromkeys(n[2] if n[1] == "stablehlo" else n[0] for n in names if n)
    if op.name != "hlo.constant":
        found.pop("constant", None)
    return ", ".join(f"`{n}`" for n in found)


def aten_names(name: str) -> str:
    """The ATen ops whose handlers emit the op, and how many more there are; else where it comes from."""
    made = aten.made_of()
    users = sorted((len(ops), n) for n, ops in made.items() if name in ops)
    if not users:
        return WITHOUT_ATEN.get(name, _ONLY_STABLEHLO)
    # Overloads of one op count as one.
    plain = list(dict.fromkeys(n.split(".")[1] if n.startswith("aten.") else short(n) for _, n in users))
    shown = ", ".join(f"`{n}`" for n in plain[:SHOWN])
    return shown if len(plain) <= SHOWN else f"{shown} and {len(plain) - SHOWN} more"


def short(name: str) -> str:
    """An ATen op's name without the overload that most have."""
    return name.removesuffix(".default")


def _rule(op: type[Operation]) -> str:
    if op.name == "hlo.yield":
        return "that of the op around it"
    module = example(op)
    assert module is not None
    return reference.rule_text(_op(module).rule())


def derivative(op: type[Operation]) -> str:
    """Yes, zero, or no with what to do instead, found by differentiating the example."""
    if op.name == "hlo.yield":
        return "that of the op around it"
    if op.name == "hlo.composite":
        return "yes: its region's"
    if op.name == "hlo.while":
        return "yes if the number of turns is a constant; else no"
    module = example(op)
    assert module is not None
    if not reference.has_derivative(type(_op(module))):
        return "zero"
    clone = module.clone()
    own = _op(clone)
    builder = Builder(InsertPoint.after(own))
    try:
        own.derivative(builder, [builder.full_like(r, 1) for r in own.results])
    except UnsupportedError as error:
        return f"no; {error.remedy or error.message}"
    return "yes"


def kernel(name: str) -> str:
    """What generated kernels do with the op."""
    if name in _POINTWISE:
        return "pointwise"
    if name in _READ_THROUGH:
        return "read through"
    if name == "hlo.composite":
        return "that of its region's ops"
    return {"hlo.reduce": "reduction", "hlo.dot_general": "matmul template"}.get(name, "none")


def aten_table() -> str:
    """The second table: every ATen op that has a handler, by file."""
    made = aten.made_of()
    lines = [
        '<a id="aten"></a>',
        "",
        "## ATen",
        "",
        f"The {len(made)} ops that Rhino imports itself, by the file of their handler; torch decomposes all "
        "others into these. Shown are the `hlo` ops that a handler can emit, over all its branches.",
        "",
        "| file | ATen op | `hlo` ops |",
        "|---|---|---|",
    ]
    by_file = sorted((ATEN[name].__module__.rsplit(".", 1)[1], name) for name in made)
    for file, group in groupby(by_file, lambda pair: pair[0]):
        for i, (_, name) in enumerate(group):
            ops = (
                ", ".join(op.removeprefix("hlo.") for op in made[name])
                or "none: it is its operand, or nothing"
            )
            lines.append(f"| {file if i == 0 else ''} | `{short(name)}` | {ops} |")
    return "\n".join(lines) + "\n"
