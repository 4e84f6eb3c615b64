"""Where a program first computes something else than the one that it was made from.

What still has a name after a pass (see `rhino.check.names`) is put beside the array that it had before, on a mesh cut
by its layout, in the order in which the new program computes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

from rhino.check.names import tag_of
from rhino.check.reference import Expected, Reference, result_key
from rhino.dialects import signature
from rhino.dialects.kernel import RegionOp
from rhino.ir import types
from rhino.ir.evaluate import PerRank, compile_ranks
from rhino.ir.text import show_location
from rhino.passes.widen_floats import widen_floats


@dataclass(frozen=True)
class Finding:
    """The first value that is not what it was before.

    Attributes:
        op: the op that makes it, or ``func.return`` where a result is another value than before.
        where: that op's place in the user's program, if it is known.
        value: what the user's program calls the value.
        tag: its tag, empty if it is only known as a result.
        error: greatest relative difference, infinite where infinities, NaNs, shapes or types differ.
        ranks: the ranks that hold something else, none on one device.
        detail: what is odd about the op's surroundings: operands in another layout than before, ops in between that
            stand for no op of the program before.
        suspects: the ops of the program that was checked that may be to blame, the one that is named first.
    """

    op: str
    where: str | None
    value: str
    tag: str
    error: float
    ranks: tuple[int, ...]
    detail: str
    suspects: tuple[Operation, ...]

    def text(self) -> str:
        """One or two lines for a terminal."""
        place = f" at {self.where}" if self.where else ""
        who = f" on ranks {', '.join(map(str, self.ranks))}" if self.ranks else ""
        what = f" makes {self.value}" if self.value != self.op else ""
        line = f"{self.op}{place}{what}: off by {self.error:.3g}{who}"
        return f"{line}\n    {self.detail}" if self.detail else line


def first_difference(
    module: ModuleOp,
    reference: Reference,
    limit: float,
    arguments: Sequence[PerRank] | None = None,
    *,
    only_if_results_differ: bool = False,
) -> Finding | None:
    """The first value of a program, in the order of its ops, that differs from the reference by more than `limit`;
    None when all named values, and all results, are equal.

    Also found, unless only results count: a float that is rounded to a narrower type than the value that it stands for
    has.

    Args:
        arguments: for every argument the arrays of all ranks; those of the reference when None.
        only_if_results_differ: whether a value that changed counts only when a result changed, too.
    """
    # Passes on whole programs add ops with conversions of their own.
    finding = None if only_if_results_differ else narrowed(module, reference)
    return finding or _run(module, reference, limit, arguments, only_if_results_differ)


def _run(
    original: ModuleOp,
    reference: Reference,
    limit: float,
    arguments: Sequence[PerRank] | None,
    patient: bool,
) -> Finding | None:
    module = original
    if reference.widen:
        module = original.clone()
        widen_floats(module)
    # Widening changes types in place, so the ops of both correspond in order.
    origin = dict(zip(module.walk(), original.walk(), strict=True))
    func = signature.main_of(module)
    compiled = compile_ranks(func, reference.mesh)
    given = reference.pieces() if arguments is None else arguments
    env: list[Any] = [*given, *([None] * (compiled.slots - len(given)))]
    first: Finding | None = None
    with np.errstate(all="ignore"):
        for step in compiled.steps:
            outs = step.run(reference.mesh, [env[i] for i in step.inputs])
            for slot, pieces, tag in zip(step.outputs, outs, _tags(step.op), strict=True):
                env[slot] = pieces
                want = reference.expected.get(tag)
                if want is None or first is not None or (patient and pieces[0].shape != want.array.shape):
                    continue
                error, ranks = want.error(pieces, limit)
                if ranks:
                    first = _of(_blame(step.op, tag, want, error, ranks, reference), origin)
                    if not patient:
                        return first
            for slot in step.free:
                env[slot] = None
    found = _results(module, reference, [env[i] for i in compiled.results], limit)
    return None if found is None else first or _of(found, origin)


def _results(
    module: ModuleOp, reference: Reference, pieces: Sequence[PerRank], limit: float
) -> Finding | None:
    """The first result that differs, if one does; results that were not there before are not compared."""
    func = signature.main_of(module)
    ret = signature.return_of(func)
    for i, slot in enumerate(signature.results(func)):
        tag = reference.results.get(result_key(slot, i))
        if tag is None:
            continue
        want, held = reference.expected[tag], pieces[i]
        if slot.extent == want.array.shape:  # it holds padding now, and did not before
            held = [piece[tuple(map(slice, slot.extent))] for piece in held]
        error, ranks = want.error(held, limit)
        if ranks:
            source = reference.expected.get(tag_of(ret.operands[i]))
            owner = ret.operands[i].owner
            behind = _untraced([owner]) if isinstance(owner, Operation) else []
            if source is not None:
                detail = f"it returns {source.show()} instead of {want.show()}"
            else:
                detail = f"it stands for {want.show()}, computed through {_names(behind)}"
            shown = ranks if reference.mesh.size > 1 else ()
            where = show_location(owner.location) if isinstance(owner, Operation) else None
            name = f"result {slot.name or i}"
            return Finding(ret.name, where, name, tag, error, shown, detail, (ret, *behind))
    return None


def _of(finding: Finding, origin: dict[Operation, Operation]) -> Finding:
    """The finding with the ops of the program as it was given."""
    return replace(finding, suspects=tuple(origin[op] for op in finding.suspects))


def narrowed(module: ModuleOp, reference: Reference) -> Finding | None:
    """A conversion to a narrower float that no op of the program before stands for, or a named value of another
    element type than it had there; None if there is neither.
    """
    for op in _ops(module):
        for result, tag in zip(op.results, _own_tags(op), strict=True):
            element = types.element_of(result)
            if tag in reference.element_types and element != reference.element_types[tag]:
                was = types.element_name(reference.element_types[tag])
                detail = f"it has element type {types.element_name(element)} instead of {was}"
            elif op.name == "hlo.convert" and not tag and _loses(types.element_of(op.operands[0]), element):
                source = types.element_name(types.element_of(op.operands[0]))
                detail = f"it rounds {source} to {types.element_name(element)}, which no op of the program asks for"
            else:
                continue
            name = reference.expected[tag].name if tag in reference.expected else op.name
            place = show_location(op.location)
            return Finding(op.name, place, name, tag, float("inf"), (), detail, (op, *_untraced([op])))
    return None


def _loses(source: Attribute, target: Attribute) -> bool:
    if not (types.is_float(source) and types.is_float(target)):
        return False
    return types.numpy_dtype(target).itemsize < types.numpy_dtype(source).itemsize


def _ops(module: ModuleOp) -> Iterator[Operation]:
    """The ops of `@main`, those inside kernel regions instead of the regions."""
    for op in signature.main_of(module).body.block.ops:
        if isinstance(op, RegionOp):
            yield from (inner for inner in op.body.block.ops if inner.results)
        elif op.results:
            yield op


def _own_tags(op: Operation) -> list[str]:
    return [tag_of(result) for result in op.results]


def _tags(op: Operation) -> list[str]:
    """The names of an op's results; those of a kernel region are what its body calls them."""
    if isinstance(op, RegionOp):
        pairs = zip(op.outputs, op.yielded.values, strict=True)
        return [tag_of(inner) or tag_of(outer) for outer, inner in pairs]
    return _own_tags(op)


def _blame(
    op: Operation, tag: str, want: Expected, error: float, ranks: tuple[int, ...], reference: Reference
) -> Finding:
    """What can be said of the op whose value is the first to differ: all named values before it are right."""
    odd = []
    if want.op is not None and want.op.name == op.name and len(op.operands) == len(want.op.operands):
        for i, (have, plan) in enumerate(zip(op.operands, want.op.operands, strict=True)):
            a, b = tag_of(have), tag_of(plan)
            if a in reference.expected and a != b and b in reference.expected:
                here, there = reference.expected[a], reference.expected[b]
                odd.append(f"operand {i} is {here.show()} where it was {there.show()}")
    owners = [v.owner for v in op.operands if isinstance(v.owner, Operation) and not tag_of(v)]
    between = _untraced(owners)
    if between:
        odd.append(f"computed through {_names(between)}")
    if want.op is not None and want.op.name == "dist.reshard":
        source = reference.expected[tag_of(want.op.operands[0])]
        odd.append(f"it stands for the reshard of {source.show()} to {want.show()}")
    elif want.op is not None and want.op.name != op.name:
        odd.append(f"it stands for {want.op.name}")
    shown = ranks if reference.mesh.size > 1 else ()
    where = show_location(op.location)
    return Finding(op.name, where, want.name, tag, error, shown, "; ".join(odd), (op, *between))


def _names(ops: Sequence[Operation]) -> str:
    return ", ".join(dict.fromkeys(op.name for op in ops))


def _untraced(start: Sequence[Operation]) -> list[Operation]:
    """The ops reached from `start`, against the flow of data, through values without names."""
    found: dict[Operation, None] = {}
    stack = list(start)
    while stack:
        op = stack.pop()
        if op not in found:
            found[op] = None
            stack.extend(v.owner for v in op.operands if isinstance(v.owner, Operation) and not tag_of(v))
    return list(found)
