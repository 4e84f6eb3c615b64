"""Runs PyTorch's op database and writes what passed, what is unsupported and why, and what is wrong.

python tests/opinfo/report.py --out results.json --limit 60         # goes on where an earlier run stopped
python tests/opinfo/report.py --out results.json --again wrong slow # these once more
python tests/opinfo/report.py --samples 4 --layouts 0 --only 'linalg.*'
python tests/opinfo/report.py --merge part*.json --page docs/opinfo.md --title 'all samples, divided'

`--merge` reads one run, in one or several files; `--and FILE TITLE` adds a further run to the page.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "properties"), str(HERE.parents[1])]

from check import LAYOUTS, OUTSIDE, PASSED, UNSUPPORTED, WRONG, Outcome, outcomes  # noqa: E402
from pages import page  # noqa: E402
from runner import SLOW, load, run_all, save, serve, waiting  # noqa: E402
from samples import entries, samples  # noqa: E402

#: Samples in one program.
GROUP = 8
#: Seconds that samples under way may take beyond an entry's limit, before the process is ended.
GRACE = 60.0


def run_entry(name: str, limit: int | None, layouts: int, seconds: float = math.inf) -> dict[str, Any]:
    """What became of an entry: its kind, how many samples of each kind, and the first reason of each.

    No further samples are begun after `seconds`; those left count as slow. An entry whose first samples are all
    unsupported is left at that.
    """
    start = time.perf_counter()
    try:
        calls = samples(entries()[name], limit)
    except Exception as error:
        return {"kind": OUTSIDE, "reasons": {OUTSIDE: f"no samples: {' '.join(str(error).split())[:200]}"}}
    found: dict[int, Outcome] = {}
    for i in range(0, len(calls), GROUP):
        if time.perf_counter() - start > seconds:
            late = Outcome(SLOW, f"not reached in {seconds:g} s")
            found |= {s.index: late for s in calls[i:]}
            break
        group = outcomes(calls[i : i + GROUP], layouts)
        found |= group
        if i + GROUP < len(calls) and {o.kind for o in group.values()} == {UNSUPPORTED}:
            why = next(iter(group.values())).reason
            found |= {s.index: Outcome(UNSUPPORTED, why) for s in calls[i + GROUP :]}
            break
    counts = Counter(o.kind for o in found.values())
    reasons: dict[str, str] = {}
    for index, outcome in sorted(found.items()):
        if outcome.reason:
            reasons.setdefault(outcome.kind, f"sample {index}: {outcome.reason}")
    return {
        "kind": kind_of(counts),
        "samples": dict(counts),
        "reasons": reasons,
        "random": any(o.random for o in found.values()),
        "seconds": round(time.perf_counter() - start, 2),
    }


def kind_of(counts: Counter[str]) -> str:
    """Of an entry: wrong, unsupported or slow if any sample is; passed if all that torch can export pass."""
    return next((k for k in (WRONG, UNSUPPORTED, SLOW, PASSED) if counts[k]), OUTSIDE)


def chosen_names(part: str, only: str) -> list[str]:
    index, count = (int(n) for n in part.split("/"))
    names = sorted(n for n in entries() if re.fullmatch(only, n))
    return names[index - 1 :: count]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", default="1/1", help="N/M: the N-th of M parts")
    parser.add_argument("--only", default=".*", help="entries whose whole name matches this expression")
    parser.add_argument("--samples", type=int, help="at most so many samples of an entry, spread over all")
    parser.add_argument("--layouts", type=int, default=LAYOUTS, help="random layouts of each program")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for an entry")
    parser.add_argument("--out", type=Path, help="JSON file of results; what it holds is not run again")
    parser.add_argument("--again", nargs="*", default=(), help="kinds of results to run again")
    parser.add_argument("--merge", type=Path, nargs="+", help="read these results instead of running")
    parser.add_argument("--page", type=Path, help="write the page here")
    parser.add_argument("--title", default="all samples", help="what the page calls the run")
    parser.add_argument("--and", dest="more", nargs=2, action="append", default=[], metavar=("FILE", "TITLE"))
    parser.add_argument(
        "--stamp", default="", help="a line of the page: the date and the versions of the runs"
    )
    parser.add_argument("--worker", action="store_true", help="read names, write rows")
    options = parser.parse_args(argv)
    if options.worker:
        serve(lambda name: run_entry(name, options.samples, options.layouts, options.limit))
        return
    rows: dict[str, dict[str, Any]] = {}
    if options.merge:
        for path in options.merge:
            rows |= load(path)
    else:
        rows = run_missing(options)
    print(dict(Counter(r["kind"] for r in rows.values())))
    if options.page:
        more = {title: load(Path(path)) for path, title in options.more}
        options.page.write_text(page({options.title: rows} | more, options.stamp))


def run_missing(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Run the entries that have no result yet; each result is written as soon as it is there."""
    rows = load(options.out) if options.out else {}
    names = list(waiting(chosen_names(options.part, options.only), rows, options.again))
    command = [sys.executable, __file__, "--worker", "--layouts", str(options.layouts)]
    command += ["--limit", str(options.limit)]
    if options.samples is not None:
        command += ["--samples", str(options.samples)]
    count = 0

    def report(name: str, row: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        rows[name] = row
        reason = "" if row["kind"] == PASSED else row["reasons"].get(row["kind"], "")
        where = f"{count}/{len(names)}"
        print(f"{where:<9}{row['kind']:<12}{name:<48}{row.get('seconds', 0):>7} {reason[:200]}", flush=True)
        if options.out:
            save(options.out, rows)

    run_all(names, command, options.limit + GRACE, report)
    return rows


if __name__ == "__main__":
    main()
