"""Rules of the ops whose sharding is digit arithmetic: reshape, transpose, broadcast, slice, concat, pad, ...

Each function returns a complete factor `Rule`: whatever digit the op can carry without communication lies
inside one factor, everything else falls into a ``whole`` factor or between two, and is refused. The reasons:

* *Reshape.* In row-major order a digit of period P on dimension d gives flat element f to
  ``(f mod E) // (E / n)`` with ``E = P * (product of the extents minor to d)``; E and n name no dimension.
  With ``[A, B]`` the place values that a dimension spans (A = product of minor extents, B = A * extent), the
  digit exists on source dimension s and target dimension t exactly when
  ``lcm(As, At) * n | E | gcd(Bs, Bt)``. These intervals form a divisibility chain along each shape, so each
  is one factor, and the gaps between them are ``whole``.
* *Slice* must remove the same local indices everywhere, hence whole periods; a stride eats a minor factor.
* *Concat* and *pad* must add whole periods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from rhino.ir.rule import Dims, Rule

Ints = tuple[int, ...]

_IDEMPOTENT = ("max", "min", "and", "or")


def reshape_rule(src: Sequence[int], dst: Sequence[int]) -> Rule:
    """``src -> dst`` in row-major order. Raises ValueError if the element counts differ."""
    if math.prod(src) != math.prod(dst):
        raise ValueError(f"cannot reshape {list(src)} to {list(dst)}")
    if math.prod(src) == 0:
        return _unsplit(src, dst)
    spans_s, spans_d = _spans(src), _spans(dst)
    sizes: dict[str, int] = {}
    shared: list[tuple[int, int, int, int, str]] = []  # source dim, target dim, low, high, factor
    for s, (a_s, b_s) in enumerate(spans_s):
        for d, (a_d, b_d) in enumerate(spans_d):
            low, high = math.lcm(a_s, a_d), math.gcd(b_s, b_d)
            if high > low and high % low == 0:
                name = f"f{len(shared)}"
                sizes[name] = high // low
                shared.append((s, d, low, high, name))
    kinds: dict[str, str] = {}

    def fill(spans: list[tuple[int, int]], which: int, tag: str) -> Dims:
        dims = []
        for i, (low, top) in enumerate(spans):
            names: list[str] = []
            at = low
            for *where, a, b, name in sorted(shared, key=lambda item: item[2]):
                if where[which] == i:
                    if a != at:
                        names.append(_whole(sizes, kinds, f"{tag}{len(kinds)}", a // at))
                    names.append(name)
                    at = b
            if at != top:
                names.append(_whole(sizes, kinds, f"{tag}{len(kinds)}", top // at))
            dims.append(tuple(reversed(names)))
        return tuple(dims)

    return Rule((fill(spans_s, 0, "s"),), (fill(spans_d, 1, "d"),), sizes, kinds, structural=True)


def transpose_rule(shape: Sequence[int], perm: Sequence[int]) -> Rule:
    """Result dimension i is operand dimension ``perm[i]``."""
    dims, sizes = _plain("i", shape)
    return Rule((dims,), (tuple(dims[p] for p in perm),), sizes, structural=True)


def broadcast_rule(src: Sequence[int], dst: Sequence[int], dims: Sequence[int]) -> Rule:
    """Operand dimension i becomes result dimension ``dims[i]``; new and stretched ones split freely."""
    out, sizes = _plain("o", dst)
    operand: list[tuple[str, ...]] = []
    for extent, at in zip(src, dims, strict=True):
        if extent != dst[at] and extent != 1:
            raise ValueError(f"cannot broadcast {list(src)} to {list(dst)} along {list(dims)}")
        operand.append(out[at] if extent == dst[at] else ())
    return Rule((tuple(operand),), (out,), sizes, structural=True)


def slice_rule(
    shape: Sequence[int], start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None = None
) -> Rule:
    """``x[start:limit:stride]`` per dimension: ``(t p w) -> (u p)``, with t, u and the stride's part w whole.

    A digit of period P with chunk c passes iff the stride divides c and the slice takes whole periods; its
    period in the result is P / stride. See `local_slice` for the bounds of the local op.
    """
    sizes: dict[str, int] = {}
    kinds: dict[str, str] = {}
    src: list[tuple[str, ...]] = []
    dst: list[tuple[str, ...]] = []
    steps = strides or [1] * len(shape)
    for i, (extent, a, b, step) in enumerate(zip(shape, start, limit, steps, strict=True)):
        length = slice_extent(a, b, step)
        keep = math.gcd(extent // step, a // step, length) if extent % step == 0 and length else 1
        src.append(_dim(sizes, kinds, extent, (f"t{i}", None), (f"p{i}", keep), (f"w{i}", step)))
        dst.append(_dim(sizes, kinds, length, (f"u{i}", None), (f"p{i}", keep)))
    return Rule((tuple(src),), (tuple(dst),), sizes, kinds, structural=True)


def slice_extent(start: int, limit: int, stride: int = 1) -> int:
    """Number of elements of ``range(start, limit, stride)``."""
    return max(0, -(-(limit - start) // stride))


def local_slice(start: int, limit: int, stride: int, shards: int) -> tuple[int, int]:
    """``(start, limit)`` of the local slice when the dimension is cut in `shards` under `slice_rule`."""
    rest = start % stride
    first = (start - rest) // shards + rest
    length = slice_extent(start, limit, stride) // shards
    return first, first + (length - 1) * stride + 1 if length else first


def concat_rule(shapes: Sequence[Sequence[int]], dim: int) -> Rule:
    """Operands joined along `dim`: a digit passes if all carry it and its period divides every part."""
    rank = len(shapes[0])
    common, sizes = _plain("i", shapes[0])
    kinds: dict[str, str] = {}
    keep = math.gcd(*(shape[dim] for shape in shapes)) or 1
    sizes.pop(f"i{dim}", None)

    def one(extent: int, tag: str) -> Dims:
        joined = _dim(sizes, kinds, extent, (tag, None), ("p", keep))
        return tuple(joined if d == dim else common[d] for d in range(rank))

    operands = tuple(one(shape[dim], f"t{i}") for i, shape in enumerate(shapes))
    return Rule(operands, (one(sum(s[dim] for s in shapes), "u"),), sizes, kinds, structural=True)


def pad_rule(
    shape: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] | None = None,
    *,
    value: float | bool | None = None,
    value_operand: bool = False,
) -> Rule:
    """`low`/`high` elements before and after (negative crops), `interior` between each two, per dimension.

    `value` is the padding value if known: a partial sum passes only with 0, a partial product only with 0 or
    1, the idempotent kinds always. `value_operand`: the value is a second, scalar operand. See `local_pad`.
    """
    sizes: dict[str, int] = {}
    kinds: dict[str, str] = {}
    src: list[tuple[str, ...]] = []
    dst: list[tuple[str, ...]] = []
    gaps = interior or [0] * len(shape)
    for i, (extent, lo, hi, gap) in enumerate(zip(shape, low, high, gaps, strict=True)):
        step, total = gap + 1, pad_extent(extent, lo, hi, gap)
        # Read backwards it is a strided slice of the result, which must consist of whole periods there.
        before, after = lo - lo % step, hi + lo % step + 1 - step
        keep = math.gcd(extent, before // step, after // step) if after % step == 0 and extent else 1
        src.append(_dim(sizes, kinds, extent, (f"t{i}", None), (f"p{i}", keep)))
        dst.append(_dim(sizes, kinds, total, (f"u{i}", None), (f"p{i}", keep), (f"w{i}", step)))
    sound = list(_IDEMPOTENT)
    if value is not None and value == 0:
        sound += ["sum", "prod"]
    elif value is not None and value == 1:
        sound.append("prod")
    operands: tuple[Dims, ...] = (tuple(src), ()) if value_operand else (tuple(src),)
    return Rule(operands, (tuple(dst),), sizes, kinds, carries={kind: ((0,),) for kind in sound})


def pad_extent(extent: int, low: int, high: int, interior: int = 0) -> int:
    """Extent of a padded dimension."""
    return max(0, low + high + extent + max(0, extent - 1) * interior)


def local_pad(extent: int, low: int, high: int, interior: int, shards: int) -> tuple[int, int]:
    """``(low, high)`` of the local pad when the dimension is cut in `shards` under `pad_rule`."""
    if shards == 1:
        return low, high
    step = interior + 1
    rest = low % step
    before = (low - rest) // shards + rest
    total = pad_extent(extent, low, high, interior) // shards
    return before, total - before - (extent // shards - 1) * step - 1


def reduce_rule(shape: Sequence[int], dims: Sequence[int], kind: str) -> Rule:
    """Reduce `dims` away with `kind`; splitting them gives a partial, and a partial of that kind passes."""
    operand, sizes = _plain("i", shape)
    gone = {d % len(shape) for d in dims}
    kinds = {f: kind for d in gone for f in operand[d]}
    result = tuple(f for d, f in enumerate(operand) if d not in gone)
    return Rule((operand,), (result,), sizes, kinds, carries={kind: ((0,),)})


def reverse_rule(shape: Sequence[int], dims: Sequence[int]) -> Rule:
    """Reversed dimensions must be whole: a local reverse would leave the pieces on mirrored devices."""
    operand, sizes = _plain("i", shape)
    kinds = {f: "whole" for d in dims for f in operand[d]}
    return Rule((operand,), (operand,), sizes, kinds, structural=True)


def dot_rule(
    lhs: Sequence[int],
    rhs: Sequence[int],
    batch_l: Sequence[int] = (),
    batch_r: Sequence[int] = (),
    contract_l: Sequence[int] = (),
    contract_r: Sequence[int] = (),
) -> Rule:
    """General dot; result dimensions are batch, free of lhs, free of rhs. Linear in each operand alone."""
    given = (lhs, rhs, batch_l, batch_r, contract_l, contract_r)
    return _dot_rule(*(tuple(int(n) for n in each) for each in given))


@lru_cache(maxsize=1 << 12)
def _dot_rule(lhs: Ints, rhs: Ints, batch_l: Ints, batch_r: Ints, contract_l: Ints, contract_r: Ints) -> Rule:
    left, sizes = _plain("m", lhs)
    right, sizes_r = _plain("n", rhs)
    kinds: dict[str, str] = {}
    batch, contract = zip(batch_l, batch_r, strict=True), zip(contract_l, contract_r, strict=True)
    for names, pairs in (("b", batch), ("k", contract)):
        for i, (dl, dr) in enumerate(pairs):
            if lhs[dl] != rhs[dr]:
                raise ValueError(f"dot of {list(lhs)} and {list(rhs)}: dims {dl} and {dr} differ")
            for f in left[dl]:
                sizes.pop(f)
            for f in right[dr]:
                sizes_r.pop(f)
            shared, more = _plain(f"{names}{i}_", [lhs[dl]])
            sizes.update(more)
            left = (*left[:dl], shared[0], *left[dl + 1 :])
            right = (*right[:dr], shared[0], *right[dr + 1 :])
            if names == "k":
                kinds.update((f, "sum") for f in shared[0])
    free_l = [d for d in range(len(lhs)) if d not in batch_l and d not in contract_l]
    free_r = [d for d in range(len(rhs)) if d not in batch_r and d not in contract_r]
    result = (*(left[d] for d in batch_l), *(left[d] for d in free_l), *(right[d] for d in free_r))
    return Rule((left, right), (result,), {**sizes, **sizes_r}, kinds, linear=((0,), (1,)))


def _spans(shape: Sequence[int]) -> list[tuple[int, int]]:
    """For each dimension the place values ``(A, B)`` between which its digits lie."""
    spans, at = [], 1
    for extent in reversed(shape):
        spans.append((at, at * extent))
        at *= extent
    return spans[::-1]


def _plain(tag: str, shape: Sequence[int]) -> tuple[Dims, dict[str, int]]:
    """One factor per dimension; none for extent 1."""
    dims = tuple((f"{tag}{i}",) if extent != 1 else () for i, extent in enumerate(shape))
    return dims, {f"{tag}{i}": extent for i, extent in enumerate(shape) if extent != 1}


def _whole(sizes: dict[str, int], kinds: dict[str, str], name: str, size: int) -> str:
    sizes[name], kinds[name] = size, "whole"
    return name


def _dim(
    sizes: dict[str, int], kinds: dict[str, str], extent: int, *parts: tuple[str, int | None]
) -> tuple[str, ...]:
    """A dimension of factors; a part of unknown size takes what is left, and every part but ``p*`` is whole.

    When the known parts do not divide the extent nothing can be split and the dimension is one whole factor.
    """
    known = math.prod(size for _, size in parts if size is not None)
    if extent == 0 or known == 0 or extent % known:
        return (_whole(sizes, kinds, parts[0][0], extent),)
    out = []
    for name, size in parts:
        size = extent // known if size is None else size
        if size == 1:
            continue
        sizes[name] = size
        if not name.startswith("p"):
            kinds[name] = "whole"
        out.append(name)
    return tuple(out)


def _unsplit(src: Sequence[int], dst: Sequence[int]) -> Rule:
    """A reshape of an empty tensor: nothing to split."""
    (s, sizes_s), (d, sizes_d) = _plain("s", src), _plain("d", dst)
    sizes = {**sizes_s, **sizes_d}
    return Rule((s,), (d,), sizes, {f: "whole" for f in sizes}, structural=True)
