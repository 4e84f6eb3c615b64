"""Proof of a sharding rule by the op's own numpy evaluation.

::

    problems = check_rule(op.rule(), op.evaluate, [x, w])
    assert not problems, "\\n".join(problems)

Every split that the rule allows is carried out: operands are cut, the op runs on every device's pieces, and the
outcome must be exactly what the placement says of the result. So must every partial that the rule lets through.
Use integers (or booleans): sums of floats depend on the order. An op whose properties hold extents needs
`localize`; without it splits of factors that no operand has are left out, since nothing tells the op its size.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import simulate

from rhino.ir.layout import Layout
from rhino.ir.mesh import AxisRef, Mesh
from rhino.ir.rule import Rule, Split

Evaluate = Callable[..., "np.ndarray | Sequence[np.ndarray]"]
#: ``localize(mesh, device, operand layouts, result layouts)`` gives the function that this device runs.
Localize = Callable[[Mesh, int, tuple[Layout, ...], tuple[Layout, ...]], Evaluate]

MESHES = ("2", "3", "4")
TWO_AXES = ("2x2", "2x3")


def check_rule(
    rule: Rule,
    evaluate: Evaluate,
    operands: Sequence[np.ndarray],
    localize: Localize | None = None,
    *,
    partials: bool = True,
    double: int = 24,
) -> list[str]:
    """What is wrong with `rule`, in words; empty when nothing is.

    Tried are all single splits on axes of 2, 3 and 4, `double` random pairs of splits on 2 x 2 and 2 x 3
    meshes, and, with `partials`, every group of operands through which the rule lets a partial pass, alone and
    beside a split.
    """
    want = _tuple(evaluate(*operands))
    problems = []
    for side, dims, arrays in (("operand", rule.operands, operands), ("result", rule.results, want)):
        if len(dims) != len(arrays):
            return [f"the rule has {len(dims)} {side}s, the op {len(arrays)}"]
        for i, (tensor, array) in enumerate(zip(dims, arrays, strict=True)):
            if rule.shape(tensor) != array.shape:
                problems.append(f"{side} {i}: rule says shape {rule.shape(tensor)}, the op {array.shape}")
    if problems:
        return problems
    for text, splits, group, kind in _trials(rule, localize is not None, partials, double):
        mesh = Mesh.parse(text)
        why = _try(rule, evaluate, operands, want, localize, mesh, splits, group, kind)
        if why is not None:
            said = ", ".join(f"{s.factor} (period {s.period}) on {s.axis.name}" for s in splits)
            passing = f"partial {kind} in operands {list(group)} on {mesh.atoms[-1].name}" if kind else ""
            problems.append(f"mesh {text}: {'; '.join(filter(None, (said, passing)))}: {why}")
    return problems


Trial = tuple[str, tuple[Split, ...], tuple[int, ...], str]


def _trials(rule: Rule, free: bool, partials: bool, double: int) -> Iterator[Trial]:
    """Mesh, splits, and the operands that are partial (with a kind) on the last atom of the mesh."""
    for text in MESHES:
        for split in _splits(rule, Mesh.parse(text).axis("x"), free):
            yield text, (split,), (), ""
    rng = random.Random(0)
    for text in TWO_AXES:
        mesh = Mesh.parse(text)
        pairs = list(itertools.product(*(_splits(rule, mesh.axis(name), free) for name in "xy")))
        pairs = [pair for pair in pairs if _well_formed(rule, pair)]
        for pair in rng.sample(pairs, min(double, len(pairs))):
            yield text, pair, (), ""
    if partials:
        groups = [("sum", group) for group in rule.linear]
        groups += [(kind, group) for kind, many in rule.carries.items() for group in many]
        if rule.structural:
            everyone = tuple(range(len(rule.operands)))
            groups += [(kind, everyone) for kind in ("sum", "max")]
        for kind, group in groups:
            yield "2", (), group, kind
            splits = _splits(rule, Mesh.parse("2x3").axis("x"), free)
            for split in rng.sample(splits, min(2, len(splits))):
                yield "2x3", (split,), group, kind


def _splits(rule: Rule, axis: AxisRef, free: bool) -> list[Split]:
    return [
        Split(axis, factor, period)
        for factor in rule.factors
        if free or factor not in rule.result_only
        for period in range(axis.size, rule.sizes[factor] + 1)
        if rule.sizes[factor] % period == 0 and period % axis.size == 0
    ]


def _well_formed(rule: Rule, splits: Sequence[Split]) -> bool:
    placed = rule.place(splits)
    tensors = [
        *zip(placed.operands, rule.operands, strict=True),
        *zip(placed.results, rule.results, strict=True),
    ]
    return all(layout.error(rule.shape(dims)) is None for layout, dims in tensors)


def _try(
    rule: Rule,
    evaluate: Evaluate,
    operands: Sequence[np.ndarray],
    want: Sequence[np.ndarray],
    localize: Localize | None,
    mesh: Mesh,
    splits: Sequence[Split],
    group: Sequence[int],
    kind: str,
) -> str | None:
    placed = rule.place(splits)
    before, after = list(placed.operands), list(placed.results)
    if kind:
        if any(r.partial and r.partial[0][1] != kind for r in after):
            return None  # the layouts would mean nothing
        before = [a.with_partial(mesh.atoms[-1], kind) if i in group else a for i, a in enumerate(before)]
        after = [a.with_partial(mesh.atoms[-1], kind) for a in after]
    if (why := rule.admits(before, after)) is not None:
        return f"the rule does not admit its own placement: {why}"
    try:
        pieces = [
            simulate.scatter(x, a, mesh, i) for i, (x, a) in enumerate(zip(operands, before, strict=True))
        ]
    except (NotImplementedError, TypeError):
        return None  # no random shares of this kind or element type
    outcomes = []
    for device in range(mesh.size):
        local = localize(mesh, device, tuple(before), tuple(after)) if localize else evaluate
        try:
            outcomes.append(_tuple(local(*(p[device] for p in pieces))))
        except Exception as error:
            return f"the local op fails on device {device}: {type(error).__name__}: {error}"
    for i, (value, layout) in enumerate(zip(want, after, strict=True)):
        arrays = [outcome[i] for outcome in outcomes]
        shapes = {x.shape for x in arrays}
        if shapes != {layout.local_shape(value.shape)}:
            return f"result {i} has local shapes {sorted(shapes)}, not {layout.local_shape(value.shape)}"
        if (why := simulate.check(arrays, value, layout, mesh)) is not None:
            return f"result {i}: {why}"
    return None


def _tuple(values: np.ndarray | Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return (np.asarray(values),) if isinstance(values, np.ndarray | np.generic) else tuple(values)
