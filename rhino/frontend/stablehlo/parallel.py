"""``interpreter.run_parallel``: several processes that run one function, made one program.

StableHLO's tests of collectives run a function on a grid of replicas and partitions. All processes are converted
side by side, op by op; a collective then is an ordinary expression of the values of its group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce as fold

import numpy as np
from xdsl.ir import SSAValue

from rhino.frontend.stablehlo import general, patterns
from rhino.frontend.stablehlo.importer import Env, Handler, Importer, Values
from rhino.frontend.stablehlo.reductions import combine
from rhino.frontend.stablehlo.syntax import Literal, OpSyntax, Struct, Symbol
from rhino.ir import types

#: Values of one operand, one for every process.
PerProcess = list[SSAValue]
Groups = list[list[int]]
Collective = Callable[[Importer, OpSyntax, PerProcess, Groups], PerProcess]

_RETURNS = ("func.return", "stablehlo.return")


def run_parallel(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    grid = op.attributes.get("programs")
    rows = grid if isinstance(grid, list) else []
    names = [p.name for row in rows if isinstance(row, list) for p in row if isinstance(p, Symbol)]
    if not names or len(names) != len(rows) * len(rows[0]):
        ctx.fail(op, "programs must be a table of functions")
    function = ctx.syntax.functions.get(names[0])
    if function is None or set(names) != {names[0]}:
        return _apart(ctx, op, names, len(rows[0]), operands)
    arguments = function.body.arguments
    if len(operands) != len(names) * len(arguments):
        ctx.fail(op, f"{len(names)} processes of {len(arguments)} arguments are given {len(operands)}")
    count = len(arguments)
    envs: list[Env] = [
        {a.name: v for a, v in zip(arguments, operands[i * count : (i + 1) * count], strict=True)}
        for i in range(len(names))
    ]
    shape = len(rows), len(rows[0])
    results: list[SSAValue] = []
    for inner in function.body.ops:
        if inner.name in _RETURNS:
            for env in envs:
                results += [env[name] for name in inner.operands]
            return results
        _step(ctx, inner, envs, shape)
    return results


def _apart(ctx: Importer, op: OpSyntax, names: list[str], columns: int, operands: list[SSAValue]) -> Values:
    """Processes that run different functions, which must not wait for one another."""
    results: list[SSAValue] = []
    rest = list(operands)
    for process, name in enumerate(names):
        function = ctx.syntax.functions.get(name)
        if function is None:
            ctx.fail(op, f"there is no function @{name}")
        if any(inner.name.removeprefix("stablehlo.") in _COLLECTIVES for inner in function.body.ops):
            ctx.unsupported(op, "processes that run different functions and exchange values")
        own, rest = rest[: len(function.body.arguments)], rest[len(function.body.arguments) :]
        env: Env = {a.name: v for a, v in zip(function.body.arguments, own, strict=True)}
        for inner in function.body.ops:
            if inner.name in _RETURNS:
                results += [_value(ctx, inner, env, n) for n in inner.operands]
            else:
                _alone(ctx, inner, env, process, columns)
    return results


def _alone(ctx: Importer, op: OpSyntax, env: Env, process: int, columns: int) -> None:
    """One op of one process."""
    short = op.name.removeprefix("stablehlo.")
    with ctx.scope(env):
        if short in ("partition_id", "replica_id"):
            number = process % columns if short == "partition_id" else process // columns
            ctx.bind(op, [ctx.b.constant(number, ctx.result(op))])
        else:
            ctx.op(op)


def _step(ctx: Importer, op: OpSyntax, envs: list[Env], shape: tuple[int, int]) -> None:
    """One op on all processes."""
    short = op.name.removeprefix("stablehlo.")
    collective = _COLLECTIVES.get(short)
    if collective is not None:
        groups = _groups(ctx, op, shape, short)
        columns = [[_value(ctx, op, env, name) for env in envs] for name in op.operands]
        outputs = [collective(ctx, op, column, groups) for column in columns]
        for i, env in enumerate(envs):
            with ctx.scope(env):
                ctx.bind(op, [column[i] for column in outputs])
        return
    for i, env in enumerate(envs):
        _alone(ctx, op, env, i, shape[1])


def _value(ctx: Importer, op: OpSyntax, env: Env, name: str) -> SSAValue:
    if name not in env:
        ctx.fail(op, f"{name} is used but not defined before")
    return env[name]


# Which processes act together.


def _groups(ctx: Importer, op: OpSyntax, shape: tuple[int, int], short: str) -> Groups:
    """Groups of processes, which are numbered row by row of the grid of replicas and partitions."""
    replicas, partitions = shape
    name = "source_target_pairs" if short == "collective_permute" else "replica_groups"
    value = op.attributes.get(name)
    if isinstance(value, Struct):
        return _mesh_groups(ctx, op, value, replicas * partitions)
    if not isinstance(value, Literal):
        ctx.fail(op, f"needs the attribute {name}")
    table = [[int(i) for i in row if i >= 0] for row in ctx.literal(op, value)]
    channel = op.attributes.get("channel_handle")
    handle = channel.fields.get("handle", 0) if isinstance(channel, Struct) else 0
    if op.attributes.get("use_global_device_ids"):
        return table
    if handle <= 0:
        return [[r * partitions + p for r in group] for group in table for p in range(partitions)]
    if short in ("all_to_all", "collective_permute", "collective_broadcast"):
        return [[r * partitions + p for p in group] for group in table for r in range(replicas)]
    return [[r * partitions + p for p in range(partitions) for r in group] for group in table]


def _mesh_groups(ctx: Importer, op: OpSyntax, value: Struct, count: int) -> Groups:
    """Devices of a mesh that differ along the given axes or parts of axes only."""
    mesh = value.fields.get("mesh")
    axes = mesh.fields.get("axes") if isinstance(mesh, Struct) else None
    wanted = value.fields.get("axes")
    if not isinstance(axes, list) or not isinstance(wanted, list):
        ctx.fail(op, "replica groups need a mesh and axes")
    sizes: dict[str, int] = {a.fields["name"]: a.fields["size"] for a in axes}
    if math.prod(sizes.values()) != count:
        ctx.fail(op, f"the mesh of its groups does not have {count} devices")
    parts: list[tuple[str, int]] = []  # every axis cut in what is before, of, and after the part
    chosen: list[int] = []
    cuts: dict[str, tuple[int, int]] = {}
    for axis in wanted:
        name = axis.fields.get("name")
        if name not in sizes or name in cuts:
            ctx.unsupported(op, "groups along several parts of one axis")
        cuts[name] = axis.fields.get("sub_axis_info", (1, sizes[name]))
    places: dict[str, int] = {}
    for name, size in sizes.items():
        before, part = cuts.get(name, (size, 1))
        places[name] = len(parts) + 1
        parts += [(name, before), (name, part), (name, size // (before * part))]
    chosen = [places[axis.fields["name"]] for axis in wanted]
    shape = [n for _, n in parts]
    ids = np.arange(math.prod(shape)).reshape(shape)
    others = [i for i in range(len(shape)) if i not in chosen]
    width = math.prod(shape[i] for i in chosen)
    return [[int(i) for i in row] for row in ids.transpose([*others, *chosen]).reshape(-1, width)]


# What they do.


def _reduced(ctx: Importer, op: OpSyntax, values: Sequence[SSAValue]) -> SSAValue:
    body = op.regions[0]
    kind = patterns.combiner(body)
    if kind is not None:
        return fold(lambda x, y: combine(ctx, kind, x, y), values)
    return fold(lambda x, y: general.map_(ctx, op, [x, y], body)[0], values)


def _each(values: PerProcess, groups: Groups, act: Callable[[list[SSAValue]], list[SSAValue]]) -> PerProcess:
    out = list(values)
    for group in groups:
        for process, value in zip(group, act([values[i] for i in group]), strict=True):
            out[process] = value
    return out


def _all_reduce(ctx: Importer, op: OpSyntax, values: PerProcess, groups: Groups) -> PerProcess:
    return _each(values, groups, lambda xs: [_reduced(ctx, op, xs)] * len(xs))


def _collective_reduce(ctx: Importer, op: OpSyntax, values: PerProcess, groups: Groups) -> PerProcess:
    """The first process of a group gets the result, the others zeros."""
    out = _zeros(ctx, values)
    for group in groups:
        out[group[0]] = _reduced(ctx, op, [values[i] for i in group])
    return out


def _all_gather(ctx: Importer, op: OpSyntax, values: PerProcess, groups: Groups) -> PerProcess:
    dim = ctx.integer(op, "all_gather_dim")
    return _each(values, groups, lambda xs: [ctx.b.concatenate(xs, dim)] * len(xs))


def _parts(ctx: Importer, op: OpSyntax, x: SSAValue, dim: int, count: int) -> list[SSAValue]:
    """Equal parts of a value along a dimension."""
    shape = types.shape_of(x)
    if not 0 <= dim < len(shape) or shape[dim] % count:
        ctx.fail(op, f"dimension {dim} of {types.show(x.type)} is not {count} equal parts")
    size = shape[dim] // count
    out = []
    for i in range(count):
        start = [i * size if d == dim else 0 for d in range(len(shape))]
        limit = [(i + 1) * size if d == dim else n for d, n in enumerate(shape)]
        out.append(ctx.b.slice(x, start, limit))
    return out


def _reduce_scatter(ctx: Importer, op: OpSyntax, values: PerProcess, groups: Groups) -> PerProcess:
    dim = ctx.integer(op, "scatter_dimension")
    return _each(values, groups, lambda xs: _parts(ctx, op, _reduced(ctx, op, xs), dim, len(xs)))


def _all_to_all(ctx: Importer, op: OpSyntax, values: PerProcess, groups: Groups) -> PerProcess:
    split, joined = ctx.integer(op, "split_dimension"), ctx.integer(op, "concat_dimension")

    def act(xs: list[SSAValue]) -> list[SSAValue]:
        parts = [_parts(ctx, op, x, split, len(xs)) for x in xs]
        return [ctx.b.concatenate([p[i] for p in parts], joined) for i in range(len(xs))]

    return _each(values, groups, act)


def _zeros(ctx: Importer, values: PerProcess) -> PerProcess:
    return [ctx.b.full_like(v, types.numpy_dtype(types.element_of(v)).type(0).item()) for v in values]


def _collective_permute(ctx: Importer, op: OpSyntax, values: PerProcess, groups: Groups) -> PerProcess:
    out = _zeros(ctx, values)
    for source, target in groups:
        if max(source, target) < len(values):
            out[target] = values[source]
    return out


def _collective_broadcast(ctx: Importer, op: OpSyntax, values: PerProcess, groups: Groups) -> PerProcess:
    out = _zeros(ctx, values)
    for group in groups:
        for process in group:
            out[process] = values[group[0]]
    return out


_COLLECTIVES: dict[str, Collective] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "collective_broadcast": _collective_broadcast,
    "collective_permute": _collective_permute,
    "collective_reduce": _collective_reduce,
    "reduce_scatter": _reduce_scatter,
}

HANDLERS: dict[str, Handler] = {"interpreter.run_parallel": run_parallel}
