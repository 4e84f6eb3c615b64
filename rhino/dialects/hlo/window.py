"""Windows over all dimensions of a tensor: pooling, and the scatter that is max pooling's derivative."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Localizer, Properties, get_ints, get_text, ints
from rhino.dialects.hlo.common import (
    Cotangents,
    check_element,
    check_kind,
    check_length,
    combine,
    identity,
    ints_def,
    python_number,
    wide,
)
from rhino.dialects.hlo.digits import places
from rhino.dialects.hlo.shape import pad_array
from rhino.ir import types
from rhino.ir.errors import ProgramError, UnsupportedError
from rhino.ir.mesh import merge_refs
from rhino.ir.neutral import has_identity
from rhino.ir.rule import REDUCTIONS, Halo, Rule
from rhino.ir.text import show_location

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder


@dataclass(frozen=True)
class Pieces:
    """A dimension in blocks that keep in step with those of the places that read it.

    Attributes:
        blocks: how many; any contiguous run of them is a piece.
        operand, places: elements of the operand and places in a block.
        before, after: elements that a piece needs of the operand beyond its own.
        of_window: whether the places are those of the window, not its positions.
    """

    blocks: int
    operand: int
    places: int
    before: int
    after: int
    of_window: bool

    def most(self, extent: int) -> int:
        """Pieces at most, of an operand of `extent`: edges come from the next neighbours only."""
        edge = max(self.before, self.after)
        return min(self.blocks, extent // edge) if edge else self.blocks


@dataclass(frozen=True)
class WindowDim:
    """One dimension of a window: the operand's and the window's dilation put gaps between their elements."""

    extent: int
    size: int
    stride: int = 1
    low: int = 0
    high: int = 0
    base_dilation: int = 1
    dilation: int = 1

    @property
    def dilated(self) -> int:
        """Extent of the dilated operand."""
        return (self.extent - 1) * self.base_dilation + 1 if self.extent else 0

    @property
    def reach(self) -> int:
        """Extent of the dilated window."""
        return (self.size - 1) * self.dilation + 1

    @property
    def out(self) -> int:
        """Number of window positions."""
        room = self.dilated + self.low + self.high - self.reach
        return room // self.stride + 1 if room >= 0 else 0

    @property
    def is_trivial(self) -> bool:
        """Whether every element is its own window."""
        return (self.size, self.stride, self.low, self.high, self.base_dilation) == (1, 1, 0, 0, 1)

    @property
    def is_tiling(self) -> bool:
        """Whether the windows cut the dimension into equal blocks."""
        plain = (self.low, self.high, self.base_dilation, self.dilation) == (0, 0, 1, 1)
        return plain and self.size == self.stride and self.extent % self.size == 0

    def pieces(self, contracts: bool) -> Pieces | None:
        """How the dimension divides among devices that exchange edges: into blocks of window positions, or else, for
        an op that `contracts` over the window, into blocks of the window itself, which every position sees in turn.
        None if it does not, or not even in two.

        (The window of a weight's gradient is the cotangent, as large as the result that it belongs to.)
        """
        found = [self._pieces(self.out, self.stride, self.reach - 1, False)]
        if contracts:
            found.append(self._pieces(self.size, self.dilation, (self.out - 1) * self.stride, True))
        return next((of for of in found if of is not None and of.most(self.extent) > 1), None)

    def _pieces(self, count: int, step: int, span: int, of_window: bool) -> Pieces | None:
        """Blocks of `count` places, `step` dilated elements apart, each of which reads the `span` elements behind it.

        Place t reads dilated elements ``t step - low`` to ``t step - low + span``. Blocks of the operand and of the
        places keep in step if as many dilated elements as places go by. A block of h elements and ``h base / step``
        places then reads from ``-(low // base)`` to ``h + (span - step - low) // base``, counted from its own first.
        """
        if count < 2 or self.out < 1 or self.extent * self.base_dilation != count * step:
            return None
        blocks = math.gcd(self.extent, count)
        before = max(0, self.low // self.base_dilation)
        after = max(0, (span - step - self.low) // self.base_dilation + 1)
        return Pieces(blocks, self.extent // blocks, count // blocks, before, after, of_window)

    def piece(self, count: int, of: Pieces) -> WindowDim:
        """The dimension as one of `count` devices sees it, with the edges put to its part of the operand."""
        size = self.size // count if of.of_window else self.size
        out = self.out if of.of_window else self.out // count
        extent = self.extent // count + of.before + of.after
        low = self.low - of.before * self.base_dilation
        reach = (size - 1) * self.dilation + 1
        high = (out - 1) * self.stride + reach - low - ((extent - 1) * self.base_dilation + 1)
        return replace(self, extent=extent, size=size, low=low, high=high)

    def factors(
        self,
        tag: str,
        sizes: dict[str, int],
        kinds: dict[str, str],
        halos: dict[str, Halo] | None = None,
        contracts: bool = False,
    ) -> tuple[tuple[str, ...], ...]:
        """Factors of the operand's, the window's and the result's dimension; adds their sizes and kinds.

        Blocks of whole, disjoint windows may be split. Anything else needs the neighbours' elements: that is split in
        blocks of window positions where the op can exchange `halos` (and adds them there), or, if it `contracts` over
        the window, in blocks of the window.
        """
        if self.is_tiling:
            sizes[f"p{tag}"], sizes[f"w{tag}"] = self.out, self.size
            kinds[f"w{tag}"] = "whole"
            return (f"p{tag}", f"w{tag}"), (f"w{tag}",), (f"p{tag}",)
        of = self.pieces(contracts) if halos is not None else None
        if halos is not None and of is not None:
            p = f"p{tag}"
            halos[p], sizes[p] = Halo(0, of.before, of.after), of.blocks
            window, out = (of.places, self.out) if of.of_window else (self.size, of.places)
            for name, size in (("x", of.operand), ("w", window), ("y", out)):
                sizes[f"{name}{tag}"], kinds[f"{name}{tag}"] = size, "whole"
            if of.of_window:
                kinds[p] = "sum"
                return (p, f"x{tag}"), (p, f"w{tag}"), (f"y{tag}",)
            return (p, f"x{tag}"), (f"w{tag}",), (p, f"y{tag}")
        for name, size in (("x", self.extent), ("w", self.size), ("y", self.out)):
            sizes[f"{name}{tag}"], kinds[f"{name}{tag}"] = size, "whole"
        return (f"x{tag}",), (f"w{tag}",), (f"y{tag}",)


def padded_by(properties: Properties, dims: Sequence[WindowDim]) -> dict[str, Attribute]:
    """Properties of an op over windows with the padding of `dims`."""
    return {**properties, "low": ints([d.low for d in dims]), "high": ints([d.high for d in dims])}


def check_window(dims: Sequence[WindowDim], x: types.Type) -> None:
    """Raise ProgramError if sizes, strides or dilations are not positive."""
    for i, d in enumerate(dims):
        if min(d.size, d.stride, d.base_dilation, d.dilation) < 1:
            raise ProgramError(
                f"window of size {d.size}, stride {d.stride}, dilations {d.base_dilation} and {d.dilation} "
                f"in dimension {i} of operand 0 {types.show(x)}: all must be 1 or more"
            )


def windows_of(x: np.ndarray, dims: Sequence[WindowDim]) -> np.ndarray:
    """A view of all windows of `x`, which is already dilated and padded: ``[out..., window...]``."""
    steps = [s * d.stride for s, d in zip(x.strides, dims, strict=True)]
    steps += [s * d.dilation for s, d in zip(x.strides, dims, strict=True)]
    shape = [d.out for d in dims] + [d.size for d in dims]
    return np.lib.stride_tricks.as_strided(x, shape, steps, writeable=False)


def pad_for(x: np.ndarray, dims: Sequence[WindowDim], value: np.generic | bool | int | float) -> np.ndarray:
    """`x` dilated and padded with `value`."""
    return pad_array(
        x, value, [d.low for d in dims], [d.high for d in dims], [d.base_dilation - 1 for d in dims]
    )


def with_edges(
    ctx: Localizer, op: HloOp, dims: Sequence[WindowDim], first: int, x: SSAValue, kind: str
) -> tuple[SSAValue, list[WindowDim]]:
    """Operand 0 on one device with the edges that its windows need, and its window on it.

    ``dims[i]`` is dimension ``first + i`` of the operand `x`; beyond its border stands the neutral element of `kind`.
    Edges of several dimensions are exchanged one after the other, so that corners come along.
    """
    rule, out = op.rule(), list(dims)
    reason = f"edges for {op.name}" + (f" at {place}" if (place := show_location(op.location)) else "")
    for i, d in enumerate(dims):
        digits = ctx.operands[0].dims[first + i]
        if not digits or f"p{i}" not in rule.halos:
            continue
        ((axes, count, _),) = places(digits)  # the rule lets pass contiguous blocks only
        of = d.pieces(rule.kind(f"p{i}") == "sum")
        assert of is not None
        if of.before or of.after:
            edges = of.before, of.after
            x = ctx.builder.halo(x, first + i, merge_refs(axes), ctx.mesh, edges, kind, reason)
        out[i] = d.piece(count, of)
    return x, out


class WindowOp(HloOp):
    """Base: the window's properties, one entry per dimension of operand 0."""

    window = ints_def()
    strides = ints_def()
    low = ints_def()
    high = ints_def()
    base_dilation = ints_def()
    window_dilation = ints_def()

    @classmethod
    def window_dims(cls, x: types.Type, properties: Properties) -> list[WindowDim]:
        """The window over `x`. Raises ProgramError when the properties do not fit it."""
        names = ("window", "strides", "low", "high", "base_dilation", "window_dilation")
        lists = [get_ints(properties, name) for name in names]
        for name, values in zip(names, lists, strict=True):
            check_length(name, values, x)
        dims = [WindowDim(*per) for per in zip(x.get_shape(), *lists, strict=True)]
        check_window(dims, x)
        return dims

    @property
    def dims(self) -> list[WindowDim]:
        return self.window_dims(types.type_of(self.operands[0]), self.properties)


@irdl_op_definition
class ReduceWindowOp(WindowOp):
    """Every window of the dilated and padded operand combined by `kind`, each step rounded; padding is neutral.

    ``%y = hlo.reduce_window "max" %x window [1, 2] strides [1, 2] low [0, 0] high [0, 0]
      base_dilation [1, 1] window_dilation [1, 1] : tensor<3x4xf32> -> tensor<3x2xf32>``
    """

    name = "hlo.reduce_window"
    x = operand_def(TENSOR)
    kind = prop_def(StringAttr)
    result = result_def(TENSOR)
    assembly_format = (
        "$kind $x `window` $window `strides` $strides `low` $low `high` $high `base_dilation` $base_dilation "
        "`window_dilation` $window_dilation attr-dict `:` type($x) `->` type($result)"
    )

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        (x,) = operands
        check_kind(get_text(properties, "kind"), x, REDUCTIONS)
        return [types.tensor([d.out for d in cls.window_dims(x, properties)], x.element_type)]

    def rule(self) -> Rule:
        sizes: dict[str, int] = {}
        kinds: dict[str, str] = {}
        halos: dict[str, Halo] = {}
        known = halos if has_identity(self.kind.data, types.numpy_dtype(types.element_of(self.x))) else None
        factors = [d.factors(str(i), sizes, kinds, known) for i, d in enumerate(self.dims)]
        x, y = tuple(f[0] for f in factors), tuple(f[2] for f in factors)
        return Rule((x,), (y,), sizes, kinds, carries={self.kind.data: ((0,),)}, halos=halos)

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        x, dims = with_edges(ctx, self, self.dims, 0, operands[0], self.kind.data)
        return ctx.builder.emit(ReduceWindowOp, [x], padded_by(self.properties, dims)).results

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        (x,) = operands
        dims, kind = self.dims, self.kind.data
        acc = wide(x)
        found = windows_of(pad_for(acc, dims, identity(kind, acc.dtype)), dims)
        # One element of all windows after the other, in the order of StableHLO's own interpreter.
        first, *others = np.ndindex(*found.shape[x.ndim :])
        out = np.array(found[(..., *first)])
        for place in others:
            out = combine(kind, out, found[(..., *place)], x.dtype)
        return (out.astype(x.dtype, copy=False),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        kind = self.kind.data
        if kind == "sum":
            return [self._sum_derivative(builder, dy)]
        if kind in ("max", "min"):
            return [self._extremum_derivative(builder, dy)]
        if kind == "prod":
            return [self._product_derivative(builder, dy)]
        return [None]

    def _sum_derivative(self, b: Builder, dy: SSAValue) -> SSAValue:
        """Each element gets the sum over the windows that hold it: a window sum with strides as dilation."""
        dims = self.dims
        if 0 in types.shape_of(self.result):
            return b.full_like(self.x, 0)
        padding = []
        for d in dims:
            low = d.reach - 1 - d.low
            padding.append((low, d.dilated - ((d.out - 1) * d.stride + 1) + d.low))
        return b.reduce_window(
            dy,
            "sum",
            [d.size for d in dims],
            [d.base_dilation for d in dims],
            padding,
            [d.stride for d in dims],
            [d.dilation for d in dims],
        )

    def _extremum_derivative(self, b: Builder, dy: SSAValue) -> SSAValue:
        dims, zeros = self.dims, [0] * len(self.dims)
        x = self.x if self.kind.data == "max" else b.negate(self.x)
        gaps = [d.base_dilation - 1 for d in dims]
        # Dilation puts -inf between the elements, from where no gradient comes back.
        lowest = python_number(identity("max", types.numpy_dtype(types.element_of(x))))
        spread = b.pad(x, lowest, zeros, zeros, gaps)
        dx = b.select_and_scatter(
            spread,
            dy,
            [d.size for d in dims],
            [d.stride for d in dims],
            [(d.low, d.high) for d in dims],
            [d.dilation for d in dims],
        )
        return b.slice(dx, zeros, types.shape_of(dx), [d.base_dilation for d in dims])

    def _product_derivative(self, b: Builder, dy: SSAValue) -> SSAValue:
        """Through the windows laid out: take, reduce, and their derivatives."""
        dims, rank = self.dims, len(self.dims)
        x = b.pad(
            self.x,
            1,
            [d.low for d in dims],
            [d.high for d in dims],
            [d.base_dilation - 1 for d in dims],
        )
        chain: list[SSAValue] = [x]
        for i, d in enumerate(dims):  # dimension 2 i becomes [position, element]
            at = np.arange(d.out)[:, None] * d.stride + np.arange(d.size)[None, :] * d.dilation
            chain.append(b.take(chain[-1], b.constant(at), 2 * i))
        y = b.reduce(chain[-1], [2 * i + 1 for i in range(rank)], "prod")
        grad: SSAValue | None = dy
        for value in (y, *reversed(chain[1:]), x):
            if value is self.x:
                break
            owner = value.owner
            assert isinstance(owner, HloOp)
            grad = owner.derivative(b, [grad])[0]
        assert grad is not None
        return grad


@irdl_op_definition
class SelectAndScatterOp(WindowOp):
    """For every window of `x` an element of `source` is added to the place of the window's first maximum.

    ``%z = hlo.select_and_scatter %x, %s window [2] strides [2] low [0] high [0]
      base_dilation [1] window_dilation [1] : (tensor<4xf32>, tensor<2xf32>) -> tensor<4xf32>``

    Padding is never selected. The gradient reaches `source` only; max pooling is differentiated once.
    """

    name = "hlo.select_and_scatter"
    x = operand_def(TENSOR)
    source = operand_def(TENSOR)
    result = result_def(TENSOR)
    assembly_format = (
        "$x `,` $source `window` $window `strides` $strides `low` $low `high` $high "
        "`base_dilation` $base_dilation `window_dilation` $window_dilation attr-dict `:` "
        "functional-type(operands, results)"
    )

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        x, source = operands
        check_element(1, source, x)
        want = [d.out for d in cls.window_dims(x, properties)]
        if want != list(source.get_shape()):
            raise ProgramError(
                f"operand 1 is {types.show(source)}, but the windows of operand 0 {types.show(x)} give {want}"
            )
        return [x]

    def rule(self) -> Rule:
        sizes: dict[str, int] = {}
        kinds: dict[str, str] = {}
        factors = [d.factors(str(i), sizes, kinds) for i, d in enumerate(self.dims)]
        x, y = tuple(f[0] for f in factors), tuple(f[2] for f in factors)
        return Rule((x, y), (x,), sizes, kinds, linear=((1,),))

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        x, source = operands
        dims, rank = self.dims, x.ndim
        acc = wide(x)
        places = windows_of(pad_for(np.arange(x.size).reshape(x.shape), dims, -1), dims)
        values = windows_of(pad_for(acc, dims, identity("max", acc.dtype)), dims)
        shape = (*places.shape[:rank], math.prod(places.shape[rank:]))
        places, values = places.reshape(shape), values.reshape(shape)
        real = places >= 0
        lowest = identity("max", acc.dtype)
        best = np.max(np.where(real, values, lowest), axis=-1, keepdims=True)
        hits = real & ((values == best) | ((values != values) & (best != best)))
        chosen = np.take_along_axis(places, np.argmax(hits, axis=-1)[..., None], -1)[..., 0]
        some = hits.any(axis=-1)
        out = np.zeros(x.size, acc.dtype)
        np.add.at(out, chosen[some], wide(source)[some])
        return (out.reshape(x.shape).astype(x.dtype, copy=False),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        raise UnsupportedError(
            "hlo.select_and_scatter has no derivative: max pooling can be differentiated once only"
        )

    def flops(self) -> int:
        return math.prod(types.shape_of(self.source)) * math.prod(d.size for d in self.dims)


OPS: list[type[HloOp]] = [ReduceWindowOp, SelectAndScatterOp]
