"""One table: op name -> how torch computes it. Every `hlo` op has an entry (a test insists)."""

from rhino.runtime.torch_ops import (
    composite,
    control,
    conv,
    dist,
    dot,
    elementwise,
    host,
    index,
    kernel,
    linalg,
    makers,
    numbers,
    random,
    reduce,
    shape,
    window,
)
from rhino.runtime.torch_ops.base import Context, Lowering, Table, TensorFunction

TABLE: Table = {
    **elementwise.TABLE,
    **numbers.TABLE,
    **makers.TABLE,
    **random.TABLE,
    **shape.TABLE,
    **reduce.TABLE,
    **dot.TABLE,
    **conv.TABLE,
    **window.TABLE,
    **index.TABLE,
    **composite.TABLE,
    **control.TABLE,
    **host.TABLE,
    **linalg.TABLE,
    **dist.TABLE,
    **kernel.TABLE,
}

__all__ = ["TABLE", "Context", "Lowering", "TensorFunction"]
