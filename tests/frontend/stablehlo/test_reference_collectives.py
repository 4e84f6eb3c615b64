"""Collectives of ``interpreter.run_parallel`` in all their modes, against StableHLO's own interpreter."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("jaxlib.mlir.dialects.stablehlo")

from hlo_reference import run_reference
from op_draw import Draw, tensor

from rhino.frontend.stablehlo import read_stablehlo
from rhino.ir.evaluate import run_module

SUM = """({
    ^bb0(%a: tensor<i64>, %b: tensor<i64>):
      %c = stablehlo.add %a, %b : tensor<i64>
      stablehlo.return %c : tensor<i64>
    })"""
CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = {}, type = 0>"


def table(groups: list[list[int]]) -> str:
    return f"dense<{groups}> : tensor<{len(groups)}x{len(groups[0])}xi64>"


def equal_groups(d: Draw, count: int) -> list[list[int]]:
    """Numbers 0 to count - 1 in any order, in groups of one size."""
    size = d.choice([n for n in range(1, count + 1) if count % n == 0])
    order = d.order(count)
    return [order[i : i + size] for i in range(0, count, size)]


def program(name: str, d: Draw) -> str:
    replicas, partitions = d.choice(((1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 3), (3, 2)))
    mode = d.integer(0, 2)
    reducing = name in ("all_gather", "all_reduce", "reduce_scatter")
    # By replica, by partition (of the reducing ones: by both), or by number of the process.
    channel = 0 if mode == 0 else 1
    everywhere = mode == 2 and reducing
    if everywhere:
        count = replicas * partitions
    elif channel == 0 or reducing:
        count = replicas
    else:
        count = partitions
    groups = equal_groups(d, count)
    attributes = [CHANNEL.format(channel)]
    if everywhere:
        attributes.append("use_global_device_ids")
    width = len(groups[0]) * (partitions if reducing and channel and not everywhere else 1)
    x, out, body = [2, 2 * width], [2, 2 * width], ""
    if name == "collective_permute":
        targets = d.order(count)
        pairs = [[s, t] for s, t in enumerate(targets) if d.integer(0, 3)] or [[0, targets[0]]]
        attributes.append(f"source_target_pairs = {table(pairs)}")
    else:
        attributes.append(f"replica_groups = {table(groups)}")
    dim = d.integer(0, 1)
    if name == "all_gather":
        attributes.append(f"all_gather_dim = {dim} : i64")
        out = [n * width if i == dim else n for i, n in enumerate(x)]
    elif name == "reduce_scatter":
        attributes.append("scatter_dimension = 1 : i64")
        out, body = [2, 2], SUM
    elif name == "all_reduce":
        body = SUM
    elif name == "all_to_all":
        attributes += [
            "split_dimension = 1 : i64",
            f"concat_dimension = {dim} : i64",
            f"split_count = {width} : i64",
        ]
        out = [2 * width, 2] if dim == 0 else x
    many = replicas * partitions
    operand, result = tensor(x, "i64"), tensor(out, "i64")
    names = [d.constant(x, "i64") for _ in range(many)]
    programs = ", ".join("[" + ", ".join(["@f"] * partitions) + "]" for _ in range(replicas))
    constants = "\n".join(d.lines)
    results = ", ".join([result] * many)
    returned = ", ".join(f"%r#{i}" for i in range(many)) if many > 1 else "%r"
    return f"""module {{
  func.func @f(%x: {operand}) -> {result} {{
    %0 = "stablehlo.{name}"(%x) <{{{", ".join(attributes)}}}> {body} : ({operand}) -> {result}
    func.return %0 : {result}
  }}
  func.func @main() -> ({results}) {{
{constants}
    %r{f":{many}" if many > 1 else ""} = "interpreter.run_parallel"({", ".join(names)}) {{programs = [{programs}]}} : ({", ".join([operand] * many)}) -> ({results})
    func.return {returned} : {results}
  }}
}}"""


NAMES = (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "collective_broadcast",
    "collective_permute",
    "reduce_scatter",
)


SAME, DIFFERENT, ABORTED = 0, 1, 2


def outcome(name: str, seed: int) -> int:
    """Compare in a process of its own: the interpreter ends its process where it has fewer threads than it needs."""
    process = os.fork()
    if not process:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        text = program(name, Draw(seed))
        want = run_reference(text)
        found = zip(run_module(read_stablehlo(text), []), want, strict=True)
        os._exit(SAME if all(np.array_equal(x, y) for x, y in found) else DIFFERENT)
    _, status = os.waitpid(process, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else ABORTED


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", NAMES)
def test_collectives(name: str) -> None:
    found = Counter(outcome(name, seed) for seed in range(int(os.environ.get("RHINO_ROUNDS", "30"))))
    assert found[DIFFERENT] == 0 and found[SAME] > 0, found
