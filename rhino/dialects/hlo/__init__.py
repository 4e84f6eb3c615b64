"""The `hlo` dialect: a small, closed, HLO-level op set that knows nothing about layers or frameworks."""

from xdsl.ir import Dialect

from rhino.dialects.hlo import elementwise

Hlo = Dialect("hlo", [*elementwise.OPS], [])
