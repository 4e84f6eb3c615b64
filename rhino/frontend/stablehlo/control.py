"""Calls, control flow and what stands for other programs: functions, composites, custom calls, checks."""

from __future__ import annotations

from xdsl.ir import SSAValue

from rhino.frontend.stablehlo import approx, lapack
from rhino.frontend.stablehlo.importer import Check, Handler, Importer, Values
from rhino.frontend.stablehlo.syntax import OpSyntax, Struct, Symbol
from rhino.ir import types

#: Custom calls that only pass a value on; the second says what they ask of the compiler.
_PASSING = {
    "Sharding": "sharding",
    "SPMDFullToShardShape": "",
    "annotate_device_placement": "device placement",
    "MoveToHost": "moving to the host",
    "MoveToDevice": "moving to the device",
}


def call(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    return ctx.function(op, _symbol(ctx, op, "callee"), operands)


def composite(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """A composite is the function that decomposes it."""
    return ctx.function(op, _symbol(ctx, op, "decomposition"), operands)


def _symbol(ctx: Importer, op: OpSyntax, name: str) -> str:
    value = op.attributes.get(name)
    if not isinstance(value, Symbol):
        ctx.fail(op, f"needs the attribute {name}")
    return value.name


def custom_call(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    target = op.attributes.get("call_target_name")
    if not isinstance(target, str):
        ctx.fail(op, "needs the attribute call_target_name")
    if target.startswith("check."):
        return check(ctx, op, operands, target.removeprefix("check."))
    if target == "Sharding" and len(operands) == 1:
        sharding = op.attributes.get("mhlo.sharding")
        extra = op.attributes.get("mhlo.frontend_attributes")
        if isinstance(extra, dict) and "xla.sdy.sharding" in extra:
            sharding = extra["xla.sdy.sharding"]
        ctx.shardings.append((operands[0], sharding, op.at))
        return operands
    if target in _PASSING and _PASSING[target] and len(operands) == len(op.result_types):
        ctx.warn(op.at, f"custom call @{target} is taken for its operand: {_PASSING[target]} is dropped")
        return operands
    if target == "ApproxTopK":
        return approx.top_k(ctx, op, operands)
    of_lapack = lapack.known(target)
    if of_lapack is not None:
        return of_lapack(ctx, op, operands)
    ctx.unsupported(op, f"@{target}: Rhino knows no such custom call", "lower the program without it")


def while_(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    if len(op.regions) != 2:
        ctx.fail(op, "needs a condition and a body")
    fixed, regions = ctx.regions(op, op.regions)
    return ctx.emit_regions(op, "while", [*operands, *fixed], {}, regions)


def branches(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """if and case: their regions take nothing but what they read from outside."""
    if len(operands) != 1 or any(body.arguments for body in op.regions):
        ctx.fail(op, "takes a selector, and its regions take nothing")
    fixed, regions = ctx.regions(op, op.regions)
    name = op.name.removeprefix("stablehlo.")
    return ctx.emit_regions(op, name, [*operands, *fixed], {}, regions)


def sharding_constraint(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    sharding = op.attributes.get("sharding")
    if not isinstance(sharding, Struct):
        ctx.fail(op, "needs the attribute sharding")
    ctx.shardings.append((operands[0], sharding, op.at))
    return operands


#: Kinds of checks by what the text calls them, with the tolerance where none is given.
_CHECKS = {
    "expect_eq": ("eq", 0.0),
    "expect_eq_const": ("eq", 0.0),
    "expect_almost_eq": ("almost_eq", 1e-4),
    "expect_almost_eq_const": ("almost_eq", 1e-4),
    "expect_close": ("close", 3.0),
    "eq": ("almost_eq", 1e-4),
}


def check(ctx: Importer, op: OpSyntax, operands: list[SSAValue], name: str) -> Values:
    """``check.expect_*``, as op or custom call: the two values become results, see `checks`."""
    if name not in _CHECKS:
        ctx.unsupported(op, "Rhino does not know this check")
    if ctx.in_region:
        ctx.unsupported(op, "a check inside of a loop or branch")
    kind, tolerance = _CHECKS[name]
    if "value" in op.attributes and len(operands) == 1:
        literal = ctx.literal(op, op.attributes["value"])
        operands = [operands[0], ctx.b.constant(literal, types.type_of(operands[0]))]
    if len(operands) != 2 or operands[0].type != operands[1].type:
        ctx.fail(op, "compares two values of one type")
    given = op.attributes.get("tolerance", op.attributes.get("max_ulp_difference", tolerance))
    if not isinstance(given, int | float):
        ctx.fail(op, "the tolerance must be a number")
    ctx.checks.append(Check(kind, operands[0], operands[1], float(given)))
    # Old checks give an i1 that says whether they hold; the value itself is for the checks to find out.
    return [ctx.b.full((), types.I1, True)] if op.result_types else []


def _check_op(name: str) -> Handler:
    def handler(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
        return check(ctx, op, operands, name)

    return handler


def printed(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    ctx.warn(op.at, f"{op.name} prints nothing here")
    return operands if op.result_types else []


def probe(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """A value that a later ``check.expect_serialized_eq`` compares with."""
    name = op.attributes.get("probe_id")
    if isinstance(name, str) and not ctx.in_region:
        ctx.probes.setdefault(name, []).append(operands[0])
    return operands


def serialized(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    found = ctx.probes.get(str(op.attributes.get("probe_id")), [])
    turn = ctx.integer(op, "iter", 0)
    if not 0 <= turn < len(found):
        ctx.unsupported(op, "values that a loop probes")
    return check(ctx, op, [operands[0], found[turn]], "expect_eq")


def tuple_element(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """The importer has found the element already."""
    return operands


HANDLERS: dict[str, Handler] = {
    "stablehlo.get_tuple_element": tuple_element,
    "func.call": call,
    "stablehlo.composite": composite,
    "stablehlo.custom_call": custom_call,
    "stablehlo.while": while_,
    "stablehlo.if": branches,
    "stablehlo.case": branches,
    "sdy.sharding_constraint": sharding_constraint,
    "sdy.reshard": sharding_constraint,
    "interpreter.print": printed,
    "interpreter.probe": probe,
    "check.expect_serialized_eq": serialized,
    **{f"check.{name}": _check_op(name) for name in _CHECKS if name.startswith("expect_")},
}
