"""The rules of the ops beside the spine's against brute force: nothing that works without communication is missed.

For every choice of operand layouts every result layout is tried, as in `tests/ir/test_algebra_ops.py`: the op runs on
all devices' data, and the layouts for which the outcome is right must be exactly those that the rule admits. An op
whose outcome the data decide runs on several: what is right for one of them only is right by accident.

Ops that do other work on a piece than on the whole (gather, scatter: `HloOp.localize`) are not tried here.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hloprog import build, type_like
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

sys.path.append(str(Path(__file__).resolve().parents[1] / "ir"))

import simulate

from rhino.dialects.builder import Builder
from rhino.dialects.hlo.base import HloOp
from rhino.dialects.hlo.control import ControlOp
from rhino.ir import types
from rhino.ir.errors import ProgramError
from rhino.ir.layout import Layout
from rhino.ir.mesh import Mesh

RNG = np.random.default_rng(0)


def data(*shape: int, dtype: type = np.float64, scale: float = 1.0) -> np.ndarray:
    """Distinct numbers, so that nothing agrees by accident; exact in sums."""
    count = int(np.prod(shape, dtype=int))
    return (RNG.permutation(997)[:count].reshape(shape) * 8 * scale).astype(dtype)


def pair(c: Builder, a: SSAValue, z: SSAValue) -> list[SSAValue]:
    return [c.sub(c.mul(a, c.full((), types.F64, 3)), z)]


def both(c: Builder, p: SSAValue, q: SSAValue, m: SSAValue, n: SSAValue) -> list[SSAValue]:
    return [c.compare(m, n, "lt")]


def extents(x: SSAValue) -> list[int]:
    return list(types.shape_of(x))


LOWER = np.stack([np.array([[2.0**i, 0.0], [i, 4.0]]) for i in range(1, 5)])

LOW, MIDDLE, HIGH = data(12), data(12) + 8000.0, data(12) + 16000.0

Program = Callable[..., SSAValue]

#: name: (program, operands, kinds of partials tried)
CASES: dict[str, tuple[Program, list[np.ndarray], tuple[str, ...]]] = {
    "clamp": (lambda b, a, x, z: b.clamp(a, x, z), [LOW, MIDDLE, HIGH], ()),
    "clamp by scalars": (
        lambda b, a, x, z: b.clamp(a, x, z),
        [np.array(900.0), data(2, 6), np.array(5000.0)],
        (),
    ),
    "cbrt": (lambda b, x: b.cbrt(x), [data(4, 2)], ("sum",)),
    "round_nearest_afz": (lambda b, x: b.round_nearest_afz(x), [data(4, 3) + 0.5], ()),
    "reduce_precision": (lambda b, x: b.reduce_precision(x, 8, 3), [data(6, 2)], ("sum",)),
    "optimization_barrier": (lambda b, x: b.optimization_barrier([x])[0], [data(4, 6)], ("sum",)),
    "popcnt": (
        lambda b, x: b.popcnt(x),
        [data(12, dtype=np.int32) + np.arange(12, dtype=np.int32)],
        ("sum",),
    ),
    "count_leading_zeros": (lambda b, x: b.count_leading_zeros(x), [2 ** np.arange(12).reshape(2, 6)], ()),
    "bitcast_convert to equal": (lambda b, x: b.bitcast_convert(x, types.I64), [data(4, 3)], ("sum",)),
    "bitcast_convert to small": (lambda b, x: b.bitcast_convert(x, types.I32), [data(6) + 0.1], ()),
    "bitcast_convert to large": (
        lambda b, x: b.bitcast_convert(x, types.I64),
        [RNG.integers(0, 2**30, (6, 2)).astype(np.int32)],
        (),
    ),
    "compare_total": (lambda b, x, y: b.compare_total(x, y, "lt"), [data(36), data(36)], ()),
    "complex": (lambda b, x, y: b.complex(x, y), [data(6), data(6)], ("sum",)),
    "real": (lambda b, z: b.real(z), [data(4, 2) + 1j * data(4, 2)], ("sum",)),
    "imag": (lambda b, z: b.imag(z), [data(6) + 1j * data(6)], ("sum",)),
    "complex_abs": (lambda b, z: b.complex_abs(z), [data(6) * (3 + 4j)], ()),
    "fft": (lambda b, z: b.fft(z, "FFT", [2]), [data(4, 2) + 1j * data(4, 2)], ("sum",)),
    "rfft": (lambda b, x: b.fft(x, "RFFT", [2]), [data(6, 2)], ("sum",)),
    "irfft": (lambda b, z: b.fft(z, "IRFFT", [2]), [data(6, 2) + 0j], ("sum",)),
    "fft of two": (lambda b, z: b.fft(z, "FFT", [2, 2]), [data(3, 2, 2) + 1j * data(3, 2, 2)], ()),
    "cholesky": (
        lambda b, a: b.cholesky(a),
        [np.stack([np.diag([i + 1.0, 4.0]) ** 2 for i in range(6)])],
        (),
    ),
    "triangular_solve": (lambda b, a, y: b.triangular_solve(a, y), [LOWER, data(4, 2, 2)], ("sum",)),
    "triangular_solve right": (
        lambda b, a, y: b.triangular_solve(a, y, left_side=False),
        [LOWER[0], data(6, 2)],
        ("sum",),
    ),
    "map": (lambda b, x, y: b.map([x, y], pair)[0], [data(4), data(4)], ()),
    "generic_reduce": (
        lambda b, x, v: b.generic_reduce([x], [v], [1], pair)[0],
        [data(4, 3), np.array(1.0)],
        (),
    ),
    "generic_reduce_window": (
        lambda b, x, v: b.generic_reduce_window([x], [v], (1, 2), (1, 2), None, pair)[0],
        [data(2, 8), np.array(1.0)],
        (),
    ),
    "generic_sort": (lambda b, x, y: b.generic_sort([x, y], 1, both)[0], [data(4, 5), data(4, 5)], ()),
    "select": (lambda b, p, x, y: b.select(p, x, y), [data(12) % 3 > 0, data(12), data(12)], ("sum",)),
    "argmax": (lambda b, x: b.argmax(x, 1), [data(6, 4)], ()),
    "cumulative": (lambda b, x: b.cumulative(x, 1, "sum"), [data(6, 4)], ("sum",)),
    "cumulative max": (lambda b, x: b.cumulative(x, 0, "max"), [data(4, 6)], ()),
    "sort": (lambda b, x: b.sort([x], 1)[0], [data(6, 4)], ()),
    "top_k": (lambda b, x: b.top_k(x, 2)[0], [data(6, 4)], ()),
    "dynamic_slice": (
        lambda b, x, i, j: b.dynamic_slice(x, [i, j], [extents(x)[0], 2]),
        [data(6, 4), np.array(0), np.array(1)],
        ("sum",),
    ),
    "dynamic_update_slice": (
        lambda b, x, y, i, j: b.dynamic_update_slice(x, y, [i, j]),
        [data(6, 4), data(6, 2), np.array(0), np.array(1)],
        ("sum",),
    ),
    "convolution": (
        lambda b, x, w: b.convolution(x, w, (1,), [(0, 0)], (1,), (1,), 1, 1),
        [data(4, 2, 6), data(2, 2, 3)],
        ("sum",),
    ),
    "reduce_window": (
        lambda b, x: b.reduce_window(x, "sum", (1, 2), (1, 2), [(0, 0), (0, 0)], (1, 1), (1, 1)),
        [data(4, 6)],
        ("sum",),
    ),
    "if": (
        lambda b, p, x: b.if_(p, [x], lambda c, x: [c.add(x, x)], lambda c, x: [c.mul(x, x)])[0],
        [np.array(False), data(4, 3)],
        (),
    ),
    "case": (
        lambda b, i, x: b.case(
            i, [x], [lambda c, x: [c.transpose(x, (1, 0))], lambda c, x: [c.reshape(x, (3, 4))]]
        )[0],
        [np.array(0), data(4, 3)],
        (),
    ),
}

#: Further operands of the same shapes, so that every operand decides, and every branch is taken.
FURTHER: dict[str, list[list[np.ndarray]]] = {
    "clamp": [[MIDDLE, LOW, HIGH], [LOW, HIGH, MIDDLE]],
    "select": [[data(12) > c, data(12), data(12)] for c in (-1, 9000, 3000, 4000)],
    "if": [[np.array(True), data(4, 3)]],
    "case": [[np.array(1), data(4, 3)]],
}


def last_op(program: Program, arrays: Sequence[np.ndarray]) -> HloOp:
    module = build(program, [type_like(a) for a in arrays])
    func = module.body.block.first_op
    assert isinstance(func, FuncOp)
    return [o for o in func.body.block.ops if isinstance(o, HloOp)][-1]


def local_results(program: Program, op: HloOp, devices: list[list[np.ndarray]]) -> list[np.ndarray] | None:
    """What every device computes by the same op on its pieces; None if the pieces do not go together."""
    try:
        if not isinstance(op, ControlOp):  # the programs in its regions name extents
            op = last_op(program, devices[0])
        with np.errstate(divide="ignore", invalid="ignore"):  # of pieces that do not belong together
            return [np.asarray(op.evaluate(*local)[0]) for local in devices]
    except (ProgramError, ValueError):
        return None


class Trial:
    """One set of operands, cut in every way."""

    def __init__(self, program: Program, op: HloOp, arrays: list[np.ndarray], kinds: Any, mesh: Mesh) -> None:
        self.program, self.op, self.mesh = program, op, mesh
        self.value = np.asarray(op.evaluate(*arrays)[0])
        self.choices = [list(simulate.layouts(x.shape, mesh, kinds if x.ndim else ())) for x in arrays]
        self.pieces = [
            {a: [p.astype(x.dtype) for p in simulate.scatter(x, a, mesh, seed=i)] for a in some}
            for i, (x, some) in enumerate(zip(arrays, self.choices, strict=True))
        ]

    def right(self, operands: Sequence[Layout], results: Sequence[Layout]) -> set[Layout]:
        """The layouts of the result that the devices' outcomes are in."""
        devices = [
            [p[a][d] for p, a in zip(self.pieces, operands, strict=True)] for d in range(self.mesh.size)
        ]
        out = local_results(self.program, self.op, devices)
        if out is None:
            return set()
        return {
            result
            for result in results
            if all(y.shape == result.local_shape(self.value.shape) for y in out)
            and simulate.check(out, self.value, result, self.mesh) is None
        }


def check(name: str, mesh: Mesh) -> Counter[str]:
    program, arrays, kinds = CASES[name]
    op = last_op(program, arrays)
    rule = op.rule()
    trials = [Trial(program, op, each, kinds, mesh) for each in [arrays, *FURTHER.get(name, [])]]
    results = list(simulate.layouts(trials[0].value.shape, mesh, kinds))
    found: Counter[str] = Counter()
    for operands in itertools.product(*trials[0].choices):
        right = set.intersection(*[trial.right(operands, results) for trial in trials])
        for result in results:
            says = rule.admits(operands, [result] * len(op.results)) is None
            found["kept"] += says and result in right
            if says != (result in right):
                found[f"{'wrong' if says else 'missed'}: {operands} -> {result}"] += 1
    return found


@pytest.mark.parametrize("mesh", ["2", "3"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_missed_and_nothing_wrong(name: str, mesh: str) -> None:
    found = check(name, Mesh.parse(mesh))
    assert set(found) == {"kept"} and found["kept"], found
