"""Matrix products. Dimensions are never flattened: a sharded dimension stays a dimension of the dot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from rhino.frontend.torch_ops.context import Handler, Number, OpContext
from rhino.ir import types


def linear(c: OpContext, x: SSAValue, weight: SSAValue, bias: SSAValue | None = None) -> SSAValue:
    rank = len(types.shape_of(weight))
    out = c.b.dot_general(x, weight, contract=((-1,), (rank - 1,)))
    return out if bias is None else c.b.add(out, c.broadcast(bias, types.shape_of(out)))


def matmul(c: OpContext, x: SSAValue, y: SSAValue) -> SSAValue:
    return c.b.matmul(x, y)


def addmm(
    c: OpContext, bias: SSAValue, x: SSAValue, y: SSAValue, *, beta: Number = 1, alpha: Number = 1
) -> SSAValue:
    product = c.b.matmul(x, y)
    if alpha != 1:
        product = c.b.mul(product, c.full(alpha, product))
    if beta == 0:
        return product
    if beta != 1:
        bias = c.b.mul(bias, c.full(beta, bias))
    return c.b.add(c.broadcast(bias, types.shape_of(product)), product)


@dataclass(frozen=True)
class _Term:
    """A tensor and the letter of each of its dimensions."""

    value: SSAValue
    letters: str


def einsum(c: OpContext, equation: str, tensors: Sequence[SSAValue], path: object = None) -> SSAValue:
    """Contract from left to right; every pair is one dot_general."""
    inputs, output = _parse(c, equation, [len(types.shape_of(t)) for t in tensors])
    terms = [_diagonal(c, _Term(t, letters)) for t, letters in zip(tensors, inputs, strict=True)]
    result = _reduced(c, terms[0], set(output).union(*(t.letters for t in terms[1:])))
    for i, term in enumerate(terms[1:], 1):
        needed = set(output).union(*(t.letters for t in terms[i + 1 :]))
        term = _reduced(c, term, needed | set(result.letters))
        result = _pair(c, _reduced(c, result, needed | set(term.letters)), term, needed)
    perm = [result.letters.index(letter) for letter in output]
    value = result.value if perm == sorted(perm) else c.b.transpose(result.value, perm)
    return c.broadcast(value, c.shape)


def _parse(c: OpContext, equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of every operand and of the result; an ellipsis becomes capital Greek letters."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    spare = "ΑΒΓΔΕΖΗΘ"
    inputs: list[str] = []
    longest = 0
    for text, rank in zip(left.split(","), ranks, strict=True):
        hidden = rank - len(text.replace("...", "")) if "..." in text else 0
        longest = max(longest, hidden)
        inputs.append(text.replace("...", spare[len(spare) - hidden :] if hidden else ""))
    dots = spare[len(spare) - longest :] if longest else ""
    if arrow:
        output = right.replace("...", dots)
    else:
        once = sorted({x for x in left if x.isalpha() and left.count(x) == 1})
        output = dots + "".join(once)
    return inputs, output


def _diagonal(c: OpContext, term: _Term) -> _Term:
    """The elements at which the dimensions of a letter that occurs again have the same position."""
    b, value, letters = c.b, term.value, term.letters
    while (again := next((d for d, v in enumerate(letters) if letters.index(v) < d), None)) is not None:
        kind = types.tensor(types.shape_of(value), types.I64)
        here = b.compare(b.iota(kind, letters.index(letters[again])), b.iota(kind, again), "eq")
        value = b.reduce(b.select(here, value, b.full_like(value, 0)), [again], "sum")
        letters = letters[:again] + letters[again + 1 :]
    return _Term(value, letters)


def _reduced(c: OpContext, term: _Term, needed: set[str]) -> _Term:
    """Sum over the letters that nothing else has."""
    over = [d for d, letter in enumerate(term.letters) if letter not in needed]
    if not over:
        return term
    return _Term(c.b.reduce(term.value, over, "sum"), "".join(x for x in term.letters if x in needed))


def _pair(c: OpContext, x: _Term, y: _Term, needed: set[str]) -> _Term:
    x, y = _squeezed(c, x, y), _squeezed(c, y, x)
    batch = [v for v in x.letters if v in y.letters and v in needed]
    contract = [v for v in x.letters if v in y.letters and v not in needed]
    value = c.b.dot_general(
        x.value,
        y.value,
        batch=([x.letters.index(v) for v in batch], [y.letters.index(v) for v in batch]),
        contract=([x.letters.index(v) for v in contract], [y.letters.index(v) for v in contract]),
    )
    rest = [v for t in (x, y) for v in t.letters if v not in batch and v not in contract]
    return _Term(value, "".join([*batch, *rest]))


def _squeezed(c: OpContext, x: _Term, other: _Term) -> _Term:
    """`x` without the dimensions of extent 1 that broadcast against a longer one of `other`."""
    shape, sizes = types.shape_of(x.value), dict(zip(other.letters, types.shape_of(other.value), strict=True))
    kept = [d for d, v in enumerate(x.letters) if not (shape[d] == 1 and sizes.get(v, 1) != 1)]
    if len(kept) == len(shape):
        return x
    return _Term(c.b.reshape(x.value, [shape[d] for d in kept]), "".join(x.letters[d] for d in kept))


def vector_product(c: OpContext, x: SSAValue, y: SSAValue) -> SSAValue:
    return c.b.dot_general(x, y, contract=((-1,), (0,)))


def trilinear(
    c: OpContext,
    x: SSAValue,
    y: SSAValue,
    z: SSAValue,
    expand_x: Sequence[int],
    expand_y: Sequence[int],
    expand_z: Sequence[int],
    sum_dims: Sequence[int],
    unroll_dim: int = 1,
) -> SSAValue:
    """The sum of products behind `torch.nn.Bilinear`: new dimensions are added, then one einsum taken."""
    rank = len(types.shape_of(x)) + len(expand_x)
    letters = "abcdefghijklmnop"[:rank]
    names = ["".join(v for d, v in enumerate(letters) if d not in e) for e in (expand_x, expand_y, expand_z)]
    out = "".join(v for d, v in enumerate(letters) if d not in sum_dims)
    return einsum(c, f"{names[0]},{names[1]},{names[2]}->{out}", [x, y, z])


def grouped_product(
    c: OpContext,
    x: SSAValue,
    y: SSAValue,
    offsets: SSAValue | None = None,
    bias: SSAValue | None = None,
    out_dtype: object = None,
) -> SSAValue:
    """A product per group of rows (or columns, or of the contracted dimension); group g ends at ``offsets[g]``.

    ``x[S, K], y[G, K, N]``: rows of x by groups, as mixtures of experts use it. Which row belongs to which group is
    a mask, and groups are contracted like any dimension: devices can divide the experts among them. The price is
    that without a split every row meets every expert.
    """
    b = c.b
    if offsets is None:
        out = b.matmul(x, y)
    else:
        ranks = len(types.shape_of(x)), len(types.shape_of(y))
        if ranks == (2, 3):  # rows of x
            out = b.dot_general(_by_group(c, x, offsets, 0), y, contract=((0, 2), (0, 1)))
        elif ranks == (3, 2):  # columns of y
            out = b.dot_general(x, _by_group(c, y, offsets, 1), contract=((0, 2), (0, 1)))
        else:  # the contracted dimension
            out = b.dot_general(_by_group(c, x, offsets, 1), y, contract=((2,), (0,)))
    out = c.convert(out, c.element)
    return out if bias is None else b.add(out, c.broadcast(bias, c.shape))


def _by_group(c: OpContext, x: SSAValue, offsets: SSAValue, dim: int) -> SSAValue:
    """A copy per group of a matrix, zero where a dimension's position is not in the group."""
    b = c.b
    (groups,) = types.shape_of(offsets)
    shape = [groups, *types.shape_of(x)]
    ends = c.convert(offsets, types.I64)
    starts = b.pad(b.slice(ends, [0], [groups - 1]), 0, [1], [0])
    here = b.iota(types.tensor([groups, shape[dim + 1]], types.I64), 1)
    first, last = (b.broadcast_in_dim(v, types.shape_of(here), [0]) for v in (starts, ends))
    member = b.and_(b.compare(here, first, "ge"), b.compare(here, last, "lt"))
    spread = b.broadcast_in_dim(x, shape, [1, 2])
    return b.select(b.broadcast_in_dim(member, shape, [0, dim + 1]), spread, b.full_like(spread, 0))


ATEN: dict[str, Handler] = {
    "aten._grouped_mm.default": grouped_product,
    "transformers.grouped_mm_fallback.default": grouped_product,
    "aten.linear.default": linear,
    "aten.matmul.default": matmul,
    "aten.mm.default": matmul,
    "aten.bmm.default": matmul,
    "aten.mv.default": vector_product,
    "aten.dot.default": vector_product,
    "aten.addmm.default": addmm,
    "aten.baddbmm.default": addmm,
    "aten.einsum.default": einsum,
    "aten._trilinear.default": trilinear,
}
