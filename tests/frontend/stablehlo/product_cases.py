"""Programs of one op: products, convolutions, gather and scatter, with all dimension numbers drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo_op_cases import ELEMENTS, combiner, region
from op_draw import COMPLEX, SIGNED, Draw, array, pairs, tensor

#: Result element types that a product may have besides its own.
WIDER = {"i8": "i32", "bf16": "f32", "f16": "f32", "f32": "f64", "ui8": "ui64"}


def dot_general(d: Draw) -> str:
    element = d.choice(ELEMENTS)
    sizes = {k: d.integer(1, 3) for k in "abcdmn"}
    batch, contracted = "ab"[: d.integer(0, 2)], "cd"[: d.integer(0, 2)]
    lhs, rhs = list(batch + contracted + "m"), list(batch + contracted + "n")
    d.random.shuffle(lhs)
    d.random.shuffle(rhs)
    result = WIDER.get(element, element) if d.integer(0, 2) == 0 else element
    kind = tensor([sizes[k] for k in batch + "mn"], result)
    dims = ", ".join(
        f"{name}_{what}_dimensions = {[side.index(k) for k in letters]}"
        for what, letters in (("batching", batch), ("contracting", contracted))
        for name, side in (("lhs", lhs), ("rhs", rhs))
    )
    shapes = [[sizes[k] for k in side] for side in (lhs, rhs)]
    names, kinds = [d.constant(s, element) for s in shapes], [tensor(s, element) for s in shapes]
    return d.text(
        d.op("dot_general", names, kinds, f"dot_dimension_numbers = #stablehlo.dot<{dims}>", [kind]), [kind]
    )


def _numbers(raw: bool, inputs: list[str], kernel: list[str], output: list[str]) -> str:
    if not raw:
        return f"#stablehlo.conv<[{', '.join(inputs)}]x[{', '.join(kernel)}]->[{', '.join(output)}]>"
    spatial = [str(i) for i in range(len(inputs) - 2)]
    parts = ["raw " + f"input_batch_dimension = {inputs.index('b')}"]
    parts.append(f"input_feature_dimension = {inputs.index('f')}")
    parts.append(f"input_spatial_dimensions = {[inputs.index(i) for i in spatial]}")
    parts.append(f"kernel_input_feature_dimension = {kernel.index('i')}")
    parts.append(f"kernel_output_feature_dimension = {kernel.index('o')}")
    parts.append(f"kernel_spatial_dimensions = {[kernel.index(i) for i in spatial]}")
    parts.append(f"output_batch_dimension = {output.index('b')}")
    parts.append(f"output_feature_dimension = {output.index('f')}")
    parts.append(f"output_spatial_dimensions = {[output.index(i) for i in spatial]}")
    return f"#stablehlo.conv<{', '.join(parts)}>"


def convolution(d: Draw) -> str:
    element, rank = d.choice(("i64", "f32", "f64", "i8", COMPLEX[0], "i1", "ui32")), d.integer(0, 3)
    groups = d.choice((1, 1, 2))
    batch_groups = d.choice((1, 1, 2)) if groups == 1 else 1
    extents, window = [d.integer(2, 5) for _ in range(rank)], [d.integer(1, 3) for _ in range(rank)]
    strides, gaps, dilation = ([d.integer(1, 2) for _ in range(rank)] for _ in range(3))
    padding = [[d.integer(-1, 2), d.integer(-1, 2)] for _ in range(rank)]
    out = []
    for i, n in enumerate(extents):
        room = (n - 1) * gaps[i] + 1 + sum(padding[i]) - ((window[i] - 1) * dilation[i] + 1)
        out.append(room // strides[i] + 1 if room >= 0 else 0)
    spatial = [str(i) for i in range(rank)]
    orders = [["b", "f", *spatial], ["i", "o", *spatial], ["b", "f", *spatial]]
    for order in orders:
        d.random.shuffle(order)
    features = 2 * groups
    sizes = [
        {"b": 2 * batch_groups, "f": features, **dict(zip(spatial, extents, strict=True))},
        {"i": features // groups, "o": 2 * groups * batch_groups, **dict(zip(spatial, window, strict=True))},
        {"b": 2, "f": 2 * groups * batch_groups, **dict(zip(spatial, out, strict=True))},
    ]
    x, w, y = ([size[k] for k in order] for size, order in zip(sizes, orders, strict=True))
    reversal = ", ".join(d.choice(("true", "false")) for _ in range(rank))
    attributes = (
        f"dimension_numbers = {_numbers(d.integer(0, 2) == 0, *orders)}, window_strides = {array(strides)}, "
        f"padding = {pairs(padding)}, lhs_dilation = {array(gaps)}, rhs_dilation = {array(dilation)}, "
        f"window_reversal = array<i1{': ' if rank else ''}{reversal}>, feature_group_count = {groups} : i64, "
        f"batch_group_count = {batch_groups} : i64"
    )
    kind = tensor(y, element)
    names = [d.constant(x, element, -3, 4), d.constant(w, element, -3, 4)]
    return d.text(
        d.op("convolution", names, [tensor(x, element), tensor(w, element)], attributes, [kind]), [kind]
    )


@dataclass(frozen=True)
class Slices:
    """Dimension numbers of gather, and of scatter, and the shapes that fit them."""

    shape: list[int]
    sizes: list[int]
    collapsed: list[int]
    batching: list[int]
    index_batching: list[int]
    index_map: list[int]
    index_shape: list[int]
    index_dim: int
    offsets: list[int]
    result: list[int]


def slices(d: Draw) -> Slices:
    rank = d.integer(1, 4)
    shape = [d.integer(1, 4) for _ in range(rank)]
    order = d.order(rank)
    batches = d.integer(0, min(2, rank - 1)) if d.integer(0, 1) else 0
    batching, rest = sorted(order[:batches]), order[batches:]
    mapped = rest[: d.integer(0, len(rest))]
    collapsed = sorted(i for i in rest if d.integer(0, 1))
    sizes = [
        1 if i in batching or i in collapsed else d.integer(0 if d.rarely() else 1, n)
        for i, n in enumerate(shape)
    ]
    kept = [i for i in range(rank) if i not in collapsed and i not in batching]
    free = [d.integer(1, 3) for _ in range(d.integer(0, 2))]
    extents = [*free, *(shape[i] for i in batching)]
    places = d.order(len(extents))
    outer = [extents[i] for i in places]
    implicit = len(mapped) == 1 and d.integer(0, 1) == 1
    dim = len(outer) if implicit else d.integer(0, len(outer))
    indices = outer if implicit else [*outer[:dim], len(mapped), *outer[dim:]]
    at = [places.index(len(free) + j) for j in range(batches)]
    at = [p if implicit or p < dim else p + 1 for p in at]
    offsets = sorted(d.order(len(outer) + len(kept))[: len(kept)])
    windows, others = iter([sizes[i] for i in kept]), iter(outer)
    result = [next(windows) if k in offsets else next(others) for k in range(len(outer) + len(kept))]
    return Slices(shape, sizes, collapsed, batching, at, mapped, indices, dim, offsets, result)


def gather(d: Draw) -> str:
    element, index, s = d.choice(ELEMENTS), d.choice((*SIGNED, "ui32", "ui8")), slices(d)
    attributes = (
        f"dimension_numbers = #stablehlo.gather<offset_dims = {s.offsets}, collapsed_slice_dims = {s.collapsed}, "
        f"operand_batching_dims = {s.batching}, start_indices_batching_dims = {s.index_batching}, "
        f"start_index_map = {s.index_map}, index_vector_dim = {s.index_dim}>, slice_sizes = {array(s.sizes)}, "
        "indices_are_sorted = false"
    )
    names = [d.constant(s.shape, element), d.constant(s.index_shape, index, -2, 5)]
    kind = tensor(s.result, element)
    kinds = [tensor(s.shape, element), tensor(s.index_shape, index)]
    return d.text(d.op("gather", names, kinds, attributes, [kind]), [kind])


def scatter(d: Draw) -> str:
    element, index, s = d.choice(ELEMENTS), d.choice((*SIGNED, "ui32", "ui8")), slices(d)
    count = d.choice((1, 1, 2))
    combiners = [d.choice((combiner(d, element), combiner(d, element), "new")) for _ in range(count)]
    attributes = (
        f"scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {s.offsets}, "
        f"inserted_window_dims = {s.collapsed}, input_batching_dims = {s.batching}, "
        f"scatter_indices_batching_dims = {s.index_batching}, scatter_dims_to_operand_dims = {s.index_map}, "
        f"index_vector_dim = {s.index_dim}>, indices_are_sorted = false, unique_indices = false"
    )
    xs, news = ([d.constant(shape, element) for _ in range(count)] for shape in (s.shape, s.result))
    at = d.constant(s.index_shape, index, -2, 5)
    kind = tensor(s.shape, element)
    kinds = [*[kind] * count, tensor(s.index_shape, index), *[tensor(s.result, element)] * count]
    body = f"({region(combiners, element)})"
    return d.text(d.op("scatter", [*xs, at, *news], kinds, attributes, [kind] * count, body), [kind] * count)


CASES: dict[str, Callable[[Draw], str]] = {
    "convolution": convolution,
    "dot_general": dot_general,
    "gather": gather,
    "scatter": scatter,
}
