"""The results as a page: what was run, counts, and the entries that did not pass, by reason."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from check import OUTSIDE, PASSED, UNSUPPORTED, WRONG
from runner import SLOW

Rows = Mapping[str, Mapping[str, Any]]

#: What reasons are about, by an expression that they match; the first that does.
GROUPS = (
    (r"no handler for the op", "no handler for the ATen op"),
    (r"dtype \S+ is not supported", "an element type that Rhino does not compute with"),
    (r"torch itself fails|no samples", "torch cannot run it on this machine"),
    (r"depends on data", "the result's size depends on values"),
    (r"torch\.export: a shape or a branch", "`torch.export` refuses: a branch or a shape depends on values"),
    (r"torch\.export", "`torch.export` refuses for another reason"),
    (r"rows or columns", "a factorization of a large matrix"),
    (r"not reached|longer than", "not finished within the time limit"),
)

_HEAD = """# PyTorch's op database

`python tests/opinfo/report.py` takes the entries of `torch.testing._internal.common_methods_invocations.op_db` that
have float32 samples. Of each sample it

1. widens tensors to float64, so that a comparison can be strict, and exports the call by `torch.export`;
2. imports it, interprets it, and compares all results (and the tensors that the call writes to) with torch's: integers
   exactly, floats to 1e-7;
3. differentiates it where torch does, and compares the gradient of every tensor with torch's;
4. with `--layouts N`, divides the program by N random layouts on a 2x2 mesh and compares with the undivided one.

Of random ops the shapes are compared, and step 4. An entry *passed* if all its samples did that `torch.export` can
express with static shapes; it is *unsupported* if Rhino refuses one with a typed error, *wrong* if a value differs or
anything else is raised, *slow* if the time limit came first, and *outside* if `torch.export` can express none.

`--out results.json` keeps the results; a run goes on where an earlier one stopped. This page was written by
`--merge results.json --page docs/opinfo.md`.
"""


def page(runs: Mapping[str, Rows], stamp: str = "") -> str:
    """The page for runs by what they ran. The stamp says when that was, and with which versions."""
    parts = [_HEAD, *([stamp + "\n"] if stamp else []), _counts(runs)]
    for title, rows in runs.items():
        parts += [f"## {title[:1].upper()}{title[1:]}\n", _groups(rows)]
    return "\n".join(parts)


def _counts(runs: Mapping[str, Rows]) -> str:
    kinds = (PASSED, UNSUPPORTED, WRONG, SLOW, OUTSIDE)
    lines = [
        "| run | entries | " + " | ".join(kinds) + " | passed, of those not outside | samples passed |",
        "|---|---|" + "---|" * (len(kinds) + 2),
    ]
    for title, rows in runs.items():
        found = Counter(row["kind"] for row in rows.values())
        inside = len(rows) - found[OUTSIDE]
        samples = sum(row.get("samples", {}).get(PASSED, 0) for row in rows.values())
        share = f"{100 * found[PASSED] / max(inside, 1):.1f} %"
        cells = [title, str(len(rows)), *(str(found[k]) for k in kinds), share, str(samples)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def group_of(reason: str) -> str:
    """What a reason is about; the reason itself, shortened, where it is about nothing known."""
    plain = re.sub(r"^sample \d+: ", "", reason)
    return next((name for pattern, name in GROUPS if re.search(pattern, plain)), plain[:120])


def _groups(rows: Rows) -> str:
    """The entries that did not pass: by kind, then by what the reason is about."""
    lines = ["| | reason | entries |", "|---|---|---|"]
    for kind in (WRONG, UNSUPPORTED, SLOW, OUTSIDE):
        by_group: dict[str, list[str]] = defaultdict(list)
        for name, row in sorted(rows.items()):
            if row["kind"] == kind:
                reason = row["reasons"].get(kind, "")
                op = re.search(r"no handler for the op (\S+)", reason)
                shown = f"`{name}` ({op[1].removesuffix('.default')})" if op else f"`{name}`"
                by_group[group_of(reason)].append(shown)
        for group, names in sorted(by_group.items(), key=lambda item: -len(item[1])):
            text = group.replace("|", "\\|")
            lines.append(f"| {kind} ({len(names)}) | {text} | {', '.join(names)} |")
    if len(lines) == 2:
        return "Every entry passed.\n"
    return "\n".join(lines) + "\n"
