"""The matmul template: a tiled, grouped, f32-accumulating dot with the epilogue's statements before the store."""

from __future__ import annotations

import math

from rhino.kernels.emit import Axis, source, statement_lines
from rhino.kernels.region import KernelSpec, offset


def matmul(name: str, spec: KernelSpec) -> str:
    """Source of one kernel; tile sizes BM, BN, BK and the L2 grouping GROUP are compile-time constants.

    Programs walk tiles in groups of GROUP row blocks, so that a group's columns of the right operand stay in L2.
    """
    dot = spec.dot
    assert dot is not None
    m, n, k = (math.prod(d) for d in (dot.rows, dot.columns, dot.contracted))
    nb, nm = len(dot.batch), len(dot.rows)
    ends = (nb, nb + nm, len(spec.loop))
    axes = (
        Axis(0, ends[0], "pb", ""),
        Axis(ends[0], ends[1], "rm", "mm"),
        Axis(ends[1], ends[2], "rn", "mn"),
    )
    batch_l = offset(dot.batch, dot.lhs_strides[:nb], "pb")
    batch_r = offset(dot.batch, dot.rhs_strides[:nb], "pb")
    rows_l = offset(dot.rows, dot.lhs_strides[nb : nb + nm], "rm") or "rm * 0"
    cols_r = offset(dot.columns, dot.rhs_strides[nb : nb + len(dot.columns)], "rn") or "rn * 0"
    deep_l = offset(dot.contracted, dot.lhs_strides[nb + nm :], "{k}") or "{k} * 0"
    deep_r = offset(dot.contracted, dot.rhs_strides[nb + len(dot.columns) :], "{k}") or "{k} * 0"
    ka, kb = "(rk[None, :] + k)", "(rk[:, None] + k)"
    lines = [
        "pid = tl.program_id(0)",
        "pb = tl.program_id(1)",
        f"blocks_m = tl.cdiv({m}, BM)",
        f"blocks_n = tl.cdiv({n}, BN)",
        "first = (pid // (GROUP * blocks_n)) * GROUP",
        "group = min(blocks_m - first, GROUP)",
        "pm = first + (pid % (GROUP * blocks_n)) % group",
        "pn = (pid % (GROUP * blocks_n)) // group",
        "rm = (pm * BM + tl.arange(0, BM))[:, None]",
        "rn = (pn * BN + tl.arange(0, BN))[None, :]",
        "rk = tl.arange(0, BK)",
        f"mm = rm < {m}",
        f"mn = rn < {n}",
        f"a_ptr = {' + '.join(t for t in (dot.lhs.name, batch_l, rows_l) if t)}",
        f"b_ptr = {' + '.join(t for t in (dot.rhs.name, batch_r, cols_r) if t)}",
        "acc = tl.zeros((BM, BN), dtype=tl.float32)",
        f"for k in range(0, {k}, BK):",
        f"    a = tl.load(a_ptr + {deep_l.format(k=ka)}, mask=mm & ({ka} < {k}), other=0.0)",
        f"    b = tl.load(b_ptr + {deep_r.format(k=kb)}, mask=mn & ({kb} < {k}), other=0.0)",
        '    acc = tl.dot(a, b, acc, input_precision="ieee")',
        f"{dot.result} = acc",
        *statement_lines(spec, axes, "(mm & mn)"),
    ]
    note = f"matmul {m}x{n}x{k}" + (f", {math.prod(dot.batch)} batches" if dot.batch else "")
    return source(
        name, spec, lines, {"BM": "", "BN": "", "BK": "", "GROUP": "row blocks that share columns"}, note
    )
