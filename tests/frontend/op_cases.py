"""Small torch functions by family; see `op_check`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from op_check import Case, booleans, case, integers, normal, positive, unit, values

POINTWISE: tuple[Case, ...] = (
    case("add_broadcast", lambda x, y: x + y, normal(3, 1, 4), normal(2, 4)),
    case("add_alpha", lambda x, y: torch.add(x, y, alpha=2.5), normal(3, 4), normal(3, 4)),
    case("add_int_float", lambda x, y: x + y, integers(0, 9, 3, 4), normal(3, 4)),
    case("add_scalar", lambda x: x + 1.5, integers(0, 9, 3)),
    case("sub_rsub", lambda x, y: 2 - (x - y), normal(3, 4), normal(4)),
    case("mul_bool", lambda x, y: x * y, booleans(3, 4), booleans(3, 4)),
    case("div_int", lambda x, y: x / y, integers(-9, 9, 12), integers(1, 9, 12)),
    case("div_floor", lambda x, y: torch.div(x, y, rounding_mode="floor"), normal(40), normal(40), gradient=False),
    case("floor_divide", lambda x, y: x // y, integers(-9, 9, 40), integers(1, 5, 40)),
    case("floor_divide_negative", lambda x: x // -4, integers(-9, 9, 40)),
    case("div_trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), integers(-9, 9, 40), integers(1, 5, 40)),
    case("remainder", lambda x, y: x % y, normal(40), normal(40)),
    case("remainder_int", lambda x: x % -3, integers(-9, 9, 40)),
    case("fmod", lambda x, y: torch.fmod(x, y), normal(20), normal(20)),
    case("powers", lambda x: [x**2, x**3, x**4, x**-2, x**1, x**0], normal(7)),
    case("roots", lambda x: [x**0.5, x**-0.5, x**2.5, x**-1], positive(7)),
    case("pow_tensor", lambda x, y: torch.pow(x, y), positive(7), normal(7)),
    case("pow_scalar_base", lambda x: torch.pow(2.0, x), normal(7)),
    case("pow_int", lambda x: x**3, integers(-3, 4, 7)),
    case("compare", lambda x, y: [x < y, x <= y, x > y, x >= y, x == y, x != y], integers(0, 3, 9), integers(0, 3, 9)),
    case("compare_mixed", lambda x, y: [x < y, x > 0.5, y == 1], normal(9), integers(0, 3, 9), gradient=False),
    case("logical", lambda x, y: [torch.logical_and(x, y), torch.logical_or(x, y), ~y, torch.logical_not(x)],
         integers(0, 2, 9), booleans(9)),
    case("logical_xor", torch.logical_xor, booleans(9), booleans(9)),
    case("bitwise", lambda x, y: [x & y, x | y, x ^ y, ~x, x << 2, x >> 1], integers(-9, 9, 9), integers(0, 9, 9)),
    case("bitwise_bool", lambda x, y: [x & y, x | y, x ^ y], booleans(9), booleans(9)),
    case("where", lambda p, x, y: torch.where(p, x, y), booleans(3, 4), normal(4), normal(3, 1)),
    case("where_scalars", lambda p, x: [torch.where(p, 1.0, 0.0), torch.where(p, x, 2.0)], booleans(4), normal(4)),
    case("masked_fill", lambda x, p: x.masked_fill(p, -3.0), normal(3, 4), booleans(3, 1)),
    case("clamp", lambda x: [x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=0.3)], normal(3, 4)),
    case("clamp_tensor", lambda x, y: torch.clamp(x, min=y), normal(3, 4), normal(4)),
    case("maximum_minimum", lambda x, y: [torch.maximum(x, y), torch.minimum(x, y)], normal(9), normal(9)),
    case("signs", lambda x: [-x, x.abs(), x.sign(), x.square()], normal(9)),
    case("exponentials", lambda x: [x.exp(), x.exp2(), x.expm1(), x.sinh(), x.cosh(), x.tanh()], normal(9)),
    case("logarithms", lambda x: [x.log(), x.log2(), x.log10(), x.log1p()], positive(9)),
    case("square_roots", lambda x: [x.sqrt(), x.rsqrt(), x.reciprocal()], positive(9)),
    case("trigonometric", lambda x: [x.sin(), x.cos(), x.tan(), x.asin(), x.acos(), x.atan()], unit(9)),
    case("sinh_near_zero", lambda x: x.sinh() * 1e4, values(1e-4, -2e-3, 0.0)),
    case("hyperbolic", lambda x: [x.asinh(), (x + 2).acosh(), x.atanh()], unit(9)),
    case("atan2", torch.atan2, normal(9), normal(9)),
    case("error_functions", lambda x: [torch.erf(x), torch.erfc(x)], normal(9)),
    case("rounding", lambda x: [x.floor(), x.ceil(), x.trunc(), x.round(), x.frac()], normal(20)),
    case("round_half", lambda x: [x.round(), torch.round(x, decimals=1)], values(0.5, 1.5, -0.5, 2.26)),
    case("classify", lambda x: [x.isnan(), x.isinf(), x.isfinite()],
         values(0.0, float("inf"), float("nan"), -float("inf")), gradient=False),
    case("addcmul", lambda x, y, z: [torch.addcmul(x, y, z, value=2), torch.addcdiv(x, y, z + 5)],
         normal(3, 4), normal(4), normal(3, 1)),
    case("lerp", lambda x, y, w: [torch.lerp(x, y, 0.3), torch.lerp(x, y, w)], normal(5), normal(5), unit(5)),
    case("casts", lambda x, y: [x.to(torch.int64), x.to(torch.float32), x.bool(), y.double()],
         normal(9), integers(0, 9, 9), gradient=False),
    case("detached", lambda x, y: x.detach() * y + x, normal(4), normal(4)),
    case("xlogy", torch.xlogy, positive(4), positive(4)),
    case("logaddexp", torch.logaddexp, normal(4), normal(4)),
    case("nan_to_num", torch.nan_to_num, values(0.0, float("inf"), float("nan"), -float("inf")), gradient=False),
)  # fmt: skip

SHAPE: tuple[Case, ...] = (
    case("views", lambda x: [x.view(6, 4), x.reshape(-1), x.flatten(1), x.unsqueeze(1), x.unflatten(2, (2, 2))],
         normal(2, 3, 4)),
    case("squeeze", lambda x: [x.squeeze(), x.squeeze(1), x.squeeze((1, 3))], normal(2, 1, 3, 1)),
    case("permute", lambda x: [x.permute(2, 0, 1), x.transpose(0, -1), x[0].t(), x.mT], normal(2, 3, 4)),
    case("expand", lambda x: [x.expand(2, 3, 4), x.expand(-1, 4), x.broadcast_to(2, 3, 4)], normal(3, 1)),
    case("expand_as", lambda x, y: x.expand_as(y), normal(3, 1), normal(2, 3, 4)),
    case("repeat", lambda x: [x.repeat(2, 3), x.repeat(2, 1, 2), x.tile(2), x.repeat_interleave(2, dim=1)],
         normal(2, 3)),
    case("slices", lambda x: [x[1:], x[:, 1:3], x[..., ::2], x[-2:], x[:, -1], x[0], x[1:2, :, 3:]], normal(4, 3, 5)),
    case("split", lambda x: [*x.split(2, dim=1), *x.chunk(3, dim=0)], normal(4, 5)),
    case("split_sizes", lambda x: x.split([1, 3, 1], dim=1), normal(4, 5)),
    case("unbind", lambda x: x.unbind(1), normal(2, 3, 4)),
    case("cat", lambda x, y: torch.cat([x, y, x], dim=1), normal(2, 3), normal(2, 2)),
    case("cat_types", lambda x, y: torch.cat([x, y]), normal(2, 3), integers(0, 5, 2, 3)),
    case("stack", lambda x, y: [torch.stack([x, y], 1), torch.hstack([x, y]), torch.vstack([x, y])],
         normal(2, 3), normal(2, 3)),
    case("flip_roll", lambda x: [x.flip(0, 2), x.roll(2, 1), x.roll((1, -1), (0, 2))], normal(2, 3, 4)),
    case("pad", lambda x: [F.pad(x, (1, 2)), F.pad(x, (0, 0, 2, 1), value=3.0), F.pad(x, (-1, 1))], normal(3, 4)),
    case("pad_reflect", lambda x: [F.pad(x, (1, 2), mode="reflect"), F.pad(x, (2, 1), mode="replicate")],
         normal(1, 2, 5)),
    case("pad_circular", lambda x: F.pad(x, (1, 1), mode="circular"), normal(1, 2, 5)),
    case("triangles", lambda x: [x.tril(), x.triu(1), x.tril(-1)], normal(2, 4, 4)),
    case("diagonal", lambda x: [x.diagonal(0, 1, 2), x.diagonal(1, 0, 2), x.diagonal(-1, 1, 2)], normal(2, 4, 4)),
    case("diag_embed", lambda x: [torch.diag_embed(x), torch.diag(x[0])], normal(2, 3)),
    case("makers", lambda x: [torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 2.5), x.new_zeros(2, 2),
                              x.new_ones(3), x.new_full((2,), 7.0)], normal(3, 2), gradient=False),
    case("aranges", lambda x: [torch.arange(5), torch.arange(2, 11, 3), torch.arange(0, 1, 0.25, dtype=x.dtype),
                               torch.arange(6, dtype=x.dtype), torch.linspace(0, 1, 5, dtype=x.dtype),
                               torch.eye(3, dtype=x.dtype)], normal(1), gradient=False),
    case("in_place_slice", lambda x, y: _write(x, y), normal(4, 5), normal(2, 5)),
    case("in_place_strided", lambda x: _write_strided(x), normal(4, 6)),
    case("slice_scatter", lambda x, y: [torch.slice_scatter(x, y, 1, 1, 5, 2), torch.select_scatter(x, y[:, 0], 1, 2)],
         normal(3, 6), normal(3, 2)),
    case("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), normal(3), normal(4)),
    case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), normal(1, 8, 3, 3)),
    case("unfold", lambda x: F.unfold(x, (2, 2)), normal(1, 2, 4, 4)),
    case("movedim", lambda x: [x.movedim(0, 2), x.swapaxes(0, 1)], normal(2, 3, 4)),
    case("one_hot", lambda i: F.one_hot(i, 5), integers(0, 5, 3, 2)),
)  # fmt: skip


def _write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x * 2
    x[1:3] = y
    x[0, 2] = 5.0
    x[:, 0].add_(1)
    return x


def _write_strided(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[:, ::2] = 0
    x[1:, 1::3] *= 2
    return x


REDUCTION: tuple[Case, ...] = (
    case("sums", lambda x: [x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.sum(-1, keepdim=True)], normal(2, 3, 4)),
    case("sum_int_bool", lambda x, p: [x.sum(), p.sum(0), x.sum(1)], integers(0, 9, 3, 4), booleans(3, 4)),
    case("means", lambda x: [x.mean(), x.mean(1), x.mean((0, 2), keepdim=True)], normal(2, 3, 4)),
    case("prods", lambda x: [x.prod(), x.prod(1), x.prod(1, keepdim=True)], normal(2, 3)),
    case("extrema", lambda x: [x.amax(1), x.amin((0, 1)), x.max(), x.min(), x.amax(0, keepdim=True)], normal(3, 4)),
    case("extrema_dim", lambda x: [*x.max(1), *x.min(0), *x.max(1, keepdim=True)], normal(3, 4)),
    case("argmax", lambda x: [x.argmax(), x.argmax(1), x.argmin(0, keepdim=True)], normal(3, 4), gradient=False),
    case("any_all", lambda p: [p.any(), p.all(), p.any(1), p.all(0, keepdim=True)], booleans(3, 4)),
    case("any_numbers", lambda x: [x.any(1), x.all(1)], integers(0, 2, 3, 4)),
    case("variances", lambda x: [x.var(), x.var(1), x.var(1, correction=0), x.std(0, keepdim=True)], normal(3, 4)),
    case("var_mean", lambda x: [*torch.var_mean(x, 1), *torch.std_mean(x, 0)], normal(3, 4)),
    case("norms", lambda x: [x.norm(), torch.linalg.vector_norm(x, 1, dim=1), torch.linalg.vector_norm(x, 3, dim=0),
                             torch.linalg.vector_norm(x, float("inf"), dim=1)], normal(3, 4)),
    case("norm_of_zero", lambda x: torch.linalg.vector_norm(x * 0, 2, dim=1), normal(3, 4)),
    case("normalize", lambda x: F.normalize(x, dim=1), normal(3, 4)),
    case("cosine_similarity", lambda x, y: F.cosine_similarity(x, y), normal(3, 4), normal(3, 4)),
    case("logsumexp", lambda x: [torch.logsumexp(x, 1), torch.logsumexp(x, (0, 1), keepdim=True)], normal(3, 4)),
    case("cumulative", lambda x: [x.cumsum(1), x.cumsum(0), x.cumprod(1)], normal(3, 4)),
    case("cumsum_int", lambda x, p: [x.cumsum(0), p.cumsum(0)], integers(0, 9, 5), booleans(5)),
    case("sort", lambda x: [*x.sort(1), *x.sort(0, descending=True)], normal(3, 5)),
    case("sort_ties", lambda x: [*x.sort(dim=1, stable=True), x.argsort(dim=1, stable=True)], integers(0, 3, 3, 6)),
    case("topk", lambda x: [*x.topk(2), *x.topk(2, dim=0), *x.topk(3, largest=False)], normal(4, 5)),
    case("topk_int", lambda x: [x.topk(2).values, x.topk(2, largest=False).values], integers(0, 99, 4, 6)),
    case("count_nonzero", lambda x: [torch.count_nonzero(x), torch.count_nonzero(x, dim=1)], integers(0, 2, 3, 4)),
    case("aminmax", lambda x: [*torch.aminmax(x, dim=1)], normal(3, 4)),
)  # fmt: skip

LINEAR: tuple[Case, ...] = (
    case("linear", lambda x, w, b: [F.linear(x, w, b), F.linear(x, w)], normal(2, 3, 4), normal(5, 4), normal(5)),
    case("linear_vector", lambda x, w: F.linear(x, w), normal(4), normal(5, 4)),
    case("matmul", lambda x, y: x @ y, normal(3, 4), normal(4, 5)),
    case("matmul_batched", lambda x, y: x @ y, normal(2, 1, 3, 4), normal(5, 4, 2)),
    case("matmul_vectors", lambda x, y: [x @ y, y @ y, x.mv(y), torch.dot(y, y)], normal(3, 4), normal(4)),
    case("bmm", torch.bmm, normal(2, 3, 4), normal(2, 4, 5)),
    case("addmm", lambda b, x, y: [torch.addmm(b, x, y), torch.addmm(b, x, y, beta=0.5, alpha=2)],
         normal(5), normal(3, 4), normal(4, 5)),
    case("baddbmm", lambda b, x, y: torch.baddbmm(b, x, y, beta=2), normal(2, 3, 5), normal(2, 3, 4), normal(2, 4, 5)),
    case("einsum_attention",
         lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k), normal(2, 3, 2, 4), normal(2, 5, 2, 4)),
    case("einsum_outer",
         lambda x, y: [torch.einsum("i,j->ij", x, y), torch.einsum("i,j->ji", x, y)], normal(3), normal(4)),
    case("einsum_sums", lambda x, y: [torch.einsum("ij,k->i", x, y), torch.einsum("ij->", x), torch.einsum("ij", x)],
         normal(3, 4), normal(2)),
    case("einsum_three",
         lambda x, y, z: torch.einsum("ab,bc,cd->ad", x, y, z), normal(2, 3), normal(3, 4), normal(4, 2)),
    case("einsum_ellipsis", lambda x, y: torch.einsum("...ij,...jk->...ik", x, y), normal(2, 3, 4), normal(4, 5)),
    case("einsum_broadcast", lambda x, y: torch.einsum("bi,bi->b", x, y), normal(3, 4), normal(1, 4)),
    case("outer_kron", lambda x, y: [torch.outer(x, y), torch.kron(x, y)], normal(3), normal(2)),
    case("bilinear", lambda x, y, w: F.bilinear(x, y, w), normal(3, 4), normal(3, 5), normal(2, 4, 5)),
)  # fmt: skip

ACTIVATION: tuple[Case, ...] = (
    case("relu", lambda x: [F.relu(x), F.relu(x * 0), F.relu6(x * 4)], normal(9)),
    case("relu_nan", lambda x: F.relu(x), values(float("nan"), -1.0, 0.0, 2.0)),
    case("gelu", lambda x: [F.gelu(x), F.gelu(x, approximate="tanh")], normal(9)),
    case("silu", lambda x: [F.silu(x), F.mish(x), torch.sigmoid(x), F.logsigmoid(x)], normal(9)),
    case("leaky", lambda x: [F.leaky_relu(x, 0.1), F.elu(x), F.elu(x, 0.7), F.selu(x)], normal(9)),
    case("elu_large", lambda x: F.elu(x * 500), normal(9)),
    case("softplus", lambda x: [F.softplus(x), F.softplus(x * 30, beta=2)], normal(9)),
    case("hard", lambda x: [F.hardtanh(x), F.hardswish(x * 3), F.hardshrink(x)], normal(9)),
    # torch's own derivatives of these hold float32 constants.
    case("celu_hardsigmoid", lambda x: [F.celu(x, 1.3), F.hardsigmoid(x * 3)], normal(9), gradient=False),
    case("softsign", lambda x: [F.softsign(x), F.softshrink(x), F.threshold(x, 0.1, 2.0)], normal(9)),
    case("prelu_glu", lambda x, a: [F.prelu(x, a), F.glu(x, 1)], normal(3, 4), normal(1)),
    case("softmax", lambda x: [F.softmax(x, 1), F.softmax(x, 0), F.softmax(x * 100, -1)], normal(3, 4)),
    case("log_softmax", lambda x: [F.log_softmax(x, 1), F.log_softmax(x, 0)], normal(3, 4)),
    case("softmin", lambda x: F.softmin(x, 1), normal(3, 4)),
    case("dropout_eval", lambda x: [F.dropout(x, 0.5, training=False), F.dropout(x, 0.0, training=True)], normal(4)),
)  # fmt: skip

NORMALIZATION: tuple[Case, ...] = (
    case("layer_norm", lambda x, w, b: [F.layer_norm(x, (4,), w, b), F.layer_norm(x, (4,)), F.layer_norm(x, (4,), w)],
         normal(2, 3, 4), normal(4), normal(4)),
    case("layer_norm_two",
         lambda x, w, b: F.layer_norm(x, (3, 4), w, b, 1e-3), normal(2, 3, 4), normal(3, 4), normal(3, 4)),
    case("rms_norm", lambda x, w: [F.rms_norm(x, (4,), w), F.rms_norm(x, (4,), eps=1e-3)], normal(2, 3, 4), normal(4)),
    case("group_norm",
         lambda x, w, b: [F.group_norm(x, 2, w, b), F.group_norm(x, 4)], normal(2, 4, 3, 2), normal(4), normal(4)),
    case("instance_norm", lambda x, w, b: [F.instance_norm(x, weight=w, bias=b), F.instance_norm(x)],
         normal(2, 3, 4, 2), normal(3), normal(3)),
    case("batch_norm_train", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
         normal(4, 3, 2), normal(3), normal(3)),
    case("batch_norm_eval", lambda x, m, v: F.batch_norm(x, m.detach(), v.detach(), training=False),
         normal(4, 3, 2), normal(3), positive(3)),
    case("local_response_norm", lambda x: F.local_response_norm(x, 2), normal(2, 4, 3, 3)),
)  # fmt: skip

ATTENTION: tuple[Case, ...] = (
    case("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
         normal(2, 4, 5, 8), normal(2, 4, 6, 8), normal(2, 4, 6, 3)),
    case("attention_causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
         normal(2, 4, 5, 8), normal(2, 4, 5, 8), normal(2, 4, 5, 8)),
    case("attention_causal_wide", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
         normal(1, 2, 3, 4), normal(1, 2, 6, 4), normal(1, 2, 6, 4)),
    case("attention_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
         normal(2, 4, 5, 8), normal(2, 4, 6, 8), normal(2, 4, 6, 8), booleans(2, 1, 5, 6)),
    case("attention_empty_rows", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m & (m.cumsum(-2) > 1)),
         normal(2, 4, 5, 8), normal(2, 4, 6, 8), normal(2, 4, 6, 8), booleans(2, 1, 5, 6)),
    case("attention_bias", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
         normal(2, 4, 5, 8), normal(2, 4, 6, 8), normal(2, 4, 6, 8), normal(4, 5, 6)),
    case("attention_minus_infinity",
         lambda q, k, v, m: F.scaled_dot_product_attention(
             q, k, v, torch.zeros_like(q[..., :1]).masked_fill(~m, -torch.inf)),
         normal(2, 4, 5, 8), normal(2, 4, 6, 8), normal(2, 4, 6, 8), booleans(2, 1, 5, 6)),
    case("attention_groups", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
         normal(2, 8, 5, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 4)),
    case("attention_groups_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, enable_gqa=True),
         normal(2, 4, 5, 4), normal(2, 2, 6, 4), normal(2, 2, 6, 4), booleans(5, 6)),
    case("attention_three", lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
         normal(2, 5, 8), normal(2, 6, 8), normal(2, 6, 8)),
)  # fmt: skip

LOSS: tuple[Case, ...] = (
    case("cross_entropy", lambda x, t: [F.cross_entropy(x, t, reduction=r) for r in ("none", "mean", "sum")],
         normal(6, 5), integers(0, 5, 6)),
    case("cross_entropy_ignore",
         lambda x, t: [F.cross_entropy(x, t, ignore_index=2), F.cross_entropy(x, t - (t == 1) * 101)],
         normal(9, 5), integers(0, 5, 9)),
    case("cross_entropy_smooth", lambda x, t: [F.cross_entropy(x, t, label_smoothing=0.1, reduction=r, ignore_index=1)
                                               for r in ("none", "mean", "sum")], normal(9, 5), integers(0, 5, 9)),
    case("cross_entropy_weight",
         lambda x, t, w: [F.cross_entropy(x, t, w.detach(), reduction=r) for r in ("none", "mean")],
         normal(9, 5), integers(0, 5, 9), positive(5)),
    case("cross_entropy_smooth_weight",
         lambda x, t, w: F.cross_entropy(x, t, w.detach(), label_smoothing=0.2, ignore_index=0),
         normal(9, 5), integers(0, 5, 9), positive(5)),
    case("cross_entropy_images", lambda x, t: F.cross_entropy(x, t), normal(2, 5, 3, 4), integers(0, 5, 2, 3, 4)),
    case("cross_entropy_one", lambda x, t: F.cross_entropy(x, t), normal(5), integers(0, 5)),
    case("cross_entropy_soft",
         lambda x, t: [F.cross_entropy(x, t.softmax(1)), F.cross_entropy(x, t, label_smoothing=0.1)],
         normal(6, 5), normal(6, 5)),
    case("nll_loss", lambda x, t: [F.nll_loss(x.log_softmax(1), t), F.nll_loss(x.log_softmax(1), t, reduction="none")],
         normal(6, 5), integers(0, 5, 6)),
    case("nll_loss_weight", lambda x, t, w: F.nll_loss(x, t, w.detach(), ignore_index=3),
         normal(9, 5), integers(0, 5, 9), positive(5)),
    case("mse_l1",
         lambda x, y: [F.mse_loss(x, y), F.l1_loss(x, y), F.mse_loss(x, y, reduction="sum")],
         normal(3, 4), normal(3, 4)),
    case("huber", lambda x, y: [F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.5)], normal(3, 4), normal(3, 4)),
    case("bce_logits", lambda x, t: F.binary_cross_entropy_with_logits(x, t.sigmoid()), normal(3, 4), normal(3, 4)),
    case("bce", lambda x, t: F.binary_cross_entropy(x.sigmoid(), t.sigmoid()), normal(3, 4), normal(3, 4)),
    case("kl_div",
         lambda x, t: F.kl_div(x.log_softmax(1), t.softmax(1), reduction="batchmean"), normal(3, 4), normal(3, 4)),
    case("triplet", lambda x, y, z: F.triplet_margin_loss(x, y, z), normal(3, 4), normal(3, 4), normal(3, 4)),
)  # fmt: skip

CONV: tuple[Case, ...] = (
    case("conv1d", lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), normal(2, 3, 9), normal(4, 3, 3), normal(4)),
    case("conv2d", lambda x, w, b: [F.conv2d(x, w, b), F.conv2d(x, w, padding=(1, 2), dilation=(2, 1))],
         normal(2, 3, 7, 6), normal(4, 3, 3, 2), normal(4)),
    case("conv2d_same", lambda x, w: F.conv2d(x, w, padding="same"), normal(2, 3, 5, 5), normal(4, 3, 3, 3)),
    case("conv2d_groups",
         lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=2), normal(2, 4, 6, 6), normal(6, 2, 3, 3)),
    case("conv2d_depthwise", lambda x, w: F.conv2d(x, w, groups=4), normal(2, 4, 5, 5), normal(4, 1, 3, 3)),
    case("conv2d_patches",
         lambda x, w, b: F.conv2d(x, w, b, stride=4), normal(2, 3, 8, 8), normal(5, 3, 4, 4), normal(5)),
    case("conv3d", lambda x, w: F.conv3d(x, w, padding=1), normal(1, 2, 4, 3, 4), normal(3, 2, 3, 3, 3)),
    case("conv_transpose1d", lambda x, w: F.conv_transpose1d(x, w, stride=2), normal(2, 3, 5), normal(3, 4, 3)),
    case("conv_transpose2d", lambda x, w, b: [F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1),
                                              F.conv_transpose2d(x, w, padding=3)],
         normal(2, 4, 5, 6), normal(4, 2, 3, 3), normal(2)),
    case("conv_transpose2d_groups", lambda x, w: F.conv_transpose2d(x, w, groups=2, dilation=2),
         normal(2, 4, 5, 5), normal(4, 3, 2, 3)),
    case("max_pool2d",
         lambda x: [F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, (2, 3), ceil_mode=True)],
         normal(2, 3, 7, 8)),
    case("max_pool2d_dilated", lambda x: F.max_pool2d(x, 2, 1, 0, 2), normal(2, 3, 7, 8)),
    case("max_pool1d", lambda x: F.max_pool1d(x, 2), normal(2, 3, 8)),
    case("avg_pool2d", lambda x: [F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2, divisor_override=3)],
         normal(2, 3, 7, 8)),
    case("avg_pool2d_edges", lambda x: [F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
                                        F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)], normal(2, 3, 7, 8)),
    case("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2), normal(2, 3, 8)),
    case("adaptive_avg", lambda x: [F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 4)),
                                    F.adaptive_avg_pool2d(x, (4, 5)), F.adaptive_avg_pool1d(x[0], 3),
                                    F.adaptive_avg_pool1d(x[0].mT, 1), F.adaptive_avg_pool2d(x, (None, 2))],
         normal(2, 3, 6, 8)),
    case("adaptive_max", lambda x: F.adaptive_max_pool2d(x, (3, 4)), normal(2, 3, 6, 8)),
    case("upsample", lambda x: [F.interpolate(x, scale_factor=2), F.interpolate(x, scale_factor=2, mode="bilinear")],
         normal(1, 2, 3, 4)),
)  # fmt: skip

INDEXING: tuple[Case, ...] = (
    case("embedding",
         lambda w, i: [F.embedding(i, w), F.embedding(i, w, padding_idx=3)], normal(7, 4), integers(0, 7, 2, 5)),
    case("index_select", lambda x, i: [x.index_select(1, i), x.index_select(0, i)], normal(5, 6, 3), integers(0, 5, 4)),
    case("gather", lambda x, i: [x.gather(1, i), x.gather(0, i)], normal(3, 5), integers(0, 3, 2, 4)),
    case("take_along_dim", lambda x, i: torch.take_along_dim(x, i, 1), normal(3, 5), integers(0, 5, 3, 2)),
    case("index_one", lambda x, i: [x[i], x[:, i], x[i - 3]], normal(5, 5, 3), integers(0, 3, 2, 2)),
    case("index_adjacent",
         lambda x, i, j: [x[i, j], x[:, i, j]], normal(4, 4, 4), integers(0, 4, 3), integers(0, 4, 2, 3)),
    case("index_apart",
         lambda x, i, j: [x[i, :, j], x[i, 1:, j - 4]], normal(4, 5, 4), integers(0, 4, 3), integers(0, 4, 2, 1)),
    case("index_counted", lambda x, j: [x[torch.arange(4)[:, None], j], x[torch.arange(4), :, j[:, 0]]],
         normal(4, 5, 6), integers(0, 5, 4, 2)),
    case("index_all_counted", lambda x: [x[torch.arange(4)[:, None, None], torch.arange(6)],
                                         x[:, torch.arange(6)[None], torch.arange(3)[:, None]],
                                         x[torch.arange(4), torch.arange(4)]], normal(4, 6, 3)),
    case("index_put", lambda x, i, v: _put(x, i, v), normal(5, 3), values(0, 3, 4, dtype=torch.int64), normal(3, 3)),
    case("index_put_two", lambda x, i, v: _put_two(x, i, v), normal(5, 3), integers(0, 3, 4), normal(4)),
    case("index_put_mask", lambda x, p: _put_mask(x, p), normal(4, 3), booleans(4, 3)),
    case("index_add", lambda x, i, v: x.index_add(0, i, v, alpha=2), normal(5, 3), integers(0, 5, 4), normal(4, 3)),
    case("index_copy", lambda x, v: x.index_copy(0, torch.tensor([0, 2]), v), normal(5, 3), normal(2, 3)),
    case("index_fill", lambda x: x.index_fill(0, torch.tensor([0, 2]), 9.0), normal(5, 3)),
    case("scatter", lambda x, v: [x.scatter(1, _PLACES, v), x.scatter(1, _PLACES, 2.0)], normal(3, 5), normal(3, 2)),
    case("scatter_add", lambda x, i, v: x.scatter_add(1, i, v), normal(3, 5), integers(0, 5, 2, 4), normal(2, 4)),
    case("scatter_cut",
         lambda x, i, v: x.scatter_add(1, i, v), normal(3, 5), integers(0, 5, 2, 4), normal(3, 6), gradient=False),
    case("scatter_reduce", lambda x, i, v: [x.scatter_reduce(1, i, v, "sum"), x.scatter_reduce(1, i, v, "amax")],
         normal(3, 5), integers(0, 5, 3, 4), normal(3, 4), gradient=False),
    case("bucket_by_compare",
         lambda x: (x[:, None] > torch.tensor([-0.5, 0.0, 0.5], dtype=x.dtype)).sum(1), normal(6), gradient=False),
)  # fmt: skip

_PLACES = torch.tensor([[0, 3], [1, 2], [4, 0]])


def _put(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
    return [x.index_put((i,), v), x.index_put((i,), v, accumulate=True), x.index_put((i,), v[0, 0])]


def _put_two(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return x.index_put((i, i), v, accumulate=True)


def _put_mask(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    x = x * 2
    x[p] = 1.5
    x[p[:, 0]] = 2.5
    return x


FAMILIES: dict[str, tuple[Case, ...]] = {
    "pointwise": POINTWISE,
    "shape": SHAPE,
    "reduction": REDUCTION,
    "linear": LINEAR,
    "activation": ACTIVATION,
    "normalization": NORMALIZATION,
    "attention": ATTENTION,
    "loss": LOSS,
    "conv": CONV,
    "indexing": INDEXING,
}
