"""The plan that Rhino finds for Llama 3 against the one that torchtitan has by hand, under the same cost model.

    python benchmarks/torchtitan.py --data DIR

torchtitan's published figures (torchtitan_llama3_throughput.csv in DIR) include Llama 3 8B on 64 H100, bf16, attention
made again for the backward pass: sharded states over 8 nodes and tensor parallelism with split tokens inside each,
which is the template `fsdp_tp` on that mesh: of the plans of that kind the one that the cost model likes best. Both
plans are for the same program, cluster and memory; what they share out differently is listed. torchtitan makes more
than attention again, so that the batch fits at once; here it goes through in micro-batches, in both plans. The measured
throughput is only for scale: the cost model is not fitted to it.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from pathlib import Path
from typing import Any

from plan import ROOT, Clock, training_program
from results import record, table

#: Bytes of the published machine's devices, and the share of them that a plan may fill.
MEMORY, USABLE = 96e9, 0.9


def published(data: Path) -> dict[str, str] | None:
    """The row of the published plan: 64 devices, bf16, synchronous tensor parallelism."""
    path = data / "torchtitan_llama3_throughput.csv"
    if not path.exists():
        return None
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sizes = row["model"], row["gpus"], row["linear_precision"], row["technique"]
            if sizes == ("llama3-8b", "64", "bf16", "vanilla TP"):
                return row
    return None


def groups(found: dict[str, Any]) -> dict[str, set[str]]:
    """Layouts of parameters, those of equal layers under one name."""
    out: dict[str, set[str]] = {}
    for entry in found["parameters"]:
        out.setdefault(re.sub(r"\.\d+\.", ".*.", entry["name"]), set()).add(entry["layout"])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the published figures")
    parser.add_argument("--level", default="O2", choices=("O1", "O2"))
    parser.add_argument("--layers", type=int, help="another depth than the model's 32")
    parser.add_argument("--micro-batches", type=int, default=4, help="parts of the batch, one after another")
    options = parser.parse_args()
    row = published(options.data)
    if row is None:
        print(f"skipped: {options.data} has no torchtitan_llama3_throughput.csv with the row of 64 devices")
        return
    from rhino.ir.errors import RhinoError
    from rhino.ir.mesh import Mesh
    from rhino.planner import plan
    from rhino.planner.cluster import Cluster
    from rhino.planner.effort import Effort

    devices, local, length = int(row["gpus"]), int(row["local_batch"]), int(row["seq_len"])
    data, tensor = int(row["fsdp"]), int(row["tp"])
    program = argparse.Namespace(
        model="llama3-8b", layers=options.layers, batch=local * data, recompute="attention"
    )
    step, layers = training_program(program, Clock())
    cluster, limit = Cluster.parse("8x8xH100"), USABLE * MEMORY
    effort = Effort(options.level, mesh_axes=2)
    common = {"memory_limit": limit, "effort": effort, "micro_batches": options.micro_batches}
    try:
        hand = plan(step, cluster, template="fsdp_tp", mesh=Mesh.parse(f"dp={data},tp={tensor}"), **common)
        auto = plan(step, cluster, **common)
    except RhinoError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    tokens = local * data * length / devices
    measured = float(row["tokens_per_s_per_gpu"])
    rows: list[list[object]] = []
    for name, found in (("by hand (fsdp_tp)", hand), ("found", auto)):
        seconds = found.cost.step_time_s
        rows.append(
            [
                name,
                str(found.mesh).replace(",", " "),
                f"{seconds * 1e3:.1f}",
                f"{found.cost.compute_s * 1e3:.1f}",
                f"{found.cost.comm_s * 1e3:.1f}",
                f"{found.cost.peak_memory_bytes / 1e9:.1f}",
                f"{tokens / seconds:.0f}",
                f"{found.lower_bound_s / seconds:.3f}",
            ]
        )
    rows.append(
        ["measured, by hand", "", f"{tokens / measured * 1e3:.1f}", "", "", "", f"{measured:.0f}", ""]
    )
    header = [
        "plan",
        "mesh",
        "step ms",
        "compute ms",
        "comm ms",
        "GB/device",
        "tokens/s/device",
        "bound/step",
    ]
    one, two = hand.to_json(), auto.to_json()
    of_hand, of_auto = groups(one), groups(two)
    layouts = [[f"`{n}`", " or ".join(sorted(of_hand[n])), " or ".join(sorted(of_auto[n]))] for n in of_hand]
    sent: dict[tuple[str, str], list[str]] = {}
    for i, found in enumerate((one, two)):
        for entry in found["collectives"]:
            cell = sent.setdefault((entry["kind"], f"{entry['axis']}"), ["", ""])
            cell[i] = f"{entry['bytes'] / 1e9:.2f} ({entry['count']})"
    text = "\n\n".join(
        [
            f"Llama 3 8B ({layers} layers), {local * data} sequences of {length}, bf16, in {options.micro_batches} "
            f"micro-batches, attention recomputed, {limit / 1e9:.1f} GB usable; {options.level}. The found plan takes "
            f"{auto.cost.step_time_s / hand.cost.step_time_s:.3f} of the time of the one by hand under the same model. "
            "The model charges every op of attention by itself, as the planned program has them: a fused kernel, as "
            "was measured, takes a fraction of that.",
            table(header, rows),
            table(["parameter", "by hand", "found"], layouts),
            table(
                ["collective", "axis", "by hand, GB sent (count)", "found, GB sent (count)"],
                [[kind, axis, *cells] for (kind, axis), cells in sorted(sent.items())],
            ),
        ]
    )
    if options.layers is not None:
        print(text)
    else:
        record("Llama 3 8B against torchtitan's plan", "python benchmarks/torchtitan.py --data DIR", text)


if __name__ == "__main__":
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    main()
