"""How each `hlo` op is written in StableHLO."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr
from xdsl.ir import Attribute, Operation

from rhino.dialects.hlo.base import get_integer, get_text
from rhino.dialects.hlo.shape import number_of
from rhino.frontend.stablehlo import write_regions
from rhino.frontend.stablehlo.write_text import array, function_type, ints, listed, tail
from rhino.frontend.stablehlo.writer import Emit, Writer, literal
from rhino.ir import types

_SAME = {
    "abs": "abs",
    "add": "add",
    "and": "and",
    "atan2": "atan2",
    "cbrt": "cbrt",
    "ceil": "ceil",
    "cos": "cosine",
    "count_leading_zeros": "count_leading_zeros",
    "div": "divide",
    "exp": "exponential",
    "expm1": "exponential_minus_one",
    "floor": "floor",
    "log": "log",
    "log1p": "log_plus_one",
    "logistic": "logistic",
    "maximum": "maximum",
    "minimum": "minimum",
    "mul": "multiply",
    "negate": "negate",
    "not": "not",
    "or": "or",
    "popcnt": "popcnt",
    "pow": "power",
    "rem": "remainder",
    "round_even": "round_nearest_even",
    "round_nearest_afz": "round_nearest_afz",
    "rsqrt": "rsqrt",
    "shift_left": "shift_left",
    "shift_right_arithmetic": "shift_right_arithmetic",
    "shift_right_logical": "shift_right_logical",
    "sign": "sign",
    "sin": "sine",
    "sqrt": "sqrt",
    "sub": "subtract",
    "tan": "tan",
    "tanh": "tanh",
    "xor": "xor",
}


def element(op: Operation, index: int = 0) -> Attribute:
    return types.element_of(op.operands[index])


# Elementwise.


def _plain(name: str) -> Emit:
    def emit(w: Writer, op: Operation) -> None:
        w.define(op.results, f"stablehlo.{name} {w.names(op.operands)} : {op.results[0].type}")

    return emit


def _typed(name: str) -> Emit:
    """Ops whose operand and result types differ."""

    def emit(w: Writer, op: Operation) -> None:
        w.define(op.results, f"stablehlo.{name} {w.names(op.operands)} {tail(op)}")

    return emit


def constant(w: Writer, op: Operation) -> None:
    value = op.properties["value"]
    assert isinstance(value, DenseIntOrFPElementsAttr)
    w.define(op.results, f"stablehlo.constant {literal(value)} : {op.results[0].type}")


def same(w: Writer, op: Operation) -> None:
    w.alias(op.results[0], w.name(op.operands[0]))


def erf(w: Writer, op: Operation) -> None:
    w.define(op.results, f"chlo.erf {w.names(op.operands)} : {op.operands[0].type} -> {op.results[0].type}")


def compare(w: Writer, op: Operation) -> None:
    kind = element(op)
    if op.name == "hlo.compare_total":
        how = "TOTALORDER"
    elif types.is_float(kind) or types.is_complex(kind):
        how = "FLOAT"
    else:
        how = "UNSIGNED" if types.is_unsigned(kind) or kind == types.I1 else "SIGNED"
    direction = get_text(op.properties, "direction").upper()
    w.define(op.results, f"stablehlo.compare {direction}, {w.names(op.operands)}, {how} {tail(op)}")


def select(w: Writer, op: Operation) -> None:
    kinds = f"{op.operands[0].type}, {op.results[0].type}"
    w.define(op.results, f"stablehlo.select {w.names(op.operands)} : {kinds}")


def reduce_precision(w: Writer, op: Operation) -> None:
    bits = [get_integer(op.properties, n) for n in ("exponent_bits", "mantissa_bits")]
    text = f"stablehlo.reduce_precision {w.names(op.operands)}, format = e{bits[0]}m{bits[1]}"
    w.define(op.results, f"{text} : {op.results[0].type}")


def optimization_barrier(w: Writer, op: Operation) -> None:
    kinds = ", ".join(str(r.type) for r in op.results)
    w.define(op.results, f"stablehlo.optimization_barrier {w.names(op.operands)} : {kinds}")


# Shapes.


def iota(w: Writer, op: Operation) -> None:
    dim = get_integer(op.properties, "dim")
    w.define(op.results, f"stablehlo.iota dim = {dim} : {op.results[0].type}")


def _dims(name: str, key: str, prop: str) -> Emit:
    def emit(w: Writer, op: Operation) -> None:
        text = f"stablehlo.{name} {w.names(op.operands)}, {key} = {listed(ints(op, prop))}"
        w.define(op.results, f"{text} {tail(op)}")

    return emit


def reverse(w: Writer, op: Operation) -> None:
    text = f"stablehlo.reverse {w.names(op.operands)}, dims = {listed(ints(op, 'dims'))}"
    w.define(op.results, f"{text} : {op.results[0].type}")


def concatenate(w: Writer, op: Operation) -> None:
    dim = get_integer(op.properties, "dim")
    w.define(op.results, f"stablehlo.concatenate {w.names(op.operands)}, dim = {dim} {tail(op)}")


def slice_(w: Writer, op: Operation) -> None:
    parts = zip(ints(op, "start"), ints(op, "limit"), ints(op, "strides"), strict=True)
    ranges = ", ".join(f"{a}:{b}:{s}" for a, b, s in parts)
    w.define(op.results, f"stablehlo.slice {w.names(op.operands)} [{ranges}] {tail(op)}")


def pad(w: Writer, op: Operation) -> None:
    kind = element(op)
    value = w.scalar(number_of(op.properties["value"]), kind)
    keys = ", ".join(f"{k} = {listed(ints(op, k))}" for k in ("low", "high", "interior"))
    kinds = function_type([op.operands[0].type, types.tensor((), kind)], [op.results[0].type])
    w.define(op.results, f"stablehlo.pad {w.names(op.operands)}, {value}, {keys} {kinds}")


def _starts(w: Writer, op: Operation, first: int) -> tuple[str, list[Attribute]]:
    """Start indices, which StableHLO wants of one type."""
    values = list(op.operands[first:])
    kinds = [types.element_of(v) for v in values]
    if len(set(kinds)) <= 1:
        return "".join(f", {w.name(v)}" for v in values), [v.type for v in values]
    scalar = types.tensor((), types.I64)
    names = [
        w.name(v) if v.type == scalar else w.value(f"stablehlo.convert {w.name(v)} : ({v.type}) -> {scalar}")
        for v in values
    ]
    return "".join(f", {name}" for name in names), [scalar] * len(values)


def dynamic_slice(w: Writer, op: Operation) -> None:
    starts, kinds = _starts(w, op, 1)
    text = f"stablehlo.dynamic_slice {w.name(op.operands[0])}{starts}, sizes = {listed(ints(op, 'sizes'))}"
    w.define(op.results, f"{text} {function_type([op.operands[0].type, *kinds], [op.results[0].type])}")


def dynamic_update_slice(w: Writer, op: Operation) -> None:
    starts, kinds = _starts(w, op, 2)
    both = [o.type for o in op.operands[:2]]
    text = f"stablehlo.dynamic_update_slice {w.names(op.operands[:2])}{starts}"
    w.define(op.results, f"{text} {function_type([*both, *kinds], [op.results[0].type])}")


def gather(w: Writer, op: Operation) -> None:
    names = (
        "offset_dims",
        "collapsed_slice_dims",
        "operand_batching_dims",
        "start_indices_batching_dims",
        "start_index_map",
    )
    fields = [f"{n} = {listed(ints(op, n))}" for n in names if ints(op, n)]
    fields.append(f"index_vector_dim = {get_integer(op.properties, 'index_vector_dim')}")
    w.define(
        op.results,
        f'"stablehlo.gather"({w.names(op.operands)}) <{{dimension_numbers = '
        f"#stablehlo.gather<{', '.join(fields)}>, slice_sizes = {array(ints(op, 'slice_sizes'))}}}> {tail(op)}",
    )


# Products.


def dot_general(w: Writer, op: Operation) -> None:
    batch, contract = (
        (ints(op, "lhs_batch"), ints(op, "rhs_batch")),
        (
            ints(op, "lhs_contract"),
            ints(op, "rhs_contract"),
        ),
    )
    text = f"stablehlo.dot_general {w.names(op.operands)}"
    if batch[0]:
        text += f", batching_dims = {listed(batch[0])} x {listed(batch[1])}"
    text += f", contracting_dims = {listed(contract[0])} x {listed(contract[1])}"
    w.define(op.results, f"{text} {tail(op)}")


def convolution(w: Writer, op: Operation) -> None:
    rank = len(types.shape_of(op.operands[0])) - 2
    spatial = [str(i) for i in range(rank)]
    sides = (["b", "f", *spatial], ["o", "i", *spatial], ["b", "f", *spatial])
    lhs, kernel, out = (f"[{', '.join(s)}]" for s in sides)
    rows = ", ".join(f"[{a}, {b}]" for a, b in zip(ints(op, "low"), ints(op, "high"), strict=True))
    window = (
        f"stride = {listed(ints(op, 'strides'))}, pad = [{rows}], "
        f"lhs_dilate = {listed(ints(op, 'lhs_dilation'))}, rhs_dilate = {listed(ints(op, 'rhs_dilation'))}"
        if rank
        else ""
    )
    groups = get_integer(op.properties, "feature_groups"), get_integer(op.properties, "batch_groups")
    w.define(
        op.results,
        f"stablehlo.convolution({w.names(op.operands)}) dim_numbers = {lhs}x{kernel}->{out}, "
        f"window = {{{window}}} {{feature_group_count = {groups[0]} : i64, "
        f"batch_group_count = {groups[1]} : i64}} {tail(op)}",
    )


def cholesky(w: Writer, op: Operation) -> None:
    lower = "false" if "upper" in op.properties else "true"
    w.define(op.results, f"stablehlo.cholesky {w.names(op.operands)}, lower = {lower} : {op.results[0].type}")


def triangular_solve(w: Writer, op: Operation) -> None:
    flags = {
        "left_side": "right" not in op.properties,
        "lower": "lower" in op.properties,
        "unit_diagonal": "unit_diagonal" in op.properties,
    }
    text = ", ".join(f"{name} = {str(on).lower()}" for name, on in flags.items())
    transpose = get_text(op.properties, "transpose_a")
    w.define(
        op.results,
        f'"stablehlo.triangular_solve"({w.names(op.operands)}) <{{{text}, '
        f"transpose_a = #stablehlo<transpose {transpose}>}}> {tail(op)}",
    )


def fft(w: Writer, op: Operation) -> None:
    kind, lengths = get_text(op.properties, "fft_type"), listed(ints(op, "fft_length"))
    text = f"stablehlo.fft {w.names(op.operands)}, type = {kind}, length = {lengths}"
    w.define(op.results, f"{text} {tail(op)}")


def rng_bit_generator(w: Writer, op: Operation) -> None:
    algorithm = get_text(op.properties, "rng_algorithm")
    w.define(
        op.results, f"stablehlo.rng_bit_generator {w.names(op.operands)}, algorithm = {algorithm} {tail(op)}"
    )


OPS: dict[str, Emit] = {
    **{f"hlo.{name}": _plain(other) for name, other in _SAME.items()},
    "hlo.constant": constant,
    "hlo.stop_gradient": same,
    "hlo.erf": erf,
    "hlo.compare": compare,
    "hlo.compare_total": compare,
    "hlo.select": select,
    "hlo.clamp": _typed("clamp"),
    "hlo.convert": _typed("convert"),
    "hlo.bitcast_convert": _typed("bitcast_convert"),
    "hlo.is_finite": _typed("is_finite"),
    "hlo.complex_abs": _typed("abs"),
    "hlo.real": _typed("real"),
    "hlo.imag": _typed("imag"),
    "hlo.complex": _plain("complex"),
    "hlo.reduce_precision": reduce_precision,
    "hlo.optimization_barrier": optimization_barrier,
    "hlo.iota": iota,
    "hlo.broadcast_in_dim": _dims("broadcast_in_dim", "dims", "dims"),
    "hlo.reshape": _typed("reshape"),
    "hlo.transpose": _dims("transpose", "dims", "perm"),
    "hlo.reverse": reverse,
    "hlo.concatenate": concatenate,
    "hlo.slice": slice_,
    "hlo.pad": pad,
    "hlo.dynamic_slice": dynamic_slice,
    "hlo.dynamic_update_slice": dynamic_update_slice,
    "hlo.gather": gather,
    "hlo.dot_general": dot_general,
    "hlo.convolution": convolution,
    "hlo.cholesky": cholesky,
    "hlo.triangular_solve": triangular_solve,
    "hlo.fft": fft,
    "hlo.rng_bit_generator": rng_bit_generator,
    **write_regions.OPS,
}
