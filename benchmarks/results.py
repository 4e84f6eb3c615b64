"""Prints a table and keeps it in benchmarks/RESULTS.md, one section per benchmark."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table, aligned so that it also reads well on a terminal."""
    cells = [list(header), *([_show(c) for c in row] for row in rows)]
    widths = [max(len(r[i]) for r in cells) for i in range(len(header))]
    lines = [
        "| "
        + " | ".join(
            c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))
        )
        + " |"
        for r in cells
    ]
    rule = (
        "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    )
    return "\n".join([lines[0], rule, *lines[1:]])


def record(title: str, command: str, body: str, *, file: Path = RESULTS) -> None:
    """Print `body` and write it as the section `title` of RESULTS.md, with the command and the machine."""
    print(body)
    today = datetime.date.today().isoformat()
    where = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    section = f"## {title}\n\n`{command}` ({today}, {where})\n\n{body}\n"
    text = file.read_text() if file.exists() else "# Results\n\nWritten by the scripts beside this file.\n"
    pattern = re.compile(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", re.S | re.M)
    if pattern.search(text):
        text = pattern.sub(lambda _: section + "\n", text)
    else:
        text = text.rstrip() + "\n\n" + section
    file.write_text(text.rstrip() + "\n")


def _show(cell: object) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
