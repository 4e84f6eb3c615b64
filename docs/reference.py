"""The generated references: ops from their classes, passes from their table. See `generate.py`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator, Sequence

from xdsl.dialects.func import FuncOp
from xdsl.ir import Dialect, Operation
from xdsl.irdl import IRDLOperation, OptPropertyDef, VarOperandDef, VarResultDef

from rhino.cli.pipeline import type_name
from rhino.dialects.dist import Dist
from rhino.dialects.hlo import Hlo
from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.composite import CompositeOp
from rhino.dialects.hlo.pointwise import PointwiseOp
from rhino.dialects.kernel import Kernel
from rhino.dialects.text import parse_module
from rhino.ir.rule import Dims, Rule
from rhino.kernels.expressions import BINARY, UNARY
from rhino.passes import PASSES
from rhino.runtime.torch_ops import TABLE

#: Beside the elementwise ops in the tables of expressions; `rhino.passes.fuse` says under which conditions.
FUSED = frozenset(
    {"hlo.compare", "hlo.select", "hlo.convert", "hlo.constant", "hlo.broadcast_in_dim", "hlo.reshape"}
    | {"hlo.reduce", "hlo.dot_general", *UNARY, *BINARY}
)

_HEAD = "<!-- Written by docs/generate.py from the code. Change the code, not this file. -->\n"


def operations() -> str:
    """`ir-reference.md`: one section per op."""
    parts = [
        _HEAD,
        "# IR reference\n",
        "Every op of the dialects `hlo`, `dist` and `kernel`. Beside them a module holds `builtin.module`, "
        "`func.func` and `func.return`. Types are ranked tensors of static shape with elements f64, f32, f16, "
        "bf16, i1, i8 to i64 (signed), ui8 to ui64, complex<f32>, complex<f64>, or one of the one-byte floats.\n",
        "*Rule* is the sharding rule of the op in the first example, written like an einsum over factors; "
        "[layouts.md](layouts.md) explains it. A factor may be split unless it is *whole*; splitting one of "
        "a reduction kind leaves the result partial. *Passes partials* says which operands may be partial "
        "without being reduced first: sums, or every kind.\n",
    ]
    for dialect in (Hlo, Dist, Kernel):
        parts.append(f"## {dialect.name}\n")
        parts += [_operation(op) for op in _sections(dialect)]
    return "\n".join(parts)


def _sections(dialect: Dialect) -> list[type[Operation]]:
    return list(dialect.operations)


def _operation(op: type[Operation]) -> str:
    assert issubclass(op, IRDLOperation)
    lines = [f"### {op.name}\n", _prose(op), "", f"* {_signature(op)}"]
    if issubclass(op, HloOp):
        if (rule := example_rule(op)) is not None:
            lines.append(f"* rule: {rule_text(rule)}")
        lines.append(f"* derivative: {_derivative(op)}")
        lines.append(f"* generated kernels: {'yes' if op.name in FUSED else 'no'}")
    if op.name not in ("hlo.yield", "kernel.yield", "dist.mesh", "dist.reshard"):
        lines.append(f"* torch backend: {'yes' if op.name in TABLE else 'no'}")
    file = inspect.getmodule(op).__name__.replace(".", "/")  # type: ignore[union-attr]
    lines.append(f"* source: [{file}.py](../{file}.py)\n")
    return "\n".join(lines)


def _prose(op: type[Operation]) -> str:
    """The docstring as Markdown: reStructuredText's double backquotes and literal blocks rewritten."""
    text = inspect.cleandoc(op.__doc__ or "").replace("``", "`")
    return re.sub(r"Example::\n\n((?:    .*\n|\n)+)", lambda m: _fenced(m[1]), text)


def _fenced(code: str) -> str:
    return "```mlir\n" + inspect.cleandoc(" \n" + code) + "\n```\n\n"


def _signature(op: type[IRDLOperation]) -> str:
    definition = op.get_irdl_definition()
    operands = [f"`{n}`" + (" ..." if isinstance(d, VarOperandDef) else "") for n, d in definition.operands]
    results = [f"`{n}`" + (" ..." if isinstance(d, VarResultDef) else "") for n, d in definition.results]
    properties = [
        f"`{n}`" + (" (optional)" if isinstance(d, OptPropertyDef) else "")
        for n, d in definition.properties.items()
    ]
    groups = {"operands": operands, "results": results, "properties": properties}
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in groups.items() if names)


def examples(op: type[Operation]) -> list[str]:
    """The one-line examples in an op's docstring."""
    found = re.findall(r"``(%[^`]*= hlo\.[^`]*)``", op.__doc__ or "", re.DOTALL)
    return [" ".join(example.split()) for example in found]


def parsed_example(op: type[Operation]) -> Operation | None:
    """The op of the first example in the docstring; None if there is no one-line example."""
    if not (found := examples(op)):
        return None
    body, signature = found[0].rsplit(" : ", 1)
    names = re.findall(r"%\w+", body.split("=", 1)[1])
    types = re.findall(r"tensor<(?:[^<>]|<[^>]*>)*>", signature.split("->")[0])
    types += types[-1:] * (len(names) - len(types))  # one type for all operands
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=False))
    module = parse_module(f"func.func @main({arguments}) {{\n  {found[0]}\n  func.return\n}}")
    (func,) = module.ops
    assert isinstance(func, FuncOp)
    return func.body.block.first_op


def example_rule(op: type[Operation]) -> Rule | None:
    """The sharding rule of the first example."""
    example = parsed_example(op)
    return example.rule() if isinstance(example, HloOp) else None


def rule_text(rule: Rule) -> str:
    """A rule in words."""
    kinds = [f"{f} {kind}" for f, kind in rule.kinds.items() if kind != "pass"]
    parts = [f"`{_tensors(rule.operands)} -> {_tensors(rule.results)}`".replace("` ->", "`->")]
    if kinds:
        parts.append(", ".join(kinds))
    parts += [
        f"{f} in at most {rule.most(f)} contiguous blocks, with {h.before} elements from the block before and "
        f"{h.after} from the one behind"
        for f, h in rule.halos.items()
    ]
    if rule.structural:
        parts.append("passes partials of every kind when all operands are partial")
    elif groups := _groups(rule):
        parts.append(groups)
    return "; ".join(parts)


def _groups(rule: Rule) -> str:
    """Which operands may be partial, by kind."""
    by_groups: dict[str, list[str]] = {}
    for kind, groups in ({"sum": rule.linear} | dict(rule.carries)).items():
        merged = dict.fromkeys((*rule.linear, *groups)) if kind == "sum" else groups
        shown = " or ".join(" with ".join(str(i) for i in group) for group in merged)
        if shown:
            by_groups.setdefault(shown, []).append(kind)
    if not by_groups:
        return ""
    return "passes partials " + ", ".join(
        f"({', '.join(kinds)}) of operand {shown}" for shown, kinds in by_groups.items()
    )


def _tensors(tensors: Sequence[Dims]) -> str:
    return ", ".join(" ".join(_dim(d) for d in dims) or "scalar" for dims in tensors)


def _dim(factors: tuple[str, ...]) -> str:
    return factors[0] if len(factors) == 1 else f"({' '.join(factors)})" if factors else "1"


def _derivative(op: type[HloOp]) -> str:
    if op is CompositeOp:
        return "of its region, which is inlined first"
    return "yes" if has_derivative(op) else "no gradient flows through it"


def has_derivative(op: type[HloOp]) -> bool:
    """Whether the class defines one."""
    if issubclass(op, PointwiseOp) and op.derivative is PointwiseOp.derivative:
        return op.gradient is not PointwiseOp.gradient
    return op.derivative is not HloOp.derivative


def passes() -> str:
    """`passes.md`: one section per pass."""
    parts = [
        _HEAD,
        "# Passes\n",
        "`rhino-opt FILE -p 'name{option=value},name'` runs them in order; [add-a-pass.md](add-a-pass.md) shows "
        "how to add one. The order in which `rhino run` uses them: `autodiff`, `optimizer`, `fold-constants`, "
        "`canonicalize`, `cse`, `dce`, the planner (which writes the layouts that `place` writes from pins), "
        "`spmd`, `fuse-collectives`, and `fuse` with `--kernels triton`.\n",
    ]
    return "\n".join([*parts, *_passes()])


def _passes() -> Iterator[str]:
    for name, load in sorted(PASSES.items()):
        cls = load()
        module = inspect.getmodule(cls)
        assert module is not None
        summary, _, rest = (module.__doc__ or "").strip().partition("\n")
        file = module.__name__.replace(".", "/")
        text = summary.partition(": ")[2]
        yield f"## {name}\n\n{text[:1].upper()}{text[1:]}\n"
        yield _with_fences(rest.strip("\n")) + "\n" if rest.strip() else ""
        yield from _options(cls)
        yield f"Source: [{file}.py](../{file}.py)\n"


def _with_fences(text: str) -> str:
    """Indented blocks of a docstring, and the words `becomes` between them, as one fenced block."""
    out: list[str] = []
    lines = text.replace("``", "`").split("\n")
    inside = False
    for i, line in enumerate(lines):
        code = line.startswith("    ") or (inside and line in ("becomes", "") and _code_follows(lines, i))
        if code != inside:
            out += ["```text"] if code else ["```"]
            inside = code
        out.append(line.removeprefix("    ") if line.startswith("    ") else line)
    return "\n".join([*out, *(["```"] if inside else [])])


def _code_follows(lines: Sequence[str], at: int) -> bool:
    following = [line for line in lines[at + 1 :] if line not in ("", "becomes")]
    return bool(following) and following[0].startswith("    ")


def _options(cls: type) -> Iterator[str]:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    doc = inspect.cleandoc(cls.__doc__ or "").replace("``", "`")
    yield doc + "\n"
    if fields:
        rows = ["| option | type | default |", "|---|---|---|"]
        for field in fields:
            default = "required" if field.default is dataclasses.MISSING else f"`{field.default}`"
            kind = type_name(hints[field.name]).replace(" | None", " or none")
            rows.append(f"| `{field.name}` | {kind} | {default} |")
        yield "\n".join(rows) + "\n"
