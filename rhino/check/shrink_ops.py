"""What an op's own numbers (bounds, padding, counts) say about extents, and what they become on small ones.

Most ops hold no extents, and all they need is their sharding rule. A factor that may not be split (``whole``) keeps its
size unless this module knows that the op works for any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute

from rhino.dialects.hlo.base import HloOp, get_integer, get_ints, integer, ints
from rhino.dialects.hlo.constant import ConstantOp, IotaOp
from rhino.dialects.hlo.conv import ConvolutionOp
from rhino.dialects.hlo.dynamic import DynamicSliceOp, DynamicUpdateSliceOp
from rhino.dialects.hlo.index import GatherOp, ScatterOp
from rhino.dialects.hlo.reduce import ArgOp, CumulativeOp
from rhino.dialects.hlo.shape import BroadcastInDimOp, ConcatenateOp, PadOp, ReshapeOp, ReverseOp, SliceOp
from rhino.dialects.hlo.sort import SortOp, TopKOp
from rhino.ir import types
from rhino.ir.dense import dense, is_splat, retype, to_numpy
from rhino.ir.rule import Rule

#: A factor of the op's rule, or an amount of its own (``low0``).
Term = str

#: Ops that take dimensions which they cannot split in any length.
_ANY_LENGTH = (ReverseOp, SortOp, ArgOp, CumulativeOp)


@dataclass(frozen=True)
class Facts:
    """What an op says about the extents of its factors.

    Attributes:
        fixed: factors that must keep their sizes.
        amounts: further numbers, by name.
        sums: factors and amounts on the left that add up to those on the right.
    """

    fixed: frozenset[Term]
    amounts: Mapping[Term, int]
    sums: tuple[tuple[tuple[Term, ...], tuple[Term, ...]], ...]


def facts_of(op: HloOp, rule: Rule) -> Facts:
    """The facts of an op, `rule` being its own."""
    whole = frozenset(f for f in rule.sizes if rule.kind(f) == "whole")
    if any(types.shape_of(arg) for region in op.regions for block in region.blocks for arg in block.args):
        return Facts(frozenset(rule.sizes), {}, ())  # the types inside name extents, too
    if isinstance(op, _ANY_LENGTH):
        return Facts(frozenset(), {}, ())
    if isinstance(op, SliceOp):
        return _slice(op, rule)
    if isinstance(op, PadOp):
        return _pad(op, rule)
    if isinstance(op, ConcatenateOp):
        parts = tuple(f"t{i}" for i in range(len(op.operands)))
        return Facts(frozenset(), {}, ((("u",), parts),) if "u" in rule.sizes else ())
    if isinstance(op, DynamicSliceOp | DynamicUpdateSliceOp):
        return _windows(rule)
    if isinstance(op, TopKOp):
        rest = rule.sizes["s"] - rule.sizes["k"]
        return Facts(frozenset(), {"rest": rest}, ((("s",), ("k", "rest")),))
    if isinstance(op, GatherOp | ScatterOp):
        return Facts(frozenset(f for f in whole if not f.startswith("i")), {}, ())
    # Edges are as wide in a small program, and must lie within one neighbour there, too.
    return Facts(whole | frozenset(rule.halos), {}, ())


def _slice(op: SliceOp, rule: Rule) -> Facts:
    """In units of what passes: before the slice, the slice, behind it."""
    fixed: set[Term] = set()
    amounts: dict[Term, int] = {}
    sums = []
    for i, (extent, a, b, step) in enumerate(zip(op.shape_x, *op.bounds, strict=True)):
        if extent % step or a == b:
            fixed |= {f"t{i}", f"u{i}", f"w{i}"} & set(rule.sizes)
            continue
        t, u, p = (rule.sizes.get(f"{name}{i}", 1) for name in "tup")
        before = a // step // p
        if t == 1:
            continue
        amounts |= {f"before{i}": before, f"behind{i}": t - before - u}
        fixed |= {f"w{i}"} & set(rule.sizes)
        sums.append(((f"t{i}",), (f"u{i}", f"before{i}", f"behind{i}")))
    return Facts(frozenset(fixed), amounts, tuple(sums))


def _pad(op: PadOp, rule: Rule) -> Facts:
    """In units of what passes: what is put before and behind, which may be negative."""
    fixed: set[Term] = set()
    amounts: dict[Term, int] = {}
    sums = []
    for i, (extent, lo, hi, gap) in enumerate(zip(op.shape_x, *op.amounts, strict=True)):
        step = gap + 1
        before, after = lo - lo % step, hi + lo % step + 1 - step
        p = rule.sizes.get(f"p{i}", 1)
        if after % step or not extent:
            fixed |= {f"t{i}", f"u{i}", f"w{i}"} & set(rule.sizes)
            continue
        fixed |= {f"w{i}"} & set(rule.sizes)
        if not before and not after:
            continue
        left, right = [f"u{i}"], [f"t{i}"]
        for name, amount in ((f"before{i}", before // step // p), (f"behind{i}", after // step // p)):
            amounts[name] = abs(amount)
            (right if amount >= 0 else left).append(name)
        sums.append((tuple(left), tuple(right)))
    return Facts(frozenset(fixed), amounts, tuple(sums))


def _windows(rule: Rule) -> Facts:
    """A window `u` inside a dimension `t`."""
    amounts, sums = {}, []
    for name in rule.sizes:
        if name.startswith("t"):
            i = name[1:]
            amounts[f"rest{i}"] = rule.sizes[name] - rule.sizes[f"u{i}"]
            sums.append(((name,), (f"u{i}", f"rest{i}")))
    return Facts(frozenset(), amounts, tuple(sums))


def small_properties(
    op: HloOp, rule: Rule, value: Callable[[Term], int], results: Sequence[tuple[int, ...]]
) -> dict[str, Attribute]:
    """The op's properties on small extents.

    Args:
        value: the small size of a factor or amount (1 for a factor of size 1).
        results: the small shapes of the results.
    """
    new = dict(op.properties)
    if isinstance(op, BroadcastInDimOp | ReshapeOp):
        new["shape"] = ints(results[0])
    elif isinstance(op, DynamicSliceOp):
        new["sizes"] = ints(results[0])
    elif isinstance(op, IotaOp):
        new["type"] = types.tensor(results[0], types.element_of(op.result))
    elif isinstance(op, ConstantOp):
        new["value"] = _constant(op, results[0])
    elif isinstance(op, TopKOp):
        new["k"] = integer(value("k"))
    elif isinstance(op, SliceOp):
        new.update(_bounds(op, rule, value, results[0]))
    elif isinstance(op, PadOp):
        new.update(_amounts(op, rule, value))
    elif isinstance(op, GatherOp):
        ix = op.indexing
        ends = dict(zip(ix.offset_operand, ix.offset, strict=True))
        new["slice_sizes"] = ints(
            [
                results[0][ends[d]] if d in ends else size
                for d, size in enumerate(get_ints(new, "slice_sizes"))
            ]
        )
    elif isinstance(op, ConvolutionOp) and "g" in rule.sizes:
        name = "feature_groups" if get_integer(new, "feature_groups") > 1 else "batch_groups"
        new[name] = integer(value("g"))
    return new


def _constant(op: ConstantOp, shape: tuple[int, ...]) -> Attribute:
    """The first elements of every dimension."""
    if is_splat(op.value):
        return retype(op.value, shape)
    part = to_numpy(op.value)[tuple(map(slice, shape))]
    return dense(part, types.tensor(shape, types.element_of(op.result)))


def _bounds(
    op: SliceOp, rule: Rule, value: Callable[[Term], int], result: tuple[int, ...]
) -> dict[str, Attribute]:
    starts, limits = [], []
    for i, (extent, a, b, step) in enumerate(zip(op.shape_x, *op.bounds, strict=True)):
        if extent % step == 0 and a != b:
            before = value(f"before{i}") if rule.sizes.get(f"t{i}", 1) > 1 else 0
            a = before * value(f"p{i}") * step + a % step
            b = a + (result[i] - 1) * step + 1
        starts.append(a)
        limits.append(b)
    return {"start": ints(starts), "limit": ints(limits)}


def _amounts(op: PadOp, rule: Rule, value: Callable[[Term], int]) -> dict[str, Attribute]:
    lows, highs = [], []
    for i, (extent, lo, hi, gap) in enumerate(zip(op.shape_x, *op.amounts, strict=True)):
        step = gap + 1
        before, after = lo - lo % step, hi + lo % step + 1 - step
        if after % step == 0 and extent and (before or after):
            unit, rest = step * value(f"p{i}"), lo % step
            lo = (value(f"before{i}") if before > 0 else -value(f"before{i}")) * unit + rest
            hi = (value(f"behind{i}") if after > 0 else -value(f"behind{i}")) * unit - rest - 1 + step
        lows.append(lo)
        highs.append(hi)
    return {"low": ints(lows), "high": ints(highs)}
