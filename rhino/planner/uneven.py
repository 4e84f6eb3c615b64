"""Extents that a mesh does not divide: the planner's use of the pass `pad`.

A program is planned as it is first. Where extents stand in the way (a template cannot divide its batch, no plan fits,
or much of the step goes to ops and collectives that would be shorter in more pieces), it is planned once more with
these extents grown to multiples, as `pad` grows them. Work on padding is work like any other to the cost model, so the
cheaper plan wins. A program all of whose extents divide is planned once.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from rhino.dialects import signature
from rhino.dialects.dist.layouts import read_layouts
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.dist.reshard import ReshardOp
from rhino.dialects.hlo.base import HloOp
from rhino.ir import types
from rhino.ir.errors import PlanError
from rhino.ir.mesh import Mesh
from rhino.passes.extents import DimClass, classes_of
from rhino.passes.pad import PadPass, best_growth
from rhino.planner.cluster import Cluster
from rhino.planner.communication import Communication
from rhino.planner.cost import least_time
from rhino.planner.evaluate import work_of
from rhino.planner.graph import Kind, kind_of

if TYPE_CHECKING:
    from rhino.planner.plan import Plan

#: Extent -> the extent that it grows to.
Growth = Mapping[int, int]

#: Plans a program, which it takes, on a mesh (or searches one); the text says how the program was grown. What comes
#: with the plan is said to the user if it is chosen.
Attempt = Callable[[ModuleOp, "Mesh | None", str], "tuple[Plan, list[str]]"]

#: Share of the step that dividing all extents must promise to save before a program is planned again, and each of them
#: before it grows.
WORTH, WORTH_EACH = 0.1, 0.01

#: Templates that divide the batch over all devices.
BATCH_TEMPLATES = frozenset({"dp", "zero3"})


def plan_padded(
    module: ModuleOp, attempt: Attempt, cluster: Cluster, *, mesh: Mesh | None, template: str | None
) -> list[tuple[Plan, list[str]]]:
    """All plans that were made of a program, as it is and with extents grown; at least one.

    Raises PlanError when there is none.
    """
    try:
        first = attempt(module.clone(), mesh, "")
    except PlanError as error:
        growth: Growth = growth_of(module, multiples(mesh, cluster.size))
        if template in BATCH_TEMPLATES:
            growth = {**growth, **_batch_growth(module, cluster.size, error)}
        if not growth:
            raise
        found, where = [], mesh
    else:
        found, where = [first], first[0].mesh
        classes, _ = classes_of(signature.main_of(module))
        growth = _growth(classes, multiples(where, cluster.size))
        growth = promising(first[0].module, cluster, _sizes(classes), growth, first[0].cost.step_time_s)
        if not growth:
            return found
    for _ in range(2):  # once more without what grew for nothing
        try:
            more = attempt(padded(module, growth), where, option(growth))
        except PlanError:
            if not found:
                raise
            break
        found.append(more)
        used = _used(more[0].module, module, growth)
        if not used or used == growth:
            break
        growth, where = used, more[0].mesh
    return found


def even(module: ModuleOp, mesh: Mesh | None, devices: int) -> bool:
    """Whether all extents of all arguments, from which the others come, are multiples of the devices."""
    func = signature.main_of(module)
    wanted = math.lcm(*multiples(mesh, devices))
    return all(n % wanted == 0 for value in func.args for n in types.shape_of(value) if n > 1)


def multiples(mesh: Mesh | None, devices: int) -> list[int]:
    """What an extent may have to be a multiple of: products of a mesh's axes, or whatever divides the devices."""
    if mesh is None:
        return [n for n in range(2, devices + 1) if devices % n == 0]
    sizes = [size for _, size in mesh.axes if size > 1]
    found = {math.prod(some) for n in range(1, len(sizes) + 1) for some in combinations(sizes, n)}
    return sorted(found)


def growth_of(module: ModuleOp, multiples: Sequence[int]) -> dict[int, int]:
    """Extents of matrix products, convolutions and look-ups that are not multiples of what they should be, and what
    they may grow to (see `best_growth`).
    """
    return _growth(classes_of(signature.main_of(module))[0], multiples)


def _growth(classes: Sequence[DimClass], multiples: Sequence[int]) -> dict[int, int]:
    found = {c.extent: best_growth(c.extent, multiples) for c in classes if c.heavy}
    return {old: new for old, new in sorted(found.items()) if new is not None}


def option(growth: Growth) -> str:
    """The growth as `pad` reads it: ``6:8,257:260``."""
    return ",".join(f"{old}:{new}" for old, new in sorted(growth.items()))


def padded(module: ModuleOp, growth: Growth) -> ModuleOp:
    """A copy of a module with its extents grown."""
    copy = module.clone()
    PadPass(extents=option(growth)).apply(Context(), copy)
    return copy


def promising(
    placed: ModuleOp, cluster: Cluster, held: Mapping[int, Collection[int]], growth: Growth, total: float
) -> Growth:
    """The extents that a plan of `total` seconds loses time by: on communication of values that have them, and on work
    with such values that is not divided by all devices. `held` are the sizes of the dimensions that hold an extent.
    """
    if not growth:
        return growth
    communication = Communication(cluster, mesh_of(placed))
    # What holds an extent (40 holds 10 heads of 4) may divide where the extent itself does not.
    whole = {e: {n for n in sizes if n % cluster.size} for e, sizes in held.items()}
    kinds: dict[Hashable, Kind] = {}
    any_of = set().union(*(whole[extent] for extent in growth))
    together, lost = 0.0, dict.fromkeys(growth, 0.0)
    work = work_of(placed, communication, lambda op: not any_of.isdisjoint(_sizes_around(op)))
    for item in work.combined(communication).items:
        sources = item.source if isinstance(item.source, tuple) else (item.source,)  # those of a bucket
        for op in sources:
            if not isinstance(op, Operation):
                continue
            seen = _sizes_around(op)
            at = [extent for extent in growth if not seen.isdisjoint(whole[extent])]
            least = 0.0
            if isinstance(op, HloOp) and not item.communication:
                least = least_time(cluster.hardware, kind_of(op, kinds), cluster.size)
            more = max(0.0, item.time - least) / len(sources)
            together += more if at else 0.0
            for extent in at:
                lost[extent] += more
    if together <= WORTH * total:
        return {}
    return {extent: new for extent, new in growth.items() if lost[extent] > WORTH_EACH * total}


def _sizes_around(op: Operation) -> set[int]:
    """The extents that an op sees; for a reshard also those that the ops see that make it necessary."""
    around = [op]
    if isinstance(op, ReshardOp):
        owner = op.operands[0].owner
        around += [owner] if isinstance(owner, Operation) else []
        around += [use.operation for use in op.results[0].uses if use.operation.results]
    return {n for each in around for value in (*each.operands, *each.results) for n in types.shape_of(value)}


def _sizes(classes: Sequence[DimClass]) -> dict[int, set[int]]:
    """For every extent that may grow the sizes of the dimensions that hold it: 10 and 40 for 10 heads of 4."""
    out: dict[int, set[int]] = defaultdict(set)
    for each in classes:
        out[each.extent].update(types.shape_of(value)[d] for value, d in each.members)
    return out


def _used(placed: ModuleOp, module: ModuleOp, growth: Growth) -> Growth:
    """The growth without the extents that the plan never divides."""
    layouts = read_layouts(signature.main_of(placed), mesh_of(placed))
    divided = {
        n
        for value, layout in layouts.items()
        for n, digits in zip(types.shape_of(value), layout.dims, strict=True)
        if digits
    }
    sizes = _sizes(classes_of(signature.main_of(module))[0])
    return {
        old: new for old, new in growth.items() if not divided.isdisjoint(n // old * new for n in sizes[old])
    }


def _batch_growth(module: ModuleOp, devices: int, error: PlanError) -> Growth:
    """What the batch must grow to so that all devices have a part; none if it has them.

    Raises `error` with the reason where growing is no way out.
    """
    func = signature.main_of(module)
    leading = Counter(
        types.shape_of(arg)[0]
        for slot, arg in zip(signature.arguments(func), func.args, strict=True)
        if slot.role == "input" and types.shape_of(arg)
    )
    batch = max(leading, key=lambda extent: (leading[extent], extent), default=1)
    new = -(-batch // devices) * devices
    if batch == new:
        return {}
    if new >= 2 * batch:
        reason = f"padding it to {new} would at least double the work"
        raise PlanError(f"{error.message}, and {reason}", remedy=error.remedy) from error
    if all(each.extent != batch for each in classes_of(func)[0]):
        reason = "no op of the program can do with a larger one"
        raise PlanError(f"{error.message}, and {reason}", remedy=error.remedy) from error
    return {batch: new}
