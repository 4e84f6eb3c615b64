"""Convolution of any spatial rank, with strides, padding, dilations, feature groups and batch groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def

from rhino.dialects.hlo.base import TENSOR, HloOp, Localizer, Properties, get_integer, get_ints, integer
from rhino.dialects.hlo.common import (
    Cotangents,
    check_element,
    factor_cuts,
    integer_def,
    ints_def,
    matmul,
    wide,
)
from rhino.dialects.hlo.window import WindowDim, check_window, pad_for, padded_by, windows_of, with_edges
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.rule import Halo, Rule

if TYPE_CHECKING:
    from rhino.dialects.builder import Builder

_NAMES = ("strides", "low", "high", "lhs_dilation", "rhs_dilation")


@irdl_op_definition
class ConvolutionOp(HloOp):
    """``x[N, C, ...] * w[O, I, ...] -> [N / batch_groups, O, ...]``, as in a network (no flip of the window).

    ``%y = hlo.convolution %x, %w strides [2] low [1] high [1] lhs_dilation [1] rhs_dilation [1] groups 1
      batch_groups 1 : (tensor<4x3x8xf32>, tensor<6x3x3xf32>) -> tensor<4x6x4xf32>``

    Group g of O / groups result features sees group g of the C = groups * I input features. With batch groups
    it sees group g of the batch instead. Padding may be negative. f16 and bf16 are accumulated in f32.
    """

    name = "hlo.convolution"
    x = operand_def(TENSOR)
    w = operand_def(TENSOR)
    strides = ints_def()
    low = ints_def()
    high = ints_def()
    lhs_dilation = ints_def()
    rhs_dilation = ints_def()
    feature_groups = integer_def()
    batch_groups = integer_def()
    result = result_def(TENSOR)
    assembly_format = (
        "$x `,` $w `strides` $strides `low` $low `high` $high `lhs_dilation` $lhs_dilation "
        "`rhs_dilation` $rhs_dilation `groups` $feature_groups `batch_groups` $batch_groups attr-dict `:` "
        "functional-type(operands, results)"
    )

    @classmethod
    def infer(cls, operands: Sequence[types.Type], properties: Properties) -> Sequence[types.Type]:
        x, w = operands
        both = f"operand 0 is {types.show(x)} and operand 1 is {types.show(w)}"
        check_element(1, w, x)
        if x.element_type == types.I1:
            raise ProgramError(f"{both}, but a convolution needs numbers", remedy="convert them first")
        if len(x.get_shape()) < 2 or len(x.get_shape()) != len(w.get_shape()):
            raise ProgramError(f"{both}: ranks must be equal and at least 2")
        dims = spatial_dims(x.get_shape(), w.get_shape(), properties, both)
        check_window(dims, x)
        groups, batch_groups = (
            get_integer(properties, "feature_groups"),
            get_integer(properties, "batch_groups"),
        )
        (n, c), (o, i) = x.get_shape()[:2], w.get_shape()[:2]
        if groups < 1 or batch_groups < 1 or (groups > 1 and batch_groups > 1):
            raise ProgramError(
                f"{groups} feature groups and {batch_groups} batch groups", remedy="one of them must be 1"
            )
        if c != groups * i:
            raise ProgramError(f"{both}: {c} input features are not {groups} groups of {i}")
        if o % (groups * batch_groups) or n % batch_groups:
            raise ProgramError(
                f"{both}: batch {n} and {o} result features do not fit {groups} feature groups and "
                f"{batch_groups} batch groups"
            )
        return [types.tensor([n // batch_groups, o, *(d.out for d in dims)], x.element_type)]

    @property
    def dims(self) -> list[WindowDim]:
        """The spatial dimensions."""
        return spatial_dims(types.shape_of(self.x), types.shape_of(self.w), self.properties, "")

    @property
    def groups(self) -> tuple[int, int]:
        """Feature groups and batch groups."""
        return get_integer(self.properties, "feature_groups"), get_integer(self.properties, "batch_groups")

    def rule(self) -> Rule:
        """Batch, result features, groups pass; input features are contracted; space may be cut in blocks.

        Where windows overlap, a device gets the edges of its part from its neighbours (see `WindowDim.factors`).
        """
        n, (o, i) = types.shape_of(self.x)[0], types.shape_of(self.w)[:2]
        groups, batch_groups = self.groups
        sizes = {"n": n // batch_groups, "i": i, "o": o // (groups * batch_groups)}
        kinds = {"i": "sum"}
        g: tuple[str, ...] = ()
        if groups * batch_groups > 1:
            g, sizes["g"] = ("g",), groups * batch_groups
        on_batch, on_feature = ((), g) if groups > 1 else (g, ())
        halos: dict[str, Halo] = {}
        space = [d.factors(str(k), sizes, kinds, halos, contracts=True) for k, d in enumerate(self.dims)]
        x = ((*on_batch, "n"), (*on_feature, "i"), *(s[0] for s in space))
        w = ((*g, "o"), ("i",), *(s[1] for s in space))
        y = (("n",), (*g, "o"), *(s[2] for s in space))
        return Rule((x, w), (y,), sizes, kinds, linear=((0,), (1,)), halos=halos)

    def evaluate(self, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
        x, w = wide(operands[0]), wide(operands[1])
        groups, batch_groups = self.groups
        dims = self.dims
        n, c = x.shape[:2]
        o, i = w.shape[:2]
        g = groups * batch_groups
        out = [d.out for d in dims]
        trivial = [WindowDim(n, 1), WindowDim(c, 1)]
        view = windows_of(pad_for(x, [*trivial, *dims], 0), [*trivial, *dims])
        view = view.reshape((n, c, *out, *(d.size for d in dims)))
        # [g, n, out..., window..., i] @ [g, window..., i, o]
        if groups > 1:
            view = view.reshape(n, g, i, *view.shape[2:])
            view = np.moveaxis(np.moveaxis(view, 1, 0), 2, -1)
        else:
            view = view.reshape(g, n // g, *view.shape[1:])
            view = np.moveaxis(view, 2, -1)
        taps = i * math.prod(d.size for d in dims)
        rows = view.reshape(g, n // batch_groups * math.prod(out), taps)
        columns = np.moveaxis(w.reshape(g, o // g, *w.shape[1:]), 2, -1).reshape(g, o // g, taps)
        y = matmul(rows, columns.transpose(0, 2, 1)).reshape(g, n // batch_groups, *out, o // g)
        y = np.moveaxis(np.moveaxis(y, 0, 1), -1, 2).reshape(n // batch_groups, o, *out)
        return (y.astype(operands[0].dtype, copy=False),)

    def derivative(self, builder: Builder, cotangents: Cotangents) -> Cotangents:
        (dy,) = cotangents
        assert dy is not None
        if 0 in types.shape_of(self.result):
            return [builder.full_like(self.x, 0), builder.full_like(self.w, 0)]
        return [self._input_derivative(builder, dy), self._weight_derivative(builder, dy)]

    def _input_derivative(self, b: Builder, dy: SSAValue) -> SSAValue:
        """The cotangent, dilated by the strides, convolved with the flipped window, features exchanged."""
        groups, batch_groups = self.groups
        dims, space = self.dims, types.shape_of(self.w)[2:]
        n, (o, i) = types.shape_of(self.x)[0], types.shape_of(self.w)[:2]
        g = groups * batch_groups
        w = b.reverse(self.w, range(2, 2 + len(dims)))
        w = b.transpose(b.reshape(w, (g, o // g, i, *space)), [0, 2, 1, *range(3, 3 + len(dims))])
        dx = b.convolution(
            dy,
            b.reshape(w, (g * i, o // g, *space)),
            [d.base_dilation for d in dims],
            [(d.reach - 1 - d.low, d.dilated - (d.out - 1) * d.stride - 1 + d.low) for d in dims],
            [d.stride for d in dims],
            [d.dilation for d in dims],
            g,
        )
        if batch_groups == 1:
            return dx
        # [n / g, g * i, ...] -> [g, n / g, i, ...]
        dx = b.reshape(dx, (n // g, g, i, *types.shape_of(self.x)[2:]))
        dx = b.transpose(dx, [1, 0, 2, *range(3, 3 + len(dims))])
        return b.reshape(dx, types.shape_of(self.x))

    def _weight_derivative(self, b: Builder, dy: SSAValue) -> SSAValue:
        """The input convolved with the cotangent as window (dilated by the strides), batch contracted."""
        groups, batch_groups = self.groups
        dims = self.dims
        swap = [1, 0, *range(2, 2 + len(dims))]
        x = b.transpose(
            self.x, swap
        )  # [C, N, ...]: features play the batch; groups of one become the other's
        dw = b.convolution(
            x,
            b.transpose(dy, swap),
            [d.dilation for d in dims],
            [(d.low, d.reach - 1 + (d.out - 1) * d.stride + 1 - d.dilated - d.low) for d in dims],
            [d.base_dilation for d in dims],
            [d.stride for d in dims],
            batch_groups,
            groups,
        )
        return b.transpose(dw, swap)

    def flops(self) -> int:
        """Two per product of a real element (not padding, not a gap of dilation) and a weight."""
        (o, i), n = types.shape_of(self.w)[:2], types.shape_of(self.result)[0]
        return 2 * n * o * i * math.prod(_taps(d) for d in self.dims)

    def localize(self, ctx: Localizer, operands: Sequence[SSAValue]) -> Sequence[SSAValue]:
        rule = self.rule()
        count = factor_cuts(rule.operands[1], dict(rule.sizes), ctx.operands[1], "g")
        groups, batch_groups = self.groups
        name, value = ("feature_groups", groups) if groups > 1 else ("batch_groups", batch_groups)
        x, dims = with_edges(ctx, self, self.dims, 2, operands[0], "sum")
        properties = {**padded_by(self.properties, dims), name: integer(value // count)}
        return ctx.builder.emit(ConvolutionOp, [x, operands[1]], properties).results


def spatial_dims(x: Sequence[int], w: Sequence[int], properties: Properties, both: str) -> list[WindowDim]:
    """The window of every spatial dimension. Raises ProgramError naming `both` operands if lengths differ."""
    lists = [get_ints(properties, name) for name in _NAMES]
    for name, values in zip(_NAMES, lists, strict=True):
        if len(values) != len(x) - 2:
            raise ProgramError(
                f"{both}: {name} {list(values)} has {len(values)} entries for {len(x) - 2} spatial dimensions"
            )
    return [WindowDim(*per) for per in zip(x[2:], w[2:], *lists, strict=True)]


def _taps(d: WindowDim) -> int:
    """Number of (position, window element) pairs that meet an element of the operand."""
    at = np.arange(d.out)[:, None] * d.stride + np.arange(d.size)[None, :] * d.dilation - d.low
    return int(np.count_nonzero((at >= 0) & (at < d.dilated) & (at % d.base_dilation == 0)))


OPS: list[type[HloOp]] = [ConvolutionOp]
