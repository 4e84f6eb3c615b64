"""The solver on the production sharding problems of the ASPLOS 2025 / EuroSys IOPDDL contest.

    python benchmarks/iopddl.py FILE.json[.gz]... [--timeout S] [--json FILE]

An instance file holds ``nodes.intervals[i] = [start, end)``, ``nodes.costs[i][s]``, ``nodes.usages[i][s]``,
``edges.nodes``, ``edges.costs`` (row-major) and ``usage_limit``; costs of 1e18 mean forbidden. When a file
``best.csv`` stands beside an instance, its time limit and best known cost are used.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from results import record, table

from rhino.planner.solver import Infeasible, Problem, Solution, solve

FORBIDDEN = 1e18
DEFAULT_TIMEOUT = 60.0


def read(path: Path) -> Problem:
    """An instance as a problem; forbidden strategies cost infinity."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as file:
        data = json.load(file)
    data = data.get("problem", data)
    nodes, edges = data["nodes"], data["edges"]
    costs = tuple(_costs(c) for c in nodes["costs"])
    usages = tuple(np.asarray(u, dtype=np.float64) for u in nodes["usages"])
    pairs = []
    for (i, j), flat in zip(edges["nodes"], edges["costs"], strict=True):
        pairs.append((int(i), int(j), _costs(flat).reshape(len(costs[i]), len(costs[j]))))
    intervals = tuple((int(a), int(b)) for a, b in nodes["intervals"])
    return Problem(costs, tuple(pairs), usages, intervals, float(data["usage_limit"]))


def _costs(values: list[float]) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    array[array >= FORBIDDEN] = np.inf
    return array


def known(path: Path) -> dict[str, str]:
    """The row of best.csv for an instance, empty when there is none."""
    file = path.with_name("best.csv")
    if not file.exists():
        return {}
    letter = path.name.split(".")[0].rsplit("-", 1)[-1]
    with file.open() as rows:
        return next((row for row in csv.DictReader(rows) if row["instance"] == letter), {})


def run(path: Path, timeout: float | None) -> dict[str, Any]:
    best = known(path)
    seconds = timeout or float(best.get("timeout_s") or DEFAULT_TIMEOUT)
    began = time.perf_counter()
    problem = read(path)
    found: Solution | None
    try:
        # The contest's clock includes reading the file.
        found = solve(problem, timeout=max(1.0, seconds - (time.perf_counter() - began)))
    except Infeasible as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        found = None
    spent = time.perf_counter() - began
    target = float(best["best_team_cost"]) if best.get("best_team_cost") else None
    return {
        "file": path.name.removesuffix(".gz").removesuffix(".json"),
        "nodes": len(problem.costs),
        "limit_s": seconds,
        "seconds": spent,
        "cost": found.cost if found else None,
        "best_known": target,
        "ratio": found.cost / target if found and target else None,
        "lower_bound": found.lower_bound if found else None,
        "gap": found.gap if found else None,
        "peak_over_limit": found.peak_usage / problem.limit if found and problem.limit else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--timeout", type=float, help="seconds per file (default: the contest's, else 60)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    files = [f for f in options.files if f.exists()]
    for missing in set(options.files) - set(files):
        print(f"no such file: {missing}", file=sys.stderr)
    if not files:
        print("skipped: give instance files of the contest (they are not part of this project)")
        return
    rows = [run(path, options.timeout) for path in files]
    header = list(rows[0])
    shown = [["" if r[k] is None else _show(k, r[k]) for k in header] for r in rows]
    record("Solver: IOPDDL", "python benchmarks/iopddl.py FILE...", table(header, shown))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def _show(key: str, value: Any) -> str:
    if key in ("cost", "best_known", "lower_bound"):
        return f"{value:,.0f}"
    if key in ("ratio", "gap", "peak_over_limit"):
        return f"{value:.5f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
