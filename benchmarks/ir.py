"""IR throughput: build, verify, print, parse and the clean-up passes at 10,000 and 100,000 ops.

    python benchmarks/ir.py [SIZES...]

As a yardstick the same is measured for xDSL's own `arith` ops on the same machine in the same run, in turns: CPU time,
medians of three. Rhino verifies modules by `verify_module`, which also checks dominance; xDSL's walk over the same
ops stands above it. Reading `hlo` text includes verifying it, reading `arith` text does not.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable

from results import record, table
from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func, FuncOp, ReturnOp
from xdsl.parser import Parser
from xdsl.rewriter import InsertPoint

from rhino.dialects.builder import Builder
from rhino.dialects.text import parse_module, print_module
from rhino.ir import types
from rhino.ir.verify import verify_module
from rhino.passes.canonicalize import CanonicalizePass
from rhino.passes.cse import CsePass
from rhino.passes.dce import DcePass
from rhino.passes.fold_constants import FoldConstantsPass


def hlo_module(size: int) -> ModuleOp:
    """`size` ops in the mixture of a training step: adds, products, broadcasts, reductions, transposes."""
    type = types.tensor((8, 8), types.F32)
    func = FuncOp("main", ((type, type), (type,)))
    b = Builder(InsertPoint.at_end(func.body.block))
    x, y = func.args
    for i in range(size // 5):
        x = b.add(x, y)
        y = b.mul(y, x)
        row = b.reduce(x, [i % 2], "sum")
        x = b.broadcast_in_dim(row, (8, 8), [i % 2])
        y = b.transpose(y, (1, 0))
    b.insert(ReturnOp(b.add(x, y)))
    return ModuleOp([func])


def arith_module(size: int) -> ModuleOp:
    func = FuncOp("main", ((types.I64, types.I64), (types.I64,)))
    x, y = func.args
    block = func.body.block
    for i in range(size):
        op = arith.AddiOp(x, y) if i % 2 else arith.MuliOp(x, y)
        block.add_op(op)
        x, y = y, op.result
    block.add_op(ReturnOp(y))
    return ModuleOp([func])


def timed(run: Callable[[], object]) -> float:
    """CPU seconds, which other work on the machine disturbs less than it does the wall clock's."""
    gc.collect()
    gc.freeze()
    start = time.process_time()
    run()
    seconds = time.process_time() - start
    gc.unfreeze()
    return seconds


def beside(run: Callable[[], object], yardstick: Callable[[], object]) -> tuple[float, float]:
    """Medians of both, in turns, so that both meet the machine in the same state."""
    pairs = [(timed(run), timed(yardstick)) for _ in range(3)]
    own, other = zip(*pairs, strict=True)
    return statistics.median(own), statistics.median(other)


def measure(size: int) -> list[list[object]]:
    arith_context = Context()
    for dialect in (Builtin, Func, arith.Arith):
        arith_context.load_dialect(dialect)
    rows: list[list[object]] = []

    def add(step: str, seconds: float, yardstick: float | None = None) -> None:
        per_op = seconds / size * 1e6
        rows.append([size, step, per_op, "" if yardstick is None else seconds / yardstick])

    add("build", *beside(lambda: hlo_module(size), lambda: arith_module(size)))
    module, module_a = hlo_module(size), arith_module(size)
    add("verify, xDSL's walk", *beside(module.verify, module_a.verify))
    add("verify, and dominance", *beside(lambda: verify_module(module), module_a.verify))
    add("print", *beside(lambda: print_module(module), lambda: str(module_a)))
    text, text_a = print_module(module), str(module_a)
    add(
        "parse",
        *beside(
            lambda: parse_module(text, "bench.mlir"), lambda: Parser(arith_context, text_a).parse_module()
        ),
    )
    for cleanup in (CanonicalizePass(), CsePass(), FoldConstantsPass(), DcePass()):
        add(cleanup.name, timed(lambda cleanup=cleanup: cleanup.apply(Context(), module)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="IR throughput, beside xDSL's arith ops in the same run.")
    parser.add_argument("sizes", nargs="*", type=int, default=[10_000, 100_000], help="numbers of ops")
    sizes = parser.parse_args().sizes
    rows = [row for size in sizes for row in measure(size)]
    body = table(["ops", "step", "microseconds per op", "ratio to xDSL's arith"], rows)
    record("IR throughput", " ".join(["python benchmarks/ir.py", *map(str, sizes)]), body)


if __name__ == "__main__":
    main()
