"""One table: op name -> how torch computes it. Every `hlo` op has an entry (a test insists)."""

from rhino.runtime.torch_ops import dist, dot, elementwise, makers, random, reduce, shape
from rhino.runtime.torch_ops.base import Context, Lowering, Table, TensorFunction

TABLE: Table = {
    **elementwise.TABLE,
    **makers.TABLE,
    **random.TABLE,
    **shape.TABLE,
    **reduce.TABLE,
    **dot.TABLE,
    **dist.TABLE,
}

__all__ = ["TABLE", "Context", "Lowering", "TensorFunction"]
