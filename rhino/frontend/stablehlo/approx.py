"""The custom call ``ApproxTopK`` of `jax.lax.approx_max_k` and `approx_min_k`, which may miss some: here none."""

from __future__ import annotations

from xdsl.ir import SSAValue

from rhino.frontend.stablehlo import patterns
from rhino.frontend.stablehlo.importer import Importer, Values
from rhino.frontend.stablehlo.syntax import OpSyntax, Symbol
from rhino.ir import types


def top_k(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """The first `top_k` of one operand in the order of the comparator, and what stands beside them in others."""
    config = op.attributes.get("mhlo.backend_config")
    called = op.attributes.get("called_computations")
    if not isinstance(config, dict) or not isinstance(called, list) or len(called) != 1:
        ctx.fail(op, "needs a backend_config and a comparator")
    name = called[0].name if isinstance(called[0], Symbol) else ""
    comparator = ctx.syntax.functions.get(name)
    keys = patterns.order(comparator.body) if comparator is not None else None
    if keys is None or len(keys) != 1 or keys[0][1] != 0 or not config.get("aggregate_to_topk"):
        ctx.unsupported(op, "@ApproxTopK: by another order than that of its first operand")
    xs, dim = operands[: len(operands) // 2], int(config.get("reduction_dim", -1))
    shape = list(types.shape_of(xs[0]))
    if not 0 <= dim < len(shape):
        ctx.fail(op, f"there is no dimension {dim}")
    shape[dim] = int(config.get("top_k", -1))
    ordered = ctx.b.sort(xs, dim, keys[0][0])
    return [ctx.b.slice(x, [0] * len(shape), shape) for x in ordered]
