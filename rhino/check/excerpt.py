"""Of the repeated layers of a placed program the first two and the last; what they got from the others is given.

Two ops are alike when they are of one kind in the same layouts and read what ops alike have made. Of every op an alike
one is kept. A value that an op left out has made becomes an argument, in its layout, and a value that one has read a
result: so every kept op still takes and yields what it did in the whole program.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, FunctionType, ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from rhino.dialects import signature
from rhino.dialects.dist import MeshOp, ReshardOp
from rhino.dialects.dist.layouts import LAYOUT
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.signature import Slot
from rhino.ir.printing import print_module
from rhino.passes.microbatch import micro_number
from rhino.planner.fold import Run, runs


@dataclass(frozen=True)
class Excerpt:
    """Part of a placed program.

    Attributes:
        kept, ops: ops that the module has, and that the program had.
        layers, of: copies that are left of the runs of layers, and how many there were (of the longest run).
    """

    module: ModuleOp
    kept: int
    ops: int
    layers: int
    of: int


def excerpt(module: ModuleOp) -> Excerpt:
    """The part of a placed module that stands for all of it; the module itself where nothing repeats."""
    func = signature.main_of(module)
    ops = [op for op in func.body.block.ops if not isinstance(op, ReturnOp)]
    kinds, alike = _kinds(func, ops)
    found = runs(np.array(kinds, dtype=np.int64)) if ops else []
    keep = _chosen(len(ops), found)
    seen = {alike[i] for i in range(len(ops)) if keep[i]}
    for i, key in enumerate(alike):
        if not keep[i] and key not in seen:
            keep[i] = True
            seen.add(key)
    longest = max((run.copies for run in found), default=1)
    if all(keep):
        return Excerpt(module, len(ops), len(ops), longest, longest)
    return Excerpt(_part(module, ops, keep), sum(keep), len(ops), min(3, longest), longest)


def _kinds(func: FuncOp, ops: Sequence[Operation]) -> tuple[list[int], list[int]]:
    """Per op a number for what it is, by itself, and one that also says what its operands are made by."""
    numbers: dict[Hashable, int] = {}
    attributes: dict[int, int] = {}  # by identity: thousands of ops share theirs, and hashing one takes long
    made: dict[SSAValue, int] = {}

    def number(key: Hashable) -> int:
        return numbers.setdefault(key, len(numbers))

    def known(attribute: Attribute) -> int:
        if id(attribute) not in attributes:
            attributes[id(attribute)] = number(attribute)
        return attributes[id(attribute)]

    def layouts(attribute: Attribute | None) -> tuple[int, ...]:
        return tuple(map(known, attribute)) if isinstance(attribute, ArrayAttr) else ()

    for arg, slot in zip(func.args, func.arg_attrs or [], strict=True):
        made[arg] = number((known(arg.type), known(slot.data[LAYOUT]), str(slot.data.get("rhino.slot"))))
    kinds, alike = [], []
    for op in ops:
        own = (
            ()
            if op.name == "hlo.constant"
            else tuple((k, known(a)) for k, a in sorted(op.properties.items()))
        )
        inside = tuple(print_module(inner) for r in op.regions for b in r.blocks for inner in b.ops)
        types = tuple(known(r.type) for r in op.results)
        kind = number((op.name, own, inside, types, layouts(op.attributes.get(LAYOUT))))
        # Layers are counted inside of a micro-batch, so that no run reaches from one to the next.
        micro = micro_number(op)
        kinds.append(kind if micro is None else number((kind, "micro-batch", micro[0])))
        alike.append(number((kind, tuple(made[v] for v in op.operands))))
        for i, result in enumerate(op.results):
            # Of a reshard the layout that it comes from counts, too: its users then know two steps back.
            made[result] = number((alike[-1] if isinstance(op, ReshardOp) else kind, i))
    return kinds, alike


def _chosen(count: int, found: Sequence[Run]) -> list[bool]:
    """All ops but those of the copies between the second and the last of every run."""
    keep = [True] * count
    for run in found:
        first, last = run.start + 2 * run.period, run.start + (run.copies - 1) * run.period
        for i in range(first, last):
            keep[i] = False
    return keep


def _part(module: ModuleOp, ops: Sequence[Operation], keep: Sequence[bool]) -> ModuleOp:
    func = signature.main_of(module)
    ret = signature.return_of(func)
    inside = {op for op, kept in zip(ops, keep, strict=True) if kept}
    read = list(dict.fromkeys(v for op in _kept(ops, keep) for v in op.operands))
    slots: dict[SSAValue, Slot] = {
        arg: slot for arg, slot in zip(func.args, signature.arguments(func), strict=True)
    }
    given = [v for v in func.args if v in set(read)] + [
        v for v in read if isinstance(v.owner, Operation) and v.owner not in inside
    ]
    block = Block(arg_types=[v.type for v in given])
    values: dict[SSAValue, SSAValue] = dict(zip(given, block.args, strict=True))
    for old, new in values.items():
        new.name_hint = old.name_hint
    for op in _kept(ops, keep):
        copy = op.clone(values)
        block.add_op(copy)
    ends: dict[SSAValue, Slot] = {}
    for value, slot in zip(ret.operands, signature.results(func), strict=True):
        if value in values:
            ends.setdefault(value, Slot(slot.name, slot.role, other=slot.other))
    for op in inside:
        for result in op.results:
            if result not in ends and any(
                u.operation not in inside and u.operation is not ret for u in result.uses
            ):
                ends[result] = Slot(f"cut.{len(ends)}", "output", other=((LAYOUT, _layout(result)),))
    block.add_op(ReturnOp(*(values[v] for v in ends)))
    part = FuncOp(
        "main", FunctionType.from_lists([v.type for v in given], [v.type for v in ends]), Region(block)
    )
    signature.set_arguments(
        part,
        [
            slots[v] if v in slots else Slot(f"cut.{i}", "input", other=((LAYOUT, _layout(v)),))
            for i, v in enumerate(given)
        ],
    )
    signature.set_results(part, list(ends.values()))
    return ModuleOp([MeshOp.of(mesh_of(module)), part])


def _kept(ops: Sequence[Operation], keep: Sequence[bool]) -> list[Operation]:
    """The ops that are kept."""
    return [op for op, kept in zip(ops, keep, strict=True) if kept]


def _layout(value: SSAValue) -> Attribute:
    """The layout attribute of an op's result."""
    op = value.owner
    assert isinstance(op, Operation)
    if isinstance(op, ReshardOp):
        return op.to
    every = op.attributes[LAYOUT]
    assert isinstance(every, ArrayAttr)
    return every.data[list(op.results).index(value)]  # type: ignore[arg-type,no-any-return]
