"""Builder methods of convolution and windows."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from rhino.dialects.build.core import BuilderCore
from rhino.dialects.hlo import conv
from rhino.dialects.hlo import window as windows
from rhino.dialects.hlo.base import Properties, integer, ints, text
from rhino.ir import types


class ConvBuilder(BuilderCore):
    """Methods take and return SSA values; see `rhino.dialects.hlo.conv` and `rhino.dialects.hlo.window`.

    Lists may be left out: strides and dilations are then 1 and padding 0.
    """

    def convolution(
        self,
        x: SSAValue,
        w: SSAValue,
        strides: Sequence[int] | None = None,
        padding: Sequence[tuple[int, int]] | None = None,
        lhs_dilation: Sequence[int] | None = None,
        rhs_dilation: Sequence[int] | None = None,
        feature_groups: int = 1,
        batch_groups: int = 1,
    ) -> SSAValue:
        """``x[N, C, ...] * w[O, I, ...] -> [N, O, ...]``; one entry per spatial dimension."""
        ones = [1] * max(0, len(types.shape_of(x)) - 2)
        padding = [(0, 0) for _ in ones] if padding is None else padding
        properties = {
            "strides": ints(ones if strides is None else strides),
            "low": ints([lo for lo, _ in padding]),
            "high": ints([hi for _, hi in padding]),
            "lhs_dilation": ints(ones if lhs_dilation is None else lhs_dilation),
            "rhs_dilation": ints(ones if rhs_dilation is None else rhs_dilation),
            "feature_groups": integer(feature_groups),
            "batch_groups": integer(batch_groups),
        }
        return self.emit1(conv.ConvolutionOp, [x, w], properties)

    def reduce_window(
        self,
        x: SSAValue,
        kind: str,
        window: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Sequence[tuple[int, int]] | None = None,
        base_dilation: Sequence[int] | None = None,
        window_dilation: Sequence[int] | None = None,
    ) -> SSAValue:
        """Every window combined by `kind`; one entry per dimension of `x`."""
        properties = _window(x, window, strides, padding, base_dilation, window_dilation)
        return self.emit1(windows.ReduceWindowOp, [x], {**properties, "kind": text(kind)})

    def select_and_scatter(
        self,
        x: SSAValue,
        source: SSAValue,
        window: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Sequence[tuple[int, int]] | None = None,
        window_dilation: Sequence[int] | None = None,
    ) -> SSAValue:
        """Add every element of `source` at the place of the first maximum of its window of `x`."""
        properties = _window(x, window, strides, padding, None, window_dilation)
        return self.emit1(windows.SelectAndScatterOp, [x, source], properties)


def _window(
    x: SSAValue,
    sizes: Sequence[int],
    strides: Sequence[int] | None,
    padding: Sequence[tuple[int, int]] | None,
    base_dilation: Sequence[int] | None,
    window_dilation: Sequence[int] | None,
) -> Properties:
    ones = [1] * len(types.shape_of(x))
    padding = [(0, 0) for _ in ones] if padding is None else padding
    return {
        "window": ints(sizes),
        "strides": ints(ones if strides is None else strides),
        "low": ints([lo for lo, _ in padding]),
        "high": ints([hi for _, hi in padding]),
        "base_dilation": ints(ones if base_dilation is None else base_dilation),
        "window_dilation": ints(ones if window_dilation is None else window_dilation),
    }
