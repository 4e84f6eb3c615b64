"""Linear algebra, Fourier transforms, random bits and batch normalisation."""

from __future__ import annotations

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, SSAValue

from rhino.dialects.hlo.base import ints, text
from rhino.frontend.stablehlo.importer import Handler, Importer, Values
from rhino.frontend.stablehlo.syntax import OpSyntax
from rhino.ir import types


def _flag(op: OpSyntax, name: str) -> bool:
    return bool(op.attributes.get(name, False))


def cholesky(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """The triangle that is not asked for is zero here; StableHLO leaves it open."""
    return ctx.emit(op, "cholesky", operands, {} if _flag(op, "lower") else {"upper": UnitAttr()})


def triangular_solve(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    properties: dict[str, Attribute] = {"transpose_a": text(ctx.word(op, "transpose_a", "NO_TRANSPOSE"))}
    for name, on in (
        ("right", not _flag(op, "left_side")),
        ("lower", _flag(op, "lower")),
        ("unit_diagonal", _flag(op, "unit_diagonal")),
    ):
        if on:
            properties[name] = UnitAttr()
    return ctx.emit(op, "triangular_solve", operands, properties)


def fft(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    properties = {"fft_type": text(ctx.word(op, "fft_type")), "fft_length": ints(ctx.ints(op, "fft_length"))}
    return ctx.emit(op, "fft", operands, properties)


def rng_bit_generator(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    properties = {
        "rng_algorithm": text(ctx.word(op, "rng_algorithm", "DEFAULT")),
        "output_type": ctx.result(op, 1),
    }
    return ctx.emit(op, "rng_bit_generator", operands, properties)


def rng(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    """Which numbers come is open; here they follow from where the op stands in the text."""
    a, b, _ = operands
    shape = ctx.result(op).get_shape()
    return [ctx.b.rng(a, b, shape, ctx.word(op, "rng_distribution"), op.at)]


# Batch normalisation, as the specification defines it in terms of other ops.


class _Normalisation:
    """Broadcasts of values per feature, and sums over everything else."""

    def __init__(self, ctx: Importer, op: OpSyntax, x: SSAValue) -> None:
        self.b, self.x = ctx.b, x
        self.shape = types.shape_of(x)
        self.feature = ctx.integer(op, "feature_index")
        if not 0 <= self.feature < len(self.shape):
            ctx.fail(op, f"there is no dimension {self.feature}")
        epsilon = op.attributes.get("epsilon")
        if not isinstance(epsilon, int | float):
            ctx.fail(op, "needs the number epsilon")
        self.epsilon = float(epsilon)

    def spread(self, value: SSAValue) -> SSAValue:
        return self.b.broadcast_in_dim(value, self.shape, [self.feature])

    def total(self, value: SSAValue) -> SSAValue:
        return self.b.reduce(value, [d for d in range(len(self.shape)) if d != self.feature], "sum")

    def count(self, like: SSAValue) -> SSAValue:
        """How many elements a feature has."""
        number = 1
        for d, n in enumerate(self.shape):
            number *= 1 if d == self.feature else n
        return self.b.full_like(like, number)

    def mean(self, value: SSAValue) -> SSAValue:
        total = self.total(value)
        return self.b.div(total, self.count(total))

    def deviation(self, variance: SSAValue) -> SSAValue:
        return self.b.sqrt(self.b.add(variance, self.b.full_like(variance, self.epsilon)))


def batch_norm_inference(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, scale, offset, mean, variance = operands
    n, b = _Normalisation(ctx, op, x), ctx.b
    centred = b.sub(x, n.spread(mean))
    normal = b.div(centred, n.spread(n.deviation(variance)))
    return [b.add(b.mul(n.spread(scale), normal), n.spread(offset))]


def batch_norm_training(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, scale, offset = operands
    n, b = _Normalisation(ctx, op, x), ctx.b
    mean = n.mean(x)
    centred = b.sub(x, n.spread(mean))
    variance = n.mean(b.mul(centred, centred))
    (out,) = batch_norm_inference(ctx, op, [x, scale, offset, mean, variance])
    return [out, mean, variance]


def batch_norm_grad(ctx: Importer, op: OpSyntax, operands: list[SSAValue]) -> Values:
    x, scale, mean, variance, dy = operands
    n, b = _Normalisation(ctx, op, x), ctx.b
    centred = b.sub(x, n.spread(mean))
    deviation = n.spread(n.deviation(variance))
    normal = b.div(centred, deviation)
    d_scale, d_offset = n.total(b.mul(dy, normal)), n.total(dy)
    count = n.count(x)
    inner = b.sub(b.sub(b.mul(count, dy), n.spread(d_offset)), b.mul(normal, n.spread(d_scale)))
    dx = b.mul(b.div(b.div(n.spread(scale), deviation), count), inner)
    return [dx, d_scale, d_offset]


HANDLERS: dict[str, Handler] = {
    "stablehlo.cholesky": cholesky,
    "stablehlo.triangular_solve": triangular_solve,
    "stablehlo.fft": fft,
    "stablehlo.rng_bit_generator": rng_bit_generator,
    "stablehlo.rng": rng,
    "stablehlo.batch_norm_inference": batch_norm_inference,
    "stablehlo.batch_norm_training": batch_norm_training,
    "stablehlo.batch_norm_grad": batch_norm_grad,
}
