"""The `hlo` dialect: a small, closed, HLO-level op set that knows nothing about layers or frameworks."""

from xdsl.ir import Dialect

from rhino.dialects.hlo import (
    bits,
    clamp,
    complex_numbers,
    composite,
    constant,
    control,
    conv,
    dot,
    dynamic,
    elementwise,
    generic,
    generic_scatter,
    index,
    random,
    reduce,
    shape,
    sort,
    window,
)

Hlo = Dialect(
    "hlo",
    [
        *elementwise.OPS,
        *clamp.OPS,
        *bits.OPS,
        *complex_numbers.OPS,
        *constant.OPS,
        *random.OPS,
        *shape.OPS,
        *dynamic.OPS,
        *reduce.OPS,
        *dot.OPS,
        *conv.OPS,
        *window.OPS,
        *index.OPS,
        *sort.OPS,
        *composite.OPS,
        *control.OPS,
        *generic.OPS,
        *generic_scatter.OPS,
    ],
    [],
)
