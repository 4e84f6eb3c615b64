"""What the values of a module are, for whoever must compute the same: a pass, or all ranks together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue

from rhino.check.names import Name, tag_of
from rhino.check.values import greatest, magnitude, record, relative_error
from rhino.dialects import signature
from rhino.dialects.dist.attributes import LayoutAttr
from rhino.dialects.dist.layouts import read_layouts
from rhino.dialects.dist.mesh import mesh_of
from rhino.dialects.signature import Slot
from rhino.dialects.verify import stage_of
from rhino.ir import types
from rhino.ir.evaluate import PerRank
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh
from rhino.ir.shards import combine, shard
from rhino.passes.widen_floats import widen_floats

#: The mesh of programs for one device.
ALONE = Mesh.parse("one=1")

#: What leaves a combination with any element of an array as it is.
_LEAST: Mapping[str, Callable[[np.ndarray], object]] = {
    "sum": lambda array: 0,
    "prod": lambda array: 1,
    "max": lambda array: array.min() - (array.dtype.kind in "fi"),
    "min": lambda array: array.max() + (array.dtype.kind in "fi"),
    "or": lambda array: 0,
    "and": lambda array: -1 if array.dtype != np.bool_ else True,
}


@dataclass(frozen=True)
class Expected:
    """What all ranks together must hold for one value.

    Attributes:
        name: what the user's program calls it.
        op: the op that makes it, None for an argument.
        array: the global array.
        scale: the greatest magnitude among the value and what it is computed from.
    """

    name: str
    op: Operation | None
    layout: Layout
    mesh: Mesh
    array: np.ndarray
    scale: float

    @cached_property
    def _parts(self) -> list[tuple[tuple[int, ...], np.ndarray]]:
        """Groups of ranks whose arrays combine to a piece (one rank each without partial axes), and the piece."""
        atoms = [atom for atom, _ in self.layout.partial]
        whole = self.layout.without(atoms)
        groups = self.mesh.groups(atoms)
        return [(tuple(group), shard(self.array, whole, self.mesh, group[0])) for group in groups]

    def error(self, pieces: PerRank, limit: float) -> tuple[float, tuple[int, ...]]:
        """The greatest relative error of the ranks' arrays, and the ranks that are off by more than `limit`."""
        worst = 0.0
        wrong: list[int] = []
        for group, want in self._parts:
            got = pieces[group[0]]
            if len(group) > 1:
                if any(pieces[rank].shape != want.shape for rank in group):
                    return float("inf"), group
                got = combine(self.layout.partial[0][1], [pieces[rank] for rank in group])
            error = relative_error(got, want, self.scale)
            worst = max(worst, error) if error == error else float("inf")
            if not error <= limit:  # not >, so that NaN is wrong
                wrong.extend(group)
        return worst, tuple(wrong)

    def pieces(self) -> list[np.ndarray]:
        """An array for every rank, such that together they hold the value.

        Under a partial layout the pieces are such that no rank can do without the reduction: small integers and what is
        left to the sum; for other reductions every element is whole on one of the group's ranks and as little as can be
        on the others.
        """
        out: list[np.ndarray] = [np.empty(0)] * self.mesh.size
        for group, want in self._parts:
            if len(group) == 1:
                out[group[0]] = want
                continue
            kind = self.layout.partial[0][1]
            if kind == "sum" and want.dtype != np.bool_:
                parts = _terms(want, len(group))
                for rank, part in zip(group, parts, strict=True):
                    out[rank] = part
                continue
            little = _LEAST[kind](self.array) if self.array.size else 0
            turn = (np.arange(want.size) * 7 // 3 % len(group)).reshape(want.shape)
            for i, rank in enumerate(group):
                out[rank] = np.where(turn == i, want, np.asarray(little, want.dtype))
        return out

    def show(self) -> str:
        """Its name, on a mesh also its layout, for messages."""
        if self.mesh.size == 1:
            return self.name
        return f"{self.name} {LayoutAttr.of(self.layout, self.array.shape, self.mesh).data}".replace('"', "")


def _terms(total: np.ndarray, count: int) -> list[np.ndarray]:
    """Arrays that add up to a total, exactly where it is of integers; no two are alike."""
    index = np.arange(total.size).reshape(total.shape)
    parts = [((index * 5 + i * 3) % 7 - 2).astype(total.dtype) for i in range(1, count)]
    rest = total
    for part in parts:
        rest = (rest - part).astype(total.dtype)
    return [rest, *parts]


@dataclass(frozen=True)
class Reference:
    """The values of a global or placed module on some arguments.

    Attributes:
        mesh: that of a placed module, else `ALONE`.
        expected: every value by its tag.
        arguments: tags of the arguments of `@main`.
        results: tag of every result, by `result_key`.
        element_types: by tag, before widening.
        widen: whether everything was computed in f64.
    """

    mesh: Mesh
    expected: Mapping[str, Expected]
    arguments: tuple[str, ...]
    results: Mapping[tuple[str, str], str]
    element_types: Mapping[str, Attribute]
    widen: bool

    @classmethod
    def of(
        cls,
        module: ModuleOp,
        names: Mapping[str, Name],
        arrays: Sequence[np.ndarray],
        *,
        widen: bool,
        alone: bool = False,
        floor: float = 0.0,
    ) -> Reference:
        """Run a global or placed module; `names` is what `name_values` returned for it.

        With `alone` a placed module counts as a program for one device. No value's scale is less than `floor`. Raises
        what `record` raises.
        """
        placed = not alone and stage_of(module) == "placed"
        mesh = mesh_of(module) if placed else ALONE
        element_types = {tag_of(value): types.element_of(value) for value in _values(module)}
        if widen:
            module = module.clone()
            widen_floats(module)
        func = signature.main_of(module)
        layouts = read_layouts(func, mesh) if placed else None
        known = record(func, fit(func, arrays))
        expected = {}
        for value, array in known.items():
            op = value.owner if isinstance(value.owner, Operation) else None
            near = [known[v] for v in op.operands] if op is not None else []
            layout = layouts[value] if layouts is not None else Layout.replicated(array.ndim)
            scale = max([floor, *map(magnitude, [array, *near])])
            tag = tag_of(value)
            assert tag, "the values have no names"
            expected[tag] = Expected(names[tag].shown, op, layout, mesh, array, scale)
        slots = signature.results(func)
        tags = [tag_of(value) for value in signature.return_of(func).operands]
        scales = greatest([(slot.role, expected[tag].array) for slot, tag in zip(slots, tags, strict=True)])
        for slot, tag in zip(slots, tags, strict=True):
            # As in a comparison of results alone: a result that is nothing but rounding is not its own measure.
            scale = max(expected[tag].scale, scales[slot.role])
            expected[tag] = replace(expected[tag], scale=scale)
        keys = {result_key(slot, i): tag for i, (slot, tag) in enumerate(zip(slots, tags, strict=True))}
        return cls(mesh, expected, tuple(tag_of(a) for a in func.args), keys, element_types, widen)

    def pieces(self) -> list[PerRank]:
        """The arguments, cut for the ranks."""
        return [self.expected[tag].pieces() for tag in self.arguments]


def result_key(slot: Slot, index: int) -> tuple[str, str]:
    """What tells a result from the others, whatever the order: its role and name, or its index."""
    return (slot.role, slot.name) if slot.name else ("", str(index))


def fit(func: FuncOp, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The arrays in the element types of the arguments."""
    return [
        array.astype(types.numpy_dtype(types.element_of(arg)), copy=False)
        for array, arg in zip(arrays, func.args, strict=True)
    ]


def _values(module: ModuleOp) -> list[SSAValue]:
    func = signature.main_of(module)
    return [*func.args, *(result for op in func.body.block.ops for result in op.results)]
