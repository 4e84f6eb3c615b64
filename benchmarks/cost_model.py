"""Errors of the cost model on public measurements: kernels, collectives, step time, memory, ranking; and its speed.

    python benchmarks/cost_model.py [--data DIR] [--draws N]

reads measured_gemm.csv, measured_attention.csv, measured_collectives.csv, measured_train_step.csv, and, where they
are there, megatron_sc21_table1_a100.csv and pipeline_schedules.csv from DIR (or
$RHINO_DATA). Rows marked ``holdout`` are scored with the constants that ship. Where a table marks all of its rows
``fit``, constants are refitted on random groups of rows and scored on the others.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import results

from rhino.planner.model.attention import attention_times
from rhino.planner.model.calibrate import NEUTRAL, REFIT, fit_software, measured_errors
from rhino.planner.model.calibrate_kernels import fit_attention, fit_gemm, fit_lines
from rhino.planner.model.collectives import KINDS, collective_times
from rhino.planner.model.configuration import Schedule, configurations
from rhino.planner.model.gemm import gemm_times
from rhino.planner.model.machine import machine
from rhino.planner.model.measurements import Run, measured, read_runs, stack_rows, variant
from rhino.planner.model.memory import fits as memory_fits
from rhino.planner.model.simulate import Pipeline, simulate
from rhino.planner.model.software import Software, software
from rhino.planner.model.transformer import predict

Row = tuple[str, str, object, object, object]
HEADER = ("what", "rows", "mean |error| %", "median %", "bias %")
GENERATION = {"FlashAttention-1": "flash1", "FlashAttention-2": "flash2", "FlashAttention-3": "flash3"}
#: Constants that a recalibration of each stack moves.
FITTED = {
    "megatron": (
        "matmul",
        "elementwise",
        "host_forward",
        "host_backward",
        "host_collective",
        "collective",
        "link",
        "step",
    ),
    "fsdp-eager": ("matmul", "attention", "elementwise", "dp_overlap", "step", "nic", "link"),
    "megatron-core": ("matmul", "attention", "elementwise", "tp_overlap", "dp_overlap", "nic", "step"),
}


def table(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def line(what: str, errors: Sequence[float] | np.ndarray, note: str = "") -> Row:
    e = 100 * np.asarray(errors, dtype=float)
    if not len(e):
        return what, "0", "-", "-", "-"
    return what, f"{len(e)}{note}", float(np.abs(e).mean()), float(np.median(np.abs(e))), float(e.mean())


def scored(rows: Sequence[dict[str, str]]) -> tuple[list[dict[str, str]], bool]:
    """Held-out rows if a table has any, else all; and whether they are held out."""
    held = [r for r in rows if r.get("split") == "holdout"]
    return (held, True) if held else (list(rows), False)


def halves(n: int, draws: int) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    for seed in range(draws):
        order = np.random.default_rng(seed).permutation(n)
        yield order[: n // 2], order[n // 2 :]


def kernels(data: Path, draws: int) -> list[Row]:
    """Matmuls and attention: shipped constants, and constants fitted on half of the rows."""
    out: list[Row] = []
    groups: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for r in scored(table(data / "measured_gemm.csv"))[0]:
        groups[r["gpu"], r["dtype"]].append(r)
    for (gpu, dtype), rows in sorted(groups.items()):
        m = variant(gpu.split("-")[0], {"bfloat16": "bf16"}.get(dtype, dtype), "flash2").linear
        shapes = np.array([[float(r[x]) for x in "mnk"] + [1.0] for r in rows])
        seconds = np.array([float(r["time_us"]) for r in rows]) * 1e-6
        out.append(line(f"gemm {gpu} {dtype}, shipped", gemm_times(m, shapes) / seconds - 1))
        e = [
            gemm_times(fit_gemm(m, shapes[a], seconds[a]), shapes[b]) / seconds[b] - 1
            for a, b in halves(len(rows), draws)
        ]
        out.append(line(f"gemm {gpu} {dtype}, other half", np.concatenate(e), f" x{draws}"))
    calls: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for r in scored(table(data / "measured_attention.csv"))[0]:
        kind = GENERATION.get(r["implementation"], "cudnn" if r["implementation"] == "cuDNN" else "")
        if r["implementation"].startswith("framework"):
            kind = "serving"
        if kind:
            sizes = [float(r[x]) for x in ("batch", "seq", "heads", "kv_heads", "head_dim")]
            calls[r["gpu"], kind].append(
                [*sizes, float(r["mask"] == "causal"), float(r["pass"] != "fwd"), float(r["time_us"]) * 1e-6]
            )
    for (gpu, kind), values in sorted(calls.items()):
        a = np.array(values)
        x, seconds = np.ascontiguousarray(a[:, :7]), a[:, 7]
        kernel = variant(gpu.split("-")[0], "bf16", kind).attention
        out.append(line(f"attention {gpu} {kind}, shipped", attention_times(kernel, x) / seconds - 1))
        if len(a) >= 20:
            e = [
                attention_times(fit_attention(kernel, x[i], seconds[i]), x[j]) / seconds[j] - 1
                for i, j in halves(len(a), draws)
            ]
            out.append(line(f"attention {gpu} {kind}, other half", np.concatenate(e), f" x{draws}"))
    return out


def collectives(data: Path, draws: int) -> list[Row]:
    """One table per kind inside a node (NCCL's own choice), and NVLSTree over nodes."""
    groups: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    devices = {"A100-SXM4-80GB", "H100-SXM5-80GB", "H200-SXM5-141GB", "B200-SXM-180GB", "GB200"}
    for r in scored(table(data / "measured_collectives.csv"))[0]:
        kind = r["op"].replace("alltoall", "all_to_all")
        k, n = float(r["nodes"]), float(r["gpus"])
        nccl = r["algorithm"] == "auto" and r["library"].startswith("NCCL")
        if r["gpu"] not in devices or not r["bytes"] or not (nccl or r["algorithm"] == "NVLSTree"):
            continue
        size = float(r["bytes"]) / (n if kind == "all_gather" else 1)
        groups[r["gpu"].split("-")[0], kind if k == 1 else kind + " over nodes"].append(
            (KINDS[kind], n / k, k, size, 0.0, float(r["time_us"]) * 1e-6)
        )
    out: list[Row] = []
    for (gpu, kind), values in sorted(groups.items()):
        a = np.array(values)
        seconds = a[:, 5]
        e = collective_times(machine(gpu).network, np.ascontiguousarray(a[:, :5])) / seconds - 1
        out.append(line(f"{kind} {gpu}, shipped", e))
        if "nodes" in kind:
            continue
        factor = 2.0 if kind == "all_reduce" else 1.0
        whole = a[:, 3] * (a[:, 1] if kind == "all_gather" else 1.0)
        peers, moved = a[:, 1] - 1, factor * (a[:, 1] - 1) / a[:, 1] * whole
        found = []
        for i, j in halves(len(a), draws):
            lines, _ = fit_lines(peers[i], moved[i], seconds[i])
            t = np.minimum(*(x.latency + x.per_hop * peers[j] + moved[j] / x.bandwidth for x in lines))
            found.append(t / seconds[j] - 1)
        out.append(line(f"{kind} {gpu}, other half", np.concatenate(found), f" x{draws}"))
    return out


def quarter(runs: Sequence[Run], stack: Software, names: Sequence[str], draws: int) -> np.ndarray:
    """Errors on three quarters of the groups (same model and devices) after a refit on the others."""
    keys = sorted({(r.model, r.gpus) for r in runs})
    # The shipped constants have seen these rows: start from neutral ones.
    stack = stack._replace(**{name: NEUTRAL[name] for name in names})
    errors = []
    for seed in range(draws):
        picked = np.random.default_rng(seed).choice(len(keys), max(1, len(keys) // 4), replace=False)
        fit = {keys[i] for i in picked}
        known = [r for r in runs if (r.model, r.gpus) in fit]
        others = [r for r in runs if (r.model, r.gpus) not in fit]
        errors.append(measured_errors(fit_software(stack, measured(known), names), measured(others)))
    return np.concatenate(errors)


def sc21(data: Path) -> list[Row]:
    """Table 1 of Narayanan et al. 2021, which counts FLOPs with recomputation: 96 B s L h^2 (1 + s/6h + V/16Lh)."""
    errors = []
    for r in table(data / "megatron_sc21_table1_a100.csv"):
        layers, h, heads, tp, pp, gpus, batch, s, v = (
            int(r[x])
            for x in (
                "layers",
                "hidden",
                "attention_heads",
                "tp",
                "pp",
                "gpus",
                "global_batch",
                "seq_len",
                "vocab",
            )
        )
        flops = 96 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))
        seconds = flops / (float(r["tflops_per_gpu"]) * 1e12 * gpus)
        dp = gpus // (tp * pp)
        sizes = {
            "layers": layers,
            "hidden": h,
            "heads": heads,
            "ffn": 4 * h,
            "vocab": v,
            "seq": s,
            "nic": 25e9,
        }
        plan = {"tp": tp, "pp": pp, "dp": dp, "recompute": 2.0, "fused_attention": 0.0, "domain": 8.0}
        # The table does not say the micro-batch: the best of those that divide.
        rows = [
            sizes | plan | {"micro_batch": b, "micro_batches": batch / dp / b}
            for b in (1, 2, 4, 8)
            if batch % (dp * b) == 0
        ]
        times = predict(machine("A100"), software("megatron"), configurations(rows))["step"]
        errors.append(float(times.min()) / seconds - 1)
    return [line("SC'21 table 1, 32 to 3072 A100, blind", errors)] if errors else []


def steps(runs: Sequence[Run], data: Path, draws: int) -> list[Row]:
    """Step time of every set of rows."""
    out: list[Row] = []
    ok = [r for r in runs if r.status == "ok" and not math.isnan(r.seconds)]
    for source in dict.fromkeys(r.source for r in ok):
        rows = [r for r in ok if r.source == source and r.stack != "megatron-moe"]
        held = [r for r in rows if r.split == "holdout"]
        stack = software(rows[0].stack)
        for name, some in (
            ("one node", [r for r in rows if r.one_node]),
            ("many nodes", [r for r in rows if not r.one_node]),
        ):
            if some and not held:
                out.append(
                    line(f"{source}, {name}, shipped {rows[0].stack}", measured_errors(stack, measured(some)))
                )
        if held:
            out.append(
                line(f"{source}, held out, shipped {rows[0].stack}", measured_errors(stack, measured(held)))
            )
        names = FITTED.get(rows[0].stack, REFIT)
        if not held and len({(r.model, r.gpus) for r in rows}) >= 8:
            label = f"{source}, {len(names)} constants on 1/4 of groups, other 3/4"
            out.append(line(label, quarter(rows, stack, names, draws), f" /{draws}"))
    experts = [r for r in ok if r.stack == "megatron-moe"]
    if experts:
        out.append(
            line(
                "megatron_bridge, experts, shipped megatron-moe",
                measured_errors(software("megatron-moe"), measured(experts)),
            )
        )
    out += sc21(data)
    single = [r for r in ok if r.source == "vtrain_single" and r.split != "holdout"]
    multi = [r for r in ok if r.source == "vtrain_multi"]
    if single and multi:
        start = software("megatron")._replace(**{name: NEUTRAL[name] for name in FITTED["megatron"]})
        stack = fit_software(start, measured(single), FITTED["megatron"])
        out.append(
            line("vtrain_multi after a fit on vtrain_single only", measured_errors(stack, measured(multi)))
        )
    return out


def foreign(runs: Sequence[Run]) -> list[Row]:
    """Sets predicted with another stack's constants, before and after a refit on the runs of one model."""
    out: list[Row] = []
    for source in dict.fromkeys(r.source for r in runs):
        rows = [r for r in runs if r.source == source and r.status == "ok" and not math.isnan(r.seconds)]
        models = [r.model for r in rows]
        if source.startswith(("vtrain", "megatron_bridge", "mlperf", "torchtitan")) or len(set(models)) < 2:
            continue
        stack = software("eager")
        chosen = max(sorted(set(models)), key=models.count)
        known = [r for r in rows if r.model == chosen]
        others = [r for r in rows if r.model != chosen]
        out.append(line(f"foreign {source}: blind", measured_errors(stack, measured(rows))))
        refit = fit_software(stack, measured(known), REFIT)
        out.append(
            line(
                f"foreign {source}: {len(REFIT)} constants refitted on {len(known)} of {chosen}",
                measured_errors(refit, measured(others)),
            )
        )
    return out


def memory(runs: Sequence[Run], data: Path) -> tuple[list[Row], list[Row]]:
    """Peak memory where it is published, and whether a run fits."""
    out: list[Row] = []
    by: dict[str, list[float]] = defaultdict(list)
    right: dict[str, list[bool]] = defaultdict(list)
    for r in runs:
        m = r.machine()
        if not r.recompute_known:
            continue
        q = predict(m, software(r.stack), stack_rows([r]))[0]
        if not math.isnan(r.memory):
            by[r.source].append(float(q["memory"]) / r.memory - 1)
        if r.status in ("ok", "OOM"):
            right[r.status].append((memory_fits(m.memory_bytes, q) > 0.5) == (r.status == "ok"))
    pattern = re.compile(r"p=(\d+) m=(\d+) micro-batch (\d+) h(\d+) L(\d+) seq(\d+)")
    for row in table(data / "pipeline_schedules.csv"):
        shape = pattern.search(row["config"])
        gb = re.search(r"memory (\d+)", row["unit"])
        kinds = {"1F1B": 1, "1F1B-I": 1, "ZB-1p": Schedule.ZB_1P, "ZB-2p": Schedule.ZB_2P}
        if not shape or not gb or row["schedule"] not in kinds:
            continue
        p, m_, b, h, layers, seq = map(int, shape.groups())
        heads = {2304: 24, 4096: 32, 5120: 40, 6144: 48}[h]
        sizes = {"layers": layers, "hidden": h, "heads": heads, "ffn": 4 * h, "vocab": 51200, "seq": seq}
        # Interleaved: one layer a chunk, embedding and logits count as layers.
        chunks = (layers + 2) // p if row["schedule"] == "1F1B-I" else 1
        plan = {"pp": p, "vp": chunks, "micro_batch": b, "micro_batches": m_, "dropout": 1.0}
        plan |= {"schedule": float(kinds[row["schedule"]]), "fused_attention": 0.0}
        q = predict(machine("A100"), software("megatron"), configurations([sizes | plan]))[0]
        # What tensors take (no context, no cached blocks), in GiB.
        taken = float(q["states"] + q["activations"] + q["temporaries"]) / 2**30
        by[f"zero bubble table 4, {row['schedule']}"].append(taken / float(gb[1]) - 1)
    out += [line(f"peak memory, {source}", e) for source, e in by.items()]
    fits: list[Row] = [
        (f"fits or not, {status} rows", str(len(v)), 100 * (1 - float(np.mean(v))), "-", "-")
        for status, v in right.items()
    ]
    return out, fits


def ranking(runs: Sequence[Run]) -> list[Row]:
    """How much slower the plan ranked first is than the measured best, by group of runs that differ in the plan."""
    groups: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for r in runs:
        if r.status == "ok" and not math.isnan(r.seconds):
            groups[r.group].append(r)
    out: list[Row] = []
    for source in dict.fromkeys(r.source for r in runs):
        regrets = []
        for key, rows in groups.items():
            plans = {
                tuple(r.configuration[f] for f in ("tp", "pp", "dp", "micro_batch", "vp", "zero"))
                for r in rows
            }
            if key[0] != source or len(plans) < 3:
                continue
            times = [float(predict(r.machine(), software(r.stack), stack_rows([r]))["step"][0]) for r in rows]
            regrets.append(rows[int(np.argmin(times))].seconds / min(r.seconds for r in rows) - 1)
        if regrets:
            good = float(np.mean(np.array(regrets) <= 0.05))
            row = line(
                f"regret of the first plan, {source} ({100 * good:.0f} % of groups within 5 %)", regrets
            )
            out.append(row)
    return out


def schedules(data: Path) -> list[Row]:
    """Throughputs of Zero Bubble's Table 4 from one number per model: the time of ZB-2p at the most micro-batches."""
    pattern = re.compile(r"p=(\d+) m=(\d+) micro-batch (\d+)")
    rows: dict[str, list[tuple[str, int, int, float]]] = defaultdict(list)
    for row in table(data / "pipeline_schedules.csv"):
        shape = pattern.search(row["config"])
        if row["set"] == "zero_bubble_table4" and shape:
            rows[row["model"]].append((row["schedule"], int(shape[1]), int(shape[2]), float(row["value"])))
    errors: dict[str, list[float]] = defaultdict(list)
    for entries in rows.values():
        unit = max((m, v) for s, _, m, v in entries if s == "ZB-2p")[1]
        for schedule, p, m, value in entries:
            kind = {"ZB-1p": Schedule.ZB_1P, "ZB-2p": Schedule.ZB_2P}.get(schedule, Schedule.ONE_F_ONE_B)
            bubble = {Schedule.ZB_1P: (p - 1) / 3, Schedule.ZB_2P: 0.0}.get(
                kind, (p - 1) / (3.0 if schedule == "1F1B-I" else 1.0)
            )
            errors[schedule].append((m + bubble) / m * value / unit - 1)
    return [line(f"schedule {name}, zero bubble table 4, closed form", e) for name, e in errors.items()]


def best_of(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def speed(runs: Sequence[Run]) -> list[Row]:
    rows = np.resize(stack_rows([r for r in runs if r.source == "vtrain_single"] or runs), 20000)
    m, s = machine("A100"), software("megatron")
    seconds = best_of(lambda: predict(m, s, rows), 5)
    out: list[Row] = [("analytic evaluations/s", "20000", len(rows) / seconds, "-", "-")]
    for chunks in (1, 2):
        pipeline = Pipeline.chain(16, 128, chunks=chunks)
        ms = 1e3 * best_of(partial(simulate, pipeline), 30)
        out.append((f"simulation ms, 16 devices x 128 micro-batches x {chunks}", "1", ms, "-", "-"))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("RHINO_DATA"), help="folder of the tables"
    )
    parser.add_argument("--draws", type=int, default=5, help="random splits per refit")
    args = parser.parse_args()
    path = Path(args.data) if args.data else None
    if path is None or not (path / "measured_train_step.csv").is_file():
        print(f"skipped: no measured_train_step.csv in {path or '--data or $RHINO_DATA'}")
        return 0
    runs = read_runs(path / "measured_train_step.csv")
    peaks, fits = memory(runs, path)
    body = [
        results.table(HEADER, rows)
        for rows in (
            kernels(path, args.draws),
            collectives(path, args.draws),
            steps(runs, path, args.draws) + foreign(runs),
            peaks + ranking(runs) + schedules(path),
        )
    ]
    body.append(results.table(("what", "rows", "wrong %", "", ""), fits))
    body.append(results.table(("what", "rows", "value", "", ""), speed(runs)))
    results.record("Cost model", "python benchmarks/cost_model.py --data DIR", "\n\n".join(body))
    return 0


if __name__ == "__main__":
    sys.exit(main())
