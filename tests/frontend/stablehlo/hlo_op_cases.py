"""Programs of one op for StableHLO's ops that move, combine and reorder elements: all attributes drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from op_draw import COMPLEX, FLOATS, INTEGERS, SIGNED, UNSIGNED, Draw, array, pairs, tensor

ELEMENTS = ("i64", "i32", "i8", "ui8", "ui64", "f32", "f64", "bf16", "f16", "i1", *COMPLEX)
NUMBERS = ("i64", "i32", "ui8", "f32", "f64", COMPLEX[0])


def broadcast_in_dim(d: Draw) -> str:
    element, out = d.choice(ELEMENTS), d.shape(0, 4, 0 if d.rarely() else 1)
    dims = d.order(len(out))[: d.integer(0, len(out))]
    shape = [1 if d.integer(0, 2) == 0 else out[i] for i in dims]
    source, kind = tensor(shape, element), tensor(out, element)
    x = d.constant(shape, element)
    return d.text(
        d.op("broadcast_in_dim", [x], [source], f"broadcast_dimensions = {array(dims)}", [kind]), [kind]
    )


def concatenate(d: Draw) -> str:
    element, shape = d.choice(ELEMENTS), d.shape(1, 3)
    dim = d.integer(0, len(shape) - 1)
    names, kinds, total = [], [], 0
    for _ in range(d.integer(1, 3)):
        part = [d.integer(0, 3) if i == dim else n for i, n in enumerate(shape)]
        names.append(d.constant(part, element))
        kinds.append(tensor(part, element))
        total += part[dim]
    kind = tensor([total if i == dim else n for i, n in enumerate(shape)], element)
    return d.text(d.op("concatenate", names, kinds, f"dimension = {dim} : i64", [kind]), [kind])


def _starts(d: Draw, count: int) -> tuple[list[str], list[str]]:
    index = d.choice(INTEGERS)
    return [d.constant([], index, -3, 6) for _ in range(count)], [tensor([], index)] * count


def dynamic_slice(d: Draw) -> str:
    element, shape = d.choice(ELEMENTS), d.shape()
    sizes = [d.integer(0 if d.rarely() else 1, n) for n in shape]
    x, (starts, kinds) = d.constant(shape, element), _starts(d, len(shape))
    kind = tensor(sizes, element)
    found = d.op(
        "dynamic_slice",
        [x, *starts],
        [tensor(shape, element), *kinds],
        f"slice_sizes = {array(sizes)}",
        [kind],
    )
    return d.text(found, [kind])


def dynamic_update_slice(d: Draw) -> str:
    element, shape = d.choice(ELEMENTS), d.shape()
    sizes = [d.integer(0 if d.rarely() else 1, n) for n in shape]
    x, new = d.constant(shape, element), d.constant(sizes, element)
    starts, kinds = _starts(d, len(shape))
    kind = tensor(shape, element)
    return d.text(
        d.op("dynamic_update_slice", [x, new, *starts], [kind, tensor(sizes, element), *kinds], "", [kind]),
        [kind],
    )


def iota(d: Draw) -> str:
    kind = tensor(shape := d.shape(1, 3, 0), d.choice([e for e in ELEMENTS if e != "i1"]))
    return d.text(
        d.op("iota", [], [], f"iota_dimension = {d.integer(0, len(shape) - 1)} : i64", [kind]), [kind]
    )


def pad(d: Draw) -> str:
    element, shape = d.choice(ELEMENTS), d.shape(0, 3, 0 if d.rarely() else 1)
    low, high, inner, out = [], [], [d.integer(0, 2) for _ in shape], []
    for n, gap in zip(shape, inner, strict=True):
        whole = n + max(n - 1, 0) * gap
        a = d.integer(-min(whole, 3), 3)
        low.append(a)
        high.append(d.integer(-min(whole + a, 3), 3))
        out.append(whole + low[-1] + high[-1])
    kind = tensor(out, element)
    attributes = f"edge_padding_low = {array(low)}, edge_padding_high = {array(high)}, interior_padding = {array(inner)}"
    names = [d.constant(shape, element), d.constant([], element)]
    return d.text(
        d.op("pad", names, [tensor(shape, element), tensor([], element)], attributes, [kind]), [kind]
    )


def reshape(d: Draw) -> str:
    element = d.choice(ELEMENTS)
    source, target = d.choice(
        [
            ([2, 3, 4], [4, 6]),
            ([6], [2, 3]),
            ([], [1, 1]),
            ([1, 1], []),
            ([0, 3], [0]),
            ([4, 1, 2], [2, 2, 2]),
        ]
    )
    kind = tensor(target, element)
    return d.text(
        d.op("reshape", [d.constant(source, element)], [tensor(source, element)], "", [kind]), [kind]
    )


def reverse(d: Draw) -> str:
    shape = d.shape()
    kind = tensor(shape, element := d.choice(ELEMENTS))
    dims = array(d.some(len(shape)))
    return d.text(
        d.op("reverse", [d.constant(shape, element)], [kind], f"dimensions = {dims}", [kind]), [kind]
    )


def slice_(d: Draw) -> str:
    element, shape = d.choice(ELEMENTS), d.shape(0, 3, 0 if d.rarely() else 1, 6)
    start = [d.integer(0, n) for n in shape]
    limit = [d.integer(a, n) for a, n in zip(start, shape, strict=True)]
    strides = [d.integer(1, 3) for _ in shape]
    out = [-(-(b - a) // s) for a, b, s in zip(start, limit, strides, strict=True)]
    kind = tensor(out, element)
    attributes = f"start_indices = {array(start)}, limit_indices = {array(limit)}, strides = {array(strides)}"
    return d.text(
        d.op("slice", [d.constant(shape, element)], [tensor(shape, element)], attributes, [kind]), [kind]
    )


def transpose(d: Draw) -> str:
    element, shape = d.choice(ELEMENTS), d.shape(0, 4, 0 if d.rarely() else 1)
    order = d.order(len(shape))
    kind = tensor([shape[i] for i in order], element)
    found = d.op(
        "transpose",
        [d.constant(shape, element)],
        [tensor(shape, element)],
        f"permutation = {array(order)}",
        [kind],
    )
    return d.text(found, [kind])


def bitcast_convert(d: Draw) -> str:
    sizes = {
        1: ("i8", "ui8"),
        2: ("i16", "bf16", "f16"),
        4: ("i32", "f32", "ui32"),
        8: ("i64", "f64", "ui64"),
    }
    old, new = d.choice(list(sizes)), d.choice(list(sizes))
    source, target, shape = d.choice(sizes[old]), d.choice(sizes[new]), d.shape(0, 2)
    before = [*shape, new // old] if new > old else shape
    after = [*shape, old // new] if old > new else shape
    kind = tensor(after, target)
    return d.text(
        d.op("bitcast_convert", [d.constant(before, source)], [tensor(before, source)], "", [kind]), [kind]
    )


# Regions.


def combiner(d: Draw, element: str) -> str:
    """What combines two elements: an op, or the name of one of the longer ones of `region`."""
    if element in COMPLEX:
        return str(d.choice(("add", "multiply", "both")))
    if element == "i1":
        return str(d.choice(("and", "or", "add", "multiply", "maximum", "minimum")))
    more = ("and", "or", "xor") if element in INTEGERS else ()
    return str(d.choice(("add", "multiply", "maximum", "minimum", "both", *more)))


def region(combiners: Sequence[str], element: str) -> str:
    """A region that combines every operand with its own."""
    kind, count = tensor([], element), len(combiners)
    names = [f"%{side}{i}" for side in "ab" for i in range(count)]
    lines, outs = [], []
    for i, name in enumerate(combiners):
        x, y = f"%a{i}", f"%b{i}"
        if name == "new":
            outs.append(y)
            continue
        if name == "both":
            lines += [
                f"%m{i} = stablehlo.multiply {x}, {y} : {kind}",
                f"%n{i} = stablehlo.add %m{i}, {y} : {kind}",
            ]
            name, y = "add", f"%n{i}"
        lines.append(f"%o{i} = stablehlo.{name} {x}, {y} : {kind}")
        outs.append(f"%o{i}")
    arguments = ", ".join(f"{n}: {kind}" for n in names)
    end = f"stablehlo.return {', '.join(outs)} : {', '.join([kind] * count)}"
    return f"{{\n^bb0({arguments}):\n    " + "\n    ".join([*lines, end]) + "\n}"


def reduce(d: Draw) -> str:
    element, count, shape = d.choice(ELEMENTS), d.choice((1, 1, 2)), d.shape(0, 3, 0 if d.rarely() else 1)
    dims = d.some(len(shape))
    combiners = [combiner(d, element) for _ in range(count)]
    names = [d.constant(shape, element) for _ in range(count)] + [
        d.constant([], element) for _ in range(count)
    ]
    kinds = [tensor(shape, element)] * count + [tensor([], element)] * count
    outs = [tensor([n for i, n in enumerate(shape) if i not in dims], element)] * count
    found = d.op(
        "reduce", names, kinds, f"dimensions = {array(dims)}", outs, f"({region(combiners, element)})"
    )
    return d.text(found, outs)


def reduce_window(d: Draw) -> str:
    element, count, shape = d.choice(ELEMENTS), d.choice((1, 1, 2)), d.shape(1, 3, 1, 5)
    window, strides = ([d.integer(1, 3) for _ in shape] for _ in range(2))
    base, dilation = ([d.integer(1, 2) for _ in shape] for _ in range(2))
    padding = [[d.integer(-1, 2), d.integer(-1, 2)] for _ in shape]
    out = []
    for i, n in enumerate(shape):
        whole = (n - 1) * base[i] + 1
        if whole + sum(padding[i]) < 0:
            padding[i] = [0, 0]
        size = (window[i] - 1) * dilation[i] + 1
        room = whole + sum(padding[i]) - size
        out.append(room // strides[i] + 1 if room >= 0 else 0)
    combiners = [combiner(d, element) for _ in range(count)]
    names = [d.constant(shape, element) for _ in range(count)] + [
        d.constant([], element) for _ in range(count)
    ]
    kinds = [tensor(shape, element)] * count + [tensor([], element)] * count
    attributes = (
        f"window_dimensions = {array(window)}, window_strides = {array(strides)}, base_dilations = {array(base)}, "
        f"window_dilations = {array(dilation)}, padding = {pairs(padding)}"
    )
    outs = [tensor(out, element)] * count
    return d.text(
        d.op("reduce_window", names, kinds, attributes, outs, f"({region(combiners, element)})"), outs
    )


def select_and_scatter(d: Draw) -> str:
    """Sums from 0: with others the interpreter counts the initial value once for every source."""
    element, shape = d.choice(("i64", "f32", "f64", "ui8")), d.shape(1, 3, 2, 5)
    window = [d.integer(1, min(3, n)) for n in shape]
    strides = [d.integer(1, 3) for _ in shape]
    padding = [[d.integer(0, 1), d.integer(0, 1)] if w > 1 else [0, 0] for w in window]
    out = [(n + sum(p) - w) // s + 1 for n, p, w, s in zip(shape, padding, window, strides, strict=True)]
    order = "FLOAT" if element in FLOATS else "UNSIGNED" if element in UNSIGNED else "SIGNED"
    scalar, kind = tensor([], element), tensor(shape, element)
    select = (
        f"{{\n^bb0(%a: {scalar}, %b: {scalar}):\n %p = stablehlo.compare {d.choice(('GE', 'LE', 'GT'))}, %a, %b, {order} : "
        f"({scalar}, {scalar}) -> tensor<i1>\n stablehlo.return %p : tensor<i1>\n}}"
    )
    attributes = (
        f"window_dimensions = {array(window)}, window_strides = {array(strides)}, padding = {pairs(padding)}"
    )
    names = [d.constant(shape, element), d.constant(out, element), d.constant([], element, 0, 0)]
    kinds = [kind, tensor(out, element), scalar]
    found = d.op(
        "select_and_scatter", names, kinds, attributes, [kind], f"({select}, {region(['add'], element)})"
    )
    return d.text(found, [kind])


def sort(d: Draw) -> str:
    count, shape = d.integer(1, 3), d.shape(1, 3, 0 if d.rarely() else 1, 5)
    elements = [d.choice([e for e in ELEMENTS if e not in COMPLEX]) for _ in range(count)]
    kinds = [tensor(shape, e) for e in elements]
    key = d.integer(0, count - 1)
    element = elements[key]
    order = "FLOAT" if element in FLOATS else "SIGNED" if element in SIGNED else "UNSIGNED"
    scalar = tensor([], element)
    arguments = ", ".join(f"%a{i}: tensor<{e}>, %b{i}: tensor<{e}>" for i, e in enumerate(elements))
    body = (
        f"({{\n^bb0({arguments}):\n %p = stablehlo.compare {d.choice(('LT', 'GT'))}, %a{key}, %b{key}, {order} : "
        f"({scalar}, {scalar}) -> tensor<i1>\n stablehlo.return %p : tensor<i1>\n}})"
    )
    dim = d.integer(-len(shape), len(shape) - 1)
    names = [d.constant(shape, e) for e in elements]
    return d.text(
        d.op("sort", names, kinds, f"dimension = {dim} : i64, is_stable = true", kinds, body), kinds
    )


def map_(d: Draw) -> str:
    element, shape = d.choice(NUMBERS), d.shape()
    kind, dims = tensor(shape, element), array(range(len(shape)))
    names = [d.constant(shape, element) for _ in range(2)]
    body = f"({region(['both'], element)})"
    return d.text(d.op("map", names, [kind] * 2, f"dimensions = {dims}", [kind], body), [kind])


CASES: dict[str, Callable[[Draw], str]] = {
    "bitcast_convert": bitcast_convert,
    "broadcast_in_dim": broadcast_in_dim,
    "concatenate": concatenate,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "iota": iota,
    "map": map_,
    "pad": pad,
    "reduce": reduce,
    "reduce_window": reduce_window,
    "reshape": reshape,
    "reverse": reverse,
    "select_and_scatter": select_and_scatter,
    "slice": slice_,
    "sort": sort,
    "transpose": transpose,
}
